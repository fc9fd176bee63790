//! The definition: one sum per output, in the order of the columns.

use crate::disjoint::Disjoint;
use crate::{Pool, WeightsView};

pub(super) fn gemm(
    pool: &Pool,
    m: usize,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: &[f32],
    x_stride: usize,
    w: WeightsView<'_>,
) {
    let k = w.columns();
    pool.run(|member, of| {
        let mut line = vec![0.0; k];
        for row in (member..w.rows()).step_by(of) {
            w.row(row, &mut line);
            for i in 0..m {
                let x = &x[i * x_stride..][..k];
                let sum = x.iter().zip(&line).map(|(x, w)| x * w).sum::<f32>();
                // SAFETY: each row of W is one member's, and so is its column of y.
                unsafe { y.range(i * y_stride + row, 1)[0] = sum };
            }
        }
    });
}
