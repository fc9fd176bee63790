//! `fulcrum plan SCENARIO`; with `--grid` for many batches and prompt lengths at once, with `--front` for what can be
//! traded off.

use crate::exit::{Outcome, Sort};
use crate::pipeline::Question;
use crate::plan_grid::{self, summary};
use crate::terminal::{out, outln};
use hwprofiles::write_atomically;
use planner::Criterion;
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
    /// Plan every batch and prompt length of `--set workload.batch=1,2,4 --set workload.prompt_tokens=512,4096`:
    /// the weights stay where they are for all, or the way is counted. Prints what each cell gets; `-o` writes the
    /// table.
    #[arg(long)]
    grid: bool,
    /// Print what can be traded off, in place of one plan: the placements of which none is better in all of two or
    /// three of ttft, tpot, energy, cost than another. `-o` writes them as CSV.
    #[arg(long, value_name = "CRITERIA", value_delimiter = ',', conflicts_with = "grid")]
    front: Vec<Criterion>,
    /// About how many of them.
    #[arg(long, default_value_t = 20, requires = "front")]
    points: usize,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    if arguments.grid {
        return run_grid(&arguments, json);
    }
    if !arguments.front.is_empty() {
        return run_front(&arguments, json);
    }
    let planned = Question::read(&arguments.scenario, &arguments.settings)?.plan()?;
    let document = planned.plan.to_yaml();
    if let Some(out) = &arguments.out {
        write_atomically(out, &document).or_failed()?;
    }
    if json || arguments.out.is_none() {
        crate::terminal::err!("{}", planned.formats_table());
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

fn run_front(arguments: &Arguments, json: bool) -> Outcome {
    let question = Question::read(&arguments.scenario, &arguments.settings)?.in_one_format("--front")?;
    let front = question.front(&arguments.front, arguments.points)?;
    if let Some(out) = &arguments.out {
        write_atomically(out, front.to_csv()).or_failed()?;
    }
    match json {
        true => outln!("{}", serde_json::to_string_pretty(&front).or_failed()?),
        false => out!("{front}"),
    }
    Ok(())
}

fn run_grid(arguments: &Arguments, json: bool) -> Outcome {
    let table = plan_grid::plan(&arguments.scenario, &arguments.settings)?;
    if let Some(out) = &arguments.out {
        write_atomically(out, table.to_yaml()).or_failed()?;
    }
    if json {
        outln!("{}", serde_json::to_string_pretty(&table).or_failed()?);
        return Ok(());
    }
    out!("{}", summary(&table));
    if let Some(out) = &arguments.out {
        outln!("written to {}", out.display());
    }
    Ok(())
}
