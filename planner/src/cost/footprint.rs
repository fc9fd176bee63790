//! The memory of a placement without lowering all of its layers.

use crate::cost::cost_model::CostModel;
use crate::memory::{MemoryUsage, usage};
use crate::placement::Placement;
use crate::program::{LowerError, PhasePrograms, RunExtent};

/// Equal to [`crate::usage`] of `placement`, by memory index. Buffers and staging slots depend on
/// which tasks a program has and not on how often, so the programs of the placement's outline
/// suffice.
///
/// # Errors
/// [`LowerError`] if bytes must move between two memories without a link.
pub fn footprint(
    cost_model: CostModel<'_>,
    extent: &RunExtent,
    placement: &Placement,
) -> Result<Vec<MemoryUsage>, LowerError> {
    let CostModel { machine, model, formats } = cost_model;
    let programs = PhasePrograms::lower(machine, model, &placement.outline())?;
    Ok(usage(machine, model, formats, placement, &programs, extent))
}
