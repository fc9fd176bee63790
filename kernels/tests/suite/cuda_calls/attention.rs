//! The kernels of the KV cache and of attention.

use super::values::{assert_near, narrow, pool, short};
use crate::host_gpu::{Host, Operand, each_order};
use hwprofiles::DType;
use kernels::cuda::calls::{self, DecodeStep, GpuRows, PagedCache, PromptStep};
use kernels::{
    AttentionOperands, Buffer, KvCacheMut, KvShape, KvSpan, Scores, Scratch, StridedRows, StridedRowsMut,
};

const PLAIN: Scores = Scores::scaled(0.3);

/// A batch over a cache, which the CPU has as it is and the GPU in pages in reverse order.
struct Batch {
    shape: KvShape,
    heads: usize,
    spans: Vec<KvSpan>,
    page: usize,
    scores: Scores,
}

impl Batch {
    /// Appends all rows with both kernels and attends with both. At the end the GPU's cache is
    /// read, which checks the bytes around it.
    fn check(&self, host: &mut Host, paged: bool) {
        let Self { shape, heads, ref spans, page, scores } = *self;
        let what = format!("{shape:?} {heads} {spans:?} pages of {page}, {scores:?}");
        let (width, kv_width) = (heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        let whole: Vec<KvSpan> =
            spans.iter().map(|span| KvSpan { past: 0, new: span.past + span.new, ..*span }).collect();
        let positions: usize = whole.iter().map(|span| span.new).sum();
        let (keys, values) = (short(positions * kv_width, 21), short(positions * kv_width, 22));
        let mut buffers = [0, 1].map(|_| Buffer::new(shape.bytes()).expect("memory"));
        let [key_bytes, value_bytes] = &mut buffers;
        let mut cache =
            KvCacheMut::new(shape, key_bytes.bytes_mut(), value_bytes.bytes_mut()).expect("the right size");
        let pool = pool();
        cache.append(&pool, &whole, &keys, &values, kv_width);

        let rows: usize = spans.iter().map(|span| span.new).sum();
        let (q_stride, out_stride) = (width + 2, width + 4);
        let q = short(rows * q_stride, 23);
        let mut wanted = vec![0.0; rows * out_stride];
        let bytes = kernels::attention::scratch_bytes(1, heads, shape, spans.len());
        let mut scratch = Scratch::unaccounted(bytes).expect("memory");
        let operands = AttentionOperands {
            heads,
            scores,
            out: StridedRowsMut::new(&mut wanted, out_stride),
            q: StridedRows::new(&q, q_stride),
            sinks: &[],
            cache: cache.as_cache(),
            new: None,
            spans,
        };
        kernels::attention(&pool, operands, &mut scratch);

        let pages_per_sequence = shape.capacity.div_ceil(page);
        let pages = shape.sequences * pages_per_sequence;
        let table: Vec<i32> = (0..pages).map(|i| if paged { pages - 1 - i } else { i } as i32).collect();
        let room = pages * page * kv_width;
        let [mut gpu_keys, mut gpu_values] = [0, 1].map(|_| Operand::<u16>::unwritten(room));
        if !paged {
            // The GPU's kernel reads the CPU's bytes unchanged.
            assert_eq!((page, room * 2), (shape.capacity, shape.bytes()));
            gpu_keys = Operand::new(bytemuck::cast_slice(buffers[0].bytes()));
            gpu_values = Operand::new(bytemuck::cast_slice(buffers[1].bytes()));
        }
        let mut table = Operand::new(&table);
        let cache = PagedCache {
            keys: gpu_keys.values(),
            values: gpu_values.values(),
            table: table.values(),
            pages_per_sequence,
            page,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
        };
        if paged {
            append(host, cache, &whole, [&keys, &values]);
        }
        let (mut q, mut out) = (Operand::new(&narrow(&q)), Operand::<u16>::unwritten(rows * out_stride));
        self.attend(host, cache, (q.values(), q_stride), (out.values(), out_stride));
        for (got, wanted) in out.read().chunks(out_stride).zip(wanted.chunks(out_stride)) {
            // Weights of a prompt are rounded to bf16 before they multiply values, which are at
            // most 1.
            let slack = if spans.iter().all(|span| span.new == 1) { 1e-5 } else { 4e-3 };
            assert_near(&got[..width], &wanted[..width], slack, &what);
            assert!(got[width..].iter().all(|&bits| bits == u16::MAX), "{what}: between rows");
        }
        gpu_keys.read();
        gpu_values.read();
    }

    fn attend(
        &self,
        host: &mut Host,
        cache: PagedCache,
        q: (calls::GpuSlice<u16>, usize),
        out: (calls::GpuSlice<u16>, usize),
    ) {
        let Self { heads, ref spans, scores, .. } = *self;
        if spans.iter().any(|span| span.new != 1)
            || spans.iter().enumerate().any(|(i, span)| span.sequence != i)
        {
            let numbers: Vec<i32> = spans
                .iter()
                .scan(0, |first, span| {
                    let numbers = [span.sequence, span.past, span.new, *first];
                    *first += span.new;
                    Some(numbers.map(|number| number as i32))
                })
                .flatten()
                .collect();
            let most = spans.iter().map(|span| span.new).max().unwrap_or(0);
            let mut numbers = Operand::new(&numbers);
            let (spans, sinks) = (numbers.values(), None);
            let step = PromptStep { q, out, heads, scores, sinks, spans, most_new: most, new: None };
            return host.run(&calls::prefill(cache, step));
        }
        let lengths: Vec<i32> = spans.iter().map(|span| span.past as i32 + 1).collect();
        let longest = spans.iter().map(|span| span.past + 1).max().unwrap_or(0);
        for chunk in [64, 128] {
            let parts = spans.len() * heads * scores.seen(longest).div_ceil(chunk);
            let mut scratch = Operand::unwritten(parts * (self.shape.head_dim + 2));
            let mut lengths = Operand::new(&lengths);
            let (lengths, values) = (lengths.values(), scratch.values());
            let (scratch_at, sinks) = (values, None);
            let step =
                DecodeStep { q, out, heads, lengths, longest, chunk, scratch: scratch_at, scores, sinks };
            for call in calls::decode(cache, step) {
                host.run(&call);
            }
            scratch.read();
        }
    }
}

/// Writes whole sequences with the GPU's kernel.
fn append(host: &mut Host, cache: PagedCache, spans: &[KvSpan], rows: [&[f32]; 2]) {
    let places = spans.iter().flat_map(|span| (0..span.new).map(|p| (span.sequence as i32, p as i32)));
    let (sequences, positions): (Vec<_>, Vec<_>) = places.unzip();
    let (mut sequences, mut positions) = (Operand::new(&sequences), Operand::new(&positions));
    let [mut keys, mut values] = rows.map(|rows| Operand::new(&narrow(rows)));
    let (sequences, positions) = (sequences.values(), positions.values());
    let width = cache.kv_heads * cache.head_dim;
    let rows = GpuRows { keys: keys.values(), values: values.values(), stride: width };
    host.run(&calls::append(cache, rows, sequences, positions, None));
}

fn shape(sequences: usize, kv_heads: usize, capacity: usize, head_dim: usize) -> KvShape {
    KvShape { dtype: DType::Bf16, sequences, kv_heads, capacity, head_dim }
}

fn tokens(pasts: &[usize]) -> Vec<KvSpan> {
    pasts.iter().enumerate().map(|(sequence, &past)| KvSpan { sequence, past, new: 1 }).collect()
}

#[test]
fn decoding_agrees_for_every_grouping_head_size_and_length() {
    each_order(|host| {
        for (kv_heads, heads) in [(1, 1), (2, 6), (1, 9), (2, 16)] {
            for head_dim in [8, 64, 80, 128, 256] {
                let spans = tokens(&[0, 66, 5]);
                Batch { shape: shape(3, kv_heads, 70, head_dim), heads, spans, page: 16, scores: PLAIN }
                    .check(host, true);
            }
        }
        for past in [0, 1, 62, 63, 64, 65, 127, 128, 200, 300] {
            Batch {
                shape: shape(1, 1, past + 1, 64),
                heads: 2,
                spans: tokens(&[past]),
                page: 16,
                scores: PLAIN,
            }
            .check(host, true);
        }
        // The CPU's cache, unchanged.
        Batch { shape: shape(2, 2, 90, 64), heads: 4, spans: tokens(&[80, 3]), page: 90, scores: PLAIN }
            .check(host, false);
    });
}

#[test]
fn prompts_agree_around_every_tile() {
    each_order(|host| {
        for (past, new) in [(0, 1), (0, 2), (0, 15), (0, 33), (1, 31), (31, 2), (32, 17), (0, 65), (70, 63)] {
            let spans = vec![KvSpan { sequence: 0, past, new }, KvSpan { sequence: 1, past: new, new: 3 }];
            Batch { shape: shape(2, 1, past + new + 3, 16), heads: 2, spans, page: 16, scores: PLAIN }
                .check(host, true);
        }
        for (kv_heads, heads, head_dim) in [(1, 3, 64), (2, 2, 80), (2, 10, 32)] {
            let spans =
                vec![KvSpan { sequence: 1, past: 3, new: 9 }, KvSpan { sequence: 0, past: 0, new: 20 }];
            Batch { shape: shape(2, kv_heads, 20, head_dim), heads, spans, page: 20, scores: PLAIN }
                .check(host, false);
        }
    });
}

/// Values are random, so that a score on the wrong side of a window's edge changes the result.
#[test]
fn windows_and_caps_agree_around_every_edge() {
    each_order(|host| {
        for cap in [None, Some(0.2)] {
            for window in [1, 2, 31, 32, 33, 63, 64, 65, 100, 400] {
                let scores = Scores { cap, window: Some(window), ..PLAIN };
                let tokens = tokens(&[0, window - 1, window, 150]);
                let most = window.max(150) + 1;
                Batch { shape: shape(4, 1, most, 16), heads: 2, spans: tokens, page: 16, scores }
                    .check(host, true);
                let spans =
                    vec![KvSpan { sequence: 0, past: 70, new: 75 }, KvSpan { sequence: 1, past: 0, new: 40 }];
                Batch { shape: shape(2, 1, 145, 16), heads: 2, spans, page: 16, scores }.check(host, true);
            }
            let spans =
                vec![KvSpan { sequence: 0, past: 3, new: 20 }, KvSpan { sequence: 1, past: 20, new: 1 }];
            let scores = Scores { cap, ..PLAIN };
            Batch { shape: shape(2, 2, 23, 32), heads: 4, spans, page: 16, scores }.check(host, true);
        }
    });
}

#[test]
fn heads_of_any_even_number_of_values_agree() {
    each_order(|host| {
        for head_dim in [2, 6, 8, 18, 20, 24, 40, 250] {
            let spans = tokens(&[40, 3]);
            Batch { shape: shape(2, 2, 41, head_dim), heads: 6, spans, page: 41, scores: PLAIN }
                .check(host, false);
            let spans =
                vec![KvSpan { sequence: 0, past: 5, new: 35 }, KvSpan { sequence: 1, past: 0, new: 7 }];
            Batch { shape: shape(2, 2, 40, head_dim), heads: 6, spans, page: 16, scores: PLAIN }
                .check(host, true);
        }
    });
}

#[test]
fn a_token_that_sees_nothing_gets_zeros() {
    each_order(|host| {
        let (mut keys, mut table) = (Operand::<u16>::unwritten(64), Operand::new(&[0]));
        let mut values = Operand::<u16>::unwritten(64);
        let (keys, values, table) = (keys.values(), values.values(), table.values());
        let cache =
            PagedCache { keys, values, table, pages_per_sequence: 1, page: 8, kv_heads: 1, head_dim: 8 };
        let (mut q, mut out) = (Operand::new(&narrow(&short(8, 1))), Operand::<u16>::unwritten(8));
        let (mut lengths, mut scratch) = (Operand::new(&[0]), Operand::unwritten(10));
        let (q, lengths, scratch) = ((q.values(), 8), lengths.values(), scratch.values());
        let step = DecodeStep {
            q,
            out: (out.values(), 8),
            heads: 1,
            lengths,
            longest: 8,
            chunk: 64,
            scratch,
            scores: PLAIN,
            sinks: None,
        };
        calls::decode(cache, step).iter().for_each(|call| host.run(call));
        assert_eq!(out.read(), [0; 8]);
    });
}
