//! Simulations, sweeps, capacities, predictions, machines, models, validations.

use crate::documents::{axes, document, prepared};
use crate::errors::{exception, not_json};
use crate::plans::planned_rates;
use crate::threads::detached;
use fulcrum::{
    DayTables, ExtraKey, OrError, PredictionOptions, Result, Sweep, SweepRun, SweepShard, ValidationOptions,
    no_progress,
};
use hwprofiles::Profile;
use pyo3::prelude::*;
use scenarios::{GRID_LIMIT, Model};
use serde_json::{Value, json};
use sim::RandomDraws;
use std::path::PathBuf;

/// An answer as text, or the exception.
fn answer(py: Python<'_>, ask: impl FnOnce() -> Result<Value> + Send) -> PyResult<String> {
    detached(py, ask).map(|json| json.to_string()).map_err(|error| exception(py, error))
}

/// The simulated run of a scenario: of a static batch, of requests that come and go, or of a
/// training step; `kind` says which.
#[pyfunction]
pub fn simulate(
    py: Python<'_>,
    text: &str,
    name: &str,
    experts: bool,
    acceptance: bool,
    seed: u64,
) -> PyResult<String> {
    answer(py, || {
        let scenario = prepared(text, name)?;
        if scenario.training().is_some() {
            let (_, rates) = fulcrum::train(&scenario)?;
            return Ok(json!({"kind": "training", "numbers": rates}));
        }
        if scenario.serving().is_some() {
            let day = fulcrum::serve_day(&scenario, DayTables::default())?;
            return Ok(json!({"kind": "served", "plan": day.plan, "numbers": day.to_json()}));
        }
        let numbers = planned_rates(&scenario, RandomDraws { experts, acceptance, seed })?;
        Ok(json!({"kind": "static", "numbers": numbers}))
    })
}

/// Which machines serve a load, and what they cost.
#[pyfunction]
pub fn capacity(py: Python<'_>, text: &str, name: &str) -> PyResult<String> {
    answer(py, || {
        let report = fulcrum::capacity(&document(text, name)?)?;
        serde_json::from_str(&report.to_json()).or_failed()
    })
}

/// Runs a shard of a sweep into the table `out`, and counts the statuses of its rows. `given` is a
/// list of [keys, rows of values], and whether each point is planned as a plan alone is.
#[pyfunction]
pub fn sweep(
    py: Python<'_>,
    text: &str,
    name: &str,
    given: (String, bool),
    shard: (u64, u64),
    cache: Option<PathBuf>,
    out: PathBuf,
) -> PyResult<String> {
    let (given, search) = given;
    let given = serde_json::from_str(&given).map_err(not_json)?;
    answer(py, || {
        let document = document(text, name)?;
        let axes = axes(&document, given)?;
        let sweep = Sweep::new(document, axes, Some(GRID_LIMIT), cache.as_deref(), ExtraKey::None)?;
        let sweep = if search { sweep.with_search() } else { sweep };
        let run = SweepRun { shard: SweepShard { index: shard.0, of: shard.1 }, ..SweepRun::new(&out) };
        Ok(sweep.run(run, &no_progress)?.to_json())
    })
}

/// Joins the tables of shards, and counts their rows.
#[pyfunction]
pub fn merge_shards(py: Python<'_>, tables: Vec<PathBuf>, out: PathBuf) -> PyResult<u64> {
    detached(py, || fulcrum::merge_shards(&tables, &out)).map_err(|error| exception(py, error))
}

/// The rows of a table of operators with their predicted times, as CSV, and how far they are from
/// the measured ones.
#[pyfunction]
pub fn predict(
    py: Python<'_>,
    path: PathBuf,
    machine: Option<&str>,
    device: Option<&str>,
) -> PyResult<(String, String)> {
    let predicted = detached(py, || {
        let mut rows = Vec::new();
        let options = PredictionOptions { machine, device, only: None };
        let write = |row: &[u8]| {
            rows.extend_from_slice(row);
            Ok(())
        };
        let errors = fulcrum::predict_rows(&path, options, || Ok(write))?;
        Ok((String::from_utf8(rows).or_input()?, json!(errors.summary()).to_string()))
    });
    predicted.map_err(|error| exception(py, error))
}

/// The facts of a machine.
#[pyfunction]
pub fn machine(py: Python<'_>, name: &str) -> PyResult<String> {
    answer(py, || {
        let machine = fulcrum::machine(name)?;
        Ok(json!({
            "name": machine.name,
            "fingerprint": machine.fingerprint(),
            "facts": reports::machine_facts(&machine),
        }))
    })
}

/// The shipped machines and parts: name, kind and a line about each.
#[pyfunction]
pub fn machines(py: Python<'_>) -> PyResult<String> {
    answer(py, || {
        let row = |(name, text)| {
            let profile = Profile::from_yaml(text, name).or_failed()?;
            Ok(json!({"name": name, "kind": profile.kind(), "summary": profile.summary()}))
        };
        hwprofiles::shipped().map(row).collect()
    })
}

/// What a model is made of.
#[pyfunction]
pub fn model(py: Python<'_>, name: &str) -> PyResult<String> {
    answer(py, || Ok(fulcrum::described(&fulcrum::model(name)?)))
}

/// The names of the model presets.
#[pyfunction]
pub fn models() -> Vec<String> {
    Model::preset_names().map(str::to_owned).collect()
}

/// The plots of result files: name and SVG of each.
#[pyfunction]
pub fn plots(py: Python<'_>, results: Vec<PathBuf>) -> PyResult<Vec<(String, String)>> {
    let drawn = detached(py, || Ok(fulcrum::report(&results)?.report.plots()));
    drawn.map_err(|error| exception(py, error))
}

/// Runs plans for real beside their predictions.
#[pyfunction]
pub fn validate(py: Python<'_>, plans: Vec<PathBuf>, model_dir: PathBuf, repeats: u32) -> PyResult<String> {
    answer(py, || {
        let command = format!(
            "fulcrum.validate({}, …)",
            plans.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(", ")
        );
        let options = ValidationOptions { plans, model_dir, draft_dir: None, repeats, out: None, resume: false, anyway: false, command };
        let validation = fulcrum::validate(&options, &no_progress)?;
        serde_json::from_str(&validation.to_json()).or_failed()
    })
}
