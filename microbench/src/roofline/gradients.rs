//! Conjugate gradients on the matrix of a five-point stencil.

use crate::error::MeasureError;
use crate::method::experiment::expect;
use crate::method::rig::Rig;
use crate::operands::arena::random;
use crate::roofline::subject::{RooflineKernel, bits, filled, sampled};
use crate::roofline::work::KernelWork;
use hwprofiles::Bytes;
use kernels::Buffer;
use kernels::numeric::{CgVectors, CsrMatrix};

/// Bytes of an unknown: five values with their columns, the row's start, and four vectors.
const PER_UNKNOWN: usize = 5 * 8 + 4 + 4 * 4;
/// The share of the first r·r at which the solution begins again.
const SOLVED: f64 = 1e-9;

/// The equation of Poisson on a square grid with zeros around it, one iteration in each call.
#[derive(Debug)]
pub(crate) struct GradientsKernel {
    matrix: CsrMatrix,
    b: Vec<u32>,
    x: Buffer,
    r: Buffer,
    p: Buffer,
    q: Buffer,
    residual: f64,
    start: f64,
}

impl GradientsKernel {
    /// Matrix and vectors take about `size`.
    pub fn new(rig: &Rig<'_>, size: Bytes) -> Result<Self, MeasureError> {
        let side = ((size.get() as usize / PER_UNKNOWN) as f64).sqrt() as usize;
        let (matrix, b) = (laplacian(side)?, bits(&random(1 << 16, 39)));
        // An even number of values is allocated; the last may be one too many.
        let vector = |block: &[u32]| filled(rig, side * side, block);
        let (x, q, r, p) = (vector(&[0; 4096])?, vector(&[0; 4096])?, vector(&b)?, vector(&b)?);
        let mut kernel = Self { matrix, b, x, r, p, q, residual: 0.0, start: 0.0 };
        kernel.start = square(&kernel.r.view()[..side * side]);
        kernel.residual = kernel.start;
        Ok(kernel)
    }

    fn run(&mut self, rig: &Rig<'_>) {
        let n = self.matrix.rows();
        let Self { x, r, p, q, .. } = self;
        let [x, r, p, q] = [x, r, p, q].map(|vector| &mut vector.view_mut::<f32>()[..n]);
        let vectors = CgVectors { x, r, p, q };
        self.residual = rig.subject.gradients(rig.all(), &self.matrix, vectors, self.residual);
    }

    /// Back to x = 0.
    fn restart(&mut self) {
        self.x.view_mut::<u32>().fill(0);
        for vector in [&mut self.r, &mut self.p] {
            let chunks = vector.view_mut::<u32>().chunks_mut(self.b.len());
            chunks.for_each(|chunk| chunk.copy_from_slice(&self.b[..chunk.len()]));
        }
        self.residual = self.start;
    }
}

/// r·r
fn square(r: &[f32]) -> f64 {
    r.iter().map(|&value| f64::from(value).powi(2)).sum()
}

/// The five-point matrix of a square grid, in rows of ascending columns.
fn laplacian(side: usize) -> Result<CsrMatrix, MeasureError> {
    let (rows, nonzeros) = (side * side, 5 * side * side - 4 * side);
    let buffer = |count: usize| Buffer::new(count * size_of::<u32>());
    let (mut starts, mut indices, mut values) = (buffer(rows + 1)?, buffer(nonzeros)?, buffer(nonzeros)?);
    let (begins, columns) = (starts.view_mut::<u32>(), indices.view_mut::<u32>());
    let entries = values.view_mut::<f32>();
    let mut next = 0;
    for (at, begin) in begins[..rows].iter_mut().enumerate() {
        let (row, column) = (at / side, at % side);
        let around = [
            (row > 0, at.wrapping_sub(side), -1.0),
            (column > 0, at.wrapping_sub(1), -1.0),
            (true, at, 4.0),
            (column + 1 < side, at + 1, -1.0),
            (row + 1 < side, at + side, -1.0),
        ];
        *begin = next as u32;
        for (_, neighbour, value) in around.into_iter().filter(|(inside, ..)| *inside) {
            (columns[next], entries[next]) = (neighbour as u32, value);
            next += 1;
        }
    }
    begins[rows] = next as u32;
    Ok(CsrMatrix::new(rows, starts, indices, values))
}

impl RooflineKernel for GradientsKernel {
    fn name(&self) -> String {
        "CG, an iteration".to_owned()
    }

    fn parts(&self) -> Vec<KernelWork> {
        let n = self.matrix.rows();
        KernelWork::gradients(n, self.matrix.nonzeros(0..n))
    }

    fn verify(&mut self, rig: &Rig<'_>) -> Result<(), MeasureError> {
        self.run(rig);
        let n = self.matrix.rows();
        let b = |at: usize| f64::from(f32::from_bits(self.b[at % self.b.len()]));
        let product =
            |at| self.matrix.row(at).map(|(column, value)| f64::from(value) * b(column)).sum::<f64>();
        let step = self.start / (0..n).map(|at| b(at) * product(at)).sum::<f64>();
        let (x, r) = (self.x.view::<f32>(), self.r.view::<f32>());
        let kernel = || format!("an iteration of CG with {n} unknowns");
        for at in sampled(n) {
            expect(kernel, f64::from(x[at]), step * b(at), 1e-4)?;
            expect(kernel, f64::from(r[at]), b(at) - step * product(at), 1e-4)?;
        }
        expect(kernel, self.residual, square(&r[..n]), 1e-5 * self.residual)
    }

    fn call(&mut self, rig: &Rig<'_>) {
        if self.residual < SOLVED * self.start {
            self.restart();
        }
        self.run(rig);
    }
}
