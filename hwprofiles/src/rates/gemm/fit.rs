//! Fitting a surface to measured products.
//!
//! First come the mechanism's parameters, by least squares with priors ([`least_squares`]). What
//! the mechanism leaves unexplained is smoothed over the points ([`Kriging`]) and tabulated on the
//! lattice of their coordinates. The width of the band follows from how far each point lies from
//! the surface through all others.

use crate::rates::fit::band::{half_width, rounded};
use crate::rates::fit::kriging::{Covariance, Kriging};
use crate::rates::fit::parameter::six_digits;
use crate::rates::gemm::facts::GemmFacts;
use crate::rates::gemm::mechanism::Mechanism;
use crate::rates::gemm::point::GemmPoint;
use crate::rates::gemm::surface::{GemmSurface, SurfaceNode, place};
use crate::statistics::least_squares;
use crate::units::DType;
use std::collections::BTreeSet;

/// Why points cannot be fitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GemmFitError {
    /// There are none.
    #[error("there are no points to fit: give at least one measured product")]
    NoPoints,
}

/// Standard deviation of ln(measured ÷ mechanism) that the least squares assume.
const DEVIATION: f64 = 0.05;

/// What the mechanism leaves unexplained varies by about 14 % over factors of e^1.5 in a dimension,
/// and a single measurement is off by 5 %.
const UNEXPLAINED: Covariance = Covariance { variance: 0.02, length: 1.5, noise: 0.003 };

/// Values per axis of the table where the points are scattered. Rows get more because they are
/// measured most.
const SCATTERED_NODES: [usize; 3] = [16, 8, 8];

impl GemmSurface {
    /// The surface that fits `points` best: products with weights of `dtype` on a device with these
    /// `facts`.
    pub fn fit(dtype: DType, facts: GemmFacts, points: &[GemmPoint]) -> Result<Self, GemmFitError> {
        if points.is_empty() {
            return Err(GemmFitError::NoPoints);
        }
        let (vectors, matrices): (Vec<_>, Vec<_>) = points.iter().copied().partition(|p| p.m == 1);
        let mechanism = mechanism(dtype, &facts, if matrices.is_empty() { &vectors } else { &matrices });
        let unexplained = |p: &GemmPoint| (p.time.get() / mechanism.time(p.m, p.n, p.k).0).ln();
        let mut surfaces = Vec::new();
        for points in [vectors, matrices] {
            if !points.is_empty() {
                let places = points.iter().map(|p| place([p.m, p.n, p.k])).collect();
                let values: Vec<_> = points.iter().map(unexplained).collect();
                surfaces.push((Kriging::new(UNEXPLAINED, places, &values), lattice(&points)));
            }
        }
        let mut nodes = Vec::new();
        for (surface, lattice) in &surfaces {
            for &[m, n, k] in lattice {
                nodes.push(SurfaceNode { m, n, k, residual: rounded(surface.at(&place([m, n, k]))) });
            }
        }
        Self::new(
            dtype,
            facts,
            mechanism,
            half_width(surfaces.iter().flat_map(|(surface, _)| surface.left_out())),
            nodes,
        )
        .ok_or(GemmFitError::NoPoints)
    }
}

fn mechanism(dtype: DType, facts: &GemmFacts, points: &[GemmPoint]) -> Mechanism {
    let residuals = |parameters: &[f64]| {
        let mechanism = Mechanism::new(facts, dtype, parameters.to_vec());
        let residual = |p: &GemmPoint| (mechanism.time(p.m, p.n, p.k).0 / p.time.get()).ln() / DEVIATION;
        points.iter().map(residual).collect()
    };
    let found = least_squares(&Mechanism::priors(facts.kernels), residuals);
    // Rounded as in the file, so that a surface reads back unchanged.
    let held = found.into_iter().map(|logarithm| six_digits(logarithm.exp()).ln()).collect();
    Mechanism::new(facts, dtype, held)
}

/// The shapes of the table's nodes: every combination of the measured coordinates, or of some of
/// them where the points are scattered.
fn lattice(points: &[GemmPoint]) -> Vec<[u64; 3]> {
    let axis = |of: fn(&GemmPoint) -> u64| -> Vec<u64> {
        points.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let mut axes = [axis(|p| p.m), axis(|p| p.n), axis(|p| p.k)];
    if axes.iter().map(Vec::len).product::<usize>() > 2 * points.len() {
        axes.iter_mut().zip(SCATTERED_NODES).for_each(|(axis, count)| thin(axis, count));
    }
    let [ms, ns, ks] = &axes;
    let shapes = ms.iter().flat_map(|&m| ns.iter().flat_map(move |&n| ks.iter().map(move |&k| [m, n, k])));
    shapes.collect()
}

/// Keeps the first and last value and `count` − 2 evenly chosen ones between them.
fn thin(axis: &mut Vec<u64>, count: usize) {
    if axis.len() > count {
        let last = axis.len() - 1;
        *axis = (0..count).map(|i| axis[i * last / (count - 1)]).collect();
    }
}
