//! The programs of both phases.

use crate::placement::Placement;
use crate::program::task::{LowerError, Program};
use hwprofiles::Machine;
use scenarios::{Model, Phase};

/// A placement's programs, one per phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhasePrograms {
    /// Prefill.
    pub prefill: Program,
    /// Decode.
    pub decode: Program,
    /// The most tokens that devices compute at once. An engine may take more into a step: it then
    /// computes them in parts, one after the other (`-ub` beside `-b` of llama.cpp).
    pub micro_batch: Option<u64>,
}

impl PhasePrograms {
    /// Lowers both phases.
    pub fn lower(machine: &Machine, model: &Model, placement: &Placement) -> Result<Self, LowerError> {
        Ok(Self {
            prefill: Program::lower(machine, model, placement, Phase::Prefill)?,
            decode: Program::lower(machine, model, placement, Phase::Decode)?,
            micro_batch: None,
        })
    }

    /// The same for an engine whose devices compute at most so many tokens at once.
    pub fn in_micro_batches(self, micro_batch: Option<u64>) -> Self {
        Self { micro_batch, ..self }
    }

    /// The program of `phase`.
    pub fn program(&self, phase: Phase) -> &Program {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }

    /// Both programs, prefill first.
    pub fn both(&self) -> [&Program; 2] {
        [&self.prefill, &self.decode]
    }
}
