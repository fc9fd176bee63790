//! Runs of equal layers. Repeated layers are computed once.

use crate::placement::slices::{LayerPlacement, Placement};

/// Neighbouring layers with equal placements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerRun {
    /// The placement of each.
    pub layer: LayerPlacement,
    /// Number of layers.
    pub count: u64,
}

impl Placement {
    /// The runs of equal layers, first to last.
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

    /// The same embed, head and pipelining with other runs of layers.
    pub fn with_runs(&self, runs: &[LayerRun]) -> Self {
        let layers = runs.iter().flat_map(|run| vec![run.layer.clone(); run.count as usize]).collect();
        Self { embed: self.embed.clone(), layers, head: self.head.clone(), pipelining: self.pipelining }
    }

    /// A shorter placement with the same pairs of neighbours: a layer follows another one in the
    /// outline if and only if it does so here. So both need the same buffers, staging slots and
    /// scratch memory, and the cost of a layer after another one is the same in both.
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
                // All pairs between the two occurrences are known, so this round trip is left out.
                way.truncate(there + 1);
            } else {
                way.push(next);
            }
        }
        let layers = kept.into_iter().chain(way).cloned().collect();
        Self { embed: self.embed.clone(), layers, head: self.head.clone(), pipelining: self.pipelining }
    }
}
