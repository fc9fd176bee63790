//! The numerical kernels that show a roofline: vectors, a sparse matrix, a stencil and a solver, in
//! f32.
//!
//! They are written in plain Rust and compiled for AVX2 where the pool's [`Path`] has it. Each
//! member of the pool computes its own contiguous part of the result.

mod gradients;
mod sparse;
mod stencil;
mod vectors;

pub use gradients::{CgVectors, conjugate_gradients_step};
pub use sparse::CsrMatrix;
pub use stencil::jacobi;
pub use vectors::{axpy, dot, xpay};

use crate::runtime::{Path, Pool};

/// Values of a cache line.
const LINE: usize = 16;

/// Runs `work`, compiled for the vectors of the pool's path. `work` is inlined here, so that it is
/// compiled with the features of this function.
#[inline(always)]
fn vectorised<R>(pool: &Pool, work: impl FnOnce() -> R) -> R {
    #[target_feature(enable = "avx2,fma")]
    unsafe fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
    match pool.path() {
        Path::Reference => work(),
        // SAFETY: a CPU that runs any other path has AVX2 and FMA.
        _ => unsafe { with_avx2(work) },
    }
}
