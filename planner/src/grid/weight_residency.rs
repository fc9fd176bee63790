//! Where weights live, without KV and devices: the part of a plan that all cells of a table share.

use crate::cost::{CostModel, PricedSublayer};
use crate::placement::{Home, ModelShare};
use crate::search::{ChainCache, LayerClass, Pattern, PatternSolution, Patterns, SearchSpace};
use hwprofiles::{Bytes, DeviceId, MemoryId, Seconds};
use scenarios::Sublayer;
use std::collections::BTreeMap;

/// The homes of the matrices of one layer, or of embed and head.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WeightHomes {
    /// Index of the class in the search space.
    class: usize,
    /// Index of each matrix's home. Attention has no matrix and is left out.
    weights: Vec<usize>,
}

/// Number of layers for each combination of homes. The layers of a class follow each other in the
/// order of these combinations, so that each layer has the same homes in every cell. A better order
/// would save a hop or two per step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WeightResidency(pub BTreeMap<WeightHomes, u64>);

impl WeightResidency {
    /// The residency of a solution of `space`.
    pub fn from_solution(space: &SearchSpace<'_>, solution: &PatternSolution) -> Self {
        let mut pinned = BTreeMap::new();
        for (class, runs) in solution.kinds.iter().enumerate() {
            for (pattern, count) in runs {
                let weights = weights(&space.patterns, &space.classes[class], pattern);
                *pinned.entry(WeightHomes { class, weights }).or_default() += count;
            }
        }
        Self(pinned)
    }

    /// Bytes that enter each memory if this residency follows `other`.
    pub fn entering(&self, other: &Self, space: &SearchSpace<'_>) -> Vec<Bytes> {
        let mut bytes = vec![Bytes::ZERO; space.cost_model.machine.memories.len()];
        let mut before = other.0.iter();
        let mut old = before.next().map(|(weight_homes, &count)| (weight_homes, count));
        for (new, &count) in &self.0 {
            let mut left = count;
            while let (Some((weight_homes, rest)), true) = (old, left > 0) {
                let both = left.min(rest);
                add_entering(space, weight_homes, new, both, &mut bytes);
                left -= both;
                old = match rest - both {
                    0 => before.next().map(|(weight_homes, &count)| (weight_homes, count)),
                    rest => Some((weight_homes, rest)),
                };
            }
        }
        bytes
    }

    /// Time to move the weights here from `other`: one memory after the other, each over its
    /// fastest link. `None` if bytes must enter a memory without a link.
    pub fn time_from(&self, other: &Self, space: &SearchSpace<'_>) -> Option<Seconds> {
        let machine = space.cost_model.machine;
        let entering = self.entering(other, space).into_iter().zip(machine.memory_ids());
        entering.filter(|(bytes, _)| *bytes > Bytes::ZERO).try_fold(Seconds::ZERO, |sum, (bytes, memory)| {
            let into = machine.links.iter().filter(|link| link.to == memory);
            let fastest = into.map(|link| link.time(bytes)).min_by(Seconds::total_cmp)?;
            Some(sum + fastest)
        })
    }

    /// Bytes of weights in each memory.
    pub fn bytes(&self, space: &SearchSpace<'_>) -> Vec<Bytes> {
        let mut bytes = vec![Bytes::ZERO; space.cost_model.machine.memories.len()];
        for (weight_homes, &count) in &self.0 {
            for (sublayer, home) in weight_homes.matrices(space) {
                for (memory, rows) in parts(space, sublayer, home) {
                    add_spread(space, memory, matrix_bytes(space, memory, sublayer, rows), count, &mut bytes);
                }
            }
        }
        bytes
    }
}

impl WeightHomes {
    /// Its matrices with their homes.
    fn matrices(&self, space: &SearchSpace<'_>) -> Vec<(PricedSublayer, Home)> {
        let list = &space.patterns.prices[0];
        let sublayers = space.classes[self.class].sublayers.iter().map(|&index| list.sublayers[index]);
        let matrices = sublayers.filter(|priced| priced.sublayer != Sublayer::Attention);
        matrices.zip(&self.weights).map(|(sublayer, &home)| (sublayer, space.patterns.homes[home])).collect()
    }
}

/// Classes of layers whose weights are pinned to given homes.
#[derive(Debug)]
pub(crate) struct PinnedClasses {
    /// One class for each combination of homes, with the residencies that have it.
    classes: BTreeMap<WeightHomes, LayerClass>,
}

impl PinnedClasses {
    /// The classes of the given homes in `space`, whose own residencies are not needed.
    pub fn new<'l>(
        space: &SearchSpace<'_>,
        weight_homes_of_class: impl Iterator<Item = &'l WeightHomes>,
    ) -> Self {
        let patterns = &space.patterns;
        let mut serial_chain = patterns.serial_chain();
        let mut chain_cost: Vec<[ChainCache; 2]> = space.classes.iter().map(|_| Default::default()).collect();
        let mut classes = BTreeMap::new();
        for weight_homes in weight_homes_of_class {
            let like = &space.classes[weight_homes.class];
            let (kind, sublayers) = (like.kind, like.sublayers.clone());
            let mut class = LayerClass { kind, layers: 1, sublayers, residency: vec![] };
            for homes in homes_with_kv(patterns, &class, &weight_homes.weights) {
                let residency =
                    patterns.residency(&mut serial_chain, &mut chain_cost[weight_homes.class], homes, &class);
                class.residency.extend(residency);
            }
            classes.insert(weight_homes.clone(), class);
        }
        Self { classes }
    }

    /// The number of layers and the class of each combination of homes of `residency`.
    pub fn groups(&self, residency: &WeightResidency) -> Vec<(u64, &LayerClass)> {
        residency.0.iter().map(|(weight_homes, &layers)| (layers, &self.classes[weight_homes])).collect()
    }
}

/// The homes of all sublayers for each undivided home of the KV cache.
fn homes_with_kv(patterns: &Patterns<'_>, class: &LayerClass, weights: &[usize]) -> Vec<Vec<usize>> {
    let Some(at) = attention(patterns, class) else { return vec![weights.to_vec()] };
    let whole = (0..patterns.homes.len()).filter(|&home| !patterns.homes[home].is_split());
    let with = |kv| {
        let mut homes = weights.to_vec();
        homes.insert(at, kv);
        homes
    };
    whole.map(with).filter(|homes| !patterns.mixes(homes, Some(at))).collect()
}

fn weights(patterns: &Patterns<'_>, class: &LayerClass, pattern: &Pattern) -> Vec<usize> {
    let mut weights = pattern.homes.clone();
    if let Some(at) = attention(patterns, class) {
        weights.remove(at);
    }
    weights
}

fn attention(patterns: &Patterns<'_>, class: &LayerClass) -> Option<usize> {
    let list = &patterns.prices[0];
    class.sublayers.iter().position(|&index| list.sublayers[index].sublayer == Sublayer::Attention)
}

/// The rows in each memory of a matrix with this home.
fn parts(
    space: &SearchSpace<'_>,
    PricedSublayer { kind, sublayer }: PricedSublayer,
    home: Home,
) -> Vec<(MemoryId, std::ops::Range<u64>)> {
    let CostModel { machine, model, .. } = space.cost_model.of_kind(kind);
    let any = DeviceId(0);
    let slices = home.slices(machine, model, sublayer, any, any).into_iter().flatten();
    slices.map(|slice| (slice.home, slice.rows)).collect()
}

fn matrix_bytes(
    space: &SearchSpace<'_>,
    memory: MemoryId,
    PricedSublayer { kind, sublayer }: PricedSublayer,
    rows: std::ops::Range<u64>,
) -> Bytes {
    let CostModel { machine, model, formats } = space.cost_model.of_kind(kind);
    ModelShare::in_memory(machine, model, memory).matrix_bytes(sublayer, formats, &rows)
}

/// Adds the bytes in the memories below `memory` if it is striped, or else in itself.
fn add_spread(space: &SearchSpace<'_>, memory: MemoryId, kept: Bytes, layers: u64, bytes: &mut [Bytes]) {
    let parts = space.cost_model.machine.bytes_by_memory(memory, kept);
    parts.for_each(|(memory, part)| bytes[memory.0] += part * layers);
}

fn add_entering(
    space: &SearchSpace<'_>,
    old: &WeightHomes,
    new: &WeightHomes,
    layers: u64,
    bytes: &mut [Bytes],
) {
    for ((sublayer, from), (_, to)) in old.matrices(space).into_iter().zip(new.matrices(space)) {
        if from == to {
            continue;
        }
        let there = parts(space, sublayer, from);
        for (memory, rows) in parts(space, sublayer, to) {
            let mut missing = matrix_bytes(space, memory, sublayer, rows.clone());
            for (_, kept) in there.iter().filter(|(home, _)| *home == memory) {
                let (start, end) = (rows.start.max(kept.start), rows.end.min(kept.end));
                if start < end {
                    missing = missing.saturating_sub(matrix_bytes(space, memory, sublayer, start..end));
                }
            }
            add_spread(space, memory, missing, layers, bytes);
        }
    }
}
