//! A sweep: every scenario of a grid planned and simulated, a row each.
//!
//! Whoever runs the points needs a point's row alone: a point is its number, and its row depends on nothing else. Here threads
//! of one machine run them; a row goes to the journal as soon as it is there, and the table is written in the order
//! of the points when all are.

mod journal;
mod row;

pub use row::Columns;

use crate::exit::{Failure, Outcome, Sort};
use crate::machines::Machines;
use crate::pipeline::Question;
use crate::serve::{self, Tables};
use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use journal::Journal;
use rayon::prelude::*;
use row::Status;
use scenarios::{Grid, Scenario};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which of the points are run here: every `of`-th, from `index` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub index: u64,
    /// At least 1.
    pub of: u64,
}

impl std::str::FromStr for Shard {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => Err(anyhow!("'{text}' is no shard: i/n is wanted, i from 0 to n − 1, like 0/4")),
        }
    }
}

/// How many points came to what.
#[derive(Debug, Default)]
pub struct Counts {
    by_status: [AtomicU64; Status::ALL.len()],
    /// Points that an earlier run had finished.
    pub before: u64,
}

impl Counts {
    /// As JSON.
    pub fn json(&self) -> Value {
        let each = Status::ALL.iter().zip(&self.by_status);
        let mut all: serde_json::Map<String, Value> = each
            .map(|(status, count)| (status.name().to_owned(), json!(count.load(Ordering::Relaxed))))
            .collect();
        all.insert("finished_before".to_owned(), json!(self.before));
        Value::Object(all)
    }

    /// As words: `12 ok, 3 infeasible`.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        for (status, count) in Status::ALL.iter().zip(&self.by_status) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                words.push(format!("{count} {}", status.name()));
            }
        }
        if self.before > 0 {
            words.push(format!("{} finished before", self.before));
        }
        if words.is_empty() { "nothing to do".to_owned() } else { words.join(", ") }
    }
}

/// Where rows come from and go to.
pub struct Sweep {
    grid: Grid,
    columns: Columns,
    machines: Machines,
}

impl Sweep {
    /// The sweep of `grid`.
    ///
    /// # Errors
    /// The first scenario is wrong in a key: then all are.
    pub fn new(grid: Grid) -> Outcome<Self> {
        use scenarios::ScenarioError as Error;
        // With another value a point may be right, with another key none is.
        if let Err(error @ (Error::UnknownKey { .. } | Error::Setting { .. })) = grid.point(0) {
            return Err(error).or_input();
        }
        let columns = Columns::of(grid.keys());
        Ok(Self { grid, columns, machines: Machines::default() })
    }

    /// What it is: another scenario, other lists or another version make it another.
    fn fingerprint(&self, shard: Shard) -> String {
        fingerprint(&format!("{} {shard:?} {:?}", env!("CARGO_PKG_VERSION"), self.grid))
    }

    /// Runs the points of `shard` on all threads and writes their table to `out`; with `resume`, those that an earlier run has
    /// not finished.
    ///
    /// # Errors
    /// A path that cannot be written; a journal of another sweep, or one that is there without `resume`.
    pub fn run(&self, shard: Shard, resume: bool, out: &Path) -> Outcome<Counts> {
        let all = self.grid.count().saturating_sub(shard.index).div_ceil(shard.of);
        let (journal, done) = Journal::open(out, &self.fingerprint(shard), all, resume)?;
        let counts = Counts { before: done.iter().filter(|done| **done).count() as u64, ..Counts::default() };
        let progress = progress(all, counts.before);
        let journal = Mutex::new(journal);
        let run = |position: u64| -> anyhow::Result<()> {
            if done[position as usize] {
                return Ok(());
            }
            let index = shard.index + position * shard.of;
            let (status, row) = self.point(index);
            counts.by_status[status as usize].fetch_add(1, Ordering::Relaxed);
            progress.inc(1);
            journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).add(position, &row)
        };
        (0..all).into_par_iter().try_for_each(run).or_failed()?;
        progress.finish_and_clear();
        let journal = journal.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        journal.publish(&self.columns.header(), out).or_failed()?;
        Ok(counts)
    }

    /// The row of point `index`.
    fn point(&self, index: u64) -> (Status, String) {
        let settings = self.grid.settings(index).map(|(_, value)| value);
        let question = self.grid.point(index).or_input().and_then(|point| {
            let question = Question::with(&point.scenario, &self.machines)?;
            Ok((self.inputs(&point.scenario, &question)?, question))
        });
        match question {
            Err(failure) => self.columns.failed(index, settings, &failure, ""),
            Ok((inputs, question)) => match measures(&question) {
                Err(failure) => self.columns.failed(index, settings, &failure, &inputs),
                Ok((plan, measures)) => self.columns.row(index, settings, &plan, &measures, &inputs),
            },
        }
    }

    /// A fingerprint of all that a point's numbers depend on: machine and model by their content, and what is asked.
    fn inputs(&self, scenario: &Scenario, question: &Question) -> Outcome<String> {
        let machine = self.machines.get(&scenario.machine, &scenario.tensor_parallel)?;
        let Question {
            model, formats, speculative, workload, serving, engine, objective, slo, costs, ..
        } = question;
        let (machine, model) = (&machine.fingerprint, model.fingerprint());
        let asked = (formats, speculative, workload, serving, engine, objective, slo, costs);
        Ok(fingerprint(&format!("{} {machine} {model} {asked:?}", env!("CARGO_PKG_VERSION"))))
    }
}

/// The first 16 hexadecimal digits of the text's SHA-256.
fn fingerprint(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// What was chosen, and what it gives, in the words of a served day.
fn measures(question: &Question) -> Outcome<(String, Value)> {
    if question.training.is_some() {
        let message = "a training step is not planned: `fulcrum sim` simulates it";
        return Err(Failure::Input(anyhow!(message)));
    }
    if let Some(serving) = &question.serving {
        let day = serve::run(question, serving, Tables::default())?;
        return Ok((day.plan.clone(), day.json()));
    }
    let planned = question.plan()?;
    let (predicted, load) = (&planned.plan.predicted, &planned.plan.workload);
    let times = predicted.simulated;
    let (first, each) = (times.ttft.get(), times.tpot.map(|tpot| tpot.get()));
    let all = first + each.unwrap_or(0.0) * load.output_tokens.saturating_sub(1) as f64;
    let tokens = (load.batch * load.output_tokens) as f64;
    let same = |value: f64| json!({ "mean": value, "p50": value, "max": value });
    let measures = json!({
        "requests": { "completed": load.batch, "rejected": 0 },
        "duration_s": all,
        "ttft_s": same(first),
        "tpot_s": each.map(same),
        "e2el_s": same(all),
        "requests_per_s": load.batch as f64 / all,
        "output_tokens_per_s": tokens / all,
        "energy_j": predicted.energy_per_token.map(|energy| energy.get() * tokens),
        "cost": predicted.cost_per_token.map(|cost| cost.get() * tokens),
    });
    Ok((format!("{}, {}", predicted.chosen, planned.plan.formats), measures))
}

fn progress(all: u64, before: u64) -> ProgressBar {
    let bar = ProgressBar::new(all).with_position(before);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} points, {per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.reset_eta();
    bar
}
