//! Tables as files: CSV, and Parquet with the same columns and values.

mod columns;
#[cfg(feature = "parquet")]
mod parquet_reader;
#[cfg(feature = "parquet")]
mod parquet_writer;
mod text_row;
mod writer;

#[cfg(feature = "parquet")]
pub(crate) use columns::ColumnCells;
pub(crate) use columns::ColumnType;
#[cfg(feature = "parquet")]
pub(crate) use parquet_reader::read_parquet;
#[cfg(feature = "parquet")]
pub(crate) use parquet_writer::ParquetTable;
pub(crate) use text_row::{cells, one_line, quoted};
#[cfg(not(feature = "parquet"))]
pub(crate) use writer::NO_PARQUET;
#[cfg(feature = "parquet")]
pub(crate) use writer::ROWS_PER_GROUP;
pub use writer::is_parquet;
pub(crate) use writer::{CellReader, TableColumn, write_table};
