//! Products of a sparse matrix and a vector.

use crate::error::MeasureError;
use crate::method::experiment::expect;
use crate::method::rig::Rig;
use crate::operands::arena::random;
use crate::operands::array_walk::ArrayWalk;
use crate::roofline::subject::{RooflineKernel, bits, filled, sampled};
use crate::roofline::work::KernelWork;
use hwprofiles::Bytes;
use kernels::Buffer;
use kernels::numeric::CsrMatrix;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::Range;

/// Stored values of each row.
const PER_ROW: usize = 16;
/// Bytes of a row in doubles: its values and columns, its start, its entry of y.
const DOUBLES: usize = PER_ROW + 1;

/// y = A·x, a slice of rows in each call.
#[derive(Debug)]
pub(crate) struct SparseKernel {
    name: &'static str,
    matrix: CsrMatrix,
    x: Buffer,
    y: Buffer,
    walk: ArrayWalk,
    /// Values of x that come from memory with each row.
    x_per_row: usize,
}

impl SparseKernel {
    /// A band of neighbouring diagonals: x is as long as y and is read once, from memory.
    pub fn banded(rig: &Rig<'_>, size: Bytes) -> Result<Self, MeasureError> {
        let rows = walk(rig, size).len();
        let last = rows - PER_ROW;
        let mut indices = filled(rig, rows * PER_ROW, &[0; 4096])?;
        for (row, columns) in indices.view_mut::<u32>().chunks_exact_mut(PER_ROW).enumerate() {
            let first = row.saturating_sub(PER_ROW / 2).min(last);
            columns.iter_mut().zip(first..).for_each(|(to, column)| *to = column as u32);
        }
        Self::new(rig, size, "SpMV, a band of 16", rows, indices, 1)
    }

    /// Random columns: x takes a quarter of `cache`, which is a core's own. Its lines are used
    /// many times in each slice of rows, so that they stay there and are not counted.
    pub fn random(rig: &Rig<'_>, size: Bytes, cache: Bytes) -> Result<Self, MeasureError> {
        let columns = cache.get() as usize / 4 / size_of::<f32>();
        let mut random = Pcg64Mcg::seed_from_u64(35);
        let block: Vec<u32> = (0..1 << 18).map(|_| random.random_range(0..columns as u32)).collect();
        let indices = filled(rig, walk(rig, size).len() * PER_ROW, &block)?;
        Self::new(rig, size, "SpMV, random columns", columns, indices, 0)
    }

    fn new(
        rig: &Rig<'_>,
        size: Bytes,
        name: &'static str,
        columns: usize,
        indices: Buffer,
        x_per_row: usize,
    ) -> Result<Self, MeasureError> {
        let (walk, block) = (walk(rig, size), bits(&random(1 << 16, 36)));
        let rows = walk.len();
        let mut starts = Buffer::new((rows + 1) * size_of::<u32>())?;
        let each = starts.view_mut::<u32>().iter_mut().enumerate();
        each.for_each(|(row, start)| *start = (row * PER_ROW) as u32);
        let values = filled(rig, rows * PER_ROW, &block)?;
        let (x, y) = (filled(rig, columns, &block)?, filled(rig, rows, &block)?);
        Ok(Self { name, matrix: CsrMatrix::new(columns, starts, indices, values), x, y, walk, x_per_row })
    }

    fn run(&mut self, rig: &Rig<'_>, rows: Range<usize>) {
        let (y, x) = (&mut self.y.view_mut()[rows.clone()], &self.x.view()[..self.matrix.columns()]);
        rig.subject.sparse(rig.all(), &self.matrix, rows, y, x);
    }
}

/// The rows of a matrix of `size`: as many as a slice at least.
fn walk(rig: &Rig<'_>, size: Bytes) -> ArrayWalk {
    let rows = size.get() as usize / DOUBLES / size_of::<f64>();
    ArrayWalk::new(rows.max(1 << 10), DOUBLES, rig.all())
}

impl RooflineKernel for SparseKernel {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn parts(&self) -> Vec<KernelWork> {
        let rows = self.walk.slice();
        vec![KernelWork::sparse(rows, rows * PER_ROW, rows * self.x_per_row)]
    }

    fn verify(&mut self, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let rows = self.matrix.rows();
        self.run(rig, 0..rows);
        let (x, y) = (self.x.view::<f32>(), self.y.view::<f32>());
        for row in sampled(rows) {
            let terms = self.matrix.row(row).map(|(column, value)| f64::from(value) * f64::from(x[column]));
            let kernel = || format!("{}, {rows} rows", self.name);
            expect(kernel, f64::from(y[row]), terms.sum(), 1e-5)?;
        }
        Ok(())
    }

    fn call(&mut self, rig: &Rig<'_>) {
        let rows = self.walk.next();
        self.run(rig, rows);
    }
}
