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
}

impl PhasePrograms {
    /// Lowers both phases.
    pub fn lower(machine: &Machine, model: &Model, placement: &Placement) -> Result<Self, LowerError> {
        Ok(Self {
            prefill: Program::lower(machine, model, placement, Phase::Prefill)?,
            decode: Program::lower(machine, model, placement, Phase::Decode)?,
        })
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
