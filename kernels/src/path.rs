//! Which implementation runs.

use crate::amx::amx;
use hwprofiles::DType;
use std::fmt;

/// The implementation of the kernels that a [`crate::Pool`] runs. Each includes the one before: what a path has no
/// kernel of its own for, it does as the path before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// Plain scalar Rust: the definition of what every kernel computes.
    Reference,
    /// 256-bit vectors: AVX2 with FMA and F16C (Intel since Haswell, AMD since Zen).
    Avx2,
    /// 512-bit vectors: AVX-512 F, BW and VL (Intel's servers since Skylake, AMD since Zen 4), for products in f32 and bf16.
    Avx512,
    /// Pairs of bf16 multiplied in one instruction (AVX512_BF16: Intel since Cooper Lake, AMD since Zen 4): products
    /// with bf16 weights round x to bf16.
    Avx512Bf16,
    /// Tiles (AMX: Intel's servers since Sapphire Rapids): products with bf16 weights round x to bf16, products with integer
    /// weights of many rows the weights too.
    Amx,
}

impl Path {
    /// Every path, the plainest first.
    pub const ALL: [Path; 5] = [Path::Reference, Path::Avx2, Path::Avx512, Path::Avx512Bf16, Path::Amx];

    /// Whether this CPU has the instructions and the operating system lets us use them.
    pub fn is_supported(self) -> bool {
        let before = match self {
            Path::Reference => return true,
            Path::Avx2 => Path::Reference,
            Path::Avx512 => Path::Avx2,
            Path::Avx512Bf16 => Path::Avx512,
            Path::Amx => Path::Avx512Bf16,
        };
        before.is_supported()
            && match self {
                Path::Reference => true,
                Path::Avx2 => {
                    is_x86_feature_detected!("avx2")
                        && is_x86_feature_detected!("fma")
                        && is_x86_feature_detected!("f16c")
                }
                Path::Avx512 => {
                    is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512vl")
                }
                Path::Avx512Bf16 => is_x86_feature_detected!("avx512bf16"),
                Path::Amx => amx().bf16,
            }
    }

    /// The paths that this CPU can run, the plainest first.
    pub fn supported() -> Vec<Path> {
        Self::ALL.into_iter().filter(|path| path.is_supported()).collect()
    }

    /// The fastest path that this CPU can run without rounding x more than its weights' format does. Those that do are
    /// chosen by name ([`crate::Pool::with_path`]).
    pub fn best() -> Path {
        let exact = |path: &Path| path.rounding(DType::Bf16) == 0.0;
        Self::supported().into_iter().filter(exact).max().unwrap_or(Path::Reference)
    }

    /// How far products with weights in `dtype` round x (and integer weights as bf16) before they multiply: a share of the
    /// value (bf16) or of the largest of its group of 32 (integer weights). The sums' own rounding, of f32, comes on top.
    pub fn rounding(self, dtype: DType) -> f32 {
        match (self, dtype) {
            (Path::Reference, _) => 0.0,
            (Path::Amx, DType::Int8 | DType::Int4) => 2.0 / 256.0,
            (_, DType::Int8 | DType::Int4) => 1.0 / 65_536.0,
            (Path::Avx512Bf16 | Path::Amx, DType::Bf16) => 1.0 / 256.0,
            _ => 0.0,
        }
    }

    /// The word used in results.
    pub fn name(self) -> &'static str {
        match self {
            Path::Reference => "reference",
            Path::Avx2 => "avx2",
            Path::Avx512 => "avx512",
            Path::Avx512Bf16 => "avx512-bf16",
            Path::Amx => "amx",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
