//! Number formats in files: plain numbers, or ggml's blocks of integers with their scales.
//!
//! Blocks are as <https://github.com/ggml-org/ggml> defines them in `ggml-common.h`. The tests
//! compare with the values of ggml's Python package.

use half::f16;
use hwprofiles::DType;

/// A number format of stored tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorFormat {
    F32,
    F16,
    Bf16,
    /// 8-bit floats, E4M3. Their scales are in another tensor.
    Fp8,
    /// Pairs of 4-bit floats, E2M1; the first is the lower half of a byte. Their scales are in
    /// other tensors.
    Fp4,
    /// Powers of two, E8M0: the scales of MXFP4.
    PowerOfTwo,
    /// Blocks that [`kernels::dequantise`] reads.
    Blocks(DType),
}

impl TensorFormat {
    /// The format with this number in ggml, if we read it.
    pub fn from_ggml(format: u32) -> Option<Self> {
        Some(TensorFormat::Blocks(match format {
            0 => return Some(TensorFormat::F32),
            1 => return Some(TensorFormat::F16),
            30 => return Some(TensorFormat::Bf16),
            2 => DType::Q4_0,
            3 => DType::Q4_1,
            6 => DType::Q5_0,
            7 => DType::Q5_1,
            8 => DType::Q8_0,
            10 => DType::Q2K,
            11 => DType::Q3K,
            12 => DType::Q4K,
            13 => DType::Q5K,
            14 => DType::Q6K,
            20 => DType::Iq4Nl,
            23 => DType::Iq4Xs,
            39 => DType::Mxfp4,
            40 => DType::Nvfp4,
            _ => return None,
        }))
    }

    /// Values in a block, and bytes of it.
    fn block(self) -> (u64, u64) {
        match self {
            TensorFormat::F32 => (1, 4),
            TensorFormat::F16 | TensorFormat::Bf16 => (1, 2),
            TensorFormat::Fp8 | TensorFormat::PowerOfTwo => (1, 1),
            TensorFormat::Fp4 => (2, 1),
            // Files have the four scales of 64 values together.
            TensorFormat::Blocks(DType::Nvfp4) => (64, 36),
            TensorFormat::Blocks(dtype) => {
                let size = dtype.block();
                (size.values, size.bytes)
            }
        }
    }

    /// The format in which kernels multiply rows of `columns` values as they are in the file.
    pub fn kept(self, columns: u64) -> Option<DType> {
        match self {
            TensorFormat::Blocks(dtype) => {
                kernels::Weights::keeps_blocks(dtype, columns as usize).then_some(dtype)
            }
            _ => None,
        }
    }

    /// Bytes of `values` consecutive values; `None` where they are not whole blocks.
    pub fn bytes(self, values: u64) -> Option<u64> {
        let (block, bytes) = self.block();
        values.is_multiple_of(block).then(|| (values / block).checked_mul(bytes)).flatten()
    }

    /// Decodes whole blocks.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            TensorFormat::F32 => {
                let values = bytes.chunks_exact(4).zip(out);
                values.for_each(|(b, out)| *out = f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            }
            TensorFormat::F16 => {
                let values = bytes.chunks_exact(2).zip(out);
                values.for_each(|(b, out)| *out = f16::from_le_bytes([b[0], b[1]]).to_f32());
            }
            TensorFormat::Bf16 => {
                let values = bytes.chunks_exact(2).zip(out);
                values.for_each(|(b, out)| {
                    *out = f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
                });
            }
            TensorFormat::Fp8 => {
                bytes.iter().zip(out).for_each(|(&byte, out)| *out = kernels::float8_value(byte))
            }
            TensorFormat::PowerOfTwo => {
                bytes.iter().zip(out).for_each(|(&byte, out)| *out = power_of_two(byte));
            }
            TensorFormat::Fp4 => {
                let pairs = bytes.iter().zip(out.chunks_exact_mut(2));
                pairs.for_each(|(&pair, out)| out.copy_from_slice(&[float4(pair & 15), float4(pair >> 4)]));
            }
            TensorFormat::Blocks(dtype) => {
                let known = kernels::dequantise(dtype, bytes, out);
                assert!(known, "{dtype} is decoded");
            }
        }
    }
}

/// The value of an E2M1 number: a sign, two exponent bits with bias 1, one fraction bit.
fn float4(bits: u8) -> f32 {
    let (exponent, fraction) = (bits >> 1 & 3, f32::from(bits & 1));
    let value = match exponent {
        0 => fraction / 2.0,
        _ => (1.0 + fraction / 2.0) * f32::from(1_u8 << (exponent - 1)),
    };
    if bits & 8 == 0 { value } else { -value }
}

/// 2^(e − 127), which is subnormal for e = 0; 255 is no number.
fn power_of_two(e: u8) -> f32 {
    match e {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(e) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// `tests/golden/gguf_blocks.json` has random blocks of each format, and their values by ggml's
    /// own package.
    #[test]
    fn blocks_are_the_values_that_their_own_library_makes_of_them() {
        let golden: Value =
            serde_json::from_str(include_str!("../../tests/golden/gguf_blocks.json")).expect("JSON");
        let mut count = 0;
        for case in golden.as_array().expect("a list") {
            let number = case["format"].as_u64().expect("a number") as u32;
            let format = TensorFormat::from_ggml(number).expect("a format that we read");
            let bytes: Vec<u8> = case["bytes"]
                .as_array()
                .expect("bytes")
                .iter()
                .map(|b| b.as_u64().unwrap_or(0) as u8)
                .collect();
            let wanted: Vec<f32> = case["values"]
                .as_array()
                .expect("values")
                .iter()
                .map(|v| v.as_f64().unwrap_or(f64::NAN) as f32)
                .collect();
            assert_eq!(format.bytes(wanted.len() as u64), Some(bytes.len() as u64), "{format:?}");
            let mut out = vec![f32::NAN; wanted.len()];
            format.decode(&bytes, &mut out);
            for (got, wanted) in out.iter().zip(&wanted) {
                // The order of multiplications may change the last bits.
                assert!(
                    (got - wanted).abs() <= 4e-7 * wanted.abs().max(1e-3),
                    "{format:?}: {got}, not {wanted}"
                );
            }
            count += 1;
        }
        assert_eq!(count, 17, "every format has a case");
    }

    #[test]
    fn floats_of_few_bits_are_what_their_bits_say() {
        let mut out = vec![0.0; 256];
        TensorFormat::Fp8.decode(&(0..=255).collect::<Vec<_>>(), &mut out);
        for byte in 0..=255_u8 {
            let (exponent, fraction) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
            let value = match exponent {
                0 => fraction / 8.0 * 2f64.powi(-6),
                _ => (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
            };
            let value = if byte < 128 { value } else { -value };
            let found = out[usize::from(byte)];
            assert!(f64::from(found) == value || (found.is_nan() && byte & 127 == 127), "{byte:#x}: {found}");
        }
        assert_eq!(out[0x7e], 448.0, "the largest number");
        let mut out = [0.0; 8];
        TensorFormat::Fp4.decode(&[0x10, 0x32, 0x54, 0xf6], &mut out);
        assert_eq!(out, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, -6.0]);
        let mut out = [0.0; 256];
        TensorFormat::PowerOfTwo.decode(&(0..=255).collect::<Vec<_>>(), &mut out);
        let wanted = |e: i32| 2f64.powi(e - 127);
        assert!((0..255).all(|e| f64::from(out[e as usize]) == wanted(e)) && out[255].is_nan());
    }

    #[test]
    fn only_whole_blocks_have_a_size() {
        assert_eq!(TensorFormat::Blocks(DType::Q8_0).bytes(33), None);
        assert_eq!(TensorFormat::Blocks(DType::Q4K).bytes(512), Some(288));
        assert_eq!(TensorFormat::Bf16.bytes(3), Some(6));
    }
}
