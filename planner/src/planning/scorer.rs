//! The simulator as the planner calls it.

use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::placement::Placement;
use crate::program::PhaseTimes;
use scenarios::Workload;

/// Says what a placement will really do when so many tokens of each sequence enter in one prefill step: the
/// simulator, which sees contention.
pub type Scorer<'s> = dyn Fn(&Placement, u64) -> Result<PhaseTimes, PlannerError> + Sync + 's;

/// Says what a placement will really do, like [`Scorer`], in the formats of a pricing, of its model, for a workload.
pub type FormatScorer<'s> =
    dyn Fn(CostModel<'_>, &Workload, &Placement, u64) -> Result<PhaseTimes, PlannerError> + Sync + 's;
