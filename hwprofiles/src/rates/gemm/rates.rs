//! The matrix products of one device in one weight format: points and a fitted surface.

use crate::rates::estimate::{Basis, Bound, Estimate};
use crate::rates::gemm::facts::GemmFacts;
use crate::rates::gemm::fit::GemmFitError;
use crate::rates::gemm::known_times::KnownTimes;
use crate::rates::gemm::point::GemmPoint;
use crate::rates::gemm::surface::GemmSurface;
use crate::rates::speedup::Speedup;
use crate::units::{DType, Provenance, Ratio, Seconds};
use serde::{Deserialize, Deserializer, Serialize};

/// Measured matrix products of one weight format, and the surface fitted to them where there is
/// one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmRates {
    /// Where the points came from.
    pub source: Provenance,
    /// Sorted by n, k and m; at least one. In files a table of `m,n,k,time_us`.
    #[serde(serialize_with = "crate::files::table::serialize", deserialize_with = "read_points")]
    points: Vec<GemmPoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    surface: Option<GemmSurface>,
    #[serde(skip)]
    pub(crate) speedup: Speedup,
    /// Times of the surface.
    #[serde(skip)]
    known: KnownTimes,
}

/// The order of points: by weight matrix, then by rows.
fn order(point: &GemmPoint) -> (u64, u64, u64) {
    (point.n, point.k, point.m)
}

fn read_points<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GemmPoint>, D::Error> {
    let mut points: Vec<GemmPoint> = crate::files::checked_table(deserializer)?;
    points.sort_by_key(order);
    Ok(points)
}

impl GemmRates {
    /// Points without a fit, between which times are interpolated.
    pub fn new(source: Provenance, mut points: Vec<GemmPoint>) -> Self {
        points.sort_by_key(order);
        Self { source, points, surface: None, speedup: Speedup::default(), known: KnownTimes::default() }
    }

    /// Points and the surface that fits them best: products with weights of `dtype` on a device
    /// with these `facts`.
    pub fn fit(
        source: Provenance,
        points: Vec<GemmPoint>,
        dtype: DType,
        facts: GemmFacts,
    ) -> Result<Self, GemmFitError> {
        let surface = GemmSurface::fit(dtype, facts, &points)?;
        Ok(Self { surface: Some(surface), ..Self::new(source, points) })
    }

    /// The points, sorted by n, k and m.
    pub fn points(&self) -> &[GemmPoint] {
        &self.points
    }

    /// The fitted surface, where the points were fitted.
    pub fn surface(&self) -> Option<&GemmSurface> {
        self.surface.as_ref()
    }

    /// Time of y[m, n] = x[m, k] · W[n, k]ᵀ, all dimensions at least 1; `None` without points.
    ///
    /// A measured shape has its measured time. Between two measured numbers of rows of the same
    /// weights that lie close together, time is linear in the rows. Everywhere else the fitted
    /// surface gives the time, where there is one.
    pub fn time(&self, m: u64, n: u64, k: u64) -> Option<Estimate> {
        let estimate = match &self.surface {
            Some(surface) => self.known.get([m, n, k], || self.of_surface(surface, m, n, k)),
            None => self.between_points(m, n, k)?,
        };
        Some(self.speedup.apply(estimate))
    }

    fn of_surface(&self, surface: &GemmSurface, m: u64, n: u64, k: u64) -> Estimate {
        let reading = surface.at(m, n, k);
        let (time, basis, spread) = match self.near(m, n, k) {
            Some((time, true)) => (time, Basis::Measured, reading.spread.min(Estimate::MEASURED_SPREAD)),
            Some((time, false)) => (time, Basis::Interpolated, reading.spread.min(NEAR_SPREAD)),
            None if reading.inside => (Seconds::new(reading.time), Basis::Interpolated, reading.spread),
            None => (Seconds::new(reading.time), Basis::Extrapolated, reading.spread),
        };
        let width = spread.exp();
        let basis = basis.sourced(&self.source);
        Estimate { time, low: time / width, high: time * width, bound: reading.bound, basis }
    }

    /// The measured time of this very shape (and true), or the interpolated time between two near
    /// points of the same n and k (and false).
    fn near(&self, m: u64, n: u64, k: u64) -> Option<(Seconds, bool)> {
        let at = match self.points.binary_search_by_key(&(n, k, m), order) {
            Ok(at) => return Some((self.points[at].time, true)),
            Err(at) => at,
        };
        let (below, above) = (self.points.get(at.checked_sub(1)?)?, self.points.get(at)?);
        let same = |p: &GemmPoint| (p.n, p.k) == (n, k);
        let close = below.m > 1 && above.m as f64 <= NEAR * below.m as f64;
        (same(below) && same(above) && close).then(|| {
            let share = (m - below.m) as f64 / (above.m - below.m) as f64;
            (below.time * (1.0 - share) + above.time * share, false)
        })
    }
}

/// Two numbers of rows are close up to this ratio, which is finer than tiles are.
const NEAR: f64 = 1.5;

/// Half the width of the 80 % band of a time between near points, as a logarithm.
const NEAR_SPREAD: f64 = 0.06;

impl GemmRates {
    /// The same rates with times that are bound by `bound` shorter by `factor`. The points stay as
    /// measured.
    pub fn faster(&self, bound: Bound, factor: Ratio) -> Self {
        let mut rates = self.clone();
        rates.speedup = self.speedup.faster(bound, factor);
        rates
    }
}
