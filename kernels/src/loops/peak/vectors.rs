//! Loops of vector instructions on registers alone.
//!
//! There are enough independent chains to cover the latency (4 to 6 cycles) of two units: as many
//! as fit the registers beside two operands. In each burst a chain starts from its own number, so
//! that no two chains are equal and every sum is exact.

use super::instructions::{AVX2_CHAINS, AVX512_CHAINS, Instructions, VECTOR_ROUNDS, expect, sixteenths};
use half::bf16;
use std::arch::x86_64::*;
use std::array::from_fn;
use std::hint::black_box;

/// Compares each lane of each chain with its start plus VECTOR_ROUNDS times the products of its
/// `depth` pairs of operands.
fn check(instructions: Instructions, chains: &[impl AsRef<[f64]>], a: &[f64], b: &[f64]) {
    for (chain, lanes) in chains.iter().enumerate() {
        let lanes = lanes.as_ref();
        let depth = a.len() / lanes.len();
        for (lane, &got) in lanes.iter().enumerate() {
            let pairs = lane * depth..(lane + 1) * depth;
            let product: f64 = a[pairs.clone()].iter().zip(&b[pairs]).map(|(a, b)| a * b).sum();
            expect(instructions, got, chain as f64 + VECTOR_ROUNDS as f64 * product);
        }
    }
}

fn float(index: usize) -> f32 {
    f32::from(sixteenths(index)) / 16.0
}

/// # Safety
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn avx2_f32(bursts: usize) {
    let (a, b): ([f32; 8], [f32; 8]) = (from_fn(float), from_fn(|i| float(i + 7)));
    let mut chains = [[0.0f32; 8]; AVX2_CHAINS];
    // SAFETY: eight values each.
    let operands = unsafe { (_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(b.as_ptr())) };
    for _ in 0..bursts {
        let (a, b) = black_box(operands);
        let mut sums: [_; AVX2_CHAINS] = from_fn(|chain| _mm256_set1_ps(chain as f32));
        for _ in 0..VECTOR_ROUNDS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, b, *sum);
            }
        }
        for (to, sum) in chains.iter_mut().zip(sums) {
            // SAFETY: room for the whole vector.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), sum) };
        }
        black_box(&mut chains);
    }
    if bursts > 0 {
        let chains = chains.map(|lanes| lanes.map(f64::from));
        check(Instructions::Avx2F32, &chains, &a.map(f64::from), &b.map(f64::from));
    }
}

/// # Safety
/// The CPU has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn avx512_f32(bursts: usize) {
    let (a, b): ([f32; 16], [f32; 16]) = (from_fn(float), from_fn(|i| float(i + 7)));
    let mut chains = [[0.0f32; 16]; AVX512_CHAINS];
    // SAFETY: sixteen values each.
    let operands = unsafe { (_mm512_loadu_ps(a.as_ptr()), _mm512_loadu_ps(b.as_ptr())) };
    for _ in 0..bursts {
        let (a, b) = black_box(operands);
        let mut sums: [_; AVX512_CHAINS] = from_fn(|chain| _mm512_set1_ps(chain as f32));
        for _ in 0..VECTOR_ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, b, *sum);
            }
        }
        for (to, sum) in chains.iter_mut().zip(sums) {
            // SAFETY: room for the whole vector.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), sum) };
        }
        black_box(&mut chains);
    }
    if bursts > 0 {
        let chains = chains.map(|lanes| lanes.map(f64::from));
        check(Instructions::Avx512F32, &chains, &a.map(f64::from), &b.map(f64::from));
    }
}

/// # Safety
/// The CPU has AVX-512F and its BF16 extension.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn avx512_bf16(bursts: usize) {
    let half = |index: usize| bf16::from_f32(float(index));
    let (a, b): ([bf16; 32], [bf16; 32]) = (from_fn(half), from_fn(|i| half(i + 7)));
    let mut chains = [[0.0f32; 16]; AVX512_CHAINS];
    // SAFETY: 64 bytes each; a vector of bf16 has no invalid value.
    let operands = unsafe {
        (a.as_ptr().cast::<__m512bh>().read_unaligned(), b.as_ptr().cast::<__m512bh>().read_unaligned())
    };
    for _ in 0..bursts {
        let (a, b) = black_box(operands);
        let mut sums: [_; AVX512_CHAINS] = from_fn(|chain| _mm512_set1_ps(chain as f32));
        for _ in 0..VECTOR_ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, a, b);
            }
        }
        for (to, sum) in chains.iter_mut().zip(sums) {
            // SAFETY: room for the whole vector.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), sum) };
        }
        black_box(&mut chains);
    }
    if bursts > 0 {
        let chains = chains.map(|lanes| lanes.map(f64::from));
        check(Instructions::Avx512Bf16, &chains, &a.map(f64::from), &b.map(f64::from));
    }
}

/// # Safety
/// The CPU has AVX-512F and its VNNI extension.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn avx512_int8(bursts: usize) {
    let (a, b): ([u8; 64], [i8; 64]) =
        (from_fn(|i| (sixteenths(i) + 16) as u8), from_fn(|i| sixteenths(i + 7)));
    let mut chains = [[0i32; 16]; AVX512_CHAINS];
    // SAFETY: 64 bytes each.
    let operands = unsafe { (_mm512_loadu_si512(a.as_ptr().cast()), _mm512_loadu_si512(b.as_ptr().cast())) };
    for _ in 0..bursts {
        let (a, b) = black_box(operands);
        let mut sums: [_; AVX512_CHAINS] = from_fn(|chain| _mm512_set1_epi32(chain as i32));
        for _ in 0..VECTOR_ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        for (to, sum) in chains.iter_mut().zip(sums) {
            // SAFETY: room for the whole vector.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), sum) };
        }
        black_box(&mut chains);
    }
    if bursts > 0 {
        let chains = chains.map(|lanes| lanes.map(f64::from));
        check(Instructions::Avx512Int8, &chains, &a.map(f64::from), &b.map(f64::from));
    }
}
