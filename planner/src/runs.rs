//! Runs of equal layers: what a placement repeats need not be looked at as often as it is repeated.

use crate::memory::Programs;
use crate::placement::{LayerPlacement, Placement};
use crate::program::LowerError;
use hwprofiles::Machine;
use scenarios::Model;

/// Layers of a run that are enough to see everything that a layer needs: one behind another run, one behind its like.
const PAIR: u64 = 2;

/// Neighbouring layers placed alike, and how many they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run {
    /// Each of them.
    pub layer: LayerPlacement,
    /// How many.
    pub count: u64,
}

impl Placement {
    /// Its runs, first to last.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for layer in &self.layers {
            match runs.last_mut() {
                Some(run) if run.layer == *layer => run.count += 1,
                _ => runs.push(Run { layer: layer.clone(), count: 1 }),
            }
        }
        runs
    }

    /// The same embed and head around other runs.
    pub fn with_runs(&self, runs: &[Run]) -> Self {
        let layers = runs.iter().flat_map(|run| vec![run.layer.clone(); run.count as usize]).collect();
        Self { embed: self.embed.clone(), layers, head: self.head.clone() }
    }

    /// Its runs cut to at most two layers each: everything that a device needs once (buffers, staging slots, working
    /// memory) is needed by this as well.
    pub fn outline(&self) -> Self {
        let cut = |run: Run| Run { count: run.count.min(PAIR), ..run };
        self.with_runs(&self.runs().into_iter().map(cut).collect::<Vec<_>>())
    }
}

impl Programs {
    /// The programs of a placement's [`Placement::outline`]: enough to count its bytes, in a fraction of the time.
    pub fn outline(machine: &Machine, model: &Model, placement: &Placement) -> Result<Self, LowerError> {
        Self::lower(machine, model, &placement.outline())
    }
}
