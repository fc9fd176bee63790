//! `fulcrum plan SCENARIO`; with `--grid` for many batches and prompt lengths at once, with
//! `--front` for what can be traded off.

use crate::text::terminal::{self, err, errln, out, out_json, outln};
use crate::text::{grid, plan};
use crate::written::WRITTEN_FILE;
use fulcrum::{
    Document, Error, OrError, PreparedScenario, ResolvedPlan, Result, Setting, plan_grid, read_scenario,
};
use hwprofiles::write_atomically;
use planner::{Criterion, ExportTarget};
use scenarios::EngineProfile;
use std::path::PathBuf;

/// Plan a scenario: a device for each sublayer, a memory for each matrix and the KV cache.
#[derive(Debug, clap::Args)]
pub struct PlanArguments {
    /// The scenario's file.
    scenario: PathBuf,
    /// Where to write the plan; without it, to stdout.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
    /// Set a key of the scenario by its dotted path: `--set workload.batch=8`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
    /// Plan every batch and prompt length of `--set workload.batch=1,2,4 --set
    /// workload.prompt_tokens=512,4096`: the weights stay where they are for all, or the way is
    /// counted. Prints what each cell gets; `-o` writes the table.
    #[arg(long)]
    grid: bool,
    /// Plan within what this engine can express, at what it costs there: llama.cpp, ik_llama.cpp,
    /// ollama, lmstudio, ktransformers, vllm, sglang, accelerate, deepspeed or flexgen. Its command
    /// runs the plan as it is.
    #[arg(long = "for", value_name = "ENGINE", conflicts_with_all = ["grid", "front"])]
    engine: Option<String>,
    /// Print what can be traded off, in place of one plan: placements that no other one beats in
    /// all of two or three of ttft, tpot, energy, cost. `-o` writes them as CSV.
    #[arg(long, value_name = "CRITERIA", value_delimiter = ',', conflicts_with = "grid")]
    front: Vec<Criterion>,
    /// About how many of them.
    #[arg(long, default_value_t = 20, requires = "front")]
    points: usize,
}

impl PlanArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        if self.grid {
            return self.run_grid(json);
        }
        if !self.front.is_empty() {
            return self.run_front(json);
        }
        let planned = match &self.engine {
            Some(engine) => self.plan_for(engine)?,
            None => fulcrum::plan(&read_scenario(&self.scenario, &self.settings)?)?,
        };
        let document = planned.plan.to_yaml();
        if let Some(out) = &self.out {
            write_atomically(out, &document).or_failed()?;
        }
        if json || self.out.is_none() {
            err!("{}", planned.formats_table());
        }
        match (json, &self.out) {
            (true, _) => out_json!(&planned.plan.sealed()),
            (false, None) => out!("{document}"),
            (false, Some(out)) => {
                out!("{}", plan::summary(&planned));
                outln!("written to {}", out.display());
            }
        }
        Ok(())
    }

    /// The best plan that `engine` can run, with its command and files on stderr.
    fn plan_for(&self, engine: &str) -> Result<ResolvedPlan> {
        let mut settings = self.settings.clone();
        let kernels = engine.parse::<ExportTarget>().map_or(engine, |target| target.kernels());
        if EngineProfile::shipped(kernels).is_some() {
            settings.push(format!("engine={kernels}").parse::<Setting>().map_err(Error::input)?);
        }
        let scenario = read_scenario(&self.scenario, &settings)?;
        let (planned, export) = PreparedScenario::plan_for(&scenario, engine)?;
        err!("{export}\n");
        if export.nearest.layers != planned.placement.layers {
            let warning = "the command does not run this plan, which spreads layers with parts in host memory over \
                           several GPUs: `fulcrum export` says what it leaves out and predicts what it takes";
            errln!("{}\n", terminal::folded(&[warning.to_owned()]));
        }
        Ok(planned)
    }

    fn run_front(&self, json: bool) -> Result {
        let scenario = PreparedScenario::new(&read_scenario(&self.scenario, &self.settings)?)?;
        let front = scenario.front(&self.front, self.points)?;
        if let Some(out) = &self.out {
            write_atomically(out, front.to_csv()).or_failed()?;
        }
        match json {
            true => out_json!(&front),
            false => out!("{front}"),
        }
        Ok(())
    }

    fn run_grid(&self, json: bool) -> Result {
        let document = Document::from_file(&self.scenario).or_input()?;
        let table = plan_grid(document, &self.settings)?;
        if let Some(out) = &self.out {
            write_atomically(out, table.to_yaml()).or_failed()?;
        }
        if json {
            out_json!(&table.sealed());
            return Ok(());
        }
        out!("{}", grid::summary(&table));
        if let Some(out) = &self.out {
            outln!("written to {}", out.display());
        }
        Ok(())
    }
}
