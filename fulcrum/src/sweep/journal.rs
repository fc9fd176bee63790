//! The rows of a sweep in the order in which they are finished, and the table that is made of them.

use super::row::SweepColumns;
use super::table_stamp::{DigestWriter, TableStamp};
use crate::error::{Error, ErrorContext, OrError, Result};
use crate::journal::{Journal, JournalTask};
use crate::table::is_parquet;
#[cfg(feature = "parquet")]
use crate::table::{ColumnCells, ColumnType, ParquetTable, ROWS_PER_GROUP, cells};
use hwprofiles::AtomicFile;
use std::io::Write;
use std::path::Path;

/// A sweep's journal.
pub(crate) struct SweepJournal(Journal);

impl SweepJournal {
    /// The journal beside `out` of the sweep `identity` with this many places.
    ///
    /// # Errors
    /// Another process is at work on it, there is one of another sweep, or one that must not be
    /// resumed, or the path cannot be written.
    pub(crate) fn open(out: &Path, identity: &str, places: u64, resume: bool) -> Result<Self> {
        let differs_in = "another scenario, other lists or files, another shard, or another version or build";
        Journal::open(out, JournalTask { name: "sweep", differs_in, identity, places, resume }).map(Self)
    }

    /// Which rows are finished, by place.
    pub(crate) fn finished(&self) -> Vec<bool> {
        self.0.finished()
    }

    /// Rows that have changed since they were written; they are not finished.
    pub(crate) fn damaged(&self) -> u64 {
        self.0.damaged()
    }

    /// Adds the row of `place`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn add(&mut self, place: u64, row: &str) -> Result<()> {
        self.0.add(place, row)
    }

    /// The row at `place`.
    ///
    /// # Errors
    /// It is not finished, or the file cannot be read.
    pub(crate) fn row(&mut self, place: usize) -> Result<String> {
        self.0.text(place)
    }

    /// Writes the rows at `places` under the names of `columns` to `out`, shows each to `see`,
    /// writes the table's stamp, and removes the journal.
    ///
    /// # Errors
    /// A file cannot be written; the journal stays.
    pub(crate) fn publish(
        mut self,
        columns: &SweepColumns,
        out: &Path,
        stamp: TableStamp,
        places: &mut dyn Iterator<Item = usize>,
        see: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let written = self.write(columns, out, places, see);
        let digest = written.within(|| {
            let (out, journal) = (out.display(), self.0.path().display());
            format!("{out} cannot be written: its rows are safe in {journal}, --resume writes them")
        })?;
        TableStamp { table: digest, ..stamp }.write(out)?;
        self.0.remove()
    }

    /// Writes the table; the digest of its file.
    fn write(
        &mut self,
        columns: &SweepColumns,
        out: &Path,
        places: &mut dyn Iterator<Item = usize>,
        see: &mut dyn FnMut(&str),
    ) -> Result<String> {
        let mut draft = AtomicFile::create(out).or_failed()?;
        let mut to = DigestWriter::new(&mut draft);
        match is_parquet(out) {
            true => self.write_parquet(columns, &mut to, places, see)?,
            false => {
                writeln!(to, "{}", columns.header()).or_failed()?;
                for place in places {
                    let row = self.row(place)?;
                    see(&row);
                    writeln!(to, "{row}").or_failed()?;
                }
            }
        }
        let digest = to.finish();
        draft.publish().or_failed()?;
        Ok(digest)
    }

    #[cfg(feature = "parquet")]
    fn write_parquet(
        &mut self,
        columns: &SweepColumns,
        to: &mut DigestWriter<&mut AtomicFile>,
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
        _: &mut DigestWriter<&mut AtomicFile>,
        _: &mut dyn Iterator<Item = usize>,
        _: &mut dyn FnMut(&str),
    ) -> Result<()> {
        Err(Error::input(crate::table::NO_PARQUET))
    }
}
