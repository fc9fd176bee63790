//! Rows in the order in which they are finished, so that nothing that stops a sweep loses any.
//!
//! The first line says which sweep it is. Each further line is a row's place, a blank and the row.
//! A line without a line end was not finished.

use super::row::SweepColumns;
use super::shard_stamp::ShardStamp;
use crate::error::{Error, ErrorContext, OrError, Result};
use crate::table::is_parquet;
#[cfg(feature = "parquet")]
use crate::table::{ColumnCells, ColumnType, ParquetTable, ROWS_PER_GROUP, cells};
use hwprofiles::Draft;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A sweep's journal.
pub(crate) struct SweepJournal {
    path: PathBuf,
    file: File,
    /// Where the next line goes.
    end: u64,
    /// By place: where the row begins, and its bytes; `None` where it is not finished.
    rows: Vec<Option<(u64, u32)>>,
}

impl SweepJournal {
    /// The journal beside `out` of the sweep `identity` with this many places, and which rows are
    /// finished.
    ///
    /// # Errors
    /// There is one of another sweep, or one that must not be resumed, or the path cannot be
    /// written.
    pub(crate) fn open(out: &Path, identity: &str, places: u64, resume: bool) -> Result<(Self, Vec<bool>)> {
        if out.is_dir() {
            let message = format!("-o {}: it is a folder, and a file is wanted", out.display());
            return Err(Error::input(message));
        }
        let mut name = OsString::from(out);
        name.push(".journal");
        let path = PathBuf::from(name);
        let shown = path.display().to_string();
        if path.exists() && !resume {
            return Err(Error::input(format!(
                "{shown} is of a sweep that did not end: --resume goes on with it, or remove it to begin anew"
            )));
        }
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.or_failed().within(|| format!("{shown} cannot be written"))?;
        let mut journal = Self { path, file, end: 0, rows: vec![None; places as usize] };
        if !journal.read(&format!("sweep {identity}"))? {
            return Err(Error::input(format!(
                "{shown} is of another sweep (another scenario, other lists or files, another shard or another version): remove \
                 it to begin anew"
            )));
        }
        let done = journal.rows.iter().map(Option::is_some).collect();
        Ok((journal, done))
    }

    /// Reads the rows that are there, or begins a journal; `false` where it is of another sweep.
    fn read(&mut self, title: &str) -> Result<bool> {
        let mut reader = BufReader::new(&self.file);
        let mut line = Vec::new();
        let (mut end, mut first) = (0, true);
        loop {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line).or_failed()? as u64;
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
                *row = Some((end + blank as u64 + 1, (line.len() - blank - 1) as u32));
            }
            first = false;
            end += bytes;
        }
        drop(reader);
        // A line that was not finished is written again.
        self.cut_to(end).or_failed()?;
        self.end = end;
        if first {
            self.append(title)?;
        }
        Ok(true)
    }

    /// Makes the file end, and the next line begin, at `end`.
    fn cut_to(&mut self, end: u64) -> io::Result<()> {
        self.file.set_len(end)?;
        self.file.seek(SeekFrom::Start(end)).map(drop)
    }

    fn append(&mut self, line: &str) -> Result<()> {
        if let Err(error) = self.file.write_all(format!("{line}\n").as_bytes()) {
            // The part of the row for which there was room is no row, and no row may follow it.
            let _ = self.cut_to(self.end);
            let message = "cannot be written: the rows that are there are safe, --resume goes on behind them";
            return Err(Error::failed(error).within(&format!("{} {message}", self.path.display())));
        }
        self.end += line.len() as u64 + 1;
        Ok(())
    }

    /// Adds the row of `place`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn add(&mut self, place: u64, row: &str) -> Result<()> {
        let number = place.to_string();
        let start = self.end + number.len() as u64 + 1;
        self.append(&format!("{number} {row}"))?;
        self.rows[place as usize] = Some((start, row.len() as u32));
        Ok(())
    }

    /// Writes the rows at `places` under the names of `columns` to `out`, shows each to `see`,
    /// writes the stamp of a shard, and removes the journal.
    ///
    /// # Errors
    /// A file cannot be written; the journal stays.
    pub(crate) fn publish(
        mut self,
        columns: &SweepColumns,
        out: &Path,
        stamp: Option<ShardStamp>,
        places: &mut dyn Iterator<Item = usize>,
        see: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let written = self.write(columns, out, places, see);
        written.within(|| {
            let (out, journal) = (out.display(), self.path.display());
            format!("{out} cannot be written: its rows are safe in {journal}, --resume writes them")
        })?;
        match stamp {
            Some(stamp) => stamp.write(out)?,
            // A stamp that an earlier sweep left here would be of another table.
            None => drop(std::fs::remove_file(ShardStamp::path(out))),
        }
        std::fs::remove_file(&self.path).or_failed()
    }

    fn write(
        &mut self,
        columns: &SweepColumns,
        out: &Path,
        places: &mut dyn Iterator<Item = usize>,
        see: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut draft = Draft::of(out).or_failed()?;
        match is_parquet(out) {
            true => self.write_parquet(columns, &mut draft, places, see)?,
            false => {
                writeln!(draft, "{}", columns.header()).or_failed()?;
                for place in places {
                    let row = self.row(place)?;
                    see(&row);
                    writeln!(draft, "{row}").or_failed()?;
                }
            }
        }
        draft.publish().or_failed()
    }

    /// The row at `place`.
    ///
    /// # Errors
    /// It is not finished, or the file cannot be read.
    pub(crate) fn row(&mut self, place: usize) -> Result<String> {
        let unfinished = || Error::failed(format!("{}: row {place} is not there", self.path.display()));
        let (start, bytes) = self.rows[place].ok_or_else(unfinished)?;
        let mut row = vec![0; bytes as usize];
        self.file.seek(SeekFrom::Start(start)).or_failed()?;
        self.file.read_exact(&mut row).or_failed()?;
        // The next row is added at the end.
        self.file.seek(SeekFrom::Start(self.end)).or_failed()?;
        String::from_utf8(row).or_failed()
    }

    #[cfg(feature = "parquet")]
    fn write_parquet(
        &mut self,
        columns: &SweepColumns,
        to: &mut Draft,
        places: &mut dyn Iterator<Item = usize>,
        see: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let named = columns.named();
        let borrowed: Vec<_> = named.iter().map(|(name, of)| (name.as_str(), *of)).collect();
        let mut table = ParquetTable::new(to, &borrowed).or_failed()?;
        let mut places = places.peekable();
        while places.peek().is_some() {
            let mut by_column: Vec<Vec<Option<String>>> = vec![Vec::new(); named.len()];
            for place in places.by_ref().take(ROWS_PER_GROUP) {
                let row = self.row(place)?;
                see(&row);
                let row = cells(&row);
                if row.len() != named.len() {
                    let message = format!("row {place} has {} cells of {}", row.len(), named.len());
                    return Err(Error::failed(message));
                }
                let filled = row.into_iter().map(|cell| Some(cell).filter(|cell| !cell.is_empty()));
                by_column.iter_mut().zip(filled).for_each(|(column, cell)| column.push(cell));
            }
            let group = by_column.into_iter().zip(&named).map(|(cells, (_, of))| match of {
                ColumnType::Count => {
                    ColumnCells::Counts(cells.into_iter().map(|cell| cell?.parse().ok()).collect())
                }
                ColumnType::Number => {
                    ColumnCells::Numbers(cells.into_iter().map(|cell| cell?.parse().ok()).collect())
                }
                ColumnType::Text => ColumnCells::Texts(cells),
            });
            table.write_group(group.collect()).or_failed()?;
        }
        table.finish().or_failed()
    }

    #[cfg(not(feature = "parquet"))]
    fn write_parquet(
        &mut self,
        _: &SweepColumns,
        _: &mut Draft,
        _: &mut dyn Iterator<Item = usize>,
        _: &mut dyn FnMut(&str),
    ) -> Result<()> {
        Err(Error::input(crate::table::NO_PARQUET))
    }
}
