//! Kriging: a smooth surface over measured points, for what a mechanism leaves unexplained.
//!
//! Simple Kriging with a Matérn 3/2 covariance. A point that disagrees with its neighbours counts
//! less, as under Student's t: with l its left-out residual, v that residual's variance and z² =
//! l²/v, its noise grows by v · (z² − 1) / (ν + 1), and the surface is solved again.

use crate::statistics::upper_median;
use nalgebra::{DMatrix, DVector};

/// Degrees of freedom of the noise. They are few because one measurement in ten is disturbed.
const FREEDOM: f64 = 4.0;

const ROUNDS: usize = 4;

/// The covariance of values at two places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Covariance {
    /// Variance of the values.
    pub variance: f64,
    /// Distance over which values are alike.
    pub length: f64,
    /// Variance of the noise of one point.
    pub noise: f64,
}

/// A smooth surface over points of `N` coordinates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kriging<const N: usize> {
    covariance: Covariance,
    places: Vec<[f64; N]>,
    mean: f64,
    weights: DVector<f64>,
    left_out: Vec<f64>,
}

impl<const N: usize> Kriging<N> {
    /// The surface through `values` at `places`. Both have the same length, at least one.
    pub(crate) fn new(covariance: Covariance, places: Vec<[f64; N]>, values: &[f64]) -> Self {
        let count = places.len();
        let mean = upper_median(values).unwrap_or(0.0);
        let centred = DVector::from_iterator(count, values.iter().map(|value| value - mean));
        let alike = DMatrix::from_fn(count, count, |i, j| covariance.between(&places[i], &places[j]));
        let mut noise = DVector::repeat(count, covariance.noise);
        let mut weights = DVector::zeros(count);
        let mut left_out = vec![0.0; count];
        for _ in 0..ROUNDS {
            let Some(factor) = (&alike + DMatrix::from_diagonal(&noise)).cholesky() else { break };
            let inverse = factor.inverse().diagonal();
            weights = factor.solve(&centred);
            left_out = weights.iter().zip(inverse.iter()).map(|(w, i)| w / i).collect();
            for ((noise, left_out), inverse) in noise.iter_mut().zip(&left_out).zip(inverse.iter()) {
                let excess = (left_out * left_out * inverse - 1.0).max(0.0);
                *noise = covariance.noise + excess / inverse / (FREEDOM + 1.0);
            }
        }
        Self { covariance, places, mean, weights, left_out }
    }

    /// The surface at a place.
    pub(crate) fn at(&self, place: &[f64; N]) -> f64 {
        let alike = self.places.iter().map(|other| self.covariance.between(place, other));
        self.mean + alike.zip(self.weights.iter()).map(|(a, w)| a * w).sum::<f64>()
    }

    /// For each point: its value less the value of the surface through all other points.
    pub(crate) fn left_out(&self) -> &[f64] {
        &self.left_out
    }
}

impl Covariance {
    fn between<const N: usize>(&self, a: &[f64; N], b: &[f64; N]) -> f64 {
        let square: f64 = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum();
        let distance = 3f64.sqrt() * square.sqrt() / self.length;
        self.variance * (1.0 + distance) * (-distance).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMOOTH: Covariance = Covariance { variance: 1.0, length: 2.0, noise: 1e-4 };

    #[test]
    fn a_surface_passes_near_its_points_and_ignores_one_that_was_disturbed() {
        let places: Vec<_> = (0..12).map(|i| [f64::from(i) * 0.5]).collect();
        let truth = |x: f64| (x * 0.7).sin();
        let mut values: Vec<_> = places.iter().map(|[x]| truth(*x)).collect();
        values[6] += 3.0;
        let surface = Kriging::new(SMOOTH, places.clone(), &values);
        for [x] in &places {
            assert!((surface.at(&[*x]) - truth(*x)).abs() < 0.1, "{x}: {}", surface.at(&[*x]));
        }
        assert!(surface.left_out()[6] > 2.5);
    }

    #[test]
    fn far_from_every_point_the_middle_value_stands() {
        let surface = Kriging::new(SMOOTH, vec![[0.0], [1.0], [2.0]], &[1.0, 3.0, 8.0]);
        assert!((surface.at(&[1e6]) - 3.0).abs() < 1e-9);
    }
}
