//! Runs of equal layers: what a placement repeats need not be looked at as often as it is repeated.

use crate::placement::{LayerPlacement, Placement};

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

    /// The same embed and head, pipelined alike, around other runs.
    pub fn with_runs(&self, runs: &[Run]) -> Self {
        let layers = runs.iter().flat_map(|run| vec![run.layer.clone(); run.count as usize]).collect();
        Self { embed: self.embed.clone(), layers, head: self.head.clone(), pipelining: self.pipelining }
    }

    /// Its runs cut to at most two layers each: everything that a device needs once (buffers, staging slots, working
    /// memory) is needed by this as well.
    pub fn outline(&self) -> Self {
        let cut = |run: Run| Run { count: run.count.min(PAIR), ..run };
        self.with_runs(&self.runs().into_iter().map(cut).collect::<Vec<_>>())
    }
}
