//! Every path of attention against the definition in f64.

use crate::fence::Fenced;
use crate::noise::noise;
use half::{bf16, f16};
use hwprofiles::DType;
use kernels::{
    AttentionOperands, KvCacheMut, KvShape, KvSpan, NewRows, Path, Pool, Scores, Scratch, StridedRows,
    StridedRowsMut, affinity, attention,
};

/// The formats of a KV cache.
const FORMATS: [DType; 4] = [DType::F32, DType::Bf16, DType::Int8, DType::Int2];

fn pools(members: usize) -> Vec<Pool> {
    let cores = affinity::available_cores();
    let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
    let pool = |path| Pool::new(&cores).expect("our cores").with_path(path);
    Path::supported().into_iter().map(pool).collect()
}

/// A batch. The cache is filled with each span's past first, then with its new tokens. A cache
/// without room for all of them is a ring, and spans of several tokens bring their own keys.
struct Batch {
    shape: KvShape,
    heads: usize,
    spans: Vec<KvSpan>,
    scores: Scores,
}

/// A score of every head that no token has, where there are sinks.
fn sinks(heads: usize, shape: KvShape) -> Vec<f32> {
    // Small heads have small scores; these sinks are above some of them and below others.
    if shape.head_dim.is_multiple_of(32) { noise(heads, 5).iter().map(|x| 3.0 * x).collect() } else { vec![] }
}

const PLAIN: Scores = Scores::scaled(0.3);

/// The keys (`which` 0) or values (1) of one position, as the cache keeps them.
fn kept(shape: KvShape, which: u64, sequence: usize, position: usize) -> Vec<f32> {
    let seed = 1 + which + 2 * (sequence * 1_000_003 + position) as u64;
    let values = noise(shape.kv_heads * shape.head_dim, seed).into_iter();
    match shape.dtype {
        DType::Bf16 => values.map(|v| bf16::from_f32(v).to_f32()).collect(),
        DType::Int8 | DType::Int2 => {
            let values: Vec<f32> = values.collect();
            let groups = values.chunks(shape.head_dim).flat_map(|head| head.chunks(32));
            groups.flat_map(|group| rounded(shape.dtype, group)).collect()
        }
        _ => values.collect(),
    }
}

/// A group of values after quantisation to its scale, its minimum and integers.
fn rounded(dtype: DType, group: &[f32]) -> Vec<f32> {
    let short = |value: f32| f16::from_f32(value).to_f32();
    let (least, most) =
        (group.iter().copied().fold(f32::MAX, f32::min), group.iter().copied().fold(f32::MIN, f32::max));
    let (from, step, whole) = match dtype {
        DType::Int8 => (0.0, short(most.max(-least) / 127.0), -127.0..=127.0),
        _ => (short(least), short((most - short(least)).max(0.0) / 3.0), 0.0..=3.0),
    };
    let number = |value: &f32| ((value - from) / step).round().clamp(*whole.start(), *whole.end());
    group.iter().map(|value| if step == 0.0 { from } else { from + step * number(value) }).collect()
}

fn check(pool: &Pool, batch: &Batch) {
    let Batch { shape, heads, spans, scores } = batch;
    let (shape, heads, scores) = (*shape, *heads, *scores);
    let (width, kv_width) = (heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let [mut keys, mut values] = [0, 0].map(|_| Fenced::new(&vec![0; shape.bytes()]));
    let mut cache = KvCacheMut::new(shape, &mut keys, &mut values).expect("the right size");
    let is_ring = spans.iter().any(|span| span.past + span.new > shape.capacity);
    let rows = |spans: &[KvSpan]| {
        [0, 1].map(|which| -> Vec<f32> {
            let row = |span: KvSpan| {
                (span.past..span.past + span.new).map(move |p| kept(shape, which, span.sequence, p))
            };
            spans.iter().copied().flat_map(row).flatten().collect()
        })
    };
    let before: Vec<_> = spans.iter().map(|span| KvSpan { past: 0, new: span.past, ..*span }).collect();
    for now in [&before, spans] {
        let [keys, values] = rows(now);
        if is_ring {
            let here = |(_, span): &(usize, KvSpan)| now == &before || span.new == 1;
            let rows = NewRows { keys: &keys, values: &values, stride: kv_width };
            cache.append_to_ring(pool, KvSpan::with_rows(now).filter(here), rows);
        } else {
            cache.append(pool, now, &keys, &values, kv_width);
        }
    }
    let [new_keys, new_values] = rows(spans).map(|rows| Fenced::new(&rows));
    let new = NewRows { keys: &new_keys, values: &new_values, stride: kv_width };
    let sinks = Fenced::new(&sinks(heads, shape));
    let tokens: usize = spans.iter().map(|span| span.new).sum();
    let (q_stride, out_stride) = (width + 3, width + 5);
    let q = Fenced::new(&noise(tokens * q_stride, 99));
    let mut out = Fenced::new(&vec![7.0; tokens * out_stride]);
    let bytes = attention::scratch_bytes(pool.members(), heads, shape, spans.len())
        + if is_ring { attention::gather_bytes(pool.members(), shape) } else { 0 };
    let mut scratch = Scratch::unaccounted(bytes).expect("memory");
    let operands = AttentionOperands {
        heads,
        scores,
        out: StridedRowsMut::new(&mut out, out_stride),
        q: StridedRows::new(&q, q_stride),
        sinks: &sinks,
        cache: cache.as_cache(),
        new: is_ring.then_some(new),
        spans,
    };
    attention(pool, operands, &mut scratch);
    let mut row = 0;
    for span in spans {
        for token in 0..span.new {
            let got = &out[row * out_stride..][..out_stride];
            assert!(got[width..].iter().all(|&x| x == 7.0), "values between rows are left alone");
            let q = &q[row * q_stride..][..width];
            let exact = exact(shape, heads, scores, q, span.sequence, span.past + token + 1);
            for (i, (got, exact)) in got.iter().zip(&exact).enumerate() {
                let error = (f64::from(*got) - exact).abs();
                assert!(
                    error < 2e-5,
                    "{} {shape:?} {heads} {scores:?} {span:?} token {token} at {i}: {got}, exactly {exact}",
                    pool.path()
                );
            }
            row += 1;
        }
    }
}

fn exact(shape: KvShape, heads: usize, scores: Scores, q: &[f32], sequence: usize, end: usize) -> Vec<f64> {
    let seen = |window: usize| if scores.chunked { (end - 1) % window + 1 } else { window.min(end) };
    let visible = end - scores.window.map_or(end, seen)..end;
    let sinks = sinks(heads, shape);
    let keys: Vec<_> = visible.clone().map(|p| kept(shape, 0, sequence, p)).collect();
    let values: Vec<_> = visible.map(|p| kept(shape, 1, sequence, p)).collect();
    let mut out = Vec::new();
    for head in 0..heads {
        let q = &q[head * shape.head_dim..][..shape.head_dim];
        let at = head / (heads / shape.kv_heads) * shape.head_dim;
        let dot = |key: &Vec<f32>| {
            q.iter().zip(&key[at..]).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>()
        };
        let score = |key: &Vec<f32>| {
            let (scaled, cap) = (f64::from(scores.scale) * dot(key), scores.cap.map(f64::from));
            cap.map_or(scaled, |cap| cap * (scaled / cap).tanh())
        };
        let weights: Vec<f64> = keys.iter().map(|key| score(key).exp()).collect();
        let total = weights.iter().sum::<f64>() + sinks.get(head).map_or(0.0, |sink| f64::from(*sink).exp());
        for i in 0..shape.head_dim {
            out.push(weights.iter().zip(&values).map(|(w, v)| w * f64::from(v[at + i])).sum::<f64>() / total);
        }
    }
    out
}

fn shape(dtype: DType, sequences: usize, kv_heads: usize, capacity: usize, head_dim: usize) -> KvShape {
    KvShape { dtype, sequences, kv_heads, capacity, head_dim }
}

#[test]
fn every_path_agrees_with_the_definition_for_every_grouping_and_head_size() {
    for pool in pools(2) {
        for dtype in FORMATS {
            for (kv_heads, heads) in [(1, 1), (2, 2), (2, 6), (1, 5), (3, 12)] {
                for head_dim in [1, 8, 16, 48, 64, 72, 80] {
                    let spans = vec![
                        KvSpan { sequence: 1, past: 4, new: 1 },
                        KvSpan { sequence: 0, past: 0, new: 3 },
                        KvSpan { sequence: 2, past: 66, new: 1 },
                    ];
                    check(
                        &pool,
                        &Batch {
                            shape: shape(dtype, 3, kv_heads, 70, head_dim),
                            heads,
                            spans,
                            scores: PLAIN,
                        },
                    );
                }
            }
        }
    }
}

#[test]
fn lengths_around_every_block_are_exact() {
    for pool in pools(2) {
        for dtype in FORMATS {
            for past in [0, 1, 3, 15, 16, 63, 64, 65, 128] {
                for new in [0, 1, 2, 5, 6, 7, 47, 49, 65] {
                    let spans = vec![KvSpan { sequence: 0, past, new }];
                    check(
                        &pool,
                        &Batch { shape: shape(dtype, 1, 1, past + new, 16), heads: 2, spans, scores: PLAIN },
                    );
                }
            }
        }
    }
}

#[test]
fn positions_split_over_members_join_to_the_same_result() {
    for pool in pools(3) {
        for dtype in FORMATS {
            for past in [255, 256, 600, 1999] {
                let spans = vec![KvSpan { sequence: 0, past, new: 1 }];
                check(
                    &pool,
                    &Batch { shape: shape(dtype, 1, 1, past + 1, 32), heads: 3, spans, scores: PLAIN },
                );
            }
        }
    }
}

#[test]
fn a_long_prompt_in_chunks_equals_the_definition() {
    for pool in pools(2) {
        let spans = vec![KvSpan { sequence: 0, past: 130, new: 170 }];
        check(&pool, &Batch { shape: shape(DType::F32, 1, 2, 300, 64), heads: 8, spans, scores: PLAIN });
    }
}

#[test]
fn windows_and_caps_are_those_of_the_definition() {
    for pool in pools(2) {
        for (window, cap) in [
            (1, None),
            (2, Some(0.5)),
            (16, None),
            (17, None),
            (63, Some(2.0)),
            (64, None),
            (65, None),
            (400, Some(0.1)),
        ] {
            let scores = Scores { window: Some(window), cap, ..PLAIN };
            for (past, new) in [(0, 1), (0, 70), (15, 3), (64, 1), (130, 140), (599, 1)] {
                for (dtype, head_dim) in [(DType::F32, 16), (DType::Bf16, 32), (DType::F32, 8)] {
                    let spans = vec![KvSpan { sequence: 0, past, new }];
                    let shape = shape(dtype, 1, 2, past + new, head_dim);
                    check(&pool, &Batch { shape, heads: 6, spans, scores });
                }
            }
        }
    }
}

#[test]
fn a_ring_with_room_for_a_window_is_enough() {
    for pool in pools(2) {
        for (window, chunked) in [(1, false), (16, false), (17, true), (40, false), (64, true), (300, false)]
        {
            let scores = Scores { window: Some(window), chunked, ..PLAIN };
            let lengths = [(0, 1), (0, 70), (16, 1), (15, 3), (64, 1), (130, 140), (599, 1), (200, 2)];
            for (past, new) in lengths.into_iter().filter(|(past, new)| past + new > window) {
                for dtype in FORMATS {
                    for head_dim in [16, 32, 8] {
                        let two = if new > 1 { 1 } else { 9 };
                        let spans = vec![
                            KvSpan { sequence: 1, past, new },
                            KvSpan { sequence: 0, past: past + 3, new: two },
                        ];
                        check(
                            &pool,
                            &Batch { shape: shape(dtype, 2, 2, window, head_dim), heads: 6, spans, scores },
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn chunks_begin_where_the_definition_says() {
    for pool in pools(2) {
        for window in [1, 7, 64, 100] {
            let scores = Scores { window: Some(window), chunked: true, ..PLAIN };
            for (past, new) in [(0, 1), (0, 70), (130, 140), (99, 1), (100, 1)] {
                let spans = vec![KvSpan { sequence: 0, past, new }];
                check(
                    &pool,
                    &Batch { shape: shape(DType::F32, 1, 1, past + new, 32), heads: 2, spans, scores },
                );
            }
        }
    }
}

#[test]
fn a_sink_far_above_all_scores_leaves_almost_nothing_and_no_nan() {
    let shape = shape(DType::F32, 1, 1, 20, 16);
    let (keys, values) = (vec![1.0f32; 20 * 16], vec![1.0f32; 20 * 16]);
    for pool in pools(1) {
        for (past, new) in [(19, 1), (0, 20)] {
            for (sink, expected) in [(400.0, 0.0), (-400.0, 1.0), (16.0 * 0.3, 1.0 / 21.0 * 20.0)] {
                let (q, mut out) = (vec![1.0; new * 16], vec![7.0; new * 16]);
                let mut scratch =
                    Scratch::unaccounted(attention::scratch_bytes(1, 1, shape, 1)).expect("memory");
                let (keys, values) = (bytemuck::cast_slice(&keys), bytemuck::cast_slice(&values));
                let operands = AttentionOperands {
                    heads: 1,
                    scores: PLAIN,
                    out: StridedRowsMut::new(&mut out, 16),
                    q: StridedRows::new(&q, 16),
                    sinks: &[sink],
                    cache: kernels::KvCache::new(shape, keys, values).expect("the right size"),
                    new: None,
                    spans: &[KvSpan { sequence: 0, past, new }],
                };
                attention(&pool, operands, &mut scratch);
                let last = &out[(new - 1) * 16..];
                assert!(last.iter().all(|x| (x - expected).abs() < 1e-6), "{sink}: {last:?}, not {expected}");
            }
        }
    }
}

#[test]
fn strides_and_spans_that_overflow_are_refused() {
    let shape = shape(DType::F32, 1, 1, 4, 16);
    let (keys, values) = (vec![0.0f32; 64], vec![0.0f32; 64]);
    let pool = pools(1).remove(0);
    let refuses = |q_stride: usize, out_stride: usize, past: usize, new: usize, expected: &str| {
        let (q, mut out) = (vec![1.0; 64], vec![7.0; 64]);
        let mut scratch = Scratch::unaccounted(attention::scratch_bytes(1, 1, shape, 1)).expect("memory");
        let call = std::panic::AssertUnwindSafe(|| {
            let cache =
                kernels::KvCache::new(shape, bytemuck::cast_slice(&keys), bytemuck::cast_slice(&values));
            let operands = AttentionOperands {
                heads: 1,
                scores: PLAIN,
                out: StridedRowsMut::new(&mut out, out_stride),
                q: StridedRows::new(&q, q_stride),
                sinks: &[],
                cache: cache.expect("the right size"),
                new: None,
                spans: &[KvSpan { sequence: 0, past, new }],
            };
            attention(&pool, operands, &mut scratch);
        });
        let panic = std::panic::catch_unwind(call).expect_err("it is refused");
        let text = panic.downcast_ref::<String>().expect("a message");
        assert!(text.contains(expected), "{text}");
        assert!(out.iter().all(|&x| x == 7.0));
    };
    refuses(1 << 63, 16, 0, 3, "q is too short");
    refuses(16, 1 << 63, 0, 3, "out is too short");
    refuses(16, 16, usize::MAX - 1, 3, "is outside");
}
