//! A sweep: every scenario of a grid planned and simulated, a row each.
//!
//! Whoever runs the points needs a point's row alone: a point is its number, and its row depends on nothing else. Here threads
//! of one machine run them; a row goes to the journal as soon as it is there, and the table is written in the order
//! of the points when all are.

mod cache;
mod contents;
mod find;
mod journal;
mod rank;
mod row;

pub use find::Find;
pub use rank::Rank;

use crate::exit::{Failure, Outcome, Sort};
use crate::machines::Machines;
use crate::models::Models;
use crate::pipeline::Question;
use crate::plan_text::who_decodes;
use crate::serve::{self, Tables};
use anyhow::anyhow;
use cache::Cache;
use contents::Contents;
use indicatif::{ProgressBar, ProgressStyle};
use journal::Journal;
use rayon::prelude::*;
use row::{Answer, Columns, Status};
use scenarios::{Grid, Requests, Scenario};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use sim::Largest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

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
    /// The row that was wanted besides, where there is one.
    pub best: Option<Map<String, Value>>,
}

impl Counts {
    /// As JSON.
    pub fn json(&self) -> Value {
        let each = Status::ALL.iter().zip(&self.by_status);
        let mut all: serde_json::Map<String, Value> = each
            .map(|(status, count)| (status.name().to_owned(), json!(count.load(Ordering::Relaxed))))
            .collect();
        all.insert("finished_before".to_owned(), json!(self.before));
        if let Some(best) = &self.best {
            all.insert("best".to_owned(), json!(best));
        }
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
    models: Models,
    /// The fingerprints of traces, each looked up once.
    traces: Mutex<BTreeMap<PathBuf, String>>,
    cache: Option<Cache>,
    /// What is looked for in each point, and the share of requests that must keep the limits.
    search: Option<(Find, f64)>,
}

/// How a sweep is run.
#[derive(Debug, Clone)]
pub struct Run<'p> {
    /// Which points.
    pub shard: Shard,
    /// Whether it goes on where an earlier one was stopped.
    pub resume: bool,
    /// Where the table goes.
    pub out: &'p Path,
    /// Which row is wanted besides.
    pub rank: Option<Rank>,
}

impl Sweep {
    /// The sweep of `grid`, which takes from the cache in a folder what is there already. With a search, a point is that of the largest
    /// value with which it keeps its limits; of requests that come and go, with which that share of them does.
    ///
    /// # Errors
    /// The first scenario is wrong in a key: then all are. A cache that cannot be used.
    pub fn new(grid: Grid, cache: Option<&Path>, search: Option<(Find, f64)>) -> Outcome<Self> {
        use scenarios::ScenarioError as Error;
        // With another value a point may be right, with another key none is.
        if let Err(error @ (Error::UnknownKey { .. } | Error::Setting { .. })) = first(&grid, search.as_ref())
        {
            return Err(error).or_input();
        }
        let mut keys: Vec<_> = grid.keys().map(str::to_owned).zip(grid.numeric_keys()).collect();
        if let Some((find, _)) = &search {
            if keys.iter().any(|(key, _)| *key == find.key) {
                return Err(Failure::Input(anyhow!("--find {}: it is set already", find.key)));
            }
            keys.push((find.key.clone(), find.value(1.0).is_number()));
            keys.push((BEYOND.to_owned(), find.value(1.0).is_number()));
        }
        let columns = Columns::of(keys);
        let cache = cache.map(Cache::open).transpose()?;
        let (machines, models) = (Machines::default(), Models::default());
        Ok(Self { grid, columns, machines, models, traces: Mutex::default(), cache, search })
    }

    /// What it is: another scenario, other lists, another version, or other contents of a file that they name make it another.
    fn fingerprint(&self, shard: Shard) -> String {
        let mut contents = Contents::default();
        for (value, folder) in self.grid.values() {
            contents.add(value, &[folder, Path::new("")]);
        }
        fingerprint(&format!(
            "{} {shard:?} {:?} {:?} {contents:?}",
            env!("CARGO_PKG_VERSION"),
            self.grid,
            self.search
        ))
    }

    /// Runs the points on all threads and writes their table; those that an earlier run has finished are not run again.
    ///
    /// # Errors
    /// A path that cannot be written; a journal of another sweep, or one that is there without leave to go on.
    pub fn run(&self, Run { shard, resume, out, rank }: Run<'_>) -> Outcome<Counts> {
        let mut best = rank.map(|rank| rank.of(&self.columns)).transpose()?;
        let all = self.grid.count().saturating_sub(shard.index).div_ceil(shard.of);
        let (journal, done) = Journal::open(out, &self.fingerprint(shard), all, resume)?;
        let mut counts =
            Counts { before: done.iter().filter(|done| **done).count() as u64, ..Counts::default() };
        let progress = progress(all, counts.before);
        let journal = Mutex::new(journal);
        let run = |position: u64| -> anyhow::Result<()> {
            if done[position as usize] {
                return Ok(());
            }
            let index = shard.index + position * shard.of;
            let (status, row) = self.point(index)?;
            counts.by_status[status as usize].fetch_add(1, Ordering::Relaxed);
            progress.inc(1);
            journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).add(position, &row)
        };
        (0..all).into_par_iter().try_for_each(run).or_failed()?;
        progress.finish_and_clear();
        let journal = journal.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut see = |row: &str| best.iter_mut().for_each(|best| best.see(row));
        journal.publish(&self.columns, out, &mut see).or_failed()?;
        counts.best = best.and_then(rank::Best::row);
        Ok(counts)
    }

    /// The row of point `index`.
    fn point(&self, index: u64) -> anyhow::Result<(Status, String)> {
        let (reached, more) = match &self.search {
            None => (self.at(index, None)?, vec![]),
            Some((find, share)) => {
                let (reached, ends) = self.largest(index, find, *share)?;
                (reached, ends.map(|end| end.map(|at| find.value(at))).to_vec())
            }
        };
        let settings = self.grid.settings(index).map(|(_, value)| value);
        let settings = settings.chain(more.iter().map(Option::as_ref));
        let short = &reached.inputs[..reached.inputs.len().min(SHORT)];
        Ok((reached.answer.status, self.columns.row(index, settings, &reached.answer, short)))
    }

    /// What becomes of point `index`, with one key more.
    fn at(&self, index: u64, more: Option<(&str, &Value)>) -> anyhow::Result<Reached> {
        let question = self.grid.point_with(index, more).or_input().and_then(|point| {
            let question = Question::known(&point.scenario, &self.machines, &self.models)?;
            Ok((self.inputs(&point.scenario, &question)?, question))
        });
        Ok(match question {
            Err(failure) => Reached { answer: Answer::failed(&failure), inputs: String::new() },
            Ok((inputs, question)) => Reached { answer: self.answer(&inputs, &question)?, inputs },
        })
    }

    /// What becomes of point `index` with the largest value that keeps its limits, that value and the smallest beyond that was
    /// tried. Where none keeps them, the least's answer; where something is wrong, what.
    fn largest(&self, index: u64, find: &Find, share: f64) -> anyhow::Result<(Reached, [Option<f64>; 2])> {
        let mut best: Option<(f64, Reached)> = None;
        let mut other: Option<Reached> = None;
        let [least, most] = find.range;
        let found =
            sim::largest([least, most], least, find.fineness, |at| -> Result<bool, Option<anyhow::Error>> {
                let reached = self.at(index, Some((&find.key, &find.value(at)))).map_err(Some)?;
                let keeps = reached.answer.keeps(share);
                match (keeps, reached.answer.status) {
                    (true, _) if best.as_ref().is_none_or(|(known, _)| at > *known) => {
                        best = Some((at, reached))
                    }
                    (true, _) => {}
                    (false, Status::Invalid | Status::Failed) if best.is_none() => {
                        other = Some(reached);
                        return Err(None);
                    }
                    (false, _) => other = Some(reached),
                }
                Ok(keeps)
            });
        let ends = match found {
            Ok(Largest::Between(keeps, breaks)) => [Some(keeps), Some(breaks)],
            Ok(Largest::Most(keeps)) => [Some(keeps), None],
            Ok(Largest::None(breaks)) => [None, Some(breaks)],
            Err(None) => [None, None],
            Err(Some(error)) => return Err(error),
        };
        let reached = best.map(|(_, reached)| reached).or(other).expect("something was tried");
        Ok((reached, ends))
    }

    /// What is known to come of `inputs`, or what comes of `question`.
    fn answer(&self, inputs: &str, question: &Question) -> anyhow::Result<Answer> {
        if let Some(answer) = self.cache.as_ref().and_then(|cache| cache.get(inputs)) {
            return Ok(answer);
        }
        let answer = match measures(question) {
            Err(failure) => Answer::failed(&failure),
            Ok((plan, measures)) => Answer::of(&plan, &measures),
        };
        if let Some(cache) = &self.cache {
            cache.put(inputs, &answer)?;
        }
        Ok(answer)
    }

    /// A fingerprint of all that a point's numbers depend on: machine, model and trace by their content, and what is asked.
    fn inputs(&self, scenario: &Scenario, question: &Question) -> Outcome<String> {
        let machine = self.machines.get(&scenario.machine, &scenario.tensor_parallel)?;
        let Question {
            model,
            formats,
            speculative,
            workload,
            serving,
            training,
            engine,
            objective,
            slo,
            costs,
            ..
        } = question;
        let (machine, model) = (&machine.fingerprint, model.fingerprint());
        let trace = match serving.as_ref().map(|serving| &serving.requests) {
            Some(Requests::Trace { path, .. }) => self.trace(path),
            _ => String::new(),
        };
        let asked = (formats, speculative, workload, serving, training, engine, objective, slo, costs);
        let degrees = &scenario.tensor_parallel;
        Ok(digest(&format!("{} {machine} {degrees:?} {model} {trace} {asked:?}", env!("CARGO_PKG_VERSION"))))
    }

    fn trace(&self, path: &Path) -> String {
        let mut known = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.entry(path.to_owned());
        found.or_insert_with(|| contents::digest(path).unwrap_or_default()).clone()
    }
}

/// What became of a point, and from which inputs.
struct Reached {
    answer: Answer,
    inputs: String,
}

/// The column of the smallest value that was tried and is beyond the limits.
const BEYOND: &str = "beyond";

/// The first scenario.
fn first(grid: &Grid, search: Option<&(Find, f64)>) -> Result<scenarios::Point, scenarios::ScenarioError> {
    let more = search.map(|(find, _)| (find, find.value(find.range[0])));
    grid.point_with(0, more.as_ref().map(|(find, value)| (&*find.key, value)))
}

/// So many digits of a fingerprint are shown.
const SHORT: usize = 16;

/// The first 32 hexadecimal digits of the text's SHA-256.
fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn fingerprint(text: &str) -> String {
    digest(text)[..SHORT].to_owned()
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
    let plan = question.plan_document()?;
    let (predicted, load) = (&plan.predicted, &plan.workload);
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
    Ok((format!("{}, {}; {}", predicted.chosen, plan.formats, who_decodes(&plan)), measures))
}

fn progress(all: u64, before: u64) -> ProgressBar {
    let bar = ProgressBar::new(all).with_position(before);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} points, {per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.reset_eta();
    bar
}
