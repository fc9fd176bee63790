//! What came of a choice among number formats, for people.

use hwprofiles::DType;
use planner::{PlannerError, Times};
use scenarios::{FormatChoice, Formats};

/// One combination of number formats.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The formats.
    pub formats: Formats,
    /// What is expected of it, or why there is no plan.
    pub outcome: Result<Times, String>,
}

impl Tried {
    /// Those that were planned, then those that lose too much; nothing where there was no choice.
    pub fn all(planned: Vec<(Formats, Result<Times, PlannerError>)>, choice: &FormatChoice) -> Vec<Self> {
        let planned =
            planned.into_iter().map(|(formats, result)| (formats, result.map_err(|e| e.to_string())));
        let lossy = choice.lossy.iter().map(|(formats, why)| (*formats, Err(why.clone())));
        let all: Vec<_> = planned.chain(lossy).map(|(formats, outcome)| Self { formats, outcome }).collect();
        if all.len() > 1 { all } else { vec![] }
    }
}

/// One class of numbers' format.
type Class = fn(&Formats) -> DType;

/// A line for each combination, the one in `chosen` formats marked; empty where there was no choice.
pub fn table(tried: &[Tried], chosen: &Formats) -> String {
    let Some(first) = tried.first() else { return String::new() };
    let mut text = format!("  {:<34} {:>12} {:>12}\n", "number formats", "TTFT", "TPOT");
    // A class in which all agree says nothing.
    let vary = |of: Class| tried.iter().any(|t| of(&t.formats) != of(&first.formats));
    let classes: [(&str, Class); 3] =
        [("weights", |f| f.weights), ("kv", |f| f.kv), ("activations", |f| f.activations)];
    let named: Vec<_> = classes.into_iter().filter(|(_, of)| vary(*of)).collect();
    for one in tried {
        let name: Vec<_> = named.iter().map(|(class, of)| format!("{class} {}", of(&one.formats))).collect();
        let mark = if one.formats == *chosen { "*" } else { " " };
        let name = name.join(", ");
        match &one.outcome {
            Ok(times) => {
                let tpot = times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
                text += &format!("{mark} {name:<34} {:>12} {tpot:>12}\n", times.ttft.to_string());
            }
            Err(why) => text += &format!("{mark} {name:<34} {why}\n"),
        }
    }
    text
}
