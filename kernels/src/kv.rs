//! The keys and values of one layer for a batch of sequences.

use crate::kv_row::{narrow, widen};
use crate::{Error, Pool, disjoint::Disjoint};
use hwprofiles::DType;

/// The shape of one layer's cache: two arrays (keys, values) of
/// `[sequence][kv head][position][head dim]`, each sequence with room for `capacity` positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// f32, bf16, int8 or int2.
    pub dtype: DType,
    /// Sequences.
    pub sequences: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Positions that each sequence has room for.
    pub capacity: usize,
    /// Values of one head.
    pub head_dim: usize,
}

/// New tokens of one sequence: the rows of a step's queries, keys and values follow the order of the spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Index of the sequence in the cache.
    pub sequence: usize,
    /// Positions that were in the cache before this step.
    pub past: usize,
    /// Tokens of this step: the prompt (or a chunk of it) in prefill, 1 in decode.
    pub new: usize,
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

impl KvShape {
    /// Bytes of the keys, and again of the values, of one layer.
    pub fn bytes(&self) -> usize {
        self.sequences * self.kv_heads * self.head_bytes()
    }

    /// Bytes of one head of one sequence at full capacity.
    fn head_bytes(&self) -> usize {
        self.capacity * self.row_bytes()
    }

    /// Bytes of one head at one position: a row.
    pub fn row_bytes(&self) -> usize {
        self.dtype.matrix_bytes(1, self.head_dim as u64).get() as usize
    }

    /// Rounds the values of one head to a row of the cache.
    ///
    /// # Panics
    /// Where a slice is not a head, or a row, long.
    pub fn write_row(&self, from: &[f32], to: &mut [u8]) {
        assert_eq!((from.len(), to.len()), (self.head_dim, self.row_bytes()));
        narrow(self.dtype, from, to);
    }

    /// The values in a row of the cache.
    ///
    /// # Panics
    /// As [`KvShape::write_row`].
    pub fn read_row(&self, from: &[u8], to: &mut [f32]) {
        assert_eq!((to.len(), from.len()), (self.head_dim, self.row_bytes()));
        widen(self.dtype, from, to);
    }

    /// What rows begin at a multiple of.
    fn alignment(&self) -> usize {
        match self.dtype {
            DType::F32 => 4,
            DType::Bf16 => 2,
            _ => 1,
        }
    }

    /// Where one head of one sequence starts, in bytes.
    fn head_start(&self, sequence: usize, kv_head: usize) -> usize {
        assert!(sequence < self.sequences && kv_head < self.kv_heads);
        (sequence * self.kv_heads + kv_head) * self.head_bytes()
    }

    fn check(&self, len: usize, align: usize) -> Result<(), Error> {
        if !matches!(self.dtype, DType::F32 | DType::Bf16 | DType::Int8 | DType::Int2) {
            let accepted = "f32, bf16, int8, int2";
            return Err(Error::DType { what: "KV caches", dtype: self.dtype, accepted });
        }
        if len == self.bytes() && align.is_multiple_of(self.alignment()) {
            return Ok(());
        }
        Err(Error::Size {
            what: "an aligned KV cache",
            rows: self.sequences * self.kv_heads * self.capacity,
            columns: self.head_dim,
            dtype: self.dtype,
            wanted: self.bytes(),
            got: len,
        })
    }
}

impl<'a> KvCache<'a> {
    /// A cache over the bytes of its keys and of its values.
    ///
    /// # Errors
    /// [`Error::DType`]; [`Error::Size`] where either is not [`KvShape::bytes`] long or not aligned to a value.
    pub fn new(shape: KvShape, keys: &'a [u8], values: &'a [u8]) -> Result<Self, Error> {
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
    pub fn new(shape: KvShape, keys: &'a mut [u8], values: &'a mut [u8]) -> Result<Self, Error> {
        shape.check(keys.len(), keys.as_ptr() as usize)?;
        shape.check(values.len(), values.as_ptr() as usize)?;
        Ok(Self { shape, keys, values })
    }

    /// The same cache, to read.
    pub fn as_cache(&self) -> KvCache<'_> {
        KvCache { shape: self.shape, keys: self.keys, values: self.values }
    }

    /// Writes the keys and values of a step's new tokens, rounding to the cache's format. `keys` and `values` are
    /// rows of `[kv head][head dim]`, one per new token in the order of `spans`, `stride` values apart.
    ///
    /// # Panics
    /// Where a span goes beyond the capacity or a slice is too short.
    pub fn append(&mut self, pool: &Pool, spans: &[Span], keys: &[f32], values: &[f32], stride: usize) {
        let shape = self.shape;
        let (to_keys, to_values) = (Disjoint::new(self.keys), Disjoint::new(self.values));
        let mut first = 0;
        for span in spans {
            assert!(span.past + span.new <= shape.capacity, "{span:?} exceeds {} positions", shape.capacity);
            let rows = first..first + span.new;
            let copy = |_, kv_head: usize| {
                for (offset, row) in rows.clone().enumerate() {
                    let from = row * stride + kv_head * shape.head_dim;
                    let at =
                        shape.head_start(span.sequence, kv_head) + (span.past + offset) * shape.row_bytes();
                    // SAFETY: each (sequence, head, position) has its own bytes; one head is copied by one member.
                    let (to_keys, to_values) = unsafe {
                        (to_keys.range(at, shape.row_bytes()), to_values.range(at, shape.row_bytes()))
                    };
                    shape.write_row(&keys[from..][..shape.head_dim], to_keys);
                    shape.write_row(&values[from..][..shape.head_dim], to_values);
                }
            };
            // A decode step's few kilobytes are copied sooner than a team is called together.
            if span.new * shape.kv_heads * shape.head_dim < 1 << 14 {
                (0..shape.kv_heads).for_each(|kv_head| copy(0, kv_head));
            } else {
                pool.each(shape.kv_heads, copy);
            }
            first += span.new;
        }
    }
}
