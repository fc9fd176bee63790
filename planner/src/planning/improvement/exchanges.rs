//! Edits of many layers: changes that gain, for as many layers as have room, and with room that
//! the cheapest other changes make.

use crate::memory::different_layers;
use crate::placement::LayerPlacement;
use crate::planning::improvement::edits::{ChunkedPlacement, LayerSet, Order};
use crate::planning::improvement::judge::Judge;
use crate::planning::improvement::slopes::LayerMove;
use scenarios::Sublayer;

/// Changes that gain, and changes that make room, that are combined with each other.
const GAINS: usize = 6;
const RELIEFS: usize = 3;
/// Of changes of the same sublayers, the number that is combined.
const ALIKE: usize = 2;
/// Ways to fill room that are tried, each of which begins with another of the best changes.
const FILLS: usize = 2;

/// Edits of `from`, whose sets of equal layers are `sets`, by `slopes`.
pub(super) struct Exchanges<'e, 'a, 's> {
    judge: &'e Judge<'a, 's>,
    from: &'e ChunkedPlacement,
    sets: &'e [LayerSet],
    slopes: &'e [LayerMove],
    /// By memory, the changes that cost least for what they free of it.
    reliefs: Vec<Vec<&'e LayerMove>>,
    /// By memory, the changes that gain most for what they take of it.
    fillers: Vec<Vec<&'e LayerMove>>,
    /// The free bytes of each memory.
    room: Vec<i128>,
}

impl<'e, 'a, 's> Exchanges<'e, 'a, 's> {
    /// Edits of `from`.
    pub fn new(
        judge: &'e Judge<'a, 's>,
        from: &'e ChunkedPlacement,
        sets: &'e [LayerSet],
        slopes: &'e [LayerMove],
    ) -> Self {
        let memories = || judge.problem.cost_model.machine.memory_ids().map(|memory| memory.0);
        let best = |memory: usize, most, useful: &dyn Fn(&LayerMove) -> bool| {
            let mut best: Vec<&LayerMove> = slopes.iter().filter(|slope| useful(slope)).collect();
            let cost = |slope: &LayerMove| slope.value / (slope.bytes[memory] as f64).abs();
            best.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
            different(sets, &best, most)
        };
        let relief =
            |memory| best(memory, RELIEFS, &|slope| slope.bytes[memory] < 0 && slope.value.is_finite());
        let filler = |memory| best(memory, GAINS, &|slope| slope.bytes[memory] > 0 && slope.value < 0.0);
        let (reliefs, fillers) = (memories().map(relief).collect(), memories().map(filler).collect());
        let room = judge.room(from).unwrap_or_default();
        Self { judge, from, sets, slopes, reliefs, fillers, room }
    }

    /// The edits that promise most first, if the changes of several layers added up.
    pub fn all(&self) -> Vec<ChunkedPlacement> {
        let room = &self.room;
        let mut gains: Vec<&LayerMove> = self.slopes.iter().filter(|slope| slope.value < 0.0).collect();
        gains.sort_by(|a, b| a.rate(room).total_cmp(&b.rate(room)));
        let mut all = Vec::new();
        for gain in different(self.sets, &gains, GAINS) {
            let set = &self.sets[gain.set];
            let length = set.members.len();
            let fitting = self.fitting(self.from, set, &gain.to);
            let counts = [fitting, fitting / 2, 1].into_iter().filter(|count| (1..=fitting).contains(count));
            for count in counts {
                for order in [Order::Spread, Order::First, Order::Last] {
                    let edited = self.from.with_layers(&set.some(count, order), &gain.to);
                    all.push((count as f64 * gain.value, edited));
                }
            }
            let is_short = |&memory: &usize| {
                gain.bytes[memory] > 0 && gain.bytes[memory] * length as i128 > room[memory]
            };
            let Some(memory) = (0..room.len()).find(is_short) else { continue };
            for relief in &self.reliefs[memory] {
                for count in [length, length / 2, fitting + 1] {
                    all.extend(self.exchange((gain, count), relief));
                }
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.into_iter().map(|(_, edited)| edited).collect()
    }

    /// `edited`, an edit of the whole: if it does not fit, with room made by the cheapest changes;
    /// if it frees room, also with the room filled by those that gain most for it.
    pub fn fitted(&self, edited: ChunkedPlacement) -> Vec<ChunkedPlacement> {
        let Some(room) = self.judge.room(&edited) else { return vec![] };
        let Some(memory) = (0..room.len()).find(|&memory| room[memory] < 0) else {
            return self.filled(edited, &room);
        };
        let mut all = Vec::new();
        for relief in &self.reliefs[memory] {
            let set = self.alike(&edited, relief);
            let Some(least) = self.least(&edited, &set, &relief.to) else { continue };
            for count in [least, least + 1] {
                all.push(edited.with_layers(&set.some(count, Order::Spread), &relief.to));
            }
        }
        all
    }

    /// `edited`, and variants in which the changes that gain most fill one memory: the one in which
    /// `edited` frees the most bytes, compared with `from`.
    fn filled(&self, edited: ChunkedPlacement, room: &[i128]) -> Vec<ChunkedPlacement> {
        let more = |&memory: &usize| room[memory] - self.room.get(memory).unwrap_or(&room[memory]);
        let Some(memory) = (0..room.len()).max_by_key(more).filter(|memory| more(memory) > 0) else {
            return vec![edited];
        };
        let mut all = vec![edited.clone()];
        for first in 0..FILLS.min(self.fillers[memory].len()) {
            let mut next = edited.clone();
            for filler in &self.fillers[memory][first..] {
                let set = self.alike(&next, filler);
                let fitting = self.fitting(&next, &set, &filler.to);
                next = next.with_layers(&set.some(fitting, Order::Spread), &filler.to);
            }
            if !all.contains(&next) {
                all.push(next);
            }
        }
        all
    }

    /// The layers of `edited` that are placed as those which `slope` changes. Edits may have put
    /// the layers in another order.
    fn alike(&self, edited: &ChunkedPlacement, slope: &LayerMove) -> LayerSet {
        let LayerSet { layer, .. } = &self.sets[slope.set];
        let alike = |&at: &usize| edited.placement.layers[at] == *layer;
        let members = (0..edited.placement.layers.len()).filter(alike).collect();
        LayerSet { layer: layer.clone(), members }
    }

    /// A change for `count` layers, and another one for as few as make room for it; with what both
    /// add to the objective.
    fn exchange(
        &self,
        (gain, count): (&LayerMove, usize),
        relief: &LayerMove,
    ) -> Option<(f64, ChunkedPlacement)> {
        let gaining = self.sets[gain.set].some(count, Order::Spread);
        let LayerSet { layer, members } = &self.sets[relief.set];
        let rest: Vec<usize> = members.iter().copied().filter(|at| !gaining.contains(at)).collect();
        let next = self.from.with_layers(&gaining, &gain.to);
        if gaining.is_empty() || self.judge.fits(&next) {
            return None;
        }
        let others = LayerSet { layer: layer.clone(), members: rest };
        let least = self.least(&next, &others, &relief.to)?;
        let added = gaining.len() as f64 * gain.value + least as f64 * relief.value;
        Some((added, next.with_layers(&others.some(least, Order::Spread), &relief.to)))
    }

    /// The largest number of layers of `set` that fit as `to` in `edited`. Layers share a staging
    /// slot, so bytes of one are no measure for several.
    fn fitting(&self, edited: &ChunkedPlacement, set: &LayerSet, to: &LayerPlacement) -> usize {
        let layers = different_layers(&edited.placement);
        let fits = |count| self.judge.fits_with(edited, &layers, (set, count), to);
        first_without(set.members.len(), fits) - 1
    }

    /// The least number of layers of `set` that as `to` make `edited` fit.
    fn least(&self, edited: &ChunkedPlacement, set: &LayerSet, to: &LayerPlacement) -> Option<usize> {
        let all = set.members.len();
        let layers = different_layers(&edited.placement);
        let short = |count| !self.judge.fits_with(edited, &layers, (set, count), to);
        // Most reliefs free too little, whatever the number.
        if all == 0 || short(all) {
            return None;
        }
        Some(first_without(all - 1, short))
    }
}

/// The first `most` of `slopes` that do not edit the same sublayers of a set too often.
fn different<'t>(sets: &[LayerSet], slopes: &[&'t LayerMove], most: usize) -> Vec<&'t LayerMove> {
    type Edited = (usize, Vec<Sublayer>);
    let mut kept: Vec<(Edited, &LayerMove)> = Vec::new();
    for &slope in slopes {
        if kept.len() == most {
            break;
        }
        let changes = sets[slope.set].layer.differences(&slope.to).into_iter();
        let edited = (slope.set, changes.map(|(sublayer, ..)| sublayer).collect());
        if kept.iter().filter(|(other, _)| *other == edited).count() < ALIKE {
            kept.push((edited, slope));
        }
    }
    kept.into_iter().map(|(_, slope)| slope).collect()
}

/// The least of 1 to `most` for which `holds` does not hold, `most + 1` if there is none. It holds
/// for all numbers below.
fn first_without(most: usize, holds: impl Fn(usize) -> bool) -> usize {
    let counts: Vec<usize> = (1..=most).collect();
    counts.partition_point(|&count| holds(count)) + 1
}
