//! Number formats in files: plain numbers, or ggml's blocks of integers with their scales.
//!
//! Blocks are as <https://github.com/ggml-org/ggml> defines them in `ggml-common.h`. The tests
//! compare with the values of ggml's Python package.

use half::f16;

/// A number format of stored tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorFormat {
    F32,
    F16,
    Bf16,
    /// 32 values: a scale in f16, 32 signed bytes.
    Q8_0,
    /// 32 values: a scale in f16, and 16 bytes with two numbers from 0 to 15 each, minus 8. The
    /// first 16 values are in the low halves.
    Q4_0,
    /// 256 values in eight groups: a scale and a minimum in f16, each multiplied by 6 bits per
    /// group, and numbers from 0 to 15.
    Q4K,
    /// 256 values in sixteen groups: 4 and 2 bits of numbers from 0 to 63, minus 32; a signed byte
    /// per group; a scale in f16.
    Q6K,
    /// 32 values: an exponent in a byte, and 16 bytes with two numbers of 4 bits (sign, two bits of
    /// exponent, one of mantissa) each. The first 16 values are in the low halves.
    Mxfp4,
}

/// The values of MXFP4's numbers (OCP Microscaling Formats 1.0).
const FP4: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

impl TensorFormat {
    /// The format with this number in ggml, if we read it.
    pub fn from_ggml(format: u32) -> Option<Self> {
        Some(match format {
            0 => TensorFormat::F32,
            1 => TensorFormat::F16,
            2 => TensorFormat::Q4_0,
            8 => TensorFormat::Q8_0,
            12 => TensorFormat::Q4K,
            14 => TensorFormat::Q6K,
            30 => TensorFormat::Bf16,
            39 => TensorFormat::Mxfp4,
            _ => return None,
        })
    }

    /// Values in a block, and bytes of it.
    fn block(self) -> (u64, u64) {
        match self {
            TensorFormat::F32 => (1, 4),
            TensorFormat::F16 | TensorFormat::Bf16 => (1, 2),
            TensorFormat::Q8_0 => (32, 34),
            TensorFormat::Q4_0 => (32, 18),
            TensorFormat::Q4K => (256, 144),
            TensorFormat::Q6K => (256, 210),
            TensorFormat::Mxfp4 => (32, 17),
        }
    }

    /// Bytes of `values` consecutive values; `None` where they are not whole blocks.
    pub fn bytes(self, values: u64) -> Option<u64> {
        let (block, bytes) = self.block();
        values.is_multiple_of(block).then(|| (values / block).checked_mul(bytes)).flatten()
    }

    /// Decodes whole blocks.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let (values, size) = self.block();
        let blocks = bytes.chunks_exact(size as usize).zip(out.chunks_exact_mut(values as usize));
        match self {
            TensorFormat::F32 => {
                blocks.for_each(|(b, out)| out[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            }
            TensorFormat::F16 => blocks.for_each(|(b, out)| out[0] = half(b)),
            TensorFormat::Bf16 => {
                blocks.for_each(|(b, out)| {
                    out[0] = f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16)
                });
            }
            TensorFormat::Q8_0 => blocks.for_each(|(block, out)| {
                let scale = half(block);
                out.iter_mut().zip(&block[2..]).for_each(|(out, &q)| *out = scale * f32::from(q as i8));
            }),
            TensorFormat::Q4_0 => blocks.for_each(|(block, out)| {
                let scale = half(block);
                let (low, high) = out.split_at_mut(16);
                for ((low, high), &pair) in low.iter_mut().zip(high).zip(&block[2..]) {
                    *low = scale * (f32::from(pair & 15) - 8.0);
                    *high = scale * (f32::from(pair >> 4) - 8.0);
                }
            }),
            TensorFormat::Q4K => blocks.for_each(|(block, out)| q4_k(block, out)),
            TensorFormat::Q6K => blocks.for_each(|(block, out)| q6_k(block, out)),
            TensorFormat::Mxfp4 => blocks.for_each(|(block, out)| mxfp4(block, out)),
        }
    }
}

/// The f16 at the start of `bytes`.
fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

fn mxfp4(block: &[u8], out: &mut [f32]) {
    let scale = (f32::from(block[0]) - 127.0).exp2();
    let value = |number: u8| scale * if number & 8 == 0 { 1.0 } else { -1.0 } * FP4[usize::from(number & 7)];
    let (low, high) = out.split_at_mut(16);
    for ((low, high), &pair) in low.iter_mut().zip(high).zip(&block[1..]) {
        (*low, *high) = (value(pair & 15), value(pair >> 4));
    }
}

fn q4_k(block: &[u8], out: &mut [f32]) {
    let (scale, minimum, sixes, pairs) = (half(block), half(&block[2..]), &block[4..16], &block[16..]);
    // Each group has six bits. Those of the first four groups are in one byte; those of the last
    // four are in one byte and the upper bits of another.
    let of_group = |group: usize| match group {
        0..4 => (sixes[group] & 63, sixes[group + 4] & 63),
        _ => (
            sixes[group + 4] & 15 | sixes[group - 4] >> 6 << 4,
            sixes[group + 4] >> 4 | sixes[group] >> 6 << 4,
        ),
    };
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (by, less) = of_group(group);
        let (by, less) = (scale * f32::from(by), minimum * f32::from(less));
        for (out, &pair) in out.iter_mut().zip(&pairs[group / 2 * 32..]) {
            let number = if group % 2 == 0 { pair & 15 } else { pair >> 4 };
            *out = by * f32::from(number) - less;
        }
    }
}

fn q6_k(block: &[u8], out: &mut [f32]) {
    let (fours, twos, groups, scale) =
        (&block[..128], &block[128..192], &block[192..208], half(&block[208..]));
    for (index, out) in out.iter_mut().enumerate() {
        // The block has halves of 128 values. In each half, four runs of 32 values share bytes.
        let (half, run, place) = (index / 128, index / 32 % 4, index % 32);
        let four = fours[64 * half + 32 * (run % 2) + place] >> (4 * (run / 2)) & 15;
        let two = twos[32 * half + place] >> (2 * run) & 3;
        let number = f32::from(four | two << 4) - 32.0;
        *out = scale * f32::from(groups[index / 16] as i8) * number;
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
        assert_eq!(count, 7, "every format has a case");
    }

    #[test]
    fn only_whole_blocks_have_a_size() {
        assert_eq!(TensorFormat::Q8_0.bytes(33), None);
        assert_eq!(TensorFormat::Q4K.bytes(512), Some(288));
        assert_eq!(TensorFormat::Bf16.bytes(3), Some(6));
    }
}
