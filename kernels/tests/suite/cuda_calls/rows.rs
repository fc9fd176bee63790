//! The kernels that go over rows.

use super::values::{assert_close, assert_near, narrow, noise, pool, short, widen};
use crate::host_gpu::{Operand, each_order};
use hwprofiles::units::Bytes;
use kernels::cuda::calls::{self, ActivationFunction, GpuSlice, KernelCall, NormOperands, Rotation};
use kernels::{MemoryArena, Pool, RopeTable};

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
                let (mut x_at, mut y) = (Operand::new(&x), Operand::<u16>::unwritten(x.len()));
                let (mut delta, mut gamma_at) = (Operand::new(&narrow(&delta)), Operand::new(&gamma));
                let mut beta_at = Operand::new(&beta);
                let delta = added.then(|| delta.values());
                let norm = NormOperands {
                    x: x_at.values(),
                    delta,
                    y: y.values(),
                    gamma: gamma_at.values(),
                    epsilon: 1e-5,
                };
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
            let (mut x_at, mut made) = (Operand::new(&x), Operand::new(&narrow(&delta)));
            let mut gamma_at = Operand::new(&gamma);
            host.run(&calls::add_rms_norm(rows, x_at.values(), made.values(), gamma_at.values(), 1e-5));
            let mut wanted = x.clone();
            kernels::add_rms_norm(&pool, &mut wanted, &delta, &gamma, 1e-5);
            assert_close(&x_at.read(), &wanted, 1e-5, &what);
        }
    });
}

#[test]
fn heads_are_normalised_and_rotated_in_place() {
    let (pool, memory) = (pool(), MemoryArena::new("host", Bytes::new(1 << 30)));
    each_order(|host| {
        for (rows, heads, head_dim, half) in [(1, 1, 2, 1), (3, 5, 64, 32), (2, 3, 80, 16), (9, 1, 128, 64)] {
            let stride = heads * head_dim + 6;
            let x = short(rows * stride, 5);
            let gamma = noise(head_dim, 6);
            let (mut at, mut gamma_at) = (Operand::new(&narrow(&x)), Operand::new(&gamma));
            host.run(&calls::rms_norm_heads(at.values(), rows, stride, heads, gamma_at.values(), 1e-6));
            let mut wanted = x.clone();
            kernels::rms_norm_heads(&pool, &mut wanted, rows, stride, heads, &gamma, 1e-6);
            assert_near(&at.read(), &wanted, 1e-5, "head norms");

            let frequencies: Vec<f32> = (0..half).map(|i| 1e4f32.powf(-(i as f32) / half as f32)).collect();
            let positions: Vec<usize> = (0..rows).map(|row| row * 37 % 50).collect();
            let angles = || (0..50).flat_map(|p| frequencies.iter().map(move |f| p as f32 * f));
            let (cos, sin): (Vec<_>, Vec<_>) = angles().map(|angle| (angle.cos(), angle.sin())).unzip();
            let (mut cos, mut sin) = (Operand::new(&cos), Operand::new(&sin));
            let places: Vec<i32> = positions.iter().map(|&position| position as i32).collect();
            let mut places = Operand::new(&places);
            for interleaved in [false, true] {
                let table = RopeTable::new(&memory, &frequencies, 50).expect("memory");
                let table = table.with_interleaved(interleaved);
                let mut at = Operand::new(&narrow(&x));
                let rotation = Rotation { cosines: cos.values(), sines: sin.values(), half, interleaved };
                host.run(&calls::rope(at.values(), stride, heads, head_dim, rotation, places.values()));
                let mut wanted = x.clone();
                kernels::rope(&pool, &mut wanted, stride, heads, head_dim, &table, &positions);
                assert_near(&at.read(), &wanted, 1e-5, "rotated heads");
            }
        }
    });
}

/// Out, gate, up, distance of rows, rows, columns.
type Gate = fn(GpuSlice<u16>, GpuSlice<u16>, GpuSlice<u16>, usize, usize, usize) -> KernelCall;
/// Out, gate, up, distance of rows, columns.
type HostGate = fn(&Pool, &mut [f32], &[f32], &[f32], usize, usize);

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
            let (mut at, mut out) = (Operand::new(&narrow(&both)), Operand::<u16>::unwritten(rows * columns));
            let up = at.values().from(columns * usize::from(rows > 0));
            let gates: [(Gate, HostGate); 2] =
                [(calls::silu_mul, kernels::silu_mul), (calls::gelu_mul, kernels::gelu_mul)];
            for (gate, on_host) in gates {
                host.run(&gate(out.values(), at.values(), up, 2 * columns, rows, columns));
                let mut wanted = vec![0.0; rows * columns];
                let up = &both[columns * usize::from(rows > 0)..];
                on_host(&pool, &mut wanted, &both, up, 2 * columns, columns);
                assert_near(&out.read(), &wanted, 1e-5, &what);
            }

            let call = calls::limited_mul(out.values(), [at.values(), up], 2 * columns, [rows, columns], 3.0);
            host.run(&call);
            let mut wanted = vec![0.0; rows * columns];
            let up = &both[columns * usize::from(rows > 0)..];
            kernels::limited_mul(&pool, &mut wanted, &both, up, [2 * columns, columns], 3.0);
            assert_near(&out.read(), &wanted, 1e-5, &what);

            type InPlace = fn(&Pool, &mut [f32]);
            for (which, function) in [
                (ActivationFunction::Relu, kernels::relu as InPlace),
                (ActivationFunction::ReluSquared, |pool, x| {
                    kernels::relu(pool, x);
                    x.iter_mut().for_each(|x| *x *= *x);
                }),
                (ActivationFunction::GeluTanh, kernels::gelu_tanh),
                (ActivationFunction::GeluErf, kernels::gelu_erf),
            ] {
                let mut at = Operand::new(&narrow(&both));
                host.run(&calls::activation(which, at.values()));
                let mut wanted = both.clone();
                function(&pool, &mut wanted);
                assert_near(&at.read(), &wanted, 1e-5, &format!("{which:?} {what}"));
            }

            let (x, bias) = (noise(both.len(), 8), noise(columns, 9));
            let (mut x_at, mut y_at, mut bias_at) =
                (Operand::new(&x), Operand::new(&narrow(&both)), Operand::new(&bias));
            host.run(&calls::add(x_at.values(), y_at.values()));
            let sum: Vec<f32> = x.iter().zip(&both).map(|(x, y)| x + y).collect();
            assert_eq!(x_at.read(), sum, "{what}");
            host.run(&calls::add_bias(y_at.values(), columns, both.len() / columns, bias_at.values()));
            let mut wanted = both.clone();
            kernels::add_bias(&pool, &mut wanted, &bias);
            assert_near(&y_at.read(), &wanted, 0.0, &what);
        }
    });
}

#[test]
fn logits_get_their_bias_and_cap_and_others_between_them_stay() {
    let pool = pool();
    each_order(|host| {
        for (rows, columns, stride) in [(0, 3, 3), (1, 1, 1), (3, 85, 90), (2, 256, 257), (5, 300, 300)] {
            let (x, bias) = (noise(rows * stride, 15), noise(columns, 16));
            let (mut at, mut bias_at) = (Operand::new(&x), Operand::new(&bias));
            host.run(&calls::add_bias(at.values(), stride, rows, bias_at.values()));
            let mut wanted = x.clone();
            let mut each = |act: &dyn Fn(&mut [f32])| {
                wanted.chunks_mut(stride).for_each(|row| act(&mut row[..columns]));
                wanted.clone()
            };
            let biased = each(&|row| kernels::add_bias(&pool, row, &bias));
            assert_eq!(at.read(), biased, "{rows} × {columns}");
            host.run(&calls::soft_cap(at.values(), stride, rows, columns, 0.7));
            let capped = each(&|row| kernels::soft_cap(&pool, row, 0.7));
            assert_close(&at.read(), &capped, 1e-6, &format!("{rows} × {columns}"));
        }
    });
}
