//! `fulcrum merge TABLE…`

use crate::exit::{Failure, Outcome, Sort};
use crate::sweep::ShardStamp;
use crate::terminal::outln;
use anyhow::anyhow;
use hwprofiles::Draft;
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Split, Write};
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
    stamp: ShardStamp,
    /// Rows read so far.
    rows: u64,
    lines: Split<BufReader<File>>,
    header: String,
    next: Option<(u64, String)>,
}

impl Table {
    fn open(path: &Path) -> Outcome<Self> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| anyhow!("{name}: {error}")).or_input()?;
        let cut = ends_within_a_line(&file).map_err(|error| anyhow!("{name}: {error}")).or_input()?;
        let mut lines = BufReader::new(file).split(b'\n');
        let first = lines.next().and_then(Result::ok).and_then(|line| String::from_utf8(line).ok());
        let header = match first {
            Some(header) if header.starts_with("point,") => header,
            _ => {
                let message = anyhow!(
                    "{name}:1: a table that `fulcrum sweep` wrote is wanted, its first column is point"
                );
                return Err(Failure::Input(message));
            }
        };
        if cut {
            return Err(Failure::Input(anyhow!("{name}: its last line has no end: the table was cut short")));
        }
        let stamp = ShardStamp::read(path)?;
        let mut table = Self { name, stamp, rows: 0, lines, header, next: None };
        table.advance()?;
        Ok(table)
    }

    fn advance(&mut self) -> Outcome {
        self.next = match self.lines.next() {
            None => None,
            Some(line) => {
                let line = line.map_err(|error| anyhow!("{}: {error}", self.name)).or_failed()?;
                let line = String::from_utf8_lossy(&line).into_owned();
                self.rows += 1;
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

/// Whether the file's last byte is no line end.
fn ends_within_a_line(file: &File) -> std::io::Result<bool> {
    let mut file = file;
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    file.rewind()?;
    Ok(last != [b'\n'])
}

/// Refuses tables that are not all shards of one sweep, each once.
fn check_shards(tables: &[Table]) -> Outcome {
    let refused = |message: String| Err(Failure::Input(anyhow!(message)));
    let (first, of) = (&tables[0], tables[0].stamp.of);
    for (index, table) in tables.iter().enumerate() {
        let ShardStamp { sweep, shard, of: others, .. } = &table.stamp;
        let (name, one) = (&table.name, &first.name);
        if table.header != first.header || *sweep != first.stamp.sweep {
            return refused(format!("{name} is of another sweep than {one}: shards of one sweep are wanted"));
        }
        if *others != of {
            return refused(format!("{name} is one of {others} shards and {one} one of {of}: sweep again"));
        }
        if let Some(same) = tables[..index].iter().find(|other| other.stamp.shard == *shard) {
            let same = &same.name;
            return refused(format!("{name} and {same} are both shard {shard}/{of}: each is wanted once"));
        }
    }
    match (0..of).find(|shard| tables.iter().all(|table| table.stamp.shard != *shard)) {
        Some(shard) => refused(format!("shard {shard}/{of} is missing: all shards are wanted, each once")),
        None => Ok(()),
    }
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let mut tables = arguments.tables.iter().map(|path| Table::open(path)).collect::<Outcome<Vec<_>>>()?;
    check_shards(&tables)?;
    let mut draft = Draft::of(&arguments.out).or_failed()?;
    writeln!(draft, "{}", tables[0].header).or_failed()?;
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
    if let Some(table) = tables.iter().find(|table| table.next.is_none() && table.rows != table.stamp.rows) {
        let (name, rows, wanted) = (&table.name, table.rows, table.stamp.rows);
        return Err(Failure::Input(anyhow!("{name} has {rows} rows of {wanted}: the table was cut short")));
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
