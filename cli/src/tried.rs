//! What came of a choice among number formats and degrees of tensor parallelism, for people.

use planner::{PlannerError, Times, Variant};
use scenarios::{FormatChoice, WeightClass};

/// One combination.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// Number formats, and how many GPUs are one device.
    pub variant: Variant,
    /// What is expected of it, or why there is no plan.
    pub outcome: Result<Times, String>,
}

impl Tried {
    /// Those that were planned, then those that lose too much; nothing where there was no choice.
    pub fn all(planned: Vec<(Variant, Result<Times, PlannerError>)>, choice: &FormatChoice) -> Vec<Self> {
        let tensor_parallel = planned.first().map_or(1, |(variant, _)| variant.tensor_parallel);
        let planned =
            planned.into_iter().map(|(variant, result)| (variant, result.map_err(|e| e.to_string())));
        let lossy = choice.lossy.iter();
        let lossy = lossy.map(|(formats, why)| {
            (Variant { tensor_parallel, formats: *formats, draft: None }, Err(why.clone()))
        });
        let all: Vec<_> = planned.chain(lossy).map(|(variant, outcome)| Self { variant, outcome }).collect();
        if all.len() > 1 { all } else { vec![] }
    }
}

/// Something that may be chosen, as a word.
type Class = fn(&Variant) -> String;

const FIRST: [(&str, Class); 1] = [("tensor_parallel", |v| v.tensor_parallel.to_string())];

const WEIGHTS: [(&str, Class); 1] = [("weights", |v| v.formats.weights.to_string())];

/// Weights where some variant has several formats of them.
const BY_CLASS: [(&str, Class); 4] = [
    ("attention", |v| v.formats.weights.of_class(WeightClass::Attention).to_string()),
    ("ffn", |v| v.formats.weights.of_class(WeightClass::Ffn).to_string()),
    ("experts", |v| v.formats.weights.of_class(WeightClass::Experts).to_string()),
    ("ends", |v| v.formats.weights.of_class(WeightClass::Ends).to_string()),
];

const LAST: [(&str, Class); 3] = [
    ("kv", |v| v.formats.kv.to_string()),
    ("activations", |v| v.formats.activations.to_string()),
    ("draft", |v| match &v.draft {
        Some((device, tokens)) => format!("of {tokens} on {device}"),
        None => "none".to_owned(),
    }),
];

/// A line for each combination, the one that was `chosen` marked; empty where there was no choice.
pub fn table(tried: &[Tried], chosen: &Variant) -> String {
    let Some(first) = tried.first() else { return String::new() };
    let grouped = tried.iter().any(|t| {
        t.variant.tensor_parallel != first.variant.tensor_parallel || t.variant.draft != first.variant.draft
    });
    let title = if grouped { "tried" } else { "number formats" };
    let mixed = tried.iter().any(|t| t.variant.formats.weights.one().is_none());
    let weights = if mixed { &BY_CLASS[..] } else { &WEIGHTS };
    let values = |of: Class| tried.iter().map(|t| of(&t.variant)).collect::<Vec<_>>();
    let mut named: Vec<(&str, Class)> = vec![];
    for &(class, of) in FIRST.iter().chain(weights).chain(&LAST) {
        // A class in which all agree says nothing, and one that goes with another nothing more.
        let (first, all) = (of(&first.variant), values(of));
        let said = named.iter().any(|(_, other)| values(*other) == all);
        if !said && all.iter().any(|value| *value != first) {
            named.push((class, of));
        }
    }
    let name = |one: &Tried| {
        let words: Vec<_> = named.iter().map(|(class, of)| format!("{class} {}", of(&one.variant))).collect();
        words.join(", ")
    };
    let wide = tried.iter().map(|one| name(one).len()).fold(34, usize::max);
    let mut text = format!("  {title:<wide$} {:>12} {:>12}\n", "TTFT", "TPOT");
    for one in tried {
        let mark = if one.variant == *chosen { "*" } else { " " };
        let name = name(one);
        match &one.outcome {
            Ok(times) => {
                let tpot = times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
                text += &format!("{mark} {name:<wide$} {:>12} {tpot:>12}\n", times.ttft.to_string());
            }
            Err(why) => text += &format!("{mark} {name:<wide$} {why}\n"),
        }
    }
    text
}
