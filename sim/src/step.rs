//! One step: a program's tasks on their lanes, sharing bandwidth.
//!
//! A lane runs its tasks in order. A task starts when its lane is free and every task in its `after` has ended;
//! where its lane had to wait for one, the device's wake-up ([`hwprofiles::Device::sync`]) comes on top. A link's
//! lane has no wake-up of its own: what starting a transfer costs is the link's α, part of the transfer's price.
//! Where a host issues a device's kernels one by one ([`hwprofiles::Device::issue`]), it does so from the step's begin on
//! without waiting for anything, and no task starts before it was issued: a step takes at least all launches and at
//! least all kernels, and where one is far the larger, just that.
//! Then the task spends its overhead, which moves no bytes, and then its body at the speed that
//! [`Sharing`] leaves it. Speeds change whenever a body begins or ends, and only then.
//!
//! The next change is found by looking at every lane, not in an [`crate::EventQueue`]: nearly every change
//! moves the ends of all other running tasks, of which there are as many as lanes, so a queue would hold
//! mostly stale entries.

use crate::fair::{Draw, Flow, Sharing};
use crate::time::SimTime;
use hwprofiles::{Bytes, Machine, Missing, Seconds};
use planner::{Lane, Price, Pricing, Program, Task};
use rustc_hash::FxHashMap;
use scenarios::Step;
use smallvec::SmallVec;

/// Bodies that run at a time, usually at most.
const FEW: usize = 8;

/// When a task ran, since the step began. The wake-up before it is not part of it, its overhead is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Its overhead began.
    pub start: SimTime,
    /// It was done.
    pub end: SimTime,
}

/// A simulated step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome<'a> {
    /// When each task ran, by [`planner::TaskId`].
    pub spans: &'a [Span],
    /// The last task's end.
    pub duration: SimTime,
    wants: &'a [Want],
    of_task: &'a [u32],
}

impl<'a> Outcome<'a> {
    /// What each task was priced at.
    pub fn prices(&self) -> impl Iterator<Item = Price> + use<'a> {
        let wants = self.wants;
        self.of_task.iter().map(move |&want| wants[want as usize].price)
    }
}

/// What tasks that are alike want: their price, as the simulation needs it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Want {
    price: Price,
    overhead: SimTime,
    issue: SimTime,
    body: SimTime,
    flow: Flow,
}

impl Want {
    /// The overhead and the whole are rounded, not the body: alone, a task takes its price rounded up.
    fn of(machine: &Machine, price: Price) -> Self {
        let overhead = SimTime::rounding_up(price.overhead);
        let body = SimTime::rounding_up(price.alone).saturating_sub(overhead);
        let issue = SimTime::rounding_up(price.issue);
        Self { price, overhead, issue, body, flow: flow(machine, &price, body) }
    }
}

/// Simulates steps on one machine; keeps its allocations from step to step.
#[derive(Debug, Clone)]
pub struct Simulator<'a> {
    pricing: Pricing<'a>,
    sharing: Sharing,
    lanes: Vec<LaneState>,
    /// The lanes that have tasks.
    busy: Vec<usize>,
    wants: Vec<Want>,
    spans: Vec<Span>,
    /// Per task: what it wants, whether it has ended, and the next of its lane.
    of_task: Vec<u32>,
    ended: Vec<bool>,
    next: Vec<Option<u32>>,
    /// The bodies that run: their lanes, what they want and what they get.
    bodies: Vec<usize>,
    wanted: SmallVec<[u32; FEW]>,
    speeds: Vec<f64>,
    /// What bodies with such wants get: layers are alike, so the same run together again and again.
    known: FxHashMap<SmallVec<[u32; FEW]>, SmallVec<[f64; FEW]>>,
}

#[derive(Debug, Clone)]
struct LaneState {
    /// What waiting for another lane adds.
    sync: SimTime,
    /// The task to start next.
    head: Option<u32>,
    /// When the task before it ended.
    free: SimTime,
    /// When the host had issued the task before it.
    issued: SimTime,
    running: Option<Running>,
}

#[derive(Debug, Clone)]
struct Running {
    task: u32,
    /// When the overhead ends and the body begins.
    body_at: SimTime,
    /// The body's length at speed 1, of which `left` nanoseconds were left at `since`.
    left: f64,
    since: SimTime,
    /// Zero while the body has not begun.
    speed: f64,
    /// When the body ends at this speed.
    end: SimTime,
}

impl Running {
    /// When something happens to it next.
    fn next_change(&self) -> SimTime {
        if self.speed == 0.0 { self.body_at } else { self.end }
    }

    /// Goes on at `speed` from `now`.
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

impl<'a> Simulator<'a> {
    /// A simulator of `pricing`'s machine, model and formats.
    pub fn new(pricing: Pricing<'a>) -> Self {
        let machine = pricing.machine;
        let memories = machine.memories.iter().map(|memory| memory.bandwidth.value);
        let links = machine.links.iter().map(|link| link.bandwidth.value);
        let device_syncs = machine.devices.iter().map(|device| SimTime::rounding_up(device.sync.value));
        let link_syncs = machine.links.iter().map(|_| SimTime::ZERO);
        let lane =
            |sync| LaneState { sync, head: None, free: SimTime::ZERO, issued: SimTime::ZERO, running: None };
        Self {
            pricing,
            sharing: Sharing::new(memories.chain(links)),
            lanes: device_syncs.chain(link_syncs).map(lane).collect(),
            busy: Vec::new(),
            wants: Vec::new(),
            spans: Vec::new(),
            of_task: Vec::new(),
            ended: Vec::new(),
            next: Vec::new(),
            bodies: Vec::new(),
            wanted: SmallVec::new(),
            speeds: Vec::new(),
            known: FxHashMap::default(),
        }
    }

    /// What the simulator prices tasks by.
    pub fn pricing(&self) -> Pricing<'a> {
        self.pricing
    }

    /// Simulates one `step` of `program`, which must be of the step's phase.
    pub fn step(&mut self, program: &Program, step: &Step) -> Result<Outcome<'_>, Missing> {
        assert_eq!(program.phase, step.phase, "a program runs steps of its own phase");
        let pricing = self.pricing;
        self.step_by(program, |_| false, |task| pricing.price(task, step))
    }

    /// Simulates one step of `program` in which `price` says what a task costs: the same in every layer but where it is
    /// `uneven`.
    pub fn step_by(
        &mut self,
        program: &Program,
        uneven: impl Fn(&Task) -> bool,
        price: impl Fn(&Task) -> Result<Price, Missing>,
    ) -> Result<Outcome<'_>, Missing> {
        self.wants.clear();
        for task in self.kinds(program, uneven) {
            self.wants.push(Want::of(self.pricing.machine, price(task)?));
        }
        Ok(self.play(program))
    }

    /// How long the tasks of `program` together take more in one of two steps than in the other: contention aside, the
    /// steps differ by no more.
    pub fn apart(&mut self, program: &Program, steps: [&Step; 2]) -> Result<Seconds, Missing> {
        let pricing = self.pricing;
        let mut more = Vec::new();
        for task in self.kinds(program, |_| false) {
            let [one, other] = steps.map(|step| pricing.price(task, step));
            more.push((one?.alone.get() - other?.alone.get()).abs());
        }
        Ok(Seconds::new(self.of_task.iter().map(|&kind| more[kind as usize]).sum()))
    }

    /// The first task of each kind; notes each task's kind. Layers are alike: what does the same on the same lane costs
    /// the same, but in the head, which sees fewer rows, and where tasks are `uneven`.
    fn kinds<'p>(&mut self, program: &'p Program, uneven: impl Fn(&Task) -> bool) -> Vec<&'p Task> {
        let (mut first, mut known) = (Vec::new(), FxHashMap::default());
        self.of_task.clear();
        for task in &program.tasks {
            let layer = task.layer.filter(|_| uneven(task));
            let key = (task.lane, task.layer.is_none(), layer, task.micro_batch, &task.action);
            let kind = *known.entry(key).or_insert_with(|| {
                first.push(task);
                first.len() as u32 - 1
            });
            self.of_task.push(kind);
        }
        first
    }

    /// Simulates one step of `program` in which task `i` costs `prices[i]`, wherever those come from.
    pub fn step_priced(&mut self, program: &Program, prices: &[Price]) -> Outcome<'_> {
        assert_eq!(program.tasks.len(), prices.len(), "every task has a price");
        self.wants.clear();
        self.wants.extend(prices.iter().map(|&price| Want::of(self.pricing.machine, price)));
        self.of_task.clear();
        self.of_task.extend(0..prices.len() as u32);
        self.play(program)
    }

    fn play(&mut self, program: &Program) -> Outcome<'_> {
        self.reset(program);
        let mut now = SimTime::ZERO;
        loop {
            self.start_what_can(program, now);
            let changes = self
                .busy
                .iter()
                .filter_map(|&lane| self.lanes[lane].running.as_ref().map(Running::next_change));
            let Some(next) = changes.min() else { break };
            now = next;
            self.begin_and_end_bodies(now);
            self.share(now);
        }
        debug_assert!(self.ended.iter().all(|&ended| ended), "every task ends");
        let duration = self.spans.iter().map(|span| span.end).max().unwrap_or(SimTime::ZERO);
        Outcome { spans: &self.spans, duration, wants: &self.wants, of_task: &self.of_task }
    }

    fn reset(&mut self, program: &Program) {
        let tasks = program.tasks.len();
        self.spans.clear();
        self.spans.resize(tasks, Span { start: SimTime::ZERO, end: SimTime::ZERO });
        self.ended.clear();
        self.ended.resize(tasks, false);
        self.next.clear();
        self.next.resize(tasks, None);
        for lane in &mut self.lanes {
            (lane.head, lane.free, lane.issued, lane.running) = (None, SimTime::ZERO, SimTime::ZERO, None);
        }
        for (index, task) in program.tasks.iter().enumerate().rev() {
            let lane = lane_index(self.pricing.machine, task);
            self.next[index] = self.lanes[lane].head.replace(index as u32);
        }
        self.known.clear();
        self.busy.clear();
        self.busy.extend((0..self.lanes.len()).filter(|&lane| self.lanes[lane].head.is_some()));
    }

    /// Starts the next task of every free lane whose dependencies have ended.
    fn start_what_can(&mut self, program: &Program, now: SimTime) {
        for &lane in &self.busy {
            let lane = &mut self.lanes[lane];
            let (None, Some(task)) = (&lane.running, lane.head) else { continue };
            let after = &program.tasks[task as usize].after;
            if !after.iter().all(|earlier| self.ended[earlier.0 as usize]) {
                continue;
            }
            let ready = after.iter().map(|earlier| self.spans[earlier.0 as usize].end).max();
            let had_to_wait = ready.is_some_and(|ready| ready > lane.free);
            let want = &self.wants[self.of_task[task as usize] as usize];
            lane.issued += want.issue;
            let start = if had_to_wait { now + lane.sync } else { now }.max(lane.issued);
            self.spans[task as usize].start = start;
            lane.head = self.next[task as usize];
            lane.running = Some(Running {
                task,
                body_at: start + want.overhead,
                left: want.body.nanos() as f64,
                since: SimTime::ZERO,
                speed: 0.0,
                end: SimTime::ZERO,
            });
        }
    }

    /// Ends the tasks that are done at `now` and lists the bodies that run from then on.
    fn begin_and_end_bodies(&mut self, now: SimTime) {
        self.bodies.clear();
        self.wanted.clear();
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
                self.bodies.push(index);
                self.wanted.push(self.of_task[running.task as usize]);
            }
        }
    }

    fn share(&mut self, now: SimTime) {
        let flow = |&want: &u32| &self.wants[want as usize].flow;
        let speeds: &[f64] = match &self.wanted[..] {
            [] => &[],
            [_] => &[1.0],
            _ => self.known.entry(self.wanted.clone()).or_insert_with(|| {
                let flows: SmallVec<[&Flow; FEW]> = self.wanted.iter().map(flow).collect();
                self.sharing.share(&flows, &mut self.speeds);
                self.speeds.iter().copied().collect()
            }),
        };
        for (&index, &speed) in self.bodies.iter().zip(speeds) {
            if let Some(running) = &mut self.lanes[index].running {
                running.set_speed(speed, now);
            }
        }
    }
}

/// Lanes are numbered devices first, then links; that of a link without a wire of its own stays empty.
fn lane_index(machine: &Machine, task: &Task) -> usize {
    match task.lane.queue(machine) {
        Lane::Device(device) => device.0,
        Lane::Link(link) => machine.devices.len() + link.0,
    }
}

/// What a task wants while its body runs. Pools are numbered memories first, then links: a transfer draws on its
/// link's wire.
///
/// A transfer's rate counts the bytes over its link, so that one within a single memory, which reads and writes
/// it, gets there the share of two.
fn flow(machine: &Machine, price: &Price, body: SimTime) -> Flow {
    let moved = price.moved();
    if moved == Bytes::ZERO || body == SimTime::ZERO {
        return Flow { rate: hwprofiles::BytesPerSec::ZERO, draws: [None; 4] };
    }
    let draw = |pool: usize, bytes: Bytes| Draw { pool, per_byte: bytes.as_f64() / moved.as_f64() };
    let link = price.carried.map(|(link, bytes)| draw(machine.memories.len() + machine.wire(link).0, bytes));
    let some = |load: Option<planner::Load>| load.filter(|load| load.bytes > Bytes::ZERO);
    let [a, b, c] = price.loads.map(|load| some(load).map(|load| draw(load.memory.0, load.bytes)));
    Flow { rate: moved / body.to_seconds(), draws: [a, b, c, link] }
}
