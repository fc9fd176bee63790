//! From a placement to a program: a walk through the operators that brings each its inputs.

use crate::placement::Pipelining;
use crate::placement::{Placement, Slice};

use crate::program::micro_batch::MicroBatch;
use crate::program::task::Program;
use crate::program::task::{Action, Lane, LowerError, OperandSource, Task, TaskId, dependencies};
use hwprofiles::{DeviceId, LinkId, Machine, MemoryId};
use scenarios::{Buffer, Model, Operator, Phase, Sublayer};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// All buffers, in the order of their numbers.
pub(crate) const ALL_BUFFERS: [Buffer; 11] = [
    Buffer::Tokens,
    Buffer::Residual,
    Buffer::Normed,
    Buffer::Qkv,
    Buffer::Context,
    Buffer::Projected,
    Buffer::Up,
    Buffer::Inner,
    Buffer::Logits,
    Buffer::Routes,
    Buffer::Shared,
];

/// Valid columns of a buffer on one device, and who wrote and reads them.
#[derive(Debug, Clone, Default)]
struct BufferCopy {
    /// Valid column ranges with the task that wrote each.
    valid: Vec<(Range<u64>, TaskId)>,
    /// Hops that have read it since it was last written. Its own device's tasks need no mention: all writers of
    /// the copy are in the same lane.
    readers: Vec<TaskId>,
}

/// Which kind of staging ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StagingRing {
    Weights,
    /// Of a micro-batch.
    Kv(u64),
}

/// An operator to be computed.
struct PlacedOperator<'p> {
    layer: Option<u32>,
    operator: Operator,
    /// The slices of its sublayer. Who computes it: all of them, or where it has no matrix the first.
    slices: &'p [Slice],
    /// Their devices, each once.
    devices: SmallVec<[DeviceId; 4]>,
    /// Whether a part of its matrix is fetched.
    streams: bool,
}

/// What is known while a program grows.
pub(crate) struct Lowering<'a> {
    machine: &'a Machine,
    model: &'a Model,
    phase: Phase,
    /// Of each ring.
    slots: usize,
    tasks: Vec<Task>,
    /// Of each buffer on each device, by micro-batch: see [`Lowering::copy`].
    copies: Vec<BufferCopy>,
    rings: BTreeMap<(DeviceId, StagingRing), RingSlots>,
}

/// The slots of one ring, filled in turn.
#[derive(Debug, Clone)]
struct RingSlots {
    /// Fetches so far.
    fetches: usize,
    /// The last users of each slot.
    users: Vec<Vec<TaskId>>,
}

impl Program {
    /// Lowers `placement` to the tasks of one step of `phase`. Every decode (or prefill) step has the same tasks;
    /// only their sizes differ, see [`crate::CostModel`].
    pub fn lower(
        machine: &Machine,
        model: &Model,
        placement: &Placement,
        phase: Phase,
    ) -> Result<Self, LowerError> {
        Ok(Self { phase, tasks: Lowering::tasks(machine, model, placement, phase)? })
    }
}

impl<'a> Lowering<'a> {
    /// The tasks of one step of `phase`, in the order of issue.
    ///
    /// Operators follow each other in *segments*: as many in a row as the same devices compute, across the borders of
    /// layers. Of each segment, micro-batches follow each other, so that the next segment's devices have the first
    /// while these have the second. But streamed weights must serve all micro-batches before their slot is filled
    /// anew, so each operator that streams is a segment.
    pub fn tasks(
        machine: &'a Machine,
        model: &'a Model,
        placement: &Placement,
        phase: Phase,
    ) -> Result<Vec<Task>, LowerError> {
        let Pipelining { slots, micro_batches } = placement.pipelining;
        let copies = ALL_BUFFERS.len() * machine.devices.len() * micro_batches as usize;
        let mut lowering = Self {
            machine,
            model,
            phase,
            slots,
            tasks: Vec::new(),
            copies: vec![BufferCopy::default(); copies],
            rings: BTreeMap::new(),
        };
        let works = lowering.works(placement);
        let together = |one: &PlacedOperator<'_>, next: &PlacedOperator<'_>| {
            !one.streams && !next.streams && one.devices == next.devices
        };
        for segment in works.chunk_by(together) {
            if let [streamed @ PlacedOperator { streams: true, .. }] = segment {
                lowering.streamed(streamed, micro_batches)?;
                continue;
            }
            for part in MicroBatch::all(micro_batches) {
                segment.iter().try_for_each(|work| lowering.work(work, part))?;
            }
        }
        // Sampling reads the logits in the memory of the head's first device.
        let lead = placement.head[0].device(phase);
        let columns = 0..Buffer::Logits.columns(model);
        for part in MicroBatch::all(micro_batches) {
            lowering.bring(None, Buffer::Logits, &columns, lead, part)?;
        }
        Ok(lowering.tasks)
    }

    /// What is to be computed, in order.
    fn works<'p>(&self, placement: &'p Placement) -> Vec<PlacedOperator<'p>> {
        let mut works = Vec::new();
        for (layer, sublayer, slices) in placement.sublayers() {
            for &operator in sublayer.operators(self.model) {
                let computing = if operator.is_matmul() { &slices[..] } else { &slices[..1] };
                let mut devices: SmallVec<[DeviceId; 4]> =
                    computing.iter().map(|slice| slice.device(self.phase)).collect();
                devices.sort_unstable();
                devices.dedup();
                let far = |slice: &Slice| self.in_place(slice.home, slice.device(self.phase)).is_none();
                let streams = operator.is_matmul() && slices.iter().any(far);
                works.push(PlacedOperator { layer, operator, slices, devices, streams });
            }
        }
        works
    }

    fn own(&self, device: DeviceId) -> MemoryId {
        self.machine.device(device).memory
    }

    /// How `device` reads what is in `home` where it is; `None` where it has to be fetched.
    fn in_place(&self, home: MemoryId, device: DeviceId) -> Option<OperandSource> {
        OperandSource::in_place(self.machine, home, device)
    }

    /// One operator from the devices' own memories, for one micro-batch. Those without a matrix run on the first slice's device.
    fn work(&mut self, work: &PlacedOperator<'_>, part: MicroBatch) -> Result<(), LowerError> {
        let &PlacedOperator { layer, operator, slices, .. } = work;
        match (operator, layer) {
            // With the attention that follows it.
            (Operator::Rotate, Some(layer)) => return self.attention(layer, &slices[0], part),
            (Operator::Attention, _) => return Ok(()),
            _ if operator.adds_sums() => return self.add_sums(work, part),
            _ if operator.is_matmul() => {}
            _ => {
                let device = slices[0].device(self.phase);
                self.compute(layer, operator, device, 0..0, OperandSource::Resident, &[], part)?;
                return Ok(());
            }
        }
        for slice in slices {
            let device = slice.device(self.phase);
            let source = self.in_place(slice.home, device).unwrap_or(OperandSource::Resident);
            self.compute(layer, operator, device, slice.rows.clone(), source, &[], part)?;
        }
        Ok(())
    }

    /// Adds what each device made of its parts to the residual, one after the other: the first slice's device its
    /// own sum, then those of the others, which hop to where the sum before was.
    fn add_sums(&mut self, work: &PlacedOperator<'_>, part: MicroBatch) -> Result<(), LowerError> {
        let &PlacedOperator { layer, operator, slices, .. } = work;
        let lead = slices[0].device(self.phase);
        let sums = operator.reads()[1];
        let mut made: SmallVec<[(DeviceId, TaskId); 4]> = SmallVec::new();
        for slice in slices {
            let device = slice.device(self.phase);
            if made.iter().all(|(other, _)| *other != device) {
                // A device's last part ends after its others.
                let written = self.copy(sums, device, part).valid.last().expect("every slice was computed");
                made.push((device, written.1));
            }
        }
        for (device, writer) in made {
            self.invalidate(sums, part);
            let columns = 0..sums.columns(self.model);
            self.copy(sums, device, part).valid.push((columns, writer));
            self.compute(layer, operator, lead, 0..0, OperandSource::Resident, &[], part)?;
        }
        Ok(())
    }

    /// One operator, of whose matrix something is fetched, for all micro-batches: slice after slice, since there may be
    /// fewer slots than slices.
    fn streamed(&mut self, work: &PlacedOperator<'_>, micro_batches: u64) -> Result<(), LowerError> {
        let &PlacedOperator { layer, operator, slices, .. } = work;
        for slice in slices {
            let device = slice.device(self.phase);
            let (source, fetched) = self.weights(layer, operator.sublayer(), slice)?;
            let mut last = None;
            for part in MicroBatch::all(micro_batches) {
                let rows = slice.rows.clone();
                last = Some(self.compute(layer, operator, device, rows, source, fetched.as_slice(), part)?);
            }
            // Its lane has then done with the micro-batches before.
            if let (OperandSource::Staged(slot), Some(last)) = (source, last) {
                self.occupy(device, StagingRing::Weights, slot, vec![last]);
            }
        }
        Ok(())
    }

    /// Rotation, append and attention. KV that lives elsewhere is fetched into a slot, appended to there, and
    /// the new part stored back. Each micro-batch has its own part of every slot.
    fn attention(&mut self, layer: u32, slice: &Slice, part: MicroBatch) -> Result<(), LowerError> {
        let device = slice.device(self.phase);
        let own = self.own(device);
        let ring = StagingRing::Kv(part.index);
        let (source, fetched) = if let Some(source) = self.in_place(slice.home, device) {
            (source, vec![])
        } else {
            let link = self.link(slice.home, own, || format!("the KV cache of layer {layer}"))?;
            let (slot, after) = self.next_slot(device, ring);
            let action = Action::FetchKv { device, slot };
            let fetch = self.push(Lane::Link(link), Some(layer), action, after, part);
            (OperandSource::Staged(slot), vec![fetch])
        };
        let rotate = self.compute(Some(layer), Operator::Rotate, device, 0..0, source, &fetched, part)?;
        let attend = self.compute(Some(layer), Operator::Attention, device, 0..0, source, &[], part)?;
        if let OperandSource::Staged(slot) = source {
            let link = self.link(own, slice.home, || format!("the KV cache of layer {layer}"))?;
            let action = Action::StoreKv { device, slot };
            let store = self.push(Lane::Link(link), Some(layer), action, vec![rotate], part);
            self.occupy(device, ring, slot, vec![attend, store]);
        }
        Ok(())
    }

    /// Where the device finds its slice, for all micro-batches, and the fetch to wait for.
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

    /// The next slot of a ring and the tasks that must have left it.
    fn next_slot(&mut self, device: DeviceId, ring: StagingRing) -> (usize, Vec<TaskId>) {
        let ring = self.ring(device, ring);
        let slot = ring.fetches % ring.users.len();
        ring.fetches += 1;
        (slot, std::mem::take(&mut ring.users[slot]))
    }

    fn occupy(&mut self, device: DeviceId, ring: StagingRing, slot: usize, users: Vec<TaskId>) {
        self.ring(device, ring).users[slot] = users;
    }

    fn ring(&mut self, device: DeviceId, ring: StagingRing) -> &mut RingSlots {
        let empty = || RingSlots { fetches: 0, users: vec![vec![]; self.slots] };
        self.rings.entry((device, ring)).or_insert_with(empty)
    }

    /// One operator on one device: brings its inputs, then writes its output's columns.
    fn compute(
        &mut self,
        layer: Option<u32>,
        operator: Operator,
        device: DeviceId,
        rows: Range<u64>,
        source: OperandSource,
        fetched: &[TaskId],
        part: MicroBatch,
    ) -> Result<TaskId, LowerError> {
        for &buffer in operator.reads() {
            if buffer != Buffer::Tokens {
                self.bring(layer, buffer, &(0..buffer.columns(self.model)), device, part)?;
            }
        }
        let output = operator.writes();
        let columns = operator.output_columns(self.model, &rows);
        let first = rows.start == 0;
        let mut after = fetched.to_vec();
        after.extend(self.take_readers(output, device, part));
        let action = Action::Compute { operator, rows, source };
        let task = self.push(Lane::Device(device), layer, action, after, part);
        // A further part of an output leaves valid what this operator's earlier parts wrote.
        if first {
            self.invalidate(output, part);
        }
        self.copy(output, device, part).valid.push((columns, task));
        Ok(task)
    }

    /// Makes `columns` of `buffer` valid on `device`, by hops from wherever they are.
    fn bring(
        &mut self,
        layer: Option<u32>,
        buffer: Buffer,
        columns: &Range<u64>,
        device: DeviceId,
        part: MicroBatch,
    ) -> Result<(), LowerError> {
        let here = &self.copy(buffer, device, part).valid;
        if here.iter().any(|(valid, _)| valid.start <= columns.start && columns.end <= valid.end) {
            return Ok(());
        }
        let mut missing = vec![columns.clone()];
        for (valid, _) in here {
            missing = missing.iter().flat_map(|range| subtract(range, valid)).collect();
        }
        let own = self.own(device);
        let mut hops = Vec::new();
        for from in self.machine.device_ids().filter(|&from| from != device) {
            for (valid, writer) in &self.copies[self.at(buffer, from, part)].valid {
                let found: Vec<_> = missing.iter().filter_map(|range| intersect(range, valid)).collect();
                missing = missing.iter().flat_map(|range| subtract(range, valid)).collect();
                hops.extend(found.into_iter().map(|columns| (from, columns, *writer)));
            }
        }
        assert!(missing.is_empty(), "{buffer:?} is read before it is written");
        for (from, columns, writer) in hops {
            let there = self.own(from);
            let link = self.link(there, own, || format!("the {buffer:?} activation"))?;
            let mut after = vec![writer];
            after.extend(self.take_readers(buffer, device, part));
            let action = Action::Hop { buffer, columns: columns.clone(), from, link };
            let task = self.push(Lane::Device(device), layer, action, after, part);
            self.copy(buffer, from, part).readers.push(task);
            self.copy(buffer, device, part).valid.push((columns, task));
        }
        Ok(())
    }

    /// Forgets every copy of `buffer` (it is about to be written anew), but not who still reads it.
    fn invalidate(&mut self, buffer: Buffer, part: MicroBatch) {
        for device in self.machine.device_ids() {
            self.copy(buffer, device, part).valid.clear();
        }
    }

    /// Who must be done before the device overwrites its copy. The first of its tasks to wait is in front of all
    /// its later ones.
    fn take_readers(&mut self, buffer: Buffer, device: DeviceId, part: MicroBatch) -> Vec<TaskId> {
        std::mem::take(&mut self.copy(buffer, device, part).readers)
    }

    fn copy(&mut self, buffer: Buffer, device: DeviceId, part: MicroBatch) -> &mut BufferCopy {
        let at = self.at(buffer, device, part);
        &mut self.copies[at]
    }

    fn at(&self, buffer: Buffer, device: DeviceId, part: MicroBatch) -> usize {
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

    /// Appends a task. What its own lane runs before it needs no dependency.
    fn push(
        &mut self,
        lane: Lane,
        layer: Option<u32>,
        action: Action,
        after: Vec<TaskId>,
        micro_batch: MicroBatch,
    ) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        let after = dependencies(&self.tasks, lane, after);
        self.tasks.push(Task { lane, layer, micro_batch, action, after });
        id
    }
}

/// What of `range` lies outside `cut`.
fn subtract(range: &Range<u64>, cut: &Range<u64>) -> Vec<Range<u64>> {
    let left = range.start..range.end.min(cut.start);
    let right = range.start.max(cut.end)..range.end;
    [left, right].into_iter().filter(|r| r.start < r.end).collect()
}

/// What of `range` lies inside `other`.
fn intersect(range: &Range<u64>, other: &Range<u64>) -> Option<Range<u64>> {
    let both = range.start.max(other.start)..range.end.min(other.end);
    (both.start < both.end).then_some(both)
}
