//! `fulcrum explain PLAN`

use crate::exit::{Outcome, Sort};
use crate::pipeline::Planned;
use crate::terminal::{out, outln};
use std::path::PathBuf;

/// Explain a plan: what binds, what the simple rules would do, where another device would be better, what more of
/// each resource would bring.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The plan.
    plan: PathBuf,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let planned = Planned::read(&arguments.plan)?;
    planned.without_draft("an explanation")?;
    let explanation = planner::explain(&planned.plan, &planned.machine, &planned.model).or_failed()?;
    match json {
        true => outln!("{}", serde_json::to_string_pretty(&explanation).or_failed()?),
        false => out!("{explanation}"),
    }
    Ok(())
}
