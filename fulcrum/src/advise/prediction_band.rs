//! How far predictions of a kind of placement lie from what people measured.

use super::placing::PlacementClass;
use hwprofiles::{Ratio, Seconds};

/// The shares of our rate between which 80 % of the public runs of that kind lie, rounded outwards:
/// `scripts/advise.py` prints them. Of layers with the CPU few runs are published, so theirs is as
/// wide as that of all on the CPU.
fn rates(class: PlacementClass) -> [f64; 2] {
    match class {
        PlacementClass::Gpu | PlacementClass::Unified => [0.75, 1.25],
        PlacementClass::ExpertsApart => [0.65, 1.05],
        PlacementClass::LayersApart | PlacementClass::Cpu => [0.5, 1.15],
    }
}

/// The least and the most tokens per second of a sequence that takes `tpot` for each, with 80 %
/// confidence.
pub(super) fn band(class: PlacementClass, tpot: Seconds) -> [f64; 2] {
    rates(class).map(|share| share / tpot.get())
}

/// The loss of quality as a share of a model's size: a rise of the perplexity by 1 + r is that of
/// a model with (1 + r)^(−6.6) of the parameters, because the loss falls as N^−0.076 from about
/// 2 nats (arXiv:2001.08361).
pub(super) fn size_kept(loss: Ratio) -> f64 {
    const EXPONENT: f64 = 6.6;
    (1.0 + loss.get()).powf(-EXPONENT)
}
