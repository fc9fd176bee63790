//! A Parquet file as columns of a report.

use crate::exit::{Outcome, Sort};
use anyhow::{Context, Result};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use reports::{DataColumn, DataTable, Values};
use std::fs::File;
use std::path::Path;

/// Reads the table that a file holds.
///
/// # Errors
/// Names the file that cannot be read: it is cut short, or compressed in a way that this program was not built with.
pub fn read(path: &Path) -> Outcome<DataTable> {
    columns(path).with_context(|| format!("{}: cannot be read as Parquet", path.display())).or_input()
}

fn columns(path: &Path) -> Result<DataTable> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let names: Vec<_> = fields.iter().map(|field| field.name().to_owned()).collect();
    let mut cells: Vec<Vec<Field>> = vec![Vec::new(); names.len()];
    for row in reader.get_row_iter(None)? {
        for (cells, (_, field)) in cells.iter_mut().zip(row?.into_columns()) {
            cells.push(field);
        }
    }
    let columns =
        names.into_iter().zip(cells).map(|(name, cells)| DataColumn { name, values: values(&cells) });
    Ok(DataTable::of(columns.collect()))
}

/// Numbers, where all of them are or are missing; words otherwise.
fn values(cells: &[Field]) -> Values {
    let numbers: Option<Vec<f64>> = cells.iter().map(number).collect();
    numbers.map(Values::Numbers).unwrap_or_else(|| {
        let words: Vec<_> = cells.iter().map(word).collect();
        Values::words(words.iter().map(String::as_str))
    })
}

fn number(cell: &Field) -> Option<f64> {
    match *cell {
        Field::Null => Some(f64::NAN),
        Field::Int(value) => Some(f64::from(value)),
        Field::Long(value) => Some(value as f64),
        Field::ULong(value) => Some(value as f64),
        Field::Float(value) => Some(f64::from(value)),
        Field::Double(value) => Some(value),
        _ => None,
    }
}

fn word(cell: &Field) -> String {
    match cell {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        other => other.to_string(),
    }
}
