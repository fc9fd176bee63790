//! A matrix product that stays in the second-level cache.

use crate::cpu::{StridedRows, StridedRowsMut, Weights, gemm};
use crate::runtime::{KernelError, MemoryArena, Pool, Scratch};
use hwprofiles::DType;
use hwprofiles::units::{Bytes, Flop};

/// A product by [`crate::gemm()`] whose weights, x and y fit together in the members' second-level
/// caches.
#[derive(Debug)]
pub struct CachedProduct {
    m: usize,
    weights: Weights,
    x: Vec<f32>,
    y: Vec<f32>,
    scratch: Scratch,
}

impl CachedProduct {
    /// `m` rows of x times weights in `dtype`, for `members` members with `cache` bytes of cache
    /// each. The weights take at most a quarter of it, and so does x; the rest is for the kernel's
    /// copy of x and for y.
    ///
    /// # Errors
    /// Those of [`Weights::from_f32`] and [`Scratch::unaccounted`].
    pub fn new(dtype: DType, m: usize, members: usize, cache: Bytes) -> Result<Self, KernelError> {
        let share = (cache.get() / 4).max(16 << 10);
        // Every member reads all of x and its own part of the weights.
        let k = ((share / (4 * m.max(1) as u64)) as usize).clamp(64, 512) / 64 * 64;
        let column = dtype.matrix_bytes(1, k as u64).get().max(1);
        let n = ((share / column) as usize).clamp(32, 1024) / 32 * 32 * members;
        let value = |i: usize| (i * 2_654_435_761 % 65_521) as f32 / 32_768.0 - 1.0;
        let memory = MemoryArena::new("cached product", Bytes::new(u64::MAX));
        let values: Vec<f32> = (0..n * k).map(value).collect();
        Ok(Self {
            m,
            weights: Weights::from_f32(&memory, dtype, n, k, &values)?,
            x: (0..m * k).map(|i| value(i + 31)).collect(),
            y: vec![0.0; m * n],
            scratch: Scratch::unaccounted(gemm::scratch_bytes(members, m, k))?,
        })
    }

    /// Rows of x, rows of W (outputs), columns of both.
    pub fn shape(&self) -> (usize, usize, usize) {
        let w = self.weights.view();
        (self.m, w.rows(), w.columns())
    }

    /// Computes the product `times` times and returns the work: 2·m·n·k each time.
    ///
    /// # Panics
    /// Where the pool has more members than the product was made for.
    pub fn run(&mut self, pool: &Pool, times: usize) -> Flop {
        let (m, n, k) = self.shape();
        for _ in 0..times {
            let (y, x) = (StridedRowsMut::new(&mut self.y, n), StridedRows::new(&self.x, k));
            gemm(pool, m, y, x, self.weights.view(), &mut self.scratch);
        }
        Flop::new(2 * (m * n * k * times) as u128)
    }

    /// The largest error of the last result, as a share of Σ|x·w| of its value. Check it before
    /// reporting a rate.
    pub fn error(&self) -> f64 {
        let (m, n, k) = self.shape();
        let mut row = vec![0.0; k];
        let mut worst = 0.0f64;
        for j in (0..n).step_by(17).chain([n - 1]) {
            self.weights.view().row(j, &mut row);
            for i in 0..m {
                let terms = self.x[i * k..][..k].iter().zip(&row).map(|(x, w)| f64::from(*x) * f64::from(*w));
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                worst = worst.max((f64::from(self.y[i * n + j]) - sum).abs() / size);
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Path, affinity};

    #[test]
    fn operands_fit_the_caches_and_the_result_is_right_on_every_path() {
        let cores = affinity::available_cores();
        let cache = Bytes::new(1 << 20);
        for path in Path::supported() {
            let pool = Pool::new(&[cores[0], cores[cores.len() - 1]]).expect("our cores").with_path(path);
            for (dtype, m) in [(DType::F32, 1), (DType::F32, 192), (DType::Bf16, 96), (DType::Int8, 17)] {
                let mut product = CachedProduct::new(dtype, m, 2, cache).expect("memory");
                let (m, n, k) = product.shape();
                let bytes = 4 * (m * k) as u64 + dtype.matrix_bytes(n as u64 / 2, k as u64).get();
                assert!(bytes <= cache.get() / 2 && bytes >= cache.get() / 8, "{dtype} {m}: {bytes} bytes");
                assert_eq!(product.run(&pool, 2), Flop::new(4 * (m * n * k) as u128));
                let bound = 1e-4 + f64::from(path.rounding(dtype));
                assert!(product.error() < bound, "{path} {dtype} {m}: {}", product.error());
            }
        }
    }
}
