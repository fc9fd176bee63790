//! The gain of newer forms of a product, as ratios of calls that take turns: integer weights by
//! AVX-512 and by AVX2, one call for several experts and a call for each, sparse weights and dense
//! ones.
//!
//! `cargo bench -p fulcrum-kernels --bench experts`. Weights are larger than the caches, so they
//! come from memory. Printed are each side's fastest call with their ratio, and the median and the
//! middle half of the rounds' ratios. The fastest calls matter on a busy machine.
#![allow(missing_docs)]

#[path = "../tests/noise/mod.rs"]
mod noise;

use hwprofiles::DType;
use hwprofiles::units::Bytes;
use kernels::{
    GemmGroup, MemoryArena, Path, Pool, Scratch, SparseWeights, StridedRows, StridedRowsMut, Weights,
};
use kernels::{affinity, gemm, grouped_gemm, sparse_gemm};
use noise::noise;
use std::time::Instant;

const ROUNDS: usize = 21;
const N: usize = 2048;
const K: usize = 2048;
/// Matrices of N × K, which together are larger than the caches in every format.
const MATRICES: usize = 16;

/// Times `before` and `after` in turn. Their outputs may differ as much as rounding to bf16 makes
/// them (AMX rounds x and the weights).
fn compare(name: &str, size: usize, mut before: impl FnMut(&mut [f32]), mut after: impl FnMut(&mut [f32])) {
    let (mut a, mut b) = (vec![0.0; size], vec![0.0; size]);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let start = Instant::now();
        before(&mut a);
        let middle = Instant::now();
        after(&mut b);
        times[0].push((middle - start).as_secs_f64());
        times[1].push(middle.elapsed().as_secs_f64());
    }
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
    let error = square(&mut a.iter().zip(&b).map(|(a, b)| a - b));
    let share = (error / square(&mut a.iter().copied())).sqrt();
    assert!(share <= 1.0 / 128.0, "{name}: the results differ by {share:.4} of their size");
    let mut ratios: Vec<f64> = times[0].iter().zip(&times[1]).map(|(before, after)| before / after).collect();
    let at = |values: &mut Vec<f64>, share: f64| {
        values.sort_by(f64::total_cmp);
        values[(share * (values.len() - 1) as f64).round() as usize]
    };
    let (low, middle, high) = (at(&mut ratios, 0.25), at(&mut ratios, 0.5), at(&mut ratios, 0.75));
    let [before, after] = times.each_mut().map(|times| at(times, 0.0) * 1e3);
    let best = before / after;
    println!(
        "{name:52} fastest {before:8.3} {after:8.3} ms {best:5.2}  rounds {middle:5.2} ({low:.2}–{high:.2})"
    );
}

fn main() {
    let cores = affinity::available_cores();
    let memory = MemoryArena::new("weights", Bytes::new(4 << 30));
    for count in [1, cores.len()] {
        let pool = |path| Pool::new(&cores[..count]).expect("our cores").with_path(path);
        let pools = [pool(Path::Avx2), pool(Path::best())];
        pools[0].pin_caller().expect("our core");
        for dtype in [DType::Int8, DType::Int4] {
            let w = Weights::from_f32(&memory, dtype, MATRICES * N, K, &noise(MATRICES * N * K, 1))
                .expect("memory");
            [1, 4, 16, 64].into_iter().for_each(|m| vectors(&pools, &w, m));
            experts(&pools[1], &w);
        }
        sparse(&pools[1], &memory);
    }
}

/// AVX2, then the best path.
fn vectors(pools: &[Pool; 2], w: &Weights, m: usize) {
    let (w, x) = (w.view(), noise(m * K, 1));
    let [avx2, best] = pools;
    let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(avx2.members(), m, K)).expect("memory");
    let mut other = Scratch::unaccounted(gemm::scratch_bytes(best.members(), m, K)).expect("memory");
    compare(
        &format!("{} threads, {}, {m} rows: avx2, {}", avx2.members(), w.dtype(), best.path()),
        m * w.rows(),
        |y| gemm(avx2, m, StridedRowsMut::new(y, w.rows()), StridedRows::new(&x, K), w, &mut scratch),
        |y| gemm(best, m, StridedRowsMut::new(y, w.rows()), StridedRows::new(&x, K), w, &mut other),
    );
}

/// A call for each expert, then one call for all. The rows are as unequal as those of a router.
fn experts(pool: &Pool, w: &Weights) {
    let heights = [19, 1, 0, 3, 1, 2, 0, 1, 7, 1, 0, 4, 1, 1, 2, 5];
    let (view, m) = (w.view(), heights.iter().sum::<usize>());
    let mut end = 0;
    let mut groups = Vec::new();
    for (expert, rows) in heights.into_iter().enumerate() {
        end += rows;
        groups.push(GemmGroup { rows: end - rows..end, w: view.row_range(expert * N, (expert + 1) * N) });
    }
    let x = noise(m * K, 1);
    let scratch = || Scratch::unaccounted(gemm::scratch_bytes(pool.members(), m, K)).expect("memory");
    let (mut one, mut other) = (scratch(), scratch());
    compare(
        &format!("{} threads, {}, 16 experts: apart, together", pool.members(), view.dtype()),
        m * N,
        |y| {
            for GemmGroup { rows, w } in &groups {
                let y = StridedRowsMut::new(&mut y[rows.start * N..], N);
                gemm(pool, rows.len(), y, StridedRows::new(&x[rows.start * K..], K), *w, &mut one);
            }
        },
        |y| grouped_gemm(pool, &groups, StridedRowsMut::new(y, N), StridedRows::new(&x, K), &mut other),
    );
}

/// Dense bf16, then the same matrix without its zeros.
fn sparse(pool: &Pool, memory: &MemoryArena) {
    let n = MATRICES * N / 4;
    for zeros in [0, 5, 9] {
        let mut values = noise(n * K, 1);
        values.iter_mut().enumerate().filter(|(i, _)| i * 7919 % 10 < zeros).for_each(|(_, w)| *w = 0.0);
        let dense = Weights::from_f32(memory, DType::Bf16, n, K, &values).expect("memory");
        let sparse = SparseWeights::from_f32(memory, n, K, &values).expect("memory");
        for m in [1, 8] {
            let x = noise(m * K, 1);
            let scratch = || Scratch::unaccounted(gemm::scratch_bytes(pool.members(), m, K)).expect("memory");
            let (mut one, mut other) = (scratch(), scratch());
            compare(
                &format!("{} threads, {zeros}0 % zeros, {m} rows: dense, sparse", pool.members()),
                m * n,
                |y| gemm(pool, m, StridedRowsMut::new(y, n), StridedRows::new(&x, K), dense.view(), &mut one),
                |y| {
                    sparse_gemm(
                        pool,
                        m,
                        StridedRowsMut::new(y, n),
                        StridedRows::new(&x, K),
                        &sparse,
                        &mut other,
                    )
                },
            );
        }
    }
}
