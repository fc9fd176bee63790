//! Public runs on machines of shipped parts: each is a scenario, planned like any other.

use crate::error::{OrError, Result};
use crate::pipeline::{CachedCatalog, PreparedScenario};
use planner::{Effort, PhaseTimes};
use rayon::prelude::*;
use reports::public_runs::{PublicRow, PublicRows};
use scenarios::published::{PublicMetric, PublicPoint, PublicSetup};
use scenarios::{Document, Workload};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Predicts every public run that comes with the program.
///
/// # Errors
/// A shipped table is wrong. A run that cannot be answered says why in its row.
pub fn reproduce_public() -> Result<PublicRows> {
    let setups = PublicSetup::shipped().or_input()?;
    let rows = setups.par_iter().flat_map_iter(|setup| rows_with(setup, &BTreeMap::new()));
    Ok(PublicRows(rows.collect()))
}

/// The rows of one setup, with these values in the place of its engine's own.
pub(super) fn rows_with(setup: &PublicSetup, execution: &BTreeMap<String, Value>) -> Vec<PublicRow> {
    let mut run = PublicRun::new(setup, execution);
    let row = |point: &PublicPoint| {
        let (ours, why) = match &mut run {
            Ok(run) => match run.rate(point) {
                Ok(ours) => (Some(ours), String::new()),
                Err(error) => (None, error.to_string()),
            },
            Err(why) => (None, why.clone()),
        };
        PublicRow {
            id: point.id.clone(),
            setup: setup.cell("setup").to_owned(),
            source: setup.cell("source").to_owned(),
            engine: setup.cell("engine").to_owned(),
            build: format!("{} {}", setup.cell("engine"), setup.cell("version")).trim_end().to_owned(),
            host: setup.host(),
            choice: setup.choice(point.metric),
            machine: setup.machine(),
            model: setup.cell("model").to_owned(),
            format: setup.cell("quant").to_owned(),
            placement: setup.placement_class().to_owned(),
            phase: point.metric.phase().to_owned(),
            past: point.past,
            load: [point.prompt, point.output],
            measured: point.rate,
            ours,
            placed: run.as_ref().map_or_else(|_| String::new(), |run| run.placed.clone()),
            why,
            assumed: setup.assumption().to_owned(),
        }
    };
    setup.points.iter().map(row).collect()
}

/// A setup's scenario, with the times of the loads that were asked for.
pub(super) struct PublicRun {
    scenario: PreparedScenario,
    times: BTreeMap<[u64; 2], PhaseTimes>,
    /// Where everything is, in the words of a plan: tensors can be named in several ways.
    placed: String,
}

impl PublicRun {
    /// An error is why nothing of the setup can be answered.
    pub(super) fn new(setup: &PublicSetup, execution: &BTreeMap<String, Value>) -> Result<Self, String> {
        let scenario = setup.scenario_with(execution)?;
        Self::from_scenario(setup.cell("setup"), scenario).map_err(|error| error.to_string())
    }

    /// That of a scenario without a workload, which is called `name` in messages.
    pub(super) fn from_scenario(name: &str, mut scenario: Value) -> Result<Self> {
        scenario["workload"] = json!({"batch": 1, "prompt_tokens": 1, "output_tokens": 1});
        let document = Document::from_yaml(name, &scenario.to_string()).or_input()?;
        let scenario = PreparedScenario::cached(&document.scenario().or_input()?, &CachedCatalog::default())?;
        Ok(Self { scenario, times: BTreeMap::new(), placed: String::new() })
    }

    /// Our rate for `point`, in tokens per second.
    pub(super) fn rate(&mut self, point: &PublicPoint) -> Result<f64> {
        let &PublicPoint { metric, prompt, past, output, .. } = point;
        let tokens = output as f64;
        Ok(match metric {
            // The steps of a prompt behind a cached one are those of both without the first's.
            PublicMetric::Prompt => {
                let before = if past == 0 { 0.0 } else { self.times(past, 1)?.ttft.get() };
                prompt as f64 / (self.times(past + prompt, 1)?.ttft.get() - before)
            }
            PublicMetric::Decode => {
                let times = self.times(past.max(1), output.max(2))?;
                1.0 / times.tpot.map_or(f64::NAN, |tpot| tpot.get())
            }
            PublicMetric::Request => {
                let times = self.times(past.max(1), output.max(2))?;
                tokens / (times.ttft.get() + times.tpot.map_or(0.0, |tpot| tpot.get()) * (tokens - 1.0))
            }
        })
    }

    /// The predicted times of a prompt and its answer.
    fn times(&mut self, prompt: u64, output: u64) -> Result<PhaseTimes> {
        if let Some(known) = self.times.get(&[prompt, output]) {
            return Ok(*known);
        }
        let workload = Workload::new(1, prompt, output);
        let plan = self.scenario.with_workload(workload).plan_document(Effort::SWEEP)?;
        let times = plan.predicted.simulated;
        self.placed = json!([plan.embed, plan.layers, plan.head, plan.prefill_chunk]).to_string();
        self.times.insert([prompt, output], times);
        Ok(times)
    }
}
