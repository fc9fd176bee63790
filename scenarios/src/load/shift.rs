//! What changes during a day of serving.
//!
//! ```yaml
//! shifts:
//!   - {from: 2 min, until: 6 min, device: cpu, slower: 2}   # takes twice as long for everything
//!   - {from: 2 min, longer: 8}                              # prompts have eight times the tokens, to the end
//!   - {from: 2 min, until: 4 min, busier: 3}                # three times as many requests come
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::Section;
use hwprofiles::{Ratio, Seconds};
use serde_json::Value;

/// Something that is different for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct Shift {
    /// Since the day began.
    pub from: Seconds,
    /// Likewise; to the end of the day where absent.
    pub until: Option<Seconds>,
    /// What it is.
    pub change: Change,
}

/// What is different.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A device takes so many times as long.
    Slower {
        /// Its name.
        device: String,
        /// How many.
        factor: Ratio,
    },
    /// Prompts of requests that come have so many times the tokens.
    Longer(Ratio),
    /// So many times as many requests come.
    Busier(Ratio),
}

const WANTED: &str = "a list is wanted, of {from: 2 min, until: 6 min, device: cpu, slower: 2}, {from: …, longer: 8} and \
                      {from: …, busier: 3}; factors from 0.001 to 1000";

/// The shifts of a scenario, if it has any.
pub(crate) fn read_shifts(root: &Section<'_>) -> Result<Vec<Shift>, ScenarioError> {
    match root.get("shifts") {
        None => Ok(Vec::new()),
        Some(Value::Array(shifts)) => {
            let all: Option<Vec<Shift>> = shifts.iter().map(shift).collect();
            all.ok_or_else(|| root.wrong("shifts", WANTED))
        }
        Some(_) => Err(root.wrong("shifts", WANTED)),
    }
}

fn shift(value: &Value) -> Option<Shift> {
    let entries = value.as_object()?;
    let time = |key: &str| entries.get(key).map(|value| value.as_str()?.parse::<Seconds>().ok());
    // A time that is written must be one.
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
            Change::Slower { device: device.as_str()?.to_owned(), factor: factor("slower")? }
        }
        (None, 1) => factor("longer").map(Change::Longer).or(factor("busier").map(Change::Busier))?,
        _ => return None,
    };
    Some(Shift { from, until, change })
}
