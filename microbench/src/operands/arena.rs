//! Operands that come from memory and not from a cache, as in a real step.

use crate::error::MeasureError;
use hwprofiles::{Bytes, DType, GROUP};
use kernels::{Buffer, KvShape, MemoryArena, PANEL, Weights};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Bytes far larger than the caches. Every call gets the next ones; before they are used again,
/// other bytes have evicted them.
#[derive(Debug)]
pub(crate) struct OperandArena {
    buffer: Buffer,
    next: usize,
}

/// Rows and columns of the random matrix that fills an arena with its copies.
const BLOCK: (usize, usize) = (16 * PANEL, 32 * GROUP as usize);

/// Formats of KV caches that are groups of values with a scale.
const GROUPED: [DType; 2] = [DType::Int8, DType::Int2];

impl OperandArena {
    /// One arena for each format of weights, of `bytes` bytes, or of the largest matrix of
    /// `shapes`, [rows, columns], where that is more.
    ///
    /// Packed weights are groups of 16 rows × 32 columns, one after the other, whatever the shape
    /// of the matrix, so one arena serves for all shapes of whole groups. In f32 and bf16 an arena
    /// holds plain random numbers, and serves for keys and values too.
    pub fn by_weight_format(
        formats: impl IntoIterator<Item = DType>,
        shapes: &[(usize, usize)],
        bytes: usize,
    ) -> Result<BTreeMap<DType, RefCell<Self>>, MeasureError> {
        let (rows, columns) = BLOCK;
        let values = random(rows * columns, 1);
        // No plan contains the memory of a measurement, so it has no limit.
        let memory = MemoryArena::new("operands", Bytes::new(u64::MAX));
        let arena = |dtype: DType| {
            let block = Weights::from_f32(&memory, dtype, rows, columns, &values)?;
            let matrix = |&(n, k): &(usize, usize)| dtype.matrix_bytes(n as u64, k as u64).get() as usize;
            let longest = shapes.iter().map(matrix).max().unwrap_or(0);
            let arena = Self::filled(bytes.max(longest), block.bytes())?;
            Ok((dtype, RefCell::new(arena)))
        };
        formats.into_iter().map(arena).collect()
    }

    /// One arena for each format of KV caches that has groups, of `bytes` bytes: rows of whole
    /// groups.
    pub fn by_cache_format(bytes: usize) -> Result<BTreeMap<DType, RefCell<Self>>, MeasureError> {
        let values = random(BLOCK.0 * BLOCK.1, 2);
        let arena = |dtype: DType| {
            let shape = KvShape { dtype, sequences: 1, kv_heads: 1, capacity: 1, head_dim: values.len() };
            let mut block = vec![0; shape.row_bytes()];
            shape.write_row(&values, &mut block);
            Ok((dtype, RefCell::new(Self::filled(bytes, &block)?)))
        };
        GROUPED.into_iter().map(arena).collect()
    }

    /// At least `bytes`, filled with copies of `block`.
    pub fn filled(bytes: usize, block: &[u8]) -> Result<Self, MeasureError> {
        let mut buffer = Buffer::new(bytes.next_multiple_of(block.len()))?;
        buffer.bytes_mut().chunks_exact_mut(block.len()).for_each(|chunk| chunk.copy_from_slice(block));
        Ok(Self { buffer, next: 0 })
    }

    /// The next `len` bytes (at most all), from the start again where too few are left.
    pub fn next(&mut self, len: usize) -> &[u8] {
        if self.next + len > self.buffer.len() {
            self.next = 0;
        }
        self.next += len;
        &self.buffer.bytes()[self.next - len..self.next]
    }

    /// The first `len` bytes, always the same.
    pub fn first(&self, len: usize) -> &[u8] {
        &self.buffer.bytes()[..len]
    }
}

/// `count` random values in a buffer like those of a run, with huge pages where it is large.
pub(crate) fn random_buffer(count: usize, seed: u64) -> Result<Buffer, MeasureError> {
    let mut buffer = Buffer::new(count * size_of::<f32>())?;
    buffer.view_mut().copy_from_slice(&random(count, seed));
    Ok(buffer)
}

/// `count` values between −1 and 1. Never zeros, which some hardware computes faster.
pub(crate) fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(-1.0..1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_and_wrap_around_whole() {
        let mut arena = OperandArena::filled(10, &[0, 1, 2, 3]).unwrap();
        assert_eq!(arena.next(5), [0, 1, 2, 3, 0]);
        assert_eq!(arena.next(4), [1, 2, 3, 0]);
        assert_eq!(arena.next(3), [1, 2, 3]);
        assert_eq!(arena.next(2), [0, 1]);
        assert_eq!(arena.first(2), [0, 1]);
        assert_eq!(OperandArena::filled(1, &[7; 9]).unwrap().next(9), [7; 9]);
    }

    #[test]
    fn random_values_are_reproducible_and_in_range() {
        let values = random(1000, 7);
        assert_eq!(values, random(1000, 7));
        assert_ne!(values, random(1000, 8));
        assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
    }
}
