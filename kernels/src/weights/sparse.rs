//! Weights of which many are zero: a bitmap, and the values that are not.
//!
//! A panel of sixteen rows is, for each pair of columns, a word of 32 bits (bit 2·row + column of the pair), and the bf16
//! values that the bits stand for, in the bits' order. That is the order of a dense bf16 panel without its zeros, so VPEXPANDW
//! makes 32 weights of one load and one word. A share s of zeros leaves 2·(1 − s) + 1/8 bytes for each weight, as in
//! SparAMX (AbouElhamayed et al., 2025): less than dense bf16 from s = 1/16 on. Zeros that are stored as values (−0) stay.

use super::{GROUP_COLUMNS, PANEL};
use crate::{Buffer, Error, Memory, Path};
use half::bf16;
use std::arch::x86_64::*;
use std::ops::Range;

/// Values that a vector may read beyond the last.
const SLACK: usize = 32;

/// A sparse matrix in bf16 that owns its bytes.
#[derive(Debug)]
pub struct SparseWeights {
    rows: usize,
    columns: usize,
    /// Words of all panels, then values of all panels and [`SLACK`].
    buffer: Buffer,
    /// The first value of each panel, and their number at last.
    first: Vec<usize>,
}

impl SparseWeights {
    /// Packs a row-major matrix of f32 values, rounded to bf16 (to nearest, ties to even). What rounds to +0 is not stored.
    ///
    /// # Errors
    /// As [`Memory::allocate`].
    ///
    /// # Panics
    /// Where `values` is not `rows · columns` long.
    pub fn from_f32(memory: &Memory, rows: usize, columns: usize, values: &[f32]) -> Result<Self, Error> {
        assert_eq!(values.len(), rows * columns, "a matrix of {rows} × {columns}");
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

    /// Bytes that a product reads: 1/8 for each weight of a panel of sixteen rows and whole pairs of columns, 2 for each value.
    pub fn bytes(&self) -> usize {
        self.buffer.len() - 2 * SLACK
    }

    fn words(&self) -> &[u32] {
        let all = self.rows.div_ceil(PANEL) * self.columns.div_ceil(2);
        bytemuck::cast_slice(&self.buffer.bytes()[..4 * all])
    }

    /// A panel's values, and what follows them.
    pub(crate) fn values(&self, panel: usize) -> &[u16] {
        let start = size_of_val(self.words());
        &bytemuck::cast_slice(&self.buffer.bytes()[start..])[self.first[panel]..]
    }

    /// Writes a panel's `columns` (which start on an even one) as pairs of bf16 columns, and zeros up to a whole group of
    /// columns, from `values`, whose first is the columns' first. Returns the values that follow.
    ///
    /// # Safety
    /// `values` are the panel's after those of all columns before: so many must be there, which nothing checks.
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
        let used = if path >= Path::Avx512 && vectors_expand() {
            // SAFETY: the CPU has the instructions; the values are there by the caller's promise, and 32 more.
            unsafe { expand_words(words, values.as_ptr(), out) }
        } else {
            expand_plainly(words, values, out)
        };
        &values[used..]
    }
}

/// Whether words are expanded by VPEXPANDW (Intel since Ice Lake, AMD since Zen 4).
pub(crate) fn vectors_expand() -> bool {
    Path::Avx512.is_supported() && is_x86_feature_detected!("avx512vbmi2")
}

/// The definition: a value for each bit that is set, zero for each that is not. Returns how many values those are.
fn expand_plainly(words: &[u32], values: &[u16], out: &mut [f32]) -> usize {
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
/// As [`expand_plainly`]. The CPU has AVX-512 F, BW, VL and VBMI2; at `values` lie as many values as bits are set, and [`SLACK`] more.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
unsafe fn expand_words(words: &[u32], values: *const u16, out: &mut [f32]) -> usize {
    let mut used = 0;
    for (&word, out) in words.iter().zip(out.chunks_exact_mut(PANEL)) {
        // SAFETY: by the caller's promise a whole vector may be read; `out` is one.
        unsafe {
            // Hardware prefetchers stop at each page of 4 KiB.
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
            if vectors_expand() { "real" } else { "absent, plain instead" }
        );
        let memory = Memory::new("test", Bytes::new(1 << 30));
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
                            // SAFETY: parts follow each other from the panel's first values on.
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
