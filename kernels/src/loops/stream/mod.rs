//! Loops that show the bandwidth and the latency of a memory.
//!
//! Each member of the pool walks its own contiguous part of the arrays, the same part in every
//! loop. So memory that a loop touched first is near the core that uses it. A loop counts the bytes
//! that the program asked for. An ordinary store also reads its line first; that read is not
//! counted (STREAM's convention), which is why non-temporal stores look faster.

mod avx2;
mod store;

pub use store::StoreInstruction;

use super::parts::{each_part, part};
use crate::runtime::{Path, Pool};
use std::sync::Mutex;

/// Doubles of a cache line.
const LINE: usize = 8;

/// Reads `x` and returns its sum. Bytes: 8 per value.
pub fn read(pool: &Pool, x: &[f64]) -> f64 {
    let sums = Mutex::new(vec![0.0; pool.members()]);
    pool.run(|member, of| {
        let sum = read_alone(pool, &x[part(x.len(), LINE, member, of)]);
        if let Ok(mut sums) = sums.lock() {
            sums[member] = sum;
        }
    });
    sums.into_inner().map(|sums| sums.iter().sum()).unwrap_or(f64::NAN)
}

/// As [`read`], on the calling thread alone. The thread need not belong to the pool, which only
/// gives the path.
pub fn read_alone(pool: &Pool, x: &[f64]) -> f64 {
    match pool.path() {
        Path::Reference => x.iter().sum::<f64>(),
        // SAFETY: a CPU that runs any other path has AVX2.
        _ => unsafe { avx2::read(x) },
    }
}

/// Writes `value` everywhere. Bytes: 8 per value.
pub fn write(pool: &Pool, to: &mut [f64], value: f64, store: StoreInstruction) {
    each_part(pool, to, LINE, |_, to| match pool.path() {
        Path::Reference => to.fill(value),
        // SAFETY: a CPU that runs any other path has AVX2.
        _ => unsafe { avx2::write(to, value, store) },
    });
}

/// to = from. Bytes: 16 per value.
///
/// # Panics
/// Where the lengths differ.
pub fn copy(pool: &Pool, to: &mut [f64], from: &[f64], store: StoreInstruction) {
    assert_eq!(to.len(), from.len());
    each_part(pool, to, LINE, |range, to| match pool.path() {
        Path::Reference => to.copy_from_slice(&from[range]),
        // SAFETY: a CPU that runs any other path has AVX2.
        _ => unsafe { avx2::copy(to, &from[range], store) },
    });
}

/// to = a + factor·b. Bytes: 24 per value; FLOP: 2 per value.
///
/// # Panics
/// Where the lengths differ.
pub fn triad(pool: &Pool, to: &mut [f64], a: &[f64], b: &[f64], factor: f64, store: StoreInstruction) {
    assert!(to.len() == a.len() && to.len() == b.len());
    each_part(pool, to, LINE, |range, to| {
        let (a, b) = (&a[range.clone()], &b[range]);
        match pool.path() {
            Path::Reference => {
                to.iter_mut().zip(a.iter().zip(b)).for_each(|(to, (a, b))| *to = a + factor * b);
            }
            // SAFETY: a CPU that runs any other path has AVX2.
            _ => unsafe { avx2::triad(to, a, b, factor, store) },
        }
    });
}

/// to = Σ from: one write for several reads. Bytes: 8 per value of every array.
///
/// # Panics
/// Where the lengths differ.
pub fn sum<const ARRAYS: usize>(
    pool: &Pool,
    to: &mut [f64],
    from: [&[f64]; ARRAYS],
    store: StoreInstruction,
) {
    assert!(from.iter().all(|x| x.len() == to.len()));
    each_part(pool, to, LINE, |range, to| {
        let from = from.map(|x| &x[range.clone()]);
        match pool.path() {
            Path::Reference => {
                (0..to.len()).for_each(|i| to[i] = from.iter().map(|x| x[i]).sum());
            }
            // SAFETY: a CPU that runs any other path has AVX2.
            _ => unsafe { avx2::sum(to, from, store) },
        }
    });
}

/// Makes `ring` one cycle through all its elements in random order, for [`chase`]: each element
/// names the next. The elements are `stride` words apart (16 puts one on each cache line); the
/// words between them are left alone. The method is Sattolo's shuffle with the generator
/// xorshift64*.
///
/// # Panics
/// Where `stride` is 0, or the ring is longer than 2³² words.
pub fn make_ring(ring: &mut [u32], stride: usize, seed: u64) {
    assert!(u32::try_from(ring.len()).is_ok(), "positions are 32-bit");
    let count = ring.len() / stride;
    (0..count).for_each(|i| ring[i * stride] = (i * stride) as u32);
    let mut state = seed | 1;
    for i in (1..count).rev() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        let other = ((random * i as u64) >> 32) as usize;
        ring.swap(i * stride, other * stride);
    }
}

/// Follows `ring` for `steps` steps from its start and returns the last element. Every load waits
/// for the previous one, so the time per step is the memory's latency. After as many steps as the
/// ring has elements, the result is 0.
pub fn chase(ring: &[u32], steps: usize) -> u32 {
    chase_from(ring, 0, steps)
}

/// As [`chase`], from the end of an earlier call, so that a long ring can be followed in parts.
pub fn chase_from(ring: &[u32], start: u32, steps: usize) -> u32 {
    (0..steps).fold(start, |at, _| ring[at as usize])
}
