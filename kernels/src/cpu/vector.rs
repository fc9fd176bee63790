//! Sums of vectors, and the loops over rows that the element-wise kernels share.

use crate::runtime::Disjoint;
use crate::runtime::{Path, Pool};
use std::ops::Range;

/// The number of values below which one thread does all the work: starting and joining a team costs
/// about as much time as one core needs for this many values.
pub const WORTH_SHARING: usize = 1 << 14;

/// y += x, element by element.
///
/// # Panics
/// Where the lengths differ.
pub fn add(pool: &Pool, y: &mut [f32], x: &[f32]) {
    let columns = y.len().clamp(1, 1 << 12);
    assert_eq!(y.len(), x.len());
    let whole = y.len() - y.len() % columns;
    let sum = |y: &mut [f32], x: &[f32]| y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
    each_row(pool, &mut y[..whole], &x[..whole], columns, sum);
    sum(&mut y[whole..], &x[whole..]);
}

/// y = factor · y.
pub fn scale(pool: &Pool, y: &mut [f32], factor: f32) {
    let columns = y.len().clamp(1, 1 << 12);
    let (whole, rest) = y.split_at_mut(y.len() - y.len() % columns);
    let scale = |y: &mut [f32]| y.iter_mut().for_each(|y| *y *= factor);
    each_row_in_place(pool, whole, columns, scale);
    scale(rest);
}

/// y += bias for every row of `bias.len()` values.
///
/// # Panics
/// Where `y` is not whole rows.
pub fn add_bias(pool: &Pool, y: &mut [f32], bias: &[f32]) {
    each_row_in_place(pool, y, bias.len(), |y| y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias));
}

/// Runs `work(row of y, row of x)` for every row of `columns` values, on several members where that
/// is faster.
pub(crate) fn each_row(
    pool: &Pool,
    y: &mut [f32],
    x: &[f32],
    columns: usize,
    work: impl Fn(&mut [f32], &[f32]) + Sync,
) {
    assert_eq!(y.len(), x.len());
    each_row_in_place_indexed(pool, y, columns, |row, y| work(y, &x[row * columns..][..columns]));
}

/// As [`each_row`], of one array.
pub(crate) fn each_row_in_place(
    pool: &Pool,
    y: &mut [f32],
    columns: usize,
    work: impl Fn(&mut [f32]) + Sync,
) {
    each_row_in_place_indexed(pool, y, columns, |_, y| work(y));
}

/// As [`each_row_in_place`], with the index of the row.
pub(crate) fn each_row_in_place_indexed(
    pool: &Pool,
    y: &mut [f32],
    columns: usize,
    work: impl Fn(usize, &mut [f32]) + Sync,
) {
    if y.is_empty() {
        return;
    }
    assert!(y.len().is_multiple_of(columns), "{} values are not rows of {columns}", y.len());
    let rows = y.len() / columns;
    let y = Disjoint::new(y);
    each_chunk(pool, rows, columns, |row| {
        // SAFETY: rows do not overlap, and each is one item.
        work(row, unsafe { y.range(row * columns, columns) });
    });
}

/// Runs `work(row)` for every row, on several members where `rows` rows of `columns` values are
/// enough.
///
/// The element-wise kernels have one source for all paths. On all paths but the reference it is
/// compiled for AVX2.
pub(crate) fn each_chunk(pool: &Pool, rows: usize, columns: usize, work: impl Fn(usize) + Sync) {
    each_range(pool, rows, columns, |rows| match pool.path() {
        Path::Reference => rows.for_each(&work),
        // SAFETY: a CPU that runs any other path has AVX2 and FMA.
        _ => unsafe { compiled_for_avx2(|| rows.for_each(&work)) },
    });
}

/// Runs `work(rows)` for ranges that together are all rows, on several members where `rows` rows of
/// `columns` values are enough.
pub(crate) fn each_range(pool: &Pool, rows: usize, columns: usize, work: impl Fn(Range<usize>) + Sync) {
    let alone = rows * columns < WORTH_SHARING || rows < pool.members();
    let chunk = match alone {
        true => rows,
        false => (WORTH_SHARING / 2).div_ceil(columns.max(1)).min(rows.div_ceil(pool.members())),
    };
    pool.each(rows.div_ceil(chunk.max(1)), |_, item| work(item * chunk..rows.min((item + 1) * chunk)));
}

/// Calls `work`, which is inlined here and so compiled with this function's instructions.
///
/// # Safety
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn compiled_for_avx2(work: impl FnOnce()) {
    work();
}

/// A kernel of one row or several, with one source for all paths.
///
/// [`RowKernel::compute`] must be `#[inline(always)]`, so that it is compiled into one function for
/// each path, with that path's instructions. A closure has no such guarantee: the compiler leaves a
/// large one (an exponential) as a function of its own in SSE2, at a sixth of the rate.
pub(crate) trait RowKernel {
    /// Computes the rows.
    fn compute(self);
}

/// Computes `rows` with the instructions of `path`.
pub(crate) fn compute(path: Path, rows: impl RowKernel) {
    match path {
        Path::Reference => rows.compute(),
        // SAFETY: a CPU that runs this path has AVX2 and FMA.
        Path::Avx2 => unsafe { rows_avx2(rows) },
        // SAFETY: a CPU that runs any other path has AVX-512 F, BW and VL.
        _ => unsafe { rows_avx512(rows) },
    }
}

/// # Safety
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn rows_avx2(rows: impl RowKernel) {
    rows.compute();
}

/// # Safety
/// The CPU has AVX-512 F, BW and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn rows_avx512(rows: impl RowKernel) {
    rows.compute();
}

/// Σ f(x) in sixteen interleaved partial sums, which become vector code and are more exact than one
/// running sum.
#[inline(always)]
pub(crate) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; 16];
    let mut chunks = x.chunks_exact(16);
    for chunk in &mut chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &x)| *lane += f(x));
    }
    let rest: f32 = chunks.remainder().iter().map(|&x| f(x)).sum();
    lanes.iter().sum::<f32>() + rest
}

/// The largest of `x` and `least`, in sixteen interleaved partial maxima, which become vector code.
#[inline(always)]
pub(crate) fn maximum(x: &[f32], least: f32) -> f32 {
    let mut lanes = [least; 16];
    let mut chunks = x.chunks_exact(16);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    let rest = chunks.remainder().iter().chain(&lanes);
    rest.fold(least, |a, &b| if b > a { b } else { a })
}
