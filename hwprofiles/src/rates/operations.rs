//! Operators in bulk: rows of a CSV file, each an operator whose time is wanted.
//!
//! Columns are found by name, in any order. Others are ignored:
//!
//! - matrix products: `dtype`, `m`, `n`, `k`;
//! - attention: `phase`, `batch`, `new_tokens`, `past_tokens`, `heads`, `kv_heads`, `head_dim`, and
//!   `dtype` of the KV cache, which is bf16 without the column;
//! - both: `gpu`, the device of the row, and `latency_us`, a measured time to compare with.
//!
//! One file may hold both kinds. A row leaves the cells of the other kind empty.

use crate::files::{RowsError, TableRows};
use crate::rates::attention::{AttentionShape, Phase};
use crate::units::{DType, Seconds};
use std::fmt;
use std::io::BufRead;

/// The operator of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// y[m, n] = x[m, k] · W[n, k]ᵀ.
    Gemm {
        /// Format of the weights.
        dtype: DType,
        /// Rows of x.
        m: u64,
        /// Rows of W.
        n: u64,
        /// Columns of W.
        k: u64,
    },
    /// Attention of one layer.
    Attention {
        /// Format of the KV cache.
        kv: DType,
        /// Its shape.
        shape: AttentionShape,
    },
}

impl Operation {
    /// The kind in words: "bf16 products", "decode attention".
    pub fn kind(&self) -> String {
        match self {
            Operation::Gemm { dtype, .. } => format!("{dtype} products"),
            Operation::Attention { shape, .. } => format!("{} attention", shape.phase),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Gemm { dtype, m, n, k } => write!(f, "{dtype} m {m}, n {n}, k {k}"),
            Operation::Attention { kv, shape: s } => write!(
                f,
                "{} {kv}, batch {}, tokens {} new {} past, heads {} over {} of {}",
                s.phase, s.batch, s.new_tokens, s.past_tokens, s.heads, s.kv_heads, s.head_dim
            ),
        }
    }
}

/// A file of operations, read row by row.
#[derive(Debug)]
pub struct Operations<R> {
    rows: TableRows<R>,
    gemm: Option<GemmColumns>,
    attention: Option<AttentionColumns>,
    dtype: Option<usize>,
    gpu: Option<usize>,
    measured: Option<usize>,
}

/// Where m, n and k are.
#[derive(Debug, Clone, Copy)]
struct GemmColumns([usize; 3]);

/// Where the phase is, and the counts in the order of [`AttentionColumns::COUNTS`].
#[derive(Debug, Clone, Copy)]
struct AttentionColumns {
    phase: usize,
    counts: [usize; 6],
}

impl GemmColumns {
    const NAMES: [&str; 3] = ["m", "n", "k"];
}

impl AttentionColumns {
    const COUNTS: [&str; 6] = ["batch", "new_tokens", "past_tokens", "heads", "kv_heads", "head_dim"];
}

/// The largest number in a cell: with it, a product's bytes and FLOP still fit their types.
const MOST_COUNT: u64 = 1_000_000_000;

/// The most elements of a KV cache, for the same reason.
const MOST_KV_ELEMENTS: u128 = 1 << 60;

/// Words of tensor dumps for number formats, beside those that every file may use.
const ALIASES: [(&str, DType); 3] = [("i8", DType::Int8), ("i4", DType::Int4), ("u4", DType::Int4)];

impl<R: BufRead> Operations<R> {
    /// Reads the header. `file` is the name in messages.
    ///
    /// Refuses what [`Operations::from_rows`] refuses.
    pub fn new(reader: R, file: &str) -> Result<Self, RowsError> {
        Self::from_rows(TableRows::new(reader, file)?)
    }

    /// The operations of `rows`, of which only the header was read.
    ///
    /// Refuses a file that has all columns of neither kind, or one of them twice.
    pub fn from_rows(rows: TableRows<R>) -> Result<Self, RowsError> {
        let dtype = rows.column("dtype")?;
        let gemm = columns(&rows, GemmColumns::NAMES)?;
        let counts = columns(&rows, AttentionColumns::COUNTS)?;
        let phase = rows.column("phase")?;
        let gemm_complete = dtype.is_some().then(|| all(gemm)).flatten().map(GemmColumns);
        let attention = phase.zip(all(counts)).map(|(phase, counts)| AttentionColumns { phase, counts });
        let (gpu, measured) = (rows.column("gpu")?, rows.column("latency_us")?);
        if gemm_complete.is_some() || attention.is_some() {
            return Ok(Self { rows, gemm: gemm_complete, attention, dtype, gpu, measured });
        }
        let begun = gemm.iter().chain(&counts).chain([&phase]).any(Option::is_some);
        if !begun {
            return Err(no_operations(&rows));
        }
        let missing = |names: &[&'static str], found: &[Option<usize>]| -> Vec<&'static str> {
            names.iter().zip(found).filter(|(_, column)| column.is_none()).map(|(name, _)| *name).collect()
        };
        let of_gemm = missing(&["dtype", "m", "n", "k"], &[&[dtype], &gemm[..]].concat());
        let attention = [&["phase"], &AttentionColumns::COUNTS[..]].concat();
        let of_attention = missing(&attention, &[&[phase], &counts[..]].concat());
        let said = |columns: &[Option<usize>]| columns.iter().flatten().count();
        Err(match said(&gemm) >= said(&counts) + said(&[phase]) {
            true => incomplete(&rows, "a matrix product", &of_gemm),
            false => incomplete(&rows, "attention", &of_attention),
        })
    }

    /// Goes to the next row and returns its operator; `None` after the last row.
    ///
    /// Refuses a row of neither or of both kinds, an unknown word, and a number that is not whole
    /// or out of bounds. A number may be written as `128.0`, as spreadsheets do.
    pub fn advance(&mut self) -> Result<Option<Operation>, RowsError> {
        if !self.rows.advance()? {
            return Ok(None);
        }
        let has = |column: usize| !self.rows.cell(column).is_empty();
        let gemm = self.gemm.filter(|columns| self.attention.is_none() || columns.0.into_iter().any(has));
        let attention = self.attention.filter(|columns| self.gemm.is_none() || has(columns.phase));
        match (gemm, attention) {
            (Some(columns), None) => self.gemm(columns).map(Some),
            (None, Some(columns)) => self.attention(columns).map(Some),
            (Some(_), Some(columns)) => {
                let message = "the row has m, n or k too: leave the cells of the other kind empty";
                Err(self.rows.refuse(columns.phase, message))
            }
            (None, None) => {
                let message = "the row is neither a product (m, n, k) nor attention (phase, batch, …)";
                Err(self.rows.refuse_line(message))
            }
        }
    }

    /// The current row: its text, line and cells.
    pub fn rows(&self) -> &TableRows<R> {
        &self.rows
    }

    /// The column that names the row's GPU.
    pub fn gpu_column(&self) -> Option<usize> {
        self.gpu
    }

    /// The row's measured time; `None` where its cell is empty. Refuses a time that is not above
    /// zero.
    pub fn measured(&self) -> Result<Option<Seconds>, RowsError> {
        let Some(column) = self.measured.filter(|&column| !self.rows.cell(column).is_empty()) else {
            return Ok(None);
        };
        microseconds(&self.rows, column).map(Some)
    }

    fn gemm(&self, columns: GemmColumns) -> Result<Operation, RowsError> {
        let [m, n, k] = columns.0;
        let dtype = match self.dtype {
            Some(column) => dtype(&self.rows, column)?,
            None => unreachable!("products are read only where there is a dtype column"),
        };
        let size = |column| count(&self.rows, column, 1);
        Ok(Operation::Gemm { dtype, m: size(m)?, n: size(n)?, k: size(k)? })
    }

    fn attention(&self, columns: AttentionColumns) -> Result<Operation, RowsError> {
        let rows = &self.rows;
        let kv = match self.dtype.filter(|&column| !rows.cell(column).is_empty()) {
            Some(column) => dtype(rows, column)?,
            None => DType::Bf16,
        };
        let phase = phase(rows, columns.phase)?;
        let [batch, new, past, heads, kv_heads, head_dim] = columns.counts;
        let shape = AttentionShape {
            phase,
            batch: count(rows, batch, 1)?,
            new_tokens: count(rows, new, 1)?,
            past_tokens: count(rows, past, 0)?,
            heads: count(rows, heads, 1)?,
            kv_heads: count(rows, kv_heads, 1)?,
            head_dim: count(rows, head_dim, 1)?,
        };
        if !shape.heads.is_multiple_of(shape.kv_heads) {
            let message =
                format!("{} does not divide the {} heads evenly: it must", shape.kv_heads, shape.heads);
            return Err(rows.refuse(kv_heads, message));
        }
        if phase == Phase::Decode && shape.new_tokens != 1 {
            let message = format!(
                "'{}' in decode: it adds 1 token per sequence; say prefill for several",
                shape.new_tokens
            );
            return Err(rows.refuse(new, message));
        }
        let factors = [2, shape.batch, shape.tokens(), shape.kv_heads, shape.head_dim];
        let elements = factors.iter().try_fold(1_u128, |product, &x| product.checked_mul(u128::from(x)));
        match elements.filter(|&elements| elements <= MOST_KV_ELEMENTS) {
            Some(_) => Ok(Operation::Attention { kv, shape }),
            None => {
                Err(rows
                    .refuse(batch, "the KV cache of this row would exceed 2^60 values: no machine has that"))
            }
        }
    }
}

fn columns<R: BufRead, const N: usize>(
    rows: &TableRows<R>,
    names: [&str; N],
) -> Result<[Option<usize>; N], RowsError> {
    let mut found = [None; N];
    for (place, name) in found.iter_mut().zip(names) {
        *place = rows.column(name)?;
    }
    Ok(found)
}

fn all<const N: usize>(columns: [Option<usize>; N]) -> Option<[usize; N]> {
    let mut found = [0; N];
    for (place, column) in found.iter_mut().zip(columns) {
        *place = column?;
    }
    Some(found)
}

fn incomplete<R: BufRead>(rows: &TableRows<R>, kind: &str, missing: &[&str]) -> RowsError {
    let columns = if missing.len() == 1 { "the column" } else { "the columns" };
    rows.refuse_header("", format!("{kind} needs {columns} {} as well", missing.join(", ")))
}

fn no_operations<R: BufRead>(rows: &TableRows<R>) -> RowsError {
    let hint = match rows.names() {
        [only] if only.contains([';', '\t']) => "; cells are separated by commas",
        _ => "",
    };
    let message = format!(
        "the header names no operations: products have dtype,m,n,k and attention has \
         phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim{hint}"
    );
    rows.refuse_header("", message)
}

/// A count of at least `least`.
fn count<R: BufRead>(rows: &TableRows<R>, column: usize, least: u64) -> Result<u64, RowsError> {
    match whole(rows.cell(column)) {
        Some(value) if (least..=MOST_COUNT).contains(&value) => Ok(value),
        _ => {
            let message = format!(
                "'{}' is not a count: write a whole number from {least} to {MOST_COUNT}",
                rows.shown(column)
            );
            Err(rows.refuse(column, message))
        }
    }
}

/// The whole number in a cell, also written as `128.0`. `None` for anything else; a number beyond
/// `u64` saturates.
pub(crate) fn whole(cell: &[u8]) -> Option<u64> {
    let (digits, rest) = match cell.iter().position(|&byte| byte == b'.') {
        Some(point) => (&cell[..point], &cell[point + 1..]),
        None => (cell, &[][..]),
    };
    let fine = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && rest.iter().all(|&b| b == b'0');
    let value = digits.iter().fold(0_u64, |value, &digit| {
        value.saturating_mul(10).saturating_add(u64::from(digit.wrapping_sub(b'0')))
    });
    fine.then_some(value)
}

/// A time in microseconds.
pub(crate) fn microseconds<R: BufRead>(rows: &TableRows<R>, column: usize) -> Result<Seconds, RowsError> {
    let number = std::str::from_utf8(rows.cell(column)).ok().and_then(|text| text.parse::<f64>().ok());
    match number.filter(|number| number.is_finite() && *number > 0.0) {
        Some(number) => Ok(Seconds::new(number / 1e6)),
        None => {
            let message =
                format!("'{}' is not a time: write microseconds above zero, as 12.5", rows.shown(column));
            Err(rows.refuse(column, message))
        }
    }
}

/// A number format, in our word or another program's.
fn dtype<R: BufRead>(rows: &TableRows<R>, column: usize) -> Result<DType, RowsError> {
    let cell = rows.cell(column);
    let other = ALIASES.into_iter().find(|(word, _)| cell.eq_ignore_ascii_case(word.as_bytes()));
    match other {
        Some((_, dtype)) => Ok(dtype),
        None => rows.shown(column).to_string().parse().map_err(|message| rows.refuse(column, message)),
    }
}

/// Prefill or decode.
fn phase<R: BufRead>(rows: &TableRows<R>, column: usize) -> Result<Phase, RowsError> {
    let words = [("prefill", Phase::Prefill), ("decode", Phase::Decode)];
    let cell = rows.cell(column);
    let found = words.into_iter().find(|(word, _)| cell.eq_ignore_ascii_case(word.as_bytes()));
    found.map(|(_, phase)| phase).ok_or_else(|| {
        rows.refuse(column, format!("'{}' is not a phase: write prefill or decode", rows.shown(column)))
    })
}
