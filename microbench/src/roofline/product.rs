//! Products of matrices, and of a matrix and a vector, with weights from memory.

use crate::compute::ceilings::tolerance;
use crate::error::MeasureError;
use crate::method::experiment::expect;
use crate::method::rig::Rig;
use crate::operands::arena::random_buffer;
use crate::roofline::subject::{RooflineKernel, sampled};
use crate::roofline::work::KernelWork;
use hwprofiles::DType;
use kernels::{Buffer, Scratch, WeightsView};

/// Rows and columns of the matrix: a shape that the table of products does not hold.
pub(crate) const MATRIX: (usize, usize) = (2048, 2048);

/// y[m, n] = x[m, k] · W[n, k]ᵀ in f32, each call with another W.
#[derive(Debug)]
pub(crate) struct ProductKernel {
    m: usize,
    x: Buffer,
    y: Buffer,
    scratch: Scratch,
}

impl ProductKernel {
    /// For `m` rows of x; 1 is a GEMV.
    pub fn new(rig: &Rig<'_>, m: usize) -> Result<Self, MeasureError> {
        let (n, k) = MATRIX;
        let scratch = kernels::gemm::scratch_bytes(rig.all().members(), m, k);
        let (x, y) = (random_buffer(m * k, 33)?, random_buffer(m * n, 34)?);
        Ok(Self { m, x, y, scratch: Scratch::unaccounted(scratch)? })
    }

    /// Multiplies by the next matrix and returns some entries of the result with their definition
    /// and the sum of the sizes of its terms, if asked for.
    fn run(&mut self, rig: &Rig<'_>, entries: usize) -> Result<Vec<[f64; 3]>, MeasureError> {
        let ((n, k), m) = (MATRIX, self.m);
        let mut weights = rig.arena(DType::F32);
        let bytes = DType::F32.matrix_bytes(n as u64, k as u64).get() as usize;
        let w = WeightsView::new(DType::F32, n, k, weights.next(bytes))?;
        rig.subject.gemm(rig.all(), m, self.y.view_mut(), self.x.view(), w, &mut self.scratch);
        let (x, y) = (self.x.view::<f32>(), self.y.view::<f32>());
        let entry = |at: usize| {
            let (row, column) = (at / n, at % n);
            let terms = (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(w.value(column, i)));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            [f64::from(y[at]), sum, size]
        };
        Ok(sampled(m * n).take(entries).map(entry).collect())
    }
}

impl RooflineKernel for ProductKernel {
    fn name(&self) -> String {
        match self.m {
            1 => format!("GEMV, {} × {}", MATRIX.0, MATRIX.1),
            m => format!("GEMM, {m} × {} × {}", MATRIX.0, MATRIX.1),
        }
    }

    fn parts(&self) -> Vec<KernelWork> {
        vec![KernelWork::product(self.m, MATRIX.0, MATRIX.1)]
    }

    fn verify(&mut self, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let share = tolerance(rig.all(), DType::F32);
        for [got, wanted, size] in self.run(rig, usize::MAX)? {
            expect(|| self.name(), got, wanted, size * share)?;
        }
        Ok(())
    }

    fn call(&mut self, rig: &Rig<'_>) {
        self.run(rig, 0).expect("the matrix of the verification fits the arena");
    }
}
