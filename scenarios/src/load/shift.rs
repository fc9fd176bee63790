//! Changes of machine or load during a serving run.
//!
//! ```yaml
//! shifts:
//!   - {from: 2 min, until: 6 min, device: cpu, slower: 2}   # the device takes twice as long
//!   - {from: 2 min, longer: 8}                              # prompts are 8 times as long
//!   - {from: 2 min, until: 4 min, busier: 3}                # 3 times as many requests arrive
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use hwprofiles::{Ratio, Seconds};
use serde::Serialize;
use serde_json::Value;

/// A change that lasts for a while.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shift {
    /// Start, since the beginning of the run.
    pub from: Seconds,
    /// End, since the beginning of the run; `None` means the end of the run.
    pub until: Option<Seconds>,
    /// The change.
    pub change: ShiftChange,
}

/// What changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShiftChange {
    /// A device takes longer for everything.
    Slower {
        /// The device's name.
        device: String,
        /// Time with the change ÷ time without.
        factor: Ratio,
    },
    /// Prompts of new requests have this many times the tokens.
    Longer(Ratio),
    /// This many times as many requests arrive.
    Busier(Ratio),
}

const WANTED: &str = "a list is wanted, of {from: 2 min, until: 6 min, device: cpu, slower: 2}, {from: …, longer: 8} and \
                      {from: …, busier: 3}; factors from 0.001 to 1000";

/// Reads the list under `shifts`; empty if there is none.
pub(crate) fn read_shifts(root: &DocumentSection<'_>) -> Result<Vec<Shift>, ScenarioError> {
    match root.get("shifts") {
        None => Ok(Vec::new()),
        Some(Value::Array(shifts)) => {
            let all: Option<Vec<Shift>> = shifts.iter().map(shift).collect();
            all.ok_or_else(|| root.wrong("shifts", WANTED))
        }
        Some(_) => Err(root.wrong("shifts", WANTED)),
    }
}

/// Reads one entry; `None` if it is wrong.
fn shift(value: &Value) -> Option<Shift> {
    let entries = value.as_object()?;
    let time = |key: &str| entries.get(key).map(|value| value.as_str()?.parse::<Seconds>().ok());
    // A key that is present must be a time.
    let (from, until) = (time("from")??, time("until"));
    if until.is_some_and(|until| until.is_none_or(|until| until <= from)) || from < Seconds::ZERO {
        return None;
    }
    let until = until.flatten();
    let factor = |key: &str| {
        let number = entries.get(key)?.as_f64().filter(|factor| (1e-3..=1e3).contains(factor))?;
        Ratio::new(number)
    };
    let times = 1 + usize::from(until.is_some());
    let change = match (entries.get("device"), entries.len() - times) {
        (Some(device), 2) => {
            ShiftChange::Slower { device: device.as_str()?.to_owned(), factor: factor("slower")? }
        }
        (None, 1) => {
            factor("longer").map(ShiftChange::Longer).or(factor("busier").map(ShiftChange::Busier))?
        }
        _ => return None,
    };
    Some(Shift { from, until, change })
}
