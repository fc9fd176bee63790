//! Whether the kernels of a path compute the right values on this CPU, and the path that is best.

use crate::cpu::gemm::{self, gemm};
use crate::cpu::strided::{StridedRows, StridedRowsMut};
use crate::cpu::weights::Weights;
use crate::runtime::{KernelError, MemoryArena, Path, Pool, Scratch, affinity};
use hwprofiles::{Bytes, DType};
use std::fmt;
use std::sync::OnceLock;

/// The path of new pools, once it was used or chosen.
static BEST: OnceLock<Path> = OnceLock::new();

/// The result of running small products on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathCheck {
    /// The path runs, and its products agree with the reference.
    Real,
    /// The path runs, but its products are wrong: it is never chosen.
    Wrong,
    /// The CPU lacks the instructions, or the operating system withholds them.
    Absent,
}

impl PathCheck {
    /// Checks `path` in less than a millisecond: products of one row and of many, of whole panels
    /// and of a partial one, in every weight format.
    pub fn run(path: Path) -> Self {
        if !path.is_supported() {
            PathCheck::Absent
        } else if agrees(path) == Some(true) {
            PathCheck::Real
        } else {
            PathCheck::Wrong
        }
    }
}

impl fmt::Display for PathCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PathCheck::Real => "real",
            PathCheck::Wrong => "wrong",
            PathCheck::Absent => "absent",
        })
    }
}

impl Path {
    /// The path of new pools: the one that was chosen ([`Path::choose`]), else the fastest one that
    /// this CPU has and that passes [`PathCheck::run`]. With bf16 weights it may round x to bf16
    /// ([`Path::rounding`]), the precision in which bf16 models are trained.
    pub fn best() -> Path {
        let is_right = |path: &Path| PathCheck::run(*path) == PathCheck::Real;
        *BEST.get_or_init(|| Self::ALL.into_iter().rev().find(is_right).unwrap_or(Path::Reference))
    }

    /// Makes this the path of all new pools of the process. Returns `false` where another path was
    /// used or chosen before.
    ///
    /// # Panics
    /// Where this CPU cannot run it (see [`Path::supported`]).
    pub fn choose(self) -> bool {
        assert!(self.is_supported(), "this CPU cannot run {self}");
        *BEST.get_or_init(|| self) == self
    }
}

impl Pool {
    /// A team with a member pinned to each of `cores`, on the best path. The first core is the
    /// caller's, who may pin itself with [`Pool::pin_caller`].
    ///
    /// # Errors
    /// [`KernelError::NoCores`]; [`KernelError::Pin`] for a core that this process may not use;
    /// [`KernelError::Spawn`].
    pub fn new(cores: &[usize]) -> Result<Self, KernelError> {
        Self::on_path(cores, Path::best())
    }
}

/// The error of rounding the sums, as a share of Σ|x·w|.
const SUM_ROUNDING: f32 = 1.0 / 4096.0;

/// Whether products on `path` agree with the reference; `None` where there is no memory to compare
/// in.
fn agrees(path: Path) -> Option<bool> {
    let cores = affinity::available_cores();
    let memory = MemoryArena::new("self-check", Bytes::new(1 << 20));
    let (n, k, most) = (33, 95, 37);
    let value = |seed: usize| ((seed * 7919 + 13) % 101) as f32 / 50.0 - 1.0;
    let (x, w): (Vec<f32>, Vec<f32>) = ((0..most * k).map(value).collect(), (1..=n * k).map(value).collect());
    let product = |path, m, w: &Weights| {
        let pool = Pool::on_path(cores.get(..1)?, path).ok()?;
        let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(1, m, k)).ok()?;
        let mut y = vec![0.0; m * n];
        gemm(&pool, m, StridedRowsMut::new(&mut y, n), StridedRows::new(&x, k), w.view(), &mut scratch);
        Some(y)
    };
    for dtype in [DType::F32, DType::Bf16, DType::Fp8, DType::Int8, DType::Int4] {
        let w = Weights::from_f32(&memory, dtype, n, k, &w).ok()?;
        for m in [1, most] {
            let (got, wanted) = (product(path, m, &w)?, product(Path::Reference, m, &w)?);
            // Every |x| and every |w| is at most 1.
            let bound = (SUM_ROUNDING + path.rounding(dtype)) * k as f32;
            if got.iter().zip(wanted).any(|(got, wanted)| (got - wanted).abs() > bound || got.is_nan()) {
                return Some(false);
            }
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_real_or_absent_and_the_best_is_the_last_real_one() {
        let checks = Path::ALL.map(PathCheck::run);
        for (path, check) in Path::ALL.into_iter().zip(checks) {
            println!("{path}: {check}");
            assert_eq!(check == PathCheck::Absent, !path.is_supported());
            assert_ne!(check, PathCheck::Wrong, "{path}");
        }
        let last = Path::ALL.into_iter().zip(checks).rfind(|(_, check)| *check == PathCheck::Real);
        assert_eq!(last.map(|(path, _)| path), Some(Path::best()));
    }
}
