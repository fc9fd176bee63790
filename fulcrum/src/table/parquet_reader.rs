//! A Parquet file as columns of a report.

use crate::error::{ErrorContext, OrError, Result};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use reports::{ColumnValues, DataColumn, DataTable};
use std::error::Error as StdError;
use std::panic;
use std::path::Path;

/// Reads the table that a file holds.
///
/// # Errors
/// Names the file that cannot be read: it is cut short, or compressed in a way that this program
/// was not built with.
pub(crate) fn read_parquet(path: &Path) -> Result<DataTable> {
    // The library trusts what a file says about itself, and panics where that is not so.
    let read = panic::catch_unwind(|| read_columns(path));
    let table = read.unwrap_or_else(|_| Err("its parts contradict each other".into())).or_input();
    table.within(|| format!("{}: cannot be read as Parquet", path.display()))
}

fn read_columns(path: &Path) -> Result<DataTable, Box<dyn StdError + Send + Sync>> {
    let reader = SerializedFileReader::new(hwprofiles::open_input(path)?)?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let names: Vec<_> = fields.iter().map(|field| field.name().to_owned()).collect();
    let mut cells: Vec<Vec<Field>> = vec![Vec::new(); names.len()];
    for row in reader.get_row_iter(None)? {
        for (cells, (_, field)) in cells.iter_mut().zip(row?.into_columns()) {
            cells.push(field);
        }
    }
    let column = |(name, cells): (String, Vec<Field>)| DataColumn { name, values: values(&cells) };
    Ok(DataTable::from_columns(names.into_iter().zip(cells).map(column).collect()))
}

/// Numbers, where every cell is a number or absent; words otherwise.
fn values(cells: &[Field]) -> ColumnValues {
    match cells.iter().map(Number::from_field).collect::<Option<Vec<_>>>() {
        Some(numbers) => {
            let finite = |number: &Number| number.0.filter(|value| value.is_finite());
            ColumnValues::Numbers(numbers.iter().map(finite).collect())
        }
        None => {
            let words: Vec<_> = cells.iter().map(word).collect();
            ColumnValues::from_words(words.iter().map(String::as_str))
        }
    }
}

/// A cell of a column of numbers, which may be absent.
struct Number(Option<f64>);

impl Number {
    /// `None` where the cell holds something else than a number.
    fn from_field(cell: &Field) -> Option<Self> {
        let number = match *cell {
            Field::Null => None,
            Field::Int(value) => Some(f64::from(value)),
            Field::Long(value) => Some(value as f64),
            Field::ULong(value) => Some(value as f64),
            Field::Float(value) => Some(f64::from(value)),
            Field::Double(value) => Some(value),
            _ => return None,
        };
        Some(Self(number))
    }
}

fn word(cell: &Field) -> String {
    match cell {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{ColumnCells, ColumnType, ParquetTable};

    #[test]
    fn no_changed_byte_is_a_panic() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("table.parquet");
        let mut good = Vec::new();
        let columns =
            [("point", ColumnType::Count), ("time", ColumnType::Number), ("plan", ColumnType::Text)];
        let mut table = ParquetTable::new(&mut good, &columns).expect("a table");
        let cells = vec![
            ColumnCells::Counts((0..20).map(Some).collect()),
            ColumnCells::Numbers((0..20).map(|row| Some(f64::from(row))).collect()),
            ColumnCells::Texts((0..20).map(|row| Some(format!("plan {row}"))).collect()),
        ];
        table.write_group(cells).expect("written");
        table.finish().expect("written");
        let mut refused = 0;
        for (at, change) in (0..good.len()).flat_map(|at| [1, 0x80, 0xff].map(|change| (at, change))) {
            let mut bad = good.clone();
            bad[at] ^= change;
            std::fs::write(&path, bad).expect("written");
            match read_parquet(&path) {
                Ok(_) => {}
                Err(error) => {
                    assert!(error.to_string().contains("table.parquet"), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > good.len(), "{refused} of three changes of each of {} bytes", good.len());
    }
}
