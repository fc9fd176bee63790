//! The kernels that read packed weights.

use super::values::{FORMATS, assert_near, has_shape, narrow, short, weights};
use crate::host_gpu::{Host, Operand, each_order};
use hwprofiles::DType;
use kernels::cuda::calls;

fn check_weights(host: &mut Host, dtype: DType, rows: usize, columns: usize) {
    let what = format!("{dtype} {rows} × {columns}");
    let weights = weights(dtype, rows, columns, 11);
    let (view, shape) = (weights.view(), (dtype, rows, columns));
    let value = |row, column| view.value(row, column);
    let mut w = Operand::new(weights.bytes());

    let mut plain = Operand::<u16>::unwritten(rows * columns);
    host.run(&calls::unpack(plain.values(), shape, w.values()).expect("the right bytes"));
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let wanted: Vec<f32> = all.map(|(row, column)| value(row, column)).collect();
    assert_eq!(plain.read(), narrow(&wanted), "{what}");

    let tokens = [rows - 1, 0, rows / 2];
    let mut token_at = Operand::new(&tokens.map(|token| token as i32));
    let mut out = Operand::<f32>::unwritten(3 * columns);
    let gather = calls::gather(out.values(), shape, w.values(), token_at.values(), 3.7);
    host.run(&gather.expect("the right bytes"));
    let gathered: Vec<f32> = tokens
        .iter()
        .flat_map(|&token| &wanted[token * columns..][..columns])
        .map(|value| 3.7 * value)
        .collect();
    assert_eq!(out.read(), gathered, "{what}");

    let (m, x_stride, y_stride) = (2, columns + 3, rows + 1);
    let x = short(m * x_stride, 12);
    let (mut x_at, mut y_at) = (Operand::new(&narrow(&x)), Operand::<u16>::unwritten(m * y_stride));
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
        for dtype in FORMATS {
            let columns = [
                2, 15, 16, 17, 63, 64, 95, 96, 127, 129, 256, 511, 513, 768, 2047, 2048, 2049, 2080, 2112,
                2304, 4200,
            ];
            [
                (1, 1),
                (15, 33),
                (16, 1),
                (16, 31),
                (17, 64),
                (31, 65),
                (32, 32),
                (37, 192),
                (1, 256),
                (15, 512),
                (37, 2304),
            ]
            .into_iter()
            .chain(columns.map(|columns| (16, columns)))
            .filter(|&shape| has_shape(dtype, shape))
            .for_each(|(rows, columns)| check_weights(host, dtype, rows, columns));
        }
    });
}
