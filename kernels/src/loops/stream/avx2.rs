//! The loops with 256-bit vectors, with prefetches across pages and stores around the caches.

use super::store::StoreInstruction;
use crate::cpu::tiles::avx2::Fetch;
use std::arch::x86_64::*;

/// Values of one iteration: two cache lines.
const STEP: usize = 16;

/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn read(x: &[f64]) -> f64 {
    let mut sums = [_mm256_setzero_pd(); 8];
    let mut chunks = x.chunks_exact(2 * STEP);
    for chunk in &mut chunks {
        (0..256).step_by(64).for_each(|line| Fetch::Near.line(chunk.as_ptr().cast(), line));
        for (sum, four) in sums.iter_mut().zip(chunk.chunks_exact(4)) {
            // SAFETY: four values.
            *sum = _mm256_add_pd(*sum, unsafe { _mm256_loadu_pd(four.as_ptr()) });
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    let low = _mm256_add_pd(_mm256_add_pd(a, b), _mm256_add_pd(c, d));
    let high = _mm256_add_pd(_mm256_add_pd(e, f), _mm256_add_pd(g, h));
    let mut lanes = [0.0; 4];
    // SAFETY: room for four values.
    unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), _mm256_add_pd(low, high)) };
    lanes.iter().sum::<f64>() + chunks.remainder().iter().sum::<f64>()
}

/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn write(to: &mut [f64], value: f64, store: StoreInstruction) {
    // SAFETY: the CPU has the promised features.
    unsafe { each_four(to, store, |_| _mm256_set1_pd(value), |_| value) };
}

/// # Safety
/// The CPU has AVX2; `from` is as long as `to`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copy(to: &mut [f64], from: &[f64], store: StoreInstruction) {
    // SAFETY: `each_four` asks for four values only where `to` has four.
    let four = |at: usize| unsafe {
        if at.is_multiple_of(8) {
            Fetch::Near.line(from.as_ptr().cast(), 8 * at);
        }
        _mm256_loadu_pd(from.as_ptr().add(at))
    };
    // SAFETY: the CPU has the promised features.
    unsafe { each_four(to, store, four, |at| from[at]) };
}

/// # Safety
/// The CPU has AVX2; `a` and `b` are as long as `to`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn triad(to: &mut [f64], a: &[f64], b: &[f64], factor: f64, store: StoreInstruction) {
    let factors = _mm256_set1_pd(factor);
    // SAFETY: `each_four` asks for four values only where `to` has four.
    let four = |at: usize| unsafe {
        if at.is_multiple_of(8) {
            Fetch::Near.line(a.as_ptr().cast(), 8 * at);
            Fetch::Near.line(b.as_ptr().cast(), 8 * at);
        }
        let product = _mm256_mul_pd(factors, _mm256_loadu_pd(b.as_ptr().add(at)));
        _mm256_add_pd(_mm256_loadu_pd(a.as_ptr().add(at)), product)
    };
    // SAFETY: the CPU has the promised features.
    unsafe { each_four(to, store, four, |at| a[at] + factor * b[at]) };
}

/// # Safety
/// The CPU has AVX2; all of `from` are as long as `to`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn sum<const ARRAYS: usize>(
    to: &mut [f64],
    from: [&[f64]; ARRAYS],
    store: StoreInstruction,
) {
    // SAFETY: `each_four` asks for four values only where `to` has four.
    let four = |at: usize| unsafe {
        from.iter().fold(_mm256_setzero_pd(), |sum, x| {
            if at.is_multiple_of(8) {
                Fetch::Near.line(x.as_ptr().cast(), 8 * at);
            }
            _mm256_add_pd(sum, _mm256_loadu_pd(x.as_ptr().add(at)))
        })
    };
    // SAFETY: the CPU has the promised features.
    unsafe { each_four(to, store, four, |at| from.iter().map(|x| x[at]).sum()) };
}

/// Fills `to` with `four(at)` (values `at..at + 4`) where it is aligned for that, and with
/// `one(at)` elsewhere.
///
/// # Safety
/// The CPU has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn each_four(
    to: &mut [f64],
    store: StoreInstruction,
    four: impl Fn(usize) -> __m256d,
    one: impl Fn(usize) -> f64,
) {
    let start = to.as_ptr().align_offset(32).min(to.len());
    let end = start + (to.len() - start) / STEP * STEP;
    (0..start).for_each(|at| to[at] = one(at));
    let pointer = to.as_mut_ptr();
    for at in (start..end).step_by(STEP) {
        for at in (at..at + STEP).step_by(4) {
            // SAFETY: start ≤ at and at + 4 ≤ end; start is aligned to 32 bytes, and 4 values are
            // 32 bytes.
            unsafe {
                match store {
                    StoreInstruction::Ordinary => _mm256_store_pd(pointer.add(at), four(at)),
                    StoreInstruction::NonTemporal => _mm256_stream_pd(pointer.add(at), four(at)),
                }
            }
        }
    }
    (end..to.len()).for_each(|at| to[at] = one(at));
    // Non-temporal stores are weakly ordered. The fence makes them visible before the end of the
    // loop is.
    _mm_sfence();
}
