//! Kernels of a GPU on the host, against the CPU's: their text compiled as C, in two orders of their threads.

#![allow(unsafe_code)]

mod host_gpu;

use half::bf16;
use host_gpu::{Host, Library, Operand, each_order};
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use kernels::cuda::calls::{self, Activation, Decoding, Norm, Paged};
use kernels::{Buffer, KvCacheMut, KvShape, Memory, Path, Pool, RopeTable, Scratch, Span, Weights, affinity};

fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn narrow(values: &[f32]) -> Vec<u16> {
    values.iter().map(|&value| bf16::from_f32(value).to_bits()).collect()
}

fn widen(values: &[u16]) -> Vec<f32> {
    values.iter().map(|&bits| bf16::from_bits(bits).to_f32()).collect()
}

/// Random values that bf16 holds.
fn short(len: usize, seed: u64) -> Vec<f32> {
    widen(&narrow(&noise(len, seed)))
}

fn pool() -> Pool {
    Pool::new(&affinity::available_cores()[..1]).expect("our core").with_path(Path::Reference)
}

/// Equal but for rounding to bf16, and a difference of `slack` before that.
fn assert_near(got: &[u16], wanted: &[f32], slack: f32, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (got, wanted)) in widen(got).iter().zip(wanted).enumerate() {
        let error = (got - wanted).abs();
        assert!(error <= wanted.abs() / 256.0 + slack, "{what}: {got} at {i}, not {wanted}");
    }
}

#[test]
fn norms_agree_and_add_what_came_before() {
    let pool = pool();
    each_order(|host| {
        for (rows, columns) in [(0, 5), (1, 1), (2, 31), (3, 32), (1, 255), (2, 256), (3, 257), (2, 1030)] {
            let what = format!("{rows} × {columns}");
            let (x, delta) = (noise(rows * columns, 1), short(rows * columns, 2));
            let (gamma, beta) = (noise(columns, 3), noise(columns, 4));
            let sum: Vec<f32> = x.iter().zip(&delta).map(|(x, delta)| x + delta).collect();
            for (added, layer) in [(false, false), (true, false), (false, true), (true, true)] {
                let (mut x_at, mut y) = (Operand::of(&x), Operand::<u16>::unwritten(x.len()));
                let (mut delta, mut gamma_at) = (Operand::of(&narrow(&delta)), Operand::of(&gamma));
                let mut beta_at = Operand::of(&beta);
                let delta = added.then(|| delta.values());
                let norm =
                    Norm { x: x_at.values(), delta, y: y.values(), gamma: gamma_at.values(), epsilon: 1e-5 };
                let input = if added { &sum } else { &x };
                let mut wanted = vec![0.0; x.len()];
                if layer {
                    host.run(&calls::layer_norm(rows, norm, beta_at.values()));
                    kernels::layer_norm(&pool, &mut wanted, input, &gamma, &beta, 1e-5);
                } else {
                    host.run(&calls::rms_norm(rows, norm));
                    kernels::rms_norm(&pool, &mut wanted, input, &gamma, 1e-5);
                }
                assert_near(&y.read(), &wanted, 1e-4, &what);
                assert_eq!(&x_at.read(), input, "{what}");
            }
        }
    });
}

#[test]
fn heads_are_normalised_and_rotated_in_place() {
    let (pool, memory) = (pool(), Memory::new("host", Bytes::new(1 << 30)));
    each_order(|host| {
        for (rows, heads, head_dim, half) in [(1, 1, 2, 1), (3, 5, 64, 32), (2, 3, 80, 16), (9, 1, 128, 64)] {
            let stride = heads * head_dim + 6;
            let x = short(rows * stride, 5);
            let gamma = noise(head_dim, 6);
            let (mut at, mut gamma_at) = (Operand::of(&narrow(&x)), Operand::of(&gamma));
            host.run(&calls::rms_norm_heads(at.values(), rows, stride, heads, gamma_at.values(), 1e-6));
            let mut wanted = x.clone();
            kernels::rms_norm_heads(&pool, &mut wanted, rows, stride, heads, &gamma, 1e-6);
            assert_near(&at.read(), &wanted, 1e-5, "head norms");

            let frequencies: Vec<f32> = (0..half).map(|i| 1e4f32.powf(-(i as f32) / half as f32)).collect();
            let positions: Vec<usize> = (0..rows).map(|row| row * 37 % 50).collect();
            let table = RopeTable::new(&memory, &frequencies, 50).expect("memory");
            let angles = || (0..50).flat_map(|p| frequencies.iter().map(move |f| p as f32 * f));
            let (cos, sin): (Vec<_>, Vec<_>) = angles().map(|angle| (angle.cos(), angle.sin())).unzip();
            let (mut cos, mut sin) = (Operand::of(&cos), Operand::of(&sin));
            let places: Vec<i32> = positions.iter().map(|&position| position as i32).collect();
            let (mut at, mut places) = (Operand::of(&narrow(&x)), Operand::of(&places));
            let tables = [cos.values(), sin.values()];
            host.run(&calls::rope(at.values(), stride, heads, head_dim, tables, half, places.values()));
            let mut wanted = x.clone();
            kernels::rope(&pool, &mut wanted, stride, heads, head_dim, &table, &positions);
            assert_near(&at.read(), &wanted, 1e-5, "rotated heads");
        }
    });
}

#[test]
fn activations_and_sums_agree() {
    let pool = pool();
    each_order(|host| {
        for (rows, columns) in [(0, 3), (1, 1), (3, 85), (1, 255), (2, 128), (1, 257)] {
            let what = format!("{rows} × {columns}");
            let scaled = |seed| -> Vec<f32> {
                widen(&narrow(&noise(2 * rows * columns, seed).iter().map(|x| 12.0 * x).collect::<Vec<_>>()))
            };
            let both = scaled(7);
            let (mut at, mut out) = (Operand::of(&narrow(&both)), Operand::<u16>::unwritten(rows * columns));
            let up = at.values().from(columns * usize::from(rows > 0));
            host.run(&calls::silu_mul(out.values(), at.values(), up, 2 * columns, rows, columns));
            let mut wanted = vec![0.0; rows * columns];
            let up = &both[columns * usize::from(rows > 0)..];
            kernels::silu_mul(&pool, &mut wanted, &both, up, 2 * columns, columns);
            assert_near(&out.read(), &wanted, 1e-5, &what);

            type Function = fn(&Pool, &mut [f32]);
            for (which, function) in [
                (Activation::Relu, kernels::relu as Function),
                (Activation::GeluTanh, kernels::gelu_tanh),
                (Activation::GeluErf, kernels::gelu_erf),
            ] {
                let mut at = Operand::of(&narrow(&both));
                host.run(&calls::activation(which, at.values()));
                let mut wanted = both.clone();
                function(&pool, &mut wanted);
                assert_near(&at.read(), &wanted, 1e-5, &format!("{which:?} {what}"));
            }

            let (x, bias) = (noise(both.len(), 8), noise(columns, 9));
            let (mut x_at, mut y_at, mut bias_at) =
                (Operand::of(&x), Operand::of(&narrow(&both)), Operand::of(&bias));
            host.run(&calls::add(x_at.values(), y_at.values()));
            let sum: Vec<f32> = x.iter().zip(&both).map(|(x, y)| x + y).collect();
            assert_eq!(x_at.read(), sum, "{what}");
            host.run(&calls::add_bias(y_at.values(), bias_at.values()));
            let mut wanted = both.clone();
            kernels::add_bias(&pool, &mut wanted, &bias);
            assert_near(&y_at.read(), &wanted, 0.0, &what);
        }
    });
}

fn check_weights(host: &mut Host, dtype: DType, rows: usize, columns: usize) {
    let what = format!("{dtype} {rows} × {columns}");
    let memory = Memory::new("host", Bytes::new(1 << 30));
    let weights =
        Weights::from_f32(&memory, dtype, rows, columns, &noise(rows * columns, 11)).expect("memory");
    let (view, shape) = (weights.view(), (dtype, rows, columns));
    let value = |row, column| view.value(row, column);
    let mut w = Operand::of(weights.bytes());

    let mut plain = Operand::<u16>::unwritten(rows * columns);
    host.run(&calls::unpack(plain.values(), shape, w.values()).expect("the right bytes"));
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let wanted: Vec<f32> = all.map(|(row, column)| value(row, column)).collect();
    assert_eq!(plain.read(), narrow(&wanted), "{what}");

    let tokens = [rows - 1, 0, rows / 2];
    let mut token_at = Operand::of(&tokens.map(|token| token as i32));
    let mut out = Operand::<f32>::unwritten(3 * columns);
    let gather = calls::gather(out.values(), shape, w.values(), token_at.values());
    host.run(&gather.expect("the right bytes"));
    let gathered: Vec<f32> =
        tokens.iter().flat_map(|&token| &wanted[token * columns..][..columns]).copied().collect();
    assert_eq!(out.read(), gathered, "{what}");

    let (m, x_stride, y_stride) = (2, columns + 3, rows + 1);
    let x = short(m * x_stride, 12);
    let (mut x_at, mut y_at) = (Operand::of(&narrow(&x)), Operand::<u16>::unwritten(m * y_stride));
    let gemv = calls::gemv(m, (y_at.values(), y_stride), (x_at.values(), x_stride), shape, w.values());
    host.run(&gemv.expect("the right bytes"));
    for (i, y) in y_at.read().chunks(y_stride).enumerate() {
        let dot = |row: usize| -> f64 {
            let pairs = wanted[row * columns..][..columns].iter().zip(&x[i * x_stride..]);
            pairs.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
        };
        let sums: Vec<f32> = (0..rows).map(|row| dot(row) as f32).collect();
        assert_near(&y[..rows], &sums, 1e-5 * columns as f32 + 1e-6, &what);
        assert_eq!(y[rows], u16::MAX, "{what}: what lies between rows is left alone");
    }
}

#[test]
fn packed_weights_are_read_as_the_cpu_reads_them() {
    each_order(|host| {
        for dtype in [DType::Bf16, DType::Int8, DType::Int4] {
            for (rows, columns) in [(1, 1), (15, 33), (16, 1), (16, 31), (17, 64), (31, 65), (32, 32)] {
                check_weights(host, dtype, rows, columns);
            }
            for columns in [2, 15, 16, 17, 63, 95, 96, 127, 129, 511, 513, 2047, 2048, 2049, 4200] {
                check_weights(host, dtype, 16, columns);
            }
        }
    });
}

/// A batch over a cache: the CPU's, and the same in pages that lie in no order.
struct Batch {
    shape: KvShape,
    heads: usize,
    spans: Vec<Span>,
    page: usize,
}

impl Batch {
    /// Appends all with the GPU's kernel and the CPU's, attends with both.
    fn check(&self, host: &mut Host, paged: bool) {
        let Self { shape, heads, ref spans, page } = *self;
        let what = format!("{shape:?} {heads} {spans:?} pages of {page}");
        let (width, kv_width) = (heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        let whole: Vec<Span> =
            spans.iter().map(|span| Span { past: 0, new: span.past + span.new, ..*span }).collect();
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
        let view = cache.as_cache();
        kernels::attention(
            &pool,
            heads,
            0.3,
            &mut wanted,
            out_stride,
            &q,
            q_stride,
            view,
            spans,
            &mut scratch,
        );

        let pages_per_sequence = shape.capacity.div_ceil(page);
        let pages = shape.sequences * pages_per_sequence;
        let table: Vec<i32> = (0..pages).map(|i| if paged { pages - 1 - i } else { i } as i32).collect();
        let room = pages * page * kv_width;
        let [mut gpu_keys, mut gpu_values] = [0, 1].map(|_| Operand::<u16>::unwritten(room));
        if !paged {
            // The CPU's bytes as they are.
            assert_eq!((page, room * 2), (shape.capacity, shape.bytes()));
            gpu_keys = Operand::of(bytemuck::cast_slice(buffers[0].bytes()));
            gpu_values = Operand::of(bytemuck::cast_slice(buffers[1].bytes()));
        }
        let mut table = Operand::of(&table);
        let cache = Paged {
            keys: gpu_keys.values(),
            values: gpu_values.values(),
            table: table.values(),
            pages_per_sequence,
            page,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
        };
        if paged {
            let places =
                whole.iter().flat_map(|span| (0..span.new).map(|p| (span.sequence as i32, p as i32)));
            let (sequences, positions): (Vec<_>, Vec<_>) = places.unzip();
            let (mut sequences, mut positions) = (Operand::of(&sequences), Operand::of(&positions));
            let (mut keys, mut values) = (Operand::of(&narrow(&keys)), Operand::of(&narrow(&values)));
            let (sequences, positions) = (sequences.values(), positions.values());
            host.run(&calls::append(cache, keys.values(), values.values(), kv_width, sequences, positions));
        }
        let (mut q, mut out) = (Operand::of(&narrow(&q)), Operand::<u16>::unwritten(rows * out_stride));
        self.attend(host, cache, (q.values(), q_stride), (out.values(), out_stride));
        for (got, wanted) in out.read().chunks(out_stride).zip(wanted.chunks(out_stride)) {
            // Weights of a prompt are rounded to bf16 before they multiply values, which are at most 1.
            let slack = if spans.iter().all(|span| span.new == 1) { 1e-5 } else { 4e-3 };
            assert_near(&got[..width], &wanted[..width], slack, &what);
            assert!(got[width..].iter().all(|&bits| bits == u16::MAX), "{what}: between rows");
        }
        (gpu_keys.read(), gpu_values.read());
    }

    fn attend(
        &self,
        host: &mut Host,
        cache: Paged,
        q: (calls::Values<u16>, usize),
        out: (calls::Values<u16>, usize),
    ) {
        let (heads, spans) = (self.heads, &self.spans);
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
            let mut numbers = Operand::of(&numbers);
            return host.run(&calls::prefill(cache, heads, 0.3, q, out, numbers.values(), most));
        }
        let lengths: Vec<i32> = spans.iter().map(|span| span.past as i32 + 1).collect();
        let longest = spans.iter().map(|span| span.past + 1).max().unwrap_or(0);
        for chunk in [64, 128] {
            let parts = spans.len() * heads * longest.div_ceil(chunk);
            let mut scratch = Operand::unwritten(parts * (self.shape.head_dim + 2));
            let mut lengths = Operand::of(&lengths);
            let (lengths, values) = (lengths.values(), scratch.values());
            let step = Decoding { q, out, heads, lengths, longest, chunk, scratch: values, scale: 0.3 };
            for call in calls::decode(cache, step) {
                host.run(&call);
            }
            scratch.read();
        }
    }
}

fn shape(sequences: usize, kv_heads: usize, capacity: usize, head_dim: usize) -> KvShape {
    KvShape { dtype: DType::Bf16, sequences, kv_heads, capacity, head_dim }
}

fn tokens(pasts: &[usize]) -> Vec<Span> {
    pasts.iter().enumerate().map(|(sequence, &past)| Span { sequence, past, new: 1 }).collect()
}

#[test]
fn decoding_agrees_for_every_grouping_head_size_and_length() {
    each_order(|host| {
        for (kv_heads, heads) in [(1, 1), (2, 6), (1, 9), (2, 16)] {
            for head_dim in [8, 64, 80, 128, 256] {
                let spans = tokens(&[0, 66, 5]);
                Batch { shape: shape(3, kv_heads, 70, head_dim), heads, spans, page: 16 }.check(host, true);
            }
        }
        for past in [0, 1, 62, 63, 64, 65, 127, 128, 200, 300] {
            Batch { shape: shape(1, 1, past + 1, 64), heads: 2, spans: tokens(&[past]), page: 16 }
                .check(host, true);
        }
        // The CPU's cache as it is.
        Batch { shape: shape(2, 2, 90, 64), heads: 4, spans: tokens(&[80, 3]), page: 90 }.check(host, false);
    });
}

#[test]
fn prompts_agree_around_every_tile() {
    each_order(|host| {
        for (past, new) in [(0, 1), (0, 2), (0, 15), (0, 33), (1, 31), (31, 2), (32, 17), (0, 65), (70, 63)] {
            let spans = vec![Span { sequence: 0, past, new }, Span { sequence: 1, past: new, new: 3 }];
            Batch { shape: shape(2, 1, past + new + 3, 16), heads: 2, spans, page: 16 }.check(host, true);
        }
        for (kv_heads, heads, head_dim) in [(1, 3, 64), (2, 2, 80), (2, 10, 32)] {
            let spans = vec![Span { sequence: 1, past: 3, new: 9 }, Span { sequence: 0, past: 0, new: 20 }];
            Batch { shape: shape(2, kv_heads, 20, head_dim), heads, spans, page: 20 }.check(host, false);
        }
    });
}

#[test]
fn a_token_that_sees_nothing_gets_zeros() {
    each_order(|host| {
        let (mut keys, mut table) = (Operand::<u16>::unwritten(64), Operand::of(&[0]));
        let mut values = Operand::<u16>::unwritten(64);
        let (keys, values, table) = (keys.values(), values.values(), table.values());
        let cache = Paged { keys, values, table, pages_per_sequence: 1, page: 8, kv_heads: 1, head_dim: 8 };
        let (mut q, mut out) = (Operand::of(&narrow(&short(8, 1))), Operand::<u16>::unwritten(8));
        let (mut lengths, mut scratch) = (Operand::of(&[0]), Operand::unwritten(10));
        let (q, lengths, scratch) = ((q.values(), 8), lengths.values(), scratch.values());
        let step = Decoding {
            q,
            out: (out.values(), 8),
            heads: 1,
            lengths,
            longest: 8,
            chunk: 64,
            scratch,
            scale: 1.0,
        };
        calls::decode(cache, step).iter().for_each(|call| host.run(call));
        assert_eq!(out.read(), [0; 8]);
    });
}

#[test]
fn the_largest_is_the_first_of_equals_and_never_no_number() {
    let rows: Vec<Vec<f32>> = vec![
        vec![1.0, 3.0, 3.0],
        vec![f32::NAN, -2.0, -1.0],
        vec![f32::NAN; 3],
        vec![f32::NEG_INFINITY; 3],
        vec![-0.0, 0.0, -1.0],
        vec![1.0, f32::INFINITY, f32::NAN],
    ];
    each_order(|host| {
        let mut logits = Operand::of(&rows.concat());
        let mut tokens = Operand::<i32>::unwritten(rows.len());
        host.run(&calls::argmax(tokens.values(), logits.values()));
        let wanted: Vec<i32> = rows.iter().map(|row| kernels::argmax(row).unwrap_or(0) as i32).collect();
        assert_eq!(tokens.read(), wanted);
        for vocabulary in [1, 31, 1023, 1024, 1025, 5000] {
            let row = noise(2 * vocabulary, 31);
            let (mut logits, mut tokens) = (Operand::of(&row), Operand::<i32>::unwritten(2));
            host.run(&calls::argmax(tokens.values(), logits.values()));
            let wanted: Vec<_> =
                row.chunks(vocabulary).map(|row| kernels::argmax(row).map(|i| i as i32)).collect();
            assert_eq!(tokens.read().into_iter().map(Some).collect::<Vec<_>>(), wanted);
        }
    });
}

/// Whether `token` is what the executor's way gives, or its neighbour where the number falls on the border between them.
fn is_drawn(
    row: &[f32],
    uniform: f32,
    temperature: f32,
    k: Option<usize>,
    p: Option<f32>,
    token: usize,
) -> bool {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
    order.truncate(k.unwrap_or(row.len()));
    let weight = |token: usize| (f64::from(row[token] - row[order[0]]) / f64::from(temperature)).exp();
    let total: f64 = order.iter().map(|&token| weight(token)).sum();
    let close = 1e-6 * total;
    let mut before = 0.0;
    // The sum that top_p leaves, at the least and at the most.
    let (mut least, mut most) = (f64::MAX, total);
    for &token in &order {
        before += weight(token);
        let wanted = f64::from(p.unwrap_or(1.0)) * total;
        if p.is_some() && before >= wanted - close {
            least = least.min(before);
        }
        if p.is_some() && before >= wanted + close {
            most = before;
            break;
        }
    }
    let (least, most) = (f64::from(uniform) * least.min(most) - close, f64::from(uniform) * most + close);
    let mut before = 0.0;
    order.iter().any(|&candidate| {
        let from = before;
        before += weight(candidate);
        candidate == token && from <= most && before >= least
    })
}

#[test]
fn tokens_are_drawn_as_the_executor_draws_them() {
    each_order(|host| {
        for vocabulary in [1, 2, 255, 1024, 3001] {
            for (temperature, k, p) in [
                (1.0, None, None),
                (0.3, Some(1), None),
                (1.7, Some(40), None),
                (0.8, None, Some(0.9)),
                (1.0, Some(50), Some(0.5)),
                (1.0, None, Some(1e-6)),
            ] {
                let uniforms = [0.0, 0.25, 0.5, 0.999_999_94];
                let mut logits: Vec<f32> = noise(4 * vocabulary, 41).iter().map(|x| 6.0 * x).collect();
                // Equals, so many that all digits of the token decide.
                logits[3 * vocabulary..].iter_mut().for_each(|x| *x = x.round());
                let mut tokens = Operand::<i32>::unwritten(4);
                let (mut at, mut numbers) = (Operand::of(&logits), Operand::of(&uniforms));
                host.run(&calls::sample(tokens.values(), at.values(), numbers.values(), temperature, k, p));
                for ((row, uniform), token) in logits.chunks(vocabulary).zip(uniforms).zip(tokens.read()) {
                    assert!(
                        is_drawn(row, uniform, temperature, k, p, token as usize),
                        "{token} of {vocabulary} for {uniform} with {temperature} {k:?} {p:?}"
                    );
                }
            }
        }
    });
}

#[test]
fn shapes_that_do_not_agree_panic_before_a_launch() {
    let mut x = Operand::<u16>::unwritten(8);
    let mut w = Operand::<u8>::unwritten(8);
    let (x, w) = (x.values(), w.values());
    assert!(std::panic::catch_unwind(|| calls::silu_mul(x, x, x, 4, 3, 4)).is_err());
    assert!(calls::unpack(x, (DType::Bf16, 2, 4), w).is_err(), "8 bytes are no 2 × 4 in bf16");
    assert!(calls::unpack(x, (DType::F32, 1, 2), w).is_err(), "no kernel reads f32");
}

/// What the two orders are for, and what the host notices: a program with a mistake.
#[test]
fn a_forgotten_barrier_and_one_that_not_all_reach_are_noticed() {
    let prelude = kernels::cuda::Program::Norm.text();
    let prelude = prelude.split("// Normalisation").next().expect("a beginning");
    let folder = tempfile::tempdir().expect("a folder");
    let run = |name: &str, barrier: &str, last_first| {
        let text = format!(
            "{prelude}typedef struct {{ u32 *out; }} Out;\nKERNEL(turn, Out, 64) {{ __shared__ u32 s[64]; \
             s[threadIdx.x] = threadIdx.x; {barrier} a.out[threadIdx.x] = s[63 - threadIdx.x]; }}\n"
        );
        let library = Library::of(&text, name, folder.path());
        let mut out = Operand::<u32>::unwritten(64);
        let address = bytemuck::bytes_of(&(out.values().address())).to_vec();
        library.run("turn", [1, 1, 1], 64, &address, last_first).map(|()| out.read())
    };
    let turned: Vec<u32> = (0..64).rev().collect();
    for last_first in [false, true] {
        assert_eq!(run(&format!("right{last_first}"), "__syncthreads();", last_first), Ok(turned.clone()));
        let forgotten = run(&format!("forgotten{last_first}"), "", last_first).expect("no barrier, no wait");
        assert_ne!(forgotten, turned);
    }
    assert!(
        run("some", "if (threadIdx.x < 32) __syncthreads();", false).expect_err("a wait").contains("wait")
    );
}
