//! Rows in the order in which they are finished, so that whatever stops a sweep loses none of them.
//!
//! The first line says which sweep it is; each further one is a point's position, a blank and its row. A line without its end
//! is one that was not finished.

use super::row::{self, Columns};
use super::stamp::ShardStamp;
use crate::exit::{Failure, Outcome, Sort};
use crate::table_file::{GROUP, Kind, ParquetTable, Values, is_parquet};
use anyhow::{Context, anyhow};
use hwprofiles::Draft;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A sweep's journal.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Where the next line goes.
    end: u64,
    /// By position: where the row stands, and its bytes; zero bytes where it is not finished.
    rows: Vec<(u64, u32)>,
}

impl Journal {
    /// The journal beside `out` of the sweep `fingerprint` of so many points, and which of them are finished.
    ///
    /// # Errors
    /// One that is there without `resume`, of another sweep, or a path that cannot be written.
    pub fn open(out: &Path, fingerprint: &str, points: u64, resume: bool) -> Outcome<(Self, Vec<bool>)> {
        if out.is_dir() {
            return Err(Failure::Input(anyhow!(
                "-o {}: it is a folder, and a file is wanted",
                out.display()
            )));
        }
        let mut name = OsString::from(out);
        name.push(".journal");
        let path = PathBuf::from(name);
        let shown = path.display().to_string();
        if path.exists() && !resume {
            return Err(Failure::Input(anyhow!(
                "{shown} is of a sweep that did not end: --resume goes on with it, or remove it to begin anew"
            )));
        }
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.with_context(|| format!("{shown} cannot be written")).or_failed()?;
        let mut journal = Self { path, file, end: 0, rows: vec![(0, 0); points as usize] };
        let title = format!("sweep {fingerprint}");
        match journal.read(&title).or_failed()? {
            true => {}
            false => {
                return Err(Failure::Input(anyhow!(
                    "{shown} is of another sweep (another scenario, other lists or files, another shard or another version): remove \
                     it to begin anew"
                )));
            }
        }
        let done = journal.rows.iter().map(|(_, bytes)| *bytes > 0).collect();
        Ok((journal, done))
    }

    /// Reads what is there, or begins; `false` where it is of another sweep.
    fn read(&mut self, title: &str) -> anyhow::Result<bool> {
        let mut reader = BufReader::new(&self.file);
        let mut line = Vec::new();
        let (mut end, mut first) = (0, true);
        loop {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line)? as u64;
            if line.pop() != Some(b'\n') {
                break;
            }
            if first && line != title.as_bytes() {
                return Ok(false);
            }
            if !first
                && let Some(blank) = line.iter().position(|&byte| byte == b' ')
                && let Some(position) =
                    std::str::from_utf8(&line[..blank]).ok().and_then(|text| text.parse::<usize>().ok())
                && let Some(row) = self.rows.get_mut(position)
            {
                *row = (end + blank as u64 + 1, (line.len() - blank - 1) as u32);
            }
            first = false;
            end += bytes;
        }
        drop(reader);
        // A line that was not finished is written again.
        self.file.set_len(end)?;
        self.file.seek(SeekFrom::Start(end))?;
        self.end = end;
        if first {
            self.append(title)?;
        }
        Ok(true)
    }

    fn append(&mut self, line: &str) -> anyhow::Result<()> {
        if let Err(error) = self.file.write_all(format!("{line}\n").as_bytes()) {
            // What there was room for is no row, and nothing may come behind it.
            let _ = self.file.set_len(self.end).and_then(|()| self.file.seek(SeekFrom::Start(self.end)));
            let message = "cannot be written: the rows that are there are safe, --resume goes on behind them";
            return Err(error).with_context(|| format!("{} {message}", self.path.display()));
        }
        self.end += line.len() as u64 + 1;
        Ok(())
    }

    /// The row of the point at `position` is there.
    pub fn add(&mut self, position: u64, row: &str) -> anyhow::Result<()> {
        let number = position.to_string();
        let start = self.end + number.len() as u64 + 1;
        self.append(&format!("{number} {row}"))?;
        self.rows[position as usize] = (start, row.len() as u32);
        Ok(())
    }

    /// Writes the rows at `positions` under the names of `columns` to `out`, shows each to `see`, writes the stamp of a shard, and
    /// removes the journal.
    pub fn publish(
        mut self,
        columns: &Columns,
        out: &Path,
        stamp: Option<ShardStamp>,
        positions: &mut dyn Iterator<Item = usize>,
        see: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        self.write(columns, out, positions, see).with_context(|| {
            let (out, journal) = (out.display(), self.path.display());
            format!("{out} cannot be written: its rows are safe in {journal}, --resume writes them")
        })?;
        match stamp {
            Some(stamp) => stamp.write(out)?,
            // A stamp that an earlier sweep left here would be of another table.
            None => drop(std::fs::remove_file(ShardStamp::path(out))),
        }
        std::fs::remove_file(&self.path)?;
        Ok(())
    }

    fn write(
        &mut self,
        columns: &Columns,
        out: &Path,
        positions: &mut dyn Iterator<Item = usize>,
        see: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        let mut draft = Draft::of(out)?;
        match is_parquet(out) {
            true => self.write_parquet(columns, &mut draft, positions, see)?,
            false => {
                writeln!(draft, "{}", columns.header())?;
                for at in positions {
                    let row = self.row(at)?;
                    see(&row);
                    writeln!(draft, "{row}")?;
                }
            }
        }
        Ok(draft.publish()?)
    }

    /// The row at a position, which is there.
    pub fn row(&mut self, at: usize) -> anyhow::Result<String> {
        let (start, bytes) = self.rows[at];
        let mut row = vec![0; bytes as usize];
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_exact(&mut row)?;
        // Where the next one is added.
        self.file.seek(SeekFrom::Start(self.end))?;
        Ok(String::from_utf8(row)?)
    }

    fn write_parquet(
        &mut self,
        columns: &Columns,
        to: &mut Draft,
        positions: &mut dyn Iterator<Item = usize>,
        see: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        let named = columns.named();
        let borrowed: Vec<_> = named.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
        let mut table = ParquetTable::new(to, &borrowed)?;
        let mut positions = positions.peekable();
        while positions.peek().is_some() {
            let mut by_column: Vec<Vec<Option<String>>> = vec![Vec::new(); named.len()];
            for at in positions.by_ref().take(GROUP) {
                let row = self.row(at)?;
                see(&row);
                let row = row::cells(&row);
                anyhow::ensure!(
                    row.len() == named.len(),
                    "row {at} has {} cells of {}",
                    row.len(),
                    named.len()
                );
                let filled = row.into_iter().map(|cell| Some(cell).filter(|cell| !cell.is_empty()));
                by_column.iter_mut().zip(filled).for_each(|(column, cell)| column.push(cell));
            }
            let group = by_column.into_iter().zip(&named).map(|(cells, (_, kind))| match kind {
                Kind::Count => Values::Counts(cells.into_iter().map(|cell| cell?.parse().ok()).collect()),
                Kind::Number => Values::Numbers(cells.into_iter().map(|cell| cell?.parse().ok()).collect()),
                Kind::Text => Values::Texts(cells),
            });
            table.group(group.collect())?;
        }
        table.end()
    }
}
