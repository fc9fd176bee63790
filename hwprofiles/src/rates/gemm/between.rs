//! Times between measured points that were not fitted: they are interpolated.
//!
//! The points are scanned linearly: a few dozen take some tens of nanoseconds.

use crate::rates::estimate::{Basis, Bound, Estimate};
use crate::rates::gemm::point::GemmPoint;
use crate::rates::gemm::rates::GemmRates;
use crate::units::Seconds;
use std::cmp::Ordering;

impl GemmRates {
    /// The interpolated time of y[m, n] = x[m, k] · W[n, k]ᵀ, all dimensions at least 1; `None`
    /// without points.
    ///
    /// A measured shape (n, k) uses its own points. For any other shape the time per weight
    /// element, t / (n·k), is interpolated in log(n·k) between the nearest smaller and larger
    /// measured shapes; outside them the nearest one's is used. Of shapes with equal n·k the one
    /// with the most similar n / k is used.
    pub(super) fn between_points(&self, m: u64, n: u64, k: u64) -> Option<Estimate> {
        let (time, basis) = match self.points().iter().any(|p| (p.n, p.k) == (n, k)) {
            true => self.time_of_shape(m, n, k)?,
            false => self.time_between_shapes(m, n, k)?,
        };
        // A product is bound by its weights while one row alone takes more than half of its time.
        let one_row = self.row_alone(n, k)?;
        let bound = if time > 2.0 * one_row { Bound::Compute } else { Bound::Memory };
        Some(Estimate::with_default_band(Seconds::new(time), bound, basis.sourced(&self.source)))
    }

    /// Time of the fewest measured rows of the nearest shape, for the weights of (n, k).
    fn row_alone(&self, n: u64, k: u64) -> Option<f64> {
        let shape = self.nearest_shape(n, k, |_| true)?;
        let (time, _) = self.time_of_shape(1, shape.n, shape.k)?;
        Some(time / size(shape) * (n as f64 * k as f64))
    }

    fn time_between_shapes(&self, m: u64, n: u64, k: u64) -> Option<(f64, Basis)> {
        let elements = n as f64 * k as f64;
        let per_element = |p: &GemmPoint| {
            let (time, basis) = self.time_of_shape(m, p.n, p.k)?;
            Some((time / size(p), basis))
        };
        let below = self.nearest_shape(n, k, |p| size(p) <= elements);
        let above = self.nearest_shape(n, k, |p| size(p) >= elements);
        let (time, basis) = match (below, above) {
            (Some(a), Some(b)) => {
                let ((ta, basis_a), (tb, basis_b)) = (per_element(a)?, per_element(b)?);
                let weight = fraction(size(a).ln(), size(b).ln(), elements.ln());
                (ta + (tb - ta) * weight, basis_a.max(basis_b).max(Basis::Interpolated))
            }
            (Some(one), None) | (None, Some(one)) => (per_element(one)?.0, Basis::Extrapolated),
            (None, None) => return None,
        };
        Some((time * elements, basis))
    }

    /// A point, among the `wanted` ones, whose n·k is nearest to that of (n, k). All wanted points
    /// lie on one side of it.
    fn nearest_shape(&self, n: u64, k: u64, wanted: impl Fn(&GemmPoint) -> bool) -> Option<&GemmPoint> {
        let (elements, aspect) = (n as f64 * k as f64, (n as f64 / k as f64).ln());
        let unlike = |p: &GemmPoint| ((p.n as f64 / p.k as f64).ln() - aspect).abs();
        // Planners call this often and logarithms are its cost, so only ties compute them.
        let nearer = |a: &&GemmPoint, b: &&GemmPoint| {
            let by_size = (size(a) - elements).abs().total_cmp(&(size(b) - elements).abs());
            let by_aspect = || match (a.n, a.k) == (b.n, b.k) {
                true => Ordering::Equal,
                false => unlike(a).total_cmp(&unlike(b)).then((a.n, a.k).cmp(&(b.n, b.k))),
            };
            by_size.then_with(by_aspect)
        };
        self.points().iter().filter(|p| wanted(p)).min_by(nearer)
    }

    /// The time for `m` rows of a measured shape: linear in m between points. Below the smallest
    /// measured m it is that point's time, because a matrix-vector product reads the same weights;
    /// beyond the largest it is the time per row.
    fn time_of_shape(&self, m: u64, n: u64, k: u64) -> Option<(f64, Basis)> {
        let row = || self.points().iter().filter(|p| (p.n, p.k) == (n, k));
        let below = row().filter(|p| p.m <= m).max_by_key(|p| p.m);
        let above = row().filter(|p| p.m >= m).min_by_key(|p| p.m);
        Some(match (below, above) {
            (Some(a), Some(b)) if a.m == b.m => (a.time.get(), Basis::Measured),
            (Some(a), Some(b)) => {
                let weight = fraction(a.m as f64, b.m as f64, m as f64);
                (a.time.get() + (b.time.get() - a.time.get()) * weight, Basis::Interpolated)
            }
            (Some(a), None) => (a.time.get() * (m as f64 / a.m as f64), Basis::Extrapolated),
            (None, Some(b)) => (b.time.get(), Basis::Extrapolated),
            (None, None) => return None,
        })
    }
}

/// Weight elements of the point's shape.
fn size(point: &GemmPoint) -> f64 {
    point.n as f64 * point.k as f64
}

/// Where `x` lies between `a` (0) and `b` (1); 0 where they coincide.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    if a == b { 0.0 } else { ((x - a) / (b - a)).clamp(0.0, 1.0) }
}
