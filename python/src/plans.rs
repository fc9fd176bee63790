//! Plans: made, read, simulated, explained, exported.

use crate::documents::prepared;
use crate::errors::exception;
use crate::threads::detached;
use fulcrum::{OrError, PreparedScenario, ResolvedPlan, Result, plan_numbers};
use planner::ExportTarget;
use pyo3::prelude::*;
use serde_json::{Value, json};
use sim::RandomDraws;
use std::path::PathBuf;

/// A plan with the machine and the model that it was made for.
#[pyclass(frozen, name = "PlanHandle", module = "fulcrum._fulcrum")]
pub struct PlanHandle(ResolvedPlan);

/// The plan of the scenario in `text`.
#[pyfunction]
pub fn plan(py: Python<'_>, text: &str, name: &str) -> PyResult<PlanHandle> {
    let planned = detached(py, || prepared(text, name)?.plan());
    planned.map(PlanHandle).map_err(|error| exception(py, error))
}

/// The plan in a file.
#[pyfunction]
pub fn read_plan(py: Python<'_>, path: PathBuf) -> PyResult<PlanHandle> {
    let planned = detached(py, || ResolvedPlan::read(&path));
    planned.map(PlanHandle).map_err(|error| exception(py, error))
}

#[pymethods]
impl PlanHandle {
    /// The plan as it is written to a file.
    fn to_yaml(&self) -> String {
        self.0.plan.to_yaml()
    }

    /// The plan as JSON.
    fn to_json(&self) -> String {
        json!(self.0.plan).to_string()
    }

    /// The plan's numbers as JSON, in seconds, bytes, joules and dollars.
    fn summary(&self) -> String {
        plan_numbers(&self.0.plan).to_string()
    }

    /// The rates of its simulated run, as JSON.
    #[pyo3(signature = (experts, acceptance, seed))]
    fn simulate(&self, py: Python<'_>, experts: bool, acceptance: bool, seed: u64) -> PyResult<String> {
        let rates = detached(py, || static_rates(&self.0, RandomDraws { experts, acceptance, seed }));
        rates.map(|rates| rates.to_string()).map_err(|error| exception(py, error))
    }

    /// What binds, as JSON, and the same in words.
    fn explain(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let ResolvedPlan { plan, machine, model, .. } = &self.0;
        let explained = detached(py, || planner::explain(plan, machine, model).or_failed());
        let explained = explained.map_err(|error| exception(py, error))?;
        Ok((json!(explained).to_string(), explained.to_string()))
    }

    /// The plan as another engine's options, as JSON.
    fn export(&self, py: Python<'_>, engine: &str) -> PyResult<String> {
        let exported = detached(py, || self.0.exported(engine.parse::<ExportTarget>().or_input()?).map(|it| it.to_json()));
        exported.map(|json| json.to_string()).map_err(|error| exception(py, error))
    }
}

/// The rates of a static batch.
pub fn static_rates(planned: &ResolvedPlan, draws: RandomDraws) -> Result<Value> {
    let trace = planned.simulate(draws)?;
    Ok(json!(planned.rates(&trace)))
}

/// A static batch of a scenario, planned and simulated; `None` where it is no static batch.
pub fn planned_rates(scenario: &PreparedScenario, draws: RandomDraws) -> Result<Value> {
    static_rates(&scenario.plan()?, draws)
}
