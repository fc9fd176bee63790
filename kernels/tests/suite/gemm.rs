//! Every path of the matrix product against the definition, on awkward shapes.

use crate::fence::Fenced;
use crate::noise::noise;
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use kernels::{
    GemmGroup, MemoryArena, PANEL, Path, Pool, Scratch, StridedRows, StridedRowsMut, Weights, WeightsView,
    affinity, gemm, grouped_gemm,
};

const FORMATS: [DType; 5] = [DType::F32, DType::Bf16, DType::Fp8, DType::Int8, DType::Int4];

fn memory() -> MemoryArena {
    MemoryArena::new("test", Bytes::new(1 << 32))
}

fn pools(members: usize) -> Vec<Pool> {
    let cores = affinity::available_cores();
    let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
    let pool = |path| Pool::new(&cores).expect("our cores").with_path(path);
    Path::supported().into_iter().map(pool).collect()
}

/// y = x·Wᵀ in f64 from the dequantised values; for the bound of the error also Σ|x·w| and Σ|w|.
fn exact(m: usize, x: &[f32], x_stride: usize, w: WeightsView<'_>) -> Vec<(f64, f64, f64)> {
    let mut lines = vec![0.0; w.columns()];
    let mut out = vec![(0.0, 0.0, 0.0); m * w.rows()];
    for n in 0..w.rows() {
        w.row(n, &mut lines);
        for i in 0..m {
            let terms = x[i * x_stride..].iter().zip(&lines).map(|(x, w)| (f64::from(*x), f64::from(*w)));
            let add = |(sum, size, weight): (f64, f64, f64), (x, w): (f64, f64)| {
                (sum + x * w, size + (x * w).abs(), weight + w.abs())
            };
            out[i * w.rows() + n] = terms.fold((0.0, 0.0, 0.0), add);
        }
    }
    out
}

fn check(pool: &Pool, m: usize, n: usize, k: usize, dtype: DType) {
    let (x_stride, y_stride) = (k + 3, n + 5);
    let x = Fenced::new(&noise(m * x_stride, 1 + k as u64));
    let weights = Weights::from_f32(&memory(), dtype, n, k, &noise(n * k, 2 + n as u64)).expect("fits");
    let fenced = Fenced::new(weights.bytes());
    let w = WeightsView::new(dtype, n, k, &fenced).expect("the same bytes");
    let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(pool.members(), m, k)).expect("memory");
    let mut y = Fenced::new(&vec![7.0; m * y_stride]);
    let (y_rows, x_rows) = (StridedRowsMut::new(&mut y, y_stride), StridedRows::new(&x, x_stride));
    gemm(pool, m, y_rows, x_rows, w, &mut scratch);
    let exact = exact(m, &x, x_stride, w);
    for i in 0..m {
        for j in 0..y_stride {
            let got = y[i * y_stride + j];
            if j >= n {
                assert_eq!(got, 7.0, "{} {dtype} {m}×{n}×{k}: between rows at ({i}, {j})", pool.path());
                continue;
            }
            let (sum, size, weight) = exact[i * n + j];
            // Each sum is rounded to f32, and some paths round x, whose magnitude is at most 1.
            let rounding = match pool.path().rounding(dtype) {
                share if matches!(dtype, DType::Bf16 | DType::Fp8) => f64::from(share) * size,
                share => f64::from(share) * weight,
            };
            let bound = 1e-6 * size + 1.05 * rounding + 1e-6;
            let error = (f64::from(got) - sum).abs();
            assert!(
                error <= bound,
                "{} {dtype} {m}×{n}×{k} at ({i}, {j}): {got}, exactly {sum}",
                pool.path()
            );
        }
    }
}

#[test]
fn every_path_and_format_agrees_with_the_definition_on_awkward_shapes() {
    for pool in pools(2) {
        for dtype in FORMATS {
            for m in [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17] {
                for (n, k) in [(0, 8), (1, 1), (15, 31), (16, 32), (17, 33), (32, 3), (48, 64), (50, 257)] {
                    check(&pool, m, n, k, dtype);
                }
            }
        }
    }
}

#[test]
fn blocks_of_rows_and_columns_join_without_seams() {
    for pool in pools(2) {
        for dtype in FORMATS {
            for (m, n, k) in [
                (1, 272, 1024),
                (2, 144, 70),
                (3, 300, 65),
                (6, 64, 513),
                (7, 40, 512),
                (191, 33, 300),
                (193, 17, 256),
                (400, 16, 70),
            ] {
                check(&pool, m, n, k, dtype);
            }
        }
    }
}

#[test]
fn integer_products_are_the_same_bits_by_avx512_as_by_avx2() {
    let [avx2, avx512] = [Path::Avx2, Path::Avx512];
    if !avx512.is_supported() || !is_x86_feature_detected!("avx512vnni") {
        return println!("absent: this CPU has no AVX-512 VNNI, so both are AVX2");
    }
    println!("AVX-512 VNNI: real");
    let cores = affinity::available_cores();
    let pools = [avx2, avx512].map(|path| Pool::new(&cores[..1]).expect("our core").with_path(path));
    for dtype in [DType::Int8, DType::Int4] {
        for m in (1..=14).chain([25, 193]) {
            for (n, k) in [(1, 1), (16, 32), (17, 33), (48, 545), (32, 1100)] {
                let x = noise(m * k, 11 + m as u64);
                let weights = Weights::from_f32(&memory(), dtype, n, k, &noise(n * k, 12)).expect("fits");
                let [a, b] = [0, 1].map(|which| {
                    let mut y = vec![0.0; m * n];
                    let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(1, m, k)).expect("memory");
                    let (y_rows, x_rows) = (StridedRowsMut::new(&mut y, n), StridedRows::new(&x, k));
                    gemm(&pools[which], m, y_rows, x_rows, weights.view(), &mut scratch);
                    y
                });
                let same = a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{dtype} {m}×{n}×{k}");
            }
        }
    }
}

#[test]
fn a_call_for_several_experts_is_a_call_for_each_bit_for_bit() {
    let (k, stride) = (70, 240);
    // The rows of each expert; some experts have none, and some rows between them belong to no
    // expert.
    for heights in [&[1][..], &[0, 3, 0], &[5, 1, 0, 130, 2], &[1; 9], &[40, 200, 1, 14, 13]] {
        for dtype in FORMATS {
            let experts: Vec<_> = (0..heights.len())
                .map(|expert| {
                    let n = [50, 234, 48][expert % 3];
                    Weights::from_f32(&memory(), dtype, n, k, &noise(n * k, 20 + expert as u64))
                        .expect("fits")
                })
                .collect();
            let mut end = 0;
            let mut groups = Vec::new();
            for (weights, rows) in experts.iter().zip(heights) {
                end += rows + 1;
                groups.push(GemmGroup { rows: end - rows..end, w: weights.view() });
            }
            let x = noise(end * k, 19);
            let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(3, end, k)).expect("memory");
            for pool in pools(2).into_iter().chain(pools(3)) {
                let (mut together, mut apart) = (vec![7.0; end * stride], vec![7.0; end * stride]);
                let y = StridedRowsMut::new(&mut together, stride);
                grouped_gemm(&pool, &groups, y, StridedRows::new(&x, k), &mut scratch);
                for GemmGroup { rows, w } in &groups {
                    let (y, x) = (&mut apart[rows.start * stride..], &x[rows.start * k..]);
                    let (y, x) = (StridedRowsMut::new(y, stride), StridedRows::new(x, k));
                    gemm(&pool, rows.len(), y, x, *w, &mut scratch);
                }
                assert_eq!(together, apart, "{dtype} {} {heights:?}", pool.path());
            }
        }
    }
}

#[test]
#[should_panic(expected = "groups' rows are in order")]
fn groups_that_share_a_row_are_refused() {
    let weights = Weights::from_f32(&memory(), DType::F32, 1, 1, &[1.0]).expect("fits");
    let group = |rows| GemmGroup { rows, w: weights.view() };
    let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(1, 3, 1)).expect("memory");
    let pool = pools(1).remove(0);
    let (mut y, x) = ([0.0; 3], [1.0; 3]);
    let (y, x) = (StridedRowsMut::new(&mut y, 1), StridedRows::new(&x, 1));
    grouped_gemm(&pool, &[group(0..2), group(1..3)], y, x, &mut scratch);
}

#[test]
fn without_columns_the_product_is_zero() {
    for pool in pools(1) {
        check(&pool, 2, 3, 0, DType::F32);
    }
}

#[test]
fn the_result_does_not_depend_on_the_number_of_members() {
    let (m, n, k) = (9, 200, 300);
    let x = noise(m * k, 3);
    for dtype in FORMATS {
        let weights = Weights::from_f32(&memory(), dtype, n, k, &noise(n * k, 4)).expect("fits");
        for m in [1, m] {
            let run = |pool: &Pool| {
                let mut y = vec![0.0; m * n];
                let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(3, m, k)).expect("memory");
                let (y_rows, x_rows) = (StridedRowsMut::new(&mut y, n), StridedRows::new(&x, k));
                gemm(pool, m, y_rows, x_rows, weights.view(), &mut scratch);
                y
            };
            for (one, three) in pools(1).iter().zip(&pools(3)) {
                assert_eq!(run(one), run(three), "{dtype} {}", one.path());
            }
        }
    }
}

#[test]
fn a_matrix_takes_exactly_the_bytes_of_its_format() {
    for dtype in FORMATS {
        for (n, k) in [(0, 5), (5, 0), (1, 1), (16, 32), (17, 33), (31, 100)] {
            let weights = Weights::from_f32(&memory(), dtype, n, k, &noise(n * k, 5)).expect("fits");
            assert_eq!(weights.bytes().len() as u64, dtype.matrix_bytes(n as u64, k as u64).get());
        }
    }
}

#[test]
fn a_range_of_rows_is_a_range_of_bytes_that_can_be_copied_anywhere() {
    let (n, k) = (3 * PANEL + 7, 70);
    for dtype in FORMATS {
        let weights = Weights::from_f32(&memory(), dtype, n, k, &noise(n * k, 6)).expect("fits");
        let whole = weights.view();
        let part = whole.row_range(PANEL, n);
        // The copy is one byte off every alignment.
        let mut copy = vec![0; part.bytes().len() + 1];
        copy[1..].copy_from_slice(part.bytes());
        let copied = WeightsView::new(dtype, n - PANEL, k, &copy[1..]).expect("the right size");
        for row in 0..n - PANEL {
            for column in 0..k {
                assert_eq!(copied.value(row, column), whole.value(row + PANEL, column), "{dtype}");
            }
        }
    }
}

#[test]
fn unquantised_formats_keep_their_values_and_integers_keep_them_within_a_step() {
    let (n, k) = (19, 45);
    let values = noise(n * k, 8);
    for dtype in FORMATS {
        let weights = Weights::from_f32(&memory(), dtype, n, k, &values).expect("fits");
        let tolerance = match dtype {
            DType::F32 => 0.0,
            DType::Bf16 => 1.0 / 256.0,
            DType::Int8 => 0.55 / 127.0,
            _ => 0.55 / 7.0,
        };
        for row in 0..n {
            for column in 0..k {
                let (got, was) = (weights.view().value(row, column), values[row * k + column]);
                assert!((got - was).abs() <= tolerance, "{dtype} ({row}, {column}): {got}, was {was}");
            }
        }
    }
}

#[test]
fn bf16_sources_pack_like_the_same_values_in_f32() {
    let wide: Vec<f32> = noise(20 * 40, 9).iter().map(|v| half::bf16::from_f32(*v).to_f32()).collect();
    let narrow: Vec<half::bf16> = wide.iter().map(|v| half::bf16::from_f32(*v)).collect();
    for dtype in FORMATS {
        let a = Weights::from_f32(&memory(), dtype, 20, 40, &wide).expect("fits");
        let b = Weights::from_bf16(&memory(), dtype, 20, 40, &narrow).expect("fits");
        assert_eq!(a.bytes(), b.bytes(), "{dtype}");
    }
}

#[test]
fn bytes_of_the_wrong_size_and_formats_without_a_kernel_are_refused() {
    let error = WeightsView::new(DType::Int8, 16, 64, &[0; 100]).expect_err("too short").to_string();
    assert_eq!(error, "a matrix of 16 × 64 in int8 needs 1088 bytes, not 100");
    let error = WeightsView::new(DType::F16, 1, 1, &[0]).expect_err("no kernel").to_string();
    assert_eq!(
        error,
        "weights in f16 are not supported: use one of f32, bf16, fp8, fp8_block, int8, int4, q8_0, q6_k, q5_k, q4_k, q4_0, iq4_xs, iq4_nl, mxfp4, nvfp4"
    );
    let error = Weights::from_f32(&memory(), DType::F32, 2, 2, &[0.0; 3]).expect_err("too few").to_string();
    assert!(error.contains("16 bytes, not 12"), "{error}");
}

#[test]
fn a_stride_that_overflows_is_refused_before_anything_is_written() {
    let weights = Weights::from_f32(&memory(), DType::F32, 1, 1, &[1.0]).expect("fits");
    let pool = pools(1).remove(0);
    // Row 2 of rows that are 2⁶³ apart wraps around to row 0.
    for (x_stride, y_stride) in [(1 << 63, 1), (1, 1 << 63), (usize::MAX, 1), (1, usize::MAX)] {
        let (x, mut y) = ([1.0; 3], [7.0; 3]);
        let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(1, 3, 1)).expect("memory");
        let call = std::panic::AssertUnwindSafe(|| {
            let (y, x) = (StridedRowsMut::new(&mut y, y_stride), StridedRows::new(&x, x_stride));
            gemm(&pool, 3, y, x, weights.view(), &mut scratch);
        });
        let panic = std::panic::catch_unwind(call).expect_err("the rows are not there");
        let text = panic.downcast_ref::<String>().expect("a message");
        assert!(text.contains("is too short for 3 × 1"), "{text}");
        assert_eq!(y, [7.0; 3]);
    }
}
