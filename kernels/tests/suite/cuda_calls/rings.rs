//! Caches that are rings, windows in chunks and sinks, beside the CPU's whole cache.

use super::values::{assert_near, narrow, pool, short};
use crate::host_gpu::{Host, Operand, each_order};
use hwprofiles::DType;
use kernels::cuda::calls::{self, DecodeStep, GpuRows, PagedCache, PromptStep};
use kernels::{
    AttentionOperands, Buffer, KvCacheMut, KvShape, KvSpan, Scores, Scratch, StridedRows, StridedRowsMut,
};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 16;
/// Values of the keys of one token.
const KV: usize = KV_HEADS * HEAD_DIM;

/// Two sequences in a ring with room for the window.
struct Case {
    scores: Scores,
    spans: [KvSpan; 2],
    sinks: Vec<f32>,
}

impl Case {
    /// The CPU's result with a cache for all positions. Rows of `keys` and `values` are those of
    /// each sequence from its first token on.
    fn wanted(&self, keys: &[f32], values: &[f32], q: &[f32]) -> Vec<f32> {
        let capacity = self.spans.iter().map(|span| span.past + span.new).max().unwrap_or(0);
        let shape =
            KvShape { dtype: DType::Bf16, sequences: 2, kv_heads: KV_HEADS, capacity, head_dim: HEAD_DIM };
        let [mut key_bytes, mut value_bytes] = [0, 1].map(|_| Buffer::new(shape.bytes()).expect("memory"));
        let mut cache =
            KvCacheMut::new(shape, key_bytes.bytes_mut(), value_bytes.bytes_mut()).expect("the right size");
        let whole = self.spans.map(|span| KvSpan { past: 0, new: span.past + span.new, ..span });
        cache.append(&pool(), &whole, keys, values, KV);
        let mut out = vec![0.0; q.len()];
        let bytes = kernels::attention::scratch_bytes(1, HEADS, shape, 2);
        let operands = AttentionOperands {
            heads: HEADS,
            scores: self.scores,
            out: StridedRowsMut::new(&mut out, HEADS * HEAD_DIM),
            q: StridedRows::new(q, HEADS * HEAD_DIM),
            sinks: &self.sinks,
            cache: cache.as_cache(),
            new: None,
            spans: &self.spans,
        };
        kernels::attention(&pool(), operands, &mut Scratch::unaccounted(bytes).expect("memory"));
        out
    }

    fn check(&self, host: &mut Host) {
        let window = self.scores.window.expect("a window");
        let lengths = self.spans.map(|span| span.past + span.new);
        let all: usize = lengths.iter().sum();
        let [keys, values] = [31, 32].map(|seed| short(all * KV, seed));
        let rows: usize = self.spans.iter().map(|span| span.new).sum();
        let q = short(rows * HEADS * HEAD_DIM, 33);
        let wanted = self.wanted(&keys, &values, &q);

        let [mut ring_keys, mut ring_values] = [0, 1].map(|_| Operand::new(&vec![0u16; 2 * window * KV]));
        let mut table = Operand::new(&[0, 1]);
        let cache = PagedCache {
            keys: ring_keys.values(),
            values: ring_values.values(),
            table: table.values(),
            pages_per_sequence: 1,
            page: window,
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
        };
        let part = |rows: &[f32], past: bool| -> Vec<u16> {
            let mut at = 0;
            let mut kept = Vec::new();
            for span in self.spans {
                let (from, to) = if past { (0, span.past) } else { (span.past, span.past + span.new) };
                kept.extend(narrow(&rows[(at + from) * KV..(at + to) * KV]));
                at += span.past + span.new;
            }
            kept
        };
        let before = self.spans.map(|span| KvSpan { past: 0, new: span.past, ..span });
        append(host, cache, &before, [&part(&keys, true), &part(&values, true)]);
        let [new_keys, new_values] = [part(&keys, false), part(&values, false)];
        let (mut q, mut out) = (Operand::new(&narrow(&q)), Operand::<u16>::unwritten(wanted.len()));
        let (q, to) = ((q.values(), HEADS * HEAD_DIM), (out.values(), HEADS * HEAD_DIM));
        let mut sinks = Operand::new(&self.sinks);
        let (sinks, scores, decodes) =
            (Some(sinks.values()).filter(|it| !it.is_empty()), self.scores, rows == 2);
        if decodes {
            append(host, cache, &self.spans, [&new_keys, &new_values]);
            let longest = lengths[0].max(lengths[1]).next_power_of_two();
            let mut lengths = Operand::new(&lengths.map(|length| length as i32));
            let lengths = lengths.values();
            let mut scratch =
                Operand::unwritten(2 * HEADS * scores.seen(longest).div_ceil(64) * (HEAD_DIM + 2));
            let (heads, scratch) = (HEADS, scratch.values());
            let step = DecodeStep { q, out: to, heads, lengths, longest, chunk: 64, scratch, scores, sinks };
            calls::decode(cache, step).iter().for_each(|call| host.run(call));
        } else {
            let [one, two] = self.spans;
            let numbers = [0, one.past, one.new, 0, 1, two.past, two.new, one.new].map(|n| n as i32);
            let mut numbers = Operand::new(&numbers);
            let [mut keys, mut values] = [&new_keys, &new_values].map(|rows| Operand::new(rows));
            let new = Some(GpuRows { keys: keys.values(), values: values.values(), stride: KV });
            let (spans, heads, most_new) = (numbers.values(), HEADS, one.new.max(two.new));
            let step = PromptStep { q, out: to, heads, scores, sinks, spans, most_new, new };
            host.run(&calls::prefill(cache, step));
            append(host, cache, &self.spans, [&new_keys, &new_values]);
        }
        let slack = if decodes { 1e-5 } else { 4e-3 };
        assert_near(&out.read(), &wanted, slack, &format!("{scores:?} {:?}", self.spans));
        self.check_ring(&ring_keys.read(), &keys, lengths);
        ring_values.read();
    }

    /// The ring ends with the last positions of each sequence.
    fn check_ring(&self, kept: &[u16], keys: &[f32], lengths: [usize; 2]) {
        let (scores, window) = (self.scores, self.scores.window.expect("a window"));
        let mut at = 0;
        for (sequence, length) in lengths.into_iter().enumerate() {
            for position in length.saturating_sub(window)..length {
                let row = narrow(&keys[(at + position) * KV..][..KV]);
                for (head, wanted) in row.chunks_exact(HEAD_DIM).enumerate() {
                    let row = (sequence * KV_HEADS + head) * window + position % window;
                    assert_eq!(&kept[row * HEAD_DIM..][..HEAD_DIM], wanted, "{scores:?} {position}");
                }
            }
            at += length;
        }
    }
}

/// Appends rows of `spans` with the GPU's kernel.
fn append(host: &mut Host, cache: PagedCache, spans: &[KvSpan; 2], rows: [&[u16]; 2]) {
    let places =
        spans.iter().flat_map(|span| (0..span.new).map(|p| (span.sequence as i32, (span.past + p) as i32)));
    let (sequences, positions): (Vec<_>, Vec<_>) = places.unzip();
    let (mut sequences, mut positions) = (Operand::new(&sequences), Operand::new(&positions));
    let mut lengths = Operand::new(&spans.map(|span| (span.past + span.new) as i32));
    let [mut keys, mut values] = rows.map(Operand::new);
    let rows = GpuRows { keys: keys.values(), values: values.values(), stride: KV };
    let lengths = Some(lengths.values());
    host.run(&calls::append(cache, rows, sequences.values(), positions.values(), lengths));
}

#[test]
fn a_ring_with_room_for_a_window_is_enough_with_sinks_and_without() {
    each_order(|host| {
        for (window, chunked) in [(1, false), (20, false), (33, true), (70, false), (64, true)] {
            let scores = Scores { window: Some(window), chunked, ..Scores::scaled(0.3) };
            for (past, new) in [(3, 1), (70, 1), (150, 1), (0, 45), (5, 75), (90, 40), (100, 2)] {
                // The second sequence has one token in every pass.
                let spans =
                    [KvSpan { sequence: 0, past, new }, KvSpan { sequence: 1, past: past / 2 + 1, new: 1 }];
                let sinks = if new % 2 == 0 { vec![] } else { vec![0.7, -2.0, 3.0, 0.1] };
                Case { scores, spans, sinks }.check(host);
            }
        }
    });
}
