//! What a placement takes, without lowering each of its layers.

use crate::cost::cost_model::CostModel;
use crate::memory::{MemoryUsage, usage};
use crate::placement::Placement;
use crate::program::LowerError;
use crate::program::{PhasePrograms, RunExtent};

/// What [`crate::usage`] says of `placement`, by memory index. Buffers and staging slots depend on which tasks there
/// are and not on how many, so the programs of its outline are enough.
///
/// # Errors
/// [`LowerError`] where bytes must move and no link goes.
pub(crate) fn footprint(
    cost_model: CostModel<'_>,
    extent: &RunExtent,
    placement: &Placement,
) -> Result<Vec<MemoryUsage>, LowerError> {
    let CostModel { machine, model, formats } = cost_model;
    let programs = PhasePrograms::lower(machine, model, &placement.outline())?;
    Ok(usage(machine, model, formats, placement, &programs, extent))
}
