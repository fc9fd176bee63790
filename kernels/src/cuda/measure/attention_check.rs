//! The check of attention against its definition.

use super::attention_places::AttentionPlaces;
use super::check::first_wrong;
use super::gpu::Gpu;
use super::random::value;
use super::work::{GpuCheck, GpuWork};
use crate::runtime::KernelError;
use hwprofiles::{AttentionShape, DType, Phase};

/// Sequences of the checked call.
const BATCH: u64 = 2;
/// (New tokens, past tokens) of a decode, which several blocks divide, and of a prompt.
const DECODE: (u64, u64) = (1, 300);
const PROMPT: (u64, u64) = (33, 70);

impl Gpu {
    /// Compares the last row of each sequence with softmax(q·Kᵀ / √head dim)·V in double precision,
    /// for the phase and the heads of `shape`.
    pub(super) fn check_attention(&mut self, shape: AttentionShape) -> Result<GpuCheck, KernelError> {
        let (new_tokens, past_tokens) = if shape.phase == Phase::Decode { DECODE } else { PROMPT };
        let shape = AttentionShape { batch: BATCH, new_tokens, past_tokens, ..shape };
        let mut calls = self.take_model_calls(GpuWork::Attention(shape))?;
        calls.run()?;
        self.keep_model_calls(calls);
        let places = AttentionPlaces::new(&self.arena, shape)?;
        let read = |at: usize, values: usize| -> Result<Vec<f64>, KernelError> {
            let bytes = self.arena.memory.download(at, 2 * values, &self.stream)?;
            Ok(bytes.chunks(2).map(|bytes| value(DType::Bf16, bytes)).collect())
        };
        let operands = HostOperands {
            keys: read(0, places.half() / 2)?,
            values: read(places.half(), places.half() / 2)?,
            queries: read(self.arena.x_at(), places.rows() * places.q_stride())?,
            places,
        };
        let out = read(self.arena.y_at(), places.rows() * places.width())?;
        // A prompt's weights are rounded to bf16 before they multiply values, which are at most 1.
        let slack = if shape.phase == Phase::Decode { 1e-4 } else { 4e-3 };
        let dim = places.head_dim;
        let heads =
            (0..places.batch).flat_map(|sequence| (0..places.heads).map(move |head| (sequence, head)));
        Ok(first_wrong(heads.flat_map(|(sequence, head)| {
            let row = (sequence + 1) * places.new - 1;
            let got = &out[row * places.width() + head * dim..][..dim];
            let wanted = operands.context(sequence, row, head).into_iter();
            let checks = got.iter().zip(wanted).map(move |(&got, wanted)| {
                let tolerance = wanted.abs() / 128.0 + slack;
                GpuCheck { got, wanted, tolerance }
            });
            checks.collect::<Vec<_>>()
        })))
    }
}

/// The operands on the host.
struct HostOperands {
    keys: Vec<f64>,
    values: Vec<f64>,
    queries: Vec<f64>,
    places: AttentionPlaces,
}

impl HostOperands {
    /// The result for one head of a sequence's last row.
    fn context(&self, sequence: usize, row: usize, head: usize) -> Vec<f64> {
        let AttentionPlaces { heads, kv_heads, head_dim, room, past, new, .. } = self.places;
        let q = &self.queries[row * self.places.q_stride() + head * head_dim..][..head_dim];
        let first = (sequence * kv_heads + head / (heads / kv_heads)) * room;
        let at = |position: usize| (first + position) * head_dim;
        let weight = |position: usize| {
            let key = &self.keys[at(position)..][..head_dim];
            let dot: f64 = q.iter().zip(key).map(|(q, key)| q * key).sum();
            (dot * f64::from(self.places.scale())).exp()
        };
        let weights: Vec<_> = (0..past + new).map(weight).collect();
        let total: f64 = weights.iter().sum();
        let mut context = vec![0.0; head_dim];
        for (position, weight) in weights.iter().enumerate() {
            let value = &self.values[at(position)..][..head_dim];
            context.iter_mut().zip(value).for_each(|(sum, value)| *sum += weight / total * value);
        }
        context
    }
}
