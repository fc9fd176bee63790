//! `fulcrum sim SCENARIO | PLAN`

use crate::exit::{Failure, Outcome, Sort};
use crate::pipeline::{Planned, Question};
use crate::terminal::{out, outln};
use anyhow::anyhow;
use hwprofiles::write_atomically;
use scenarios::Setting;
use serde_json::json;
use std::path::PathBuf;

/// Simulate a plan, or a scenario's best plan, with contention and overlap.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A plan, or a scenario.
    file: PathBuf,
    /// Write the trace, task by task.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Write the trace for ui.perfetto.dev and chrome://tracing.
    #[arg(long)]
    perfetto: Option<PathBuf>,
    /// Set a key of the scenario by its dotted path.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let planned = match Planned::is_plan(&arguments.file)? {
        true if !arguments.settings.is_empty() => {
            let message = format!("--set changes a scenario, and {} is a plan", arguments.file.display());
            return Err(Failure::Input(anyhow!(message)));
        }
        true => Planned::read(&arguments.file)?,
        false => Question::read(&arguments.file, &arguments.settings)?.plan()?,
    };
    let trace = planned.simulate()?;
    if let Some(path) = &arguments.trace {
        trace.write(path).or_failed()?;
    }
    if let Some(path) = &arguments.perfetto {
        write_atomically(path, sim::perfetto(&[&trace])).or_failed()?;
    }
    let rates = planned.rates(&trace);
    match json {
        true => outln!("{}", json!(rates)),
        false => out!("{}{rates}", planned.heading()),
    }
    Ok(())
}
