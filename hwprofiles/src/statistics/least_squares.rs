//! Least squares with prior knowledge: the parameters of a mechanism from measured points.
//!
//! Maximum a posteriori by Levenberg and Marquardt's method: Σ ρ(rᵢ²) + Σ ((θⱼ − μⱼ) / σⱼ)² over
//! the parameters θ, with ρ(z) = 2·c²·(√(1 + z / c²) − 1) (`soft l1`), under which a disturbed
//! point counts less. The priors hold parameters that the points do not determine near their
//! datasheet values, so that few points suffice.

use nalgebra::{DMatrix, DVector};

/// What is known of a parameter before anything is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// Its likeliest value.
    pub mean: f64,
    /// Its standard deviation.
    pub deviation: f64,
}

/// Residuals beyond this many standard deviations count linearly.
const ROBUST: f64 = 1.5;

const STEP: f64 = 1e-3;

const ITERATIONS: usize = 60;

/// The parameters that fit best. `residuals` returns one finite residual per point, in standard
/// deviations.
pub fn least_squares(priors: &[Prior], residuals: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let mut here: Vec<f64> = priors.iter().map(|prior| prior.mean).collect();
    let mut misfit = Misfit::at(priors, &here, residuals(&here));
    let mut damping = 1e-2;
    for _ in 0..ITERATIONS {
        let (gradient, curvature) = misfit.quadratic(priors, &here, &residuals);
        let mut improved = false;
        while damping < 1e8 {
            let mut damped = curvature.clone();
            for i in 0..here.len() {
                damped[(i, i)] *= 1.0 + damping;
            }
            let Some(step) = damped.cholesky().map(|c| c.solve(&gradient)) else {
                damping *= 4.0;
                continue;
            };
            let there: Vec<f64> = here.iter().zip(step.iter()).map(|(x, d)| x - d.clamp(-1.0, 1.0)).collect();
            let next = Misfit::at(priors, &there, residuals(&there));
            if next.cost < misfit.cost {
                let gain = (misfit.cost - next.cost) / misfit.cost;
                (here, misfit, improved) = (there, next, gain > 1e-6);
                damping = (damping / 4.0).max(1e-8);
                break;
            }
            damping *= 4.0;
        }
        if !improved {
            break;
        }
    }
    here
}

struct Misfit {
    residuals: Vec<f64>,
    cost: f64,
}

impl Misfit {
    fn at(priors: &[Prior], parameters: &[f64], residuals: Vec<f64>) -> Self {
        let soft = |r: &f64| 2.0 * ROBUST * ROBUST * ((1.0 + (r / ROBUST).powi(2)).sqrt() - 1.0);
        let data: f64 = residuals.iter().map(soft).sum();
        let prior: f64 =
            priors.iter().zip(parameters).map(|(p, x)| ((x - p.mean) / p.deviation).powi(2)).sum();
        Self { residuals, cost: data + prior }
    }

    /// Gradient and Gauss–Newton curvature of the cost, both halved.
    fn quadratic(
        &self,
        priors: &[Prior],
        here: &[f64],
        residuals: &impl Fn(&[f64]) -> Vec<f64>,
    ) -> (DVector<f64>, DMatrix<f64>) {
        let weights = self.residuals.iter().map(|r| 1.0 / (1.0 + (r / ROBUST).powi(2)).sqrt());
        let weights = DVector::from_iterator(self.residuals.len(), weights);
        let columns: Vec<_> = (0..here.len())
            .map(|i| {
                let mut moved = here.to_vec();
                moved[i] += STEP;
                let there = residuals(&moved);
                let slopes = there.iter().zip(&self.residuals).map(|(b, a)| (b - a) / STEP);
                DVector::from_iterator(there.len(), slopes)
            })
            .collect();
        let jacobian = DMatrix::from_columns(&columns);
        let mut weighted = jacobian.clone();
        for mut column in weighted.column_iter_mut() {
            column.component_mul_assign(&weights);
        }
        let mut curvature = weighted.tr_mul(&jacobian);
        let mut gradient = weighted.tr_mul(&DVector::from_column_slice(&self.residuals));
        for (i, prior) in priors.iter().enumerate() {
            curvature[(i, i)] += prior.deviation.powi(-2);
            gradient[i] += (here[i] - prior.mean) * prior.deviation.powi(-2);
        }
        (gradient, curvature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_through_its_points_and_past_a_disturbed_one() {
        let points: Vec<(f64, f64)> = (0..20)
            .map(|i| (f64::from(i), 3.0 + 0.5 * f64::from(i) + if i == 7 { 40.0 } else { 0.0 }))
            .collect();
        let vague = Prior { mean: 0.0, deviation: 100.0 };
        let found = least_squares(&[vague, vague], |p| {
            points.iter().map(|(x, y)| (p[0] + p[1] * x - y) / 0.1).collect()
        });
        assert!((found[0] - 3.0).abs() < 0.1 && (found[1] - 0.5).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn without_points_the_prior_stands() {
        let prior = Prior { mean: 2.5, deviation: 0.1 };
        assert_eq!(least_squares(&[prior], |_| Vec::new()), [2.5]);
    }
}
