//! `fulcrum merge TABLE…`

use crate::exit::{Failure, Outcome, Sort};
use crate::terminal::outln;
use anyhow::anyhow;
use hwprofiles::Draft;
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};

/// Join the tables of a sweep's shards into the table of the whole sweep.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The tables, of all shards, in any order.
    #[arg(required = true)]
    tables: Vec<PathBuf>,
    /// Where to write the whole table.
    #[arg(short, long)]
    out: PathBuf,
}

/// A shard's table, and the row that is to be written next.
struct Table {
    name: String,
    lines: Lines<BufReader<File>>,
    header: String,
    next: Option<(u64, String)>,
}

impl Table {
    fn open(path: &Path) -> Outcome<Self> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| anyhow!("{name}: {error}")).or_input()?;
        let mut lines = BufReader::new(file).lines();
        let header = match lines.next() {
            Some(Ok(header)) if header.starts_with("point,") => header,
            _ => {
                let message = anyhow!(
                    "{name}:1: a table that `fulcrum sweep` wrote is wanted, its first column is point"
                );
                return Err(Failure::Input(message));
            }
        };
        let mut table = Self { name, lines, header, next: None };
        table.advance()?;
        Ok(table)
    }

    fn advance(&mut self) -> Outcome {
        self.next = match self.lines.next() {
            None => None,
            Some(line) => {
                let line = line.or_failed()?;
                let point = line.split(',').next().and_then(|point| point.parse().ok());
                let point = point.ok_or_else(|| {
                    Failure::Input(anyhow!("{}: a row without its point: {line}", self.name))
                })?;
                Some((point, line))
            }
        };
        Ok(())
    }
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let mut tables = arguments.tables.iter().map(|path| Table::open(path)).collect::<Outcome<Vec<_>>>()?;
    let header = tables[0].header.clone();
    if let Some(other) = tables.iter().find(|table| table.header != header) {
        let (one, other) = (&tables[0].name, &other.name);
        return Err(Failure::Input(anyhow!(
            "{other} has other columns than {one}: shards of one sweep are wanted"
        )));
    }
    let mut draft = Draft::of(&arguments.out).or_failed()?;
    writeln!(draft, "{header}").or_failed()?;
    let mut points = 0;
    while let Some(table) =
        tables.iter_mut().find(|table| table.next.as_ref().is_some_and(|next| next.0 == points))
    {
        if let Some((_, line)) = &table.next {
            writeln!(draft, "{line}").or_failed()?;
        }
        table.advance()?;
        points += 1;
    }
    if let Some(table) = tables.iter().find(|table| table.next.is_some()) {
        let (at, _) = table.next.as_ref().expect("it is");
        let wrong = match *at < points {
            true => format!("point {at} of {} is in another table too", table.name),
            false => format!("point {points} is in none of the tables, and point {at} is in {}", table.name),
        };
        return Err(Failure::Input(anyhow!("{wrong}: all shards are wanted, each once")));
    }
    draft.publish().or_failed()?;
    match json {
        true => outln!("{}", json!({ "points": points })),
        false => outln!("{points} points: written to {}", arguments.out.display()),
    }
    Ok(())
}
