//! The tables of a sweep's shards, joined to the table of the whole sweep.

use super::table_stamp::{DigestWriter, TableStamp};
use crate::error::{Error, OrError, Result};
use hwprofiles::AtomicFile;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Split, Write};
use std::path::{Path, PathBuf};

/// A shard's table, and the row that is to be written next.
struct ShardTable {
    path: PathBuf,
    name: String,
    stamp: TableStamp,
    header: String,
    lines: Split<BufReader<File>>,
    /// Rows read so far.
    rows: u64,
    digest: DigestWriter<io::Sink>,
    next: Option<(u64, String)>,
}

impl ShardTable {
    fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let unreadable = |error: io::Error| Error::input(format!("{name}: {error}"));
        let file = hwprofiles::open_input(path).map_err(unreadable)?;
        let cut = ends_within_a_line(&file).map_err(unreadable)?;
        let mut lines = BufReader::new(file).split(b'\n');
        let first = lines.next().and_then(Result::ok).and_then(|line| String::from_utf8(line).ok());
        let Some(header) = first.filter(|header| header.starts_with("point,")) else {
            return Err(Error::input(format!(
                "{name}:1: a table that `fulcrum sweep` wrote is wanted, its first column is point"
            )));
        };
        if cut {
            let message = format!("{name}: its last line has no end: the table was cut short");
            return Err(Error::input(message));
        }
        let no_stamp = || {
            let stamp = TableStamp::path(path);
            let stamp = stamp.display();
            Error::input(format!(
                "{stamp} is missing: `fulcrum sweep --shard` writes it beside {name}, and without it nobody knows which \
                 shard of which sweep the table is"
            ))
        };
        let stamp = TableStamp::find(path)?.ok_or_else(no_stamp)?;
        let mut digest = DigestWriter::new(io::sink());
        writeln!(digest, "{header}").or_failed()?;
        let path = path.to_owned();
        let mut table = Self { path, name, stamp, header, lines, rows: 0, digest, next: None };
        table.advance()?;
        Ok(table)
    }

    /// Reads the next row.
    fn advance(&mut self) -> Result<()> {
        self.next = None;
        let Some(line) = self.lines.next() else { return Ok(()) };
        let line = line.map_err(|error| Error::failed(format!("{}: {error}", self.name)))?;
        self.digest.write_all(&line).and_then(|()| self.digest.write_all(b"\n")).or_failed()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        self.rows += 1;
        let point = line.split(',').next().and_then(|point| point.parse().ok());
        let no_point = || Error::input(format!("{}: a row without its point: {line}", self.name));
        self.next = Some((point.ok_or_else(no_point)?, line));
        Ok(())
    }
}

/// Whether the file's last byte is no line end.
fn ends_within_a_line(mut file: &File) -> io::Result<bool> {
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
fn check_shards(tables: &[ShardTable]) -> Result<()> {
    let refused = |message: String| Err(Error::input(message));
    let (first, of) = (&tables[0], tables[0].stamp.of);
    for (index, table) in tables.iter().enumerate() {
        let TableStamp { sweep, shard, of: others, .. } = &table.stamp;
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

/// Joins the tables of all shards of a sweep, in any order, to the table `out`; how many points it
/// has.
///
/// # Errors
/// Names the table that is of another sweep, cut short or there twice, or the shard that is
/// missing.
pub fn merge_shards(paths: &[PathBuf], out: &Path) -> Result<u64> {
    let mut tables = paths.iter().map(|path| ShardTable::open(path)).collect::<Result<Vec<_>>>()?;
    if tables.is_empty() {
        return Err(Error::input("no table to merge: all shards of a sweep are wanted"));
    }
    check_shards(&tables)?;
    let mut draft = AtomicFile::create(out).or_failed()?;
    let mut to = DigestWriter::new(&mut draft);
    writeln!(to, "{}", tables[0].header).or_failed()?;
    let mut points = 0;
    while let Some(table) =
        tables.iter_mut().find(|table| table.next.as_ref().is_some_and(|next| next.0 == points))
    {
        if let Some((_, line)) = &table.next {
            writeln!(to, "{line}").or_failed()?;
        }
        table.advance()?;
        points += 1;
    }
    let is_cut = |table: &&ShardTable| table.next.is_none() && table.rows != table.stamp.rows;
    if let Some(table) = tables.iter().find(is_cut) {
        return Err(table.stamp.cut_short(&table.path, table.rows));
    }
    if let Some((table, (at, _))) = tables.iter().find_map(|table| Some((table, table.next.as_ref()?))) {
        let name = &table.name;
        let wrong = match *at < points {
            true => format!("point {at} of {name} is in another table too"),
            false => format!("point {points} is in none of the tables, and point {at} is in {name}"),
        };
        return Err(Error::input(format!("{wrong}: all shards are wanted, each once")));
    }
    let table = to.finish();
    let whole = TableStamp { shard: 0, of: 1, rows: points, table, ..tables[0].stamp.clone() };
    for ShardTable { path, stamp, digest, .. } in tables {
        if digest.finish() != stamp.table {
            return Err(stamp.changed(&path));
        }
    }
    draft.publish().or_failed()?;
    whole.write(out)?;
    Ok(points)
}
