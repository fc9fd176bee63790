//! Tables of a GPU's layer times: the format that LLMServingSim publishes, and all-reduces beside
//! it. Times are in microseconds.
//!
//! | table | columns | a row is |
//! |---|---|---|
//! | dense | `layer, tokens, time_us` | a call of a layer that depends on tokens alone |
//! | per sequence | `layer, sequences, time_us` | work of the sampled sequences |
//! | attention | `prefill_chunk, kv_prefill, n_decode, kv_decode, time_us` | a layer's attention |
//! | experts | `tokens, activated_experts, time_us` | a layer's experts, router included |
//! | all-reduce | `ranks, bytes, time_us` | one sum over so many GPUs |

use hwprofiles::{RowsError, TableRows};

/// The largest number in a table: tokens, sequences, bytes or microseconds (three hours).
const LARGEST: f64 = 1e10;

/// A table's text, and the name of its file in messages.
#[derive(Debug, Clone, Copy)]
pub struct TableText<'a> {
    /// The file, as the user named it.
    pub file: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// The tables of one model on one kind of GPU, for one number of GPUs that share a layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerTables<'a> {
    /// Layers by tokens.
    pub dense: TableText<'a>,
    /// The head and the sampler, by sequences.
    pub per_sequence: TableText<'a>,
    /// Attention.
    pub attention: TableText<'a>,
    /// The experts, where the model has some.
    pub experts: Option<TableText<'a>>,
    /// All-reduces, where several GPUs share a layer.
    pub all_reduce: Option<TableText<'a>>,
}

/// A row of a table of named layers.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerRow {
    /// The layer.
    pub layer: String,
    /// Tokens or sequences.
    pub count: f64,
    /// The time of one call.
    pub microseconds: f64,
}

impl TableText<'_> {
    /// The error for the whole table.
    pub(crate) fn refuse(&self, message: &str) -> RowsError {
        let (file, message) = (self.file.to_owned(), message.to_owned());
        RowsError { file, line: 1, column: String::new(), message }
    }

    /// The rows of named layers, by the column `counted`.
    ///
    /// # Errors
    /// Names the line and the column that is wrong.
    pub fn layers(&self, counted: &str) -> Result<Vec<LayerRow>, RowsError> {
        let mut rows = TableRows::new(self.text.as_bytes(), self.file)?;
        let [layer, count, time] = rows.columns(["layer", counted, "time_us"])?;
        let mut all = Vec::new();
        while rows.advance()? {
            all.push(LayerRow {
                layer: String::from_utf8_lossy(rows.cell(layer)).into_owned(),
                count: rows.number(count, 0.0..=LARGEST)?,
                microseconds: rows.number(time, 0.0..=LARGEST)?,
            });
        }
        self.unless_empty(all)
    }

    /// The rows of points: the numbers of `columns`, and the time in microseconds.
    ///
    /// # Errors
    /// Names the line and the column that is wrong.
    pub fn points<const N: usize>(&self, columns: [&str; N]) -> Result<Vec<([f64; N], f64)>, RowsError> {
        let mut rows = TableRows::new(self.text.as_bytes(), self.file)?;
        let at = rows.columns(columns)?;
        let [time] = rows.columns(["time_us"])?;
        let mut all = Vec::new();
        while rows.advance()? {
            let mut point = [0.0; N];
            for (number, column) in point.iter_mut().zip(at) {
                *number = rows.number(column, 0.0..=LARGEST)?;
            }
            all.push((point, rows.number(time, 0.0..=LARGEST)?));
        }
        self.unless_empty(all)
    }

    fn unless_empty<T>(&self, rows: Vec<T>) -> Result<Vec<T>, RowsError> {
        match rows.is_empty() {
            true => Err(self.refuse("there are no rows below the header: give at least one")),
            false => Ok(rows),
        }
    }
}
