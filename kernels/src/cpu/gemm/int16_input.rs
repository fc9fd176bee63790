//! x rounded to 16-bit integers, for products with integer weights.

use crate::cpu::strided::StridedRows;
use crate::cpu::weights::{GROUP_COLUMNS, PANEL};
use crate::runtime::{Disjoint, Pool};
use hwprofiles::DType;

/// Largest magnitude of a rounded x.
const LIMIT: f32 = 32767.0;
/// 3·2²²: a float of this magnitude has no fraction bits, so adding it rounds to an integer.
const ROUNDING: f32 = 12_582_912.0;
/// All bits of a float but its sign.
const SIGNLESS: u32 = 0x7fff_ffff;
/// Floats that hold one group: 32 integers of 16 bits.
pub(super) const GROUP_FLOATS: usize = GROUP_COLUMNS / 2;
/// The number of values from which on the whole team rounds x.
const SHARED: usize = 1 << 14;

/// Rows of x, rounded to 16-bit integers. A row is its groups, then the scale of each group, then
/// for each group −8·Σx as an i32, because `int4` stores q + 8.
#[derive(Clone, Copy)]
pub(super) struct Int16Rows<'a> {
    rows: &'a [f32],
    groups: usize,
}

/// Floats of scratch for m rows of k columns.
pub(super) fn int16_floats(m: usize, k: usize) -> usize {
    m * row_floats(k.div_ceil(GROUP_COLUMNS))
}

fn row_floats(groups: usize) -> usize {
    groups * (GROUP_FLOATS + 2)
}

impl<'a> Int16Rows<'a> {
    pub(super) fn new(pool: &Pool, m: usize, k: usize, x: StridedRows<'_>, scratch: &'a mut [f32]) -> Self {
        let groups = k.div_ceil(GROUP_COLUMNS);
        let rows = &mut scratch[..m * row_floats(groups)];
        let shared = Disjoint::new(rows);
        let one = |_, row: usize| {
            // SAFETY: each row is one item.
            let out = unsafe { shared.range(row * row_floats(groups), row_floats(groups)) };
            // SAFETY: only paths that include AVX2 round x.
            unsafe { round_row(&x.values[row * x.stride..][..k], groups, out) };
        };
        if m * k < SHARED {
            (0..m).for_each(|row| one(0, row));
        } else {
            pool.each(m, one);
        }
        Self { rows, groups }
    }

    /// The addresses of one row's integers, scales and offsets.
    pub(super) fn row(&self, row: usize) -> (*const i32, *const f32, *const i32) {
        let row = &self.rows[row * row_floats(self.groups)..][..row_floats(self.groups)];
        let scales = &row[self.groups * GROUP_FLOATS..];
        (row.as_ptr().cast(), scales.as_ptr(), scales[self.groups..].as_ptr().cast())
    }
}

/// # Safety
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn round_row(x: &[f32], groups: usize, out: &mut [f32]) {
    let (integers, rest) = out.split_at_mut(groups * GROUP_FLOATS);
    let (scales, offsets) = rest.split_at_mut(groups);
    let integers: &mut [i16] = bytemuck::cast_slice_mut(integers);
    let offsets: &mut [i32] = bytemuck::cast_slice_mut(offsets);
    let mut padded = [0.0; GROUP_COLUMNS];
    for (group, out) in integers.chunks_exact_mut(GROUP_COLUMNS).enumerate() {
        let part = &x[group * GROUP_COLUMNS..x.len().min((group + 1) * GROUP_COLUMNS)];
        padded[..part.len()].copy_from_slice(part);
        padded[part.len()..].fill(0.0);
        // Magnitudes compare in the same order as integers, and the maximum of integers becomes
        // vector code. NaN is above infinity.
        let largest = padded.iter().fold(0, |largest, x| largest.max(x.to_bits() & SIGNLESS));
        let finite = largest < f32::INFINITY.to_bits();
        let largest = f32::from_bits(largest);
        // A group of zeros has scale 0. An infinity or NaN in x must become NaN, not a large
        // number.
        scales[group] = if finite { largest / LIMIT } else { f32::NAN };
        let inverse = if largest > 0.0 { LIMIT / largest } else { 0.0 };
        let mut sum = 0;
        for (out, x) in out.iter_mut().zip(&padded) {
            // The last bit of the sum is worth one. So the sum is rounded to nearest, ties to even,
            // and its lower half is the integer.
            *out = (x * inverse + ROUNDING).to_bits() as i16;
            sum += i32::from(*out);
        }
        offsets[group] = -8 * sum;
    }
}

/// Bytes of one group of columns of a full panel of weights.
pub(super) fn group_bytes(dtype: DType) -> usize {
    PANEL * dtype.matrix_bytes(1, GROUP_COLUMNS as u64).get() as usize
}
