//! Products with 8-bit floats as a file has them: every path against the definition.

use crate::fence::Fenced;
use crate::noise::noise;
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use kernels::{
    KernelError, MemoryArena, PANEL, Path, Pool, Scratch, StridedRows, StridedRowsMut, Weights, WeightsView,
    affinity, float8_value, gather, gemm,
};

const FORMATS: [DType; 2] = [DType::Fp8, DType::Fp8Block];

fn memory() -> MemoryArena {
    MemoryArena::new("test", Bytes::new(1 << 30))
}

fn pools(members: usize) -> Vec<Pool> {
    let cores = affinity::available_cores();
    let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
    let pool = |path| Pool::new(&cores).expect("our cores").with_path(path);
    Path::supported().into_iter().map(pool).collect()
}

/// Every number that is one, in turn: zeros of both signs, all subnormal numbers and ±448.
fn number(row: usize, column: usize) -> u8 {
    let number = (row * 37 + column * 11 + column / 256) as u8;
    if number & 127 == 127 { number & 0x80 } else { number }
}

/// A scale with all bits of an f32, of its own for each row or each block of 16 × 128.
fn scale(dtype: DType, row: usize, column: usize) -> f32 {
    let at = if dtype == DType::Fp8 { row } else { row / PANEL * 3 + column / 128 };
    0.001 + (at % 17) as f32 * 0.000_123_4
}

fn keep(dtype: DType, rows: usize, columns: usize) -> Weights {
    Weights::from_float8(&memory(), dtype, rows, columns, |row, numbers, scales| {
        numbers.iter_mut().enumerate().for_each(|(column, out)| *out = number(row, column));
        scales.iter_mut().enumerate().for_each(|(part, out)| *out = scale(dtype, row, 128 * part));
    })
    .expect("it fits")
}

fn value(dtype: DType, row: usize, column: usize) -> f32 {
    scale(dtype, row, column) * float8_value(number(row, column))
}

#[test]
fn kept_numbers_have_their_values_and_take_the_bytes_of_their_format() {
    for dtype in FORMATS {
        for (rows, columns) in [(16, 1), (16, 128), (48, 129), (32, 513), (37, 70), (1, 3), (0, 8), (16, 0)] {
            if dtype == DType::Fp8Block && rows % PANEL > 0 {
                continue;
            }
            let weights = keep(dtype, rows, columns);
            assert_eq!(weights.bytes().len() as u64, dtype.matrix_bytes(rows as u64, columns as u64).get());
            let mut line = vec![0.0; columns];
            for row in 0..rows {
                weights.view().row(row, &mut line);
                let wanted: Vec<f32> = (0..columns).map(|column| value(dtype, row, column)).collect();
                assert_eq!(line, wanted, "{dtype} {rows}×{columns}");
            }
            if rows * columns > 0 {
                let mut gathered = vec![0.0; columns];
                gather(&pools(1)[0], &mut gathered, weights.view(), &[rows as u32 - 1]);
                assert_eq!(gathered, line);
            }
        }
    }
}

fn product(pool: &Pool, m: usize, x: StridedRows<'_>, w: WeightsView<'_>, y_stride: usize) -> Vec<f32> {
    let fenced = Fenced::new(w.bytes());
    let w = WeightsView::new(w.dtype(), w.rows(), w.columns(), &fenced).expect("the same bytes");
    let mut scratch =
        Scratch::unaccounted(gemm::scratch_bytes(pool.members(), m, w.columns())).expect("memory");
    let mut y = Fenced::new(&vec![7.0; m * y_stride]);
    gemm(pool, m, StridedRowsMut::new(&mut y, y_stride), x, w, &mut scratch);
    y.to_vec()
}

/// Compares with sums in f64.
fn check(pool: &Pool, m: usize, n: usize, k: usize, dtype: DType) {
    let (x_stride, y_stride) = (k + 3, n + 5);
    let x = Fenced::new(&noise(m * x_stride, 3));
    let y = product(pool, m, StridedRows::new(&x, x_stride), keep(dtype, n, k).view(), y_stride);
    for (i, line) in y.chunks(y_stride).enumerate() {
        for (j, &got) in line.iter().enumerate() {
            if j >= n {
                assert_eq!(got, 7.0, "{} {dtype} {m}×{n}×{k}: between rows", pool.path());
                continue;
            }
            let terms = (0..k).map(|c| f64::from(x[i * x_stride + c]) * f64::from(value(dtype, j, c)));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), it| (sum + it, size + it.abs()));
            let bound = (1e-6 + 1.05 * f64::from(pool.path().rounding(dtype))) * size + 1e-9;
            let error = (f64::from(got) - sum).abs();
            assert!(error <= bound, "{} {dtype} {m}×{n}×{k} ({i}, {j}): {got}, exactly {sum}", pool.path());
        }
    }
}

#[test]
fn every_path_agrees_with_the_definition() {
    for pool in pools(2) {
        for dtype in FORMATS {
            for m in [1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 33] {
                for (n, k) in [(0, 5), (16, 1), (16, 31), (32, 128), (48, 129), (64, 300)] {
                    check(&pool, m, n, k, dtype);
                }
            }
            for (m, n, k) in [(1, 272, 1024), (40, 48, 2304), (7, 32, 1155), (193, 16, 256)] {
                check(&pool, m, n, k, dtype);
            }
        }
        for (m, n, k) in [(1, 1, 1), (1, 15, 31), (5, 17, 129), (13, 50, 257)] {
            check(&pool, m, n, k, DType::Fp8);
        }
    }
}

#[test]
fn each_number_alone_is_the_sum_that_it_should_be() {
    // x is one number, so that neither x nor the sum is rounded: on no path may a subnormal number
    // be taken for zero.
    for pool in pools(1) {
        for m in [1, 16] {
            for byte in (0..=255_u8).filter(|byte| byte & 127 != 127) {
                let w = Weights::from_float8(&memory(), DType::Fp8, 16, 2, |_, numbers, scales| {
                    numbers.fill(byte);
                    scales.fill(0.5);
                });
                let w = w.expect("it fits");
                let x: Vec<f32> = (0..2 * m).map(|at| if at % 2 == 0 { 3.0 } else { 0.0 }).collect();
                let y = product(&pool, m, StridedRows::new(&x, 2), w.view(), 16);
                let wanted = 1.5 * float8_value(byte);
                assert!(y.iter().all(|&y| y == wanted), "{} {byte:#x}: {y:?}, not {wanted}", pool.path());
            }
        }
    }
}

#[test]
fn quantised_values_are_within_a_sixteenth_and_the_largest_is_kept() {
    for dtype in FORMATS {
        let (rows, columns) = (48, 300);
        let values = noise(rows * columns, 5);
        let weights = Weights::from_f32(&memory(), dtype, rows, columns, &values).expect("it fits");
        let mut most = 0.0f32;
        for (at, &wanted) in values.iter().enumerate() {
            let got = weights.view().value(at / columns, at % columns);
            // Half a unit of three fraction bits, or of the smallest number, of 448 of a block.
            let bound = (wanted.abs() / 16.0).max(1.0 / 448.0 / 1024.0) * 1.001;
            assert!((got - wanted).abs() <= bound, "{dtype}: {got}, not {wanted}");
            most = most.max((got / wanted - 1.0).abs());
        }
        assert!(most > 0.01, "{dtype}: values are rounded");
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let at = values.iter().position(|value| value.abs() == largest).expect("it is there");
        let kept = weights.view().value(at / columns, at % columns);
        assert!((kept / values[at] - 1.0).abs() < 1e-6);
    }
}

#[test]
fn rows_that_are_not_whole_panels_have_no_scales_per_block() {
    for rows in [1, 15, 17] {
        let values = vec![0.0; rows * 4];
        let error = Weights::from_f32(&memory(), DType::Fp8Block, rows, 4, &values).expect_err("a part");
        assert!(matches!(error, KernelError::Panels { .. }), "{error}");
        assert!(error.to_string().contains("not whole panels of 16"), "{error}");
    }
    let error = Weights::from_float8(&memory(), DType::Bf16, 1, 2, |_, _, _| {}).expect_err("no float8");
    assert!(matches!(error, KernelError::DType { .. }), "{error}");
}
