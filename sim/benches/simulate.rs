//! The speed of the event core and of a step: `cargo bench -p fulcrum-sim`.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hwprofiles::{DType, DeviceId, Machine, MemoryId};
use planner::{CostModel, PhasePrograms, Placement, Program, steps};
use scenarios::{Formats, Model, Phase, Step, WeightFormats, Workload};
use sim::{BatchRun, EventQueue, SimTime, Simulator};
use std::hint::black_box;

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
const PENDING: u64 = 1000;
const EVENTS: u64 = 100_000;

/// Each event that is handed out schedules another one, so the queue keeps its length (the "hold"
/// model).
fn event_queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("events");
    group.throughput(Throughput::Elements(EVENTS));
    let filled = || {
        let mut queue = EventQueue::new();
        (0..PENDING).for_each(|event| queue.schedule(SimTime::from_nanos(event * 7919 % 1009), 0, event));
        queue
    };
    let hold = |mut queue: EventQueue<u64>| {
        for _ in 0..EVENTS {
            let Some((time, event)) = queue.pop() else { break };
            let delay = event.wrapping_mul(2_654_435_761) % 1009;
            queue.schedule(time + SimTime::from_nanos(delay), 0, black_box(event + 1));
        }
        queue
    };
    group.bench_function("hold_1000", |b| b.iter_batched(filled, hold, BatchSize::LargeInput));
    group.finish();
}

/// A decode step of 32 layers. The CPU computes the first half, and the second half is streamed
/// through the loopback device.
fn step(criterion: &mut Criterion) {
    let yaml = include_str!("../../hwprofiles/data/example-loopback.yaml");
    let machine = Machine::from_yaml(yaml, "example-loopback.yaml").expect("the shipped machine is valid");
    let model = Model::preset("llama-3.1-8b").expect("a preset");
    let (cpu, dram, loopback) = (DeviceId(0), MemoryId(0), DeviceId(1));
    let mut placement = Placement::uniform(&model, cpu, dram);
    for layer in &mut placement.layers[16..] {
        for slice in layer.sublayers.iter_mut().flatten() {
            (slice.prefill, slice.decode) = (loopback, loopback);
        }
    }
    let programs = PhasePrograms::lower(&machine, &model, &placement).expect("the machine has the links");
    let program: &Program = programs.program(Phase::Decode);
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let step = Step::decode(4, 512);
    let mut simulator = Simulator::new(cost_model);
    let mut group = criterion.benchmark_group("step");
    group.throughput(Throughput::Elements(program.tasks.len() as u64));
    group.bench_function("priced_and_simulated", |b| {
        b.iter(|| simulator.step(program, &step).map(|outcome| outcome.duration));
    });
    let prices: Vec<_> = simulator.step(program, &step).expect("bf16 is measured").prices().collect();
    group.bench_function("simulated", |b| b.iter(|| simulator.step_priced(program, &prices).duration));
    group.finish();
    let steps = steps(&Workload::new(4, 512, 64), 128);
    let run = BatchRun::new(cost_model, &programs, &steps);
    criterion.bench_function("run_of_67_steps", |b| b.iter(|| run.times()));
}

criterion_group!(benches, event_queue, step);
criterion_main!(benches);
