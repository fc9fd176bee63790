//! x rounded to bf16, for the instructions that multiply bf16.

use super::group::GemmGroup;
use crate::cpu::strided::StridedRows;
use crate::runtime::{Disjoint, Path, Pool};
use std::arch::x86_64::*;
use std::ops::Range;

/// Columns of one step of a tile multiplication. Rows are padded with zeros to whole steps.
pub(super) const DEPTH: usize = 32;
/// The number of values from which on the whole team rounds x.
const SHARED: usize = 1 << 14;

/// m rows of bf16 that lie `stride` values apart; each has whole steps of [`DEPTH`] columns.
#[derive(Clone, Copy)]
pub(super) struct Bf16Rows<'a> {
    pub(super) values: &'a [u16],
    pub(super) stride: usize,
}

/// x in bf16 in the order in which tiles are loaded. A group's columns are divided into slabs, one
/// after the other. A slab has blocks of up to [`BLOCK_ROWS`] rows, and a block has steps, each
/// with [`DEPTH`] columns of all its rows. So a tile is contiguous, and so are all rows of a slab.
#[derive(Clone, Copy)]
pub(super) struct Bf16Blocks<'a> {
    values: &'a [u16],
    slabs: Slabs,
}

/// How columns are divided.
#[derive(Clone, Copy)]
pub(super) struct Slabs {
    pub(super) columns: usize,
    /// Columns of a slab of a group with so many rows: whole steps. The last slab has up to half
    /// as many more.
    pub(super) width: fn(usize) -> usize,
}

impl Slabs {
    /// The slab of a group with `rows` rows that `column` lies in.
    pub(super) fn around(&self, rows: usize, column: usize) -> Range<usize> {
        let width = (self.width)(rows).min(self.columns.next_multiple_of(DEPTH));
        let last = (self.columns.saturating_sub(width / 2).div_ceil(width)).max(1) - 1;
        match column / width {
            slab if slab < last => slab * width..(slab + 1) * width,
            _ => last * width..self.columns,
        }
    }

    /// All slabs of such a group, in order.
    pub(super) fn all(self, rows: usize) -> impl Iterator<Item = Range<usize>> {
        let slab = move |column| Some(self.around(rows, column)).filter(|it| column < it.end);
        std::iter::successors(slab(0), move |before| slab(before.end))
    }
}

/// Rows of one block of [`Bf16Blocks`].
pub(super) const BLOCK_ROWS: usize = 32;

/// The distance of rows in values: an odd number of cache lines, so that neighbouring rows never
/// fall on the same lines of a cache.
fn stride(k: usize) -> usize {
    (k.div_ceil(DEPTH) | 1) * DEPTH
}

/// Floats of scratch for m rows of k columns.
pub(super) fn floats(m: usize, k: usize) -> usize {
    m * stride(k) / 2
}

impl<'a> Bf16Rows<'a> {
    pub(super) fn new(pool: &Pool, m: usize, k: usize, x: StridedRows<'_>, scratch: &'a mut [f32]) -> Self {
        let stride = stride(k);
        let values: &mut [u16] = bytemuck::cast_slice_mut(&mut scratch[..floats(m, k)]);
        let shared = Disjoint::new(values);
        let one = |_, row: usize| {
            // SAFETY: each row is one item.
            let out = unsafe { shared.range(row * stride, stride) };
            // SAFETY: only paths that include AVX2 round x.
            unsafe { round(&x.values[row * x.stride..][..k], out) };
        };
        if m * k < SHARED {
            (0..m).for_each(|row| one(0, row))
        } else {
            pool.each(m, one)
        }
        Self { values, stride }
    }
}

impl<'a> Bf16Blocks<'a> {
    pub(super) fn new(
        pool: &Pool,
        groups: &[GemmGroup<'_>],
        x: StridedRows<'_>,
        slabs: Slabs,
        scratch: &'a mut [f32],
    ) -> Self {
        let blocks: Vec<_> = groups
            .iter()
            .flat_map(|it| it.rows.clone().step_by(BLOCK_ROWS).map(|from| (it.rows.clone(), from)))
            .collect();
        let values: &mut [u16] = bytemuck::cast_slice_mut(scratch);
        let layout = Self { values: &[], slabs };
        let shared = Disjoint::new(values);
        let one = |_, block: usize| {
            let (group, from) = &blocks[block];
            let rows = BLOCK_ROWS.min(group.end - from);
            for columns in slabs.all(group.len()) {
                let values = rows * columns.len().next_multiple_of(DEPTH);
                // SAFETY: each block of a slab belongs to one item.
                let out = unsafe { shared.range(layout.place(group, *from, columns.start), values) };
                let x = StridedRows::new(&x.values[from * x.stride + columns.start..], x.stride);
                round_block(x, rows, columns.len(), out);
            }
        };
        match groups.last() {
            Some(last) if last.rows.end * slabs.columns >= SHARED => pool.each(blocks.len(), one),
            _ => (0..blocks.len()).for_each(|block| one(0, block)),
        }
        Self { values, ..layout }
    }

    pub(super) fn slabs(&self) -> Slabs {
        self.slabs
    }

    /// The values of the block of `group` that begins with row `from`, from `column` on, which
    /// begins a step. Only the rest of the column's slab follows.
    pub(super) fn block(&self, group: &Range<usize>, from: usize, column: usize) -> &'a [u16] {
        &self.values[self.place(group, from, column)..]
    }

    fn place(&self, group: &Range<usize>, from: usize, column: usize) -> usize {
        let slab = self.slabs.around(group.len(), column);
        let width = slab.len().next_multiple_of(DEPTH);
        let height = BLOCK_ROWS.min(group.end - from);
        group.start * self.slabs.columns.next_multiple_of(DEPTH)
            + group.len() * slab.start
            + (from - group.start) * width
            + (column - slab.start) * height
    }
}

/// Floats of scratch for m rows of k columns in [`Bf16Blocks`].
pub(super) fn block_floats(m: usize, k: usize) -> usize {
    m * k.next_multiple_of(DEPTH) / 2
}

/// Rounds `rows` rows of `columns` columns and writes them step by step.
fn round_block(x: StridedRows<'_>, rows: usize, columns: usize, out: &mut [u16]) {
    let vectors = Path::Avx512Bf16.is_supported();
    for row in 0..rows {
        let x = &x.values[row * x.stride..][..columns];
        // SAFETY: the CPU has the instructions: only paths that include AVX2 round x.
        unsafe {
            if vectors { round_steps(x, row, rows, out) } else { round_steps_plainly(x, row, rows, out) }
        }
    }
}

/// As [`round`], but subnormal numbers become zero, as which tiles take them. Writes row `row` of
/// steps of `rows` rows.
///
/// # Safety
/// The CPU has AVX-512 F, BW and BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn round_steps(x: &[f32], row: usize, rows: usize, out: &mut [u16]) {
    for (x, out) in x.chunks(DEPTH).zip(out[row * DEPTH..].chunks_mut(rows * DEPTH)) {
        let half = |from: usize| {
            let there = x.len().saturating_sub(from).min(DEPTH / 2);
            // SAFETY: `there` values are there, and only they are loaded.
            unsafe { _mm512_maskz_loadu_ps(((1_u32 << there) - 1) as u16, x.as_ptr().wrapping_add(from)) }
        };
        // SAFETY: `out` has 32 values, 64 bytes.
        unsafe {
            let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(half(DEPTH / 2), half(0)));
            _mm512_storeu_si512(out[..DEPTH].as_mut_ptr().cast(), halves);
        }
    }
}

/// As [`round_steps`], with AVX2 alone.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn round_steps_plainly(x: &[f32], row: usize, rows: usize, out: &mut [u16]) {
    for (x, out) in x.chunks(DEPTH).zip(out[row * DEPTH..].chunks_mut(rows * DEPTH)) {
        // SAFETY: the caller's promise.
        unsafe { round(x, &mut out[..DEPTH]) };
    }
}

/// Rounds to nearest, ties to even, and fills the rest of `out` with zeros.
///
/// # Safety
/// The CPU has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn round(x: &[f32], out: &mut [u16]) {
    let (values, padding) = out.split_at_mut(x.len());
    for (out, x) in values.iter_mut().zip(x) {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        // Rounding could turn a NaN into infinity, so a NaN keeps its upper half, made quiet.
        *out = (if x.is_nan() { bits | 0x40_0000 } else { rounded } >> 16) as u16;
    }
    padding.fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn values_round_as_the_half_crate_rounds_them_and_the_rest_is_zero() {
        if !crate::runtime::Path::Avx2.is_supported() {
            return println!("absent: this CPU has no AVX2");
        }
        let specials = [0.0, -0.0, 1.0, 1.003_906_3, 1.011_718_8, f32::MAX, f32::INFINITY, f32::NAN, 1e-40];
        let x: Vec<f32> = specials.into_iter().chain((0..200).map(|i| (i as f32 * 0.37).sin())).collect();
        let mut scratch = vec![9.0; floats(2, 100)];
        let pool = Pool::new(&crate::runtime::affinity::available_cores()[..1]).expect("our core");
        let halves = Bf16Rows::new(&pool, 2, 100, StridedRows::new(&x, 104), &mut scratch);
        for row in 0..2 {
            let got = &halves.values[row * halves.stride..][..halves.stride];
            let wanted = x[row * 104..][..100].iter().map(|&x| bf16::from_f32(x).to_bits());
            assert!(got[..100].iter().copied().eq(wanted), "row {row}");
            assert!(got[100..].iter().all(|&value| value == 0));
        }
    }
}
