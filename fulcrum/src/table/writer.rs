//! Rows of a kind as a table: columns are functions of a row.

#[cfg(feature = "parquet")]
use super::columns::{ColumnCells, ColumnType};
use crate::error::{OrError, Result};
use hwprofiles::AtomicFile;
use std::io::Write;
use std::path::Path;

/// A column of rows of type `R`: its name, and its value in a row, which may be absent.
pub(crate) type TableColumn<R> = (&'static str, CellReader<R>);

/// How a column's value is read from a row.
pub(crate) enum CellReader<R> {
    /// A whole number.
    Count(fn(&R) -> Option<u64>),
    /// A number.
    Number(fn(&R) -> Option<f64>),
}

impl<R> CellReader<R> {
    fn text(&self, row: &R) -> String {
        let text = match self {
            Self::Count(count) => count(row).map(|count| count.to_string()),
            Self::Number(number) => number(row).map(|number| number.to_string()),
        };
        text.unwrap_or_default()
    }
}

/// Rows that are turned into columns at a time.
#[cfg(feature = "parquet")]
pub(crate) const ROWS_PER_GROUP: usize = 1 << 16;

/// Whether a table of that name is written as Parquet.
pub fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet"))
}

/// Writes `rows` in their order. The file appears when all are written, or not at all.
///
/// # Errors
/// The path cannot be written, or it asks for Parquet and this build has none.
pub(crate) fn write_table<R>(path: &Path, columns: &[TableColumn<R>], rows: &[R]) -> Result<()> {
    let mut draft = AtomicFile::create(path).or_failed()?;
    match is_parquet(path) {
        true => write_parquet(&mut draft, columns, rows)?,
        false => write_csv(&mut draft, columns, rows).or_failed()?,
    }
    draft.publish().or_failed()
}

fn write_csv<R>(to: &mut impl Write, columns: &[TableColumn<R>], rows: &[R]) -> std::io::Result<()> {
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    writeln!(to, "{}", names.join(","))?;
    for row in rows {
        let cells: Vec<_> = columns.iter().map(|(_, cell)| cell.text(row)).collect();
        writeln!(to, "{}", cells.join(","))?;
    }
    Ok(())
}

#[cfg(feature = "parquet")]
fn write_parquet<R>(to: &mut (impl Write + Send), columns: &[TableColumn<R>], rows: &[R]) -> Result<()> {
    let column_type = |cell: &CellReader<R>| match cell {
        CellReader::Count(_) => ColumnType::Count,
        CellReader::Number(_) => ColumnType::Number,
    };
    let named: Vec<_> = columns.iter().map(|(name, cell)| (*name, column_type(cell))).collect();
    let mut table = super::ParquetTable::new(to, &named).or_failed()?;
    for rows in rows.chunks(ROWS_PER_GROUP) {
        let cells = columns.iter().map(|(_, cell)| match cell {
            CellReader::Count(count) => ColumnCells::Counts(rows.iter().map(count).collect()),
            CellReader::Number(number) => ColumnCells::Numbers(rows.iter().map(number).collect()),
        });
        table.write_group(cells.collect()).or_failed()?;
    }
    table.finish().or_failed()
}

#[cfg(not(feature = "parquet"))]
fn write_parquet<R>(_: &mut impl Write, _: &[TableColumn<R>], _: &[R]) -> Result<()> {
    Err(crate::error::Error::input(NO_PARQUET))
}

/// What to say where Parquet is wanted and the feature is off.
#[cfg(not(feature = "parquet"))]
pub(crate) const NO_PARQUET: &str =
    "this program was built without Parquet (feature `parquet`): name a .csv file";
