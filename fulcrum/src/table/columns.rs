//! What columns hold.

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    /// Whole numbers.
    Count,
    /// Numbers.
    Number,
    /// Texts.
    Text,
}

/// The values of a column in some rows.
#[cfg(feature = "parquet")]
pub(crate) enum ColumnCells {
    Counts(Vec<Option<u64>>),
    Numbers(Vec<Option<f64>>),
    Texts(Vec<Option<String>>),
}
