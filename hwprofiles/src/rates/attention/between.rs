//! Times between measured points that were not fitted: they are interpolated.

use crate::rates::attention::grid::AttentionGrid;
use crate::rates::attention::point::AttentionPoint;
use crate::rates::attention::rates::AttentionRates;
use crate::rates::attention::shape::{AttentionShape, Phase};
use crate::rates::estimate::{Basis, Bound, Estimate};
use crate::units::Seconds;

impl AttentionRates {
    /// Time of a shape that is not empty; `None` without points of its phase.
    ///
    /// If several groupings of heads were measured, the most similar one is used, because the work
    /// per byte of the cache depends on it. Where its points form a grid, the grid gives the time
    /// ([`grid`](super::grid)). Otherwise decode time is linear between points in the elements of
    /// the cache, to which each sequence adds the cost of its start ([`AttentionRates::start`]).
    /// A prefill's time per FLOP is interpolated in log(tokens). Outside the points the rate at the
    /// boundary is used.
    pub(super) fn between_points(&self, shape: &AttentionShape) -> Option<Estimate> {
        let grid = self.grids.find(self.points(), shape);
        let measured = self.points().binary_search_by_key(shape, |p| p.shape).map(|i| self.points()[i].time);
        if let Ok(time) = measured {
            let bound = grid.map_or_else(|| bound(shape.phase), |grid| grid.bound(shape.phase, time.get()));
            return Some(Estimate::with_default_band(time, bound, Basis::Measured.sourced(&self.source)));
        }
        if let Some(grid) = grid {
            return Some(self.on_grid(grid, shape));
        }
        let decode = shape.phase == Phase::Decode;
        let start = self.start();
        let size = |s: &AttentionShape| match s.phase {
            Phase::Decode => s.kv_elements().as_f64() * (1.0 + start / s.tokens() as f64),
            Phase::Prefill => (s.tokens() as f64).ln(),
        };
        let work = |s: &AttentionShape| if decode { 1.0 } else { s.flop().as_f64() };
        let wanted = size(shape);
        let distance = |p: &AttentionPoint| p.shape.head_distance(shape);
        let alike = self.points_of(shape.phase).min_by(|a, b| distance(a).total_cmp(&distance(b)))?.shape;
        let similar = || self.points_of(shape.phase).filter(move |p| p.shape.has_heads_like(&alike));
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
    /// The time of a shape on the grid of its phase. Several prompts behind their pasts read as
    /// many caches as decodes of these sequences, and take at least as long.
    fn on_grid(&self, grid: &AttentionGrid, shape: &AttentionShape) -> Estimate {
        let on = |grid: &AttentionGrid, shape: &AttentionShape| {
            let (time, basis) = grid.time(shape);
            (time, grid.bound(shape.phase, time), basis)
        };
        let mut known = on(grid, shape);
        if shape.phase == Phase::Prefill && shape.batch > 1 && shape.past_tokens > 0 {
            let past_tokens = shape.tokens() - 1;
            let reading = AttentionShape { phase: Phase::Decode, new_tokens: 1, past_tokens, ..*shape };
            let reading = self.grids.find(self.points(), &reading).map(|grid| on(grid, &reading));
            known = reading.filter(|reading| reading.0 > known.0).unwrap_or(known);
        }
        let (time, bound, basis) = known;
        Estimate::with_default_band(Seconds::new(time), bound, basis.sourced(&self.source))
    }

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
