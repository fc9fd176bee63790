//! Whether the kernels compute on this CPU what they should.

use crate::{Memory, Path, Pool, Scratch, Weights, affinity, gemm};
use hwprofiles::{Bytes, DType};
use std::fmt;

/// What a path is on this CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs, and small products agree with the reference.
    Real,
    /// It runs, and they do not: it is never chosen.
    Wrong,
    /// The CPU has no such instructions, or the operating system withholds them.
    Absent,
}

impl State {
    /// Of `path`. Products of one row and of many, of whole panels and of what is left of one, in every format, in less than a
    /// millisecond.
    pub fn of(path: Path) -> Self {
        match path {
            _ if !path.is_supported() => State::Absent,
            _ if agrees(path) == Some(true) => State::Real,
            _ => State::Wrong,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Real => "real",
            State::Wrong => "wrong",
            State::Absent => "absent",
        })
    }
}

/// The sums' own rounding, as a share of Σ|x·w|.
const SUMS: f32 = 1.0 / 4096.0;

/// `None` where there is no memory to compare in.
fn agrees(path: Path) -> Option<bool> {
    let cores = affinity::available_cores();
    let memory = Memory::new("self-check", Bytes::new(1 << 20));
    let (n, k, most) = (33, 95, 37);
    let value = |seed: usize| ((seed * 7919 + 13) % 101) as f32 / 50.0 - 1.0;
    let (x, w): (Vec<f32>, Vec<f32>) = ((0..most * k).map(value).collect(), (1..=n * k).map(value).collect());
    let product = |path, m, w: &Weights| {
        let pool = Pool::on(cores.get(..1)?, path).ok()?;
        let mut scratch = Scratch::unaccounted(gemm::scratch_bytes(1, m, k)).ok()?;
        let mut y = vec![0.0; m * n];
        gemm(&pool, m, &mut y, n, &x, k, w.view(), &mut scratch);
        Some(y)
    };
    for dtype in [DType::F32, DType::Bf16, DType::Int8, DType::Int4] {
        let w = Weights::from_f32(&memory, dtype, n, k, &w).ok()?;
        for m in [1, most] {
            let (got, wanted) = (product(path, m, &w)?, product(Path::Reference, m, &w)?);
            // Every |x| and every |w| is at most 1.
            let bound = (SUMS + path.rounding(dtype)) * k as f32;
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
        let states = Path::ALL.map(State::of);
        for (path, state) in Path::ALL.into_iter().zip(states) {
            println!("{path}: {state}");
            assert_eq!(state == State::Absent, !path.is_supported());
            assert_ne!(state, State::Wrong, "{path}");
        }
        let last = Path::ALL.into_iter().zip(states).rfind(|(_, state)| *state == State::Real);
        assert_eq!(last.map(|(path, _)| path), Some(Path::best()));
    }
}
