//! A sparse matrix and its product with a vector.

use super::{LINE, vectorised};
use crate::loops::parts::each_part;
use crate::runtime::{Buffer, Pool};
use std::ops::Range;

/// A sparse matrix in compressed rows (CSR).
#[derive(Debug)]
pub struct CsrMatrix {
    columns: usize,
    /// u32: where each row begins in `indices` and `values`, and where the last one ends.
    starts: Buffer,
    /// u32: the column of each value.
    indices: Buffer,
    /// f32
    values: Buffer,
}

impl CsrMatrix {
    /// Row i has the value `values[j]` (f32) in column `indices[j]` (u32) for all j in
    /// `starts[i]..starts[i + 1]` (u32). There is one start more than there are rows.
    ///
    /// # Panics
    /// Where there are no starts, they fall or end beyond the values, or a column is out of range.
    pub fn new(columns: usize, starts: Buffer, indices: Buffer, values: Buffer) -> Self {
        assert_eq!(indices.len(), values.len());
        let (begins, count) = (starts.view::<u32>(), values.view::<f32>().len());
        assert!(begins.is_sorted() && begins.last().is_some_and(|&end| end as usize <= count));
        let fits = |&column: &u32| (column as usize) < columns;
        assert!(indices.view().iter().all(fits), "a column is out of range");
        Self { columns, starts, indices, values }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.starts.view::<u32>().len() - 1
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The number of values stored in these rows.
    pub fn nonzeros(&self, rows: Range<usize>) -> usize {
        let starts: &[u32] = self.starts.view();
        (starts[rows.end] - starts[rows.start]) as usize
    }

    /// The columns and the values of a row.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (usize, f32)> + '_ {
        let starts: &[u32] = self.starts.view();
        let range = starts[row] as usize..starts[row + 1] as usize;
        let columns = self.indices.view::<u32>()[range.clone()].iter().map(|&column| column as usize);
        columns.zip(self.values.view::<f32>()[range].iter().copied())
    }

    /// y = A·x for these rows of A; y has no others. FLOP: 2 per stored value. Bytes: 8 read per
    /// stored value (the value and its column), 4 per row for its start, 4 read and 4 written per
    /// row of y, and what of x comes from memory.
    ///
    /// # Panics
    /// Where the lengths do not fit.
    pub fn multiply(&self, pool: &Pool, rows: Range<usize>, y: &mut [f32], x: &[f32]) {
        assert_eq!((y.len(), x.len()), (rows.len(), self.columns));
        let starts = &self.starts.view::<u32>()[rows.start..=rows.end];
        each_part(pool, y, LINE, |range, y| {
            let starts = &starts[range.start..=range.end];
            vectorised(pool, || multiply_rows(starts, self.indices.view(), self.values.view(), y, x));
        });
    }
}

#[inline(always)]
fn multiply_rows(starts: &[u32], indices: &[u32], values: &[f32], y: &mut [f32], x: &[f32]) {
    for (y, ends) in y.iter_mut().zip(starts.windows(2)) {
        let row = ends[0] as usize..ends[1] as usize;
        let (columns, values) = (indices[row.clone()].chunks_exact(4), values[row].chunks_exact(4));
        let last = columns.remainder().iter().zip(values.remainder());
        let last: f32 = last.map(|(&column, value)| value * x[column as usize]).sum();
        // Four sums that do not wait for each other.
        let mut sums = [0.0_f32; 4];
        for (columns, values) in columns.zip(values) {
            for lane in 0..4 {
                sums[lane] += values[lane] * x[columns[lane] as usize];
            }
        }
        *y = (sums[0] + sums[1]) + (sums[2] + sums[3]) + last;
    }
}
