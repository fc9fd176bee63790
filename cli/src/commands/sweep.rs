//! `fulcrum sweep SCENARIO`

use crate::exit::{Failure, Outcome, Sort};
use crate::sweep::{Budget, Find, Halving, More, Rank, Run, Shard, Sweep};
use crate::table_file::is_parquet;
use crate::terminal::outln;
use anyhow::anyhow;
use scenarios::{Axis, Document, GRID_LIMIT, Setting};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// Plan and simulate every scenario that lists of values span: a table with a row for each.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The scenario's file.
    scenario: PathBuf,
    /// The values of a key: `--set workload.batch=1,8,32`, or a range: `1..8`, `0..100+10`, `1..256*2`.
    #[arg(long = "set", value_name = "KEY=VALUES")]
    settings: Vec<Setting>,
    /// Keys whose lists go together, the first value of one with the first of the others.
    #[arg(long = "zip", value_name = "KEY,KEY")]
    zipped: Vec<String>,
    /// A CSV file whose columns are keys: a scenario for each of its rows.
    #[arg(long, value_name = "ROWS.CSV")]
    table: Option<PathBuf>,
    /// In each scenario, look for the largest value of one more key with which the limits are kept: KEY=FROM..TO, like
    /// workload.batch=1..1024 or "workload.arrivals.poisson=0.1..100 req/s".
    #[arg(long, value_name = "KEY=FROM..TO")]
    find: Option<Find>,
    /// The share of requests that must keep the limits then, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, requires = "find")]
    within: f64,
    /// Run every scenario with the first value of one more key, the best of them, by --least or --most, with the next, and so on:
    /// KEY=VALUES, the cheapest first, like workload.requests=50,200,800.
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
    shard: Shard,
    /// Go on where an earlier run was stopped.
    #[arg(long)]
    resume: bool,
    /// Take from this folder what is known already, and keep there what is found: under a fingerprint of everything that a
    /// scenario's numbers depend on, the contents of its files among them.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Where to write the table: CSV, or Parquet where the name ends in .parquet.
    #[arg(short, long)]
    out: PathBuf,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let Arguments { shard, resume, out, cache, .. } = &arguments;
    if shard.of > 1 && is_parquet(out) {
        let message = "a shard's table is CSV, which `fulcrum merge` joins: give it another name";
        return Err(Failure::Input(anyhow!("-o {}: {message}", out.display())));
    }
    arguments.check_shard()?;
    let budget = arguments.budget.map(|points| Budget { points, seed: arguments.seed });
    if budget.is_some_and(|budget| budget.points == 0) {
        return Err(Failure::Input(anyhow!("--budget 0: one point at least is wanted")));
    }
    let more = arguments.more()?;
    let document = Document::from_file(&arguments.scenario).or_input()?;
    let axes = arguments.axes(&document)?;
    let limit = if budget.is_some() { u64::MAX } else { arguments.limit };
    let sweep = Sweep::new(document, axes, limit, cache.as_deref(), more)?;
    let run = Run { shard: *shard, budget, resume: *resume, out, rank: arguments.rank() };
    let counts = sweep.run(run)?;
    match json {
        true => outln!("{}", counts.json()),
        false => {
            if let Some(ladder) = &counts.ladder {
                outln!("{}", ladder.words().trim_end());
            }
            for (column, value) in counts.best.iter().flatten() {
                outln!("{column}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
            outln!("{}: written to {}", counts.words(), out.display());
        }
    }
    Ok(())
}

impl Arguments {
    /// Shards know nothing of each other.
    fn check_shard(&self) -> Outcome {
        let wrong = |message: String| Err(Failure::Input(anyhow!("--shard: {message}")));
        match (&self.halve, self.budget) {
            _ if self.shard.of == 1 => Ok(()),
            (Some(steps), _) => wrong(format!(
                "which scenarios go on is known when all have been run, and --halve ranks them. Run the first value, with which most \
                 time goes, in shards that share a cache (--set {}={} --shard {}/{} --cache DIR); then --halve with the same --cache and \
                 without --shard takes from there what they found",
                steps.key, steps.values[0], self.shard.index, self.shard.of
            )),
            (None, Some(_)) => wrong(
                "`fulcrum merge` would take the scenarios that --budget leaves out for a shard that is missing: \
                 run the budget in one piece, or smaller lists in shards"
                    .to_owned(),
            ),
            (None, None) => Ok(()),
        }
    }

    /// What is asked for here, after the scenario's own lists of other keys.
    fn axes(&self, document: &Document) -> Outcome<Vec<Axis>> {
        let zipped: Vec<Vec<String>> = self
            .zipped
            .iter()
            .map(|keys| keys.split(',').map(|key| key.trim().to_owned()).collect())
            .collect();
        let mut asked = Vec::new();
        if let Some(table) = &self.table {
            let name = table.display().to_string();
            let file = File::open(table).map_err(|error| anyhow!("{name}: {error}")).or_input()?;
            asked.push(Axis::table(BufReader::new(file), &name).or_input()?);
        }
        asked.extend(Axis::all(self.settings.clone(), &zipped).or_input()?);
        let keys: Vec<_> = asked.iter().flat_map(|axis| axis.keys.clone()).collect();
        let mut all = document.axes().or_input()?;
        all.retain(|axis| !axis.keys.iter().any(|key| keys.contains(key)));
        all.append(&mut asked);
        Ok(all)
    }

    /// What becomes of one key more.
    fn more(&self) -> Outcome<More> {
        if !(0.0..=100.0).contains(&self.within) {
            return Err(Failure::Input(anyhow!("--within {}: a share from 0 to 100 is wanted", self.within)));
        }
        Ok(match (&self.find, &self.halve) {
            (Some(find), _) => More::Search(find.clone(), self.within / 100.0),
            (None, Some(steps)) => More::Halving(Halving::new(steps.clone(), self.eta).or_input()?),
            (None, None) => More::Nothing,
        })
    }

    fn rank(&self) -> Option<Rank> {
        let least = self.least.clone().map(|column| Rank { column, most: false });
        least.or(self.most.clone().map(|column| Rank { column, most: true }))
    }
}
