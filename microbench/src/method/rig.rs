//! What experiments share: teams, operands, a clock, the kernels.

use crate::method::clock::CalibratedClock;
use crate::operands::arena::OperandArena;
use crate::operands::kernel_set::KernelSet;
use crate::operands::probe_memory::ProbeMemory;
use hwprofiles::DType;
use kernels::Pool;
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::time::Duration;

/// The set-up that experiments share.
#[derive(Debug)]
pub(crate) struct Rig<'a> {
    /// A pool for each team size, ascending.
    pub teams: Vec<Pool>,
    /// By format of weights: random operands. Those in f32 and bf16 also serve as KV caches.
    pub arenas: BTreeMap<DType, RefCell<OperandArena>>,
    /// By format that only KV caches have: random operands.
    pub caches: BTreeMap<DType, RefCell<OperandArena>>,
    /// Memory larger than the caches, touched first by the members of the largest team.
    pub field: ProbeMemory,
    /// The calibrated clock.
    pub clock: CalibratedClock,
    /// How long one visit of a point lasts.
    pub visit: Duration,
    /// A point whose single call would take longer, in seconds, is left out.
    pub longest: f64,
    /// The kernels.
    pub subject: &'a dyn KernelSet,
}

/// A team of a rig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TeamId {
    index: usize,
    /// Its size.
    pub threads: usize,
}

#[cfg(test)]
impl TeamId {
    /// A team of that size, of no rig.
    pub fn of_threads(threads: usize) -> Self {
        Self { index: 0, threads }
    }
}

impl Rig<'_> {
    /// The teams, ascending in size.
    pub fn team_ids(&self) -> impl Iterator<Item = TeamId> + '_ {
        self.teams.iter().enumerate().map(|(index, pool)| TeamId { index, threads: pool.members() })
    }

    /// The pool of a team.
    pub fn team(&self, team: TeamId) -> &Pool {
        &self.teams[team.index]
    }

    /// The team of all cores.
    pub fn all(&self) -> &Pool {
        self.teams.last().expect("there is a team of one at least")
    }

    /// The arena of one format of KV caches.
    pub fn cache(&self, dtype: DType) -> RefMut<'_, OperandArena> {
        self.caches.get(&dtype).map_or_else(|| self.arena(dtype), RefCell::borrow_mut)
    }

    /// The arena of one format of weights.
    pub fn arena(&self, dtype: DType) -> RefMut<'_, OperandArena> {
        self.arenas[&dtype].borrow_mut()
    }
}
