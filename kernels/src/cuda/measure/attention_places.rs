//! The places of attention's operands, and its calls.

use super::arena::OperandArena;
use super::work::GpuWork;
use crate::cpu::Scores;
use crate::cuda::calls::{self, DecodeStep, GpuSlice, KernelCall, PagedCache, PromptStep};
use crate::cuda::driver::product::ALIGN;
use crate::runtime::KernelError;
use hwprofiles::units::Bytes;
use hwprofiles::{AttentionShape, Phase};

/// The most caches: a sample of a measurement has no more calls.
const MOST_CACHES: usize = 512;

/// Where the operands of attention in bf16 are in the arena: caches among the weights, queries at
/// x, the result at y with scratch behind it. Rows of queries also hold keys and values, as the
/// product in front of attention writes them.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttentionPlaces {
    pub phase: Phase,
    pub batch: usize,
    pub new: usize,
    pub past: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Positions that the cache of a sequence has room for.
    pub room: usize,
    /// Caches that calls use in turn.
    pub caches: usize,
    /// Bytes from one cache to the next.
    stride: usize,
}

impl AttentionPlaces {
    /// The places in this arena.
    ///
    /// # Errors
    /// [`KernelError::Gpu`] where the arena is too small.
    pub fn new(arena: &OperandArena, shape: AttentionShape) -> Result<Self, KernelError> {
        let AttentionShape { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim } = shape;
        let size = |size: u64| size as usize;
        let mut places = Self {
            phase,
            batch: size(batch),
            new: size(new_tokens),
            past: size(past_tokens),
            heads: size(heads),
            kv_heads: size(kv_heads),
            head_dim: size(head_dim),
            room: size(shape.tokens()),
            caches: 1,
            stride: 0,
        };
        if phase == Phase::Decode {
            places.room = places.room.next_power_of_two().max(calls::LEAST_DECODE);
        }
        places.stride = 2 * places.half();
        let (caches, activations) = (arena.weights(), arena.activations());
        let queries = 2 * places.rows() * places.q_stride();
        if places.stride > caches || queries.max(places.scratch_at() + places.scratch_bytes()) > activations {
            let [caches, activations] = [caches, activations].map(|bytes| Bytes::new(bytes as u64));
            let reason = format!(
                "its operands are too large: at most {caches} of keys and values and {activations} of activations"
            );
            return Err(KernelError::Gpu { what: GpuWork::Attention(shape).to_string(), reason });
        }
        // The keys and values of a prompt were just written.
        if phase == Phase::Decode || places.past > 0 {
            places.caches = (caches / places.stride).min(MOST_CACHES);
        }
        Ok(places)
    }

    /// Bytes for the keys of all sequences, and as many for the values.
    pub fn half(&self) -> usize {
        (2 * self.batch * self.kv_heads * self.room * self.head_dim).next_multiple_of(ALIGN)
    }

    /// Rows of queries.
    pub fn rows(&self) -> usize {
        self.batch * self.new
    }

    /// Values of the result's row.
    pub fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values from one row of queries to the next.
    pub fn q_stride(&self) -> usize {
        self.width() + 2 * self.kv_heads * self.head_dim
    }

    /// Bytes from y to the scratch.
    fn scratch_at(&self) -> usize {
        (2 * self.rows() * self.width()).next_multiple_of(ALIGN)
    }

    fn scratch_bytes(&self) -> usize {
        match self.phase {
            Phase::Decode => {
                calls::decode_scratch(self.batch, [self.heads, self.kv_heads], self.head_dim, self.room)
            }
            Phase::Prefill => 0,
        }
    }

    /// The factor of every product of a query and a key.
    pub fn scale(&self) -> f32 {
        (self.head_dim as f32).sqrt().recip()
    }

    /// The page of each sequence.
    pub fn table(&self) -> Vec<i32> {
        (0..self.batch as i32).collect()
    }

    /// What the kernels of the phase read of each sequence: the positions that its token sees, or
    /// its index, its earlier positions, its new tokens and its first row.
    pub fn spans(&self) -> Vec<i32> {
        let (past, new) = (self.past as i32, self.new as i32);
        match self.phase {
            Phase::Decode => vec![past + new; self.batch],
            Phase::Prefill => self.table().into_iter().flat_map(|i| [i, past, new, i * new]).collect(),
        }
    }

    /// The kernels of attention over one of the caches, one after another.
    pub fn calls(
        &self,
        arena: &OperandArena,
        cache: usize,
        [table, spans]: [GpuSlice<i32>; 2],
    ) -> Vec<KernelCall> {
        let Self { heads, kv_heads, head_dim, room, .. } = *self;
        let values = self.half() / 2;
        let cache = PagedCache {
            keys: arena.values(cache * self.stride, values),
            values: arena.values(cache * self.stride + self.half(), values),
            table,
            pages_per_sequence: 1,
            page: room,
            kv_heads,
            head_dim,
        };
        let q = (arena.values(arena.x_at(), self.rows() * self.q_stride()), self.q_stride());
        let out = (arena.values(arena.y_at(), self.rows() * self.width()), self.width());
        let (scores, sinks) = (Scores::scaled(self.scale()), None);
        match self.phase {
            Phase::Decode => {
                let chunk = calls::decode_chunk(self.batch, kv_heads, room);
                let floats = self.scratch_bytes() / size_of::<f32>();
                let scratch = arena.values(arena.y_at() + self.scratch_at(), floats);
                let (lengths, longest) = (spans, room);
                let step = DecodeStep { q, out, heads, lengths, longest, chunk, scratch, scores, sinks };
                calls::decode(cache, step).into()
            }
            Phase::Prefill => {
                let (most_new, new) = (self.new, None);
                let step = PromptStep { q, out, heads, scores, sinks, spans, most_new, new };
                vec![calls::prefill(cache, step)]
            }
        }
    }
}
