//! `fulcrum export PLAN --to ENGINE`

use crate::exit::{Failure, Outcome, Sort};
use crate::pipeline::Planned;
use crate::terminal::{out, outln};
use hwprofiles::write_atomically;
use planner::{Engine, Export, ExportError, Plan, Times};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Write a plan as the options of an engine that people run, with the command to start it.
///
/// What of the plan the engine cannot express is listed, and what the nearest that it can run is predicted to take.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The plan.
    plan: PathBuf,
    /// llama.cpp, ktransformers, accelerate, vllm, deepspeed or flexgen.
    #[arg(long, value_name = "ENGINE")]
    to: Engine,
    /// A folder for the files that the command reads, the command (command.sh) and the nearest plan (nearest.yaml);
    /// without it, files are printed.
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let planned = Planned::read(&arguments.plan)?;
    planned.without_draft("an export")?;
    let exported = planner::export(&planned.plan, &planned.machine, &planned.model, arguments.to);
    let export = exported.map_err(|error| match error {
        ExportError::Unfit { .. } => Failure::Infeasible(error.into()),
        ExportError::Unsupported { .. } | ExportError::Plan(_) => Failure::Input(error.into()),
    })?;
    let nearest = planned.evaluate(arguments.to.name(), &export.nearest)?;
    if let Some(folder) = &arguments.out {
        write(folder, &export, &nearest)?;
    }
    if json {
        let files: BTreeMap<_, _> = export.files.iter().map(|(name, text)| (name, text)).collect();
        let document = json!({
            "engine": arguments.to.name(),
            "command": export.command,
            "files": files,
            "cannot": export.cannot,
            "predicted": {"plan": planned.plan.predicted.simulated, "nearest": nearest.predicted.simulated},
            "nearest": nearest,
        });
        outln!("{}", serde_json::to_string_pretty(&document).or_failed()?);
        return Ok(());
    }
    outln!("{}", export.command);
    match &arguments.out {
        Some(folder) => outln!("\nwritten to {}", folder.display()),
        None => export.files.iter().for_each(|(name, text)| out!("\n--- {name}\n{text}")),
    }
    out!("\n{}", comparison(arguments.to, &planned.plan, &nearest));
    for sentence in &export.cannot {
        outln!("cannot express {sentence}");
    }
    Ok(())
}

fn write(folder: &Path, export: &Export, nearest: &Plan) -> Outcome {
    for (name, text) in &export.files {
        write_atomically(folder.join(name), text).or_failed()?;
    }
    write_atomically(folder.join("command.sh"), format!("#!/bin/sh\n{}\n", export.command)).or_failed()?;
    write_atomically(folder.join("nearest.yaml"), nearest.to_yaml()).or_failed()
}

/// What the plan is predicted to take, beside the nearest that the engine can run.
fn comparison(engine: Engine, plan: &Plan, nearest: &Plan) -> String {
    let row = |name: &str, times: &Times| {
        let tpot = times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
        format!("{name:<22} {:>12} {tpot:>12}\n", times.ttft.to_string())
    };
    let mut text = format!("{:<22} {:>12} {:>12}\n", "predicted", "TTFT", "TPOT");
    text += &row("this plan", &plan.predicted.simulated);
    text += &row(&format!("nearest of {engine}"), &nearest.predicted.simulated);
    text
}
