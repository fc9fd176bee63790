//! `fulcrum sweep SCENARIO`

use crate::text::terminal::{ProgressDisplay, out, outln};
use crate::written::{WRITTEN_FILE, WRITTEN_FOLDER, check_ending, refuse_inputs};
use fulcrum::{
    Document, Error, ExtraKey, Halving, LimitSearch, OrError, PointBudget, ProgressEvent, Result, RowRank,
    Setting, Sweep, SweepRun, SweepShard, is_parquet,
};
use scenarios::{GRID_LIMIT, SweepAxis};
use std::io::BufReader;
use std::path::PathBuf;

/// Plan and simulate every scenario that lists of values span: a table with a row for each.
#[derive(Debug, clap::Args)]
pub struct SweepArguments {
    /// The scenario's file.
    scenario: PathBuf,
    /// The values of a key: `--set workload.batch=1,8,32`, or a range: `1..8`, `0..100+10`,
    /// `1..256*2`.
    #[arg(long = "set", value_name = "KEY=VALUES")]
    settings: Vec<Setting>,
    /// Keys whose lists go together, the first value of one with the first of the others.
    #[arg(long = "zip", value_name = "KEY,KEY")]
    zipped: Vec<String>,
    /// A CSV file whose columns are keys: a scenario for each of its rows.
    #[arg(long, value_name = "ROWS.CSV")]
    table: Option<PathBuf>,
    /// In each scenario, look for the largest value of one more key with which the limits are kept:
    /// KEY=FROM..TO, like workload.batch=1..1024 or "workload.arrivals.poisson=0.1..100 req/s".
    #[arg(long, value_name = "KEY=FROM..TO")]
    find: Option<LimitSearch>,
    /// The share of requests that must keep the limits then, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, requires = "find")]
    within: f64,
    /// Run every scenario with the first value of one more key, the best of them, by --least or
    /// --most, with the next, and so on: KEY=VALUES, the cheapest first, like
    /// workload.requests=50,200,800.
    #[arg(long, value_name = "KEY=VALUES", requires = "rank", conflicts_with = "find")]
    halve: Option<Setting>,
    /// The best of so many go on to the next value.
    #[arg(long, value_name = "NUMBER", default_value_t = 3.0, requires = "halve")]
    eta: f64,
    /// Of more scenarios than this, run so many, drawn with --seed.
    #[arg(long, value_name = "POINTS", conflicts_with = "limit")]
    budget: Option<u64>,
    /// The seed of what is drawn.
    #[arg(long, default_value_t = 0, requires = "budget")]
    seed: u64,
    /// Also show the row that has the least of a column, like cost.
    #[arg(long, value_name = "COLUMN", group = "rank")]
    least: Option<String>,
    /// Also show the row that has the most of a column, like output_tokens_per_s.
    #[arg(long, value_name = "COLUMN", group = "rank")]
    most: Option<String>,
    /// Refuse more scenarios than this.
    #[arg(long, default_value_t = GRID_LIMIT)]
    limit: u64,
    /// Run every n-th scenario only, from the i-th on (from 0): `fulcrum merge` joins the tables.
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: SweepShard,
    /// Plan each point with the search that `fulcrum plan` ends with: as good as its plans, at a
    /// tenth of the speed or less.
    #[arg(long)]
    search: bool,
    /// Go on where an earlier run was stopped.
    #[arg(long)]
    resume: bool,
    /// Take from this folder what is known already, and keep there what is found: under a
    /// fingerprint of everything that a scenario's numbers depend on, the contents of its files
    /// among them.
    #[arg(long, value_name = "DIR", value_hint = WRITTEN_FOLDER)]
    cache: Option<PathBuf>,
    /// Where to write the table: CSV, or Parquet where the name ends in .parquet.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: PathBuf,
}

impl SweepArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let Self { shard, resume, out, .. } = &self;
        if shard.is_part() && is_parquet(out) {
            let message = "a shard's table is CSV, which `fulcrum merge` joins: give it another name";
            return Err(Error::input(format!("-o {}: {message}", out.display())));
        }
        check_ending(out, &[".csv", ".parquet"])?;
        self.check_shard()?;
        let budget = self.budget.map(|points| PointBudget { points, seed: self.seed });
        if budget.is_some_and(|budget| budget.points == 0) {
            return Err(Error::input("--budget 0: one point at least is wanted"));
        }
        let extra = self.extra_key()?;
        refuse_inputs(self.cache.iter().map(|folder| Sweep::cache_file(folder)))?;
        let document = Document::from_file(&self.scenario).or_input()?;
        let axes = self.axes(&document)?;
        // A draw from a grid needs no limit on its size.
        let limit = Some(self.limit).filter(|_| budget.is_none());
        let sweep = Sweep::new(document, axes, limit, self.cache.as_deref(), extra)?;
        let sweep = if self.search { sweep.with_search() } else { sweep };
        let run = SweepRun { shard: *shard, budget, resume: *resume, out, rank: self.rank() };
        let display = ProgressDisplay::default();
        let counts = sweep.run(run, &|event: ProgressEvent<'_>| display.show(event))?;
        match json {
            true => outln!("{}", counts.to_json()),
            false => {
                if let Some(ladder) = &counts.ladder {
                    outln!("{}", ladder.to_text().trim_end());
                }
                out!("{}", counts.highlights.to_text());
                for (column, value) in counts.best.iter().flatten() {
                    outln!("{column}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
                }
                if let Some(rank) = self.rank().filter(|_| counts.best.is_none()) {
                    outln!("{}", rank.no_row_has_it());
                }
                outln!("{}: written to {}", counts.to_text(), out.display());
                if sweep.leaves_search_out() {
                    outln!(
                        "Points are planned without the last search of `fulcrum plan`, which --search adds."
                    );
                }
            }
        }
        counts.require_answers()
    }

    /// Refuses what shards cannot do, since they know nothing of each other.
    fn check_shard(&self) -> Result {
        if !self.shard.is_part() {
            return Ok(());
        }
        if let Some(steps) = &self.halve {
            return Err(Error::input(format!(
                "--shard: which scenarios go on is known when all have been run, and --halve ranks them. Run the first value, with which most \
                 time goes, in shards that share a cache (--set {}={} --shard {}/{} --cache DIR); then --halve with the same --cache and \
                 without --shard takes from there what they found",
                steps.key, steps.values[0], self.shard.index, self.shard.of
            )));
        }
        if self.budget.is_some() {
            return Err(Error::input(
                "--shard: `fulcrum merge` would take the scenarios that --budget leaves out for a shard that is missing: \
                 run the budget in one piece, or smaller lists in shards",
            ));
        }
        Ok(())
    }

    /// The axes of the command line, after the scenario's own lists of other keys.
    fn axes(&self, document: &Document) -> Result<Vec<SweepAxis>> {
        let keys = |keys: &String| keys.split(',').map(|key| key.trim().to_owned()).collect();
        let zipped: Vec<Vec<String>> = self.zipped.iter().map(keys).collect();
        let mut named = Vec::new();
        if let Some(table) = &self.table {
            let name = table.display().to_string();
            let file =
                hwprofiles::open_input(table).map_err(|error| Error::input(format!("{name}: {error}")))?;
            named.push(SweepAxis::from_csv(BufReader::new(file), &name).or_input()?);
        }
        named.extend(SweepAxis::from_settings(self.settings.clone(), &zipped).or_input()?);
        document.axes_with(named).or_input()
    }

    fn extra_key(&self) -> Result<ExtraKey> {
        if !(0.0..=100.0).contains(&self.within) {
            let within = self.within;
            return Err(Error::input(format!("--within {within}: a share from 0 to 100 is wanted")));
        }
        Ok(match (&self.find, &self.halve) {
            (Some(search), _) => ExtraKey::Search(search.clone(), self.within / 100.0),
            (None, Some(steps)) => ExtraKey::Halving(Halving::new(steps.clone(), self.eta)?),
            (None, None) => ExtraKey::None,
        })
    }

    fn rank(&self) -> Option<RowRank> {
        let least = self.least.clone().map(|column| RowRank { column, most: false });
        least.or(self.most.clone().map(|column| RowRank { column, most: true }))
    }
}
