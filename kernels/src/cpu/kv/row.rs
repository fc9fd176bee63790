//! The format of a row: the keys or values of one head at one position.
//!
//! - `int8`: groups of 32 values, each an f16 scale and 32 signed bytes (34 bytes): value = scale ·
//!   q.
//! - `int2`: groups of 32 values, each an f16 scale, an f16 minimum and 8 bytes (12 bytes): value =
//!   minimum + scale · q, with q from 0 to 3. Byte b holds q of the values b, b + 8, b + 16 and b +
//!   24, the first in its lowest bits, so that a shift gives eight values in a row.
//!
//! Groups lie along the head, as KIVI (arXiv:2402.02750) groups values. KIVI groups keys along
//! positions, but then a group is complete only after 32 positions. The last group of a row is
//! padded.

use crate::cpu::weights::quantise;
use half::{bf16, f16};
use hwprofiles::{DType, GROUP};

/// Values of a group.
pub(crate) const VALUES: usize = GROUP as usize;
/// Bytes of a group in `int8`.
pub(crate) const INT8_BYTES: usize = 2 + VALUES;
/// Bytes of a group in `int2`: its scale and its minimum, then a byte for each four values.
pub(crate) const INT2_BYTES: usize = 4 + QUARTER;
/// Bytes of a group's integers in `int2`.
const QUARTER: usize = VALUES / 4;
/// The largest integer in `int2`.
const TOP: f32 = 3.0;

/// Writes `from` as a row of `dtype`, which the caller has checked.
pub(crate) fn narrow(dtype: DType, from: &[f32], to: &mut [u8]) {
    match dtype {
        DType::Bf16 => {
            let to: &mut [bf16] = bytemuck::cast_slice_mut(to);
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = bf16::from_f32(from));
        }
        DType::Int8 => each_group(from, to, INT8_BYTES, narrow_int8),
        DType::Int2 => each_group(from, to, INT2_BYTES, narrow_int2),
        _ => bytemuck::cast_slice_mut(to).copy_from_slice(from),
    }
}

/// Writes a row of `dtype` as f32.
pub(crate) fn widen(dtype: DType, from: &[u8], to: &mut [f32]) {
    match dtype {
        DType::Bf16 => {
            let from: &[bf16] = bytemuck::cast_slice(from);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
        }
        DType::Int8 => {
            for (to, group) in to.chunks_mut(VALUES).zip(from.chunks_exact(INT8_BYTES)) {
                let scale = half_at(group, 0);
                to.iter_mut().zip(&group[2..]).for_each(|(to, &q)| *to = scale * f32::from(q as i8));
            }
        }
        DType::Int2 => {
            for (to, group) in to.chunks_mut(VALUES).zip(from.chunks_exact(INT2_BYTES)) {
                let (scale, least) = (half_at(group, 0), half_at(group, 2));
                for (i, to) in to.iter_mut().enumerate() {
                    let q = group[4 + i % QUARTER] >> (2 * (i / QUARTER)) & 3;
                    *to = scale.mul_add(f32::from(q), least);
                }
            }
        }
        _ => to.copy_from_slice(bytemuck::cast_slice(from)),
    }
}

fn each_group(from: &[f32], to: &mut [u8], bytes: usize, narrow: impl Fn(&[f32], &mut [u8])) {
    from.chunks(VALUES).zip(to.chunks_exact_mut(bytes)).for_each(|(from, to)| narrow(from, to));
}

fn narrow_int8(from: &[f32], to: &mut [u8]) {
    let mut integers = [0; VALUES];
    let scale = quantise(from, 127.0, &mut integers);
    to[..2].copy_from_slice(&scale.to_le_bytes());
    to[2..].iter_mut().zip(integers).for_each(|(to, q)| *to = q as u8);
}

fn narrow_int2(from: &[f32], to: &mut [u8]) {
    let (least, most) = from.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), &value| {
        (least.min(value), most.max(value))
    });
    // Numbers beyond the largest f16 would be infinite. They are clamped, so the values clip.
    let short = |value: f32| f16::from_f32(value.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()));
    let least = short(least);
    // The scale starts from the rounded minimum, so that the largest value stays representable.
    let scale = short((most - least.to_f32()).max(0.0) / TOP);
    to[..2].copy_from_slice(&scale.to_le_bytes());
    to[2..4].copy_from_slice(&least.to_le_bytes());
    to[4..].fill(0);
    let (step, least) = (scale.to_f32(), least.to_f32());
    for (i, value) in from.iter().enumerate() {
        let q = if step == 0.0 { 0.0 } else { ((value - least) / step).round().clamp(0.0, TOP) };
        to[4 + i % QUARTER] |= (q as u8) << (2 * (i / QUARTER));
    }
}

fn half_at(group: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([group[at], group[at + 1]]).to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(dtype: DType, values: &[f32]) -> Vec<f32> {
        let mut bytes = vec![0; dtype.matrix_bytes(1, values.len() as u64).get() as usize];
        narrow(dtype, values, &mut bytes);
        let mut out = vec![f32::NAN; values.len()];
        widen(dtype, &bytes, &mut out);
        out
    }

    #[test]
    fn the_error_is_at_most_half_a_step_in_rows_of_any_length() {
        for length in [1, 7, 31, 32, 33, 80, 128] {
            let values: Vec<f32> = (0..length).map(|i| ((i * 37 % 64) as f32 - 21.7) * 0.013).collect();
            for (dtype, steps) in [(DType::Int8, 254.0), (DType::Int2, 3.0)] {
                for (values, kept) in values.chunks(VALUES).zip(kept(dtype, &values).chunks(VALUES)) {
                    let (least, most) = (
                        values.iter().fold(0.0f32, |a, b| a.min(*b)),
                        values.iter().fold(0.0f32, |a, b| a.max(*b)),
                    );
                    let range = if dtype == DType::Int8 { 2.0 * most.max(-least) } else { most - least };
                    // f16 rounds steps and minima by up to 2⁻¹¹ of the largest value.
                    let slack = 0.5 * range / steps + 2.0 * most.max(-least) / 1024.0;
                    for (value, kept) in values.iter().zip(kept) {
                        assert!((value - kept).abs() <= slack, "{dtype}: {value} as {kept}, {slack}");
                    }
                }
            }
        }
    }

    #[test]
    fn four_levels_are_kept_and_equal_values_are_their_minimum() {
        let levels: Vec<f32> = (0..64).map(|i| -1.5 + (i * 7 % 4) as f32).collect();
        assert_eq!(kept(DType::Int2, &levels), levels);
        assert_eq!(kept(DType::Int2, &[0.75; 40]), [0.75; 40]);
        assert_eq!(kept(DType::Int8, &[0.0; 5]), [0.0; 5]);
        assert_eq!(kept(DType::Int2, &[1e9, -1e9])[1], f16::MIN.to_f32());
    }
}
