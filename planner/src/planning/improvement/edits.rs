//! Small changes of a placement: another home or other devices for a part of some layers, another
//! order of layers, another chunk, more or fewer staging slots.

use crate::cost::{CostModel, footprint};
use crate::memory::overfilled;
use crate::placement::{Home, IdenticalGpus, LayerPlacement, Pipelining, Placement, Slices};
use crate::planning::problem::Problem;
use crate::program::{RunExtent, prefill_chunks};
use hwprofiles::{DeviceId, Machine};
use scenarios::{LayerKind, Model, Sublayer, Workload};
use std::ops::Range;

/// Shares of experts, in sixteenths, that edits try beside those of the search.
const FINE_SHARES: [u64; 4] = [3, 6, 10, 14];

/// Sublayers that an edit moves together, beside each alone: the matrices around attention, these
/// with it, the network, and the layer.
const GROUPS: [&[Sublayer]; 4] = [
    &[Sublayer::Qkv, Sublayer::Out, Sublayer::Router, Sublayer::SharedExpert],
    &[Sublayer::Qkv, Sublayer::Attention, Sublayer::Out, Sublayer::Router, Sublayer::SharedExpert],
    &[Sublayer::FfnUp, Sublayer::FfnDown],
    &[
        Sublayer::Qkv,
        Sublayer::Attention,
        Sublayer::Out,
        Sublayer::Router,
        Sublayer::SharedExpert,
        Sublayer::FfnUp,
        Sublayer::FfnDown,
        Sublayer::Experts,
    ],
];

/// Sublayers with most of a layer's bytes.
const LARGE: [Sublayer; 4] = [Sublayer::Attention, Sublayer::FfnUp, Sublayer::FfnDown, Sublayer::Experts];

/// A placement with the tokens of a sequence that enter in one prefill step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ChunkedPlacement {
    pub placement: Placement,
    pub chunk: u64,
}

/// Layers with equal placements, by index.
#[derive(Debug, Clone)]
pub(crate) struct LayerSet {
    pub layer: LayerPlacement,
    pub members: Vec<usize>,
}

/// Which of several layers an edit takes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    First,
    Last,
    Spread,
}

impl LayerSet {
    /// The sets of `placement`, in the order of their first layers.
    pub fn all(placement: &Placement) -> Vec<Self> {
        let mut sets: Vec<Self> = Vec::new();
        for (index, layer) in placement.layers.iter().enumerate() {
            match sets.iter_mut().find(|set| set.layer == *layer) {
                Some(set) => set.members.push(index),
                None => sets.push(Self { layer: layer.clone(), members: vec![index] }),
            }
        }
        sets
    }

    /// The numbers of its layers that a single edit takes: all of them, one at either end, half.
    pub fn portions(&self) -> impl Iterator<Item = (usize, Order)> + use<> {
        let length = self.members.len();
        let ends = [(1, Order::First), (1, Order::Last)].into_iter().filter(move |_| length > 1);
        let half = (length > 3).then_some((length / 2, Order::Spread));
        std::iter::once((length, Order::First)).chain(ends).chain(half)
    }

    /// `count` of its layers.
    pub fn some(&self, count: usize, order: Order) -> Vec<usize> {
        let all = self.members.len();
        let count = count.min(all);
        match order {
            Order::First => self.members[..count].to_vec(),
            Order::Last => self.members[all - count..].to_vec(),
            Order::Spread => (0..count).map(|at| self.members[(2 * at + 1) * all / (2 * count)]).collect(),
        }
    }
}

impl ChunkedPlacement {
    /// The same with `to` in place of the layers `layers`.
    pub fn with_layers(&self, layers: &[usize], to: &LayerPlacement) -> Self {
        let mut next = self.clone();
        layers.iter().for_each(|&layer| next.placement.layers[layer] = to.clone());
        next
    }

    /// The layers `window` alone, with the same embed and head.
    pub fn excerpt(&self, window: &Range<usize>) -> Self {
        let Placement { embed, layers, head, pipelining } = &self.placement;
        let layers = layers[window.clone()].to_vec();
        let placement =
            Placement { embed: embed.clone(), layers, head: head.clone(), pipelining: *pipelining };
        Self { placement, chunk: self.chunk }
    }
}

/// The edits that a machine and a model admit.
pub(crate) struct Edits<'a> {
    cost_model: CostModel<'a>,
    workload: &'a Workload,
    homes: Vec<Home>,
}

impl<'a> Edits<'a> {
    /// Of identical GPUs layers keep theirs, so only layers that are in use are exchanged there.
    pub fn new(cost_model: CostModel<'a>, workload: &'a Workload) -> Self {
        let CostModel { machine, model, .. } = cost_model;
        let gpus = IdenticalGpus::from_machine(machine);
        let mut homes = if gpus.count() > 1 { vec![] } else { Home::all(machine, model, &gpus) };
        let finer = homes.iter().filter_map(|&home| match home {
            Home::Split { lead, other, sixteenths: 1, gathered } => {
                Some(FINE_SHARES.map(|sixteenths| Home::Split { lead, other, sixteenths, gathered }))
            }
            _ => None,
        });
        let finer: Vec<_> = finer.flatten().collect();
        homes.extend(finer);
        Self { cost_model, workload, homes }
    }

    /// Every way to place a sublayer of layers of `kind`, in one home.
    fn ways(&self, kind: Option<LayerKind>, sublayer: Sublayer, home: Home) -> Vec<Slices> {
        let CostModel { machine, model, .. } = self.cost_model;
        let shape = model.shape_or_ends(kind);
        let admitted = || machine.device_ids().filter(|&device| home.admits(machine, sublayer, device));
        let place = |prefill, decode| home.slices(machine, shape, sublayer, prefill, decode);
        match home {
            Home::Whole(_) => admitted().flat_map(|p| admitted().filter_map(move |d| place(p, d))).collect(),
            Home::Split { .. } => admitted().filter_map(|lead| place(lead, lead)).collect(),
        }
    }

    /// The layers that differ from `layer` in the placement of one sublayer, or of a group that
    /// moves to one home. Unless `small`, small sublayers move in groups only.
    pub fn of_layer(&self, layer: &LayerPlacement, small: bool) -> Vec<LayerPlacement> {
        let CostModel { machine, model, .. } = self.cost_model;
        let kind = layer.kind;
        let mut all: Vec<LayerPlacement> = Vec::new();
        let mut push = |next: LayerPlacement| {
            if next != *layer && !all.contains(&next) {
                all.push(next);
            }
        };
        for (at, &sublayer) in kind.sublayers().iter().enumerate() {
            if !(small || LARGE.contains(&sublayer)) {
                continue;
            }
            for way in self.homes.iter().flat_map(|&home| self.ways(Some(kind), sublayer, home)) {
                let mut next = layer.clone();
                next.sublayers[at] = way;
                push(next);
            }
        }
        for group in GROUPS {
            for &home in &self.homes {
                for (prefill, decode) in pairs(machine) {
                    let moved = moved(machine, model, layer, group, home, [prefill, decode]);
                    moved.into_iter().for_each(&mut push);
                }
            }
        }
        all
    }

    /// Edits of the whole: other chunks, slots and micro-batches, embed and head elsewhere, and
    /// layers in another order.
    pub fn of_whole(&self, from: &ChunkedPlacement) -> Vec<ChunkedPlacement> {
        let Pipelining { slots, micro_batches } = from.placement.pipelining;
        let with = |pipelining| {
            let placement = Placement { pipelining, ..from.placement.clone() };
            ChunkedPlacement { placement, chunk: from.chunk }
        };
        let mut all = Vec::new();
        let chunks = prefill_chunks(self.workload).into_iter().chain([from.chunk / 2, from.chunk * 2]);
        let chunks = chunks.filter(|chunk| (1..=self.workload.prompt_tokens).contains(chunk));
        all.extend(chunks.map(|chunk| ChunkedPlacement { chunk, ..from.clone() }));
        let sizes = [slots + 1, slots.saturating_sub(1), slots * 2];
        let sizes = sizes.into_iter().filter(|slots| Pipelining::SLOTS.contains(slots));
        all.extend(sizes.map(|slots| with(Pipelining { slots, micro_batches })));
        let parts = [micro_batches / 2, micro_batches * 2];
        let parts = parts.into_iter().filter(|parts| (1..=self.workload.batch).contains(parts));
        all.extend(parts.map(|micro_batches| with(Pipelining { slots, micro_batches })));
        for &home in &self.homes {
            for way in self.ways(None, Sublayer::Head, home) {
                let mut next = from.clone();
                next.placement.head = way;
                all.push(next);
            }
        }
        all.extend(reordered(from));
        all.retain(|next| next != from);
        all
    }

    /// All single edits of `from`: each of the whole, and each other placement of a layer or of one
    /// in use, for all layers with equal placements, for half of them, and for one at either end.
    pub fn all(&self, from: &ChunkedPlacement) -> Vec<ChunkedPlacement> {
        let sets = LayerSet::all(&from.placement);
        let mut all = self.of_whole(from);
        for set in &sets {
            let used = sets.iter().filter(|other| other.layer.kind == set.layer.kind);
            let used = used.map(|other| other.layer.clone()).filter(|layer| *layer != set.layer);
            for to in self.of_layer(&set.layer, true).into_iter().chain(used) {
                for (count, order) in set.portions() {
                    let next = from.with_layers(&set.some(count, order), &to);
                    if !all.contains(&next) {
                        all.push(next);
                    }
                }
            }
        }
        all
    }
}

fn pairs(machine: &Machine) -> impl Iterator<Item = (DeviceId, DeviceId)> + '_ {
    machine.device_ids().flat_map(|prefill| machine.device_ids().map(move |decode| (prefill, decode)))
}

/// `layer` with the sublayers of `group` in `home`. `None` if the home or the devices do not admit
/// one of them.
fn moved(
    machine: &Machine,
    model: &Model,
    layer: &LayerPlacement,
    group: &[Sublayer],
    home: Home,
    devices: [DeviceId; 2],
) -> Option<LayerPlacement> {
    let mut next = layer.clone();
    let [prefill, decode] = devices;
    for (slices, &sublayer) in next.sublayers.iter_mut().zip(layer.kind.sublayers()) {
        if group.contains(&sublayer) {
            let admits = devices.iter().all(|&device| home.admits(machine, sublayer, device));
            let shape = model.shape(layer.kind);
            *slices = home.slices(machine, shape, sublayer, prefill, decode).filter(|_| admits)?;
        }
    }
    Some(next)
}

/// The layers of each kind in other orders: those with equal placements one after the other, first
/// to last and the reverse, and dealt out evenly.
fn reordered(from: &ChunkedPlacement) -> Vec<ChunkedPlacement> {
    let sets = LayerSet::all(&from.placement);
    let mut orders: Vec<Vec<usize>> = Vec::new();
    let blocks: Vec<usize> = sets.iter().flat_map(|set| set.members.clone()).collect();
    orders.push(sets.iter().rev().flat_map(|set| set.members.clone()).collect());
    let mut dealt: Vec<(f64, usize)> = Vec::new();
    for set in &sets {
        let length = set.members.len() as f64;
        let place = |(at, &layer): (usize, &usize)| ((2 * at + 1) as f64 / length, layer);
        dealt.extend(set.members.iter().enumerate().map(place));
    }
    dealt.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    orders.push(dealt.into_iter().map(|(_, layer)| layer).collect());
    orders.push(blocks);
    let layers = &from.placement.layers;
    let arranged = orders.into_iter().map(|order| {
        let mut left: Vec<usize> = order;
        let mut next = from.clone();
        for (place, layer) in layers.iter().enumerate() {
            let at = left.iter().position(|&other| layers[other].kind == layer.kind).unwrap_or(0);
            next.placement.layers[place] = layers[left.remove(at)].clone();
        }
        next
    });
    arranged.collect()
}

/// The single edits of a placement that fit, each with its prefill chunk: another home or other
/// devices for a sublayer or a group of them, for one layer at either end of those with equal
/// placements, for half of them and for all; another chunk, other slots, another order.
pub fn single_edits(problem: &Problem<'_>, placement: &Placement, chunk: u64) -> Vec<(Placement, u64)> {
    let Problem { cost_model, requirements, .. } = *problem;
    let from = ChunkedPlacement { placement: placement.clone(), chunk };
    let all = Edits::new(cost_model, &requirements.workload).all(&from);
    let fits = |candidate: &ChunkedPlacement| {
        let extent = RunExtent::from_workload(&requirements.workload, candidate.chunk);
        let used = footprint(cost_model, &extent, &candidate.placement);
        used.is_ok_and(|used| overfilled(cost_model.machine, &used).is_none())
    };
    all.into_iter().filter(fits).map(|ChunkedPlacement { placement, chunk }| (placement, chunk)).collect()
}
