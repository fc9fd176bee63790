//! Made-up results: the example machine and a preset model, lowered and priced by the planner, run
//! on lanes without contention. The measurement is the same run with every duration disturbed by a
//! seeded generator.

use hwprofiles::{Bytes, DType, Machine};
use planner::{
    CostModel, LayerPlacement, PhasePrograms, Placement, Recorder, RunExtent, Slice, StepSpan, Trace,
    TraceEvent, usage, whole_slice,
};
use reports::{Configuration, Label, MemoryUse, PlacementMap, Validation, machine_facts};
use scenarios::{Formats, Model, Sublayer, WeightFormats, Workload};
use std::collections::BTreeMap;
use std::sync::LazyLock;

pub const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 };

static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    let text = include_str!("../../../hwprofiles/data/example-loopback.yaml");
    Machine::from_yaml(text, "example-loopback.yaml").unwrap()
});
static MODEL: LazyLock<Model> = LazyLock::new(|| Model::preset("fulcrum-250m").unwrap());

pub fn machine() -> Machine {
    MACHINE.clone()
}

pub fn model() -> Model {
    MODEL.clone()
}

/// A placement of each kind of a validation.
pub fn placement(machine: &Machine, model: &Model, kind: &str) -> Placement {
    let device = |name| machine.device_named(name).unwrap();
    let (cpu, loopback) = (device("cpu"), device("loopback"));
    let (dram, own) = (machine.device(cpu).memory, machine.device(loopback).memory);
    let mut placement = Placement::uniform(model, cpu, dram);
    let dense = |slices: &dyn Fn(Sublayer) -> Vec<Slice>| LayerPlacement::from_slices(model.kind(0), slices);
    let layer = |home, on| dense(&|sublayer| vec![whole_slice(model, sublayer, home, on, on)]);
    let count = model.layers as usize;
    match kind {
        "all-cpu" => {}
        "mixed" => placement.layers[2 * count / 3..].fill(layer(own, loopback)),
        "streamed" => placement.layers.fill(layer(dram, loopback)),
        "planned" => {
            let mut split = layer(dram, cpu);
            let (rows, _) = Sublayer::FfnUp.matrix(model).unwrap();
            let cut = rows / 64 * 32;
            let part = |rows, home, on| Slice { rows, home, prefill: on, decode: on };
            split.sublayers[3] = vec![part(0..cut, dram, cpu), part(cut..rows, own, loopback)];
            placement.layers[..count / 3].fill(split);
            // Prefill streams to the loopback device; decode stays with the weights.
            let prefilled = dense(&|sublayer| vec![whole_slice(model, sublayer, dram, loopback, cpu)]);
            placement.layers[count / 3..count / 2].fill(prefilled);
            placement.layers[3 * count / 4..].fill(layer(own, loopback));
        }
        other => panic!("no placement kind '{other}'"),
    }
    placement
}

/// SplitMix64 as a factor around 1.
pub struct Noise(pub u64);

impl Noise {
    pub fn factor(&mut self, width: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = (z ^ (z >> 31)) as f64 / u64::MAX as f64;
        1.0 + width * (2.0 * unit - 1.0)
    }
}

/// Runs the steps of one batch: each lane in order, each task after its dependencies. `stretch`
/// gives the ratio of a task's duration to its price, by the task's name.
pub fn trace(
    label: &Label,
    placement: &Placement,
    recorder: Recorder,
    mut stretch: impl FnMut(&str) -> f64,
) -> Trace {
    let (machine, model) = (&*MACHINE, &*MODEL);
    let programs = PhasePrograms::lower(machine, model, placement).unwrap();
    let cost_model = CostModel { machine, model, formats: &FORMATS };
    let steps = planner::steps(
        &Workload::new(label.batch, label.prompt_tokens, label.output_tokens),
        label.prompt_tokens,
    );
    let mut trace = Trace {
        recorder,
        machine: machine.name.clone(),
        model: model.name.clone(),
        plan: format!("plan-of-{}", label.name),
        steps: Vec::new(),
        events: Vec::new(),
    };
    let mut now = 0;
    for (index, step) in steps.into_iter().enumerate() {
        let program = programs.program(step.phase);
        let mut lanes = BTreeMap::new();
        let mut ends: Vec<u64> = Vec::new();
        for (id, task) in program.tasks.iter().enumerate() {
            let price = cost_model.task_cost(task, &step).unwrap();
            let free = *lanes.entry(task.lane).or_insert(now);
            let start = task.after.iter().map(|it| ends[it.0 as usize]).fold(free, u64::max);
            let end = start + (price.alone * stretch(&task.name())).to_nanos_ceil();
            lanes.insert(task.lane, end);
            ends.push(end);
            let id = planner::TaskId(id as u32);
            trace.events.push(TraceEvent::from_task(machine, program, id, &price, index as u32, start, end));
        }
        let end_ns = ends.into_iter().fold(now, u64::max);
        trace.steps.push(StepSpan::new(step, now, end_ns));
        now = end_ns;
    }
    trace
}

pub fn label(placement: &str, batch: u64, prompt_tokens: u64) -> Label {
    let name = format!("b{batch}-p{prompt_tokens}-{placement}");
    Label { name, placement: placement.to_owned(), batch, prompt_tokens, output_tokens: 9 }
}

pub fn configuration(label: Label, seed: u64) -> Configuration {
    let (machine, model) = (machine(), model());
    let placement = placement(&machine, &model, &label.placement);
    let predicted = trace(&label, &placement, Recorder::Simulated, |_| 1.0);
    let mut noise = Noise(seed);
    let bias = noise.factor(0.1) + 0.03;
    let measured: Vec<_> = (0..3)
        .map(|_| {
            let bias = bias * noise.factor(0.03);
            trace(&label, &placement, Recorder::Measured, |name| match name {
                "attention" => 1.3 * bias * noise.factor(0.2),
                _ => bias * noise.factor(0.1),
            })
        })
        .collect();
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let context = label.prompt_tokens + label.output_tokens;
    let extent = RunExtent { batch: label.batch, context, chunk: label.prompt_tokens, step_tokens: 1 };
    let usage = usage(&machine, &model, &FORMATS, &placement, &programs, &extent);
    let allocated = |id: hwprofiles::MemoryId| Some(usage[id.0].total() + Bytes::new(4096));
    let memory = MemoryUse::from_usage(&machine, &usage, allocated);
    let map = PlacementMap::from_placement(&machine, &placement);
    Configuration::from_traces(label, &predicted, &measured, memory, map).unwrap()
}

pub fn validation(labels: Vec<Label>) -> Validation {
    let machine = machine();
    let configurations =
        labels.into_iter().zip(1..).map(|(label, seed)| configuration(label, seed)).collect();
    Validation {
        machine: machine.name.clone(),
        facts: machine_facts(&machine),
        model: model().name,
        commands: vec![
            "fulcrum quickstart".to_owned(),
            "fulcrum report results.json -o report.html".to_owned(),
        ],
        configurations,
    }
}
