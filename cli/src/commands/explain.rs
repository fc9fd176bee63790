//! `fulcrum explain PLAN`

use crate::text::terminal::{out, out_json};
use fulcrum::{OrError, ResolvedPlan, Result};
use std::path::PathBuf;

/// Explain a plan: what binds, what the simple rules would do, where another device would be
/// better, what more of each resource would bring.
#[derive(Debug, clap::Args)]
pub struct ExplainArguments {
    /// The plan.
    plan: PathBuf,
}

impl ExplainArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let planned = ResolvedPlan::read(&self.plan)?;
        planned.require_no_draft("an explanation")?;
        let explanation = planner::explain(&planned.plan, &planned.machine, &planned.model).or_failed()?;
        match json {
            true => out_json!(&explanation),
            false => out!("{explanation}"),
        }
        Ok(())
    }
}
