//! A sweep: every scenario of a grid planned and simulated, a row each.
//!
//! Whoever runs the points needs a point's row alone: a point is its number, and its row depends on nothing else. Here threads
//! of one machine run them; a row goes to the journal as soon as it is there, and the table is written in the order
//! of the points when all are.

mod cache;
mod contents;
mod counts;
mod find;
mod going;
mod halving;
mod identity;
mod journal;
mod more;
mod points;
mod rank;
mod row;
mod stamp;

pub use counts::Counts;
pub use find::Find;
pub use halving::Halving;
pub use more::More;
pub use points::{Budget, Shard};
pub use rank::Rank;
pub use stamp::ShardStamp;

use crate::exit::{Failure, Outcome, Sort};
use crate::machines::Machines;
use crate::models::Models;
use crate::pipeline::Question;
use crate::plan_text::who_decodes;
use crate::serve::{self, Tables};
use anyhow::anyhow;
use cache::Cache;
use contents::Contents;
use going::Going;
use journal::Journal;
use points::Points;
use row::{Answer, Columns, Status};
use scenarios::{Axis, Document, Grid, Model, Requests, Scenario};
use serde_json::{Value, json};
use sim::Largest;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where rows come from and go to.
pub struct Sweep {
    grid: Grid,
    /// What the grid was made of, for its identity.
    axes: Vec<Axis>,
    columns: Columns,
    machines: Machines,
    models: Models,
    /// The fingerprints of traces, each looked up once.
    traces: Mutex<BTreeMap<PathBuf, String>>,
    cache: Option<Cache>,
    more: More,
    #[cfg(test)]
    panics_at: Option<u64>,
}

/// How a sweep is run.
#[derive(Debug, Clone)]
pub struct Run<'p> {
    /// Which points.
    pub shard: Shard,
    /// How many of them, where not all are.
    pub budget: Option<Budget>,
    /// Whether it goes on where an earlier one was stopped.
    pub resume: bool,
    /// Where the table goes.
    pub out: &'p Path,
    /// Which row is wanted besides.
    pub rank: Option<Rank>,
}

impl Sweep {
    /// The sweep of the scenarios that `axes` span over `document`, at most `limit`, which takes from the cache in a folder what is there already, and has one key more as `more` says.
    ///
    /// # Errors
    /// The first scenario is wrong in a key: then all are. A cache that cannot be used.
    pub fn new(
        document: Document,
        axes: Vec<Axis>,
        limit: u64,
        cache: Option<&Path>,
        more: More,
    ) -> Outcome<Self> {
        use scenarios::ScenarioError as Error;
        let grid = Grid::new(document, axes.clone(), limit).or_input()?;
        // With another value a point may be right, with another key none is.
        if let Err(error @ (Error::UnknownKey { .. } | Error::Setting { .. })) = more.point(&grid) {
            return Err(error).or_input();
        }
        let mut keys: Vec<_> = grid.keys().map(str::to_owned).zip(grid.numeric_keys()).collect();
        let own = more.columns();
        if let Some((key, _)) = own.first().filter(|(key, _)| keys.iter().any(|(known, _)| known == key)) {
            return Err(Failure::Input(anyhow!("{key} is set already: leave it out of the lists")));
        }
        keys.extend(own);
        let columns = Columns::of(keys);
        let cache = cache.map(Cache::open).transpose()?;
        let (machines, models) = (Machines::default(), Models::default());
        Ok(Self {
            grid,
            axes,
            columns,
            machines,
            models,
            traces: Mutex::default(),
            cache,
            more,
            #[cfg(test)]
            panics_at: None,
        })
    }

    /// The identity of a shard, or of the whole sweep: another scenario, other lists, another version, or other contents of a
    /// file that they name make it another.
    fn fingerprint(&self, run: &Run<'_>, shard: Option<Shard>) -> String {
        let mut contents = Contents::default();
        for (value, folder) in self.grid.values() {
            contents.add(value, &[folder, Path::new("")]);
        }
        let (root, folder) = self.grid.values().next().expect("a grid has a document");
        let axis = |axis: &Axis| json!({ "keys": axis.keys, "rows": axis.rows, "own": axis.of_document });
        // What points are ranked by says which are run where the better ones go on.
        let rank = run.rank.as_ref().filter(|_| self.more.rungs() > 1);
        identity::short_digest(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "document": root,
            "folder": folder,
            "axes": self.axes.iter().map(axis).collect::<Vec<_>>(),
            "key": self.more.identity(),
            "shard": shard.map(|shard| [shard.index, shard.of]),
            "budget": run.budget.map(|budget| [budget.points, budget.seed]),
            "rank": rank.map(|rank| json!({ "column": rank.column, "most": rank.most })),
            "files": contents.identity(),
        }))
    }

    /// Runs the points on all threads and writes their table; those that an earlier run has finished are not run again.
    ///
    /// # Errors
    /// A path that cannot be written; a journal of another sweep, or one that is there without leave to go on.
    pub fn run(&self, run: Run<'_>) -> Outcome<Counts> {
        let mut best = run.rank.as_ref().map(|rank| rank.of(&self.columns)).transpose()?;
        let points = Points::of(self.grid.count(), run.shard, run.budget);
        let rungs = self.more.rungs() as u64;
        let (journal, done) = Journal::open(
            run.out,
            &self.fingerprint(&run, Some(run.shard)),
            points.count() * rungs,
            run.resume,
        )?;
        let all = match &self.more {
            More::Halving(halving) => halving.runs(points.count()),
            _ => points.count(),
        };
        let going = Going::new(self, points, (journal, done), all);
        let ladder = match (&self.more, &mut best) {
            (More::Halving(halving), Some(best)) => Some(going.climb(halving, best).or_failed()?),
            _ => {
                going.all().or_failed()?;
                None
            }
        };
        let Shard { index: shard, of } = run.shard;
        let stamp = (of > 1).then(|| {
            let (sweep, rows) = (self.fingerprint(&run, None), going.rows());
            ShardStamp { sweep, shard, of, rows }
        });
        going.end(run.out, stamp, best, ladder).or_failed()
    }

    /// The row of point `index` on a rung. A point that panics has failed like any other: its row says why, and the sweep
    /// goes on.
    fn point(&self, index: u64, rung: usize) -> anyhow::Result<(Status, String)> {
        // What is shared behind this call is counters, caches and files, each consistent after any unwinding.
        let ran = panic::catch_unwind(AssertUnwindSafe(|| self.reached(index, rung)));
        let (reached, more) = ran.unwrap_or_else(|payload| {
            let failure = Failure::Failed(anyhow!("it panicked: {}", panic_message(&*payload)));
            let reached = Reached { answer: Answer::failed(&failure), inputs: String::new() };
            Ok((reached, vec![None; self.more.columns().len()]))
        })?;
        let settings = self.grid.settings(index).map(|(_, value)| value);
        let settings = settings.chain(more.iter().map(Option::as_ref));
        let short = &reached.inputs[..reached.inputs.len().min(identity::SHORT)];
        Ok((reached.answer.status, self.columns.row(index, settings, &reached.answer, short)))
    }

    /// What becomes of point `index` on a rung, and its cells of the key more.
    fn reached(&self, index: u64, rung: usize) -> anyhow::Result<(Reached, Vec<Option<Value>>)> {
        #[cfg(test)]
        assert!(self.panics_at != Some(index), "point {index} is made to panic");
        Ok(match &self.more {
            More::Nothing => (self.at(index, None)?, vec![]),
            More::Search(find, share) => {
                let (reached, ends) = self.largest(index, find, *share)?;
                (reached, ends.map(|end| end.map(|at| find.value(at))).to_vec())
            }
            More::Halving(Halving { steps, .. }) => {
                let value = &steps.values[rung];
                let reached = self.at(index, Some((&steps.key, value)))?;
                (reached, vec![Some(value.clone()), Some(Value::from(rung + 1))])
            }
        })
    }

    /// What becomes of point `index`, with one key more.
    fn at(&self, index: u64, more: Option<(&str, &Value)>) -> anyhow::Result<Reached> {
        let question = self.grid.point_with(index, more).or_input().and_then(|point| {
            let question = Question::known(&point.scenario, &self.machines, &self.models)?;
            Ok((self.inputs(index, more, &point.scenario, &question)?, question))
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
    fn inputs(
        &self,
        index: u64,
        more: Option<(&str, &Value)>,
        scenario: &Scenario,
        question: &Question,
    ) -> Outcome<String> {
        let machine = self.machines.get(&scenario.machine, &scenario.tensor_parallel)?;
        let trace = match question.serving.as_ref().map(|serving| &serving.requests) {
            Some(Requests::Trace { path, .. }) => Some(self.trace(path)),
            _ => None,
        };
        let (root, _) = self.grid.values().next().expect("a grid has a document");
        let settings = self.grid.settings(index).filter_map(|(key, value)| Some((key, value?)));
        let model = |model: &Model| json!({ "name": model.name, "numbers": model.fingerprint(), "dtype": model.dtype });
        Ok(identity::digest(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "document": identity::document(root, settings.chain(more)),
            "machine": machine.fingerprint,
            "model": model(&question.model),
            "draft": question.speculative.as_ref().map(|(draft, _)| model(draft)),
            "formats": question.formats.allowed,
            "lossy": question.formats.lossy,
            "trace": trace,
        })))
    }

    fn trace(&self, path: &Path) -> String {
        let mut known = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.entry(path.to_owned());
        found.or_insert_with(|| contents::digest(path).unwrap_or_default()).clone()
    }
}

/// What a panic said.
fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason was given")
}

/// What became of a point, and from which inputs.
struct Reached {
    answer: Answer,
    inputs: String,
}

/// What was chosen, and what it gives, in the words of a served day.
pub fn measures(question: &Question) -> Outcome<(String, Value)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_that_panics_is_a_failed_row_and_the_sweep_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let text =
            "machine: h100-sxm\nmodel: opt-125m\nworkload: {batch: 1, prompt_tokens: 8, output_tokens: 2}\n";
        let document = Document::from_yaml("s.yaml", text).expect("a document");
        let axes = vec![Axis::from("workload.batch=1,2,3".parse::<scenarios::Setting>().expect("a setting"))];
        let sweep = |panics_at| {
            let sweep = Sweep::new(document.clone(), axes.clone(), 10, None, More::Nothing).expect("a sweep");
            Sweep { panics_at, ..sweep }
        };
        let out = folder.path().join("out.csv");
        let shard = Shard { index: 0, of: 1 };
        let run = |resume| Run { shard, budget: None, resume, out: &out, rank: None };
        let counts = sweep(Some(1)).run(run(false)).expect("the other points run");
        assert_eq!((&counts.json()["ok"], &counts.json()["failed"]), (&json!(2), &json!(1)));
        let table = std::fs::read_to_string(&out).expect("a table");
        let row = table.lines().nth(2).expect("the point's row");
        assert!(row.starts_with("1,2,failed,it panicked: point 1 is made to panic,"), "{row}");
        // A row in a journal is a row, whatever is in it: the point does not run again.
        let journal = folder.path().join("out.csv.journal");
        let going = sweep(Some(1));
        let (mut kept, _) =
            Journal::open(&out, &going.fingerprint(&run(true), Some(shard)), 3, false).expect("a journal");
        kept.add(1, row).expect("added");
        drop(kept);
        assert!(journal.is_file());
        let counts = sweep(Some(1)).run(run(true)).expect("the rest runs");
        assert_eq!((counts.before, &counts.json()["failed"]), (1, &json!(0)));
        assert_eq!(std::fs::read_to_string(&out).expect("a table"), table);
    }
}
