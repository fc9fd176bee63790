//! Packing of rows into panels.

use super::float8::{Float8Panel, is_float8};
use super::layout::{GROUP_COLUMNS, bf16_slot, int4_nibble, int8_slot, row_bytes};
use super::panel::PANEL;
use super::quantise::quantise;
use half::{bf16, f16};
use hwprofiles::DType;

/// Packs the matrix whose rows `row(index, out)` writes into `bytes`.
pub(super) fn pack(
    dtype: DType,
    rows: usize,
    columns: usize,
    mut row: impl FnMut(usize, &mut [f32]),
    bytes: &mut [u8],
) {
    if rows == 0 || columns == 0 {
        return;
    }
    let padded = columns.next_multiple_of(GROUP_COLUMNS);
    let mut lines = vec![0.0; PANEL * padded];
    let panel_bytes = PANEL * row_bytes(dtype, columns);
    for (panel, out) in bytes.chunks_mut(panel_bytes).enumerate() {
        let height = PANEL.min(rows - panel * PANEL);
        for lane in 0..height {
            row(panel * PANEL + lane, &mut lines[lane * padded..][..columns]);
        }
        if is_float8(dtype) {
            Float8Panel { dtype, columns, height }.quantise(&lines, padded, out);
            continue;
        }
        let lines = PanelRows { values: &lines, stride: padded, height };
        match dtype {
            DType::F32 => lines.into_f32(out),
            DType::Bf16 => lines.into_bf16(columns, out),
            DType::Int8 => lines.into_int8(out),
            _ => lines.into_int4(out),
        }
    }
}

/// The rows of one panel in f32, padded with zeros to whole groups.
struct PanelRows<'a> {
    values: &'a [f32],
    stride: usize,
    height: usize,
}

impl PanelRows<'_> {
    fn get(&self, lane: usize, column: usize) -> f32 {
        self.values[lane * self.stride + column]
    }

    fn into_f32(self, out: &mut [u8]) {
        for (column, out) in out.chunks_exact_mut(4 * self.height).enumerate() {
            for (lane, out) in out.chunks_exact_mut(4).enumerate() {
                out.copy_from_slice(&self.get(lane, column).to_le_bytes());
            }
        }
    }

    fn into_bf16(self, columns: usize, out: &mut [u8]) {
        for column in 0..columns {
            for lane in 0..self.height {
                let value = bf16::from_f32(self.get(lane, column)).to_bits();
                let at = 2 * bf16_slot(lane, column, self.height, columns);
                out[at..at + 2].copy_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// Quantises group `group` of every lane and passes each to `place(lane, scale, integers)`.
    fn groups(&self, group: usize, limit: f32, mut place: impl FnMut(usize, f16, &[i8; GROUP_COLUMNS])) {
        for lane in 0..self.height {
            let mut q = [0; GROUP_COLUMNS];
            let values = &self.values[lane * self.stride + group * GROUP_COLUMNS..][..GROUP_COLUMNS];
            let scale = quantise(values, limit, &mut q);
            place(lane, scale, &q);
        }
    }

    fn into_int8(self, out: &mut [u8]) {
        let height = self.height;
        for (group, out) in out.chunks_exact_mut(height * (2 + GROUP_COLUMNS)).enumerate() {
            let (scales, values) = out.split_at_mut(2 * height);
            self.groups(group, 127.0, |lane, scale, q| {
                scales[2 * lane..][..2].copy_from_slice(&scale.to_le_bytes());
                q.iter()
                    .enumerate()
                    .for_each(|(offset, &q)| values[int8_slot(lane, offset, height)] = q as u8);
            });
        }
    }

    fn into_int4(self, out: &mut [u8]) {
        let height = self.height;
        for (group, out) in out.chunks_exact_mut(height * (2 + GROUP_COLUMNS / 2)).enumerate() {
            let (scales, values) = out.split_at_mut(2 * height);
            self.groups(group, 7.0, |lane, scale, q| {
                scales[2 * lane..][..2].copy_from_slice(&scale.to_le_bytes());
                for (eight, q) in q.chunks_exact(8).enumerate() {
                    let nibble = |(offset, &q): (usize, &i8)| ((q + 8) as u32) << (4 * int4_nibble(offset));
                    let nibbles = q.iter().enumerate().map(nibble).fold(0, |word, nibble| word | nibble);
                    values[4 * (eight * height + lane)..][..4].copy_from_slice(&nibbles.to_le_bytes());
                }
            });
        }
    }
}
