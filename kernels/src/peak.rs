//! What a core computes at most: loops of one instruction on registers alone, and products whose operands stay in the
//! second-level cache.
//!
//! These are the upper two of a CPU's three compute ceilings; the third, weights that stream from memory, is [`crate::gemm()`]
//! over matrices larger than the caches. A loop returns the work it did only after its result was found to be exactly right:
//! operands are multiples of 1/16, so every sum is exact.

mod product;
mod tiles;
mod vectors;

use crate::Pool;
use crate::amx::amx;
use hwprofiles::{DType, units::Flop};
use std::fmt;

pub use product::CachedProduct;

/// The instructions that multiply and add, by the registers that hold their operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Instructions {
    /// VFMADD231PS on 256 bits: 8 multiply-adds of f32.
    Avx2F32,
    /// VFMADD231PS on 512 bits: 16 multiply-adds of f32.
    Avx512F32,
    /// VDPBF16PS on 512 bits: 32 multiply-adds of bf16 into f32.
    Avx512Bf16,
    /// VPDPBUSD on 512 bits: 64 multiply-adds of 8-bit into 32-bit integers.
    Avx512Int8,
    /// TDPBF16PS: 16 × 16 × 32 multiply-adds of bf16 into f32.
    AmxBf16,
    /// TDPBSSD: 16 × 16 × 64 multiply-adds of 8-bit into 32-bit integers.
    AmxInt8,
}

impl Instructions {
    /// All that a loop exists for.
    pub const ALL: [Instructions; 6] = [
        Instructions::Avx2F32,
        Instructions::Avx512F32,
        Instructions::Avx512Bf16,
        Instructions::Avx512Int8,
        Instructions::AmxBf16,
        Instructions::AmxInt8,
    ];

    /// The word used in results: `avx512-bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Instructions::Avx2F32 => "avx2-f32",
            Instructions::Avx512F32 => "avx512-f32",
            Instructions::Avx512Bf16 => "avx512-bf16",
            Instructions::Avx512Int8 => "avx512-int8",
            Instructions::AmxBf16 => "amx-bf16",
            Instructions::AmxInt8 => "amx-int8",
        }
    }

    /// The format of what is multiplied.
    pub fn dtype(self) -> DType {
        match self {
            Instructions::Avx2F32 | Instructions::Avx512F32 => DType::F32,
            Instructions::Avx512Bf16 | Instructions::AmxBf16 => DType::Bf16,
            Instructions::Avx512Int8 | Instructions::AmxInt8 => DType::Int8,
        }
    }

    /// Whether this processor has them and the operating system lets us use them.
    pub fn is_present(self) -> bool {
        match self {
            Instructions::Avx2F32 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Instructions::Avx512F32 => is_x86_feature_detected!("avx512f"),
            Instructions::Avx512Bf16 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
            }
            Instructions::Avx512Int8 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni")
            }
            Instructions::AmxBf16 => amx().bf16,
            Instructions::AmxInt8 => amx().int8,
        }
    }

    /// Those that are present.
    pub fn present() -> Vec<Instructions> {
        Self::ALL.into_iter().filter(|instructions| instructions.is_present()).collect()
    }

    /// The work of one burst on each of so many members.
    pub fn burst(self, members: usize) -> Flop {
        Flop::new(self.burst_flop() * members as u128)
    }

    /// Operations of one burst; a multiply-add is two.
    fn burst_flop(self) -> u128 {
        let vectors = |chains: usize, lanes: usize| vectors::ROUNDS * chains * lanes;
        let tiles = |depth: usize| tiles::ROUNDS * tiles::CHAINS * 16 * 16 * depth;
        2 * match self {
            Instructions::Avx2F32 => vectors(vectors::AVX2_CHAINS, 8),
            Instructions::Avx512F32 => vectors(vectors::AVX512_CHAINS, 16),
            Instructions::Avx512Bf16 => vectors(vectors::AVX512_CHAINS, 32),
            Instructions::Avx512Int8 => vectors(vectors::AVX512_CHAINS, 64),
            Instructions::AmxBf16 => tiles(32),
            Instructions::AmxInt8 => tiles(64),
        } as u128
    }

    /// Runs the loop and panics where its result is wrong.
    ///
    /// # Safety
    /// The instructions are present.
    unsafe fn bursts(self, bursts: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Instructions::Avx2F32 => vectors::avx2_f32(bursts),
                Instructions::Avx512F32 => vectors::avx512_f32(bursts),
                Instructions::Avx512Bf16 => vectors::avx512_bf16(bursts),
                Instructions::Avx512Int8 => vectors::avx512_int8(bursts),
                Instructions::AmxBf16 => tiles::bf16(bursts),
                Instructions::AmxInt8 => tiles::int8(bursts),
            }
        }
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Runs `bursts` bursts of `instructions` on every member of the pool and returns the work of all of them together;
/// `None`, at once, where the instructions are absent. A burst takes 20–150 µs.
///
/// # Panics
/// Where a result is wrong.
pub fn run(pool: &Pool, instructions: Instructions, bursts: usize) -> Option<Flop> {
    if !instructions.is_present() {
        return None;
    }
    // SAFETY: they are present.
    pool.run(|_, _| unsafe { instructions.bursts(bursts) });
    Some(instructions.burst(pool.members()) * bursts as u64)
}

/// The operands: numerators of sixteenths in −16..=16, of no simple pattern.
fn sixteenths(index: usize) -> i8 {
    (index * 23 % 33) as i8 - 16
}

/// Panics unless `got` is `wanted`: a rate of wrong results means nothing.
fn expect(instructions: Instructions, got: f64, wanted: f64) {
    assert!(got == wanted, "{instructions} computed {got} where {wanted} is right");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_is_present_counts_its_work_and_one_that_is_absent_says_so() {
        let cores = crate::affinity::available_cores();
        let pool = Pool::new(&cores[..1]).expect("our core");
        for instructions in Instructions::ALL {
            let work = run(&pool, instructions, 2);
            println!("{instructions}: {}", if work.is_some() { "real" } else { "absent" });
            assert_eq!(work.is_some(), instructions.is_present());
            let wanted = Flop::new(2 * instructions.burst_flop());
            assert!(work.is_none_or(|work| work == wanted && work > Flop::new(1_000_000)));
        }
    }

    #[test]
    fn every_member_of_a_team_does_the_same_work() {
        let cores = crate::affinity::available_cores();
        let pool = Pool::new(&[cores[0], cores[cores.len() - 1], cores[0]]).expect("our cores");
        for instructions in Instructions::present() {
            let wanted = Flop::new(3 * instructions.burst_flop());
            assert_eq!(run(&pool, instructions, 1), Some(wanted));
        }
    }
}
