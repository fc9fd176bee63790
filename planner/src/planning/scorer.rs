//! Types of the simulator as the planner calls it.

use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::placement::Placement;
use crate::program::PhaseTimes;
use scenarios::Workload;

/// Simulates a placement with contention, for prefill steps of the given number of tokens per
/// sequence.
pub type Scorer<'s> = dyn Fn(&Placement, u64) -> Result<PhaseTimes, PlannerError> + Sync + 's;

/// Makes the scorer of a cost model and a workload.
pub type FormatScorer<'s> = dyn for<'c> Fn(CostModel<'c>, Workload) -> Box<Scorer<'c>> + Sync + 's;
