//! A table as a file: CSV, or Parquet where the name ends so, with the same columns and values.

use anyhow::Result;
use hwprofiles::Draft;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// A column of rows of a kind: its name, and its value in a row, which may be absent.
pub type Column<R> = (&'static str, Cell<R>);

/// What the values of a column are.
pub enum Cell<R> {
    /// Whole numbers: `INT64`.
    Count(fn(&R) -> Option<u64>),
    /// `DOUBLE`.
    Number(fn(&R) -> Option<f64>),
}

/// So many rows are made into columns at a time.
const GROUP: usize = 1 << 16;

/// Writes `rows`, in order; the file is there when all are written, or not at all.
///
/// # Errors
/// A path that cannot be written.
pub fn write<R>(path: &Path, columns: &[Column<R>], rows: &[R]) -> Result<()> {
    let mut draft = Draft::of(path)?;
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet")) {
        true => write_parquet(&mut draft, columns, rows)?,
        false => write_csv(&mut draft, columns, rows)?,
    }
    Ok(draft.publish()?)
}

fn write_csv<R>(to: &mut impl Write, columns: &[Column<R>], rows: &[R]) -> Result<()> {
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    writeln!(to, "{}", names.join(","))?;
    for row in rows {
        for (index, (_, cell)) in columns.iter().enumerate() {
            let text = match cell {
                Cell::Count(of) => of(row).map(|count| count.to_string()),
                Cell::Number(of) => of(row).map(|number| number.to_string()),
            };
            let comma = if index == 0 { "" } else { "," };
            write!(to, "{comma}{}", text.unwrap_or_default())?;
        }
        writeln!(to)?;
    }
    Ok(())
}

/// Not compressed: that would be another library, and whoever keeps many such files can compress them.
fn write_parquet<R>(to: &mut (impl Write + Send), columns: &[Column<R>], rows: &[R]) -> Result<()> {
    let field = |(name, cell): &Column<R>| {
        let (physical, logical) = match cell {
            Cell::Count(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Cell::Number(_) => (Physical::DOUBLE, None),
        };
        let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        builder.with_logical_type(logical).build().map(Arc::new)
    };
    let fields: Result<Vec<_>, _> = columns.iter().map(field).collect();
    let schema = Arc::new(Type::group_type_builder("table").with_fields(fields?).build()?);
    let mut writer = SerializedFileWriter::new(to, schema, Arc::new(WriterProperties::default()))?;
    for rows in rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        for (_, cell) in columns {
            let mut column = group.next_column()?.expect("there is a field for each column");
            match cell {
                Cell::Count(of) => {
                    let (there, counts) = split(rows, |row| of(row).map(|count| count as i64));
                    column.typed::<Int64Type>().write_batch(&counts, Some(&there), None)?;
                }
                Cell::Number(of) => {
                    let (there, numbers) = split(rows, of);
                    column.typed::<DoubleType>().write_batch(&numbers, Some(&there), None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Whether each row has a value, as Parquet's definition levels, and the values that there are.
fn split<R, T>(rows: &[R], of: impl Fn(&R) -> Option<T>) -> (Vec<i16>, Vec<T>) {
    let values: Vec<Option<T>> = rows.iter().map(of).collect();
    (values.iter().map(|value| i16::from(value.is_some())).collect(), values.into_iter().flatten().collect())
}
