//! y = x · Wᵀ.

mod amx;
mod amx_tile;
mod avx2;
mod avx512;
mod expand;
mod group;
mod integer;
mod reference;
mod rounded;
mod sparse;
mod vnni;

pub use group::Group;
pub use sparse::sparse_gemm;

use crate::disjoint::Disjoint;
use crate::{Path, Pool, Scratch, WeightsView};
use hwprofiles::DType;

/// Computes y = x·Wᵀ with f32 accumulation. With integer weights the fast paths round x to 16-bit integers,
/// each group of 32 columns with its own scale: an error of at most 2⁻¹⁶ of the group's largest value. With bf16
/// weights the paths that multiply bf16 round x to it ([`Path::rounding`]), as AMX does, and the weights too, with integer ones.
///
/// `x` is m × k (k = `w.columns()`), `y` is m × n (n = `w.rows()`), both row-major with rows `x_stride` and
/// `y_stride` values apart; `y`'s values between rows are left alone. FLOP: 2·m·n·k. Bytes: the weights once
/// while m is small enough for the machine's caches.
///
/// The result does not depend on how many members the pool has.
///
/// # Panics
/// Where a slice or the scratch (see [`scratch_bytes`]) is too short.
pub fn gemm(
    pool: &Pool,
    m: usize,
    y: &mut [f32],
    y_stride: usize,
    x: &[f32],
    x_stride: usize,
    w: WeightsView<'_>,
    scratch: &mut Scratch,
) {
    grouped_with(pool, &[Group { rows: 0..m, w }], y, y_stride, x, x_stride, scratch.floats());
}

/// As [`gemm()`], of several matrices in one call, each with rows of its own: what experts do with tokens that are sorted by
/// expert. Work is shared by how much it is, not by matrix. The result is that of a call for each group; y's rows of no
/// group are left alone.
///
/// # Panics
/// As [`gemm()`], for all rows up to the last; where rows of a group begin before those of the one before end; where
/// matrices differ in columns or format.
pub fn grouped_gemm(
    pool: &Pool,
    groups: &[Group<'_>],
    y: &mut [f32],
    y_stride: usize,
    x: &[f32],
    x_stride: usize,
    scratch: &mut Scratch,
) {
    grouped_with(pool, groups, y, y_stride, x, x_stride, scratch.floats());
}

/// [`grouped_gemm`] with working memory that is a part of a scratch.
pub(crate) fn grouped_with(
    pool: &Pool,
    groups: &[Group<'_>],
    y: &mut [f32],
    y_stride: usize,
    x: &[f32],
    x_stride: usize,
    scratch: &mut [f32],
) {
    let groups: Vec<_> = groups.iter().filter(|it| !it.rows.is_empty() && it.w.rows() > 0).cloned().collect();
    let Some(Group { rows, w }) = groups.last() else { return };
    let (m, k, dtype) = (rows.end, w.columns(), w.dtype());
    assert!(x_stride >= k && x.len() >= (m - 1) * x_stride + k, "x is too short for {m} × {k}");
    for Group { rows, w } in &groups {
        let (m, n) = (rows.end, w.rows());
        assert!(y_stride >= n && y.len() >= (m - 1) * y_stride + n, "y is too short for {m} × {n}");
        assert!(w.columns() == k && w.dtype() == dtype, "matrices of one call are alike but for their rows");
    }
    assert!(groups.windows(2).all(|two| two[0].rows.end <= two[1].rows.start), "groups' rows are in order");
    let needed = scratch_bytes(pool.members(), m, k);
    let has = size_of_val(scratch);
    assert!(has >= needed, "scratch has {has} bytes, {needed} needed");
    if k == 0 {
        for Group { rows, w } in &groups {
            rows.clone().for_each(|row| y[row * y_stride..][..w.rows()].fill(0.0));
        }
        return;
    }
    let y = Disjoint::new(y);
    let mut run = |path, groups: &[_]| match (path, dtype) {
        (Path::Reference, _) => reference::gemm(pool, &y, y_stride, x, x_stride, groups),
        (Path::Amx, DType::Bf16 | DType::Int8 | DType::Int4) => {
            // SAFETY: the path is AMX only on a CPU that has it, in a process that may use it.
            unsafe { amx::gemm(pool, &y, y_stride, x, x_stride, groups, scratch) };
        }
        (Path::Avx512Bf16, DType::Bf16) => {
            avx512::gemm_bf16(pool, &y, y_stride, x, x_stride, groups, scratch);
        }
        (Path::Avx512 | Path::Avx512Bf16 | Path::Amx, DType::F32 | DType::Bf16) => {
            avx512::gemm(pool, &y, y_stride, x, x_stride, groups, scratch);
        }
        _ => avx2::gemm(pool, &y, y_stride, x, x_stride, groups, scratch),
    };
    if pool.path() != Path::Amx {
        return run(pool.path(), &groups);
    }
    let tiles_from = pool.crossover(dtype).unwrap_or_else(|| crossover(dtype));
    let (few, many): (Vec<_>, Vec<_>) = groups.into_iter().partition(|it| it.rows.len() < tiles_from);
    run(Path::Avx512Bf16, &few);
    run(Path::Amx, &many);
}

/// From so many rows on tiles are faster than vectors, where nobody measured it. Cycles for 32 columns of 16 outputs: vectors need 8 a row (pairs of bf16), or
/// 10 a row and 16 to widen (integers); tiles need 16 for up to 16 rows, and 90 to expand integers. Weights of bf16 that
/// are read from memory take 200 and more either way, and vectors ask for them ahead of time.
fn crossover(dtype: DType) -> usize {
    match dtype {
        DType::Int8 | DType::Int4 => 9,
        _ => 5,
    }
}

/// Bytes of scratch that [`gemm()`] needs for `m` rows of `k` columns on a pool of `members`.
pub fn scratch_bytes(members: usize, m: usize, k: usize) -> usize {
    4 * avx2::scratch_floats(members, m, k)
}
