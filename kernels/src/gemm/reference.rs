//! The definition: one sum per output, in the order of the columns.

use super::Group;
use crate::Pool;
use crate::disjoint::Disjoint;

pub(super) fn gemm(
    pool: &Pool,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: &[f32],
    x_stride: usize,
    groups: &[Group<'_>],
) {
    pool.run(|member, of| {
        for Group { rows, w } in groups {
            let mut line = vec![0.0; w.columns()];
            for row in (member..w.rows()).step_by(of) {
                w.row(row, &mut line);
                for i in rows.clone() {
                    let x = &x[i * x_stride..][..line.len()];
                    let sum = x.iter().zip(&line).map(|(x, w)| x * w).sum::<f32>();
                    // SAFETY: each row of W is one member's, and so is its column of y.
                    unsafe { y.range(i * y_stride + row, 1)[0] = sum };
                }
            }
        }
    });
}
