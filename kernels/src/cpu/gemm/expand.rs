//! Expansion of weights of any format to pairs of bf16 columns, which VDPBF16PS and TDPBF16PS
//! multiply.
//!
//! Integer weights could instead go through TDPBSSD, with x in 8 bits. But their scales change
//! every 32 columns. So the 16 × 16 sums of each multiplication would leave the tile and be scaled
//! and added in vectors: at least 24 cycles beside the 16 of the multiplication, again for each
//! block of rows. And x in 8 bits with one scale for 32 values is coarser than bf16.
//!
//! Expanding a tile of weights takes about 90 cycles of vector instructions once, for any number of
//! rows, and the sums stay in their tiles. The cost is that s·q is rounded to bf16, an error of
//! half of a 256th of the weight. Quantising to `int8` has an error of up to a 254th of the group's
//! largest value.

use super::blocking::{evenly_scaled, tile_scales};
use crate::cpu::blocks::expand_block_panel;
use crate::cpu::tiles::avx512::TileStep;
use crate::cpu::tiles::float8::{UNIT, WidenedFloat8Step};
use crate::cpu::weights::{GROUP_COLUMNS, PANEL, WeightsView, is_float8};
use crate::runtime::Path;
use half::bf16;
use hwprofiles::DType;
use std::arch::x86_64::*;
use std::ops::Range;

/// Writes columns of a panel as `out.len() / 16` steps of sixteen pairs, each value rounded to
/// bf16, with zeros where there are no columns or rows.
///
/// `columns` start on an even column; for integer weights on a group, for 8-bit floats where a
/// scale begins.
pub(super) fn expand(w: WeightsView<'_>, panel: usize, columns: &Range<usize>, out: &mut [f32]) {
    if let Some(wide) = w.wide_panel(panel).filter(|_| has_vector_expand()) {
        let groups = columns.start / GROUP_COLUMNS..columns.end.div_ceil(GROUP_COLUMNS);
        // SAFETY: the CPU has the instructions, and the panel these groups.
        return unsafe { expand_block_panel(w.dtype(), &wide.0, groups, out) };
    }
    let whole = w.rows() - panel * PANEL >= PANEL;
    let floats = is_float8(w.dtype());
    let integers = matches!(w.dtype(), DType::Int8 | DType::Int4);
    let steps = if floats && whole && has_vector_expand() {
        let steps = columns.len() / 2;
        let (vectors, rest) = out.split_at_mut(steps * PANEL);
        // SAFETY: the CPU has the instructions, and the panel these pairs of columns.
        unsafe { expand_float8(w, panel, columns.start, vectors) };
        let odd = columns.len() % 2;
        expand_scalar(w, panel, columns.start + 2 * steps, &mut rest[..odd * PANEL]);
        steps + odd
    } else if integers && whole && has_vector_expand() {
        let steps = columns.len().next_multiple_of(GROUP_COLUMNS) / 2;
        // SAFETY: the CPU has the instructions.
        unsafe { expand_groups(w.dtype(), w.panel(panel), columns, &mut out[..steps * PANEL]) };
        steps
    } else {
        let steps = columns.len().div_ceil(2);
        expand_scalar(w, panel, columns.start, &mut out[..steps * PANEL]);
        steps
    };
    out[steps * PANEL..].fill(0.0);
}

/// Whether vectors expand integer weights. Every CPU with AMX has the instructions; one that
/// emulates AMX may not.
pub(super) fn has_vector_expand() -> bool {
    Path::Avx512Bf16.is_supported() && is_x86_feature_detected!("avx512vnni")
}

/// Writes columns from `from` on, two by two, each row's pair as one value. This is the scalar
/// reference.
pub(super) fn expand_scalar(w: WeightsView<'_>, panel: usize, from: usize, out: &mut [f32]) {
    for (step, out) in out.chunks_exact_mut(PANEL).enumerate() {
        let column = from + 2 * step;
        let mut two = [0.0; 2 * PANEL];
        let there = w.columns().saturating_sub(column).min(2);
        w.unpack(panel, column, &mut two[..there * PANEL]);
        let bits = |value| u32::from(bf16::from_f32(value).to_bits());
        for (lane, out) in out.iter_mut().enumerate() {
            *out = f32::from_bits(bits(two[lane]) | bits(two[PANEL + lane]) << 16);
        }
    }
}

/// Expands the groups of a whole panel's `columns`, which start on a group.
///
/// # Safety
/// The CPU has AVX-512 F, BW, VL and BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn expand_groups(dtype: DType, panel: &[u8], columns: &Range<usize>, out: &mut [f32]) {
    let bytes = dtype.matrix_bytes(PANEL as u64, GROUP_COLUMNS as u64).get() as usize;
    let groups = panel[columns.start / GROUP_COLUMNS * bytes..].chunks_exact(bytes);
    for (group, out) in groups.zip(out.chunks_exact_mut(GROUP_COLUMNS / 2 * PANEL)) {
        let (scales, values) = group.split_at(2 * PANEL);
        // SAFETY: sixteen f16 are 32 bytes.
        let scales = unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(scales.as_ptr().cast())) };
        // SAFETY: a group of a whole panel has 16 pairs of columns of 32 bytes, or 4 × 64 bytes of
        // eight columns each.
        unsafe {
            match dtype {
                DType::Int8 => expand_int8(scales, values, out),
                _ => expand_int4(scales, values, out),
            }
        }
    }
}

/// Expands whole pairs of columns of a whole panel of 8-bit floats, from column `from` on, which is
/// the first of its scales.
///
/// # Safety
/// As [`expand_groups`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn expand_float8(w: WeightsView<'_>, panel: usize, from: usize, out: &mut [f32]) {
    for columns in evenly_scaled(w, from..from + out.len() / PANEL * 2, usize::MAX) {
        let values = w.panel(panel)[w.header_bytes() + PANEL * columns.start..].chunks_exact(2 * PANEL);
        let out = out[(columns.start - from) / 2 * PANEL..].chunks_exact_mut(PANEL);
        // SAFETY: the panel has the scales.
        let scales = unsafe { tile_scales(w, panel, columns.start, UNIT).wide(0) };
        let scales = scales.expect("8-bit floats have scales");
        for (pair, out) in values.zip(out).take(columns.len() / 2) {
            // SAFETY: 32 bytes are a pair of columns, which becomes sixteen values of four bytes.
            unsafe {
                let [first, second] = [0, 1].map(|which| WidenedFloat8Step::weights(pair.as_ptr(), which));
                _mm512_storeu_ps(out.as_mut_ptr(), scaled_pairs(scales, first, second));
            }
        }
    }
}

/// # Safety
/// As [`expand_groups`]; the slices are of one group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn expand_int8(scales: __m512, values: &[u8], out: &mut [f32]) {
    for (values, out) in values.chunks_exact(2 * PANEL).zip(out.chunks_exact_mut(PANEL)) {
        // SAFETY: 32 bytes are a pair of columns, which becomes sixteen values of four bytes.
        unsafe {
            let words = _mm512_cvtepi8_epi16(_mm256_loadu_si256(values.as_ptr().cast()));
            let first = _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(words));
            let second = _mm512_srai_epi32::<16>(words);
            _mm512_storeu_ps(out.as_mut_ptr(), pairs(scales, first, second));
        }
    }
}

/// # Safety
/// As [`expand_groups`]; the slices are of one group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn expand_int4(scales: __m512, values: &[u8], out: &mut [f32]) {
    let (mask, eight) = (_mm512_set1_epi32(15), _mm512_set1_epi32(8));
    for (values, out) in values.chunks_exact(4 * PANEL).zip(out.chunks_exact_mut(4 * PANEL)) {
        // SAFETY: 64 bytes are eight columns.
        let words = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
        for (pair, out) in out.chunks_exact_mut(PANEL).enumerate() {
            // Nibbles i and i + 4 are columns 2i and 2i + 1.
            let nibble = |at: usize| {
                let shifted = _mm512_srl_epi32(words, _mm_cvtsi32_si128(4 * at as i32));
                _mm512_sub_epi32(_mm512_and_si512(shifted, mask), eight)
            };
            // SAFETY: sixteen values of four bytes.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), pairs(scales, nibble(pair), nibble(pair + 4))) };
        }
    }
}

/// s·q of two columns, rounded to bf16 (to nearest, ties to even; none is subnormal). The first
/// column is in the lower halves.
///
/// # Safety
/// As [`expand_groups`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn pairs(scales: __m512, first: __m512i, second: __m512i) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { scaled_pairs(scales, _mm512_cvtepi32_ps(first), _mm512_cvtepi32_ps(second)) }
}

/// As [`pairs`], of floats.
///
/// # Safety
/// As [`expand_groups`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn scaled_pairs(scales: __m512, first: __m512, second: __m512) -> __m512 {
    const ORDER: [u16; 32] = {
        let mut order = [0; 32];
        let mut lane = 0;
        while lane < PANEL {
            (order[2 * lane], order[2 * lane + 1]) = (lane as u16, (PANEL + lane) as u16);
            lane += 1;
        }
        order
    };
    let scaled = |q| _mm512_mul_ps(scales, q);
    // SAFETY: ORDER is 64 bytes; a vector of bf16 and one of 16-bit integers have the same 64
    // bytes.
    unsafe {
        let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(scaled(second), scaled(first)));
        let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
        _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, halves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::weights::{SCALE_COLUMNS, Weights};
    use crate::runtime::MemoryArena;
    use hwprofiles::units::Bytes;

    #[test]
    fn vectors_expand_to_the_bits_of_the_plain_way() {
        let word = if has_vector_expand() { "real" } else { "absent: the plain way alone" };
        println!("expansion by AVX-512 BF16: {word}");
        let memory = MemoryArena::new("test", Bytes::new(1 << 30));
        for dtype in [DType::Bf16, DType::Fp8, DType::Fp8Block, DType::Int8, DType::Int4] {
            let sizes = [(16, 32), (16, 31), (16, 33), (20, 100), (3, 70), (33, 1), (32, 300)];
            let whole = |&(rows, _): &(usize, usize)| dtype != DType::Fp8Block || rows % PANEL == 0;
            for (rows, columns) in sizes.into_iter().filter(whole) {
                // From 2⁻³⁰ to 2³⁰, so that some scales are subnormal f16, some zero and some
                // clipped.
                let value = |i: usize| (i as f32 * 0.7).sin() * ((i / columns % 61) as f32 - 30.0).exp2();
                let values: Vec<f32> = (0..rows * columns).map(value).collect();
                let weights = Weights::from_f32(&memory, dtype, rows, columns, &values).expect("fits");
                let steps = columns.next_multiple_of(GROUP_COLUMNS) / 2;
                for panel in 0..rows.div_ceil(PANEL) {
                    let step = if dtype == DType::Fp8Block { SCALE_COLUMNS } else { GROUP_COLUMNS };
                    for from in (0..columns).step_by(step) {
                        let (mut got, mut wanted) = (vec![f32::NAN; steps * PANEL], vec![0.0; steps * PANEL]);
                        expand(weights.view(), panel, &(from..columns), &mut got);
                        expand_scalar(weights.view(), panel, from, &mut wanted);
                        let same = got.iter().zip(&wanted).all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(same, "{dtype} {rows}×{columns}, panel {panel} from column {from}");
                    }
                }
            }
        }
    }
}
