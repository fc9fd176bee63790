//! The lowering of a placement to a program: it visits the operators in order and brings each its
//! inputs.

use crate::placement::{LayerPlacement, Pipelining, Placement, PlacementView, Slice, Slices};
use crate::program::issued_tasks::{BufferCopy, IssuedTasks, RingSlots, StagingRing, intersect, subtract};
use crate::program::micro_batch::MicroBatch;
use crate::program::task::{
    Action, Lane, LowerError, OperandSource, Program, Task, TaskId, TaskIds, dependencies,
};

use hwprofiles::{DeviceId, LinkId, Machine, MemoryId};
use scenarios::{ActivationBuffer, LayerKind, Mixer, Model, Operator, Phase, Sublayer};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use std::ops::Range;

/// All activation buffers, in the order of their discriminants.
pub(crate) const ALL_BUFFERS: [ActivationBuffer; 11] = [
    ActivationBuffer::Tokens,
    ActivationBuffer::Residual,
    ActivationBuffer::Normed,
    ActivationBuffer::Qkv,
    ActivationBuffer::Context,
    ActivationBuffer::Projected,
    ActivationBuffer::Up,
    ActivationBuffer::Inner,
    ActivationBuffer::Logits,
    ActivationBuffer::Routes,
    ActivationBuffer::Shared,
];

/// Tasks of a layer, and of a micro-batch, for which room is made at once. Dense layers rarely have
/// more; where a layer has, the list grows.
const TASKS_OF_LAYER: usize = 24;

/// An operator with the devices that compute it.
struct PlacedOperator<'p> {
    layer: Option<u32>,
    operator: Operator,
    /// The slices of its sublayer. An operator without a matrix runs on the device of the first
    /// one.
    slices: &'p [Slice],
    /// The devices that compute it, each once.
    devices: SmallVec<[DeviceId; 4]>,
    /// Whether a part of its matrix is streamed.
    streams: bool,
}

/// The computation of an operator, or of some rows of it, by one device.
struct Computation<'t> {
    layer: Option<u32>,
    operator: Operator,
    device: DeviceId,
    rows: Range<u64>,
    source: OperandSource,
    /// The fetches that it waits for.
    fetched: &'t [TaskId],
    micro_batch: MicroBatch,
}

/// The state of the lowering.
pub(crate) struct Lowering<'a> {
    machine: &'a Machine,
    model: &'a Model,
    /// The kind of each layer of the placement.
    kinds: Vec<LayerKind>,
    phase: Phase,
    /// Slots of each ring.
    slots: usize,
    issued: IssuedTasks,
    /// By layer and micro-batch: the store of its staged cache, for later layers that share it.
    stores: BTreeMap<(u64, u64), TaskId>,
}

impl Program {
    /// Lowers `placement` to the tasks of one step of `phase`. All steps of a phase have the same
    /// tasks. Only their sizes differ, see [`crate::CostModel`].
    ///
    /// # Errors
    /// [`LowerError::NoLink`] if bytes must move between two memories without a link.
    pub fn lower(
        machine: &Machine,
        model: &Model,
        placement: &Placement,
        phase: Phase,
    ) -> Result<Self, LowerError> {
        Self::lower_view(machine, model, &placement.view(), phase)
    }

    pub(crate) fn lower_view(
        machine: &Machine,
        model: &Model,
        placement: &PlacementView<'_>,
        phase: Phase,
    ) -> Result<Self, LowerError> {
        Ok(Self { phase, tasks: Lowering::tasks(machine, model, placement, phase)? })
    }
}

impl<'a> Lowering<'a> {
    /// The tasks of one step of `phase`, in the order of issue.
    pub fn tasks(
        machine: &'a Machine,
        model: &'a Model,
        placement: &PlacementView<'_>,
        phase: Phase,
    ) -> Result<Vec<Task>, LowerError> {
        let lowering = Self::new(machine, model, placement, phase);
        lowering.lowered(
            placement,
            match placement.pipelining.micro_batches {
                1 => Self::layer_by_layer,
                _ => Self::by_segments,
            },
        )
    }

    fn new(machine: &'a Machine, model: &'a Model, placement: &PlacementView<'_>, phase: Phase) -> Self {
        let Pipelining { slots, micro_batches } = placement.pipelining;
        let copies = ALL_BUFFERS.len() * machine.devices.len() * micro_batches as usize;
        let tasks = Vec::with_capacity(placement.layers.len() * TASKS_OF_LAYER * micro_batches as usize);
        let issued =
            IssuedTasks { tasks, copies: vec![BufferCopy::default(); copies], ..IssuedTasks::default() };
        let kinds = placement.layers.iter().map(|layer| layer.kind).collect();
        Self { machine, model, kinds, phase, slots, issued, stores: BTreeMap::new() }
    }

    fn lowered<'p>(
        mut self,
        placement: &PlacementView<'p>,
        lower: impl FnOnce(&mut Self, &PlacementView<'p>) -> Result<(), LowerError>,
    ) -> Result<Vec<Task>, LowerError> {
        lower(&mut self, placement)?;
        // Sampling reads the logits in the memory of the head's first device.
        let lead = placement.head[0].device(self.phase);
        let columns = 0..ActivationBuffer::Logits.columns(self.model);
        for part in MicroBatch::all(placement.pipelining.micro_batches) {
            self.bring(None, ActivationBuffer::Logits, &columns, lead, part)?;
        }
        Ok(self.issued.tasks)
    }

    /// Lowers steps in one micro-batch: the operators in their order. Of a run of equal layers,
    /// those after one that repeats the layer before are copies of it.
    fn layer_by_layer(&mut self, placement: &PlacementView<'_>) -> Result<(), LowerError> {
        let alike = |one: &&LayerPlacement, next: &&LayerPlacement| std::ptr::eq(*one, *next) || one == next;
        let [embed, head] = [(Sublayer::Embed, placement.embed), (Sublayer::Head, placement.head)];
        self.sublayers(None, [embed])?;
        let mut layer = 0;
        for run in placement.layers.chunk_by(alike) {
            let begin = self.issued.tasks.len();
            let mut before = None;
            for left in (0..run.len()).rev() {
                let first = self.issued.tasks.len();
                self.sublayers(Some(layer), run[0].iter())?;
                layer += 1;
                if left == 0 || !self.copies_layers() {
                    continue;
                }
                let end = self.issued.layer_end(first);
                if let Some(before) = &before
                    && self.issued.repeats(begin, before, &end)
                {
                    self.issued.repeat(begin, before, &end, left);
                    layer += left as u32;
                    break;
                }
                before = Some(end);
            }
        }
        self.sublayers(None, [head])
    }

    /// Whether equal layers are lowered alike: not if some wait for the caches of certain others.
    fn copies_layers(&self) -> bool {
        let shared = || (0..self.model.layers).any(|layer| self.model.cache_layer(layer) != layer);
        self.stores.is_empty() || !shared()
    }

    fn sublayers<'p>(
        &mut self,
        layer: Option<u32>,
        sublayers: impl IntoIterator<Item = (Sublayer, &'p Slices)>,
    ) -> Result<(), LowerError> {
        for (sublayer, slices) in sublayers {
            for work in self.operators(layer, sublayer, slices) {
                match work.streams {
                    true => self.streamed(&work, 1)?,
                    false => self.work(&work, MicroBatch::WHOLE)?,
                }
            }
        }
        Ok(())
    }

    /// Lowers steps in several micro-batches.
    ///
    /// Operators form *segments*: consecutive operators, also of different layers, that the same
    /// devices compute. Within a segment the micro-batches follow each other, so that the devices
    /// of the next segment work on the first micro-batch while these work on the second. Streamed
    /// weights must serve all micro-batches before their slot is filled again, so each operator
    /// that streams is a segment by itself.
    fn by_segments(&mut self, placement: &PlacementView<'_>) -> Result<(), LowerError> {
        let micro_batches = placement.pipelining.micro_batches;
        let placed_operators: Vec<_> = placement
            .sublayers()
            .flat_map(|(layer, sublayer, slices)| self.operators(layer, sublayer, slices))
            .collect();
        let same_segment = |one: &PlacedOperator<'_>, next: &PlacedOperator<'_>| {
            !one.streams && !next.streams && one.devices == next.devices
        };
        for segment in placed_operators.chunk_by(same_segment) {
            if let [streamed @ PlacedOperator { streams: true, .. }] = segment {
                self.streamed(streamed, micro_batches)?;
                continue;
            }
            for part in MicroBatch::all(micro_batches) {
                segment.iter().try_for_each(|work| self.work(work, part))?;
            }
        }
        Ok(())
    }

    /// The operators of a sublayer, in order.
    fn operators<'p>(
        &self,
        layer: Option<u32>,
        sublayer: Sublayer,
        slices: &'p [Slice],
    ) -> impl Iterator<Item = PlacedOperator<'p>> + use<'p> {
        let distinct = |slices: &[Slice]| {
            let mut devices: SmallVec<[DeviceId; 4]> =
                slices.iter().map(|slice| slice.device(self.phase)).collect();
            devices.sort_unstable();
            devices.dedup();
            devices
        };
        let (of_matrix, of_rest) = (distinct(slices), distinct(&slices[..1]));
        let far = |slice: &Slice| self.in_place(slice.home, slice.device(self.phase)).is_none();
        let streams = slices.iter().any(far);
        sublayer.operators(self.shape(layer)).iter().map(move |&operator| {
            let devices = if operator.is_matmul() { &of_matrix } else { &of_rest }.clone();
            PlacedOperator { layer, operator, slices, devices, streams: operator.is_matmul() && streams }
        })
    }

    /// The kind of `layer` of the placement; `None` for embed and head.
    fn kind(&self, layer: Option<u32>) -> Option<LayerKind> {
        layer.and_then(|layer| self.kinds.get(layer as usize).copied())
    }

    /// The shape of `layer` of the placement; of embed and head, the model.
    fn shape(&self, layer: Option<u32>) -> &'a Model {
        self.model.shape_or_ends(self.kind(layer))
    }

    fn own(&self, device: DeviceId) -> MemoryId {
        self.machine.device(device).memory
    }

    /// How `device` reads `home` without a copy. `None` if the bytes must be fetched.
    fn in_place(&self, home: MemoryId, device: DeviceId) -> Option<OperandSource> {
        OperandSource::in_place(self.machine, home, device)
    }

    /// Lowers one operator that reads weights in place, for one micro-batch.
    fn work(&mut self, work: &PlacedOperator<'_>, part: MicroBatch) -> Result<(), LowerError> {
        let &PlacedOperator { layer, operator, slices, .. } = work;
        match (operator, layer) {
            // [`Lowering::attention`] lowers it together with the attention that follows.
            (Operator::Rotate, Some(layer)) => return self.attention(layer, &slices[0], part),
            (Operator::IndexScores | Operator::Attention, _) => return Ok(()),
            _ if operator.adds_partial_sums() => return self.add_sums(work, part),
            _ if operator.is_matmul() => {}
            _ => {
                let device = slices[0].device(self.phase);
                let source = OperandSource::Resident;
                let (rows, fetched) = (0..0, &[]);
                self.compute(Computation {
                    layer,
                    operator,
                    device,
                    rows,
                    source,
                    fetched,
                    micro_batch: part,
                })?;
                return Ok(());
            }
        }
        for slice in slices {
            let device = slice.device(self.phase);
            let source = self.in_place(slice.home, device).unwrap_or(OperandSource::Resident);
            let (rows, fetched) = (slice.rows.clone(), &[]);
            self.compute(Computation { layer, operator, device, rows, source, fetched, micro_batch: part })?;
        }
        Ok(())
    }

    /// Adds the partial sums of all devices to the residual, one after the other: first the sum of
    /// the lead device, then those of the others, which hop to the lead device.
    fn add_sums(&mut self, work: &PlacedOperator<'_>, part: MicroBatch) -> Result<(), LowerError> {
        let &PlacedOperator { layer, operator, slices, .. } = work;
        let lead = slices[0].device(self.phase);
        let sums = operator.reads()[1];
        let mut partial_sums: SmallVec<[(DeviceId, TaskId); 4]> = SmallVec::new();
        for slice in slices {
            let device = slice.device(self.phase);
            if partial_sums.iter().all(|(other, _)| *other != device) {
                // A device's last part ends after its others.
                let written = self.copy(sums, device, part).valid.last().expect("every slice was computed");
                partial_sums.push((device, written.1));
            }
        }
        for (device, writer) in partial_sums {
            self.invalidate(sums, part);
            let columns = 0..sums.columns(self.shape(layer));
            self.copy(sums, device, part).valid.push((columns, writer));
            self.compute(Computation {
                layer,
                operator,
                device: lead,
                rows: 0..0,
                source: OperandSource::Resident,
                fetched: &[],
                micro_batch: part,
            })?;
        }
        Ok(())
    }

    /// Lowers one operator whose weights are partly streamed, for all micro-batches. It goes slice
    /// by slice, because there may be fewer slots than slices.
    fn streamed(&mut self, work: &PlacedOperator<'_>, micro_batches: u64) -> Result<(), LowerError> {
        let &PlacedOperator { layer, operator, slices, .. } = work;
        for slice in slices {
            let device = slice.device(self.phase);
            let (source, fetched) = self.weights(layer, operator.sublayer(), slice)?;
            let mut last = None;
            for part in MicroBatch::all(micro_batches) {
                let rows = slice.rows.clone();
                let fetched = fetched.as_slice();
                let micro_batch = part;
                let computation = Computation { layer, operator, device, rows, source, fetched, micro_batch };
                last = Some(self.compute(computation)?);
            }
            // The last micro-batch ends after the others, which are in the same lane.
            if let (OperandSource::Staged(slot), Some(last)) = (source, last) {
                self.occupy(device, StagingRing::Weights, slot, smallvec![last]);
            }
        }
        Ok(())
    }

    /// Lowers rotation, append and attention. KV in another memory is fetched into a slot, the new
    /// K and V are appended there and stored back. Each micro-batch has its own part of every slot.
    fn attention(&mut self, layer: u32, slice: &Slice, part: MicroBatch) -> Result<(), LowerError> {
        let device = slice.device(self.phase);
        let own = self.own(device);
        let ring = StagingRing::Kv(part.index);
        // A cache that is shared must be back at home before a later layer reads it.
        let shared = self.model.cache_layer(u64::from(layer));
        let stored = self.stores.get(&(shared, part.index)).copied();
        let (source, fetched) = if let Some(source) = self.in_place(slice.home, device) {
            (source, stored.into_iter().collect::<TaskIds>())
        } else {
            let link = self.link(slice.home, own, || format!("the KV cache of layer {layer}"))?;
            let (slot, mut after) = self.next_slot(device, ring);
            after.extend(stored);
            let action = Action::FetchKv { device, slot };
            let fetch = self.push(Lane::Link(link), Some(layer), action, after, part);
            (OperandSource::Staged(slot), smallvec![fetch])
        };
        let operators = Sublayer::Attention.operators(self.shape(Some(layer)));
        let mut compute = |operator, fetched| {
            let (layer, rows, micro_batch) = (Some(layer), 0..0, part);
            self.compute(Computation { layer, operator, device, rows, source, fetched, micro_batch })
        };
        let rotate = compute(Operator::Rotate, &fetched)?;
        if operators.contains(&Operator::IndexScores) {
            compute(Operator::IndexScores, &[])?;
        }
        let attend = compute(Operator::Attention, &[])?;
        if let OperandSource::Staged(slot) = source {
            let link = self.link(own, slice.home, || format!("the KV cache of layer {layer}"))?;
            let action = Action::StoreKv { device, slot };
            // A recurrence ends with its new state. A layer with a window appends a prompt after
            // attention, because the cache has room for the window only.
            let shape = self.shape(Some(layer));
            let late = shape.wiring.window.is_some() || matches!(shape.mixer, Mixer::Recurrent(_));
            let appended = if late { attend } else { rotate };
            let store = self.push(Lane::Link(link), Some(layer), action, smallvec![appended], part);
            self.stores.insert((u64::from(layer), part.index), store);
            self.occupy(device, ring, slot, smallvec![attend, store]);
        }
        Ok(())
    }

    /// Where the device reads its slice for all micro-batches, and the fetch to wait for.
    fn weights(
        &mut self,
        layer: Option<u32>,
        sublayer: Sublayer,
        slice: &Slice,
    ) -> Result<(OperandSource, Option<TaskId>), LowerError> {
        let device = slice.device(self.phase);
        let own = self.own(device);
        if let Some(source) = self.in_place(slice.home, device) {
            return Ok((source, None));
        }
        let link = self.link(slice.home, own, || format!("the weights of {sublayer}"))?;
        let (slot, after) = self.next_slot(device, StagingRing::Weights);
        let action = Action::FetchWeights { sublayer, rows: slice.rows.clone(), device, slot };
        let fetch = self.push(Lane::Link(link), layer, action, after, MicroBatch::WHOLE);
        Ok((OperandSource::Staged(slot), Some(fetch)))
    }

    /// The next slot of a ring, and the tasks that must end before it is filled.
    fn next_slot(&mut self, device: DeviceId, ring: StagingRing) -> (usize, TaskIds) {
        let ring = self.ring(device, ring);
        let slot = ring.fetches % ring.users.len();
        ring.fetches += 1;
        (slot, std::mem::take(&mut ring.users[slot]))
    }

    fn occupy(&mut self, device: DeviceId, ring: StagingRing, slot: usize, users: TaskIds) {
        self.ring(device, ring).users[slot] = users;
    }

    fn ring(&mut self, device: DeviceId, ring: StagingRing) -> &mut RingSlots {
        let empty = || RingSlots { fetches: 0, users: vec![TaskIds::new(); self.slots] };
        self.issued.rings.entry((device, ring)).or_insert_with(empty)
    }

    /// Lowers one operator on one device: brings its inputs, then writes columns of its output.
    fn compute(&mut self, computation: Computation<'_>) -> Result<TaskId, LowerError> {
        let Computation { layer, operator, device, rows, source, fetched, micro_batch: part } = computation;
        for &buffer in operator.reads() {
            if buffer != ActivationBuffer::Tokens {
                self.bring(layer, buffer, &(0..buffer.columns(self.shape(layer))), device, part)?;
            }
        }
        let output = operator.writes();
        let columns = operator.output_columns(self.shape(layer), &rows);
        let first = rows.start == 0;
        let mut after = TaskIds::from_slice(fetched);
        after.extend(self.take_readers(output, device, part));
        let action = Action::Compute { operator, rows, source };
        let task = self.push(Lane::Device(device), layer, action, after, part);
        // A later slice of the same operator keeps what the earlier slices wrote.
        if first {
            self.invalidate(output, part);
        }
        self.copy(output, device, part).valid.push((columns, task));
        Ok(task)
    }

    /// Makes `columns` of `buffer` valid on `device` by hops from other devices.
    fn bring(
        &mut self,
        layer: Option<u32>,
        buffer: ActivationBuffer,
        columns: &Range<u64>,
        device: DeviceId,
        part: MicroBatch,
    ) -> Result<(), LowerError> {
        let here = &self.copy(buffer, device, part).valid;
        if here.iter().any(|(valid, _)| valid.start <= columns.start && columns.end <= valid.end) {
            return Ok(());
        }
        let mut missing: SmallVec<[Range<u64>; 2]> = smallvec![columns.clone()];
        for (valid, _) in here {
            missing = missing.iter().flat_map(|range| subtract(range, valid)).collect();
        }
        let own = self.own(device);
        let mut hops: SmallVec<[_; 2]> = SmallVec::new();
        for from in self.machine.device_ids().filter(|&from| from != device) {
            for (valid, writer) in &self.issued.copies[self.at(buffer, from, part)].valid {
                let found: SmallVec<[_; 2]> =
                    missing.iter().filter_map(|range| intersect(range, valid)).collect();
                missing = missing.iter().flat_map(|range| subtract(range, valid)).collect();
                hops.extend(found.into_iter().map(|columns| (from, columns, *writer)));
            }
        }
        assert!(missing.is_empty(), "{buffer:?} is read before it is written");
        for (from, columns, writer) in hops {
            let there = self.own(from);
            let link = self.link(there, own, || format!("the {buffer:?} activation"))?;
            let mut after: TaskIds = smallvec![writer];
            after.extend(self.take_readers(buffer, device, part));
            let action = Action::Hop { buffer, columns: columns.clone(), from, link };
            let task = self.push(Lane::Device(device), layer, action, after, part);
            self.copy(buffer, from, part).readers.push(task);
            self.copy(buffer, device, part).valid.push((columns, task));
        }
        Ok(())
    }

    /// Marks every copy of `buffer` as invalid because it is about to be written. The readers stay
    /// recorded.
    fn invalidate(&mut self, buffer: ActivationBuffer, part: MicroBatch) {
        for device in self.machine.device_ids() {
            self.copy(buffer, device, part).valid.clear();
        }
    }

    /// The tasks that must end before the device overwrites its copy. Only its next task has to
    /// wait for them: the later ones follow in the same lane.
    fn take_readers(&mut self, buffer: ActivationBuffer, device: DeviceId, part: MicroBatch) -> TaskIds {
        std::mem::take(&mut self.copy(buffer, device, part).readers)
    }

    fn copy(&mut self, buffer: ActivationBuffer, device: DeviceId, part: MicroBatch) -> &mut BufferCopy {
        let at = self.at(buffer, device, part);
        &mut self.issued.copies[at]
    }

    fn at(&self, buffer: ActivationBuffer, device: DeviceId, part: MicroBatch) -> usize {
        let kinds = part.index as usize * ALL_BUFFERS.len() + buffer as usize;
        kinds * self.machine.devices.len() + device.0
    }

    fn link(&self, from: MemoryId, to: MemoryId, what: impl Fn() -> String) -> Result<LinkId, LowerError> {
        self.machine.link_between(from, to).ok_or_else(|| LowerError::NoLink {
            from: self.machine.memory(from).name.clone(),
            to: self.machine.memory(to).name.clone(),
            what: what(),
        })
    }

    /// Appends a task.
    fn push(
        &mut self,
        lane: Lane,
        layer: Option<u32>,
        action: Action,
        after: TaskIds,
        micro_batch: MicroBatch,
    ) -> TaskId {
        let id = TaskId(self.issued.tasks.len() as u32);
        let after = dependencies(&self.issued.tasks, lane, after);
        let kind = self.kind(layer);
        self.issued.tasks.push(Task { lane, layer, kind, micro_batch, action, after });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Spec, model};
    use crate::placement::{Home, IdenticalGpus};
    use proptest::prelude::*;

    proptest! {
        /// One micro-batch in segments is what no copies of layers would give.
        #[test]
        fn copied_layers_are_what_lowering_each_gives(
            runs in prop::collection::vec((1usize..12, any::<[prop::sample::Index; 8]>()), 1..5),
            slots in 1usize..5,
            ends in any::<[bool; 2]>(),
        ) {
            let layers = runs.iter().map(|(count, _)| count).sum::<usize>();
            let model = model(layers as u64, 256);
            let machine = Spec::gpu(1 << 30).machine(&model);
            let homes = Home::all(&machine, &model, &IdenticalGpus::none());
            let devices: Vec<_> = machine.device_ids().collect();
            let layer = |picks: &[prop::sample::Index; 8]| {
                let mut picks = picks.iter();
                LayerPlacement::from_slices(model.kind(0), |sublayer| {
                    let pick = *picks.next().unwrap();
                    let ways: Vec<Slices> = homes
                        .iter()
                        .flat_map(|home| devices.iter().map(move |&device| (home, device)))
                        .filter(|(home, device)| home.admits(&machine, sublayer, *device))
                        .filter_map(|(home, device)| home.slices(&machine, &model, sublayer, device, device))
                        .collect();
                    pick.get(&ways).clone()
                })
            };
            let on = |gpu| Placement::uniform(&model, devices[usize::from(gpu)], machine.device(devices[usize::from(gpu)]).memory);
            let placement = Placement {
                embed: on(ends[0]).embed,
                layers: runs.iter().flat_map(|(count, picks)| vec![layer(picks); *count]).collect(),
                head: on(ends[1]).head,
                pipelining: Pipelining { slots, micro_batches: 1 },
            };
            for phase in [Phase::Prefill, Phase::Decode] {
                let copied = Lowering::new(&machine, &model, &placement.view(), phase).lowered(&placement.view(), Lowering::layer_by_layer);
                let each = Lowering::new(&machine, &model, &placement.view(), phase).lowered(&placement.view(), Lowering::by_segments);
                prop_assert_eq!(copied, each);
            }
        }
    }
}
