//! What came of a choice among number formats and degrees of tensor parallelism.

use hwprofiles::GroupDivision;
use planner::{PhaseTimes, PlannerError, Variant};
use scenarios::{FormatChoice, WeightClass};

/// One combination that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct FormatTrial {
    /// Number formats, how GPUs are grouped, and the draft.
    pub variant: Variant,
    /// What is expected of it, or why there is no plan.
    pub result: Result<PhaseTimes, String>,
}

impl FormatTrial {
    /// The combinations that were planned, then those that lose too much quality; empty where
    /// there was no choice.
    pub(crate) fn from_planned(
        planned: Vec<(Variant, Result<PhaseTimes, PlannerError>)>,
        choice: &FormatChoice,
    ) -> Vec<Self> {
        let division = planned.first().map_or(GroupDivision::NONE, |(variant, _)| variant.division);
        let planned =
            planned.into_iter().map(|(variant, times)| (variant, times.map_err(|error| error.to_string())));
        let lossy = choice
            .lossy
            .iter()
            .map(|(formats, why)| (Variant { division, formats: *formats, draft: None }, Err(why.clone())));
        let all: Vec<_> = planned.chain(lossy).map(|(variant, result)| Self { variant, result }).collect();
        if all.len() > 1 { all } else { vec![] }
    }
}

/// One choice of a variant, as a word.
type Choice = fn(&Variant) -> String;

const FIRST: [(&str, Choice); 4] = [
    ("tensor_parallel", |v| v.division.tensor.to_string()),
    ("pipeline_parallel", |v| v.division.stages.to_string()),
    ("expert_parallel", |v| v.division.whole_experts.to_string()),
    ("data_parallel", |v| v.division.data.to_string()),
];

const WEIGHTS: [(&str, Choice); 1] = [("weights", |v| v.formats.weights.to_string())];

/// The weights' formats where some variant has several of them.
const BY_CLASS: [(&str, Choice); 4] = [
    ("attention", |v| v.formats.weights.for_class(WeightClass::Attention).to_string()),
    ("ffn", |v| v.formats.weights.for_class(WeightClass::Ffn).to_string()),
    ("experts", |v| v.formats.weights.for_class(WeightClass::Experts).to_string()),
    ("ends", |v| v.formats.weights.for_class(WeightClass::Ends).to_string()),
];

const LAST: [(&str, Choice); 3] = [
    ("kv", |v| v.formats.kv.to_string()),
    ("activations", |v| v.formats.activations.to_string()),
    ("draft", |v| match &v.draft {
        Some((device, tokens)) => format!("of {tokens} on {device}"),
        None => "none".to_owned(),
    }),
];

/// A line for each combination, with a mark at the one that was `chosen`; empty where there was no
/// choice.
pub(super) fn format_table(tried: &[FormatTrial], chosen: &Variant) -> String {
    let Some(first) = tried.first() else { return String::new() };
    let grouped = tried
        .iter()
        .any(|t| t.variant.division != first.variant.division || t.variant.draft != first.variant.draft);
    let title = if grouped { "tried" } else { "number formats" };
    let mixed = tried.iter().any(|t| t.variant.formats.weights.one().is_none());
    let weights = if mixed { &BY_CLASS[..] } else { &WEIGHTS };
    let values = |choice: Choice| tried.iter().map(|t| choice(&t.variant)).collect::<Vec<_>>();
    let mut named: Vec<(&str, Choice)> = vec![];
    for &(class, choice) in FIRST.iter().chain(weights).chain(&LAST) {
        // A choice in which all agree tells nothing, and so does one that always goes with another.
        let (first, all) = (choice(&first.variant), values(choice));
        let is_known = named.iter().any(|(_, other)| values(*other) == all);
        if !is_known && all.iter().any(|value| *value != first) {
            named.push((class, choice));
        }
    }
    let name = |one: &FormatTrial| {
        let words: Vec<_> =
            named.iter().map(|(class, choice)| format!("{class} {}", choice(&one.variant))).collect();
        words.join(", ")
    };
    let wide = tried.iter().map(|one| name(one).len()).fold(34, usize::max);
    let mut text = format!("  {title:<wide$} {:>12} {:>12}\n", "TTFT", "TPOT");
    for one in tried {
        let mark = if one.variant == *chosen { "*" } else { " " };
        let name = name(one);
        match &one.result {
            Ok(times) => {
                let ttft = times.ttft.to_string();
                let tpot = times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
                text += &format!("{mark} {name:<wide$} {ttft:>12} {tpot:>12}\n");
            }
            Err(why) => text += &format!("{mark} {name:<wide$} {why}\n"),
        }
    }
    text
}
