//! Products with weights in the blocks of files: every path and format against the definition.

use crate::fence::Fenced;
use crate::noise::noise;
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use kernels::{
    GemmGroup, KernelError, MemoryArena, Path, Pool, Scratch, StridedRows, StridedRowsMut, Weights,
    WeightsView, affinity, dequantise, gather, gemm, grouped_gemm, moderate_scales,
};

const FORMATS: [DType; 9] = [
    DType::Q8_0,
    DType::Q6K,
    DType::Q5K,
    DType::Q4K,
    DType::Q4_0,
    DType::Iq4Xs,
    DType::Iq4Nl,
    DType::Mxfp4,
    DType::Nvfp4,
];

/// Columns and bytes of a file's block.
fn block(dtype: DType) -> (usize, usize) {
    let size = dtype.block();
    // Files have the four scales of 64 values together.
    let times = if dtype == DType::Nvfp4 { 4 } else { 1 };
    ((times * size.values) as usize, (times * size.bytes) as usize)
}

/// Random blocks of a matrix, row by row.
fn random_blocks(dtype: DType, rows: usize, columns: usize, seed: u64) -> Vec<u8> {
    let (values, bytes) = block(dtype);
    let random = noise(rows * columns / values * bytes, seed);
    let mut blocks: Vec<u8> = random.into_iter().map(|value| ((value + 1.0) * 1e4) as i32 as u8).collect();
    moderate_scales(dtype, &mut blocks);
    blocks
}

fn keep(dtype: DType, rows: usize, columns: usize, blocks: &[u8]) -> Weights {
    let memory = MemoryArena::new("test", Bytes::new(1 << 30));
    let row = blocks.len() / rows.max(1);
    Weights::from_scaled_blocks(&memory, dtype, rows, columns, |index, out| {
        out.copy_from_slice(&blocks[index * row..][..row]);
        row_scale(dtype, index)
    })
    .expect("fits")
}

/// The scale of a row: numbers that are no powers of two, in the format that has them.
fn row_scale(dtype: DType, row: usize) -> f32 {
    if dtype == DType::Nvfp4 { 0.3 + (row % 7) as f32 / 3.0 } else { 1.0 }
}

fn pools(members: usize) -> Vec<Pool> {
    let cores = affinity::available_cores();
    let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
    let pool = |path| Pool::new(&cores).expect("our cores").with_path(path);
    Path::supported().into_iter().map(pool).collect()
}

fn product(
    pool: &Pool,
    m: usize,
    x: &[f32],
    x_stride: usize,
    w: WeightsView<'_>,
    y_stride: usize,
) -> Vec<f32> {
    let fenced = Fenced::new(w.bytes());
    let w = WeightsView::new(w.dtype(), w.rows(), w.columns(), &fenced).expect("the same bytes");
    let mut scratch =
        Scratch::unaccounted(gemm::scratch_bytes(pool.members(), m, w.columns())).expect("memory");
    let mut y = Fenced::new(&vec![7.0; m * y_stride]);
    let (to, x) = (StridedRowsMut::new(&mut y, y_stride), StridedRows::new(x, x_stride));
    gemm(pool, m, to, x, w, &mut scratch);
    y.to_vec()
}

#[test]
fn kept_blocks_have_the_values_of_the_file_and_its_number_of_bytes() {
    for dtype in FORMATS {
        let columns = 3 * block(dtype).0;
        for rows in [1, 16, 37] {
            let blocks = random_blocks(dtype, rows, columns, 1);
            let mut wanted = vec![0.0; rows * columns];
            assert!(dequantise(dtype, &blocks, &mut wanted));
            let largest = wanted.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            assert!((0.3..=1.001).contains(&largest), "{dtype}: moderate scales make {largest}");
            for (row, values) in wanted.chunks_mut(columns).enumerate() {
                values.iter_mut().for_each(|value| *value *= row_scale(dtype, row));
            }
            let weights = keep(dtype, rows, columns, &blocks);
            let own = if dtype == DType::Nvfp4 { 4 * rows } else { 0 };
            assert_eq!(weights.bytes().len(), blocks.len() + own);
            let mut line = vec![0.0; columns];
            for (row, wanted) in wanted.chunks(columns).enumerate() {
                weights.view().row(row, &mut line);
                assert_eq!(line, wanted, "{dtype}");
                assert_eq!(weights.view().value(row, columns - 1), wanted[columns - 1]);
                assert!(wanted.iter().any(|value| *value != wanted[0]), "{dtype}: random values differ");
            }
            let mut gathered = vec![0.0; 2 * columns];
            gather(&pools(1)[0], &mut gathered, weights.view(), &[rows as u32 - 1, 0]);
            assert_eq!(gathered[..columns], wanted[(rows - 1) * columns..]);
            assert_eq!(gathered[columns..], wanted[..columns]);
        }
    }
}

/// Compares with sums in f64 of the dequantised values.
fn check(pool: &Pool, m: usize, n: usize, k: usize, dtype: DType) {
    let (x_stride, y_stride) = (k + 3, n + 5);
    let x = Fenced::new(&noise(m * x_stride, 3));
    let weights = keep(dtype, n, k, &random_blocks(dtype, n, k, 4 + n as u64));
    let y = product(pool, m, &x, x_stride, weights.view(), y_stride);
    let mut line = vec![0.0; k];
    for j in 0..y_stride {
        if j < n {
            weights.view().row(j, &mut line);
        }
        let weight: f64 = line.iter().map(|w| f64::from(w.abs())).sum();
        let largest = line.iter().fold(0.0f32, |largest, w| largest.max(w.abs()));
        for i in 0..m {
            let got = y[i * y_stride + j];
            if j >= n {
                assert_eq!(got, 7.0, "{} {dtype} {m}×{n}×{k}: between rows", pool.path());
                continue;
            }
            let x = &x[i * x_stride..][..k];
            let sum: f64 = x.iter().zip(&line).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            // A format with a minimum subtracts numbers up to twice as large as the largest value.
            let size: f64 = x.iter().map(|x| f64::from(x.abs() * largest)).sum();
            let bound = 2e-6 * size + 1.05 * f64::from(pool.path().rounding(dtype)) * weight + 1e-9;
            let error = (f64::from(got) - sum).abs();
            assert!(error <= bound, "{} {dtype} {m}×{n}×{k} ({i}, {j}): {got}, exactly {sum}", pool.path());
        }
    }
}

#[test]
fn every_path_and_format_agrees_with_the_definition() {
    for pool in pools(2) {
        for dtype in FORMATS {
            let columns = block(dtype).0;
            for m in [1, 2, 3, 4, 5, 9, 33] {
                for (n, blocks) in [(0, 1), (1, 1), (15, 2), (16, 1), (17, 3), (48, 2)] {
                    check(&pool, m, n, blocks * columns, dtype);
                }
            }
            check(&pool, 1, 272, 1024, dtype);
            check(&pool, 40, 50, 2304, dtype);
        }
    }
}

#[test]
fn products_are_the_same_bits_by_avx512_as_by_avx2_and_by_any_number_of_members() {
    let wide = Path::Avx512.is_supported() && is_x86_feature_detected!("avx512vnni");
    println!("AVX-512 VNNI: {}", if wide { "real" } else { "absent, so that both are AVX2" });
    for dtype in FORMATS {
        let k = 2 * block(dtype).0;
        for (m, n) in [(1, 16), (3, 40), (6, 129)] {
            let x = noise(m * k, 5);
            let weights = keep(dtype, n, k, &random_blocks(dtype, n, k, 6));
            let fast = |pool: &Pool| [Path::Avx2, Path::Avx512].contains(&pool.path());
            let all: Vec<_> = pools(1).into_iter().chain(pools(3)).filter(fast).collect();
            let results: Vec<_> = all.iter().map(|pool| product(pool, m, &x, k, weights.view(), n)).collect();
            assert!(results.iter().all(|y| y == &results[0]), "{dtype} {m}×{n}");
        }
    }
}

#[test]
fn experts_in_one_call_are_a_call_for_each() {
    let heights = [5, 0, 40, 1];
    for dtype in FORMATS {
        let (k, n) = (block(dtype).0, 40);
        let experts: Vec<_> =
            (0..4).map(|expert| keep(dtype, n, k, &random_blocks(dtype, n, k, expert))).collect();
        let mut end = 0;
        let group = |(weights, rows): (&'_ Weights, usize)| {
            end += rows;
            (end - rows..end, weights.view().rows())
        };
        let rows: Vec<_> = experts.iter().zip(heights).map(group).collect();
        let x = noise(end * k, 8);
        for pool in pools(2) {
            let groups: Vec<_> = experts
                .iter()
                .zip(&rows)
                .map(|(weights, (rows, _))| GemmGroup { rows: rows.clone(), w: weights.view() })
                .collect();
            let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(2, end, k)).expect("memory");
            let mut together = vec![0.0; end * n];
            let y = StridedRowsMut::new(&mut together, n);
            grouped_gemm(&pool, &groups, y, StridedRows::new(&x, k), &mut scratch);
            for (weights, (rows, _)) in experts.iter().zip(&rows) {
                let apart = product(&pool, rows.len(), &x[rows.start * k..], k, weights.view(), n);
                assert_eq!(together[rows.start * n..rows.end * n], apart, "{dtype} {}", pool.path());
            }
        }
    }
}

#[test]
fn an_infinity_in_x_is_no_number_in_y() {
    for pool in pools(1) {
        let weights = keep(DType::Q4K, 16, 256, &random_blocks(DType::Q4K, 16, 256, 9));
        let mut x = noise(256, 10);
        x[40] = f32::INFINITY;
        let y = product(&pool, 1, &x, 256, weights.view(), 16);
        assert!(y.iter().all(|y| !y.is_finite()), "{}: {y:?}", pool.path());
    }
}

#[test]
fn rows_that_are_not_whole_blocks_and_values_to_quantise_are_refused() {
    let memory = MemoryArena::new("test", Bytes::new(1 << 20));
    let error = Weights::from_blocks(&memory, DType::Q4K, 1, 200, |_, _| {}).expect_err("a part");
    let text = "rows of 200 columns are not whole blocks of 256, in which q4_k is stored";
    assert_eq!(error.to_string(), text);
    let error = Weights::from_f32(&memory, DType::Q6K, 1, 256, &[0.0; 256]).expect_err("no quantiser");
    assert!(matches!(error, KernelError::Quantise { dtype: DType::Q6K }), "{error}");
    let error = Weights::from_blocks(&memory, DType::Bf16, 1, 2, |_, _| {}).expect_err("no blocks");
    assert!(matches!(error, KernelError::DType { .. }), "{error}");
}
