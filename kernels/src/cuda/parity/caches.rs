//! The KV cache and attention.

use super::bench::ParityBench;
use crate::cpu::{
    AttentionOperands, KvCacheMut, KvShape, KvSpan, Scores, StridedRows, StridedRowsMut, attention,
};
use crate::cuda::calls::{self, DecodeStep, GpuRows, PagedCache, PromptStep};
use crate::runtime::{Buffer, KernelError, Scratch};
use hwprofiles::DType;

pub(super) fn check(bench: &mut ParityBench) -> Result<(), KernelError> {
    for (heads, kv_heads, head_dim) in [(8, 8, 64), (12, 2, 80), (16, 4, 128), (8, 4, 256), (4, 2, 20)] {
        for (past, new) in [(0, 1), (63, 1), (700, 1), (0, 70), (129, 33)] {
            let capacity = past + new + 3;
            let shape = KvShape { dtype: DType::Bf16, sequences: 2, kv_heads, capacity, head_dim };
            let plain = Scores::scaled((head_dim as f32).sqrt().recip());
            AttentionCase { shape, heads, past, new, scores: plain }.check(bench)?;
            for window in [7, 65] {
                let scores = Scores { cap: Some(0.5), window: Some(window), ..plain };
                AttentionCase { shape, heads, past, new, scores }.check(bench)?;
            }
        }
    }
    Ok(())
}

/// One call of attention: the last `new` tokens of each sequence attend.
struct AttentionCase {
    shape: KvShape,
    heads: usize,
    past: usize,
    new: usize,
    scores: Scores,
}

impl AttentionCase {
    fn width(&self) -> usize {
        self.heads * self.shape.head_dim
    }

    fn kv_width(&self) -> usize {
        self.shape.kv_heads * self.shape.head_dim
    }

    fn spans(&self, past: usize, new: usize) -> Vec<KvSpan> {
        (0..self.shape.sequences).map(|sequence| KvSpan { sequence, past, new }).collect()
    }

    /// The CPU's result. Rows of `kv` are keys, then values.
    fn wanted(&self, bench: &ParityBench, kv: &[f32], q: &[f32]) -> Result<Vec<f32>, KernelError> {
        let (shape, heads, width, kv_width) = (self.shape, self.heads, self.width(), self.kv_width());
        let [mut keys, mut values] = [Buffer::new(shape.bytes())?, Buffer::new(shape.bytes())?];
        let mut cache = KvCacheMut::new(shape, keys.bytes_mut(), values.bytes_mut())?;
        let (all, last) = (self.spans(0, self.past + self.new), self.spans(self.past, self.new));
        cache.append(&bench.pool, &all, kv, &kv[kv_width..], 2 * kv_width);
        let mut out = vec![0.0; q.len()];
        let bytes = attention::scratch_bytes(1, heads, shape, shape.sequences);
        let mut scratch = Scratch::unaccounted(bytes)?;
        let operands = AttentionOperands {
            heads,
            scores: self.scores,
            out: StridedRowsMut::new(&mut out, width),
            q: StridedRows::new(q, width),
            sinks: &[],
            cache: cache.as_cache(),
            new: None,
            spans: &last,
        };
        attention(&bench.pool, operands, &mut scratch);
        Ok(out)
    }

    /// Appends all rows on the GPU to a cache in `room` with one page per sequence.
    fn cache(
        &self,
        bench: &mut ParityBench,
        kv: &[f32],
        [room, table]: [&Buffer; 2],
    ) -> Result<PagedCache, KernelError> {
        let KvShape { sequences, kv_heads, capacity, head_dim, .. } = self.shape;
        let half = self.shape.bytes() / size_of::<u16>();
        let cache = PagedCache {
            keys: room.values().first(half),
            values: room.values().from(half),
            table: table.values(),
            pages_per_sequence: 1,
            page: capacity,
            kv_heads,
            head_dim,
        };
        let all = self.past + self.new;
        let rows = || (0..sequences).flat_map(|sequence| (0..all).map(move |position| (sequence, position)));
        let sequences_at = bench.numbers(&rows().map(|(sequence, _)| sequence).collect::<Vec<_>>())?;
        let positions = bench.numbers(&rows().map(|(_, position)| position).collect::<Vec<_>>())?;
        let kv = bench.narrow(kv)?;
        let (values, stride) = (kv.values().from(self.kv_width()), 2 * self.kv_width());
        let rows = GpuRows { keys: kv.values(), values, stride };
        bench.run(&calls::append(cache, rows, sequences_at.values(), positions.values(), None))?;
        Ok(cache)
    }

    fn check(&self, bench: &mut ParityBench) -> Result<(), KernelError> {
        let KvShape { sequences, kv_heads, head_dim, .. } = self.shape;
        let Self { heads, past, new, scores, .. } = *self;
        let (all, width) = (past + new, self.width());
        let (kv, q) =
            (bench.noise(sequences * all * 2 * self.kv_width()), bench.noise(sequences * new * width));
        let wanted = self.wanted(bench, &kv, &q)?;
        let (room, table) = (bench.memory.allocate(2 * self.shape.bytes())?, bench.numbers(&[0, 1])?);
        let cache = self.cache(bench, &kv, [&room, &table])?;
        let (q, (out_at, out)) = (bench.narrow(&q)?, bench.room(q.len())?);
        let (q, out) = ((q.values(), width), (out, width));
        let mut what =
            format!("attention of {new} tokens after {past}, {heads} heads over {kv_heads} of {head_dim}");
        if let Some(window) = scores.window {
            what += &format!(", a window of {window} and a cap");
        }
        if new > 1 {
            let spans = bench.numbers(&[0, past, new, 0, 1, past, new, new])?;
            let (spans, sinks) = (spans.values(), None);
            let step = PromptStep { q, out, heads, scores, sinks, spans, most_new: new, new: None };
            bench.run(&calls::prefill(cache, step))?;
            // Weights are rounded to bf16 before they multiply values, which are at most 1.
            return bench.compare(what, &out_at, &wanted, 4e-3);
        }
        let lengths = bench.numbers(&vec![all; sequences])?;
        let floats = calls::decode_scratch(sequences, [heads, kv_heads], head_dim, all) / size_of::<f32>();
        let (_room, scratch) = bench.room(floats)?;
        let chunk = calls::decode_chunk(sequences, kv_heads, all);
        let lengths = lengths.values();
        let step = DecodeStep { q, out, heads, lengths, longest: all, chunk, scratch, scores, sinks: None };
        calls::decode(cache, step).iter().try_for_each(|call| bench.run(call))?;
        bench.compare(what, &out_at, &wanted, 1e-5)
    }
}
