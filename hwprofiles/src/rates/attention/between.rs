//! Times between measured points that were not fitted: they are interpolated.

use crate::rates::attention::point::AttentionPoint;
use crate::rates::attention::rates::AttentionRates;
use crate::rates::attention::shape::{AttentionShape, Phase};
use crate::rates::estimate::{Basis, Bound, Estimate};
use crate::units::Seconds;

impl AttentionRates {
    /// Time of a shape that is not empty; `None` without points of its phase.
    ///
    /// If several groupings of heads were measured, the most similar one is used, because the work
    /// per byte of the cache depends on it. Decode time is linear between points in the elements of
    /// the cache, to which each sequence adds the cost of its start ([`AttentionRates::start`]). A
    /// prefill's time per FLOP is interpolated in log(tokens). Outside the points the rate at the
    /// boundary is used.
    pub(super) fn between_points(&self, shape: &AttentionShape) -> Option<Estimate> {
        if let Some(point) = self.points().iter().find(|p| p.shape == *shape) {
            let basis = Basis::Measured.sourced(&self.source);
            return Some(Estimate::with_default_band(point.time, bound(shape.phase), basis));
        }
        let decode = shape.phase == Phase::Decode;
        let start = self.start();
        let size = |s: &AttentionShape| match s.phase {
            Phase::Decode => s.kv_elements().as_f64() * (1.0 + start / s.tokens() as f64),
            Phase::Prefill => (s.tokens() as f64).ln(),
        };
        let work = |s: &AttentionShape| if decode { 1.0 } else { s.flop().as_f64() };
        let wanted = size(shape);
        let unlike = |p: &AttentionPoint| {
            let unlike_ratios = |a: u64, b: u64, c: u64, d: u64| {
                let ratio = (a * d) as f64 / (b * c) as f64;
                ratio.max(1.0 / ratio)
            };
            let (a, b) = (&p.shape, shape);
            unlike_ratios(a.heads, a.kv_heads, b.heads, b.kv_heads)
                * unlike_ratios(a.head_dim, b.head_dim, 1, 1)
        };
        let alike = self.points_of(shape.phase).min_by(|a, b| unlike(a).total_cmp(&unlike(b)))?.shape;
        let similar = || {
            self.points_of(shape.phase).filter(move |AttentionPoint { shape: s, .. }| {
                (s.heads * alike.kv_heads, s.head_dim) == (alike.heads * s.kv_heads, alike.head_dim)
            })
        };
        let sized = |p: &&AttentionPoint| size(&p.shape);
        let below = similar().filter(|p| sized(p) <= wanted);
        let below = below.max_by(|a, b| sized(a).total_cmp(&sized(b)));
        let above = similar().filter(|p| sized(p) >= wanted);
        let above = above.min_by(|a, b| sized(a).total_cmp(&sized(b)));
        let per_work = |p: &AttentionPoint| p.time.get() / work(&p.shape);
        let (time, basis) = match (below, above) {
            (Some(a), Some(b)) => {
                let span = sized(&b) - sized(&a);
                let weight = if span == 0.0 { 0.0 } else { (wanted - sized(&a)) / span };
                let time = per_work(a) + (per_work(b) - per_work(a)) * weight;
                (time * work(shape), Basis::Interpolated)
            }
            (Some(one), None) | (None, Some(one)) => {
                let factor = match shape.phase {
                    Phase::Decode => wanted / sized(&one),
                    Phase::Prefill => shape.flop().as_f64() / one.shape.flop().as_f64(),
                };
                (one.time.get() * factor, Basis::Extrapolated)
            }
            (None, None) => return None,
        };
        Some(Estimate::with_default_band(Seconds::new(time), bound(shape.phase), basis.sourced(&self.source)))
    }
}

impl AttentionRates {
    /// The start of a sequence, expressed as tokens of its cache that are read in the same time:
    /// where the line through the two shortest decodes of one sequence with the same heads reaches
    /// zero. 0 without two such points.
    fn start(&self) -> f64 {
        let alone = || self.points_of(Phase::Decode).filter(|p| p.shape.batch == 1);
        let heads = |p: &AttentionPoint| (p.shape.heads, p.shape.kv_heads, p.shape.head_dim);
        let pairs = alone().filter_map(|one| {
            let longer = alone().filter(|p| heads(p) == heads(one) && p.shape.tokens() > one.shape.tokens());
            Some((one, longer.min_by_key(|p| p.shape.tokens())?))
        });
        let Some((short, long)) = pairs.min_by_key(|(short, _)| short.shape.tokens()) else { return 0.0 };
        let [a, b] = [short, long].map(|p| (p.shape.tokens() as f64, p.time.get()));
        let token = (b.1 - a.1) / (b.0 - a.0);
        // If the longer cache was not slower, there is no such line.
        if token > 0.0 { (a.1 / token - a.0).max(0.0) } else { 0.0 }
    }
}

fn bound(phase: Phase) -> Bound {
    match phase {
        Phase::Decode => Bound::Memory,
        Phase::Prefill => Bound::Compute,
    }
}
