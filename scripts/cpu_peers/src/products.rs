//! Fulcrum's f32 product beside the `gemm` crate's and OpenBLAS's: y (m × n) = x (m × k) · Wᵀ.

use crate::contest::{Contender, contest};
use gemm::Parallelism;
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use kernels::{MemoryArena, Pool, Scratch, StridedRows, StridedRowsMut, Weights};
use std::cell::RefCell;

const ROW_MAJOR: i32 = 101;
const AS_IT_IS: i32 = 111;
const TRANSPOSED: i32 = 112;

unsafe extern "C" {
    fn cblas_sgemm(
        order: i32,
        transpose_a: i32,
        transpose_b: i32,
        m: i32,
        n: i32,
        k: i32,
        alpha: f32,
        a: *const f32,
        a_stride: i32,
        b: *const f32,
        b_stride: i32,
        beta: f32,
        c: *mut f32,
        c_stride: i32,
    );
    fn openblas_set_num_threads(threads: i32);
    fn openblas_get_config() -> *const std::ffi::c_char;
}

/// Starts the peers' threads, before the caller is pinned to a core: threads inherit that.
pub fn wake_the_peers(threads: usize) {
    // SAFETY: the text is the library's own, for ever.
    let config = unsafe { std::ffi::CStr::from_ptr(openblas_get_config()) };
    println!("{}", config.to_string_lossy());
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("the first pool");
    rayon::broadcast(|_| ());
    // SAFETY: the call sets a number.
    unsafe { openblas_set_num_threads(threads as i32) };
}

/// Products of matrices in memory (4096 × 4096) and of one that the caches hold, by the threads of
/// `pools`.
pub fn compare(pools: &[Pool], runs: usize) {
    pools[0].pin_caller().expect("our core");
    // SAFETY: the call sets a number.
    unsafe { openblas_set_num_threads(pools[0].members() as i32) };
    for (m, n, k) in
        [(8, 4096, 4096), (64, 4096, 4096), (512, 4096, 4096), (384, 384, 384), (1024, 1024, 1024)]
    {
        one(pools, m, n, k, runs);
    }
}

fn noise(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i + seed) * 2_654_435_761 % 65_521) as f32 / 32_768.0 - 1.0).collect()
}

fn one(pools: &[Pool], m: usize, n: usize, k: usize, runs: usize) {
    let threads = pools[0].members();
    let (x, w) = (noise(m * k, 1), noise(n * k, 2));
    let memory = MemoryArena::new("weights", Bytes::new(1 << 32));
    let packed = Weights::from_f32(&memory, DType::F32, n, k, &w).expect("memory");
    let y = RefCell::new(vec![0.0f32; m * n]);
    let (x, w, y) = (&x, &w, &y);
    let mut scratches: Vec<_> = pools
        .iter()
        .map(|pool| Scratch::unaccounted(kernels::gemm::scratch_bytes(pool.members(), m, k)).expect("memory"))
        .collect();
    let blas = move || {
        let (m, n, k) = (m as i32, n as i32, k as i32);
        let (mut y, x, w) = (y.borrow_mut(), x.as_ptr(), w.as_ptr());
        let y = y.as_mut_ptr();
        // SAFETY: the matrices have these shapes.
        unsafe { cblas_sgemm(ROW_MAJOR, AS_IT_IS, TRANSPOSED, m, n, k, 1.0, x, k, w, k, 0.0, y, n) };
    };
    let crate_gemm = move || {
        let parallelism = if threads == 1 { Parallelism::None } else { Parallelism::Rayon(threads) };
        let (y, row) = (y.borrow_mut().as_mut_ptr(), k as isize);
        // SAFETY: the matrices have these shapes; W is read by columns.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                y,
                1,
                n as isize,
                false,
                x.as_ptr(),
                1,
                row,
                w.as_ptr(),
                row,
                1,
                0.0f32,
                1.0f32,
                false,
                false,
                false,
                parallelism,
            );
        }
    };
    let mut contenders =
        vec![Contender::new("OpenBLAS", false, blas), Contender::new("gemm crate", false, crate_gemm)];
    for (pool, scratch) in pools.iter().zip(&mut scratches) {
        let packed = packed.view();
        let work = move || {
            let mut y = y.borrow_mut();
            let (y, x) = (StridedRowsMut::new(&mut y, n), StridedRows::new(x, k));
            kernels::gemm(pool, m, y, x, packed, scratch);
        };
        contenders.push(Contender::new(format!("ours, {}", pool.path()), true, work));
    }
    let results = contenders.iter_mut().map(|contender| {
        y.borrow_mut().fill(0.0);
        (contender.work)();
        y.borrow().clone()
    });
    let results: Vec<Vec<f32>> = results.collect();
    for (result, contender) in results.iter().zip(&contenders) {
        let error = result.iter().zip(&results[0]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error < 1e-3 * (k as f32).sqrt(), "{} differs by {error}", contender.name);
    }
    let flop = 2.0 * (m * n * k) as f64;
    contest(&format!("f32 m = {m}, n = {n}, k = {k}, {threads} threads"), "GFLOP/s", flop, contenders, runs);
}
