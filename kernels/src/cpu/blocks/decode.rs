//! The definition of each format of blocks: the values of a block's bytes.
//!
//! d, m: f16 scale and scale of minima. Numbers are unsigned unless said otherwise.

use super::layout::BlockLayout;
use half::f16;
use hwprofiles::DType;

/// The values of 4-bit numbers in `iq4_nl` and `iq4_xs`.
pub(super) const UNEQUAL_STEPS: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Twice the values of 4-bit floats (one sign, two exponent bits, one fraction bit).
pub(super) const DOUBLED_FLOATS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Writes the values of one block.
type BlockDecoder = fn(&[u8], &mut [f32]);

/// Writes the values of whole blocks of `dtype`, in the order of a file. Returns whether the format
/// is one of blocks.
///
/// # Panics
/// Where `bytes` and `out` have not the same number of whole blocks.
pub fn dequantise(dtype: DType, bytes: &[u8], out: &mut [f32]) -> bool {
    let (size, decode): ((usize, usize), BlockDecoder) = match dtype {
        DType::Q8_0 => ((32, 34), q8_0),
        DType::Q4_0 => ((32, 18), q4_0),
        DType::Q4_1 => ((32, 20), q4_1),
        DType::Q5_0 => ((32, 22), q5_0),
        DType::Q5_1 => ((32, 24), q5_1),
        DType::Iq4Nl => ((32, 18), iq4_nl),
        DType::Mxfp4 => ((32, 17), mxfp4),
        DType::Nvfp4 => ((64, 36), nvfp4),
        DType::Iq4Xs => ((256, 136), iq4_xs),
        DType::Q2K => ((256, 84), q2_k),
        DType::Q3K => ((256, 110), q3_k),
        DType::Q4K => ((256, 144), q4_k),
        DType::Q5K => ((256, 176), q5_k),
        DType::Q6K => ((256, 210), q6_k),
        _ => return false,
    };
    let (columns, block) = size;
    assert!(
        out.len().is_multiple_of(columns) && bytes.len() == out.len() / columns * block,
        "{} bytes of {dtype} are not {} values",
        bytes.len(),
        out.len()
    );
    bytes.chunks_exact(block).zip(out.chunks_exact_mut(columns)).for_each(|(bytes, out)| decode(bytes, out));
    true
}

/// Replaces the scales of whole blocks of random bytes, so that their values are random numbers
/// between about −1 and 1. Tests and comparisons need such weights, because nothing here quantises
/// to these formats.
///
/// # Panics
/// For a format that is not multiplied in blocks, and where `blocks` are not whole ones.
pub fn moderate_scales(dtype: DType, blocks: &mut [u8]) {
    // Where a scale of all numbers is, and the largest product of a number and a group's scale.
    let (at, most) = match dtype {
        DType::Q8_0 | DType::Iq4Nl => (0, 128.0),
        DType::Q4_0 => (0, 8.0),
        DType::Iq4Xs => (0, 128.0 * 32.0),
        DType::Q4K => (0, 15.0 * 63.0),
        DType::Q5K => (0, 31.0 * 63.0),
        DType::Q6K => (208, 32.0 * 128.0),
        DType::Mxfp4 | DType::Nvfp4 => (0, 1.0),
        _ => panic!("{dtype} is not multiplied in blocks"),
    };
    let size = BlockLayout::for_dtype(dtype).map_or(1, |layout| layout.bytes);
    assert!(blocks.len().is_multiple_of(size), "{} bytes of {dtype} are no whole blocks", blocks.len());
    for block in blocks.chunks_exact_mut(size) {
        let share = 0.5 + f32::from(block[at]) / 512.0;
        let mut scale = |at: usize, value: f32| {
            block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
        };
        match dtype {
            // Up to 6 times an eighth.
            DType::Mxfp4 => block[0] = 122 + block[0] % 3,
            DType::Nvfp4 => block[..4].iter_mut().for_each(|scale| *scale %= 33),
            // Minima are up to half of the largest value.
            DType::Q4K | DType::Q5K => [(0, share / most), (2, 0.5 * share / 63.0)]
                .into_iter()
                .for_each(|(at, value)| scale(at, value)),
            _ => scale(at, share / most),
        }
    }
}

/// The f16 at the start of `bytes`.
fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// Value i is `of(number)`, where `pairs` has the numbers of the first half of `out` in its low
/// halves and those of the second half in its high halves.
fn nibbles(pairs: &[u8], out: &mut [f32], of: impl Fn(u8) -> f32) {
    let (low, high) = out.split_at_mut(pairs.len());
    for ((low, high), &pair) in low.iter_mut().zip(high).zip(pairs) {
        (*low, *high) = (of(pair & 15), of(pair >> 4));
    }
}

/// d·q, q a signed byte.
fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half(block);
    out.iter_mut().zip(&block[2..]).for_each(|(out, &q)| *out = d * f32::from(q as i8));
}

/// d·(q − 8).
fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half(block);
    nibbles(&block[2..], out, |q| d * (f32::from(q) - 8.0));
}

/// d·q + m.
fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block), half(&block[2..]));
    nibbles(&block[4..], out, |q| d * f32::from(q) + m);
}

/// The fifth bit of value i is bit i of the four bytes `fifth`.
fn with_fifth_bits(fifth: &[u8], pairs: &[u8], out: &mut [f32], of: impl Fn(u8) -> f32) {
    let fifth = u32::from_le_bytes([fifth[0], fifth[1], fifth[2], fifth[3]]);
    nibbles(pairs, out, f32::from);
    for (i, out) in out.iter_mut().enumerate() {
        *out = of(*out as u8 | ((fifth >> i & 1) as u8) << 4);
    }
}

/// d·(q − 16).
fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half(block);
    with_fifth_bits(&block[2..6], &block[6..], out, |q| d * (f32::from(q) - 16.0));
}

/// d·q + m.
fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block), half(&block[2..]));
    with_fifth_bits(&block[4..8], &block[8..], out, |q| d * f32::from(q) + m);
}

/// d·step(q).
fn iq4_nl(block: &[u8], out: &mut [f32]) {
    let d = half(block);
    nibbles(&block[2..], out, |q| d * f32::from(UNEQUAL_STEPS[usize::from(q)]));
}

/// float(q)·2^(e − 127).
fn mxfp4(block: &[u8], out: &mut [f32]) {
    let half = power_of_two_halved(block[0]);
    nibbles(&block[1..], out, |q| half * f32::from(DOUBLED_FLOATS[usize::from(q)]));
}

/// 2^(e − 128), which is subnormal for e < 2.
fn power_of_two_halved(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x20_0000 << e } else { u32::from(e - 1) << 23 })
}

/// float(q)·s, with one 8-bit float s (four exponent bits, three fraction bits) per 16 values.
fn nvfp4(block: &[u8], out: &mut [f32]) {
    let (scales, pairs) = block.split_at(4);
    for ((out, &scale), pairs) in out.chunks_exact_mut(16).zip(scales).zip(pairs.chunks_exact(8)) {
        let scale = unsigned_float8(scale) * 0.5;
        nibbles(pairs, out, |q| scale * f32::from(DOUBLED_FLOATS[usize::from(q)]));
    }
}

/// An 8-bit float without its sign: exponents have bias 7, and all ones is no number and counts as
/// zero.
fn unsigned_float8(bits: u8) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    match (exponent, bits & 127) {
        (_, 127) => 0.0,
        (0, _) => fraction * 2f32.powi(-9),
        _ => (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7),
    }
}

/// d·(s − 32)·step(q), with six bits of s per 32 values: four in `low`, two in `high`.
fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let (d, high) = (half(block), u16::from_le_bytes([block[2], block[3]]));
    let (low, pairs) = (&block[4..8], &block[8..]);
    for (group, (out, pairs)) in out.chunks_exact_mut(32).zip(pairs.chunks_exact(16)).enumerate() {
        let s = low[group / 2] >> (4 * (group % 2)) & 15 | ((high >> (2 * group) & 3) as u8) << 4;
        let scale = d * (f32::from(s) - 32.0);
        nibbles(pairs, out, |q| scale * f32::from(UNEQUAL_STEPS[usize::from(q)]));
    }
}

/// d·s·q − m·t, with s and t of four bits per 16 values and q of two bits. Four groups of 32 share
/// 32 bytes, two bits each.
fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, pairs, d, m) = (&block[..16], &block[16..80], half(&block[80..]), half(&block[82..]));
    for (group, (out, &scale)) in out.chunks_exact_mut(16).zip(scales).enumerate() {
        let (by, less) = (d * f32::from(scale & 15), m * f32::from(scale >> 4));
        let (bytes, shift) = (&pairs[group / 8 * 32 + group % 2 * 16..], group / 2 % 4 * 2);
        out.iter_mut().zip(bytes).for_each(|(out, q)| *out = by * f32::from(q >> shift & 3) - less);
    }
}

/// d·(s − 32)·(q − 4), with six bits of s per 16 values and q of two bits and a third one.
fn q3_k(block: &[u8], out: &mut [f32]) {
    let (third, pairs, sixes, d) = (&block[..32], &block[32..96], &block[96..108], half(&block[108..]));
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let low = sixes[group % 8] >> (group / 8 * 4) & 15;
        let s = low | (sixes[8 + group % 4] >> (group / 4 * 2) & 3) << 4;
        let scale = d * (f32::from(s) - 32.0);
        let (half, within) = (group / 8, group % 2 * 16);
        let (bytes, shift) = (&pairs[half * 32 + within..], group / 2 % 4 * 2);
        for ((out, q), third) in out.iter_mut().zip(bytes).zip(&third[within..]) {
            let q = q >> shift & 3 | (third >> (group / 2) & 1) << 2;
            *out = scale * (f32::from(q) - 4.0);
        }
    }
}

/// The scale and the minimum of a group of 32 in `q4_k` and `q5_k`, six bits each. Those of the
/// first four groups are in one byte; those of the last four are in half a byte and the upper bits
/// of another.
fn six_bits(sixes: &[u8], group: usize) -> (f32, f32) {
    let (scale, minimum) = match group {
        0..4 => (sixes[group] & 63, sixes[group + 4] & 63),
        _ => (
            sixes[group + 4] & 15 | sixes[group - 4] >> 6 << 4,
            sixes[group + 4] >> 4 | sixes[group] >> 6 << 4,
        ),
    };
    (f32::from(scale), f32::from(minimum))
}

/// d·s·q − m·t, with six bits of s and t per 32 values and q of four bits. Two groups share 32
/// bytes.
fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, m, sixes, pairs) = (half(block), half(&block[2..]), &block[4..16], &block[16..]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (s, t) = six_bits(sixes, group);
        let (by, less) = (d * s, m * t);
        for (out, &pair) in out.iter_mut().zip(&pairs[group / 2 * 32..]) {
            *out = by * f32::from(pair >> (4 * (group % 2)) & 15) - less;
        }
    }
}

/// As `q4_k`, with a fifth bit: bit g of byte i is that of value i of group g.
fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, m, sixes) = (half(block), half(&block[2..]), &block[4..16]);
    let (fifth, pairs) = (&block[16..48], &block[48..]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (s, t) = six_bits(sixes, group);
        let (by, less) = (d * s, m * t);
        for ((out, &pair), fifth) in out.iter_mut().zip(&pairs[group / 2 * 32..]).zip(fifth) {
            let q = pair >> (4 * (group % 2)) & 15 | (fifth >> group & 1) << 4;
            *out = by * f32::from(q) - less;
        }
    }
}

/// d·s·(q − 32), with a signed byte s per 16 values and q of four lower and two upper bits. Within
/// 128 values, groups of 32 use the low halves of 64 bytes first, then the high halves.
fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, upper, scales, d) = (&block[..128], &block[128..192], &block[192..208], half(&block[208..]));
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (part, within) = (group / 4, group % 4);
        let (low, upper) = (&low[part * 64 + within % 2 * 32..], &upper[part * 32..]);
        for (i, out) in out.iter_mut().enumerate() {
            let q = low[i] >> (within / 2 * 4) & 15 | (upper[i] >> (2 * within) & 3) << 4;
            let scale = d * f32::from(scales[2 * group + i / 16] as i8);
            *out = scale * (f32::from(q) - 32.0);
        }
    }
}
