//! `fulcrum sim SCENARIO | PLAN`

use crate::text::plan;
use crate::text::terminal::{out, outln};
use crate::written::WRITTEN_FILE;
use fulcrum::{
    DayTables, Document, Error, OrError, PreparedScenario, ResolvedPlan, Result, Setting, TimeWindow,
};
use hwprofiles::{Seconds, read_text, write_atomically};
use planner::Trace;
use scenarios::Training;
use serde_json::json;
use sim::RandomDraws;
use std::path::PathBuf;

/// Simulate a plan, or a scenario's best plan, with contention and overlap.
#[derive(Debug, clap::Args)]
pub struct SimArguments {
    /// A plan, or a scenario.
    file: PathBuf,
    /// Write the trace, task by task.
    #[arg(long, value_hint = WRITTEN_FILE)]
    trace: Option<PathBuf>,
    /// Write the trace for ui.perfetto.dev and chrome://tracing.
    #[arg(long, value_hint = WRITTEN_FILE)]
    perfetto: Option<PathBuf>,
    /// The stretch of a serving workload that this trace shows, like 60s..70s.
    #[arg(long, value_name = "FROM..UNTIL", requires = "perfetto")]
    window: Option<TimeWindow>,
    /// Write a table of the requests of a serving workload, a line for each; Parquet where the name
    /// ends so.
    #[arg(long, value_hint = WRITTEN_FILE)]
    requests: Option<PathBuf>,
    /// Write what happened when in a serving workload, a line for each stretch of time; Parquet
    /// likewise, OpenMetrics for Prometheus where the name ends in .prom.
    #[arg(long, value_hint = WRITTEN_FILE)]
    series: Option<PathBuf>,
    /// How long a stretch is.
    #[arg(long, value_name = "TIME", default_value = "1 s", requires = "series")]
    every: Seconds,
    /// Draw at random what is taken in the mean otherwise: to which experts tokens go, how many of
    /// a draft's tokens are accepted.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    draw: Vec<DrawnQuantity>,
    /// Another seed draws otherwise.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "draw")]
    seed: u64,
    /// Set a key of the scenario by its dotted path.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
}

/// A quantity that can be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DrawnQuantity {
    Experts,
    Acceptance,
}

impl SimArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let file = self.file.display().to_string();
        let text = read_text(&self.file).map_err(|error| Error::input(format!("{file}: {error}")))?;
        let planned = match ResolvedPlan::is_plan(&text, &file)? {
            true if !self.settings.is_empty() => {
                return Err(Error::input(format!("--set changes a scenario, and {file} is a plan")));
            }
            true => ResolvedPlan::from_yaml(&text, &file)?,
            false => {
                let document = Document::from_yaml(&file, &text).or_input()?;
                let scenario = PreparedScenario::new(&document.scenario_with(&self.settings).or_input()?)?;
                match (scenario.serving(), scenario.training()) {
                    (Some(_), _) => return self.serve_requests(&scenario, json),
                    (None, Some(training)) => return self.train(&scenario, training, json),
                    (None, None) => scenario.plan()?,
                }
            }
        };
        if self.requests.is_some() || self.series.is_some() || self.window.is_some() {
            return Err(Error::input(
                "--requests, --series and --window are for a workload of requests that come and go, and this is a static batch",
            ));
        }
        let drawn = |quantity| self.draw.contains(&quantity);
        let draws = RandomDraws {
            experts: drawn(DrawnQuantity::Experts),
            acceptance: drawn(DrawnQuantity::Acceptance),
            seed: self.seed,
        };
        let trace = planned.simulate(draws)?;
        self.write_traces(&trace)?;
        let rates = planned.rates(&trace);
        match json {
            true => outln!("{}", json!(rates)),
            false => out!("{}{rates}", plan::heading(&planned)),
        }
        Ok(())
    }

    /// Simulates a training step.
    fn train(&self, scenario: &PreparedScenario, training: &Training, json: bool) -> Result {
        if self.requests.is_some() || self.series.is_some() || self.window.is_some() || !self.draw.is_empty()
        {
            return Err(Error::input(
                "--requests, --series, --window and --draw are not for a training step, which has --trace and \
                 --perfetto",
            ));
        }
        let (trace, rates) = fulcrum::train(scenario)?;
        self.write_traces(&trace)?;
        match json {
            true => outln!("{}", json!(rates)),
            false => {
                let (model, machine) = (&scenario.model().name, &scenario.machines()[0].name);
                let Training { sequences, tokens } = training;
                out!("training {model} on {machine}: {sequences} sequences of {tokens} tokens\n{rates}");
            }
        }
        Ok(())
    }

    fn write_traces(&self, trace: &Trace) -> Result {
        if let Some(path) = &self.trace {
            trace.write(path).or_failed()?;
        }
        if let Some(path) = &self.perfetto {
            write_atomically(path, sim::perfetto(&[trace])).or_failed()?;
        }
        Ok(())
    }

    /// Simulates requests that come and go.
    fn serve_requests(&self, scenario: &PreparedScenario, json: bool) -> Result {
        let day = fulcrum::serve_day(scenario, self.day_tables()?)?;
        match json {
            true => outln!("{}", day.to_json()),
            false => out!("{day}"),
        }
        let requests = &day.summary.requests;
        if requests.completed == 0 {
            let reasons: Vec<_> = requests.rejected_for.keys().map(String::as_str).collect();
            return Err(Error::infeasible(format!("no request was answered: {}", reasons.join(", "))));
        }
        Ok(())
    }

    /// The tables of a day; refuses what a day does not have.
    fn day_tables(&self) -> Result<DayTables<'_>> {
        if self.trace.is_some() {
            return Err(Error::input(
                "--trace lists the tasks of a static batch; --requests lists requests, --series what happened when, \
                 --perfetto with --window shows steps and requests",
            ));
        }
        if !self.draw.is_empty() {
            return Err(Error::input(
                "--draw is for the steps of a static batch, and these are requests that come and go",
            ));
        }
        if self.every <= Seconds::ZERO {
            return Err(Error::input(format!("--every is {}: a time above 0 is wanted", self.every)));
        }
        let picture = match (&self.perfetto, self.window) {
            (None, _) => None,
            (Some(path), Some(window)) => Some((path.as_path(), window)),
            (Some(_), None) => {
                return Err(Error::input(
                    "--perfetto shows a stretch of a serving workload: say which, like --window 60s..70s",
                ));
            }
        };
        let series = self.series.as_deref().map(|path| (path, self.every));
        Ok(DayTables { requests: self.requests.as_deref(), series, picture, keeps_requests: false })
    }
}
