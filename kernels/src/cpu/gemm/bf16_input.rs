//! x rounded to bf16, for the instructions that multiply bf16.

use crate::cpu::strided::StridedRows;
use crate::runtime::{Disjoint, Pool};

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

/// Rounds to nearest, ties to even, and fills the rest of `out` with zeros.
///
/// # Safety
/// The CPU has AVX2.
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
