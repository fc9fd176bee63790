//! The time of attention: measured points, and the time of a shape between them.

mod points;
mod shape;

pub use points::AttentionPoint;
pub use shape::{AttentionShape, Phase};

use crate::dtype::DType;
use crate::estimate::Missing;
use crate::machine::Device;
use crate::provenance::Provenance;
use crate::rates::{Basis, Bound, Estimate};
use crate::units::{BytesPerSec, FlopPerSec, Seconds};
use serde::{Deserialize, Serialize};

/// Measured attention over a KV cache of one number format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionRates {
    /// Where the points came from.
    pub source: Provenance,
    /// The points, in the order of their shapes; at least one. In files a table of
    /// `phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim,time_us`; a shape that is given more than once
    /// has the median of its times, and is refused where they differ by more than a factor of 2.
    #[serde(with = "points")]
    pub points: Vec<AttentionPoint>,
}

impl Device {
    /// Time of the attention of one layer over a KV cache in `kv` in the device's own memory, without
    /// [`Device::launch`]. Zero where there is nothing to attend to.
    pub fn attention_time(&self, kv: DType, shape: &AttentionShape) -> Result<Estimate, Missing> {
        if shape.is_empty() {
            return Ok(Estimate::ZERO);
        }
        let has = |d| self.attention.get(&d).is_some_and(|rates| rates.knows(shape.phase));
        let rate = match shape.phase {
            Phase::Decode => "decode attention",
            Phase::Prefill => "prefill attention",
        };
        let estimate = self.attention.get(&kv).and_then(|rates| rates.time(shape));
        estimate.ok_or_else(|| Missing::new(self, rate, kv, has))
    }
}

impl AttentionRates {
    /// Decode at `bandwidth` with a cache in `kv`, prefill at `rate`, whatever the size.
    pub fn roofline(kv: DType, rate: FlopPerSec, bandwidth: BytesPerSec, source: Provenance) -> Self {
        let decode = AttentionShape {
            phase: Phase::Decode,
            batch: 1,
            new_tokens: 1,
            past_tokens: 8191,
            heads: 32,
            kv_heads: 32,
            head_dim: 128,
        };
        let prefill = AttentionShape { phase: Phase::Prefill, new_tokens: 8192, past_tokens: 0, ..decode };
        let points = vec![
            AttentionPoint { shape: prefill, time: prefill.flop() / rate },
            AttentionPoint { shape: decode, time: kv.bytes(decode.kv_elements()) / bandwidth },
        ];
        Self { source, points }
    }

    /// Whether there is any point of `phase`.
    pub fn knows(&self, phase: Phase) -> bool {
        self.points.iter().any(|p| p.shape.phase == phase)
    }

    /// The fastest rate at which a decode point read its cache, which is in `kv`.
    pub fn best_read(&self, kv: DType) -> Option<BytesPerSec> {
        self.of(Phase::Decode)
            .map(|p| kv.bytes(p.shape.kv_elements()) / p.time)
            .max_by(BytesPerSec::total_cmp)
    }

    /// The fastest rate of a prefill point.
    pub fn best_rate(&self) -> Option<FlopPerSec> {
        self.of(Phase::Prefill).map(|p| p.shape.flop() / p.time).max_by(FlopPerSec::total_cmp)
    }

    fn of(&self, phase: Phase) -> impl Iterator<Item = &AttentionPoint> {
        self.points.iter().filter(move |p| p.shape.phase == phase)
    }

    /// Time of a shape that is not empty; `None` without points of its phase.
    ///
    /// Decode time is piecewise-linear in the elements of the cache; a prefill's time per FLOP is
    /// interpolated in log(tokens); outside, the boundary's rate is carried on.
    pub fn time(&self, shape: &AttentionShape) -> Option<Estimate> {
        if let Some(point) = self.points.iter().find(|p| p.shape == *shape) {
            let basis = Basis::Measured.sourced(&self.source);
            return Some(Estimate::about(point.time, bound(shape.phase), basis));
        }
        let decode = shape.phase == Phase::Decode;
        let size = |s: &AttentionShape| match s.phase {
            Phase::Decode => s.kv_elements().as_f64(),
            Phase::Prefill => (s.tokens() as f64).ln(),
        };
        let work = |s: &AttentionShape| if decode { 1.0 } else { s.flop().as_f64() };
        let wanted = size(shape);
        let sized = |p: &&AttentionPoint| size(&p.shape);
        let below = self.of(shape.phase).filter(|p| sized(p) <= wanted);
        let below = below.max_by(|a, b| sized(a).total_cmp(&sized(b)));
        let above = self.of(shape.phase).filter(|p| sized(p) >= wanted);
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
                let more = match shape.phase {
                    Phase::Decode => wanted / sized(&one),
                    Phase::Prefill => shape.flop().as_f64() / one.shape.flop().as_f64(),
                };
                (one.time.get() * more, Basis::Extrapolated)
            }
            (None, None) => return None,
        };
        Some(Estimate::about(Seconds::new(time), bound(shape.phase), basis.sourced(&self.source)))
    }
}

fn bound(phase: Phase) -> Bound {
    match phase {
        Phase::Decode => Bound::Memory,
        Phase::Prefill => Bound::Compute,
    }
}
