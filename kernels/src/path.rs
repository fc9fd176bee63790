//! Which implementation runs.

use crate::amx::amx;
use crate::self_check::State;
use hwprofiles::DType;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// The path of new teams, once it was used or chosen.
static BEST: OnceLock<Path> = OnceLock::new();

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

    /// What teams run: the path that was chosen ([`Path::choose`]), else the fastest that this CPU has and that computes what it
    /// should there ([`State::of`]). With bf16 weights
    /// that may round x to bf16 ([`Path::rounding`]), which is what models in bf16 were trained with.
    pub fn best() -> Path {
        let right = |path: &Path| State::of(*path) == State::Real;
        *BEST.get_or_init(|| Self::ALL.into_iter().rev().find(right).unwrap_or(Path::Reference))
    }

    /// Makes this the path of all teams of this process. `false` where it is too late: teams have another.
    ///
    /// # Panics
    /// Where this CPU cannot run it (see [`Path::supported`]).
    pub fn choose(self) -> bool {
        assert!(self.is_supported(), "this CPU cannot run {self}");
        *BEST.get_or_init(|| self) == self
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

/// Of the word used in results.
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
