//! Weights of the first layers in the host's memory, from which the GPU reads them in every step:
//! what `--cpu-offload-gb` means to vLLM and SGLang.
//!
//! `--cpu-offload-gb N` (in units of 2³⁰ bytes) keeps the parameters of layers in the host's
//! memory, from the first layer on, until N are reached. The KV cache is in the GPU's memory.

use super::super::site::{Gpu, Site};
use crate::placement::{Pipelining, Placement};
use hwprofiles::Bytes;
use scenarios::Sublayer;

/// The fewest first layers that hold the bytes that the plan keeps out of the GPU's memory.
pub(super) fn like_the_plan(site: &Site<'_>, gpu: Gpu) -> usize {
    let mut away = Bytes::ZERO;
    for (index, layer) in site.placement.layers.iter().enumerate() {
        for &sublayer in site.sublayers(index).iter().filter(|&&s| s != Sublayer::Attention) {
            for slice in layer.slices(sublayer).iter().filter(|slice| slice.home != gpu.memory) {
                away += sublayer.matrix_bytes(site.model, site.plan.formats.weights, &slice.rows);
            }
        }
    }
    let reached = |&first: &usize| layer_bytes(site, first) >= away;
    (0..site.placement.layers.len()).find(reached).unwrap_or(site.placement.layers.len())
}

/// Bytes of the matrices of the first `first` layers.
pub(super) fn layer_bytes(site: &Site<'_>, first: usize) -> Bytes {
    let layers = (0..first).flat_map(|index| site.sublayers(index));
    layers.fold(Bytes::ZERO, |sum, &sublayer| sum + site.bytes(sublayer))
}

/// The placement in which the GPU computes everything and reads the weights of the first
/// `offloaded` layers from the host's memory.
pub(super) fn placement(site: &Site<'_>, gpu: Gpu, offloaded: usize) -> Placement {
    let layers = (0..site.placement.layers.len()).map(|index| {
        site.layer(index, |sublayer| {
            let away = index < offloaded && sublayer != Sublayer::Attention;
            site.on(sublayer, if away { site.dram } else { gpu.memory }, gpu.device)
        })
    });
    Placement {
        embed: site.on(Sublayer::Embed, gpu.memory, gpu.device),
        layers: layers.collect(),
        head: site.on(Sublayer::Head, gpu.memory, gpu.device),
        pipelining: Pipelining::default(),
    }
}
