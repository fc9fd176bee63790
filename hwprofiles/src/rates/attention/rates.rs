//! The attention of one device over a cache of one number format: points and a fitted surface.

use crate::rates::attention::facts::AttentionFacts;
use crate::rates::attention::fit::AttentionFitError;
use crate::rates::attention::grid::AttentionGrids;
use crate::rates::attention::mixed::MixedPoint;
use crate::rates::attention::point::AttentionPoint;
use crate::rates::attention::shape::{AttentionShape, Phase};
use crate::rates::attention::surface::AttentionSurface;
use crate::rates::estimate::{Basis, Bound, Estimate};
use crate::rates::fit::reading::SurfaceReading;
use crate::rates::speedup::Speedup;
use crate::units::{BytesPerSec, DType, FlopPerSec, Provenance, Ratio, Seconds};
use serde::{Deserialize, Serialize};

/// Measured attention over a KV cache of one number format, and the surface fitted to it where
/// there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionRates {
    /// Where the points came from.
    pub source: Provenance,
    /// The points, in the order of their shapes; at least one. In files a table of
    /// `phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim,time_us`; a shape that is given
    /// more than once has the median of its times, and is refused where they differ by more than a
    /// factor of 2.
    #[serde(with = "super::point::table")]
    points: Vec<AttentionPoint>,
    /// The rate of decodes that computation binds, as where many heads share one key and value.
    /// Where absent, decodes between points take as long as their bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decode_rate: Option<FlopPerSec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    surface: Option<AttentionSurface>,
    /// Mixed steps. In files a table with the columns of [`AttentionPoint`] and those of the
    /// decode, `decode_batch` and `decode_past_tokens`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(
        serialize_with = "crate::files::table::serialize",
        deserialize_with = "crate::files::table::deserialize"
    )]
    mixed: Vec<MixedPoint>,
    #[serde(skip)]
    pub(crate) speedup: Speedup,
    #[serde(skip)]
    pub(super) grids: AttentionGrids,
}

impl AttentionRates {
    /// Points without a fit, between which times are interpolated. No two have the same shape.
    pub fn new(source: Provenance, mut points: Vec<AttentionPoint>) -> Self {
        points.sort_by_key(|p| p.shape);
        Self {
            source,
            points,
            decode_rate: None,
            surface: None,
            mixed: Vec::new(),
            speedup: Speedup::default(),
            grids: AttentionGrids::default(),
        }
    }

    /// Points and the surface that fits them best: attention over a cache in `kv` on a device with
    /// these `facts`. A shape that was measured more than once has the median of its times.
    ///
    /// # Errors
    /// There are no points, or times of one shape differ by more than a factor of 2.
    pub fn fit(
        source: Provenance,
        points: &[AttentionPoint],
        kv: DType,
        facts: AttentionFacts,
    ) -> Result<Self, AttentionFitError> {
        let surface = AttentionSurface::fit(kv, facts, points)?;
        let points = AttentionPoint::merged(points).map_err(AttentionFitError::from)?;
        Ok(Self { surface: Some(surface), ..Self::new(source, points) })
    }

    /// The same rates with measured mixed steps. A fitted surface is fitted to them too.
    ///
    /// # Errors
    /// There are no mixed steps.
    pub fn with_mixed(mut self, mut points: Vec<MixedPoint>) -> Result<Self, AttentionFitError> {
        points.sort_by_key(|p| (p.prefill, p.decode));
        self.surface = self.surface.map(|surface| surface.fit_mixed(&points)).transpose()?;
        Ok(Self { mixed: points, ..self })
    }

    /// The points, in the order of their shapes.
    pub fn points(&self) -> &[AttentionPoint] {
        &self.points
    }

    /// The fitted surface, where the points were fitted.
    pub fn surface(&self) -> Option<&AttentionSurface> {
        self.surface.as_ref()
    }

    /// The same rates, with decodes that compute at most at `rate` where no surface was fitted.
    #[must_use]
    pub fn with_decode_rate(self, rate: FlopPerSec) -> Self {
        Self { decode_rate: Some(rate), ..self }
    }

    /// Rates without points: decode reads its cache, which is in `kv`, at `bandwidth`, and prefill
    /// computes at `rate`, whatever the shape.
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
        Self::new(source, points)
    }

    /// Whether there is any point of `phase`.
    pub fn knows(&self, phase: Phase) -> bool {
        match &self.surface {
            Some(surface) => surface.knows(phase),
            None => self.points.iter().any(|p| p.shape.phase == phase),
        }
    }

    /// Whether steps of a prefill and a decode together were measured.
    pub fn knows_mixed(&self) -> bool {
        self.surface.is_some() && !self.mixed.is_empty()
    }

    /// The fastest rate at which a decode point read its cache, which is in `kv`.
    pub fn best_read(&self, kv: DType) -> Option<BytesPerSec> {
        self.points_of(Phase::Decode)
            .map(|p| kv.bytes(p.shape.kv_elements()) / p.time)
            .max_by(BytesPerSec::total_cmp)
            .map(|rate| rate * self.speedup.memory.get())
    }

    /// The fastest compute rate of a prefill point.
    pub fn best_rate(&self) -> Option<FlopPerSec> {
        let rates = self.points_of(Phase::Prefill).map(|p| p.shape.flop() / p.time);
        rates.max_by(FlopPerSec::total_cmp).map(|rate| rate * self.speedup.compute.get())
    }

    pub(super) fn points_of(&self, phase: Phase) -> impl Iterator<Item = &AttentionPoint> {
        self.points.iter().filter(move |p| p.shape.phase == phase)
    }

    /// The time of a shape that is not empty; `None` without points of its phase. A measured shape
    /// has its measured time.
    pub fn time(&self, shape: &AttentionShape) -> Option<Estimate> {
        let Some(surface) = &self.surface else {
            let estimate = self.between_points(shape)?;
            let computed = self.computed(shape).filter(|computed| computed.time > estimate.time);
            return Some(self.speedup.apply(computed.unwrap_or(estimate)));
        };
        let measured = self.points.binary_search_by_key(shape, |p| p.shape).ok().map(|i| self.points[i].time);
        Some(self.estimate(measured, surface.at(shape)?))
    }

    /// The time that the products of a decode take.
    fn computed(&self, shape: &AttentionShape) -> Option<Estimate> {
        let rate = self.decode_rate.filter(|_| shape.phase == Phase::Decode)?;
        let basis = Basis::Extrapolated.sourced(&self.source);
        Some(Estimate::with_default_band(shape.flop() / rate, Bound::Compute, basis))
    }

    /// The time of a prefill and a decode of other sequences in one step. Neither is empty, and
    /// both have the same heads. `None` where one of them is unknown.
    ///
    /// Fitted kernels compute both in one call; others compute one after the other.
    pub fn mixed_time(&self, prefill: &AttentionShape, decode: &AttentionShape) -> Option<Estimate> {
        let Some(surface) = &self.surface else {
            let (first, second) = (self.time(prefill)?, self.time(decode)?);
            return Some(first.then(&second));
        };
        let shapes = (*prefill, *decode);
        let measured = self.mixed.binary_search_by_key(&shapes, |p| (p.prefill, p.decode));
        Some(self.estimate(measured.ok().map(|i| self.mixed[i].time), surface.at_mixed(prefill, decode)?))
    }

    fn estimate(&self, measured: Option<Seconds>, reading: SurfaceReading) -> Estimate {
        let (time, basis, spread) = match measured {
            // A single measurement is as uncertain as its noise.
            Some(time) => (time, Basis::Measured, reading.spread.min(Estimate::MEASURED_SPREAD)),
            None if reading.inside => (Seconds::new(reading.time), Basis::Interpolated, reading.spread),
            None => (Seconds::new(reading.time), Basis::Extrapolated, reading.spread),
        };
        let (width, basis) = (spread.exp(), basis.sourced(&self.source));
        self.speedup.apply(Estimate {
            time,
            low: time / width,
            high: time * width,
            bound: reading.bound,
            basis,
        })
    }
}

impl AttentionRates {
    /// Whether they were not measured.
    pub fn is_estimated(&self) -> bool {
        !matches!(self.source, Provenance::Measured { .. })
    }

    /// The same rates with prefill that computes `factor` times as fast; decode stays as it is.
    #[must_use]
    pub(crate) fn with_faster_prefill(&self, factor: Ratio) -> Self {
        let decode_rate = self.decode_rate.map(|rate| rate * (1.0 / factor.get()));
        Self { decode_rate, ..self.faster(Bound::Compute, factor) }
    }
}

impl AttentionRates {
    /// The same rates with times that are bound by `bound` shorter by `factor`. The points stay as
    /// measured.
    pub fn faster(&self, bound: Bound, factor: Ratio) -> Self {
        let mut rates = self.clone();
        rates.speedup = self.speedup.faster(bound, factor);
        rates
    }
}
