//! `fulcrum export PLAN --to ENGINE`

use crate::text::phase_times::{tpot, ttft};
use crate::text::terminal::{out, out_json, outln};
use crate::written::WRITTEN_FOLDER;
use fulcrum::{OrError, ResolvedPlan, Result};
use hwprofiles::write_atomically;
use planner::{Export, ExportTarget, PhaseTimes, Plan};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Write a plan as the options of an engine that people run, with the command to start it.
///
/// Lists the parts of the plan that the engine cannot express, and what the nearest plan that it
/// can run is predicted to take.
#[derive(Debug, clap::Args)]
pub struct ExportArguments {
    /// The plan.
    plan: PathBuf,
    /// llama.cpp, ktransformers, accelerate, vllm, deepspeed or flexgen.
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
        let planned = ResolvedPlan::read(&self.plan)?;
        let export = planned.export(self.to)?;
        let nearest = planned.evaluate(self.to.name(), &export.nearest)?;
        if let Some(folder) = &self.out {
            write(folder, &export, &nearest)?;
        }
        if json {
            let files: BTreeMap<_, _> = export.files.iter().map(|(name, text)| (name, text)).collect();
            let predicted =
                json!({"plan": planned.plan.predicted.simulated, "nearest": nearest.predicted.simulated});
            out_json!(&json!({
                "engine": self.to.name(),
                "command": export.command,
                "files": files,
                "cannot": export.cannot,
                "predicted": predicted,
                "nearest": nearest,
            }));
            return Ok(());
        }
        outln!("{}", export.command);
        match &self.out {
            Some(folder) => outln!("\nwritten to {}", folder.display()),
            None => export.files.iter().for_each(|(name, text)| out!("\n--- {name}\n{text}")),
        }
        out!("\n{}", comparison(self.to, &planned.plan, &nearest));
        for sentence in &export.cannot {
            outln!("cannot express {sentence}");
        }
        Ok(())
    }
}

fn write(folder: &Path, export: &Export, nearest: &Plan) -> Result {
    for (name, text) in &export.files {
        write_atomically(folder.join(name), text).or_failed()?;
    }
    write_atomically(folder.join("command.sh"), format!("#!/bin/sh\n{}\n", export.command)).or_failed()?;
    write_atomically(folder.join("nearest.yaml"), nearest.to_yaml()).or_failed()
}

/// What the plan is predicted to take, beside the nearest plan that the engine can run.
fn comparison(engine: ExportTarget, plan: &Plan, nearest: &Plan) -> String {
    let row =
        |name: &str, times: &PhaseTimes| format!("{name:<22} {:>12} {:>12}\n", ttft(times), tpot(times));
    let mut text = format!("{:<22} {:>12} {:>12}\n", "predicted", "TTFT", "TPOT");
    text += &row("this plan", &plan.predicted.simulated);
    text += &row(&format!("nearest of {engine}"), &nearest.predicted.simulated);
    text
}
