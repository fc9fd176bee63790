//! Runs of equal layers: what a placement repeats need not be looked at as often as it is repeated.

use crate::placement::slices::{LayerPlacement, Placement};

/// Neighbouring layers placed alike, and how many they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerRun {
    /// Each of them.
    pub layer: LayerPlacement,
    /// How many.
    pub count: u64,
}

impl Placement {
    /// Its runs, first to last.
    pub fn runs(&self) -> Vec<LayerRun> {
        let mut runs: Vec<LayerRun> = Vec::new();
        for layer in &self.layers {
            match runs.last_mut() {
                Some(run) if run.layer == *layer => run.count += 1,
                _ => runs.push(LayerRun { layer: layer.clone(), count: 1 }),
            }
        }
        runs
    }

    /// The same embed and head, pipelined alike, around other runs.
    pub fn with_runs(&self, runs: &[LayerRun]) -> Self {
        let layers = runs.iter().flat_map(|run| vec![run.layer.clone(); run.count as usize]).collect();
        Self { embed: self.embed.clone(), layers, head: self.head.clone(), pipelining: self.pipelining }
    }

    /// The same with as few layers as have the same neighbours: wherever one layer follows another here, it does so in
    /// the outline, and no other does. Everything that a device needs once (buffers, staging slots, working memory) is
    /// needed by this as well, and what a layer takes after another is what it takes here.
    pub fn outline(&self) -> Self {
        let mut kept: Vec<&LayerPlacement> = self.layers.iter().take(1).collect();
        let (mut seen, mut way) = (Vec::new(), Vec::new());
        for pair in self.layers.windows(2) {
            let [before, next] = pair else { continue };
            if !seen.contains(&(before, next)) {
                kept.append(&mut way);
                kept.push(next);
                seen.push((before, next));
            } else if kept.last() == Some(&next) {
                way.clear();
            } else if let Some(there) = way.iter().position(|layer| *layer == next) {
                // All on the way has been seen: a round trip can be left out.
                way.truncate(there + 1);
            } else {
                way.push(next);
            }
        }
        let layers = kept.into_iter().chain(way).cloned().collect();
        Self { embed: self.embed.clone(), layers, head: self.head.clone(), pipelining: self.pipelining }
    }
}
