//! The tasks that were issued so far, and those that later tasks may have to wait for. Layers that
//! are lowered alike are copied.

use crate::program::task::{Action, Lane, OperandSource, Task, TaskId, TaskIds};
use hwprofiles::DeviceId;
use scenarios::Sublayer;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// One device's copy of a buffer.
#[derive(Debug, Clone, Default)]
pub(super) struct BufferCopy {
    /// Valid column ranges, each with the task that wrote it.
    pub valid: SmallVec<[(Range<u64>, TaskId); 1]>,
    /// Hops that have read the copy since it was last written. The device's own tasks are not
    /// listed: all writers of the copy are in the same lane as they.
    pub readers: TaskIds,
}

/// The rings of staging slots of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StagingRing {
    Weights,
    /// The KV slots of one micro-batch.
    Kv(u64),
}

/// The slots of one ring, used in turn.
#[derive(Debug, Clone)]
pub(super) struct RingSlots {
    /// Number of fetches so far.
    pub fetches: usize,
    /// The last tasks that use each slot.
    pub users: Vec<TaskIds>,
}

/// The tasks so far.
#[derive(Debug, Clone, Default)]
pub(super) struct IssuedTasks {
    pub tasks: Vec<Task>,
    /// By buffer, device and micro-batch.
    pub copies: Vec<BufferCopy>,
    pub rings: BTreeMap<(DeviceId, StagingRing), RingSlots>,
}

/// The state after a layer.
pub(super) struct LayerEnd {
    /// The tasks of the layer.
    tasks: Range<usize>,
    copies: Vec<BufferCopy>,
    rings: BTreeMap<(DeviceId, StagingRing), RingSlots>,
}

impl RingSlots {
    /// The users of the slots, that of the next fetch first.
    fn in_turn(&self) -> impl Iterator<Item = &TaskIds> {
        let slots = self.users.len();
        (0..slots).map(move |slot| &self.users[(self.fetches + slot) % slots])
    }
}

impl IssuedTasks {
    /// The state now, after a layer whose first task is `first`.
    pub fn layer_end(&self, first: usize) -> LayerEnd {
        LayerEnd { tasks: first..self.tasks.len(), copies: self.copies.clone(), rings: self.rings.clone() }
    }

    /// Whether the last layer, which ended `now`, and all that it leaves behind are the same as
    /// with the layer `before`, with the tasks of the run of equal layers (from `run` on) one layer
    /// later. If so, the next equal layer is lowered in the same way.
    pub fn repeats(&self, run: usize, before: &LayerEnd, now: &LayerEnd) -> bool {
        let period = now.tasks.len();
        let same_task = |(one, before): (&TaskId, &TaskId)| {
            *one == later(*before, run, period)
                && self.tasks[one.0 as usize].lane == self.tasks[before.0 as usize].lane
        };
        let same = |one: &[TaskId], before: &[TaskId]| {
            one.len() == before.len() && one.iter().zip(before).all(same_task)
        };
        let same_copy = |(one, before): (&BufferCopy, &BufferCopy)| {
            let valid = one.valid.iter().zip(&before.valid);
            one.valid.len() == before.valid.len()
                && valid.into_iter().all(|((a, one), (b, before))| a == b && same_task((one, before)))
                && same(&one.readers, &before.readers)
        };
        let same_ring = |((a, one), (b, before)): (_, _)| {
            let (one, before): (&RingSlots, &RingSlots) = (one, before);
            a == b && one.in_turn().zip(before.in_turn()).all(|(one, before)| same(one, before))
        };
        let [one, other] = [&now.tasks, &before.tasks].map(|tasks| &self.tasks[tasks.clone()]);
        let alike = |(one, before): (&Task, &Task)| {
            one.lane == before.lane
                && one.action.without_slot() == before.action.without_slot()
                && same(&one.after, &before.after)
        };
        one.len() == other.len()
            && one.iter().zip(other).all(alike)
            && now.copies.iter().zip(&before.copies).all(same_copy)
            && now.rings.len() == before.rings.len()
            && now.rings.iter().zip(&before.rings).all(same_ring)
    }

    /// Appends the last layer, which ended `now` and repeats the one `before`, `times` more.
    pub fn repeat(&mut self, run: usize, before: &LayerEnd, now: &LayerEnd, times: usize) {
        let period = now.tasks.len();
        let fetches = |ring: &(DeviceId, StagingRing)| now.rings[ring].fetches - before.rings[ring].fetches;
        self.tasks.reserve(period * times);
        for time in 1..=times {
            for index in now.tasks.clone() {
                let one = &self.tasks[index];
                let mut task = Task {
                    layer: one.layer.map(|layer| layer + time as u32),
                    action: one.action.clone(),
                    after: TaskIds::from_slice(&one.after),
                    ..*one
                };
                task.after.iter_mut().for_each(|earlier| *earlier = later(*earlier, run, time * period));
                let lane = task.lane;
                if let Some((ring, slot)) = slot(lane, &mut task.action) {
                    *slot = (*slot + time * fetches(&ring)) % self.rings[&ring].users.len();
                }
                self.tasks.push(task);
            }
        }
        let move_on = |task: &mut TaskId| *task = later(*task, run, times * period);
        for copy in &mut self.copies {
            copy.valid.iter_mut().for_each(|(_, writer)| move_on(writer));
            copy.readers.iter_mut().for_each(move_on);
        }
        for (ring, slots) in &mut self.rings {
            slots.users.iter_mut().flatten().for_each(move_on);
            let (more, length) = (times * fetches(ring), slots.users.len());
            slots.fetches += more;
            slots.users.rotate_right(more % length);
        }
    }
}

/// `task`, or if it is of the run of layers from `run` on, the one `tasks` later.
fn later(task: TaskId, run: usize, tasks: usize) -> TaskId {
    if (task.0 as usize) < run { task } else { TaskId(task.0 + tasks as u32) }
}

/// The slot that a task without micro-batches uses, and its ring.
fn slot(lane: Lane, action: &mut Action) -> Option<((DeviceId, StagingRing), &mut usize)> {
    match (action, lane) {
        (Action::FetchWeights { device, slot, .. }, _) => Some(((*device, StagingRing::Weights), slot)),
        (Action::FetchKv { device, slot } | Action::StoreKv { device, slot }, _) => {
            Some(((*device, StagingRing::Kv(0)), slot))
        }
        (Action::Compute { operator, source: OperandSource::Staged(slot), .. }, Lane::Device(device)) => {
            let ring = match operator.sublayer() {
                Sublayer::Attention => StagingRing::Kv(0),
                _ => StagingRing::Weights,
            };
            Some(((device, ring), slot))
        }
        _ => None,
    }
}

/// The parts of `range` outside `cut`.
pub(super) fn subtract(range: &Range<u64>, cut: &Range<u64>) -> SmallVec<[Range<u64>; 2]> {
    let left = range.start..range.end.min(cut.start);
    let right = range.start.max(cut.end)..range.end;
    [left, right].into_iter().filter(|r| r.start < r.end).collect()
}

/// The part of `range` inside `other`.
pub(super) fn intersect(range: &Range<u64>, other: &Range<u64>) -> Option<Range<u64>> {
    let both = range.start.max(other.start)..range.end.min(other.end);
    (both.start < both.end).then_some(both)
}
