//! `fulcrum explain PLAN`

use crate::exit::{Outcome, Sort};
use crate::pipeline::Planned;
use crate::terminal::{out, outln};
use serde_json::json;
use std::path::PathBuf;

/// Explain a plan: what binds, what is slack, what the simple rules would do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The plan.
    plan: PathBuf,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let planned = Planned::read(&arguments.plan)?;
    let text = planner::explain(&planned.plan, &planned.machine, &planned.model).or_failed()?;
    match json {
        true => {
            outln!("{}", json!({"plan": planned.plan, "explanation": text.lines().collect::<Vec<_>>()}))
        }
        false => out!("{text}"),
    }
    Ok(())
}
