//! What one phase sees of a placement.

use crate::placement::layer_runs::LayerRun;
use crate::placement::pipelining::Pipelining;
use crate::placement::slices::{LayerPlacement, Placement, PlacementView, Slice, Slices};
use scenarios::Phase;

/// A placement as one phase sees it: the device of the other phase is left out, so that layers
/// which differ only there are equal. Placements that agree in this take equally long in the phase.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PhasePlacement {
    /// The phase.
    pub phase: Phase,
    embed: Slices,
    pub(crate) head: Slices,
    pub(crate) pipelining: Pipelining,
    pub(crate) runs: Vec<LayerRun>,
}

impl PhasePlacement {
    /// The placement with other numbers of layers in its runs.
    pub(crate) fn with_counts(&self, counts: &[u64]) -> PlacementView<'_> {
        let layers = self.runs.iter().zip(counts);
        let layers = layers.flat_map(|(run, &count)| std::iter::repeat_n(&run.layer, count as usize));
        let Self { embed, head, pipelining, .. } = self;
        PlacementView { embed, layers: layers.collect(), head, pipelining: *pipelining }
    }
}

impl Placement {
    /// What `phase` sees of it.
    pub fn in_phase(&self, phase: Phase) -> PhasePlacement {
        let mut runs: Vec<LayerRun> = Vec::new();
        for layer in &self.layers {
            match runs.last_mut() {
                Some(run) if is_seen_as(layer, &run.layer, phase) => run.count += 1,
                _ => runs.push(LayerRun { layer: seen_layer(layer, phase), count: 1 }),
            }
        }
        let (embed, head) = (seen_slices(&self.embed, phase), seen_slices(&self.head, phase));
        PhasePlacement { phase, embed, head, pipelining: self.pipelining, runs }
    }
}

/// Whether `seen`, which has the devices of `phase` in both, is what that phase sees of `layer`.
fn is_seen_as(layer: &LayerPlacement, seen: &LayerPlacement, phase: Phase) -> bool {
    let same = |(one, seen): (&Slice, &Slice)| {
        one.device(phase) == seen.device(phase) && one.home == seen.home && one.rows == seen.rows
    };
    let alike = |(one, seen): (&Slices, &Slices)| one.len() == seen.len() && one.iter().zip(seen).all(same);
    layer.kind == seen.kind && layer.sublayers.iter().zip(seen.sublayers.iter()).all(alike)
}

fn seen_layer(layer: &LayerPlacement, phase: Phase) -> LayerPlacement {
    let sublayers = layer.sublayers.iter().map(|slices| seen_slices(slices, phase)).collect();
    LayerPlacement { kind: layer.kind, sublayers }
}

fn seen_slices(slices: &Slices, phase: Phase) -> Slices {
    let seen = |slice: &Slice| {
        let device = slice.device(phase);
        Slice { prefill: device, decode: device, ..slice.clone() }
    };
    slices.iter().map(seen).collect()
}
