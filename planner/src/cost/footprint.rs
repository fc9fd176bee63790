//! The memory of a placement without its programs.

use crate::cost::cost_model::CostModel;
use crate::memory::{MemoryUsage, different_layers, usage_of_placement};
use crate::placement::{LayerPlacement, Placement, Slice, Slices};
use crate::program::{LowerError, PhasePrograms, RunExtent};
use hwprofiles::{Machine, MemoryId};
use scenarios::{Phase, Sublayer};

/// Equal to [`crate::usage`] of `placement`, by memory index.
///
/// # Errors
/// [`LowerError`] if bytes must move between two memories without a link.
pub fn footprint(
    cost_model: CostModel<'_>,
    extent: &RunExtent,
    placement: &Placement,
) -> Result<Vec<MemoryUsage>, LowerError> {
    let CostModel { machine, model, formats } = cost_model;
    let layers = different_layers(placement);
    if !has_all_links(machine, placement, &layers) {
        // The programs may not need the missing link.
        PhasePrograms::lower(machine, model, &placement.outline())?;
    }
    Ok(usage_of_placement(machine, model, formats, (placement, &layers), extent))
}

/// Equal to [`footprint`] of a placement with the embed, the head and the pipelining of `placement`
/// and with `layers`, each different layer once with its number. `None` if a link is missing, which
/// may not be needed.
pub(crate) fn footprint_of_layers(
    CostModel { machine, model, formats }: CostModel<'_>,
    extent: &RunExtent,
    placement: &Placement,
    layers: &[(&LayerPlacement, u64)],
) -> Option<Vec<MemoryUsage>> {
    let linked = has_all_links(machine, placement, layers);
    linked.then(|| usage_of_placement(machine, model, formats, (placement, layers), extent))
}

/// Whether there is a link between any two devices, and for everything that is streamed. `layers`
/// are the different layers.
fn has_all_links(machine: &Machine, placement: &Placement, layers: &[(&LayerPlacement, u64)]) -> bool {
    let linked = |from: MemoryId, to: MemoryId| machine.link_between(from, to).is_some();
    let own = |device| machine.device(device).memory;
    let mut devices = machine.device_ids().flat_map(|a| machine.device_ids().map(move |b| (a, b)));
    let fetched = |slice: &Slice, phase: Phase, sublayer: Sublayer| {
        let (device, home) = (slice.device(phase), slice.home);
        machine.reads_in_place(device, home)
            || linked(home, own(device)) && (sublayer != Sublayer::Attention || linked(own(device), home))
    };
    let all_fetched = |(sublayer, slices): (Sublayer, &Slices)| {
        let phases = [Phase::Prefill, Phase::Decode];
        slices.iter().all(|slice| phases.iter().all(|&phase| fetched(slice, phase, sublayer)))
    };
    devices.all(|(a, b)| a == b || linked(own(a), own(b)))
        && all_fetched((Sublayer::Embed, &placement.embed))
        && all_fetched((Sublayer::Head, &placement.head))
        && layers.iter().flat_map(|(layer, _)| layer.iter()).all(all_fetched)
}
