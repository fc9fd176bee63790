//! Sparse weights: a bitmap, and the values that are not zero.
//!
//! A panel of sixteen rows has a word of 32 bits for each pair of columns (bit 2·row + column of
//! the pair), and the bf16 values of the set bits, in the order of the bits. That is the order of a
//! dense bf16 panel without its zeros, so VPEXPANDW makes 32 weights from one load and one word.
//! With a share s of zeros a weight takes 2·(1 − s) + 1/8 bytes, as in SparAMX (AbouElhamayed et
//! al., 2025): less than dense bf16 from s = 1/16 on. A −0 is stored as a value.

use super::layout::GROUP_COLUMNS;
use super::panel::PANEL;
use crate::runtime::{Buffer, KernelError, MemoryArena, Path};
use half::bf16;
use std::arch::x86_64::*;
use std::ops::Range;

/// The number of values beyond the last that a vector may read.
const SLACK: usize = 32;

/// A sparse matrix in bf16 that owns its bytes.
#[derive(Debug)]
pub struct SparseWeights {
    rows: usize,
    columns: usize,
    /// The words of all panels, then the values of all panels, then [`SLACK`] values.
    buffer: Buffer,
    /// The index of each panel's first value, and at the end the number of all values.
    first: Vec<usize>,
}

impl SparseWeights {
    /// Packs a row-major matrix of f32 values, rounded to bf16 (to nearest, ties to even). Values
    /// that round to +0 are not stored.
    ///
    /// # Errors
    /// Those of [`MemoryArena::allocate`].
    ///
    /// # Panics
    /// Where `values` is not `rows · columns` long.
    pub fn from_f32(
        memory: &MemoryArena,
        rows: usize,
        columns: usize,
        values: &[f32],
    ) -> Result<Self, KernelError> {
        assert_eq!(Some(values.len()), rows.checked_mul(columns), "a matrix of {rows} × {columns}");
        let (mut words, mut kept, mut first) = (Vec::new(), Vec::new(), vec![0]);
        for panel in 0..rows.div_ceil(PANEL) {
            for pair in 0..columns.div_ceil(2) {
                let mut word = 0u32;
                for bit in 0..2 * PANEL {
                    let (row, column) = (panel * PANEL + bit / 2, 2 * pair + bit % 2);
                    if row < rows && column < columns {
                        let value = bf16::from_f32(values[row * columns + column]).to_bits();
                        if value != 0 {
                            word |= 1 << bit;
                            kept.push(value);
                        }
                    }
                }
                words.push(word);
            }
            first.push(kept.len());
        }
        kept.resize(kept.len() + SLACK, 0);
        let (words, kept) = (bytemuck::cast_slice::<_, u8>(&words), bytemuck::cast_slice(&kept));
        let mut buffer = memory.allocate(words.len() + kept.len())?;
        buffer.bytes_mut()[..words.len()].copy_from_slice(words);
        buffer.bytes_mut()[words.len()..].copy_from_slice(kept);
        Ok(Self { rows, columns, buffer, first })
    }

    /// Rows: outputs, n.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: inputs, k.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes that a product reads: 1/8 for each weight of whole panels and whole pairs of columns,
    /// and 2 for each value.
    pub fn bytes(&self) -> usize {
        self.buffer.len() - 2 * SLACK
    }

    fn words(&self) -> &[u32] {
        let all = self.rows.div_ceil(PANEL) * self.columns.div_ceil(2);
        bytemuck::cast_slice(&self.buffer.bytes()[..4 * all])
    }

    /// The values from a panel's first one on.
    pub(crate) fn values(&self, panel: usize) -> &[u16] {
        let start = size_of_val(self.words());
        &bytemuck::cast_slice(&self.buffer.bytes()[start..])[self.first[panel]..]
    }

    /// Writes a panel's `columns` (which start on an even one) as pairs of bf16 columns, and zeros
    /// up to a whole group of columns. `values` starts at the first value of these columns. Returns
    /// the values that follow.
    ///
    /// # Safety
    /// `values` are the panel's values after those of all columns before. That they are there is
    /// not checked.
    pub(crate) unsafe fn expand<'a>(
        &self,
        path: Path,
        panel: usize,
        columns: &Range<usize>,
        values: &'a [u16],
        out: &mut [f32],
    ) -> &'a [u16] {
        let pairs = self.columns.div_ceil(2);
        let words = &self.words()[panel * pairs..][columns.start / 2..columns.end.div_ceil(2)];
        let (out, padding) = out.split_at_mut(words.len() * PANEL);
        padding[..(words.len().next_multiple_of(GROUP_COLUMNS / 2) - words.len()) * PANEL].fill(0.0);
        let used = if path >= Path::Avx512 && has_vector_expand() {
            // SAFETY: the CPU has the instructions. By the caller's promise the values are there,
            // and SLACK more.
            unsafe { expand_words(words, values.as_ptr(), out) }
        } else {
            expand_scalar(words, values, out)
        };
        &values[used..]
    }
}

/// Whether words are expanded by VPEXPANDW (Intel since Ice Lake, AMD since Zen 4).
pub(crate) fn has_vector_expand() -> bool {
    Path::Avx512.is_supported() && is_x86_feature_detected!("avx512vbmi2")
}

/// The reference: a value for each set bit, zero for each other bit. Returns the number of values
/// used.
fn expand_scalar(words: &[u32], values: &[u16], out: &mut [f32]) -> usize {
    let all = values.len();
    let mut values = values.iter();
    let out: &mut [u16] = bytemuck::cast_slice_mut(out);
    for (word, out) in words.iter().zip(out.chunks_exact_mut(2 * PANEL)) {
        for (bit, out) in out.iter_mut().enumerate() {
            *out = if word >> bit & 1 == 1 { values.next().copied().unwrap_or(0) } else { 0 };
        }
    }
    all - values.len()
}

/// # Safety
/// The CPU has AVX-512 F, BW, VL and VBMI2. At `values` lie as many values as bits are set, and
/// [`SLACK`] more.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
unsafe fn expand_words(words: &[u32], values: *const u16, out: &mut [f32]) -> usize {
    let mut used = 0;
    for (&word, out) in words.iter().zip(out.chunks_exact_mut(PANEL)) {
        // SAFETY: by the caller's promise a whole vector may be read; `out` has room for one.
        unsafe {
            // Hardware prefetchers stop at the end of each 4 KiB page.
            _mm_prefetch::<_MM_HINT_T0>(values.wrapping_add(used).wrapping_byte_add(4 << 10).cast());
            let dense = _mm512_loadu_si512(values.add(used).cast());
            _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_maskz_expand_epi16(word, dense));
        }
        used += word.count_ones() as usize;
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::units::Bytes;

    #[test]
    fn a_matrix_takes_two_bytes_a_value_and_an_eighth_a_weight_and_expands_to_itself() {
        println!(
            "expansion by VPEXPANDW: {}",
            if has_vector_expand() { "real" } else { "absent, plain instead" }
        );
        let memory = MemoryArena::new("test", Bytes::new(1 << 30));
        for kept in [0, 1, 5, 10] {
            for (rows, columns) in [(32, 64), (17, 33), (1, 1), (16, 1100), (0, 4), (4, 0)] {
                let value = |i: usize| if i * 7919 % 10 < kept { i as f32 + 1.0 } else { 0.0 };
                let values: Vec<f32> = (0..rows * columns).map(value).collect();
                let w = SparseWeights::from_f32(&memory, rows, columns, &values).expect("fits");
                let (panels, stored) = (rows.div_ceil(PANEL), values.iter().filter(|&&it| it != 0.0).count());
                assert_eq!(w.bytes(), 2 * stored + panels * columns.div_ceil(2) * 4);
                for path in [Path::Reference, Path::Avx512] {
                    for panel in 0..panels {
                        let mut left = w.values(panel);
                        for from in (0..columns).step_by(64) {
                            let part = from..columns.min(from + 64);
                            let mut out = vec![f32::NAN; 32 * PANEL];
                            // SAFETY: the parts follow each other from the panel's first value on.
                            left = unsafe { w.expand(path, panel, &part, left, &mut out) };
                            let whole = part.len().next_multiple_of(GROUP_COLUMNS) * PANEL;
                            let halves: &[u16] = &bytemuck::cast_slice(&out)[..whole];
                            for (at, &half) in halves.iter().enumerate() {
                                let (row, column) =
                                    (panel * PANEL + at / 2 % PANEL, from + at / 2 / PANEL * 2 + at % 2);
                                let inside = row < rows && column < columns;
                                let value = if inside { values[row * columns + column] } else { 0.0 };
                                assert_eq!(half, bf16::from_f32(value).to_bits(), "{path} ({row}, {column})");
                            }
                        }
                    }
                }
            }
        }
    }
}
