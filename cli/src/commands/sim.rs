//! `fulcrum sim SCENARIO | PLAN`

use crate::exit::{Failure, Outcome, Sort};
use crate::pipeline::{Planned, Question};
use crate::serve::{self, Tables};
use crate::terminal::{out, outln};
use crate::train;
use crate::window::Window;
use anyhow::anyhow;
use hwprofiles::{Seconds, write_atomically};
use planner::Trace;
use scenarios::{Serving, Setting, Training};
use serde_json::json;
use sim::Draws;
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
    /// What of a serving workload that trace shows, like 60s..70s.
    #[arg(long, value_name = "FROM..UNTIL", requires = "perfetto")]
    window: Option<Window>,
    /// Write a table of the requests of a serving workload, a line for each; Parquet where the name ends so.
    #[arg(long)]
    requests: Option<PathBuf>,
    /// Write what happened when in a serving workload, a line for each stretch of time; Parquet likewise.
    #[arg(long)]
    series: Option<PathBuf>,
    /// How long a stretch is.
    #[arg(long, value_name = "TIME", default_value = "1 s", requires = "series")]
    every: Seconds,
    /// Draw at random what is taken in the mean otherwise: to which experts tokens go, how many of a draft's tokens are
    /// accepted.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    draw: Vec<Drawn>,
    /// Another seed draws otherwise.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "draw")]
    seed: u64,
    /// Set a key of the scenario by its dotted path.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
}

/// What can be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Drawn {
    Experts,
    Acceptance,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let planned = match Planned::is_plan(&arguments.file)? {
        true if !arguments.settings.is_empty() => {
            let message = format!("--set changes a scenario, and {} is a plan", arguments.file.display());
            return Err(Failure::Input(anyhow!(message)));
        }
        true => Planned::read(&arguments.file)?,
        false => {
            let question = Question::read(&arguments.file, &arguments.settings)?;
            match (question.serving.clone(), question.training) {
                (Some(serving), _) => return serve_requests(&question, &serving, &arguments, json),
                (None, Some(training)) => return train_a_step(&question, &training, &arguments, json),
                (None, None) => question.plan()?,
            }
        }
    };
    if arguments.requests.is_some() || arguments.series.is_some() || arguments.window.is_some() {
        let message = "--requests, --series and --window are for a workload of requests that come and go, and this is a static batch";
        return Err(Failure::Input(anyhow!(message)));
    }
    let drawn = |what| arguments.draw.contains(&what);
    let draws =
        Draws { experts: drawn(Drawn::Experts), acceptance: drawn(Drawn::Acceptance), seed: arguments.seed };
    let trace = planned.simulate(draws)?;
    write_pictures(&arguments, &trace)?;
    let rates = planned.rates(&trace);
    match json {
        true => outln!("{}", json!(rates)),
        false => out!("{}{rates}", planned.heading()),
    }
    Ok(())
}

fn train_a_step(question: &Question, training: &Training, arguments: &Arguments, json: bool) -> Outcome {
    if arguments.requests.is_some() || arguments.series.is_some() || !arguments.draw.is_empty() {
        let message =
            "--requests, --series and --draw are not for a training step, which has --trace and --perfetto";
        return Err(Failure::Input(anyhow!(message)));
    }
    let (trace, rates) = train::run(question, training)?;
    write_pictures(arguments, &trace)?;
    match json {
        true => outln!("{}", json!(rates)),
        false => {
            let (model, machine) = (&question.model.name, &question.machines[0].name);
            let Training { sequences, tokens } = training;
            out!("training {model} on {machine}: {sequences} sequences of {tokens} tokens\n{rates}");
        }
    }
    Ok(())
}

fn write_pictures(arguments: &Arguments, trace: &Trace) -> Outcome {
    if let Some(path) = &arguments.trace {
        trace.write(path).or_failed()?;
    }
    if let Some(path) = &arguments.perfetto {
        write_atomically(path, sim::perfetto(&[trace])).or_failed()?;
    }
    Ok(())
}

fn serve_requests(question: &Question, serving: &Serving, arguments: &Arguments, json: bool) -> Outcome {
    if arguments.trace.is_some() {
        let message = "--trace lists the tasks of a static batch; --requests lists requests, --series what happened when, \
                       --perfetto with --window shows steps and requests";
        return Err(Failure::Input(anyhow!(message)));
    }
    if !arguments.draw.is_empty() {
        let message = "--draw is for the steps of a static batch, and these are requests that come and go";
        return Err(Failure::Input(anyhow!(message)));
    }
    if arguments.every <= Seconds::ZERO {
        return Err(Failure::Input(anyhow!("--every is {}: a time above 0 is wanted", arguments.every)));
    }
    let picture = match (&arguments.perfetto, arguments.window) {
        (None, _) => None,
        (Some(path), Some(window)) => Some((path.as_path(), window)),
        (Some(_), None) => {
            let message =
                "--perfetto shows a stretch of a serving workload: say which, like --window 60s..70s";
            return Err(Failure::Input(anyhow!(message)));
        }
    };
    let series = arguments.series.as_deref().map(|path| (path, arguments.every));
    let tables = Tables { requests: arguments.requests.as_deref(), series, picture };
    let day = serve::run(question, serving, tables)?;
    match json {
        true => outln!("{}", day.json()),
        false => out!("{day}"),
    }
    Ok(())
}
