//! `fulcrum export PLAN --to ENGINE`

use crate::text::phase_times::{tpot, ttft};
use crate::text::terminal::{out, out_json, outln};
use crate::written::{WRITTEN_FOLDER, refuse_inputs};
use fulcrum::{ExportedPlan, ResolvedPlan, Result};
use planner::{ExportTarget, PhaseTimes};
use std::path::PathBuf;

/// Write a plan as the options of an engine that people run, with the command to start it.
///
/// Lists the parts of the plan that the engine cannot express, and what the nearest plan that it
/// can run is predicted to take.
#[derive(Debug, clap::Args)]
pub struct ExportArguments {
    /// The plan.
    plan: PathBuf,
    /// llama.cpp, ik_llama.cpp, ollama, lmstudio, ktransformers, vllm, sglang, accelerate,
    /// deepspeed or flexgen.
    #[arg(long, value_name = "ENGINE")]
    to: ExportTarget,
    /// A folder for the files that the command reads, the command (command.sh) and the nearest plan
    /// (nearest.yaml); without it, files are printed.
    #[arg(short, long, value_name = "FOLDER", value_hint = WRITTEN_FOLDER)]
    out: Option<PathBuf>,
}

impl ExportArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let exported = ResolvedPlan::read(&self.plan)?.exported(self.to)?;
        if let Some(folder) = &self.out {
            refuse_inputs(exported.paths(folder))?;
            exported.write(folder)?;
        }
        if json {
            out_json!(&exported.to_json());
            return Ok(());
        }
        let export = &exported.export;
        match &self.out {
            Some(folder) => outln!("{}\n\nwritten to {}", export.command, folder.display()),
            None => out!("{export}"),
        }
        out!("\n{}", comparison(&exported));
        for sentence in &export.cannot {
            outln!("cannot express {sentence}");
        }
        Ok(())
    }
}

/// What the plan is predicted to take, beside the nearest plan that the engine can run.
fn comparison(ExportedPlan { engine, plan, nearest, .. }: &ExportedPlan) -> String {
    let row =
        |name: &str, times: &PhaseTimes| format!("{name:<22} {:>12} {:>12}\n", ttft(times), tpot(times));
    let mut text = format!("{:<22} {:>12} {:>12}\n", "predicted", "TTFT", "TPOT");
    text += &row("this plan", &plan.predicted.simulated);
    text += &row(&format!("nearest of {engine}"), &nearest.predicted.simulated);
    text
}
