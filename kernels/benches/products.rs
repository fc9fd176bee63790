//! Matrix products of 4096 × 4096 weights that come from memory: 2·m·n·k FLOP and the weights'
//! bytes for each call.
//!
//! `cargo bench -p fulcrum-kernels --bench products -- bf16` runs only the bf16 products. Each call
//! uses the next copy of the weights; the copies are larger than all caches. Each result is checked
//! against the definition before its rate is printed.
#![allow(missing_docs)]

#[path = "../tests/noise/mod.rs"]
mod noise;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use kernels::{
    Buffer, MemoryArena, Pool, Scratch, StridedRows, StridedRowsMut, Weights, WeightsView, affinity, gemm,
};
use noise::noise;
use std::time::{Duration, Instant};

const N: usize = 4096;
const K: usize = 4096;
/// Bytes of all copies of the weights together.
const BEYOND_CACHES: usize = 256 << 20;

fn products(criterion: &mut Criterion) {
    let memory = MemoryArena::new("weights", Bytes::new(1 << 30));
    let cores = affinity::available_cores();
    let values = noise(N * K, 1);
    let formats =
        [DType::F32, DType::Bf16, DType::Fp8, DType::Fp8Block, DType::Q8_0, DType::Int8, DType::Int4];
    for dtype in formats {
        let weights = match dtype {
            DType::Q8_0 => {
                Weights::from_blocks(&memory, dtype, N, K, |row, out| q8_0(&values[row * K..], out))
            }
            _ => Weights::from_f32(&memory, dtype, N, K, &values),
        };
        let weights = weights.expect("a matrix fits");
        let one = weights.bytes().len();
        let mut copies = Buffer::new(BEYOND_CACHES / one * one).expect("memory");
        copies.bytes_mut().chunks_exact_mut(one).for_each(|copy| copy.copy_from_slice(weights.bytes()));
        for threads in [1, cores.len()] {
            let pool = Pool::new(&cores[..threads]).expect("our cores");
            pool.pin_caller().expect("our core");
            for m in [1, 8, 64, 512] {
                product(criterion, &pool, &weights, &copies, m);
            }
        }
    }
}

/// Quantises values of magnitude at most 1 to blocks of 32 signed bytes behind an f16 scale.
fn q8_0(values: &[f32], out: &mut [u8]) {
    let scale = half::f16::from_f32(1.0 / 127.0);
    for (block, values) in out.chunks_exact_mut(34).zip(values.chunks_exact(32)) {
        block[..2].copy_from_slice(&scale.to_le_bytes());
        let bytes = block[2..].iter_mut().zip(values);
        bytes.for_each(|(byte, value)| *byte = (value * 127.0).round() as i8 as u8);
    }
}

fn product(criterion: &mut Criterion, pool: &Pool, weights: &Weights, copies: &Buffer, m: usize) {
    let (dtype, one, threads) = (weights.view().dtype(), weights.bytes().len(), pool.members());
    let x = noise(m * K, 2);
    let mut y = vec![0.0; m * N];
    let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(threads, m, K)).expect("memory");
    let mut copies = copies.bytes().chunks_exact(one).cycle();
    let mut fastest = f64::INFINITY;
    let mut group = criterion.benchmark_group(format!("{dtype} by {threads} threads ({})", pool.path()));
    group.throughput(Throughput::ElementsAndBytes { elements: (2 * m * N * K) as u64, bytes: one as u64 });
    group.bench_function(BenchmarkId::from_parameter(m), |bencher| {
        bencher.iter_custom(|calls| {
            let start = Instant::now();
            for _ in 0..calls {
                let bytes = copies.next().expect("at least one copy");
                let w = WeightsView::new(dtype, N, K, bytes).expect("packed bytes");
                let (y, x) = (StridedRowsMut::new(&mut y, N), StridedRows::new(&x, K));
                gemm(pool, m, y, x, w, &mut scratch);
            }
            let took = start.elapsed();
            fastest = fastest.min(took.as_secs_f64() / calls as f64);
            took
        });
    });
    group.finish();
    if fastest.is_finite() {
        check(weights, &x, &y, m);
        let (work, bytes) = ((2 * m * N * K) as f64, one as f64);
        println!("    best: {:.1} GFLOP/s, {:.2} GB/s", work / fastest * 1e-9, bytes / fastest * 1e-9);
    }
}

/// Compares the last output with its sum in f64.
fn check(weights: &Weights, x: &[f32], y: &[f32], m: usize) {
    let mut row = vec![0.0; K];
    weights.view().row(N - 1, &mut row);
    let terms = x[(m - 1) * K..].iter().zip(&row).map(|(x, w)| f64::from(*x) * f64::from(*w));
    let (wanted, got) = (terms.sum::<f64>(), f64::from(y[m * N - 1]));
    // Some paths round 4096 products to bf16.
    assert!((got - wanted).abs() < 0.25, "{got} where {wanted} is right");
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = products
}
criterion_main!(benches);
