//! The KV cache and attention.

use super::bench::ParityBench;
use crate::cpu::{
    self, AttentionOperands, KvCacheMut, KvShape, KvSpan, RopeTable, Scores, StridedRows, StridedRowsMut,
    attention,
};
use crate::cuda::calls::{self, DecodeStep, EnteringRows, GpuRows, PagedCache, PromptStep};
use crate::runtime::{Buffer, KernelError, MemoryArena, Scratch};
use hwprofiles::DType;
use hwprofiles::units::Bytes;

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
    for (head_dim, half) in [(64, 32), (128, 64), (256, 128), (80, 20), (20, 0)] {
        for has_norms in [false, true] {
            entering(bench, head_dim, half, has_norms)?;
        }
    }
    Ok(())
}

/// Heads on their way to attention: two sequences of `ROWS` tokens each.
fn entering(
    bench: &mut ParityBench,
    head_dim: usize,
    half: usize,
    has_norms: bool,
) -> Result<(), KernelError> {
    const ROWS: usize = 5;
    let (heads, kv_heads, rows) = (6, 2, 2 * ROWS);
    let (width, rotated) = ((heads + 2 * kv_heads) * head_dim, (heads + kv_heads) * head_dim);
    let (x, of_queries, of_keys) = (bench.noise(rows * width), bench.noise(head_dim), bench.noise(head_dim));
    let frequencies: Vec<f32> = (0..half).map(|i| 1e4f32.powf(-(i as f32) / half as f32)).collect();
    let positions: Vec<usize> = (0..rows).map(|row| row % ROWS).collect();
    let sequences: Vec<usize> = (0..rows).map(|row| row / ROWS).collect();
    let host = MemoryArena::new("host", Bytes::new(1 << 30));
    let (here, there) =
        (RopeTable::new(&host, &frequencies, ROWS)?, RopeTable::new(&bench.memory, &frequencies, ROWS)?);

    let mut wanted = x.clone();
    if has_norms {
        cpu::rms_norm_heads(&bench.pool, &mut wanted, rows, width, heads, &of_queries, 1e-6);
        let keys = &mut wanted[heads * head_dim..];
        cpu::rms_norm_heads(&bench.pool, keys, rows, width, kv_heads, &of_keys, 1e-6);
    }
    if half > 0 {
        cpu::rope(&bench.pool, &mut wanted, width, heads + kv_heads, head_dim, &here, &positions);
    }
    let (x_at, of_queries, of_keys) = (bench.narrow(&x)?, bench.wide(&of_queries)?, bench.wide(&of_keys)?);
    let (sequences_at, positions_at) = (bench.numbers(&sequences)?, bench.numbers(&positions)?);
    let table = bench.numbers(&[0, 1])?;
    let len = rows * kv_heads * head_dim;
    let ((keys_at, keys), (values_at, values)) = (bench.room(len)?, bench.room(len)?);
    let cache = PagedCache {
        keys,
        values,
        table: table.values(),
        pages_per_sequence: 1,
        page: ROWS,
        kv_heads,
        head_dim,
    };
    let entering = EnteringRows {
        qkv: x_at.values(),
        stride: width,
        heads,
        norms: has_norms.then(|| ([of_queries.values(), of_keys.values()], 1e-6)),
        rotation: (half > 0).then(|| there.on_gpu()),
    };
    bench.run(&calls::enter_heads(cache, entering, sequences_at.values(), positions_at.values(), None))?;
    let what =
        |part: &str| format!("{part} of heads of {head_dim} that enter, {half} pairs, norms: {has_norms}");
    bench.compare(what("rows"), &x_at, &wanted, 1e-5)?;
    let in_cache = |from: usize| -> Vec<f32> {
        let mut cached = vec![0.0; len];
        for row in 0..rows {
            for head in 0..kv_heads {
                let to = ((sequences[row] * kv_heads + head) * ROWS + positions[row]) * head_dim;
                let from = row * width + from + head * head_dim;
                cached[to..to + head_dim].copy_from_slice(&wanted[from..from + head_dim]);
            }
        }
        cached
    };
    bench.compare(what("keys"), &keys_at, &in_cache(heads * head_dim), 1e-5)?;
    bench.compare(what("values"), &values_at, &in_cache(rotated), 0.0)
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
