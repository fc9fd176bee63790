//! Matrix products y = x·Wᵀ.

mod amx;
mod amx_tile;
mod avx2;
mod avx512;
mod bf16_input;
mod blocking;
mod blocks;
mod expand;
pub(crate) mod group;
mod int16_input;
mod integer;
mod reference;
mod scratch;
mod sparse;
mod vnni;

pub use group::GemmGroup;
pub use scratch::scratch_bytes;
pub use sparse::sparse_gemm;

use crate::cpu::blocks::BlockLayout;
use crate::cpu::strided::{StridedRows, StridedRowsMut};
use crate::cpu::weights::{WeightsView, is_float8};
use crate::runtime::{Disjoint, Path, Pool, Scratch};
use hwprofiles::DType;

/// Computes y = x·Wᵀ with f32 accumulation.
///
/// With integer weights and weights in blocks the fast paths round x to 16-bit integers, with a
/// scale for each group of 32 columns: an error of at most 2⁻¹⁶ of the group's largest value. With
/// bf16 weights and 8-bit floats the paths that multiply bf16 round x to bf16 ([`Path::rounding`]).
/// AMX rounds x and the weights to bf16 where they are not bf16 already.
///
/// `x` is m × k (k = `w.columns()`), `y` is m × n (n = `w.rows()`), both row-major; values between
/// the rows of y are left alone. FLOP: 2·m·n·k. Bytes: the weights once, while m is small enough
/// for the machine's caches. The result does not depend on the number of members of the pool.
///
/// # Panics
/// Where x, y or the scratch (see [`scratch_bytes`]) is too short, or rows overlap.
pub fn gemm(
    pool: &Pool,
    m: usize,
    y: StridedRowsMut<'_>,
    x: StridedRows<'_>,
    w: WeightsView<'_>,
    scratch: &mut Scratch,
) {
    grouped_with(pool, &[GemmGroup { rows: 0..m, w }], y, x, scratch.floats());
}

/// As [`gemm()`], for several matrices in one call, each with rows of its own: the products of
/// experts with tokens that are sorted by expert. The work is divided by its size, not by matrix.
/// The result is the same as that of a call for each group; rows of y that belong to no group are
/// left alone.
///
/// # Panics
/// As [`gemm()`], for all rows up to the last; where the rows of a group begin before those of the
/// previous group end; where matrices differ in columns or format.
pub fn grouped_gemm(
    pool: &Pool,
    groups: &[GemmGroup<'_>],
    y: StridedRowsMut<'_>,
    x: StridedRows<'_>,
    scratch: &mut Scratch,
) {
    grouped_with(pool, groups, y, x, scratch.floats());
}

/// [`grouped_gemm`] with a part of a scratch.
pub(crate) fn grouped_with(
    pool: &Pool,
    groups: &[GemmGroup<'_>],
    y: StridedRowsMut<'_>,
    x: StridedRows<'_>,
    scratch: &mut [f32],
) {
    let groups: Vec<_> = groups.iter().filter(|it| !it.rows.is_empty() && it.w.rows() > 0).cloned().collect();
    let Some(GemmGroup { rows, w }) = groups.last() else { return };
    let (m, k, dtype) = (rows.end, w.columns(), w.dtype());
    x.assert_holds(m, k, "x");
    for GemmGroup { rows, w } in &groups {
        y.assert_holds(rows.end, w.rows(), "y");
        assert!(w.columns() == k && w.dtype() == dtype, "matrices of one call are alike but for their rows");
    }
    assert!(groups.windows(2).all(|two| two[0].rows.end <= two[1].rows.start), "groups' rows are in order");
    let needed = scratch_bytes(pool.members(), m, k);
    let has = size_of_val(scratch);
    assert!(has >= needed, "scratch has {has} bytes, {needed} needed");
    if k == 0 {
        for GemmGroup { rows, w } in &groups {
            rows.clone().for_each(|row| y.values[row * y.stride..][..w.rows()].fill(0.0));
        }
        return;
    }
    let y_stride = y.stride;
    let y = Disjoint::new(y.values);
    let in_blocks = BlockLayout::for_dtype(dtype).is_some();
    let mut run = |path, groups: &[_]| match (path, dtype) {
        (Path::Reference, _) => reference::gemm(pool, &y, y_stride, x, groups),
        (Path::Amx, _)
            if in_blocks || matches!(dtype, DType::Bf16 | DType::Int8 | DType::Int4) || is_float8(dtype) =>
        {
            // SAFETY: the path is AMX only on a CPU that has it, in a process that may use it.
            unsafe { amx::gemm(pool, &y, y_stride, x, groups, scratch) };
        }
        _ if in_blocks => blocks::gemm(pool, &y, y_stride, x, groups, scratch),
        (Path::Avx512Bf16, DType::Bf16 | DType::Fp8 | DType::Fp8Block) => {
            avx512::gemm_bf16(pool, &y, y_stride, x, groups, scratch)
        }
        (
            Path::Avx512 | Path::Avx512Bf16 | Path::Amx,
            DType::F32 | DType::Bf16 | DType::Fp8 | DType::Fp8Block,
        ) => {
            avx512::gemm(pool, &y, y_stride, x, groups, scratch);
        }
        _ => avx2::gemm(pool, &y, y_stride, x, groups, scratch),
    };
    if pool.path() != Path::Amx {
        return run(pool.path(), &groups);
    }
    let tiles_from = pool.crossover(dtype).unwrap_or_else(|| crossover(dtype));
    let (few, many): (Vec<_>, Vec<_>) = groups.into_iter().partition(|it| it.rows.len() < tiles_from);
    run(Path::Avx512Bf16, &few);
    run(Path::Amx, &many);
}

/// The number of rows from which on tiles are faster than vectors, where it was not measured: what
/// cores of a Xeon 6 showed with 4096 × 4096 weights from memory. Vectors take 8 to 10 cycles for a
/// row of 32 columns of 16 outputs. Tiles take 16 to 26 for up to sixteen rows, after 80 (8-bit
/// floats) to 160 that expand the weights.
fn crossover(dtype: DType) -> usize {
    match dtype {
        DType::F32 | DType::Bf16 => 4,
        _ if is_float8(dtype) => 5,
        _ => 12,
    }
}
