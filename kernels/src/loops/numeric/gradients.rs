//! An iteration of the method of conjugate gradients (Hestenes and Stiefel, 1952).

use super::sparse::CsrMatrix;
use super::vectors::{axpy, dot, xpay};
use crate::runtime::Pool;

/// The vectors of a solution of A·x = b: at the start x = 0 and r = p = b.
#[derive(Debug)]
pub struct CgVectors<'a> {
    /// The solution so far.
    pub x: &'a mut [f32],
    /// The residual, b − A·x.
    pub r: &'a mut [f32],
    /// The direction of search.
    pub p: &'a mut [f32],
    /// A·p, which the iteration overwrites.
    pub q: &'a mut [f32],
}

/// One iteration for a symmetric positive definite matrix: a product, two dot products and three
/// updates of vectors. `residual` is r·r before it, above zero; it returns r·r after it.
///
/// # Panics
/// Where the lengths do not fit.
pub fn conjugate_gradients_step(
    pool: &Pool,
    matrix: &CsrMatrix,
    vectors: &mut CgVectors<'_>,
    residual: f64,
) -> f64 {
    let CgVectors { x, r, p, q } = vectors;
    matrix.multiply(pool, 0..matrix.rows(), q, p);
    let step = (residual / dot(pool, p, q)) as f32;
    axpy(pool, x, step, p);
    axpy(pool, r, -step, q);
    let next = dot(pool, r, r);
    xpay(pool, p, (next / residual) as f32, r);
    next
}
