//! `fulcrum plan SCENARIO`

use crate::exit::{Outcome, Sort};
use crate::pipeline::Question;
use crate::terminal::{out, outln};
use hwprofiles::write_atomically;
use scenarios::Setting;
use std::path::PathBuf;

/// Plan a scenario: a device for each sublayer, a memory for each matrix and the KV cache.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The scenario's file.
    scenario: PathBuf,
    /// Where to write the plan; without it, to stdout.
    #[arg(short, long)]
    out: Option<PathBuf>,
    /// Set a key of the scenario by its dotted path: `--set workload.batch=8`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let planned = Question::read(&arguments.scenario, &arguments.settings)?.plan()?;
    let document = planned.plan.to_yaml();
    if let Some(out) = &arguments.out {
        write_atomically(out, &document).or_failed()?;
    }
    match (json, &arguments.out) {
        (true, _) => outln!("{}", serde_json::to_string_pretty(&planned.plan).or_failed()?),
        (false, None) => out!("{document}"),
        (false, Some(out)) => {
            out!("{}", planned.summary());
            outln!("written to {}", out.display());
        }
    }
    Ok(())
}
