//! A table as a file: CSV, or Parquet where the name ends so, with the same columns and values.

use anyhow::Result;
use hwprofiles::Draft;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
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

/// What the values of a column of Parquet are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers: `INT64`.
    Count,
    /// `DOUBLE`.
    Number,
    /// `BYTE_ARRAY` of UTF-8.
    Text,
}

/// Some rows' values of a column.
pub enum Values {
    Counts(Vec<Option<u64>>),
    Numbers(Vec<Option<f64>>),
    Texts(Vec<Option<String>>),
}

/// So many rows are made into columns at a time.
pub const GROUP: usize = 1 << 16;

/// Whether a file of that name is Parquet.
pub fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet"))
}

/// Writes `rows`, in order; the file is there when all are written, or not at all.
///
/// # Errors
/// A path that cannot be written.
pub fn write<R>(path: &Path, columns: &[Column<R>], rows: &[R]) -> Result<()> {
    let mut draft = Draft::of(path)?;
    match is_parquet(path) {
        true => write_columns(&mut draft, columns, rows)?,
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

fn write_columns<R>(to: &mut (impl Write + Send), columns: &[Column<R>], rows: &[R]) -> Result<()> {
    let kind = |cell: &Cell<R>| match cell {
        Cell::Count(_) => Kind::Count,
        Cell::Number(_) => Kind::Number,
    };
    let named: Vec<_> = columns.iter().map(|(name, cell)| (*name, kind(cell))).collect();
    let mut table = ParquetTable::new(to, &named)?;
    for rows in rows.chunks(GROUP) {
        let values = columns.iter().map(|(_, cell)| match cell {
            Cell::Count(of) => Values::Counts(rows.iter().map(of).collect()),
            Cell::Number(of) => Values::Numbers(rows.iter().map(of).collect()),
        });
        table.group(values.collect())?;
    }
    table.end()
}

/// A Parquet file in the making. Not compressed: that would be another library, and whoever keeps many such files can compress
/// them.
pub struct ParquetTable<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> ParquetTable<W> {
    /// Without a row, with these columns.
    pub fn new(to: W, columns: &[(&str, Kind)]) -> Result<Self> {
        let field = |&(name, kind): &(&str, Kind)| {
            let (physical, logical) = match kind {
                Kind::Count => (Physical::INT64, Some(LogicalType::integer(64, false))),
                Kind::Number => (Physical::DOUBLE, None),
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
            builder.with_logical_type(logical).build().map(Arc::new)
        };
        let fields: Result<Vec<_>, _> = columns.iter().map(field).collect();
        let schema = Arc::new(Type::group_type_builder("table").with_fields(fields?).build()?);
        Ok(Self(SerializedFileWriter::new(to, schema, Arc::new(WriterProperties::default()))?))
    }

    /// Adds rows, by column, in the order of the columns and of their kinds.
    pub fn group(&mut self, columns: Vec<Values>) -> Result<()> {
        let mut group = self.0.next_row_group()?;
        for values in columns {
            let mut column = group.next_column()?.expect("there is a field for each column");
            match values {
                Values::Counts(counts) => {
                    let (there, counts) = split(counts, |count| count as i64);
                    column.typed::<Int64Type>().write_batch(&counts, Some(&there), None)?;
                }
                Values::Numbers(numbers) => {
                    let (there, numbers) = split(numbers, |number| number);
                    column.typed::<DoubleType>().write_batch(&numbers, Some(&there), None)?;
                }
                Values::Texts(texts) => {
                    let (there, texts) = split(texts, |text| ByteArray::from(text.into_bytes()));
                    column.typed::<ByteArrayType>().write_batch(&texts, Some(&there), None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes what belongs at the end.
    pub fn end(self) -> Result<()> {
        self.0.close()?;
        Ok(())
    }
}

/// Whether each row has a value, as Parquet's definition levels, and the values that there are.
fn split<V, T>(values: Vec<Option<V>>, of: impl Fn(V) -> T) -> (Vec<i16>, Vec<T>) {
    (
        values.iter().map(|value| i16::from(value.is_some())).collect(),
        values.into_iter().flatten().map(of).collect(),
    )
}
