//! A sparse matrix and its product with a vector.

use super::{LINE, vectorised};
use crate::loops::parts::each_part;
use crate::runtime::Pool;
use std::ops::Range;

/// A sparse matrix in compressed rows (CSR).
#[derive(Debug, Clone, Copy)]
pub struct CsrMatrix<'a> {
    columns: usize,
    /// Where each row begins in `indices` and `values`, and where the last one ends.
    starts: &'a [u32],
    indices: &'a [u32],
    values: &'a [f32],
}

impl<'a> CsrMatrix<'a> {
    /// A matrix of `starts.len() − 1` rows. Row i has `values[j]` in column `indices[j]` for all j
    /// in `starts[i]..starts[i + 1]`.
    ///
    /// # Panics
    /// Where `starts` is empty, falls, or ends beyond the values, or a column is out of range.
    pub fn new(columns: usize, starts: &'a [u32], indices: &'a [u32], values: &'a [f32]) -> Self {
        assert_eq!(indices.len(), values.len());
        assert!(starts.is_sorted() && starts.last().is_some_and(|&end| end as usize <= values.len()));
        assert!(indices.iter().all(|&column| (column as usize) < columns), "a column is out of range");
        Self { columns, starts, indices, values }
    }

    /// The number of rows.
    pub fn row_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The number of columns.
    pub fn column_count(&self) -> usize {
        self.columns
    }

    /// The number of stored values.
    pub fn nonzeros(&self) -> usize {
        (self.starts[self.row_count()] - self.starts[0]) as usize
    }

    /// The matrix of these rows alone.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        Self { starts: &self.starts[rows.start..=rows.end], ..*self }
    }

    /// The columns and the values of a row.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (usize, f32)> + 'a {
        let range = self.starts[row] as usize..self.starts[row + 1] as usize;
        let columns = self.indices[range.clone()].iter().map(|&column| column as usize);
        columns.zip(self.values[range].iter().copied())
    }

    /// y = A·x. FLOP: 2 per stored value. Bytes: 8 read per stored value (the value and its
    /// column), 4 per row for its start, 4 read and 4 written per row of y, and what of x comes
    /// from memory.
    ///
    /// # Panics
    /// Where the lengths do not fit.
    pub fn multiply(&self, pool: &Pool, y: &mut [f32], x: &[f32]) {
        assert_eq!((y.len(), x.len()), (self.row_count(), self.columns));
        each_part(pool, y, LINE, |range, y| {
            let rows = self.rows(range);
            vectorised(pool, || rows.multiply_alone(y, x));
        });
    }

    #[inline(always)]
    fn multiply_alone(&self, y: &mut [f32], x: &[f32]) {
        for (y, ends) in y.iter_mut().zip(self.starts.windows(2)) {
            let range = ends[0] as usize..ends[1] as usize;
            let (indices, values) = (&self.indices[range.clone()], &self.values[range]);
            // Four sums that do not wait for each other.
            let mut sums = [0.0_f32; 4];
            let (fours, rest) = (values.chunks_exact(4), values.chunks_exact(4).remainder());
            for (values, indices) in fours.zip(indices.chunks_exact(4)) {
                for lane in 0..4 {
                    sums[lane] += values[lane] * x[indices[lane] as usize];
                }
            }
            let left = &indices[indices.len() - rest.len()..];
            let rest: f32 = rest.iter().zip(left).map(|(value, &column)| value * x[column as usize]).sum();
            *y = (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest;
        }
    }
}
