//! The definition: one sum per output, in the order of the columns.

use super::group::GemmGroup;
use crate::cpu::strided::StridedRows;
use crate::runtime::{Disjoint, Pool};

pub(super) fn gemm(
    pool: &Pool,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: StridedRows<'_>,
    groups: &[GemmGroup<'_>],
) {
    pool.run(|member, members| {
        for GemmGroup { rows, w } in groups {
            let mut line = vec![0.0; w.columns()];
            for row in (member..w.rows()).step_by(members) {
                w.row(row, &mut line);
                for i in rows.clone() {
                    let x = &x.values[i * x.stride..][..line.len()];
                    let sum = x.iter().zip(&line).map(|(x, w)| x * w).sum::<f32>();
                    // SAFETY: each row of W belongs to one member, and so does its column of y.
                    unsafe { y.range(i * y_stride + row, 1)[0] = sum };
                }
            }
        }
    });
}
