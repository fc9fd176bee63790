//! Packed weights: products of few rows and of many, unpacking, and gathering.

use super::bench::ParityBench;
use crate::cpu::{PANEL, Weights};
use crate::cuda::calls::{self, GpuSlice, ProductOutput};
use crate::cuda::model::{GpuMatrix, MatrixOrder, Queue};
use crate::runtime::KernelError;
use hwprofiles::DType;

pub(super) fn check(bench: &mut ParityBench) -> Result<(), KernelError> {
    for dtype in calls::GPU_MATRICES {
        // Whole and partial panels, whole and partial groups, and more columns than are staged at
        // once.
        for (n, k) in [(16, 32), (33, 65), (35, 64), (35, 256), (48, 2304), (1024, 512)] {
            let whole = match dtype {
                DType::Fp8Block => n % PANEL == 0,
                _ => !Weights::has_blocks(dtype) || Weights::keeps_blocks(dtype, k),
            };
            if whole {
                matrix(bench, dtype, n, k)?;
            }
        }
    }
    Ok(())
}

fn matrix(bench: &mut ParityBench, dtype: DType, n: usize, k: usize) -> Result<(), KernelError> {
    let weights = bench.weights(dtype, n, k)?;
    let view = weights.view();
    let plain: Vec<f32> = (0..n * k).map(|i| view.value(i / k, i % k)).collect();
    let w = bench.there(weights.bytes())?;
    let (shape, what) = ((dtype, n, k), |kernel: &str| format!("{kernel} of {n} × {k} in {dtype}"));

    let (out_at, out) = bench.room(n * k)?;
    bench.run(&calls::unpack(out, shape, w.values())?)?;
    bench.compare(what("unpack"), &out_at, &plain, 0.0)?;
    let (row_at, row) = bench.room(k)?;
    let token = bench.numbers(&[n / 2])?;
    bench.run(&calls::gather(row, shape, w.values(), token.values(), 1.0)?)?;
    bench.compare_wide(what("gather"), &row_at, &plain[n / 2 * k..][..k], 0.0)?;

    // Scratch for half of the matrix at a time, with a workspace for twice the rows.
    let half = (n.div_ceil(2).next_multiple_of(16), k);
    let (_scratch, scratch) = bench.room::<u8>(Queue::scratch_bytes(2 * 100, half))?;
    let packed = GpuMatrix::packed(shape, w.values());
    products(bench, packed, &plain, scratch)?;
    if Queue::orders_by_rows(shape, scratch.len()) {
        bench.queue.order_by_rows(shape, w.values(), scratch)?;
        bench.compare(what("the order of rows"), &w, &plain, 0.0)?;
        let (row_at, row) = bench.room(k)?;
        bench.run(&calls::gather_rows(row, (n, k), w.values(), token.values(), 1.0))?;
        bench.compare_wide(what("gather_rows"), &row_at, &plain[n / 2 * k..][..k], 0.0)?;
        products(bench, GpuMatrix { order: MatrixOrder::Rows, ..packed }, &plain, scratch)?;
    }
    Ok(())
}

/// Products of few and of many rows with a matrix whose values are `plain`.
fn products(
    bench: &mut ParityBench,
    matrix: GpuMatrix,
    plain: &[f32],
    scratch: GpuSlice<u8>,
) -> Result<(), KernelError> {
    let GpuMatrix { shape: (dtype, n, k), order, .. } = matrix;
    let what = |kernel: String| format!("{kernel} with {n} × {k} in {dtype}, {order:?}");
    for m in [1, 2, 11, 33, 100] {
        let x = bench.noise(m * k);
        let x_at = bench.narrow(&x)?;
        let dot = |row: &[f32], column: &[f32]| -> f64 {
            row.iter().zip(column).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let rows = x.chunks(k);
        let wanted: Vec<f32> =
            rows.flat_map(|row| plain.chunks(k).map(move |column| dot(row, column) as f32)).collect();
        // Integers times their scales are rounded to bf16 before a product of many rows.
        let slack = if dtype == DType::Bf16 { 1e-5 } else { 1.0 / 256.0 } * (k as f32).sqrt();
        let (y_at, y) = bench.room(m * n)?;
        bench.queue.multiply(m, (ProductOutput::Narrow(y), n), x_at.values(), matrix, scratch)?;
        bench.compare(what(format!("a product of {m} rows")), &y_at, &wanted, slack)?;
        let (y_at, y) = bench.room(m * n)?;
        bench.queue.multiply(m, (ProductOutput::Wide(y), n), x_at.values(), matrix, scratch)?;
        bench.compare_wide(what(format!("a wide product of {m} rows")), &y_at, &wanted, slack)?;
    }
    Ok(())
}
