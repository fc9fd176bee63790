//! What a placement takes, without lowering each of its layers.

use crate::cost::cost_model::Pricing;
use crate::memory::{Usage, usage};
use crate::placement::Placement;
use crate::program::LowerError;
use crate::program::{Extent, Programs};

/// What [`crate::usage`] says of `placement`, by memory index. Buffers and staging slots depend on which tasks there
/// are and not on how many, so the programs of its outline are enough.
///
/// # Errors
/// [`LowerError`] where bytes must move and no link goes.
pub(crate) fn footprint(
    pricing: Pricing<'_>,
    extent: &Extent,
    placement: &Placement,
) -> Result<Vec<Usage>, LowerError> {
    let Pricing { machine, model, formats } = pricing;
    let programs = Programs::lower(machine, model, &placement.outline())?;
    Ok(usage(machine, model, formats, placement, &programs, extent))
}
