//! Parameters of a mechanism: above zero, fitted as logarithms, and named in files.

use crate::statistics::Prior;
use serde::{Deserialize, Serialize};

/// A parameter and what is known of it before anything is measured.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub name: &'static str,
    /// `s`, `B/s`, `odds`, or `1` for a share, factor or exponent.
    pub unit: &'static str,
    /// Its likeliest value.
    pub mean: f64,
    /// The standard deviation of its logarithm.
    pub deviation: f64,
}

pub(crate) const fn parameter(
    name: &'static str,
    unit: &'static str,
    mean: f64,
    deviation: f64,
) -> Parameter {
    Parameter { name, unit, mean, deviation }
}

/// What is known of the logarithms beforehand.
pub(crate) fn priors(parameters: &[Parameter]) -> Vec<Prior> {
    parameters.iter().map(|p| Prior { mean: p.mean.ln(), deviation: p.deviation }).collect()
}

/// A row of the table that holds the parameters of a fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterRow {
    pub name: String,
    pub value: f64,
    pub unit: String,
}

/// The table of `parameters` with these values.
pub(crate) fn rows(parameters: &[Parameter], values: impl IntoIterator<Item = f64>) -> Vec<ParameterRow> {
    let row = |(p, value): (&Parameter, f64)| ParameterRow {
        name: p.name.to_owned(),
        value: six_digits(value),
        unit: p.unit.to_owned(),
    };
    parameters.iter().zip(values).map(row).collect()
}

/// The logarithms of a table's values. Refuses a table that does not hold exactly the `wanted`
/// parameters.
pub(crate) fn logarithms(rows: &[ParameterRow], wanted: &[Parameter]) -> Result<Vec<f64>, String> {
    if !rows.iter().map(|row| row.name.as_str()).eq(wanted.iter().map(|p| p.name)) {
        let names: Vec<_> = wanted.iter().map(|p| p.name).collect();
        return Err(format!(
            "the parameters are not those of this version ({}): fit again",
            names.join(", ")
        ));
    }
    if let Some(row) = rows.iter().find(|row| !(row.value.is_finite() && row.value > 0.0)) {
        return Err(format!("parameter {} is {}, but must be above zero", row.name, row.value));
    }
    Ok(rows.iter().map(|row| row.value.ln()).collect())
}

/// Rounded to six digits: a fit is not more precise.
pub(crate) fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
