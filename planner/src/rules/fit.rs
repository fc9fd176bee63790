//! Placements that fit, with as many layers on the accelerator as fit.

use super::host_and_accelerator::HostAndAccelerator;
use super::no_rule::NoRule;
use crate::cost::CostModel;
use crate::cost::footprint;
use crate::error::PlannerError;
use crate::memory::overfilled;
use crate::placement::Placement;
use crate::program::RunExtent;

/// `placement`, if it fits.
pub(super) fn fitting(
    cost_model: CostModel<'_>,
    extent: &RunExtent,
    placement: Placement,
) -> Result<Placement, PlannerError> {
    match overfilled(cost_model.machine, &footprint(cost_model, extent, &placement)?) {
        None => Ok(placement),
        Some((memory, needed)) => Err(PlannerError::TooLarge {
            memory: memory.name.clone(),
            needed,
            capacity: memory.capacity.value,
        }),
    }
}

/// The placement of the largest count up to `most` that fits the accelerator's memory. Each count
/// takes more of that memory than the one before. The result must fit the other memories too.
/// Returned with its count.
pub(super) fn largest(
    cost_model: CostModel<'_>,
    extent: &RunExtent,
    pair: &HostAndAccelerator,
    most: usize,
    placement: impl Fn(usize) -> Placement,
) -> Result<(Placement, usize), NoRule> {
    let capacity = cost_model.machine.memory(pair.own).capacity.value.get();
    let bytes = |count: usize| -> Result<u64, PlannerError> {
        Ok(footprint(cost_model, extent, &placement(count))?[pair.own.0].total().get())
    };
    let most_bytes = bytes(most)?;
    let mut count = most;
    if most_bytes > capacity {
        // Layers are alike, so bytes grow about linearly between a count that fits and one that
        // does not.
        let (mut too_many, mut excess) = (most, most_bytes);
        let mut least = bytes(0)?;
        count = 0;
        while too_many - count > 1 {
            let share = capacity.saturating_sub(least) as f64 / excess.saturating_sub(least).max(1) as f64;
            let next = count + ((too_many - count) as f64 * share) as usize;
            let next = next.clamp(count + 1, too_many - 1);
            let taken = bytes(next)?;
            if taken <= capacity {
                (count, least) = (next, taken);
            } else {
                (too_many, excess) = (next, taken);
            }
        }
    }
    Ok((fitting(cost_model, extent, placement(count))?, count))
}

/// `rest` with as many layers on the accelerator as fit, from the last layer on, and then the head.
pub(super) fn filled(
    cost_model: CostModel<'_>,
    extent: &RunExtent,
    rest: &Placement,
    pair: &HostAndAccelerator,
) -> Result<Placement, NoRule> {
    let all_there = Placement::uniform(cost_model.model, pair.accelerator, pair.own);
    let layers = rest.layers.len();
    let filled = largest(cost_model, extent, pair, layers + 1, |count| {
        let mut placement = rest.clone();
        let first = layers - count.min(layers);
        placement.layers[first..].clone_from_slice(&all_there.layers[first..]);
        if count > layers {
            placement.head.clone_from(&all_there.head);
        }
        placement
    });
    Ok(filled?.0)
}
