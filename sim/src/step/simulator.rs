//! One step: a program's tasks on their lanes, sharing bandwidth.
//!
//! A lane runs its tasks in order. A task starts when its lane is free and every task in its
//! `after` has ended. If a device's lane had to wait for another lane, the device's wake-up time
//! ([`hwprofiles::Device::sync`]) is added. A link's lane has no wake-up time: the start of a
//! transfer is the link's latency, which is part of its price.
//!
//! If a host issues a device's kernels one by one ([`hwprofiles::Device::issue`]), it issues them
//! from the beginning of the step on and waits for nothing. No task starts before it was issued. So
//! a step takes at least as long as all launches, and at least as long as all kernels.
//!
//! A started task first spends its overhead, which moves no bytes. Then its body runs at the speed
//! that [`FairShare`] gives it. Speeds change whenever a body begins or ends, and only then.
//!
//! The simulator looks at every lane to find the next change and does not use a
//! [`crate::EventQueue`]. Nearly every change moves the ends of all other running tasks, so a queue
//! would hold mostly stale entries.
//!
//! All times inside a step are whole nanoseconds, because that is what a trace records.

use crate::clock::{SimTime, Tick};
use crate::step::fair_share::{FairShare, Flow, MemoryDraw};
use crate::step::steady_state::{Recurrence, RepeatedTasks, SteadyState};
use hwprofiles::{Bytes, Machine, MissingRate, Seconds};
use planner::{CostModel, Lane, Program, Task, TaskCost};
use rustc_hash::FxHashMap;
use scenarios::Step;
use smallvec::SmallVec;
use std::ops::Range;

/// The number of bodies that usually run at a time, at most.
const FEW: usize = 8;

/// When a task ran, since the step began. It includes the task's overhead but not the wake-up time
/// before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskSpan {
    /// When its overhead began.
    pub start: SimTime,
    /// When it ended.
    pub end: SimTime,
}

/// A simulated step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepOutcome<'a> {
    /// When each task ran, by [`planner::TaskId`].
    pub spans: &'a [TaskSpan],
    /// The end of the last task.
    pub duration: SimTime,
    kinds: &'a [TaskKind],
    kind_of_task: &'a [u32],
}

impl<'a> StepOutcome<'a> {
    /// The price of each task.
    pub fn prices(&self) -> impl Iterator<Item = TaskCost> + use<'a> {
        let kinds = self.kinds;
        self.kind_of_task.iter().map(move |&kind| kinds[kind as usize].price)
    }

    /// The duration as model time.
    pub fn seconds(&self) -> Seconds {
        step_seconds(self.duration)
    }
}

/// A time within a step as model time: the float nearest to its whole nanoseconds, as traces give
/// it.
pub(crate) fn step_seconds(time: SimTime) -> Seconds {
    Seconds::from_nanos(time.nanos())
}

/// The price of tasks that cost the same, as the simulation needs it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TaskKind {
    pub price: TaskCost,
    overhead: SimTime,
    issue: SimTime,
    body: SimTime,
    flow: Flow,
}

impl TaskKind {
    /// Rounds the overhead and the whole up, not the body: alone, a task takes its price rounded
    /// up.
    pub fn new(machine: &Machine, price: TaskCost) -> Self {
        let overhead = SimTime::rounding_up(price.overhead, Tick::Nanosecond);
        let body = SimTime::rounding_up(price.alone, Tick::Nanosecond).saturating_sub(overhead);
        let issue = SimTime::rounding_up(price.issue, Tick::Nanosecond);
        Self { price, overhead, issue, body, flow: flow(machine, &price, body) }
    }
}

/// The kinds of tasks of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct KindTable {
    pub kinds: Vec<TaskKind>,
    /// The speeds of bodies of these kinds: layers are alike, so the same kinds run together again
    /// and again.
    speeds: FxHashMap<SmallVec<[u32; FEW]>, SmallVec<[f64; FEW]>>,
}

impl KindTable {
    fn clear(&mut self) {
        self.kinds.clear();
        self.speeds.clear();
    }
}

/// Simulates steps on one machine. It keeps its allocations from step to step.
#[derive(Debug, Clone)]
pub struct Simulator<'a> {
    cost_model: CostModel<'a>,
    /// Whether hosts issue the kernels of the program.
    issues: bool,
    sharing: FairShare,
    lanes: Vec<LaneState>,
    /// The lanes that have tasks.
    busy: Vec<usize>,
    table: KindTable,
    spans: Vec<TaskSpan>,
    /// Per task: its kind, whether it has ended, and the next task of its lane.
    kind_of_task: Vec<u32>,
    ended: Vec<bool>,
    next: Vec<Option<u32>>,
    /// The bodies that run: their lanes, their kinds and their speeds.
    body_lanes: Vec<usize>,
    body_kinds: SmallVec<[u32; FEW]>,
    speeds: Vec<f64>,
}

#[derive(Debug, Clone)]
struct LaneState {
    /// The wake-up time after waiting for another lane.
    sync: SimTime,
    /// The task to start next.
    head: Option<u32>,
    /// When the task before it ended.
    free: SimTime,
    /// When the host had issued the task before it.
    issued: SimTime,
    running: Option<RunningTask>,
}

#[derive(Debug, Clone)]
struct RunningTask {
    task: u32,
    /// When the overhead ends and the body begins.
    body_at: SimTime,
    /// Nanoseconds of the body at speed 1 that were left at `since`.
    left: f64,
    since: SimTime,
    /// Zero while the body has not begun.
    speed: f64,
    /// When the body ends at this speed.
    end: SimTime,
}

impl RunningTask {
    /// When its state changes next.
    fn next_change(&self) -> SimTime {
        if self.speed == 0.0 { self.body_at } else { self.end }
    }

    /// Continues at `speed` from `now`.
    fn set_speed(&mut self, speed: f64, now: SimTime) {
        // An unchanged speed keeps its end: recomputing it would add up rounding.
        if speed != self.speed {
            self.left = (self.left - self.speed * (now - self.since).nanos() as f64).max(0.0);
            self.since = now;
            self.speed = speed;
            self.end = now + SimTime::from_nanos((self.left / speed).ceil() as u64);
        }
    }
}

impl LaneState {
    /// Lets its running task be the one `tasks` later, and all of its times be later.
    fn move_on(&mut self, tasks: u32, time: SimTime) {
        self.free += time;
        if self.issued > SimTime::ZERO {
            self.issued += time;
        }
        if let Some(running) = &mut self.running {
            running.task += tasks;
            running.body_at += time;
            running.since += time;
            running.end += time;
        }
    }
}

impl<'a> Simulator<'a> {
    /// A simulator of `cost_model`'s machine, model and formats.
    pub fn new(cost_model: CostModel<'a>) -> Self {
        let machine = cost_model.machine;
        let memories = machine.memories.iter().map(|memory| memory.bandwidth.value);
        let links = machine.links.iter().map(|link| link.bandwidth.value);
        let wake_up = |sync: Seconds| SimTime::rounding_up(sync, Tick::Nanosecond);
        let device_syncs = machine.devices.iter().map(|device| wake_up(device.sync.value));
        let link_syncs = machine.links.iter().map(|_| SimTime::ZERO);
        let lane =
            |sync| LaneState { sync, head: None, free: SimTime::ZERO, issued: SimTime::ZERO, running: None };
        Self {
            cost_model,
            issues: true,
            sharing: FairShare::new(memories.chain(links)),
            lanes: device_syncs.chain(link_syncs).map(lane).collect(),
            busy: Vec::new(),
            table: KindTable::default(),
            spans: Vec::new(),
            kind_of_task: Vec::new(),
            ended: Vec::new(),
            next: Vec::new(),
            body_lanes: Vec::new(),
            body_kinds: SmallVec::new(),
            speeds: Vec::new(),
        }
    }

    /// The machine, model and formats that give the tasks' prices.
    pub fn cost_model(&self) -> CostModel<'a> {
        self.cost_model
    }

    /// Simulates one `step` of `program`, which must be of the step's phase.
    pub fn step(&mut self, program: &Program, step: &Step) -> Result<StepOutcome<'_>, MissingRate> {
        assert_eq!(program.phase, step.phase, "a program runs steps of its own phase");
        let cost_model = self.cost_model;
        self.step_priced_by(program, |_| false, |task| cost_model.task_cost(task, step))
    }

    /// Simulates one step of `program` with the prices that `price` gives. A task costs the same in
    /// every layer of a kind, unless it is `uneven`.
    pub fn step_priced_by(
        &mut self,
        program: &Program,
        uneven: impl Fn(&Task) -> bool,
        price: impl Fn(&Task) -> Result<TaskCost, MissingRate>,
    ) -> Result<StepOutcome<'_>, MissingRate> {
        self.table.clear();
        for task in self.classify(program, uneven) {
            self.table.kinds.push(TaskKind::new(self.cost_model.machine, price(task)?));
        }
        Ok(self.play(program))
    }

    /// The duration of one step of `program` with known prices: task `i` is of the kind `kinds[i]`
    /// of `table`. Of the sequences `repeated`, whose tasks must be of equal kinds, only as many
    /// repetitions are simulated as lead to a steady state. The duration is the same to the
    /// nanosecond.
    pub(crate) fn step_of_kinds(
        &mut self,
        program: &Program,
        repeated: &[RepeatedTasks],
        kinds: &[u32],
        table: &mut KindTable,
    ) -> SimTime {
        self.kind_of_task.clear();
        self.kind_of_task.extend_from_slice(kinds);
        std::mem::swap(&mut self.table, table);
        let duration = self.play_with(program, repeated).duration;
        std::mem::swap(&mut self.table, table);
        duration
    }

    /// The number of tasks of the last step that were simulated and not skipped.
    #[cfg(test)]
    pub(crate) fn simulated(&self) -> usize {
        self.spans.iter().filter(|span| span.end > SimTime::ZERO).count()
    }

    /// The first task of each kind. Notes the kind of each task. Layers of a kind are alike: a task
    /// that does the same on the same lane costs the same. Exceptions are the head, which is in no
    /// layer and sees fewer rows, and `uneven` tasks.
    fn classify<'p>(&mut self, program: &'p Program, uneven: impl Fn(&Task) -> bool) -> Vec<&'p Task> {
        let (mut first, mut known) = (Vec::new(), FxHashMap::default());
        self.kind_of_task.clear();
        for task in &program.tasks {
            let layer = task.layer.filter(|_| uneven(task));
            let key = (task.lane, task.kind, layer, task.micro_batch, &task.action);
            let kind = *known.entry(key).or_insert_with(|| {
                first.push(task);
                first.len() as u32 - 1
            });
            self.kind_of_task.push(kind);
        }
        first
    }

    /// Simulates one step of `program` in which task `i` costs `prices[i]`.
    pub fn step_priced(&mut self, program: &Program, prices: &[TaskCost]) -> StepOutcome<'_> {
        assert_eq!(program.tasks.len(), prices.len(), "every task has a price");
        self.table.clear();
        self.table.kinds.extend(prices.iter().map(|&price| TaskKind::new(self.cost_model.machine, price)));
        self.kind_of_task.clear();
        self.kind_of_task.extend(0..prices.len() as u32);
        self.play(program)
    }

    fn play(&mut self, program: &Program) -> StepOutcome<'_> {
        self.play_with(program, &[])
    }

    /// Plays the program without tasks of `repeated` that are played in a steady state. Skipped
    /// tasks have no spans.
    fn play_with(&mut self, program: &Program, repeated: &[RepeatedTasks]) -> StepOutcome<'_> {
        self.reset(program);
        let mut now = SimTime::ZERO;
        let mut steady = SteadyState::new(repeated);
        loop {
            let begun = self.start_ready_tasks(program, now, &steady);
            if let Some((sequence, task)) = begun {
                now += self.skipped(program, &mut steady, sequence, task, now);
            }
            let changes = self
                .busy
                .iter()
                .filter_map(|&lane| self.lanes[lane].running.as_ref().map(RunningTask::next_change));
            let Some(next) = changes.min() else { break };
            now = next;
            self.begin_and_end_bodies(now);
            self.share(now);
        }
        debug_assert!(self.ended.iter().all(|&ended| ended), "every task ends");
        let duration = self.spans.iter().map(|span| span.end).max().unwrap_or(SimTime::ZERO);
        StepOutcome {
            spans: &self.spans,
            duration,
            kinds: &self.table.kinds,
            kind_of_task: &self.kind_of_task,
        }
    }

    fn reset(&mut self, program: &Program) {
        let tasks = program.tasks.len();
        self.issues = !program.is_replayed(self.cost_model.machine);
        self.spans.clear();
        self.spans.resize(tasks, TaskSpan { start: SimTime::ZERO, end: SimTime::ZERO });
        self.ended.clear();
        self.ended.resize(tasks, false);
        self.next.clear();
        self.next.resize(tasks, None);
        for lane in &mut self.lanes {
            (lane.head, lane.free, lane.issued, lane.running) = (None, SimTime::ZERO, SimTime::ZERO, None);
        }
        for (index, task) in program.tasks.iter().enumerate().rev() {
            let lane = lane_index(self.cost_model.machine, task);
            self.next[index] = self.lanes[lane].head.replace(index as u32);
        }
        self.busy.clear();
        self.busy.extend((0..self.lanes.len()).filter(|&lane| self.lanes[lane].head.is_some()));
    }

    /// Starts the next task of every free lane whose dependencies have ended. Returns the one that
    /// begins a repetition of a sequence, with the sequence's index.
    fn start_ready_tasks(
        &mut self,
        program: &Program,
        now: SimTime,
        steady: &SteadyState<'_>,
    ) -> Option<(usize, u32)> {
        let mut begun = None;
        for &lane in &self.busy {
            let lane = &mut self.lanes[lane];
            let (None, Some(task)) = (&lane.running, lane.head) else { continue };
            let after = &program.tasks[task as usize].after;
            if !after.iter().all(|earlier| self.ended[earlier.0 as usize]) {
                continue;
            }
            let ready = after.iter().map(|earlier| self.spans[earlier.0 as usize].end).max();
            let had_to_wait = ready.is_some_and(|ready| ready > lane.free);
            let kind = &self.table.kinds[self.kind_of_task[task as usize] as usize];
            if self.issues {
                lane.issued += kind.issue;
            }
            let start = if had_to_wait { now + lane.sync } else { now }.max(lane.issued);
            self.spans[task as usize].start = start;
            begun = begun.or(steady.begun_by(task).map(|sequence| (sequence, task)));
            lane.head = self.next[task as usize];
            lane.running = Some(RunningTask {
                task,
                body_at: start + kind.overhead,
                left: kind.body.nanos() as f64,
                since: SimTime::ZERO,
                speed: 0.0,
                end: SimTime::ZERO,
            });
        }
        begun
    }

    /// Moves all lanes on by as many repetitions as are copies of the last ones, and returns the
    /// time that these take. `task` starts a repetition now.
    fn skipped(
        &mut self,
        program: &Program,
        steady: &mut SteadyState<'_>,
        sequence: usize,
        task: u32,
        now: SimTime,
    ) -> SimTime {
        let RepeatedTasks { tasks, .. } = steady.sequence(sequence);
        let Some(state) = self.state(tasks, task, now) else { return SimTime::ZERO };
        let Some(Recurrence { tasks: period, time }) = steady.note(sequence, task, now, state) else {
            return SimTime::ZERO;
        };
        let heads = || self.busy.iter().filter_map(|&lane| self.lanes[lane].head.map(|head| head as usize));
        let Some(first) = heads().filter(|head| tasks.contains(head)).max() else { return SimTime::ZERO };
        // A lane that waits for a later task must not be skipped over.
        let waited = heads().filter(|head| !tasks.contains(head)).map(|head| {
            program.tasks[head].after.iter().map(|earlier| earlier.0 as usize).max().unwrap_or(0)
        });
        let end = waited.fold(tasks.end, usize::min);
        let times = end.saturating_sub(first + 1) / period;
        let (by_tasks, by_time) = ((times * period) as u32, SimTime::from_nanos(time.nanos() * times as u64));
        for &index in &self.busy {
            let lane = &mut self.lanes[index];
            let Some(head) = lane.head.filter(|head| tasks.contains(&(*head as usize))) else { continue };
            let mut between = lane.running.as_ref().map(|running| running.task).or(Some(head));
            let until = lane.running.as_ref().map_or(head, |running| running.task) + by_tasks;
            while let Some(task) = between.filter(|&task| task < until) {
                self.ended[task as usize] = true;
                between = self.next[task as usize];
            }
            lane.head = match &lane.running {
                Some(_) => self.next[until as usize],
                None => Some(until),
            };
            lane.move_on(by_tasks, by_time);
        }
        if times > 0 {
            steady.leave();
        }
        by_time
    }

    /// What the future depends on, counted from `now` and `base`. `None` if a lane works on
    /// something outside `tasks`.
    fn state(&self, tasks: &Range<usize>, base: u32, now: SimTime) -> Option<Vec<u64>> {
        let ahead = |time: SimTime| time.nanos().wrapping_sub(now.nanos());
        let mut state = Vec::with_capacity(8 * self.busy.len());
        for &index in &self.busy {
            let lane = &self.lanes[index];
            let inside = |task: u32| tasks.contains(&(task as usize));
            // A lane that has not issued anything one by one has not counted its time.
            let issued = if lane.issued == SimTime::ZERO { 0 } else { ahead(lane.issued) };
            match (lane.head, &lane.running) {
                (Some(head), Some(running)) if inside(head) && inside(running.task) => {
                    let RunningTask { task, body_at, left, since, speed, end } = *running;
                    let begun = speed > 0.0;
                    let times = [(begun, since), (begun, end), (body_at > now, body_at)];
                    state.extend([head, task].map(|task| u64::from(task.wrapping_sub(base))));
                    state.extend(times.map(|(counts, time)| if counts { ahead(time) } else { 0 }));
                    state.extend([left.to_bits(), speed.to_bits()]);
                }
                (_, Some(_)) => return None,
                (Some(head), None) if inside(head) => state.push(u64::from(head.wrapping_sub(base))),
                (head, None) => state.push(head.map_or(u64::MAX, |head| u64::from(head) | 1 << 32)),
            }
            state.extend([issued, u64::from(lane.running.is_none() && lane.free == now)]);
        }
        Some(state)
    }

    /// Ends the tasks that are done at `now` and lists the bodies that run from then on.
    fn begin_and_end_bodies(&mut self, now: SimTime) {
        self.body_lanes.clear();
        self.body_kinds.clear();
        for &index in &self.busy {
            let lane = &mut self.lanes[index];
            let Some(running) = &lane.running else { continue };
            let begun = running.body_at <= now;
            let no_body = running.left == 0.0 && running.speed == 0.0;
            if begun && (no_body || (running.speed > 0.0 && running.end <= now)) {
                self.spans[running.task as usize].end = now;
                self.ended[running.task as usize] = true;
                lane.free = now;
                lane.running = None;
            } else if begun {
                self.body_lanes.push(index);
                self.body_kinds.push(self.kind_of_task[running.task as usize]);
            }
        }
    }

    fn share(&mut self, now: SimTime) {
        let KindTable { kinds, speeds } = &mut self.table;
        let flow = |&kind: &u32| &kinds[kind as usize].flow;
        let speeds: &[f64] = match &self.body_kinds[..] {
            [] => &[],
            [_] => &[1.0],
            _ => speeds.entry(self.body_kinds.clone()).or_insert_with(|| {
                let flows: SmallVec<[&Flow; FEW]> = self.body_kinds.iter().map(flow).collect();
                self.sharing.share(&flows, &mut self.speeds);
                self.speeds.iter().copied().collect()
            }),
        };
        for (&index, &speed) in self.body_lanes.iter().zip(speeds) {
            if let Some(running) = &mut self.lanes[index].running {
                running.set_speed(speed, now);
            }
        }
    }
}

/// Lanes are numbered devices first, then links. A link without a wire of its own has an empty
/// lane.
fn lane_index(machine: &Machine, task: &Task) -> usize {
    match task.lane.queue(machine) {
        Lane::Device(device) => device.0,
        Lane::Link(link) => machine.devices.len() + link.0,
    }
}

/// The bandwidth that a task wants while its body runs. Pools are numbered memories first, then
/// links. A transfer draws on its link's wire.
///
/// A transfer's rate counts the bytes over its link. So a transfer within one memory, which reads
/// and writes that memory, gets two shares of it.
fn flow(machine: &Machine, price: &TaskCost, body: SimTime) -> Flow {
    let moved = price.moved();
    if moved == Bytes::ZERO || body == SimTime::ZERO {
        return Flow { rate: hwprofiles::BytesPerSec::ZERO, draws: [None; 4] };
    }
    let draw = |pool: usize, bytes: Bytes| MemoryDraw { pool, per_byte: bytes.as_f64() / moved.as_f64() };
    let link = price.carried.map(|(link, bytes)| draw(machine.memories.len() + machine.wire(link).0, bytes));
    let some = |load: Option<planner::BandwidthUse>| load.filter(|load| load.bytes > Bytes::ZERO);
    let [a, b, c] = price.loads.map(|load| some(load).map(|load| draw(load.memory.0, load.bytes)));
    Flow { rate: moved / step_seconds(body), draws: [a, b, c, link] }
}
