//! `fulcrum sweep SCENARIO`

use crate::exit::{Outcome, Sort};
use crate::sweep::{Shard, Sweep};
use crate::terminal::outln;
use scenarios::{Axis, Document, GRID_LIMIT, Grid, Setting};
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
    /// Refuse more scenarios than this.
    #[arg(long, default_value_t = GRID_LIMIT)]
    limit: u64,
    /// Run every n-th scenario only, from the i-th on (from 0): `fulcrum merge` joins the tables.
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
    /// Go on where an earlier run was stopped.
    #[arg(long)]
    resume: bool,
    /// Where to write the table (CSV).
    #[arg(short, long)]
    out: PathBuf,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let zipped: Vec<Vec<String>> = arguments
        .zipped
        .iter()
        .map(|keys| keys.split(',').map(|key| key.trim().to_owned()).collect())
        .collect();
    let mut axes = Vec::new();
    if let Some(table) = &arguments.table {
        let name = table.display().to_string();
        let file = File::open(table).map_err(|error| anyhow::anyhow!("{name}: {error}")).or_input()?;
        axes.push(Axis::table(BufReader::new(file), &name).or_input()?);
    }
    axes.extend(Axis::all(arguments.settings, &zipped).or_input()?);
    let document = Document::from_file(&arguments.scenario).or_input()?;
    let sweep = Sweep::new(Grid::new(document, axes, arguments.limit).or_input()?)?;
    let counts = sweep.run(arguments.shard, arguments.resume, &arguments.out)?;
    match json {
        true => outln!("{}", counts.json()),
        false => outln!("{}: written to {}", counts.words(), arguments.out.display()),
    }
    Ok(())
}
