//! The highest rate of a core: loops of one instruction on registers, and products whose operands
//! stay in the second-level cache.
//!
//! These are the upper two of a CPU's three compute ceilings. The third, weights that stream from
//! memory, is [`crate::gemm()`] over matrices larger than the caches. A loop returns its work only
//! after its result was found to be exactly right: operands are multiples of 1/16, so every sum is
//! exact.

mod instructions;
mod product;
mod tiles;
mod vectors;

use crate::runtime::Pool;
use hwprofiles::units::Flop;

pub use instructions::Instructions;
pub use product::CachedProduct;

/// Runs `bursts` bursts of `instructions` on every member of the pool and returns the work of all
/// members; `None` where the instructions are absent. A burst takes 20–150 µs.
///
/// # Panics
/// Where a result is wrong.
pub fn run(pool: &Pool, instructions: Instructions, bursts: usize) -> Option<Flop> {
    if !instructions.is_present() {
        return None;
    }
    // SAFETY: they are present.
    pool.run(|_, _| unsafe { run_bursts(instructions, bursts) });
    Some(instructions.burst(pool.members()) * bursts as u64)
}

/// Runs the loop and panics where its result is wrong.
///
/// # Safety
/// The instructions are present.
unsafe fn run_bursts(instructions: Instructions, bursts: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match instructions {
            Instructions::Avx2F32 => vectors::avx2_f32(bursts),
            Instructions::Avx512F32 => vectors::avx512_f32(bursts),
            Instructions::Avx512Bf16 => vectors::avx512_bf16(bursts),
            Instructions::Avx512Int8 => vectors::avx512_int8(bursts),
            Instructions::AmxBf16 => tiles::bf16(bursts),
            Instructions::AmxInt8 => tiles::int8(bursts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_is_present_counts_its_work_and_one_that_is_absent_says_so() {
        let cores = crate::runtime::affinity::available_cores();
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
        let cores = crate::runtime::affinity::available_cores();
        let pool = Pool::new(&[cores[0], cores[cores.len() - 1], cores[0]]).expect("our cores");
        for instructions in Instructions::present() {
            let wanted = Flop::new(3 * instructions.burst_flop());
            assert_eq!(run(&pool, instructions, 1), Some(wanted));
        }
    }
}
