//! How many layers each of several GPUs holds, where their memories are to be full.

use crate::cost::{CostModel, footprint};
use crate::memory::{NeedsCounter, different_layers};
use crate::placement::{LayerPlacement, Placement};
use crate::program::RunExtent;
use crate::rules::Offload;
use hwprofiles::{Bytes, Machine, MemoryId};
use scenarios::{OffloadOptions, Sublayer, Workload};

/// What a memory has for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRoom {
    /// All of it.
    pub capacity: Bytes,
    /// The least of it that an engine keeps for activations.
    pub kept_free: Bytes,
}

/// `options` with splits (`-ts`) that fill one GPU after the other, from the first one on and from
/// the last one on. Empty where there are not several GPUs, or the options do not fit by any split.
///
/// By default an engine deals layers out as memories are, whatever their matrices: of a mixture
/// whose first layers keep their experts with the host, the first GPU gets almost nothing.
pub fn filled_splits(
    cost_model: CostModel<'_>,
    options: &OffloadOptions,
    workload: &Workload,
    room: &dyn Fn(MemoryId) -> MemoryRoom,
) -> Vec<OffloadOptions> {
    let Ok(offload) = Offload::new(cost_model.machine, cost_model.model, options) else { return vec![] };
    let gpus = memories(cost_model.machine, &offload);
    if gpus.len() < 2 || !options.tensor_split.is_empty() {
        return vec![];
    }
    let extent = RunExtent::from_workload(workload, offload.chunk(workload));
    let placement = offload.placement(workload);
    let rooms: Vec<MemoryRoom> = gpus.iter().map(|&memory| room(memory)).collect();
    let Some((units, beside)) = bytes_of_units(cost_model, &offload, (&placement, &rooms), &extent) else {
        return vec![];
    };
    let rooms: Vec<Bytes> =
        rooms.iter().zip(beside).map(|(room, beside)| room.capacity.saturating_sub(beside)).collect();
    let from_first = filled(&units, &rooms);
    let reversed = |all: &[Bytes]| all.iter().rev().copied().collect::<Vec<_>>();
    let from_last = filled(&reversed(&units), &reversed(&rooms)).map(|mut split| {
        split.reverse();
        split
    });
    let mut splits: Vec<_> = from_first.into_iter().chain(from_last).collect();
    splits.dedup();
    splits.into_iter().map(|tensor_split| OffloadOptions { tensor_split, ..options.clone() }).collect()
}

/// The bytes that GPUs hold of each layer that is theirs, and of the output projection as one more;
/// and by GPU what it holds beside them. `None` if a link is missing.
fn bytes_of_units(
    cost_model: CostModel<'_>,
    offload: &Offload<'_>,
    (placement, rooms): (&Placement, &[MemoryRoom]),
    extent: &RunExtent,
) -> Option<(Vec<Bytes>, Vec<Bytes>)> {
    let CostModel { machine, model, formats } = cost_model;
    let gpus = memories(machine, offload);
    let counter = NeedsCounter::new(machine, model, formats, extent);
    let held_of = |layers: &[(&LayerPlacement, u64)]| -> Vec<Bytes> {
        let needs = counter.of_layers(placement, layers);
        let used = counter.usage(needs, placement.pipelining.slots as u64);
        gpus.iter().map(|memory| used[memory.0].weights + used[memory.0].kv).collect()
    };
    let without = held_of(&[]);
    let different: Vec<_> = different_layers(placement)
        .into_iter()
        .map(|(layer, _)| {
            let with = held_of(&[(layer, 1)]).into_iter().zip(&without);
            (layer, with.map(|(with, without)| with.saturating_sub(*without)).sum::<Bytes>())
        })
        .collect();
    let bytes = |layer: &LayerPlacement| {
        different.iter().find(|(other, _)| *other == layer).map_or(Bytes::ZERO, |(_, bytes)| *bytes)
    };
    let mut used = footprint(cost_model, extent, placement).ok()?;
    let beside = gpus.iter().zip(rooms).map(|(gpu, room)| {
        let used = &mut used[gpu.0];
        used.activations = used.activations.max(room.kept_free);
        used.total()
    });
    let mut beside: Vec<Bytes> = beside.collect();
    let mut units = Vec::new();
    for unit in 0..=model.layers {
        let Some(gpu) = offload.gpu_of(unit) else { continue };
        let bytes = match placement.layers.get(unit as usize) {
            Some(layer) => bytes(layer),
            None => head_bytes(cost_model),
        };
        beside[gpu] = beside[gpu].saturating_sub(bytes);
        units.push(bytes);
    }
    Some((units, beside))
}

fn memories(machine: &Machine, offload: &Offload<'_>) -> Vec<MemoryId> {
    offload.gpus().iter().map(|&gpu| machine.device(gpu).memory).collect()
}

fn head_bytes(CostModel { model, formats, .. }: CostModel<'_>) -> Bytes {
    let rows = Sublayer::Head.matrix(model).map_or(0, |(rows, _)| rows);
    Sublayer::Head.matrix_bytes(model, formats.weights, &(0..rows))
}

/// How many of `units`, in their order, each of `rooms` holds where one after the other is filled.
fn filled(units: &[Bytes], rooms: &[Bytes]) -> Option<Vec<u64>> {
    let mut left = units;
    let mut split = Vec::new();
    for &room in rooms {
        let mut taken = Bytes::ZERO;
        let fits = |unit: &&Bytes| {
            taken += **unit;
            taken <= room
        };
        let count = left.iter().take_while(fits).count();
        left = &left[count..];
        split.push(count as u64);
    }
    left.is_empty().then_some(split)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_filled_one_after_the_other() {
        let bytes = |all: &[u64]| all.iter().map(|&bytes| Bytes::new(bytes)).collect::<Vec<_>>();
        let units = bytes(&[1, 1, 1, 5, 5, 5]);
        assert_eq!(filled(&units, &bytes(&[8, 10])), Some(vec![4, 2]));
        assert_eq!(filled(&units, &bytes(&[3, 15])), Some(vec![3, 3]));
        assert_eq!(filled(&units, &bytes(&[18, 0])), Some(vec![6, 0]));
        assert_eq!(filled(&units, &bytes(&[7, 10])), None);
        assert_eq!(filled(&[], &bytes(&[1])), Some(vec![0]));
    }
}
