//! A Parquet file that is written group by group.

use super::columns::{ColumnCells, ColumnType};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::Write;
use std::sync::Arc;

/// The file. It is not compressed: that would take another library, and whoever keeps many such
/// files can compress them.
pub(crate) struct ParquetTable<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> ParquetTable<W> {
    /// A table with these columns and no rows yet.
    pub(crate) fn new(to: W, columns: &[(&str, ColumnType)]) -> Result<Self> {
        let field = |&(name, column_type): &(&str, ColumnType)| {
            let (physical, logical) = match column_type {
                ColumnType::Count => (Physical::INT64, Some(LogicalType::integer(64, false))),
                ColumnType::Number => (Physical::DOUBLE, None),
                ColumnType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            let builder = Type::primitive_type_builder(name, physical);
            let builder = builder.with_repetition(Repetition::OPTIONAL);
            builder.with_logical_type(logical).build().map(Arc::new)
        };
        let fields: Result<Vec<_>> = columns.iter().map(field).collect();
        let schema = Arc::new(Type::group_type_builder("table").with_fields(fields?).build()?);
        Ok(Self(SerializedFileWriter::new(to, schema, Arc::new(WriterProperties::default()))?))
    }

    /// Adds rows, given by column in the order of the columns and with their types.
    pub(crate) fn write_group(&mut self, columns: Vec<ColumnCells>) -> Result<()> {
        let mut group = self.0.next_row_group()?;
        for cells in columns {
            let mut column = group.next_column()?.expect("there is a field for each column");
            match cells {
                ColumnCells::Counts(counts) => {
                    let (levels, counts) = levels_and_values(counts, |count| count as i64);
                    column.typed::<Int64Type>().write_batch(&counts, Some(&levels), None)?;
                }
                ColumnCells::Numbers(numbers) => {
                    let (levels, numbers) = levels_and_values(numbers, |number| number);
                    column.typed::<DoubleType>().write_batch(&numbers, Some(&levels), None)?;
                }
                ColumnCells::Texts(texts) => {
                    let bytes = |text: String| ByteArray::from(text.into_bytes());
                    let (levels, texts) = levels_and_values(texts, bytes);
                    column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes what belongs at the end of the file.
    pub(crate) fn finish(self) -> Result<()> {
        self.0.close()?;
        Ok(())
    }
}

/// Parquet's definition levels (1 where a row has a value), and the values that there are.
fn levels_and_values<V, T>(cells: Vec<Option<V>>, convert: impl Fn(V) -> T) -> (Vec<i16>, Vec<T>) {
    (
        cells.iter().map(|cell| i16::from(cell.is_some())).collect(),
        cells.into_iter().flatten().map(convert).collect(),
    )
}
