//! MoE-Lightning's policy.

use super::fit::largest;
use super::host_and_accelerator::HostAndAccelerator;
use super::no_rule::NoRule;
use crate::cost::CostModel;
use crate::placement::Placement;
use crate::program::RunExtent;
use scenarios::Sublayer;

/// The host computes attention in decode, beside the KV cache. The accelerator computes everything
/// else; it holds the head, each layer's small matrices, and as many layers' large ones as fit,
/// spread evenly, so that the others' weights arrive while these compute.
pub(super) fn placement(
    cost_model: CostModel<'_>,
    extent: &RunExtent,
    pair: &HostAndAccelerator,
) -> Result<Placement, NoRule> {
    let layers = cost_model.model.layers as usize;
    let head = Placement::uniform(cost_model.model, pair.accelerator, pair.own).head;
    let largest = largest(cost_model, extent, pair, 1 + 2 * layers, |count| {
        let small = count.saturating_sub(1).min(layers);
        let large = count.saturating_sub(1 + layers);
        let spread = |layer: usize, count: usize| (layer + 1) * count / layers > layer * count / layers;
        let mut placement = pair.placement(cost_model.model, |layer, _, sublayer| {
            let held = match sublayer {
                Sublayer::Attention => return (pair.dram, [pair.accelerator, pair.host]),
                Sublayer::FfnUp | Sublayer::FfnDown | Sublayer::Experts => large,
                _ => small,
            };
            (if spread(layer, held) { pair.own } else { pair.dram }, [pair.accelerator; 2])
        });
        if count > 0 {
            placement.head.clone_from(&head);
        }
        placement
    });
    Ok(largest?.0)
}
