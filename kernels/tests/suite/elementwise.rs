//! The element-wise kernels against their formulas in f64, on every path and at awkward lengths.

use crate::fence::Fenced;
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use kernels::*;

/// Values from −4 to 4, the range in which activations are curved.
fn noise(len: usize, seed: u64) -> Fenced<f32> {
    let values: Vec<f32> = crate::noise::noise(len, seed).into_iter().map(|value| 4.0 * value).collect();
    Fenced::new(&values)
}

fn pools() -> Vec<Pool> {
    let cores = affinity::available_cores();
    let cores = [cores[0], cores[cores.len() - 1]];
    let pool = |path| Pool::new(&cores).expect("our cores").with_path(path);
    Path::supported().into_iter().map(pool).collect()
}

#[track_caller]
fn close(got: &[f32], exact: impl IntoIterator<Item = f64>, tolerance: f64) {
    let exact: Vec<f64> = exact.into_iter().collect();
    assert_eq!(got.len(), exact.len());
    for (i, (got, exact)) in got.iter().zip(exact).enumerate() {
        assert!(
            (f64::from(*got) - exact).abs() <= tolerance * exact.abs().max(1.0),
            "at {i}: {got}, exactly {exact}"
        );
    }
}

/// Rows and columns: none, one, around the length of a vector, and enough for a whole team.
const SHAPES: [(usize, usize); 8] = [(0, 4), (1, 1), (2, 3), (3, 8), (2, 15), (5, 17), (1, 100), (40, 1031)];

#[test]
fn norms_follow_their_formulas() {
    for pool in pools() {
        for (rows, columns) in SHAPES {
            let x = noise(rows * columns, 1);
            let (gamma, beta) = (noise(columns, 2), noise(columns, 3));
            let mean = |row: &[f32], f: &dyn Fn(f64) -> f64| {
                row.iter().map(|&x| f(f64::from(x))).sum::<f64>() / columns as f64
            };
            let mut y = Fenced::new(&vec![0.0; x.len()]);
            rms_norm(&pool, &mut y, &x, &gamma, 1e-5);
            let exact = x.chunks(columns).flat_map(|row| {
                let inverse = 1.0 / (mean(row, &|x| x * x) + 1e-5).sqrt();
                row.iter().zip(&gamma).map(move |(x, g)| f64::from(*x) * inverse * f64::from(*g))
            });
            close(&y, exact.clone(), 2e-6);
            y.copy_from_slice(&x);
            add_rms_norm(&pool, &mut y, &x, &gamma, 1e-5);
            close(&y, exact.zip(&x).map(|(norm, x)| norm + f64::from(*x)), 2e-6);
            layer_norm(&pool, &mut y, &x, &gamma, &beta, 1e-2);
            let exact = x.chunks(columns).flat_map(|row| {
                let center = mean(row, &|x| x);
                let inverse = 1.0 / (mean(row, &|x| (x - center) * (x - center)) + 1e-2).sqrt();
                let line = row.iter().zip(&gamma).zip(&beta);
                line.map(move |((x, g), b)| {
                    (f64::from(*x) - center) * inverse * f64::from(*g) + f64::from(*b)
                })
            });
            close(&y, exact, 2e-5);
        }
    }
}

#[test]
fn head_norms_touch_the_heads_and_nothing_between_rows() {
    for pool in pools() {
        let (rows, heads, dim) = (3, 2, 5);
        let stride = heads * dim + 4;
        let was = noise(rows * stride, 4);
        let gamma = noise(dim, 5);
        let mut x = was.clone();
        rms_norm_heads(&pool, &mut x, rows, stride, heads, &gamma, 1e-6);
        for (row, was) in x.chunks(stride).zip(was.chunks(stride)) {
            assert_eq!(row[heads * dim..], was[heads * dim..]);
            for (head, was) in row[..heads * dim].chunks(dim).zip(was.chunks(dim)) {
                let mean = was.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / dim as f64;
                let exact =
                    was.iter().zip(&gamma).map(|(x, g)| f64::from(*x) * f64::from(*g) / (mean + 1e-6).sqrt());
                close(head, exact, 2e-6);
            }
        }
    }
}

/// erf by its Taylor series, which converges fast for these arguments.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn activations_follow_their_formulas() {
    for pool in pools() {
        for (rows, columns) in SHAPES {
            let x = noise(rows * columns, 6);
            let apply = |f: &dyn Fn(&Pool, &mut [f32])| {
                let mut x = x.clone();
                f(&pool, &mut x);
                x
            };
            let wide = || x.iter().map(|&x| f64::from(x));
            close(&apply(&relu), wide().map(|x| x.max(0.0)), 0.0);
            let tanh = |x: f64| {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            };
            close(&apply(&gelu_tanh), wide().map(tanh), 2e-6);
            let cap = |x: f64| 0.3 * (x / f64::from(0.3_f32)).tanh();
            close(&apply(&|pool, x| soft_cap(pool, x, 0.3)), wide().map(cap), 2e-6);
            close(&apply(&gelu_erf), wide().map(|x| 0.5 * x * (1.0 + erf(x / 2.0f64.sqrt()))), 2e-6);
        }
    }
}

#[test]
fn silu_mul_reads_stacked_and_separate_halves_alike() {
    for pool in pools() {
        for (rows, columns) in SHAPES {
            let stacked = noise(rows * 2 * columns, 7);
            let part = |half: usize| -> Vec<f32> {
                stacked
                    .chunks(2 * columns)
                    .flat_map(|row| row[half * columns..][..columns].to_vec())
                    .collect()
            };
            let (gate, up) = (part(0), part(1));
            let mut out = vec![0.0; rows * columns];
            silu_mul(&pool, &mut out, &stacked, stacked.get(columns..).unwrap_or(&[]), 2 * columns, columns);
            let silu = gate
                .iter()
                .zip(&up)
                .map(|(g, u)| f64::from(*g) / (1.0 + (-f64::from(*g)).exp()) * f64::from(*u));
            close(&out, silu, 2e-6);
            let mut separate = vec![0.0; rows * columns];
            silu_mul(&pool, &mut separate, &gate, &up, columns, columns);
            assert_eq!(out, separate);
        }
    }
}

#[test]
fn sums_and_biases_reach_every_element() {
    for pool in pools() {
        for (rows, columns) in SHAPES {
            let (x, bias) = (noise(rows * columns, 8), noise(columns, 9));
            let mut y = noise(rows * columns, 10);
            let was = y.clone();
            add(&pool, &mut y, &x);
            assert!(y.iter().zip(was.iter().zip(&x)).all(|(y, (was, x))| *y == was + x));
            let mut y = was.clone();
            add_bias(&pool, &mut y, &bias);
            assert!(y.iter().enumerate().all(|(i, y)| *y == was[i] + bias[i % columns]));
        }
    }
}

#[test]
fn rope_rotates_pairs_by_their_position_and_leaves_the_rest() {
    for interleaved in [false, true] {
        rotates(interleaved);
    }
}

/// Rotation of 6 of 8 columns of a head, in either order of pairs.
fn rotates(interleaved: bool) {
    let memory = MemoryArena::new("test", Bytes::new(1 << 20));
    let frequencies = [1.0, 0.1, 0.01];
    let table = RopeTable::new(&memory, &frequencies, 50).expect("memory").with_interleaved(interleaved);
    assert_eq!((table.positions(), table.is_interleaved()), (50, interleaved));
    for pool in pools() {
        let (heads, dim, positions) = (2, 8, [0, 7, 49]);
        let stride = heads * dim + 3;
        let was = noise(positions.len() * stride, 11);
        let mut x = was.clone();
        rope(&pool, &mut x, stride, heads, dim, &table, &positions);
        assert_eq!(x[..stride], was[..stride], "position 0 is not rotated");
        for (row, position) in positions.into_iter().enumerate() {
            for i in 0..stride {
                let at = row * stride + i;
                let offset = i % dim;
                if i >= heads * dim || offset >= 2 * frequencies.len() {
                    assert_eq!(x[at], was[at]);
                    continue;
                }
                let (pair, second, apart) = match interleaved {
                    true => (offset / 2, offset % 2 == 1, 1),
                    false => (offset % 3, offset >= 3, 3),
                };
                let (sin, cos) = (position as f64 * f64::from(frequencies[pair])).sin_cos();
                let value = |i: usize| f64::from(was[i]);
                let exact = match second {
                    false => value(at) * cos - value(at + apart) * sin,
                    true => value(at) * cos + value(at - apart) * sin,
                };
                close(&x[at..=at], [exact], 1e-5);
            }
        }
    }
}

#[test]
fn softmax_sums_to_one_and_argmax_takes_the_first_of_equals() {
    for len in [1, 2, 15, 16, 17, 1000] {
        let x = noise(len, 12);
        let mut p = x.clone();
        softmax(&mut p);
        let total: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
        close(&p, x.iter().map(|&x| f64::from(x).exp() / total), 1e-6);
    }
    let mut huge = [1e30, 1e30, f32::NEG_INFINITY];
    softmax(&mut huge);
    assert_eq!(huge, [0.5, 0.5, 0.0]);
    softmax(&mut []);
    assert_eq!(argmax(&[]), None);
    assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), Some(1));
    assert_eq!(argmax(&[f32::NAN, -1.0, f32::NEG_INFINITY]), Some(1));
    assert_eq!(argmax(&[f32::NEG_INFINITY; 2]), Some(0));
}

#[test]
fn gather_takes_the_named_rows_of_every_format() {
    let memory = MemoryArena::new("test", Bytes::new(1 << 20));
    let (rows, columns) = (37, 50);
    for pool in pools() {
        for dtype in [DType::F32, DType::Bf16, DType::Int8, DType::Int4] {
            let table =
                Weights::from_f32(&memory, dtype, rows, columns, &noise(rows * columns, 13)).expect("fits");
            let wanted = [36u32, 0, 16, 36];
            let mut out = vec![0.0; wanted.len() * columns];
            gather(&pool, &mut out, table.view(), &wanted);
            for (row, out) in wanted.iter().zip(out.chunks(columns)) {
                for (column, out) in out.iter().enumerate() {
                    assert_eq!(*out, table.view().value(*row as usize, column));
                }
            }
        }
    }
}

#[test]
fn strides_that_overflow_are_refused() {
    let memory = MemoryArena::new("test", Bytes::new(1 << 20));
    let table = RopeTable::new(&memory, &[1.0], 10).expect("memory");
    let pool = pools().remove(0);
    // Row 2 of rows that are 2⁶³ apart wraps around to row 0.
    let refused = |call: &dyn Fn(&mut [f32])| {
        let mut x = [7.0; 6];
        let call = std::panic::AssertUnwindSafe(|| call(&mut x));
        assert!(std::panic::catch_unwind(call).is_err());
        assert_eq!(x, [7.0; 6]);
    };
    refused(&|x| rms_norm_heads(&pool, x, 3, 1 << 63, 1, &[2.0; 2], 1e-6));
    refused(&|x| rms_norm_heads(&pool, x, 3, 2, 1 << 63, &[2.0; 2], 1e-6));
    refused(&|x| rope(&pool, x, 1 << 63, 1, 2, &table, &[1, 1, 1]));
    refused(&|x| rope(&pool, x, 2, 1 << 63, 2, &table, &[1, 1, 1]));
}

/// A row of two streams of `width` values, in f64.
type Streams = [Vec<f64>; 2];

#[test]
fn streams_are_predicted_corrected_and_matched_by_their_formulas() {
    let dot = |a: &[f32], b: &[f64]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * b).sum::<f64>();
    for pool in pools() {
        for (rows, width) in SHAPES.into_iter().filter(|(rows, _)| *rows > 0) {
            let (gamma, matrix) = (noise(width, 1), noise(2 * width, 2));
            let router = StreamRouter { gamma: &gamma, matrix: &matrix, epsilon: 1e-5 };
            let (predicting, correcting) = (noise(8, 3), noise(4, 4));
            let (all, computed) = (noise(rows * 2 * width, 5), noise(rows * width, 6));
            let square = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>() / width as f64;
            let weights = |x: &[f64]| {
                let scale = 1.0 / (square(x) + 1e-5).sqrt() / width as f64;
                let normed: Vec<_> = x.iter().zip(&gamma).map(|(x, g)| x * scale * f64::from(*g)).collect();
                [0, 1].map(|stream| dot(&matrix[stream * width..][..width], &normed).tanh())
            };
            // Terms are up to 32, of which little may be left.
            let check = |found: &[f32], row: usize, exact: &Streams| {
                close(&found[row * 2 * width..][..2 * width], exact.iter().flatten().copied(), 1e-4);
            };
            let [mut predicted, mut corrected, mut matched] = [&all; 3].map(|all| Fenced::new(all));
            predict_streams(&pool, &mut predicted, &router, &predicting);
            correct_streams(&pool, &mut corrected, &computed, &router, &correcting);
            match_streams(&pool, &mut matched, 2, width);
            for row in 0..rows {
                let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
                let h: Streams = [0, 1].map(|stream| wide(&all[(2 * row + stream) * width..][..width]));
                let m = weights(&h[0]);
                let c = |j: usize, i: usize| dot(&predicting[2 * (2 * j + i)..][..2], &m);
                let each =
                    |column: usize, j: usize| h[j][column] + c(j, 0) * h[0][column] + c(j, 1) * h[1][column];
                check(&predicted, row, &[0, 1].map(|j| (0..width).map(|column| each(column, j)).collect()));
                let x = wide(&computed[row * width..][..width]);
                let m = weights(&x);
                let c = |j: usize| 1.0 + dot(&correcting[2 * j..][..2], &m);
                let each = |column: usize, j: usize| h[j][column] + c(j) * (x[column] - h[0][column]);
                check(&corrected, row, &[0, 1].map(|j| (0..width).map(|column| each(column, j)).collect()));
                let factor = (square(&h[0]) / square(&h[1]).max(1e-5)).sqrt();
                check(&matched, row, &[h[0].clone(), h[1].iter().map(|x| x * factor).collect()]);
            }
        }
    }
}
