//! Expansion of weights of any format to pairs of bf16 columns, which VDPBF16PS and TDPBF16PS
//! multiply.
//!
//! Integer weights could instead go through TDPBSSD, with x in 8 bits. But their scales change
//! every 32 columns. So the 16 × 16 sums of each multiplication would leave the tile and be scaled
//! and added in vectors: at least 24 cycles beside the 16 of the multiplication, again for each
//! block of rows. And x in 8 bits with one scale for 32 values is coarser than bf16.
//!
//! Expanding a tile of weights takes 80 (8-bit floats) to 160 cycles of vector instructions once,
//! for any number of rows, and the sums stay in their tiles. The cost is that s·q is rounded to
//! bf16, an error of half of a 256th of the weight. Quantising to `int8` has an error of up to a
//! 254th of the group's largest value.

use super::blocking::evenly_scaled;
use crate::cpu::blocks::expand_block_panel;
use crate::cpu::tiles::avx2::Fetch;
use crate::cpu::weights::{GROUP_COLUMNS, PANEL, SCALE_COLUMNS, WeightsView, float8_value, is_float8};
use crate::runtime::Path;
use half::bf16;
use hwprofiles::DType;
use std::arch::x86_64::*;
use std::array::from_fn;
use std::ops::Range;

/// Writes columns of a panel as `out.len() / 16` steps of sixteen pairs, each value rounded to
/// bf16, with zeros where there are no columns or rows. Values whose scale is the same in all
/// columns are written without it ([`sum_scales`]).
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
    let integers = matches!(w.dtype(), DType::Int8 | DType::Int4);
    let steps = if whole && is_float8(w.dtype()) {
        let steps = columns.len().div_ceil(2);
        expand_float8(w, panel, columns, &mut out[..steps * PANEL]);
        steps
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
    Path::Avx512Bf16.is_supported()
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512vbmi")
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
        Fetch::Near.lines(group);
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

/// What multiplies the sums of a whole panel whose values are expanded without their scales: those
/// of `fp8`, where each row has one.
pub(super) fn sum_scales(w: WeightsView<'_>, panel: usize) -> Option<[f32; PANEL]> {
    let whole = w.rows() - panel * PANEL >= PANEL;
    (whole && w.dtype() == DType::Fp8).then(|| {
        let scale = |lane: usize| w.panel(panel)[4 * lane..][..4].try_into().expect("four bytes");
        from_fn(|lane| f32::from_le_bytes(scale(lane)))
    })
}

/// Expands columns of a whole panel of 8-bit floats, which start where a scale begins. In
/// `fp8_block` a scale belongs to a whole panel, so the 128 magnitudes are scaled instead of the
/// numbers.
fn expand_float8(w: WeightsView<'_>, panel: usize, columns: &Range<usize>, out: &mut [f32]) {
    let bytes = w.panel(panel);
    for part in evenly_scaled(w, columns.clone(), usize::MAX) {
        let scale = match w.dtype() {
            DType::Fp8 => 1.0,
            _ => {
                let at = 4 * (part.start / SCALE_COLUMNS);
                f32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
            }
        };
        let numbers = &bytes[w.header_bytes() + PANEL * part.start..][..PANEL * part.len()];
        let out = &mut out[(part.start - columns.start) / 2 * PANEL..][..part.len().div_ceil(2) * PANEL];
        if has_vector_expand() {
            // SAFETY: the CPU has the instructions.
            unsafe { float8_by_table(numbers, scale, out) };
            continue;
        }
        for (pair, out) in numbers.chunks(2 * PANEL).zip(out.chunks_exact_mut(PANEL)) {
            let bits = |number| u32::from(bf16::from_f32(scale * float8_value(number)).to_bits());
            for (lane, out) in out.iter_mut().enumerate() {
                let [first, second] = pair_of(pair, lane);
                *out = f32::from_bits(bits(first) | bits(second) << 16);
            }
        }
    }
}

/// Two columns' numbers of a lane; a last column has no partner, and its lanes lie side by side.
fn pair_of(pair: &[u8], lane: usize) -> [u8; 2] {
    match pair.len() == 2 * PANEL {
        true => [pair[2 * lane], pair[2 * lane + 1]],
        false => [pair[lane], 0],
    }
}

/// Writes pairs of columns of 8-bit floats times `scale`. The lower and the upper bytes of the bf16
/// numbers come from two tables of 128 bytes each.
///
/// # Safety
/// The CPU has AVX-512 F, BW, VL, BF16 and VBMI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx512vbmi")]
unsafe fn float8_by_table(numbers: &[u8], scale: f32, out: &mut [f32]) {
    const MAGNITUDES: [f32; 128] = {
        let mut values = [0.0; 128];
        let mut number = 1;
        while number < 128 {
            values[number] = match number {
                0..8 => number as f32 / 512.0,
                _ => f32::from_bits(((number as u32) << 20) + (120 << 23)),
            };
            number += 1;
        }
        values
    };
    /// Eight bytes of the first pair, then the eight of the second that become the same lanes.
    const ORDER: [u64; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
    let scale = _mm512_set1_ps(scale);
    let half = |at: usize| {
        // SAFETY: the table has 128 values; a vector of bf16 and one of integers have the same
        // bytes.
        unsafe {
            let value = |at| _mm512_mul_ps(scale, _mm512_loadu_ps(MAGNITUDES[at..at + 16].as_ptr()));
            let words =
                |at| -> __m512i { std::mem::transmute(_mm512_cvtne2ps_pbh(value(at + 16), value(at))) };
            let (first, second) = (words(at), words(at + 32));
            let bytes = |first, second| {
                let low = _mm512_castsi256_si512(_mm512_cvtepi16_epi8(first));
                _mm512_inserti64x4::<1>(low, _mm512_cvtepi16_epi8(second))
            };
            let upper = |words| _mm512_srli_epi16::<8>(words);
            [bytes(first, second), bytes(upper(first), upper(second))]
        }
    };
    let ([low, upper], [more_low, more_upper]) = (half(0), half(64));
    // SAFETY: 64 bytes.
    let order = unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) };
    for (numbers, out) in numbers.chunks(4 * PANEL).zip(out.chunks_mut(2 * PANEL)) {
        Fetch::Near.line(numbers.as_ptr(), 0);
        let mut last = [0; 4 * PANEL];
        let numbers = if numbers.len() == last.len() {
            numbers
        } else {
            for (pair, last) in numbers.chunks(2 * PANEL).zip(last.chunks_exact_mut(2 * PANEL)) {
                last.as_chunks_mut()
                    .0
                    .iter_mut()
                    .enumerate()
                    .for_each(|(lane, last)| *last = pair_of(pair, lane));
            }
            &last
        };
        // SAFETY: there are 64 bytes; each step of `out` is sixteen values of four bytes.
        unsafe {
            let numbers = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(numbers.as_ptr().cast()));
            let low = _mm512_permutex2var_epi8(low, numbers, more_low);
            let magnitude = _mm512_permutex2var_epi8(upper, numbers, more_upper);
            // magnitude | (numbers & sign)
            let upper = _mm512_ternarylogic_epi64::<0xf8>(magnitude, numbers, _mm512_set1_epi8(i8::MIN));
            let steps = [_mm512_unpacklo_epi8(low, upper), _mm512_unpackhi_epi8(low, upper)];
            for (step, out) in steps.into_iter().zip(out.chunks_exact_mut(PANEL)) {
                _mm512_storeu_si512(out.as_mut_ptr().cast(), step);
            }
        }
    }
}

/// # Safety
/// As [`expand_groups`]; the slices are of one group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn expand_int8(scales: __m512, values: &[u8], out: &mut [f32]) {
    let twice = |first: i32| {
        let lane = |at: i32| first + at / 2;
        _mm512_permutexvar_ps(
            _mm512_setr_epi32(
                lane(0),
                lane(1),
                lane(2),
                lane(3),
                lane(4),
                lane(5),
                lane(6),
                lane(7),
                lane(8),
                lane(9),
                lane(10),
                lane(11),
                lane(12),
                lane(13),
                lane(14),
                lane(15),
            ),
            scales,
        )
    };
    let scales = [twice(0), twice(8)];
    for (values, out) in values.chunks_exact(2 * PANEL).zip(out.chunks_exact_mut(PANEL)) {
        // SAFETY: 32 bytes are a pair of columns of sixteen rows, side by side as they are written.
        unsafe {
            let eight_rows = |half: usize| {
                let values = _mm_loadu_si128(values[PANEL * half..].as_ptr().cast());
                _mm512_mul_ps(scales[half], _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(values)))
            };
            let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(eight_rows(1), eight_rows(0)));
            _mm512_storeu_ps(out.as_mut_ptr(), _mm512_castsi512_ps(halves));
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
    use crate::cpu::weights::Weights;
    use crate::runtime::MemoryArena;
    use hwprofiles::units::Bytes;

    /// A pair of bf16 values divided by a scale that they were multiplied by.
    fn without_scale(pair: f32, scale: f32) -> f32 {
        let number = |half: u32| {
            let scaled = f32::from_bits(half << 16);
            let nearest = |a: &u8, b: &u8| {
                let distance =
                    |byte: u8| (f64::from(float8_value(byte)) * f64::from(scale) - f64::from(scaled)).abs();
                distance(*a).total_cmp(&distance(*b))
            };
            let numbers = (0..=255).filter(|byte| byte & 127 != 127);
            u32::from(bf16::from_f32(float8_value(numbers.min_by(nearest).expect("numbers"))).to_bits())
        };
        f32::from_bits(number(pair.to_bits() & 0xffff) | number(pair.to_bits() >> 16) << 16)
    }

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
                        if let Some(scales) = sum_scales(weights.view(), panel) {
                            wanted.iter_mut().zip(scales.iter().cycle()).for_each(|(pair, &scale)| {
                                *pair = without_scale(*pair, scale);
                            });
                        }
                        let same = got.iter().zip(&wanted).all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(same, "{dtype} {rows}×{columns}, panel {panel} from column {from}");
                    }
                }
            }
        }
    }
}
