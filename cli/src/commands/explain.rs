//! `fulcrum explain PLAN`

use crate::text::terminal::{out, out_json};
use crate::written::WRITTEN_FILE;
use fulcrum::{OrError, ResolvedPlan, Result};
use hwprofiles::{Phase, write_atomically};
use std::path::PathBuf;

/// Explain a plan: where things are, what binds, the best simple rule, what would bring more.
#[derive(Debug, clap::Args)]
pub struct ExplainArguments {
    /// The plan.
    plan: PathBuf,
    /// Every sublayer, all rules, where another device would be better, what each part would bring.
    #[arg(long)]
    full: bool,
    /// Write the tasks of a step as a Graphviz graph, too: `dot -Tsvg FILE` draws it.
    #[arg(long, value_name = "FILE", value_hint = WRITTEN_FILE)]
    dot: Option<PathBuf>,
    /// The step that --dot writes.
    #[arg(long, value_enum, default_value_t = GraphStep::Decode, requires = "dot")]
    step: GraphStep,
}

/// One forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum GraphStep {
    Prefill,
    Decode,
}

impl ExplainArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let planned = ResolvedPlan::read(&self.plan)?;
        let explanation = planner::explain(&planned.plan, &planned.machine, &planned.model).or_failed()?;
        if let Some(path) = &self.dot {
            let phase = match self.step {
                GraphStep::Prefill => Phase::Prefill,
                GraphStep::Decode => Phase::Decode,
            };
            write_atomically(path, planned.task_graph(phase)?).or_failed()?;
        }
        let known_error = planned.known_error().unwrap_or_default();
        match (json, self.full) {
            (true, _) => out_json!(&explanation),
            (false, true) => out!("{explanation}{known_error}"),
            (false, false) => out!("{}{known_error}", explanation.brief()),
        }
        Ok(())
    }
}
