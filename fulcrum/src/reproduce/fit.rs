//! The fit of a publication's constants, so that anybody can do it again.

use super::{Published, our_value};
use crate::error::{Error, Result};
use rayon::prelude::*;
use scenarios::published::Publication;

/// The largest loss of one row, so that a row that the mechanism does not explain cannot bend the
/// constants.
const MOST: f64 = 0.7;
/// The first step of each constant, as a logarithm, and the last.
const STEPS: [f64; 2] = [0.3, 0.01];

/// The publication with the values of its fitted constants that explain the rows of `fitted_on`
/// best, and the mean of |ln(ours ÷ published)| over these rows.
///
/// The search goes along one constant after the other, within the priors, with steps that are
/// halved when none gains.
///
/// # Errors
/// No row is named that the constants are fitted on, or one of them cannot be run.
pub fn fit_constants(published: &Published) -> Result<(Publication, f64)> {
    let mut best = published.publication.clone();
    let mut least = loss(published, &best)?;
    let mut step = STEPS[0];
    while step > STEPS[1] {
        let before = least;
        for index in 0..best.constants.0.len() {
            if !best.constants.0[index].1.fitted {
                continue;
            }
            for direction in [step, -step] {
                let mut tried = best.clone();
                let constant = &mut tried.constants.0[index].1;
                let [low, high] = constant.prior;
                constant.value = (constant.value * direction.exp()).clamp(low, high);
                let lost = loss(published, &tried)?;
                if lost < least {
                    (best, least) = (tried, lost);
                    break;
                }
            }
        }
        if least >= before * (1.0 - 1e-3) {
            step /= 2.0;
        }
    }
    Ok((best, least))
}

fn loss(published: &Published, publication: &Publication) -> Result<f64> {
    let rows = published.rows.iter().filter(|row| publication.is_fitted_on(row));
    let rows: Vec<_> = rows.filter_map(|row| Some((row, row.value.filter(|value| *value > 0.0)?))).collect();
    let known = rows.par_iter().filter_map(|(row, value)| Some((row, value, publication.group_of(row)?)));
    let losses = known.map(|(row, value, (group, numbers))| {
        let ours = our_value(publication, group, &numbers, row, publication.scope())?;
        Ok((ours / value).ln().abs().min(MOST))
    });
    let losses = losses.collect::<Result<Vec<f64>>>()?;
    let id = &published.id;
    let none = || Error::input(format!("{id}: no row is named that its constants are fitted on"));
    reports::statistics::mean(&losses).ok_or_else(none)
}
