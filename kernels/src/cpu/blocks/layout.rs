//! Which bytes of a block stay together, and how the blocks of a panel's rows interleave.

use crate::cpu::weights::panel::PANEL;
use hwprofiles::DType;
use std::borrow::Cow;

/// The bytes of one format's block, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    /// Values of a block.
    pub(crate) columns: usize,
    /// Bytes of a block.
    pub(crate) bytes: usize,
    /// Bytes of a row's own scale, which multiplies all of its blocks: four, or none. A panel
    /// begins with those of its rows, in f32.
    pub(crate) row_scale: usize,
    /// Runs of units: how many, and the bytes of each. A unit of a row stays whole.
    units: &'static [(usize, usize)],
}

impl BlockLayout {
    /// The layout of a format that is multiplied in blocks.
    pub(crate) fn for_dtype(dtype: DType) -> Option<Self> {
        let (columns, units): (usize, &[(usize, usize)]) = match dtype {
            // A scale, then signed bytes.
            DType::Q8_0 => (32, &[(1, 2), (8, 4)]),
            // A scale, then pairs of 4-bit numbers.
            DType::Q4_0 | DType::Iq4Nl => (32, &[(1, 2), (4, 4)]),
            DType::Mxfp4 => (32, &[(1, 1), (4, 4)]),
            // Four scales, then the 4-bit numbers of four times sixteen values.
            DType::Nvfp4 => (64, &[(1, 4), (8, 4)]),
            // A scale, the upper and the lower bits of eight scales, then 4-bit numbers.
            DType::Iq4Xs => (256, &[(2, 2), (1, 4), (32, 4)]),
            // A scale and one of minima, twelve bytes of scales and minima, then 4-bit numbers.
            DType::Q4K => (256, &[(2, 2), (3, 4), (32, 4)]),
            // As before, with the fifth bits before the 4-bit numbers.
            DType::Q5K => (256, &[(2, 2), (3, 4), (8, 4), (32, 4)]),
            // Lower four bits, upper two bits, scales of sixteen values, a scale of all.
            DType::Q6K => (256, &[(32, 4), (16, 4), (4, 4), (1, 2)]),
            _ => return None,
        };
        let bytes = units.iter().map(|(count, size)| count * size).sum();
        Some(Self { columns, bytes, row_scale: if dtype == DType::Nvfp4 { 4 } else { 0 }, units })
    }

    /// Clears bits without a meaning, so that kernels need not: the signs of the scales of `nvfp4`,
    /// and those scales that are no number, which count as zero.
    pub(crate) fn clear_unused(dtype: DType, row: &mut [u8]) {
        if dtype == DType::Nvfp4 {
            for scale in row.chunks_exact_mut(36).flat_map(|block| &mut block[..4]) {
                *scale = if *scale & 127 == 127 { 0 } else { *scale & 127 };
            }
        }
    }

    /// Offset within a block and size of each unit.
    fn each_unit(self) -> impl Iterator<Item = (usize, usize)> {
        let mut at = 0;
        self.units.iter().flat_map(|&(count, size)| std::iter::repeat_n(size, count)).map(move |size| {
            at += size;
            (at - size, size)
        })
    }

    /// Writes the blocks of one row into lane `lane` of a panel of `height` rows.
    pub(crate) fn interleave(self, row: &[u8], lane: usize, height: usize, panel: &mut [u8]) {
        let panel = &mut panel[self.row_scale * height..];
        for (block, panel) in row.chunks_exact(self.bytes).zip(panel.chunks_exact_mut(self.bytes * height)) {
            for (at, size) in self.each_unit() {
                panel[at * height + lane * size..][..size].copy_from_slice(&block[at..at + size]);
            }
        }
    }

    /// Reads block `block` of lane `lane` from a panel of `height` rows, in the order of the file.
    pub(crate) fn block(self, panel: &[u8], block: usize, lane: usize, height: usize, out: &mut [u8]) {
        let panel = &panel[(self.row_scale + block * self.bytes) * height..][..self.bytes * height];
        for (at, size) in self.each_unit() {
            out[at..at + size].copy_from_slice(&panel[at * height + lane * size..][..size]);
        }
    }

    /// Writes the scale of a row; formats without one keep none.
    pub(crate) fn set_row_scale(self, scale: f32, lane: usize, panel: &mut [u8]) {
        let size = self.row_scale;
        panel[lane * size..][..size].copy_from_slice(&scale.to_le_bytes()[..size]);
    }

    /// The scale of a row.
    pub(crate) fn row_scale(self, panel: &[u8], lane: usize) -> f32 {
        let bytes = panel[lane * self.row_scale..][..self.row_scale].try_into();
        bytes.map_or(1.0, f32::from_le_bytes)
    }
}

/// The bytes of a panel of sixteen rows: a matrix's own, or a copy of its last rows with zeros for
/// those that it lacks.
pub(crate) struct WidePanel<'a>(pub(crate) Cow<'a, [u8]>);

impl<'a> WidePanel<'a> {
    /// The panel of `height` rows at `panel`.
    pub(crate) fn new(layout: BlockLayout, panel: &'a [u8], height: usize) -> Self {
        if height == PANEL {
            return Self(Cow::Borrowed(panel));
        }
        let blocks = panel.len() / height / layout.bytes;
        let row_bytes = blocks * layout.bytes;
        let (mut wide, mut row) = (vec![0; (layout.row_scale + row_bytes) * PANEL], vec![0; row_bytes]);
        for lane in 0..height {
            layout.set_row_scale(layout.row_scale(panel, lane), lane, &mut wide);
            for (block, out) in row.chunks_exact_mut(layout.bytes).enumerate() {
                layout.block(panel, block, lane, height, out);
            }
            layout.interleave(&row, lane, PANEL, &mut wide);
        }
        Self(Cow::Owned(wide))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_has_every_byte_of_its_rows_once_and_gives_each_block_back() {
        for dtype in DType::ALL {
            let Some(layout) = BlockLayout::for_dtype(dtype) else { continue };
            let size = dtype.block();
            assert_eq!(layout.bytes as u64 * size.values, layout.columns as u64 * size.bytes, "{dtype}");
            let row = 3 * layout.bytes + layout.row_scale;
            assert_eq!(row as u64, dtype.matrix_bytes(1, 3 * layout.columns as u64).get(), "{dtype}");
            for height in [1, 5, PANEL] {
                let rows: Vec<Vec<u8>> = (0..height)
                    .map(|row| (0..3 * layout.bytes).map(|i| (i * 7 + row * 13) as u8).collect())
                    .collect();
                let mut panel = vec![0; row * height];
                rows.iter().enumerate().for_each(|(lane, row)| {
                    layout.interleave(row, lane, height, &mut panel);
                    layout.set_row_scale(1.5 + lane as f32, lane, &mut panel);
                });
                let wide = WidePanel::new(layout, &panel, height);
                let mut out = vec![0; layout.bytes];
                for (lane, row) in rows.iter().enumerate() {
                    let scale = if layout.row_scale > 0 { 1.5 + lane as f32 } else { 1.0 };
                    assert_eq!(
                        [&panel, &*wide.0].map(|it| layout.row_scale(it, lane)),
                        [scale; 2],
                        "{dtype}"
                    );
                    for (block, wanted) in row.chunks_exact(layout.bytes).enumerate() {
                        layout.block(&panel, block, lane, height, &mut out);
                        assert_eq!(out, wanted, "{dtype}");
                        layout.block(&wide.0, block, lane, PANEL, &mut out);
                        assert_eq!(out, wanted, "{dtype}");
                    }
                }
            }
        }
    }
}
