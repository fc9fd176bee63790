//! Random operands. Zeros draw less power than data: an H200's products of zeros are 13 % faster.

use half::{bf16, f16};
use hwprofiles::DType;

/// `len` bytes of random values of `dtype`, the same in each run: 16-bit floats uniform in [−1, 1),
/// E4M3 of any sign and fraction between 2⁻⁶ and 2, and any 8-bit integers.
pub(super) fn pattern(dtype: DType, len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15;
    let words = std::iter::repeat_with(|| split_mix(&mut state));
    let bytes = words.flat_map(|word| match dtype {
        DType::Bf16 => shorts(word, |x| bf16::from_f32(x).to_bits()),
        DType::F16 => shorts(word, |x| f16::from_f32(x).to_bits()),
        DType::Fp8 => word.to_le_bytes().map(e4m3),
        _ => word.to_le_bytes(),
    });
    bytes.take(len).collect()
}

/// The value of the element of `dtype` at the start of `bytes`.
pub(super) fn value(dtype: DType, bytes: &[u8]) -> f64 {
    let short = || u16::from_le_bytes([bytes[0], bytes[1]]);
    match dtype {
        DType::Bf16 => bf16::from_bits(short()).to_f64(),
        DType::F16 => f16::from_bits(short()).to_f64(),
        DType::Fp8 => {
            let (exponent, fraction) = (i32::from(bytes[0] >> 3 & 15), f64::from(bytes[0] & 7) / 8.0);
            let size =
                if exponent == 0 { fraction / 64.0 } else { (1.0 + fraction) * 2f64.powi(exponent - 7) };
            if bytes[0] > 127 { -size } else { size }
        }
        _ => f64::from(bytes[0] as i8),
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Four 16-bit floats from the bits of `word`.
fn shorts(word: u64, bits: impl Fn(f32) -> u16) -> [u8; 8] {
    let mut bytes = [0; 8];
    for (i, to) in bytes.chunks_mut(2).enumerate() {
        let short = (word >> (16 * i)) as u16;
        to.copy_from_slice(&bits(f32::from(short) / 32_768.0 - 1.0).to_le_bytes());
    }
    bytes
}

/// A byte's sign and fraction with an exponent of −6 to 0, so that it is never NaN.
fn e4m3(byte: u8) -> u8 {
    (byte & 0x87) | (1 + (byte >> 3 & 15) % 7) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_finite_of_both_signs_and_hardly_ever_zero() {
        for dtype in [DType::Bf16, DType::F16, DType::Fp8, DType::Int8] {
            let bytes = pattern(dtype, 1 << 16);
            let size = if matches!(dtype, DType::Bf16 | DType::F16) { 2 } else { 1 };
            let values: Vec<_> = bytes.chunks(size).map(|bytes| value(dtype, bytes)).collect();
            let limit = if dtype == DType::Int8 { 128.0 } else { 2.0 };
            assert!(values.iter().all(|v| v.abs() <= limit), "{dtype}");
            let count = |holds: fn(&f64) -> bool| values.iter().filter(|v| holds(v)).count();
            assert!(count(|v| *v == 0.0) * 100 < values.len(), "{dtype}");
            let negative = count(|v| *v < 0.0) as f64 / values.len() as f64;
            assert!((0.45..0.55).contains(&negative), "{dtype}: {negative}");
        }
    }

    #[test]
    fn e4m3_has_the_values_of_its_definition() {
        let cases =
            [(0x00, 0.0), (0x01, 0.001953125), (0x08, 0.015625), (0x38, 1.0), (0x3F, 1.875), (0xB8, -1.0)];
        for (byte, wanted) in cases.into_iter().chain([(0x7E, 448.0)]) {
            assert_eq!(value(DType::Fp8, &[byte]), wanted, "{byte:#x}");
        }
    }
}
