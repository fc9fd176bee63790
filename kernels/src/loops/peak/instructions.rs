//! The instructions whose rate is measured, and the work of their loops.

use crate::runtime::amx_support::amx_support;
use hwprofiles::{DType, units::Flop};
use std::fmt;

/// Instructions of one chain of vectors in one burst.
pub(super) const VECTOR_ROUNDS: usize = 1 << 14;
/// Chains of vectors in 16 registers.
pub(super) const AVX2_CHAINS: usize = 12;
/// Chains of vectors in 32 registers.
pub(super) const AVX512_CHAINS: usize = 24;
/// Multiplications into each accumulating tile in one burst, 16 cycles each. Every sum is exact in
/// f32.
pub(super) const TILE_ROUNDS: usize = 1 << 9;
/// Accumulating tiles: a multiplication takes 16 cycles, and its result is ready after 52.
pub(super) const TILE_CHAINS: usize = 4;

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
    /// All instructions that have a loop.
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

    /// The format of the operands.
    pub fn dtype(self) -> DType {
        match self {
            Instructions::Avx2F32 | Instructions::Avx512F32 => DType::F32,
            Instructions::Avx512Bf16 | Instructions::AmxBf16 => DType::Bf16,
            Instructions::Avx512Int8 | Instructions::AmxInt8 => DType::Int8,
        }
    }

    /// Whether this processor has them and the operating system allows them.
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
            Instructions::AmxBf16 => amx_support().bf16,
            Instructions::AmxInt8 => amx_support().int8,
        }
    }

    /// The instructions that are present.
    pub fn present() -> Vec<Instructions> {
        Self::ALL.into_iter().filter(|instructions| instructions.is_present()).collect()
    }

    /// The work of one burst on each of `members` members.
    pub fn burst(self, members: usize) -> Flop {
        Flop::new(self.burst_flop() * members as u128)
    }

    /// FLOP of one burst on one member; a multiply-add is two.
    pub(super) fn burst_flop(self) -> u128 {
        let vectors = |chains: usize, lanes: usize| VECTOR_ROUNDS * chains * lanes;
        let tiles = |depth: usize| TILE_ROUNDS * TILE_CHAINS * 16 * 16 * depth;
        2 * match self {
            Instructions::Avx2F32 => vectors(AVX2_CHAINS, 8),
            Instructions::Avx512F32 => vectors(AVX512_CHAINS, 16),
            Instructions::Avx512Bf16 => vectors(AVX512_CHAINS, 32),
            Instructions::Avx512Int8 => vectors(AVX512_CHAINS, 64),
            Instructions::AmxBf16 => tiles(32),
            Instructions::AmxInt8 => tiles(64),
        } as u128
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Operands as numerators of sixteenths, in −16..=16, without a simple pattern.
pub(super) fn sixteenths(index: usize) -> i8 {
    (index * 23 % 33) as i8 - 16
}

/// Panics unless `got` is `wanted`, because the rate of a wrong result means nothing.
pub(super) fn expect(instructions: Instructions, got: f64, wanted: f64) {
    assert!(got == wanted, "{instructions} computed {got} where {wanted} is right");
}
