//! 8-bit floats (E4M3), and where their scales lie in a panel.
//!
//! A number has a sign, four exponent bits with bias 7 and three fraction bits. Below the smallest
//! exponent are multiples of 2⁻⁹, the largest number is 448, there is no infinity, and a magnitude
//! of all ones is no number.
//!
//! A panel of h rows begins with its scales, in f32: in `fp8` one for each row; in `fp8_block`,
//! whose panels are whole, one for each [`SCALE_COLUMNS`] columns, and zeros up to h bytes for each
//! 512 columns. Its numbers follow, a byte each, in the order of a bf16 panel.

use super::layout::{bf16_slot, row_bytes};
use hwprofiles::DType;

/// Columns that share a scale in `fp8_block`.
pub(crate) const SCALE_COLUMNS: usize = 128;
/// The largest number.
const LARGEST: f32 = 448.0;

/// Whether `dtype` has 8-bit floats.
pub(crate) fn is_float8(dtype: DType) -> bool {
    matches!(dtype, DType::Fp8 | DType::Fp8Block)
}

/// The value of an E4M3 number.
pub fn float8_value(byte: u8) -> f32 {
    let (sign, magnitude) = (u32::from(byte >> 7) << 31, u32::from(byte & 127));
    let value = match magnitude {
        127 => f32::NAN,
        // Below the smallest exponent, units of 2⁻⁹.
        0..8 => magnitude as f32 / 512.0,
        _ => f32::from_bits((magnitude << 20) + (120 << 23)),
    };
    f32::from_bits(value.to_bits() | sign)
}

/// The nearest E4M3 number, ties to even; of a larger magnitude than 448, ±448.
fn nearest_float8(value: f32) -> u8 {
    let magnitude = value.abs().min(LARGEST);
    // The exponent of a normal number; below the smallest one all have the same unit.
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(-6);
    let units = (magnitude * 2f32.powi(3 - exponent)).round_ties_even() as u8;
    // Sixteen units of one exponent are eight of the next.
    let number = (8 * (exponent + 6)) as u8 + units;
    number | if value.is_sign_negative() { 128 } else { 0 }
}

/// Bytes of scales at the start of a panel of `height` rows.
pub(super) fn header_bytes(dtype: DType, columns: usize, height: usize) -> usize {
    if is_float8(dtype) { height * (row_bytes(dtype, columns) - columns) } else { 0 }
}

/// Scales of a row.
pub(super) fn row_scales(dtype: DType, columns: usize) -> usize {
    if dtype == DType::Fp8 { 1 } else { columns.div_ceil(SCALE_COLUMNS) }
}

/// A panel of E4M3 numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Float8Panel {
    pub(super) dtype: DType,
    pub(super) columns: usize,
    pub(super) height: usize,
}

impl Float8Panel {
    /// The place of the scale of a number.
    fn scale_at(self, lane: usize, column: usize) -> usize {
        4 * if self.dtype == DType::Fp8 { lane } else { column / SCALE_COLUMNS }
    }

    fn number_at(self, lane: usize, column: usize) -> usize {
        header_bytes(self.dtype, self.columns, self.height)
            + bf16_slot(lane, column, self.height, self.columns)
    }

    /// A scale of the panel `bytes`, and a number that it multiplies.
    pub(super) fn scaled(self, bytes: &[u8], lane: usize, column: usize) -> (f32, f32) {
        let at = self.scale_at(lane, column);
        let scale = f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        (scale, float8_value(bytes[self.number_at(lane, column)]))
    }

    /// Writes a row. Of `fp8_block`, all rows of a panel have the same scales.
    pub(super) fn write_row(self, lane: usize, numbers: &[u8], scales: &[f32], out: &mut [u8]) {
        let places = scales.iter().zip((0..self.columns).step_by(SCALE_COLUMNS));
        for (scale, column) in places {
            let place = &mut out[self.scale_at(lane, column)..][..4];
            let scale = scale.to_le_bytes();
            let first = self.dtype == DType::Fp8 || lane == 0;
            assert!(first || *place == scale, "all rows of a panel have the same scales");
            place.copy_from_slice(&scale);
        }
        for (column, &number) in numbers.iter().enumerate() {
            out[self.number_at(lane, column)] = number;
        }
    }

    /// Quantises the rows of f32 that lie `stride` values apart. The largest magnitude that shares
    /// a scale becomes 448.
    pub(super) fn quantise(self, values: &[f32], stride: usize, out: &mut [u8]) {
        let row = |lane: usize| &values[lane * stride..][..self.columns];
        let mut numbers = vec![0; self.columns];
        if self.dtype == DType::Fp8 {
            for lane in 0..self.height {
                let scale = quantise_float8(row(lane), &mut numbers);
                self.write_row(lane, &numbers, &[scale], out);
            }
            return;
        }
        let mut scales = vec![0.0f32; row_scales(self.dtype, self.columns)];
        for lane in 0..self.height {
            for (scale, values) in scales.iter_mut().zip(row(lane).chunks(SCALE_COLUMNS)) {
                *scale = scale.max(scale_of(values));
            }
        }
        for lane in 0..self.height {
            let parts = row(lane).chunks(SCALE_COLUMNS).zip(numbers.chunks_mut(SCALE_COLUMNS));
            parts.zip(&scales).for_each(|((values, numbers), &scale)| divide(values, scale, numbers));
            self.write_row(lane, &numbers, &scales, out);
        }
    }
}

/// Rounds the values of a row of `fp8`. Returns their scale: the largest magnitude becomes 448.
pub fn quantise_float8(values: &[f32], numbers: &mut [u8]) -> f32 {
    let scale = scale_of(values);
    divide(values, scale, numbers);
    scale
}

fn scale_of(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |largest, value| largest.max(value.abs())) / LARGEST
}

fn divide(values: &[f32], scale: f32, numbers: &mut [u8]) {
    for (number, value) in numbers.iter_mut().zip(values) {
        *number = if scale == 0.0 { 0 } else { nearest_float8(value / scale) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_nearest_to_its_own_value_and_to_all_values_around_it() {
        for byte in (0..=255_u8).filter(|byte| byte & 127 != 127) {
            let value = float8_value(byte);
            assert_eq!(nearest_float8(value), byte, "{byte:#x}: {value}");
            if byte & 127 < 126 {
                let next = float8_value(byte + 1);
                assert!(next.abs() > value.abs());
                let middle = (value + next) / 2.0;
                assert_eq!(nearest_float8(middle) % 2, 0, "{middle}: ties go to even");
                assert_eq!(nearest_float8(middle + (value - next) / 64.0), byte);
                assert_eq!(nearest_float8(middle - (value - next) / 64.0), byte + 1);
            }
        }
        assert_eq!(
            [float8_value(0x7e), float8_value(0xfe), float8_value(1)],
            [448.0, -448.0, 0.5f32.powi(9)]
        );
        assert!(float8_value(0x7f).is_nan() && float8_value(0xff).is_nan());
        assert_eq!([nearest_float8(1e9), nearest_float8(-1e9)], [0x7e, 0xfe]);
    }
}
