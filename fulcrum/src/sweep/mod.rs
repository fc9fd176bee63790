//! A sweep: every scenario of a grid planned and simulated, a row each.
//!
//! A point is its number, and its row depends on nothing else, so anybody can run any of them: the
//! threads of one machine, or shards on several. A row goes to the journal as soon as it is there;
//! the table is written in the order of the points when all are.

mod cache;
mod counts;
mod execution;
mod extra_key;
mod find;
mod halving;
mod highlights;
mod journal;
mod merge;
mod points;
mod rank;
mod row;
mod table_stamp;

pub use counts::SweepCounts;
pub use extra_key::ExtraKey;
pub use find::LimitSearch;
pub use halving::{Halving, HalvingLadder};
pub use highlights::SweepHighlights;
pub use merge::merge_shards;
pub use points::{PointBudget, SweepShard};
pub use rank::RowRank;
pub(crate) use table_stamp::TableStamp;

use crate::error::{Error, OrError, Result};
use crate::file_digest::content_digest;
use crate::identity;
use crate::input_files::InputFiles;
use crate::pipeline::{CachedCatalog, PreparedScenario};
use crate::progress::{ProgressEvent, ProgressFn, no_progress};
use crate::serve::measures;
use cache::AnswerCache;
use execution::SweepExecution;
use journal::SweepJournal;
use planner::Effort;
use points::SweepPoints;
use row::{PointAnswer, PointStatus, SweepColumns};
use scenarios::{Document, GRID_LIMIT, Grid, Model, Requests, ScenarioError, Slo, SweepAxis};
use serde_json::{Value, json};
use sim::CapacityBracket;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The scenarios of a grid, and what is known of their machines, models and answers.
pub struct Sweep {
    grid: Grid,
    /// What the grid was made of, for its identity.
    axes: Vec<SweepAxis>,
    columns: SweepColumns,
    catalog: CachedCatalog,
    /// The digests of files, each computed once.
    digests: Mutex<BTreeMap<PathBuf, String>>,
    cache: Option<AnswerCache>,
    extra: ExtraKey,
    /// How long static batches are searched.
    effort: Effort,
    #[cfg(test)]
    panics_at: Option<u64>,
}

/// How a sweep is run.
#[derive(Debug, Clone)]
pub struct SweepRun<'p> {
    /// Which points are run.
    pub shard: SweepShard,
    /// How many of them are drawn, where not all are run.
    pub budget: Option<PointBudget>,
    /// Whether to go on where an earlier run was stopped.
    pub resume: bool,
    /// The table: CSV, or Parquet where the name ends in `.parquet`.
    pub out: &'p Path,
    /// Which row is wanted besides the table.
    pub rank: Option<RowRank>,
}

impl<'p> SweepRun<'p> {
    /// All points, from the beginning, into the table `out`.
    pub fn new(out: &'p Path) -> Self {
        Self { shard: SweepShard::WHOLE, budget: None, resume: false, out, rank: None }
    }
}

/// Plans and simulates every scenario that `axes` span over `document`, and writes a table with a
/// row for each to `out`.
///
/// ```
/// use scenarios::{SweepAxis, Document, Setting};
/// let document = Document::from_yaml(
///     "scenario",
///     "{machine: rtx4090-desktop, model: opt-125m,
///       workload: {batch: 1, prompt_tokens: 64, output_tokens: 8}}",
/// )?;
/// let batches: Setting = "workload.batch=1,4,16".parse()?;
/// let folder = tempfile::tempdir()?;
/// let table = folder.path().join("batches.csv");
/// let counts = fulcrum::sweep(document, vec![SweepAxis::from(batches)], &table)?;
/// assert_eq!(counts.to_text(), "3 ok");
/// assert_eq!(std::fs::read_to_string(&table)?.lines().count(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The scenarios are wrong in a key, there are too many of them, or the table cannot be written. A
/// scenario that is wrong in a value is a row.
pub fn sweep(document: Document, axes: Vec<SweepAxis>, out: &Path) -> Result<SweepCounts> {
    let sweep = Sweep::new(document, axes, Some(GRID_LIMIT), None, ExtraKey::None)?;
    sweep.run(SweepRun::new(out), &no_progress)
}

impl Sweep {
    /// The sweep of the scenarios that `axes` span over `document`, refused where they are more
    /// than `limit`. Answers are taken from the cache in a folder and kept there.
    ///
    /// # Errors
    /// The first scenario is wrong in a key, since then all are; or the cache cannot be used.
    pub fn new(
        document: Document,
        axes: Vec<SweepAxis>,
        limit: Option<u64>,
        cache: Option<&Path>,
        extra: ExtraKey,
    ) -> Result<Self> {
        let grid = Grid::new(document, axes.clone(), limit.unwrap_or(u64::MAX)).or_input()?;
        // With another value a point may be right, with another key none is.
        if let Err(error @ (ScenarioError::UnknownKey { .. } | ScenarioError::Setting { .. })) =
            extra.first_point(&grid)
        {
            return Err(Error::input(error));
        }
        let mut keys: Vec<_> = grid.keys().map(str::to_owned).zip(grid.numeric_keys()).collect();
        let own = extra.columns();
        if let Some((key, _)) = own.first().filter(|(key, _)| keys.iter().any(|(known, _)| known == key)) {
            return Err(Error::input(format!("{key} is set already: leave it out of the lists")));
        }
        keys.extend(own);
        Ok(Self {
            grid,
            axes,
            columns: SweepColumns::new(keys),
            catalog: CachedCatalog::default(),
            digests: Mutex::default(),
            cache: cache.map(AnswerCache::open).transpose()?,
            extra,
            effort: Effort::SWEEP,
            #[cfg(test)]
            panics_at: None,
        })
    }

    /// The same with the search at the end that [`crate::plan()`] makes, for each point.
    #[must_use]
    pub fn with_search(self) -> Self {
        Self { effort: Effort::PLAN, ..self }
    }

    /// Whether points are planned without the search that [`crate::plan()`] ends with.
    pub fn leaves_search_out(&self) -> bool {
        let first = self.grid.point_with(0, None);
        let is_static = first.is_ok_and(|first| first.scenario.workload.serving().is_none());
        is_static && self.effort != Effort::PLAN
    }

    /// The file in the folder `cache` to which answers are added.
    pub fn cache_file(cache: &Path) -> PathBuf {
        AnswerCache::file(cache)
    }

    /// The identity of the whole sweep. Another scenario, other lists, another version, or other
    /// contents of a file that they name make it another.
    fn identity(&self, run: &SweepRun<'_>) -> String {
        let mut files = InputFiles::default();
        for (value, folder) in self.grid.values() {
            files.add_value(value, &[folder, Path::new("")]);
        }
        let (document, folder) = self.document();
        let axis =
            |axis: &SweepAxis| json!({ "keys": axis.keys, "rows": axis.rows, "own": axis.from_document });
        // The rank decides which points go on in a halving, and nothing otherwise.
        let rank = run.rank.as_ref().filter(|_| self.extra.rungs() > 1);
        identity::short_digest(&json!({
            "build": identity::BUILD,
            "document": document,
            "folder": folder,
            "axes": self.axes.iter().map(axis).collect::<Vec<_>>(),
            "key": self.extra.identity(),
            "search": self.effort == Effort::PLAN,
            "budget": run.budget.map(|budget| [budget.points, budget.seed]),
            "rank": rank.map(|rank| json!({ "column": rank.column, "most": rank.most })),
            "files": files.identity(),
        }))
    }

    /// The scenario's document, and the folder that its relative paths start at.
    fn document(&self) -> (&Value, &Path) {
        self.grid.values().next().expect("a grid has a document")
    }

    /// Runs the points on all threads and writes their table. Points that an earlier run has
    /// finished are not run again. A point that panics is a failed row.
    ///
    /// # Errors
    /// A path cannot be written, or there is a journal of another sweep, or one that must not be
    /// resumed.
    pub fn run(&self, run: SweepRun<'_>, progress: &ProgressFn<'_>) -> Result<SweepCounts> {
        let mut best = run.rank.as_ref().map(|rank| rank.best_of(&self.columns)).transpose()?;
        let points = SweepPoints::new(self.grid.count(), run.shard, run.budget);
        let (count, rungs) = (points.count(), self.extra.rungs() as u64);
        let (sweep, SweepShard { index: shard, of }) = (self.identity(&run), run.shard);
        let identity = format!("{sweep} {shard}/{of}");
        let journal = SweepJournal::open(run.out, &identity, count * rungs, run.resume)?;
        if journal.damaged() > 0 {
            let damaged = journal.damaged();
            let note = format!(
                "{damaged} rows of the journal have changed since they were written: they are run again"
            );
            progress(ProgressEvent::Warning(&note));
        }
        let rows = match &self.extra {
            ExtraKey::Halving(halving) => halving.runs(count),
            _ => count,
        };
        let execution = SweepExecution::new(self, points, journal, rows, progress);
        let ladder = match (&self.extra, &mut best) {
            (ExtraKey::Halving(halving), Some(best)) => Some(execution.climb(halving, best)?),
            _ => {
                execution.run_all()?;
                None
            }
        };
        let stamp = TableStamp { sweep, shard, of, rows: count, table: String::new() };
        execution.finish(run.out, stamp, best, ladder)
    }

    /// The row of point `index` on a rung. A point that panics has failed like any other: its row
    /// says why, and the sweep goes on.
    fn row(&self, index: u64, rung: usize) -> Result<(PointStatus, String)> {
        // Counters, caches and files are shared with the caller; each stays consistent when a
        // point unwinds.
        let ran = panic::catch_unwind(AssertUnwindSafe(|| self.run_point(index, rung)));
        let (point, extra) = ran.unwrap_or_else(|payload| {
            let error = Error::failed(format!("it panicked: {}", panic_message(&*payload)));
            let extra = vec![None; self.extra.columns().len()];
            Ok((PointResult { answer: PointAnswer::from_error(&error), inputs: String::new() }, extra))
        })?;
        let settings = self.grid.settings(index).map(|(_, value)| value);
        let settings = settings.chain(extra.iter().map(Option::as_ref));
        let short = &point.inputs[..point.inputs.len().min(identity::SHORT)];
        Ok((point.answer.status, self.columns.row(index, settings, &point.answer, short)))
    }

    /// The result of point `index` on a rung, and its cells of the extra key.
    fn run_point(&self, index: u64, rung: usize) -> Result<(PointResult, Vec<Option<Value>>)> {
        #[cfg(test)]
        assert!(self.panics_at != Some(index), "point {index} is made to panic");
        Ok(match &self.extra {
            ExtraKey::None => (self.point(index, None)?, vec![]),
            ExtraKey::Search(search, share) => {
                let (point, ends) = self.largest(index, search, *share)?;
                (point, ends.map(|end| end.map(|at| search.value(at))).to_vec())
            }
            ExtraKey::Halving(Halving { steps, .. }) => {
                let value = &steps.values[rung];
                let point = self.point(index, Some((&steps.key, value)))?;
                (point, vec![Some(value.clone()), Some(Value::from(rung + 1))])
            }
        })
    }

    /// The result of point `index`, with one key more.
    fn point(&self, index: u64, extra: Option<(&str, &Value)>) -> Result<PointResult> {
        let prepared = self.grid.point_with(index, extra).or_input().and_then(|point| {
            let scenario = PreparedScenario::cached(&point.scenario, &self.catalog)?;
            Ok((self.inputs(index, extra, &scenario), scenario))
        });
        Ok(match prepared {
            Err(error) => PointResult { answer: PointAnswer::from_error(&error), inputs: String::new() },
            Ok((inputs, scenario)) => PointResult { answer: self.answer(&inputs, &scenario)?, inputs },
        })
    }

    /// The result of point `index` with the largest value that keeps its limits; that value and the
    /// smallest beyond it that was tried. Where no value keeps them, the result of the smallest;
    /// where something is wrong, that result.
    fn largest(
        &self,
        index: u64,
        search: &LimitSearch,
        share: f64,
    ) -> Result<(PointResult, [Option<f64>; 2])> {
        let mut best: Option<(f64, PointResult)> = None;
        let mut other: Option<PointResult> = None;
        let [least, most] = search.range;
        let found = sim::search_capacity(search.range, least, search.precision, |at| {
            let point = self.point(index, Some((&search.key, &search.value(at)))).map_err(Some)?;
            let keeps = point.answer.keeps(share);
            match (keeps, point.answer.status) {
                (true, _) if best.as_ref().is_none_or(|(known, _)| at > *known) => {
                    best = Some((at, point));
                }
                (true, _) => {}
                (false, PointStatus::Invalid | PointStatus::Failed) if best.is_none() => {
                    other = Some(point);
                    return Err(None);
                }
                (false, _) => other = Some(point),
            }
            Ok(keeps)
        });
        debug_assert!(least < most);
        let ends = match found {
            Ok(CapacityBracket::Between(keeps, breaks)) => [Some(keeps), Some(breaks)],
            Ok(CapacityBracket::Most(keeps)) => [Some(keeps), None],
            Ok(CapacityBracket::None(breaks)) => [None, Some(breaks)],
            Err(None) => [None, None],
            Err(Some(error)) => return Err(error),
        };
        let mut point = best.map(|(_, point)| point).or(other).expect("a value was tried");
        if let [Some(most), None] = ends {
            let value = search.value(most);
            let tried = self.grid.point_with(index, Some((&search.key, &value))).or_input()?;
            let why = match tried.scenario.slo == Slo::default() {
                true => "no slo is set, so nothing stopped it",
                false => "the limits are kept up to there",
            };
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            point.answer.note(&format!("{}={value}: the end of the range; {why}", search.key));
        }
        Ok((point, ends))
    }

    /// The answer that is known of `inputs`, or the answer of `scenario`.
    fn answer(&self, inputs: &str, scenario: &PreparedScenario) -> Result<PointAnswer> {
        // Another build may answer otherwise.
        let key = identity::digest(&json!({ "build": identity::BUILD, "inputs": inputs }));
        if let Some(answer) = self.cache.as_ref().and_then(|cache| cache.get(&key)) {
            return Ok(answer);
        }
        let answer = match measures(scenario, self.effort) {
            Err(error) => PointAnswer::from_error(&error),
            Ok((plan, measures)) => PointAnswer::from_measures(&plan, &measures),
        };
        if let Some(cache) = &self.cache {
            cache.put(&key, &answer)?;
        }
        Ok(answer)
    }

    /// A digest of everything that a point's numbers depend on: the scenario as it is written, and
    /// the contents of machine, model and trace.
    fn inputs(&self, index: u64, extra: Option<(&str, &Value)>, prepared: &PreparedScenario) -> String {
        let trace = match prepared.serving().map(|serving| &serving.requests) {
            Some(Requests::Trace { path, .. }) => Some(self.file_digest(path)),
            _ => None,
        };
        let settings = self.grid.settings(index).filter_map(|(key, value)| Some((key, value?)));
        // A model's fingerprint leaves out its name and its own number format, and results depend
        // on both.
        let model =
            |model: &Model| json!({ "name": model.name, "shape": model.fingerprint(), "dtype": model.dtype });
        let (document, folder) = self.document();
        let document = identity::document(document, settings.chain(extra));
        // Machine, model and trace are known by what was read of them.
        let mut named = InputFiles::default();
        for key in ["engine", "placement"] {
            named.add_value(&document[key], &[folder, Path::new("")]);
        }
        identity::digest(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "document": document,
            "search": self.effort == Effort::PLAN,
            "files": named.files().map(|path| self.file_digest(path)).collect::<Vec<_>>(),
            "machines": prepared.machine_fingerprints(),
            "model": model(prepared.model()),
            "draft": prepared.resolved.speculative.as_ref().map(|choice| model(&choice.draft)),
            "formats": prepared.formats().allowed,
            "lossy": prepared.formats().lossy,
            "trace": trace,
        }))
    }

    fn file_digest(&self, path: &Path) -> String {
        let mut known = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.entry(path.to_owned());
        found.or_insert_with(|| content_digest(path).unwrap_or_default()).clone()
    }
}

/// The message of a panic.
fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason was given")
}

/// What came of a point, and the digest of its inputs.
struct PointResult {
    answer: PointAnswer,
    inputs: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use scenarios::Setting;

    const SCENARIO: &str =
        "machine: h100-sxm\nmodel: opt-125m\nworkload: {batch: 1, prompt_tokens: 8, output_tokens: 2}\n";

    fn sweep(panics_at: Option<u64>) -> Sweep {
        let document = Document::from_yaml("s.yaml", SCENARIO).expect("a document");
        let axes = vec![SweepAxis::from("workload.batch=1,2,3".parse::<Setting>().expect("a setting"))];
        let sweep = Sweep::new(document, axes, None, None, ExtraKey::None).expect("a sweep");
        Sweep { panics_at, ..sweep }
    }

    #[test]
    fn a_cached_answer_is_not_that_of_another_engine_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("s.yaml"), format!("{SCENARIO}engine: {{file: e.yaml}}\n")).expect("written");
        let table = |time: &str| {
            let engine = format!(
                "engine: mine\nserving:\n  host_per_step: {{value: {time}, source: {{estimated: {{reason: chosen}}}}}}\n"
            );
            std::fs::write(at("e.yaml"), engine).expect("written");
            let document = Document::from_file(&at("s.yaml")).expect("a document");
            let axes = vec![SweepAxis::from("workload.batch=1,2".parse::<Setting>().expect("a setting"))];
            let sweep =
                Sweep::new(document, axes, None, Some(&at("cache")), ExtraKey::None).expect("a sweep");
            sweep.run(SweepRun::new(&at("t.csv")), &no_progress).expect("it runs");
            std::fs::read_to_string(at("t.csv")).expect("a table")
        };
        let first = table("1 ms");
        assert_ne!(table("2 ms"), first);
        assert_eq!(table("1 ms"), first);
    }

    #[test]
    fn a_point_that_panics_is_a_failed_row_and_the_sweep_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out.csv");
        let counts = sweep(Some(1)).run(SweepRun::new(&out), &no_progress).expect("the other points run");
        assert_eq!((&counts.to_json()["ok"], &counts.to_json()["failed"]), (&json!(2), &json!(1)));
        let table = std::fs::read_to_string(&out).expect("a table");
        let row = table.lines().nth(2).expect("the point's row");
        assert!(row.starts_with("1,2,failed,it panicked: point 1 is made to panic,"), "{row}");
        // The row is in the journal, so a resumed sweep does not run the point again.
        let (again, run) = (sweep(Some(1)), SweepRun { resume: true, ..SweepRun::new(&out) });
        let identity = format!("{} 0/1", again.identity(&run));
        let mut journal = SweepJournal::open(&out, &identity, 3, false).expect("a journal");
        journal.add(1, row).expect("added");
        drop(journal);
        let counts = again.run(run, &no_progress).expect("the rest runs");
        assert_eq!((counts.finished_before, &counts.to_json()["failed"]), (1, &json!(0)));
        assert_eq!(std::fs::read_to_string(&out).expect("a table"), table);
    }
}
