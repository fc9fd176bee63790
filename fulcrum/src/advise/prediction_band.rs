//! How far predictions of a kind of placement lie from what people measured.

use super::model_places::{PlacementClass, layer_slices};
use crate::pipeline::ResolvedPlan;
use hwprofiles::{Provenance, Ratio, Seconds};

/// The shares of our rate between which 80 % of the public runs of that kind lie, rounded outwards:
/// `scripts/advise.py` prints them. Few runs are published of layers with the CPU (6), and of all
/// on the CPU 61 of 67 are of one CPU, so theirs are wider than what those give.
fn rates(class: PlacementClass) -> [f64; 2] {
    match class {
        PlacementClass::Gpu => [0.8, 1.25],
        PlacementClass::Unified => [0.75, 1.35],
        PlacementClass::ExpertsApart => [0.35, 1.6],
        PlacementClass::LayersApart => [0.7, 1.2],
        PlacementClass::Cpu => [0.6, 1.2],
    }
}

/// The least and the most tokens per second of a sequence that takes `tpot` for each, with 80 %
/// confidence.
pub(super) fn band(class: PlacementClass, tpot: Seconds) -> [f64; 2] {
    rates(class).map(|share| share / tpot.get())
}

impl ResolvedPlan {
    /// How far predictions of this kind were off, in lines of at most 80 columns. `None` for
    /// several sequences and for placements of which no runs are public.
    pub fn known_error(&self) -> Option<String> {
        let Self { plan, machine, placement, .. } = self;
        let is_measured = |memory| {
            let source = &machine.memory(memory).bandwidth.source;
            matches!(source, Provenance::Measured { .. })
        };
        let mut memories =
            layer_slices(placement).flat_map(|(_, slice)| [slice.home, machine.device(slice.decode).memory]);
        if memories.all(is_measured) {
            // `fulcrum quickstart --full`, in BENCHMARKS.md.
            let known = "Known error on measured machines: of 70 runs half were within 3 % of TPOT,\n\
                         90 % within 13 %.\n";
            return Some(known.to_owned());
        }
        let class =
            PlacementClass::from_placement(machine, placement).filter(|_| plan.workload.batch == 1)?;
        let ([least, most], words) = (rates(class), class.words());
        Some(format!(
            "Known error: of public runs {words} 80 % decode at\n{least} to {most} of the predicted rate \
             (docs/guide/advise.md).\n"
        ))
    }
}

/// The loss of quality as a share of a model's size: a rise of the perplexity by 1 + r is that of
/// a model with (1 + r)^(−6.6) of the parameters, because the loss falls as N^−0.076 from about
/// 2 nats (arXiv:2001.08361).
pub(super) fn size_kept(loss: Ratio) -> f64 {
    const EXPONENT: f64 = 6.6;
    (1.0 + loss.get()).powf(-EXPONENT)
}
