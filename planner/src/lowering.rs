//! From a placement to a program: a walk through the operators that brings each its inputs.

use crate::placement::{LayerPlacement, Placement, Slice};
use crate::price_list::ALL_BUFFERS;
use crate::program::{Action, Lane, LowerError, Source, Task, TaskId};
use hwprofiles::{DeviceId, LinkId, Machine, MemoryId};
use scenarios::{Buffer, Model, Operator, Phase, Sublayer};
use std::collections::BTreeMap;
use std::ops::Range;

/// Valid columns of a buffer on one device, and who wrote and reads them.
#[derive(Debug, Clone, Default)]
struct Copy {
    /// Valid column ranges with the task that wrote each.
    valid: Vec<(Range<u64>, TaskId)>,
    /// Hops that have read it since it was last written. Its own device's tasks need no mention: all writers of
    /// the copy are in the same lane.
    readers: Vec<TaskId>,
}

/// Which kind of staging ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ring {
    Weights,
    Kv,
}

/// What is known while a program grows.
pub(crate) struct Lowering<'a> {
    machine: &'a Machine,
    model: &'a Model,
    phase: Phase,
    /// Of each ring.
    slots: usize,
    tasks: Vec<Task>,
    /// Of each buffer on each device: see [`Lowering::copy`].
    copies: Vec<Copy>,
    rings: BTreeMap<(DeviceId, Ring), Slots>,
}

/// The slots of one ring, filled in turn.
#[derive(Debug, Clone)]
struct Slots {
    /// Fetches so far.
    fetches: usize,
    /// The last users of each slot.
    users: Vec<Vec<TaskId>>,
}

impl<'a> Lowering<'a> {
    /// The tasks of one step of `phase`, in the order of issue.
    pub fn tasks(
        machine: &'a Machine,
        model: &'a Model,
        placement: &Placement,
        phase: Phase,
    ) -> Result<Vec<Task>, LowerError> {
        let copies = vec![Copy::default(); ALL_BUFFERS.len() * machine.devices.len()];
        let (tasks, rings) = (Vec::new(), BTreeMap::new());
        let slots = placement.pipelining.slots;
        let mut lowering = Self { machine, model, phase, slots, tasks, copies, rings };
        lowering.whole_sublayer(None, Sublayer::Embed, &placement.embed)?;
        for (index, layer) in placement.layers.iter().enumerate() {
            lowering.layer(index as u32, layer)?;
        }
        lowering.whole_sublayer(None, Sublayer::Head, &placement.head)?;
        // Sampling reads the logits in the memory of the head's first device.
        let lead = placement.head[0].device(phase);
        let columns = 0..Buffer::Logits.columns(model);
        lowering.bring(None, Buffer::Logits, &columns, lead)?;
        Ok(lowering.tasks)
    }

    fn layer(&mut self, index: u32, layer: &LayerPlacement) -> Result<(), LowerError> {
        for (sublayer, slices) in layer.iter() {
            match sublayer {
                Sublayer::Attention => self.attention(index, &slices[0])?,
                _ => self.whole_sublayer(Some(index), sublayer, slices)?,
            }
        }
        Ok(())
    }

    /// A sublayer with a matrix: its matrix-free operators run on the first slice's device.
    fn whole_sublayer(
        &mut self,
        layer: Option<u32>,
        sublayer: Sublayer,
        slices: &[Slice],
    ) -> Result<(), LowerError> {
        let lead = slices[0].device(self.phase);
        for &operator in sublayer.operators() {
            if !operator.is_matmul() {
                self.compute(layer, operator, lead, 0..0, Source::Resident, &[])?;
                continue;
            }
            for slice in slices {
                let device = slice.device(self.phase);
                let (source, fetched) = self.weights(layer, sublayer, slice)?;
                let task = self.compute(layer, operator, device, slice.rows.clone(), source, &fetched)?;
                if let Source::Staged(slot) = source {
                    self.occupy(device, Ring::Weights, slot, vec![task]);
                }
            }
        }
        Ok(())
    }

    /// Rotation, append and attention. KV that lives elsewhere is fetched into a slot, appended to there, and
    /// the new part stored back.
    fn attention(&mut self, layer: u32, slice: &Slice) -> Result<(), LowerError> {
        let device = slice.device(self.phase);
        let own = self.machine.device(device).memory;
        let (source, fetched) = if slice.home == own {
            (Source::Resident, vec![])
        } else {
            let link = self.link(slice.home, own, || format!("the KV cache of layer {layer}"))?;
            let (slot, after) = self.next_slot(device, Ring::Kv);
            let action = Action::FetchKv { device, slot };
            let fetch = self.push(Lane::Link(link), Some(layer), action, after);
            (Source::Staged(slot), vec![fetch])
        };
        let rotate = self.compute(Some(layer), Operator::Rotate, device, 0..0, source, &fetched)?;
        let attend = self.compute(Some(layer), Operator::Attention, device, 0..0, source, &[])?;
        if let Source::Staged(slot) = source {
            let link = self.link(own, slice.home, || format!("the KV cache of layer {layer}"))?;
            let action = Action::StoreKv { device, slot };
            let store = self.push(Lane::Link(link), Some(layer), action, vec![rotate]);
            self.occupy(device, Ring::Kv, slot, vec![attend, store]);
        }
        Ok(())
    }

    /// Where the device finds its slice, and the fetch to wait for.
    fn weights(
        &mut self,
        layer: Option<u32>,
        sublayer: Sublayer,
        slice: &Slice,
    ) -> Result<(Source, Vec<TaskId>), LowerError> {
        let device = slice.device(self.phase);
        let own = self.machine.device(device).memory;
        if slice.home == own {
            return Ok((Source::Resident, vec![]));
        }
        let link = self.link(slice.home, own, || format!("the weights of {sublayer}"))?;
        let (slot, after) = self.next_slot(device, Ring::Weights);
        let action = Action::FetchWeights { sublayer, rows: slice.rows.clone(), device, slot };
        let fetch = self.push(Lane::Link(link), layer, action, after);
        Ok((Source::Staged(slot), vec![fetch]))
    }

    /// The next slot of a ring and the tasks that must have left it.
    fn next_slot(&mut self, device: DeviceId, ring: Ring) -> (usize, Vec<TaskId>) {
        let ring = self.ring(device, ring);
        let slot = ring.fetches % ring.users.len();
        ring.fetches += 1;
        (slot, std::mem::take(&mut ring.users[slot]))
    }

    fn occupy(&mut self, device: DeviceId, ring: Ring, slot: usize, users: Vec<TaskId>) {
        self.ring(device, ring).users[slot] = users;
    }

    fn ring(&mut self, device: DeviceId, ring: Ring) -> &mut Slots {
        let empty = || Slots { fetches: 0, users: vec![vec![]; self.slots] };
        self.rings.entry((device, ring)).or_insert_with(empty)
    }

    /// One operator on one device: brings its inputs, then writes its output's columns.
    fn compute(
        &mut self,
        layer: Option<u32>,
        operator: Operator,
        device: DeviceId,
        rows: Range<u64>,
        source: Source,
        fetched: &[TaskId],
    ) -> Result<TaskId, LowerError> {
        for &buffer in operator.reads() {
            if buffer != Buffer::Tokens {
                self.bring(layer, buffer, &(0..buffer.columns(self.model)), device)?;
            }
        }
        let output = operator.writes();
        let columns = operator.output_columns(self.model, &rows);
        let first = rows.start == 0;
        let mut after = fetched.to_vec();
        after.extend(self.take_readers(output, device));
        let action = Action::Compute { operator, rows, source };
        let task = self.push(Lane::Device(device), layer, action, after);
        // A further part of an output leaves valid what this operator's earlier parts wrote.
        if first {
            self.invalidate(output);
        }
        self.copy(output, device).valid.push((columns, task));
        Ok(task)
    }

    /// Makes `columns` of `buffer` valid on `device`, by hops from wherever they are.
    fn bring(
        &mut self,
        layer: Option<u32>,
        buffer: Buffer,
        columns: &Range<u64>,
        device: DeviceId,
    ) -> Result<(), LowerError> {
        let here = &self.copy(buffer, device).valid;
        if here.iter().any(|(valid, _)| valid.start <= columns.start && columns.end <= valid.end) {
            return Ok(());
        }
        let mut missing = vec![columns.clone()];
        for (valid, _) in here {
            missing = missing.iter().flat_map(|range| subtract(range, valid)).collect();
        }
        let own = self.machine.device(device).memory;
        let mut hops = Vec::new();
        for from in self.machine.device_ids().filter(|&from| from != device) {
            for (valid, writer) in &self.copies[self.at(buffer, from)].valid {
                let part: Vec<_> = missing.iter().filter_map(|range| intersect(range, valid)).collect();
                missing = missing.iter().flat_map(|range| subtract(range, valid)).collect();
                hops.extend(part.into_iter().map(|columns| (from, columns, *writer)));
            }
        }
        assert!(missing.is_empty(), "{buffer:?} is read before it is written");
        for (from, columns, writer) in hops {
            let there = self.machine.device(from).memory;
            let link = self.link(there, own, || format!("the {buffer:?} activation"))?;
            let mut after = vec![writer];
            after.extend(self.take_readers(buffer, device));
            let action = Action::Hop { buffer, columns: columns.clone(), from, link };
            let task = self.push(Lane::Device(device), layer, action, after);
            self.copy(buffer, from).readers.push(task);
            self.copy(buffer, device).valid.push((columns, task));
        }
        Ok(())
    }

    /// Forgets every copy of `buffer` (it is about to be written anew), but not who still reads it.
    fn invalidate(&mut self, buffer: Buffer) {
        for device in self.machine.device_ids() {
            self.copy(buffer, device).valid.clear();
        }
    }

    /// Who must be done before the device overwrites its copy. The first of its tasks to wait is in front of all
    /// its later ones.
    fn take_readers(&mut self, buffer: Buffer, device: DeviceId) -> Vec<TaskId> {
        std::mem::take(&mut self.copy(buffer, device).readers)
    }

    fn copy(&mut self, buffer: Buffer, device: DeviceId) -> &mut Copy {
        let at = self.at(buffer, device);
        &mut self.copies[at]
    }

    fn at(&self, buffer: Buffer, device: DeviceId) -> usize {
        buffer as usize * self.machine.devices.len() + device.0
    }

    fn link(&self, from: MemoryId, to: MemoryId, what: impl Fn() -> String) -> Result<LinkId, LowerError> {
        self.machine.link_between(from, to).ok_or_else(|| LowerError::NoLink {
            from: self.machine.memory(from).name.clone(),
            to: self.machine.memory(to).name.clone(),
            what: what(),
        })
    }

    /// Appends a task. What its own lane runs before it needs no dependency.
    fn push(&mut self, lane: Lane, layer: Option<u32>, action: Action, after: Vec<TaskId>) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        let mut after: Vec<_> =
            after.into_iter().filter(|earlier| self.tasks[earlier.0 as usize].lane != lane).collect();
        after.sort_unstable();
        after.dedup();
        self.tasks.push(Task { lane, layer, action, after });
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
