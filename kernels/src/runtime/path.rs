//! The implementation that a pool's kernels run.
//!
//! [`Path::best`] and [`Path::choose`] are in `cpu::path_check`, because the check runs products.

use super::amx_support::amx_support;
use hwprofiles::DType;
use std::fmt;
use std::str::FromStr;

/// The implementation that the kernels of a [`crate::Pool`] run. Each path includes the one before
/// it: where a path has no kernel of its own, it runs that of the path before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// Plain scalar Rust: the definition of what every kernel computes.
    Reference,
    /// 256-bit vectors: AVX2 with FMA and F16C (Intel since Haswell, AMD since Zen).
    Avx2,
    /// 512-bit vectors: AVX-512 F, BW and VL (Intel's servers since Skylake, AMD since Zen 4), for
    /// products in f32 and bf16.
    Avx512,
    /// Pairs of bf16 multiplied in one instruction (AVX512_BF16: Intel since Cooper Lake, AMD since
    /// Zen 4). Products with bf16 weights round x to bf16.
    Avx512Bf16,
    /// Tiles (AMX: Intel's servers since Sapphire Rapids). Products with bf16 weights round x to
    /// bf16; products of many rows with integer weights round the weights too.
    Amx,
}

impl Path {
    /// Every path, the simplest first.
    pub const ALL: [Path; 5] = [Path::Reference, Path::Avx2, Path::Avx512, Path::Avx512Bf16, Path::Amx];

    /// Whether this CPU has the instructions and the operating system allows them.
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
                Path::Amx => amx_support().bf16,
            }
    }

    /// The paths that this CPU can run, the simplest first.
    pub fn supported() -> Vec<Path> {
        Self::ALL.into_iter().filter(|path| path.is_supported()).collect()
    }

    /// The error of rounding x (and integer weights) before products with weights in `dtype`: a
    /// share of the value (bf16), or of the largest value in its group of 32 (integer weights). The
    /// sums are rounded to f32 besides.
    pub fn rounding(self, dtype: DType) -> f32 {
        match (self, dtype) {
            (Path::Reference, _) => 0.0,
            (_, DType::F32) => 0.0,
            (Path::Avx512Bf16 | Path::Amx, DType::Bf16) => 1.0 / 256.0,
            (Path::Avx512Bf16, DType::Fp8 | DType::Fp8Block) => 1.0 / 256.0,
            (Path::Avx2 | Path::Avx512, DType::Fp8 | DType::Fp8Block) => 0.0,
            (_, DType::Bf16) => 0.0,
            (Path::Amx, _) => 2.0 / 256.0,
            _ => 1.0 / 65_536.0,
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

/// Parses the word used in results.
impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = Self::ALL.into_iter().find(|path| path.name() == text);
        path.filter(|path| path.is_supported()).ok_or_else(|| {
            let names: Vec<_> = Self::supported().into_iter().map(Self::name).collect();
            format!("'{text}' does not run on this CPU: use {}", names.join(", "))
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_by_its_name_where_the_cpu_has_it_and_the_others_are_named_where_not() {
        for path in Path::ALL {
            let found: Result<Path, String> = path.name().parse();
            match path.is_supported() {
                true => assert_eq!(found, Ok(path)),
                false => assert!(found.expect_err("it is absent").ends_with(Path::best().name())),
            }
        }
        assert!("avx3".parse::<Path>().is_err());
    }

    #[test]
    fn the_fastest_path_is_the_best_and_cannot_be_changed_behind_teams_backs() {
        let best = Path::best();
        assert_eq!(Path::supported().last(), Some(&best));
        assert!(best.choose());
        assert!(best == Path::Reference || !Path::Reference.choose());
        assert_eq!(Path::best(), best);
    }
}
