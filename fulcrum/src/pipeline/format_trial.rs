//! What came of a choice among number formats and degrees of tensor parallelism.

use hwprofiles::GroupDivision;
use planner::{PhaseTimes, PlannerError, Variant};
use scenarios::FormatChoice;

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
