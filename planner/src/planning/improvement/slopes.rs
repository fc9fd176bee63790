//! What other placements of a layer bring, each simulated in one layer with only its neighbours.

use crate::error::PlannerError;
use crate::placement::{LayerPlacement, Pipelining, Slices};
use crate::planning::improvement::edits::{ChunkedPlacement, Edits, LayerSet};
use crate::planning::improvement::judge::Judge;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use scenarios::{LayerKind, Sublayer};
use std::sync::Arc;

/// Layers before and behind an edited one that are simulated with it.
const NEIGHBOURS: usize = 2;
/// What a simulation costs beside its layers, in layers.
const OVERHEAD: usize = 5;

/// LayerMoves of one placement take at most one part in this many of the budget that is left, so
/// that the placements which they suggest can be simulated too.
const SHARE: usize = 3;

/// Another placement of one layer of a set.
#[derive(Debug, Clone)]
pub(super) struct LayerMove {
    /// Index of the set.
    pub set: usize,
    pub to: LayerPlacement,
    /// Added to the objective.
    pub value: f64,
    /// Weights and KV added to each memory, in bytes. Staging slots and buffers, which layers
    /// share, do not count.
    pub bytes: Vec<i128>,
}

impl LayerMove {
    /// The gain for what it takes of the memories' room: what counts where room is short.
    pub fn rate(&self, room: &[i128]) -> f64 {
        /// Changes that take less of the room count as taking this share.
        const LEAST_SHARE: f64 = 0.01;
        /// Added to free bytes, so that a full memory gives a finite rate: 1 GiB.
        const OFFSET: f64 = (1_u64 << 30) as f64;
        let share =
            self.bytes.iter().zip(room).map(|(&more, &room)| more as f64 / (room.max(0) as f64 + OFFSET));
        self.value / share.fold(LEAST_SHARE, f64::max)
    }
}

/// The key of a known effect: the layer's kind, each sublayer that moves with its placement before
/// and after, the chunk and the pipelining. Sublayers that stay hardly change the effect and are
/// left out, so most layers of an edited placement find their effects known.
type LayerChange = (LayerKind, Vec<(Sublayer, Slices, Slices)>, u64, Pipelining);

/// An objective, and the weights and KV in each memory, in bytes; differences of both for a change.
/// `None` if bytes would have to move without a link.
type SimulatedEffect = Option<(f64, Vec<i128>)>;

/// The slopes that are known.
#[derive(Debug, Default)]
pub(super) struct LayerMoves {
    /// Some layers alone.
    excerpts: FxHashMap<ChunkedPlacement, SimulatedEffect>,
    /// What changes brought where they were last simulated.
    changes: FxHashMap<LayerChange, SimulatedEffect>,
    /// The edits of layers, without or with those of small sublayers alone.
    edits: FxHashMap<(LayerPlacement, bool), Arc<[LayerPlacement]>>,
}

impl LayerMoves {
    /// Lets every change be simulated again where it is asked for next.
    pub fn renew(&mut self) {
        self.changes.clear();
    }

    /// What each other placement of one layer of each set of `from` brings, the largest sets first.
    ///
    /// # Errors
    /// A rate that is missing.
    pub fn around(
        &mut self,
        judge: &mut Judge<'_, '_>,
        (edits, small): (&Edits<'_>, bool),
        from: &ChunkedPlacement,
        sets: &[LayerSet],
    ) -> Result<Vec<LayerMove>, PlannerError> {
        let mut order: Vec<usize> = (0..sets.len()).collect();
        order.sort_by_key(|&set| usize::MAX - sets[set].members.len());
        let ChunkedPlacement { placement, chunk } = from;
        let mut slopes = Vec::new();
        let mut most = judge.affords(1) / SHARE;
        for set in order {
            let LayerSet { layer, members } = &sets[set];
            let at = members[members.len() / 2];
            let window = at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS + 1).min(placement.layers.len());
            let alike = sets.iter().filter(|other| other.layer.kind == layer.kind && other.layer != *layer);
            let used = alike.map(|other| other.layer.clone());
            let edited = self.edits.entry((layer.clone(), small));
            let edited = edited.or_insert_with(|| edits.of_layer(layer, small).into()).clone();
            let others: Vec<LayerPlacement> = used.chain(edited.iter().cloned()).collect();
            let change = |to: &LayerPlacement| -> LayerChange {
                (layer.kind, layer.differences(to), *chunk, placement.pipelining)
            };
            let new: Vec<&LayerPlacement> =
                others.iter().filter(|to| !self.changes.contains_key(&change(to))).collect();
            let before = from.excerpt(&window);
            let excerpts: Vec<ChunkedPlacement> =
                new.iter().map(|to| before.with_layers(&[at - window.start], to)).collect();
            if !new.is_empty() {
                most -= self.simulate(judge, [&before].into_iter().chain(&excerpts), most)?;
            }
            if let Some(Some((own, held))) = self.excerpts.get(&before) {
                for (to, excerpt) in new.into_iter().zip(&excerpts) {
                    let Some(judgement) = self.excerpts.get(excerpt) else { continue };
                    let brought = judgement.as_ref().map(|(value, bytes)| {
                        let bytes = bytes.iter().zip(held).map(|(now, before)| now - before);
                        (value - own, bytes.collect())
                    });
                    self.changes.insert(change(to), brought);
                }
            }
            for to in others {
                if let Some(Some((value, bytes))) = self.changes.get(&change(&to)) {
                    slopes.push(LayerMove { set, to, value: *value, bytes: bytes.clone() });
                }
            }
        }
        Ok(slopes)
    }

    /// Simulates the first excerpts that are new, for at most as many layers as `most`; how many
    /// that were.
    ///
    /// # Errors
    /// A rate that is missing.
    fn simulate<'e>(
        &mut self,
        judge: &mut Judge<'_, '_>,
        excerpts: impl Iterator<Item = &'e ChunkedPlacement>,
        most: usize,
    ) -> Result<usize, PlannerError> {
        let mut new: Vec<&ChunkedPlacement> =
            excerpts.filter(|excerpt| !self.excerpts.contains_key(*excerpt)).collect();
        let Some(layers) = new.first().map(|first| first.placement.layers.len() + OVERHEAD) else {
            return Ok(0);
        };
        new.truncate(most / layers);
        let spent = new.len() * layers;
        judge.left -= spent;
        let judge = &*judge;
        let judged =
            |excerpt: &ChunkedPlacement| -> Result<(ChunkedPlacement, SimulatedEffect), PlannerError> {
                let Some(used) = judge.used(excerpt) else { return Ok((excerpt.clone(), None)) };
                let bytes = used.iter().map(|used| i128::from((used.weights + used.kv).get())).collect();
                let value = judge.value(excerpt, false)?;
                Ok((excerpt.clone(), value.map(|value| (value, bytes))))
            };
        let found = new.into_par_iter().map(judged).collect::<Result<Vec<_>, _>>()?;
        self.excerpts.extend(found);
        Ok(spent)
    }
}
