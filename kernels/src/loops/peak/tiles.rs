//! Loops of AMX instructions on tiles alone: nothing is loaded inside the loop.

use super::instructions::{Instructions, TILE_CHAINS, TILE_ROUNDS, expect, sixteenths};
use crate::cpu::amx::TileConfig;
use half::bf16;
use std::arch::asm;
use std::array::from_fn;

/// A tile in memory, as TILELOADD reads it.
#[repr(C, align(64))]
struct AmxTile<T, const N: usize>([[T; N]; 16]);

/// Four accumulators (2 × 2) over two tiles of A and two of B, `rounds` times over, from zero.
macro_rules! tile_loop {
    ($instruction:literal, $bursts:expr, $a:expr, $b:expr, $c:expr) => {
        asm!(
            "ldtilecfg [{config}]",
            "tileloadd tmm4, [{a} + {row}]",
            "tileloadd tmm5, [{a} + {row} + 1024]",
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm7, [{b} + {row} + 1024]",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "mov {left:e}, {rounds}",
            "3:",
            concat!($instruction, " tmm0, tmm4, tmm6"),
            concat!($instruction, " tmm1, tmm4, tmm7"),
            concat!($instruction, " tmm2, tmm5, tmm6"),
            concat!($instruction, " tmm3, tmm5, tmm7"),
            "dec {left:e}",
            "jnz 3b",
            "dec {bursts}",
            "jnz 2b",
            "tilestored [{c} + {row}], tmm0",
            "tilestored [{c} + {row} + 1024], tmm1",
            "tilestored [{c} + {row} + 2048], tmm2",
            "tilestored [{c} + {row} + 3072], tmm3",
            "tilerelease",
            config = in(reg) &TileConfig::whole(),
            a = in(reg) $a.as_ptr(),
            b = in(reg) $b.as_ptr(),
            c = in(reg) $c.as_mut_ptr(),
            row = in(reg) 64usize,
            bursts = inout(reg) $bursts => _,
            left = out(reg) _,
            rounds = const TILE_ROUNDS,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// # Safety
/// The CPU has AMX-TILE and AMX-BF16, and this process may use them.
pub(super) unsafe fn bf16(bursts: usize) {
    if bursts == 0 {
        return;
    }
    let half = |index: usize| bf16::from_f32(f32::from(sixteenths(index)) / 16.0);
    let a: [AmxTile<_, 32>; 2] = from_fn(|t| AmxTile(from_fn(|r| from_fn(|i| half(t + 5 * r + i)))));
    let b: [AmxTile<_, 32>; 2] = from_fn(|t| AmxTile(from_fn(|r| from_fn(|i| half(9 + 3 * t + 7 * r + i)))));
    let mut c: [AmxTile<f32, 16>; 4] = from_fn(|_| AmxTile([[0.0; 16]; 16]));
    // SAFETY: the tiles are whole: 16 rows of 64 bytes, 1024 bytes apart, in each array.
    unsafe { tile_loop!("tdpbf16ps", bursts, a, b, c) };
    check::<_, _, 2>(Instructions::AmxBf16, &a, &b, |chain, m, n| f64::from(c[chain].0[m][n]));
}

/// # Safety
/// The CPU has AMX-TILE and AMX-INT8, and this process may use them.
pub(super) unsafe fn int8(bursts: usize) {
    if bursts == 0 {
        return;
    }
    let a: [AmxTile<_, 64>; 2] = from_fn(|t| AmxTile(from_fn(|r| from_fn(|i| sixteenths(t + 5 * r + i)))));
    let b: [AmxTile<_, 64>; 2] =
        from_fn(|t| AmxTile(from_fn(|r| from_fn(|i| sixteenths(9 + 3 * t + 7 * r + i)))));
    let mut c: [AmxTile<i32, 16>; 4] = from_fn(|_| AmxTile([[0; 16]; 16]));
    // SAFETY: as above.
    unsafe { tile_loop!("tdpbssd", bursts, a, b, c) };
    check::<_, _, 4>(Instructions::AmxInt8, &a, &b, |chain, m, n| f64::from(c[chain].0[m][n]));
}

/// Compares every value of the four accumulators. A tile of B holds `GROUP` consecutive depths of a
/// column side by side.
fn check<T: Copy + Into<f64>, const N: usize, const GROUP: usize>(
    instructions: Instructions,
    a: &[AmxTile<T, N>; 2],
    b: &[AmxTile<T, N>; 2],
    got: impl Fn(usize, usize, usize) -> f64,
) {
    for chain in 0..TILE_CHAINS {
        let (a, b) = (&a[chain / 2].0, &b[chain % 2].0);
        for (m, a) in a.iter().enumerate() {
            for n in 0..16 {
                let term = |k: usize| -> f64 { a[k].into() * b[k / GROUP][n * GROUP + k % GROUP].into() };
                let product: f64 = (0..N).map(term).sum();
                expect(instructions, got(chain, m, n), TILE_ROUNDS as f64 * product);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::amx::emulator;

    #[test]
    fn the_loops_compute_what_they_say() {
        println!("AMX: {}", emulator::provide());
        // SAFETY: AMX works, in the processor or by the emulator. The loops check their results.
        unsafe {
            bf16(2);
            int8(1);
        }
    }
}
