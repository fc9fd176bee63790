//! Steps of random programs: any tasks on any lanes, at any price.

use crate::cases::cases;
use crate::machine::{machine, tiny_model};
use hwprofiles::{Basis, Bytes, BytesPerSec, DType, Flop, LinkId, Machine, MemoryId, Seconds};
use planner::{
    Action, BandwidthUse, CostBound, CostModel, Lane, MicroBatch, OperandSource, Program, Task, TaskCost,
    TaskId,
};
use proptest::prelude::*;
use scenarios::{Formats, Operator, Phase, WeightFormats};
use sim::{SimTime, Simulator, TaskSpan, Tick};
use std::collections::BTreeMap;

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// The spans of a simulated step on `machine`, and its duration.
pub(crate) fn simulate(machine: &Machine, work: &Work) -> (Vec<TaskSpan>, SimTime) {
    let model = tiny_model(1);
    let mut simulator = Simulator::new(CostModel { machine, model: &model, formats: &FORMATS });
    let outcome = simulator.step_priced(&work.program, &work.prices);
    (outcome.spans.to_vec(), outcome.duration)
}

#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) program: Program,
    pub(crate) prices: Vec<TaskCost>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self { program: Program { phase: Phase::Decode, tasks: vec![] }, prices: vec![] }
    }

    pub(crate) fn add(&mut self, lane: Lane, after: &[u32], price: TaskCost) -> &mut Self {
        let action =
            Action::Compute { operator: Operator::AttnNorm, rows: 0..0, source: OperandSource::Resident };
        let after = after.iter().copied().map(TaskId).collect();
        self.program.tasks.push(Task {
            lane,
            layer: None,
            kind: None,
            micro_batch: MicroBatch::WHOLE,
            action,
            after,
        });
        self.prices.push(price);
        self
    }

    fn alone(&self, index: usize) -> u64 {
        SimTime::rounding_up(self.prices[index].alone, Tick::Nanosecond).nanos()
    }
}

pub(crate) fn cpu() -> Lane {
    Lane::Device(hwprofiles::DeviceId(0))
}

pub(crate) fn gpu() -> Lane {
    Lane::Device(hwprofiles::DeviceId(1))
}

pub(crate) fn loopback() -> Lane {
    Lane::Device(hwprofiles::DeviceId(2))
}

pub(crate) fn micros(micros: f64) -> Seconds {
    Seconds::from_nanos(1000) * micros
}

/// A price without contention.
pub(crate) fn quiet(alone: f64) -> TaskCost {
    TaskCost {
        alone: micros(alone),
        overhead: Seconds::ZERO,
        issue: Seconds::ZERO,
        loads: [None; 3],
        carried: None,
        flop: Flop::ZERO,
        bound: CostBound::Compute,
        basis: Basis::Measured,
    }
}

/// The price with a body that moves `bytes` bytes through the memory.
fn loading(price: TaskCost, memory: usize, bytes: u64) -> TaskCost {
    let load = BandwidthUse { memory: MemoryId(memory), bytes: Bytes::new(bytes) };
    TaskCost { loads: [Some(load), None, None], ..price }
}

/// Any price: a body that wants at most `share` of each of up to three pools.
fn prices(machine: &Machine) -> impl Strategy<Value = TaskCost> + use<> {
    let memories: Vec<_> = machine.memories.iter().map(|memory| memory.bandwidth.value).collect();
    let links: Vec<_> = machine.links.iter().map(|link| link.bandwidth.value).collect();
    let overhead = prop_oneof![Just(0.0), 0.0..20.0f64];
    let body = prop_oneof![Just(0.0), 1.0..200.0f64];
    let pools =
        (prop::option::of(0..memories.len()), prop::option::of(0..memories.len()), 0..2 * links.len());
    (overhead, body, pools, 0.05..0.99f64).prop_map(move |(overhead, body, (first, second, link), share)| {
        let within = |rate: BytesPerSec| Bytes::new((rate.get() * micros(body).get() * share) as u64);
        let least = |one: Bytes, pool: BytesPerSec| one.min(within(pool));
        // A flow has one rate: the one that fits the narrowest of its pools.
        let second = second.filter(|_| first.is_some() && second != first);
        let chosen = first.into_iter().chain(second).map(|memory| memories[memory]);
        let chosen = chosen.chain(links.get(link).copied());
        let bytes = chosen.fold(Bytes::new(u64::MAX), least);
        let load = |memory: usize| BandwidthUse { memory: MemoryId(memory), bytes };
        TaskCost {
            alone: micros(overhead + body),
            overhead: micros(overhead),
            issue: Seconds::ZERO,
            loads: [first.map(load), second.map(load), None],
            carried: links.get(link).map(|_| (LinkId(link), bytes)),
            flop: Flop::ZERO,
            bound: CostBound::Memory,
            basis: Basis::Measured,
        }
    })
}

/// Any program of up to 40 tasks on any lanes.
pub(crate) fn works() -> impl Strategy<Value = Work> {
    let machine = machine();
    let (devices, lanes) = (machine.devices.len(), machine.devices.len() + machine.links.len());
    // Devices are as busy as all links together.
    let lane = prop_oneof![0..devices, 0..lanes];
    let dependencies = prop::collection::vec(any::<prop::sample::Index>(), 0..3);
    prop::collection::vec((lane, dependencies, prices(&machine)), 1..40).prop_map(move |tasks| {
        let mut work = Work::new();
        for (index, (lane, dependencies, price)) in tasks.into_iter().enumerate() {
            let lane = match lane.checked_sub(devices) {
                None => Lane::Device(hwprofiles::DeviceId(lane)),
                Some(link) => Lane::Link(LinkId(link)),
            };
            let earlier = dependencies.iter().filter(|_| index > 0).map(|which| which.index(index) as u32);
            let other = |&task: &u32| work.program.tasks[task as usize].lane != lane;
            let after: Vec<_> = earlier.filter(other).collect();
            work.add(lane, &after, price);
        }
        work
    })
}

/// The wake-up time of a lane's device.
fn sync(machine: &Machine, lane: Lane) -> u64 {
    match lane {
        Lane::Device(device) => {
            SimTime::rounding_up(machine.device(device).sync.value, Tick::Nanosecond).nanos()
        }
        Lane::Link(_) => 0,
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_task_starts_the_moment_its_lane_is_free_and_its_dependencies_have_ended(work in works()) {
        let machine = machine();
        let (spans, _) = simulate(&machine, &work);
        let mut free: BTreeMap<Lane, u64> = BTreeMap::new();
        for (task, span) in work.program.tasks.iter().zip(&spans) {
            let free = free.entry(task.lane).or_insert(0);
            let ready = task.after.iter().map(|id| spans[id.0 as usize].end.nanos()).max().unwrap_or(0);
            let start = if ready > *free { ready + sync(&machine, task.lane) } else { *free };
            prop_assert_eq!(span.start.nanos(), start);
            *free = span.end.nanos();
        }
    }

    #[test]
    fn no_step_beats_its_roofline(work in works()) {
        let machine = machine();
        let (spans, duration) = simulate(&machine, &work);
        let mut busy: BTreeMap<Lane, u64> = BTreeMap::new();
        let mut chain: Vec<u64> = Vec::new();
        let mut last: BTreeMap<Lane, u64> = BTreeMap::new();
        for (index, (task, span)) in work.program.tasks.iter().zip(&spans).enumerate() {
            prop_assert!((span.end - span.start).nanos() >= work.alone(index));
            *busy.entry(task.lane).or_default() += work.alone(index);
            let before = task.after.iter().map(|id| chain[id.0 as usize]).chain(last.get(&task.lane).copied());
            chain.push(before.max().unwrap_or(0) + work.alone(index));
            last.insert(task.lane, chain[index]);
        }
        prop_assert!(duration.nanos() >= chain.into_iter().max().unwrap_or(0));
        prop_assert!(duration.nanos() >= busy.into_values().max().unwrap_or(0));
        for (index, memory) in machine.memories.iter().enumerate() {
            let loads = work.prices.iter().flat_map(|price| price.loads).flatten();
            let bytes: Bytes = loads.filter(|load| load.memory.0 == index).map(|load| load.bytes).sum();
            prop_assert!(duration.to_seconds() >= (bytes / memory.bandwidth.value) * (1.0 - 1e-9));
        }
        for (index, link) in machine.links.iter().enumerate() {
            let carried = work.prices.iter().filter_map(|price| price.carried);
            let bytes: Bytes = carried.filter(|(link, _)| link.0 == index).map(|(_, bytes)| bytes).sum();
            prop_assert!(duration.to_seconds() >= (bytes / link.bandwidth.value) * (1.0 - 1e-9));
        }
    }

    #[test]
    fn sharing_wastes_nothing_so_no_step_is_slower_than_one_task_after_the_other(work in works()) {
        let machine = machine();
        let (_, duration) = simulate(&machine, &work);
        let serial: u64 = (0..work.prices.len())
            .map(|index| work.alone(index) + sync(&machine, work.program.tasks[index].lane))
            .sum();
        // Rounding up costs less than a nanosecond per running task at each begin and end of a
        // body.
        let changes = 2 * work.prices.len() as u64;
        prop_assert!(duration.nanos() <= serial + changes, "{} and {serial}", duration.nanos());
    }

    #[test]
    fn the_same_work_twice_gives_the_same_spans(first in works(), second in works()) {
        let (machine, model) = (machine(), tiny_model(1));
        let fresh = simulate(&machine, &second);
        // The same holds in a simulator that has run another program before.
        let mut used = Simulator::new(CostModel { machine: &machine, model: &model, formats: &FORMATS });
        used.step_priced(&first.program, &first.prices);
        let again = used.step_priced(&second.program, &second.prices);
        prop_assert_eq!((again.spans, again.duration), (&fresh.0[..], fresh.1));
    }

    #[test]
    fn without_shared_pools_each_task_takes_its_time_alone(mut work in works()) {
        for price in &mut work.prices {
            (price.loads, price.carried) = ([None; 3], None);
        }
        let (spans, _) = simulate(&machine(), &work);
        for (index, span) in spans.iter().enumerate() {
            prop_assert_eq!((span.end - span.start).nanos(), work.alone(index));
        }
    }

    #[test]
    fn everything_twice_as_fast_takes_half_as_long(mut work in works()) {
        let mut machine = machine();
        // Whether a device had to wait may depend on a nanosecond, so wake-ups are left out.
        machine.devices.iter_mut().for_each(|device| device.sync.value = Seconds::ZERO);
        let (_, slow) = simulate(&machine, &work);
        machine.memories.iter_mut().for_each(|memory| memory.bandwidth.value = memory.bandwidth.value * 2.0);
        machine.links.iter_mut().for_each(|link| link.bandwidth.value = link.bandwidth.value * 2.0);
        for price in &mut work.prices {
            (price.alone, price.overhead) = (price.alone / 2.0, price.overhead / 2.0);
        }
        let (_, fast) = simulate(&machine, &work);
        let rounding = 20 * work.prices.len() as u64;
        prop_assert!(slow.nanos().abs_diff(2 * fast.nanos()) <= rounding, "{slow} and {fast}");
    }
}

/// 100 µs over the first link with a latency of 8 µs.
fn transfer(machine: &Machine) -> TaskCost {
    let link = &machine.links[0];
    let bytes = Bytes::new((link.bandwidth.value.get() * micros(100.0).get()) as u64);
    let price = TaskCost { alone: micros(108.0), overhead: micros(8.0), ..quiet(0.0) };
    TaskCost { carried: Some((LinkId(0), bytes)), ..price }
}

#[test]
fn two_equal_transfers_on_one_link_take_twice_as_long() {
    let machine = machine();
    let transfer = transfer(&machine);
    let mut work = Work::new();
    work.add(gpu(), &[], transfer).add(Lane::Link(LinkId(0)), &[], transfer);
    let (spans, duration) = simulate(&machine, &work);
    assert_eq!(spans[0], spans[1]);
    assert_eq!(duration.nanos(), 208_000);
}

#[test]
fn a_later_transfer_slows_an_earlier_one_only_from_then_on() {
    let machine = machine();
    let transfer = transfer(&machine);
    let mut work = Work::new();
    work.add(cpu(), &[], quiet(50.0)).add(cpu(), &[], transfer).add(Lane::Link(LinkId(0)), &[], transfer);
    let ends: Vec<_> = simulate(&machine, &work).0.iter().map(|span| span.end.nanos()).collect();
    // The link lane's transfer is alone from 8 to 58 µs. Then both run at half speed until it ends,
    // and the other is alone.
    assert_eq!(ends, [50_000, 208_000, 158_000]);
}

#[test]
fn overheads_share_nothing() {
    let machine = machine();
    let launch_bound = loading(TaskCost { overhead: micros(100.0), ..quiet(100.0) }, 0, 1_000_000);
    let mut work = Work::new();
    work.add(cpu(), &[], launch_bound).add(loopback(), &[], launch_bound);
    assert_eq!(simulate(&machine, &work).1.nanos(), 100_000);
}

#[test]
fn two_readers_of_a_memory_share_it_and_a_reader_of_another_does_not_care() {
    let machine = machine();
    let all_of = |memory: usize| {
        let bytes = machine.memories[memory].bandwidth.value.get() * micros(100.0).get();
        loading(quiet(100.0), memory, bytes as u64)
    };
    let mut work = Work::new();
    work.add(cpu(), &[], all_of(0)).add(loopback(), &[], all_of(0)).add(gpu(), &[], all_of(1));
    let ends: Vec<_> = simulate(&machine, &work).0.iter().map(|span| span.end.nanos()).collect();
    assert_eq!(ends, [200_000, 200_000, 100_000]);
}

#[test]
fn a_wake_up_is_paid_by_a_device_that_had_to_wait_and_by_no_other() {
    let machine = machine();
    let mut work = Work::new();
    work.add(cpu(), &[], quiet(10.0)) // 0
        .add(gpu(), &[0], quiet(1.0)) // waits for the CPU: 7 µs of wake-up
        .add(loopback(), &[], quiet(30.0)) // 2
        .add(loopback(), &[0], quiet(1.0)) // starts long after the CPU is done
        .add(Lane::Link(LinkId(0)), &[0], quiet(1.0)); // a link's lane has no wake-up
    let starts: Vec<_> = simulate(&machine, &work).0.iter().map(|span| span.start.nanos()).collect();
    assert_eq!(starts, [0, 17_000, 0, 30_000, 10_000]);
}

#[test]
fn a_hop_delays_only_tasks_that_wait_for_it() {
    let machine = machine();
    let mut work = Work::new();
    work.add(cpu(), &[], quiet(100.0)) // 0: the work that the hop waits for
        .add(gpu(), &[0], transfer(&machine)) // 1: the hop
        .add(gpu(), &[], quiet(5.0)) // 2: needs it
        .add(loopback(), &[], quiet(40.0)) // 3 and 4 do not
        .add(cpu(), &[3], quiet(5.0));
    let (spans, _) = simulate(&machine, &work);
    let [.., needs, _, _] = spans[..] else { panic!("five tasks have five spans") };
    assert_eq!((needs.start, needs.end.nanos()), (spans[1].end, 100_000 + 7_000 + 108_000 + 5_000));
    assert_eq!((spans[3].end.nanos(), spans[4].start.nanos()), (40_000, 100_000));
}

#[test]
fn nothing_takes_no_time() {
    assert_eq!(simulate(&machine(), &Work::new()), (vec![], SimTime::ZERO));
    let mut work = Work::new();
    work.add(cpu(), &[], quiet(0.0)).add(cpu(), &[], quiet(0.0));
    assert_eq!(simulate(&machine(), &work).1, SimTime::ZERO);
}
