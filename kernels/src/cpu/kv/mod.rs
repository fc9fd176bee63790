//! The KV cache of one layer for a batch of sequences.

mod row;

pub(crate) use row::{INT2_BYTES, INT8_BYTES, VALUES, narrow, widen};

use crate::runtime::{Disjoint, KernelError, Pool};
use hwprofiles::DType;

/// The shape of one layer's cache: an array of keys and one of values, each
/// `[sequence][kv head][position][head dim]`, with room for `capacity` positions in each sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// f32, bf16, int8 or int2.
    pub dtype: DType,
    /// Sequences.
    pub sequences: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// The number of positions that each sequence has room for.
    pub capacity: usize,
    /// Values of one head.
    pub head_dim: usize,
}

/// New tokens of one sequence. The rows of a step's queries, keys and values follow the order of
/// its spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvSpan {
    /// Index of the sequence in the cache.
    pub sequence: usize,
    /// Positions in the cache before this step.
    pub past: usize,
    /// Tokens of this step: in prefill the prompt or a chunk of it, in decode 1.
    pub new: usize,
}

/// The keys and values of a step's new tokens, in f32: a row of `[kv head][head dim]` for each.
#[derive(Debug, Clone, Copy)]
pub struct NewRows<'a> {
    /// Keys.
    pub keys: &'a [f32],
    /// Values.
    pub values: &'a [f32],
    /// The distance of the rows.
    pub stride: usize,
}

/// One layer's cache, to read.
#[derive(Debug, Clone, Copy)]
pub struct KvCache<'a> {
    shape: KvShape,
    keys: &'a [u8],
    values: &'a [u8],
}

/// One layer's cache, to write.
#[derive(Debug)]
pub struct KvCacheMut<'a> {
    shape: KvShape,
    keys: &'a mut [u8],
    values: &'a mut [u8],
}

impl KvSpan {
    /// The spans of a step, each with the row of its first token.
    pub fn with_rows(spans: &[Self]) -> impl Iterator<Item = (usize, Self)> {
        let first = |row: &mut usize, span: &Self| Some((std::mem::replace(row, *row + span.new), *span));
        spans.iter().scan(0, first)
    }

    /// Whether the span's sequence and positions are inside a cache of this shape.
    pub(crate) fn fits(&self, shape: &KvShape) -> bool {
        let end = self.past.checked_add(self.new);
        self.sequence < shape.sequences && end.is_some_and(|end| end <= shape.capacity)
    }
}

impl KvShape {
    /// Bytes of the keys of one layer; the values take as many.
    pub fn bytes(&self) -> usize {
        self.sequences * self.kv_heads * self.head_bytes()
    }

    /// As [`KvShape::bytes`]; `None` where a `usize` cannot hold the number.
    fn checked_bytes(&self) -> Option<usize> {
        // A row takes at most 4 bytes a value, and a group of 32 values at least.
        self.head_dim.checked_next_multiple_of(VALUES)?.checked_mul(4)?;
        let rows = self.sequences.checked_mul(self.kv_heads)?.checked_mul(self.capacity)?;
        rows.checked_mul(self.row_bytes())
    }

    /// Bytes of one head of one sequence, for all its positions.
    fn head_bytes(&self) -> usize {
        self.capacity * self.row_bytes()
    }

    /// Bytes of a row: one head at one position.
    pub fn row_bytes(&self) -> usize {
        self.dtype.matrix_bytes(1, self.head_dim as u64).get() as usize
    }

    /// Writes the values of one head as a row of the cache, rounding them.
    ///
    /// # Panics
    /// Where `from` is not as long as a head, or `to` not as long as a row.
    pub fn write_row(&self, from: &[f32], to: &mut [u8]) {
        assert_eq!((from.len(), to.len()), (self.head_dim, self.row_bytes()));
        narrow(self.dtype, from, to);
    }

    /// Reads a row of the cache as f32.
    ///
    /// # Panics
    /// As [`KvShape::write_row`].
    pub fn read_row(&self, from: &[u8], to: &mut [f32]) {
        assert_eq!((to.len(), from.len()), (self.head_dim, self.row_bytes()));
        widen(self.dtype, from, to);
    }

    /// The alignment of a row in bytes.
    fn alignment(&self) -> usize {
        match self.dtype {
            DType::F32 => 4,
            DType::Bf16 => 2,
            _ => 1,
        }
    }

    /// The offset of one head of one sequence, in bytes.
    fn head_start(&self, sequence: usize, kv_head: usize) -> usize {
        assert!(sequence < self.sequences && kv_head < self.kv_heads);
        (sequence * self.kv_heads + kv_head) * self.head_bytes()
    }

    fn check(&self, len: usize, align: usize) -> Result<(), KernelError> {
        if !matches!(self.dtype, DType::F32 | DType::Bf16 | DType::Int8 | DType::Int2) {
            let accepted = "f32, bf16, int8, int2";
            return Err(KernelError::DType { what: "KV caches", dtype: self.dtype, accepted });
        }
        let Self { dtype, head_dim: columns, .. } = *self;
        let rows = self.sequences.checked_mul(self.kv_heads).and_then(|all| all.checked_mul(self.capacity));
        let (Some(rows), Some(wanted)) = (rows, self.checked_bytes()) else {
            let rows = self.capacity;
            return Err(KernelError::TooLarge { what: "a KV cache", rows, columns, dtype });
        };
        if len == wanted && align.is_multiple_of(self.alignment()) {
            return Ok(());
        }
        Err(KernelError::Size { what: "an aligned KV cache", rows, columns, dtype, wanted, got: len })
    }
}

impl<'a> KvCache<'a> {
    /// A cache over the bytes of its keys and of its values.
    ///
    /// # Errors
    /// [`KernelError::DType`]; [`KernelError::TooLarge`]; [`KernelError::Size`] where either is not
    /// [`KvShape::bytes`] long or not aligned to a value.
    pub fn new(shape: KvShape, keys: &'a [u8], values: &'a [u8]) -> Result<Self, KernelError> {
        shape.check(keys.len(), keys.as_ptr() as usize)?;
        shape.check(values.len(), values.as_ptr() as usize)?;
        Ok(Self { shape, keys, values })
    }

    /// Its shape.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// The bytes of the keys of one head of one sequence, `[position][head dim]`.
    pub(crate) fn keys(&self, sequence: usize, kv_head: usize) -> &'a [u8] {
        &self.keys[self.shape.head_start(sequence, kv_head)..][..self.shape.head_bytes()]
    }

    /// As [`KvCache::keys`], of the values.
    pub(crate) fn values(&self, sequence: usize, kv_head: usize) -> &'a [u8] {
        &self.values[self.shape.head_start(sequence, kv_head)..][..self.shape.head_bytes()]
    }
}

impl<'a> KvCacheMut<'a> {
    /// As [`KvCache::new`].
    ///
    /// # Errors
    /// As [`KvCache::new`].
    pub fn new(shape: KvShape, keys: &'a mut [u8], values: &'a mut [u8]) -> Result<Self, KernelError> {
        shape.check(keys.len(), keys.as_ptr() as usize)?;
        shape.check(values.len(), values.as_ptr() as usize)?;
        Ok(Self { shape, keys, values })
    }

    /// The same cache, to read.
    pub fn as_cache(&self) -> KvCache<'_> {
        KvCache { shape: self.shape, keys: self.keys, values: self.values }
    }

    /// Writes the keys and values of a step's new tokens, rounded to the cache's format. `keys` and
    /// `values` are rows of `[kv head][head dim]`, one per new token in the order of `spans`,
    /// `stride` values apart.
    ///
    /// # Panics
    /// Where a span goes beyond the capacity or a slice is too short.
    pub fn append(&mut self, pool: &Pool, spans: &[KvSpan], keys: &[f32], values: &[f32], stride: usize) {
        let capacity = self.shape.capacity;
        spans
            .iter()
            .for_each(|span| assert!(span.fits(&self.shape), "{span:?} exceeds {capacity} positions"));
        self.append_to_ring(pool, KvSpan::with_rows(spans), NewRows { keys, values, stride });
    }

    /// As [`KvCacheMut::append`], of `spans` that each come with the row of their first token, to a
    /// cache that is a ring: position p is kept in row p mod capacity, where it replaces position
    /// p − capacity. Of more tokens than the cache has room for, only the last are written.
    ///
    /// # Panics
    /// Where a sequence is not in the cache or a slice is too short.
    pub fn append_to_ring(
        &mut self,
        pool: &Pool,
        spans: impl IntoIterator<Item = (usize, KvSpan)>,
        rows: NewRows<'_>,
    ) {
        let (shape, NewRows { keys, values, stride }) = (self.shape, rows);
        let (to_keys, to_values) = (Disjoint::new(self.keys), Disjoint::new(self.values));
        for (first, span) in spans {
            let kept = span.new.saturating_sub(shape.capacity)..span.new;
            let copy = |_, kv_head: usize| {
                for offset in kept.clone() {
                    let from = (first + offset) * stride + kv_head * shape.head_dim;
                    let row = (span.past + offset) % shape.capacity;
                    let at = shape.head_start(span.sequence, kv_head) + row * shape.row_bytes();
                    // SAFETY: each (sequence, head, row) has its own bytes; one member copies a
                    // head.
                    let (to_keys, to_values) = unsafe {
                        (to_keys.range(at, shape.row_bytes()), to_values.range(at, shape.row_bytes()))
                    };
                    shape.write_row(&keys[from..][..shape.head_dim], to_keys);
                    shape.write_row(&values[from..][..shape.head_dim], to_values);
                }
            };
            // One thread copies the few kilobytes of a decode step faster than a team starts.
            if kept.len() * shape.kv_heads * shape.head_dim < 1 << 14 {
                (0..shape.kv_heads).for_each(|kv_head| copy(0, kv_head));
            } else {
                pool.each(shape.kv_heads, copy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::affinity;

    fn shape(sequences: usize, capacity: usize) -> KvShape {
        KvShape { dtype: DType::F32, sequences, kv_heads: 1, capacity, head_dim: 1 }
    }

    #[test]
    fn a_size_that_overflows_is_refused() {
        // 2⁶² positions of four bytes wrap around to none.
        for shape in
            [shape(1, 1 << 62), shape(1 << 32, 1 << 32), KvShape { head_dim: 1 << 62, ..shape(1, 1) }]
        {
            let error = KvCache::new(shape, &[], &[]).expect_err("too large");
            assert!(matches!(error, KernelError::TooLarge { .. }), "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "exceeds 4 positions")]
    fn a_span_whose_end_overflows_is_refused() {
        let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core");
        let (mut keys, mut values) = ([0f32; 4], [0f32; 4]);
        let (keys, values) = (bytemuck::cast_slice_mut(&mut keys), bytemuck::cast_slice_mut(&mut values));
        let mut cache = KvCacheMut::new(shape(1, 4), keys, values).expect("the right size");
        let span = KvSpan { sequence: 0, past: usize::MAX, new: 2 };
        cache.append(&pool, &[span], &[1.0; 2], &[1.0; 2], 1);
    }
}
