//! The kernels before and behind attention.

use super::values::{assert_close, assert_near, narrow, noise, pool, short};
use crate::host_gpu::{Operand, each_order};
use kernels::cuda::calls;

#[test]
fn norms_over_all_heads_are_those_of_one_wide_head_and_norms_without_weights_have_weights_of_one() {
    let pool = pool();
    each_order(|host| {
        for (rows, heads, head_dim) in [(0, 1, 2), (1, 1, 2), (3, 5, 64), (2, 3, 80), (2, 9, 128)] {
            let (columns, what) = (heads * head_dim, format!("{rows} × {heads} × {head_dim}"));
            let stride = columns + 6;
            let (x, gamma) = (short(rows * stride, 5), noise(columns, 6));
            let (mut at, mut gamma_at) = (Operand::new(&narrow(&x)), Operand::new(&gamma));
            host.run(&calls::rms_norm_row(at.values(), rows, stride, gamma_at.values(), 1e-6));
            let mut wanted = x.clone();
            kernels::rms_norm_heads(&pool, &mut wanted, rows, stride, 1, &gamma, 1e-6);
            assert_near(&at.read(), &wanted, 1e-5, &what);

            let mut at = Operand::new(&narrow(&x));
            host.run(&calls::unit_heads(at.values(), [rows, stride], [heads, head_dim], 1e-6));
            let mut wanted = x;
            kernels::rms_norm_heads(&pool, &mut wanted, rows, stride, heads, &vec![1.0; head_dim], 1e-6);
            assert_near(&at.read(), &wanted, 1e-5, &what);
        }
    });
}

#[test]
fn queries_grow_in_steps_of_their_position_and_others_between_them_stay() {
    each_order(|host| {
        for (columns, tokens) in [(1, 1.0), (64, 16.0), (257, 8192.0)] {
            let stride = columns + 3;
            let positions = [0, 14, 15, 16, 8190, 8191, 65_534, 65_535, 10_485_759];
            let q = short(positions.len() * stride, 7);
            let (mut at, mut places) = (Operand::new(&narrow(&q)), Operand::new(&positions));
            let growth = [0.1, tokens];
            host.run(&calls::grow_queries((at.values(), stride), columns, places.values(), growth));
            let mut wanted = q;
            for (row, position) in wanted.chunks_mut(stride).zip(positions) {
                let steps = ((f64::from(position) + 1.0) / f64::from(tokens)).floor();
                let factor = (1.0 + 0.1 * steps.ln_1p()) as f32;
                row[..columns].iter_mut().for_each(|q| *q *= factor);
            }
            assert_near(&at.read(), &wanted, 1e-5, &format!("{columns} of {tokens}"));
        }
    });
}

#[test]
fn contexts_are_multiplied_by_the_sigmoids_of_their_gates() {
    each_order(|host| {
        for (rows, columns) in [(0, 3), (1, 1), (3, 85), (2, 256), (5, 300)] {
            let stride = 3 * columns + 2;
            let (x, gates) = (short(rows * columns, 8), short(rows * stride, 9));
            let (mut at, mut gates_at) = (Operand::new(&narrow(&x)), Operand::new(&narrow(&gates)));
            let last = if rows > 0 { 2 * columns } else { 0 };
            let gate = (gates_at.values().from(last), stride);
            host.run(&calls::gate_rows(at.values(), gate, [rows, columns]));
            let gates = gates.chunks(stride).flat_map(|row| &row[2 * columns..3 * columns]);
            let wanted: Vec<f32> = x.iter().zip(gates).map(|(x, gate)| x / (1.0 + (-gate).exp())).collect();
            assert_near(&at.read(), &wanted, 1e-6, &format!("{rows} × {columns}"));
        }
    });
}

#[test]
fn a_residual_is_multiplied_by_one_number() {
    each_order(|host| {
        for len in [0, 1, 255, 256, 1000] {
            let x = noise(len, 10);
            let (mut at, mut factor) = (Operand::new(&x), Operand::new(&[0.75_f32]));
            host.run(&calls::scale(at.values(), factor.values()));
            assert_close(&at.read(), &x.iter().map(|x| 0.75 * x).collect::<Vec<_>>(), 0.0, "scaled");
        }
    });
}
