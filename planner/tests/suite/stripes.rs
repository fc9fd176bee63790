//! Plans on a machine whose host reads DRAM, memory behind CXL, and both striped.

use crate::fixture::{Spec, formats, model};
use crate::scorer::roofline_times;
use hwprofiles::{DeviceId, Machine, MemoryId};
use planner::{
    Action, CostModel, Lane, MicroBatch, Placement, Plan, Problem, Rule, Task, TaskIds, follow, plan,
};
use scenarios::{Costs, Model, Objective, Phase, Requirements, Slo, Step, Sublayer, Workload};

/// Every token reads all weights, and little else takes time.
const WORKLOAD: Workload = Workload { batch: 1, prompt_tokens: 32, output_tokens: 64, speculation: None };

/// A host whose CXL memory has a quarter of DRAM's bandwidth, with the given pages of each in turn,
/// and a GPU without room.
fn host(pages: [u64; 2]) -> Spec {
    let spec = Spec { cxl: Some(1 << 36), stripes: Some(pages), link: 1e9, ..Spec::gpu(1 << 10) };
    Spec { read: [2e11, 1e12], bandwidth: [2e11, 1e12], ..spec }
}

fn planned(machine: &Machine, model: &Model) -> Plan {
    answer(machine, model, WORKLOAD, None).unwrap()
}

/// The plan, or the placement of `rule` if it can be followed.
fn answer(machine: &Machine, model: &Model, workload: Workload, rule: Option<Rule>) -> Option<Plan> {
    let formats = formats();
    let cost_model = CostModel { machine, model, formats: &formats };
    let (slo, costs) = (Slo::default(), Costs::default());
    let problem = Problem {
        cost_model,
        draft: None,
        requirements: Requirements { workload, objective: Objective::Latency, slo, costs },
    };
    let score = |placement: &Placement, chunk| roofline_times(machine, model, &workload, placement, chunk);
    match rule {
        Some(rule) => follow(&problem, rule, &score).ok(),
        None => Some(plan(&problem, &score).unwrap()),
    }
}

/// A machine with `cards` CXL cards, each with a sixteenth of DRAM's bandwidth, and pages in
/// proportion.
fn with_cards(cards: u64, vram: u64, model: &Model) -> Machine {
    let stripes = (cards > 0).then_some([16, cards]);
    let spec = Spec { cxl: stripes.map(|_| 1 << 36), stripes, ..Spec::gpu(vram) };
    let mut machine = spec.machine(model);
    if cards > 0 {
        machine.memories[2].bandwidth.value = machine.memories[0].bandwidth.value * (cards as f64 / 16.0);
        machine.restripe();
    }
    machine
}

fn homes(plan: &Plan, machine: &Machine, model: &Model) -> Vec<String> {
    let placement = plan.placement(machine, model).unwrap();
    let homes = placement.layers.iter().flat_map(|layer| layer.iter().flat_map(|(_, slices)| slices.clone()));
    let mut names: Vec<_> = homes.map(|slice| machine.memory(slice.home).name.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn tpot(machine: &Machine, model: &Model, home: usize) -> f64 {
    let cpu = DeviceId(0);
    let uniform = |memory| Placement::uniform(model, cpu, MemoryId(memory));
    let placement = Placement { embed: uniform(0).embed, ..uniform(home) };
    roofline_times(machine, model, &WORKLOAD, &placement, WORKLOAD.prompt_tokens).unwrap().tpot.unwrap().get()
}

#[test]
fn a_decode_that_reads_memory_is_planned_over_both_memories_at_once() {
    let model = model(8, 1024);
    let machine = host([4, 1]).machine(&model);
    let plan = planned(&machine, &model);
    assert_eq!(homes(&plan, &machine, &model), ["dram+cxl"], "{}", plan.to_yaml());
    // The bytes of a striped memory count in the memories below it: a fifth behind CXL.
    assert_eq!(plan.memory.keys().collect::<Vec<_>>(), ["cxl", "dram", "vram"]);
    let found = plan.predicted.simulated.tpot.unwrap().get();
    let [dram, cxl] = [0, 2].map(|home| tpot(&machine, &model, home));
    assert!(found < 0.9 * dram && found < 0.5 * cxl, "{found}: {dram} and {cxl}");
    let (text, name) = (plan.to_yaml(), "plan.yaml");
    assert_eq!(Plan::read(&text, name, &machine, &model).unwrap().0, plan);
}

#[test]
fn stripes_that_are_slower_than_dram_are_left_alone() {
    let model = model(8, 1024);
    // Equal pages in both memories are a bad choice for these bandwidths.
    let machine = host([1, 1]).machine(&model);
    let plan = planned(&machine, &model);
    assert_eq!(homes(&plan, &machine, &model), ["dram"], "{}", plan.to_yaml());
    assert!(tpot(&machine, &model, 3) > 1.5 * tpot(&machine, &model, 0));
}

#[test]
fn what_dram_cannot_hold_is_read_in_place_from_behind_cxl() {
    let model = model(8, 1024);
    let spec = Spec { capacity: [130_000_000, 1 << 10], stripes: None, ..host([4, 1]) };
    let mut machine = spec.machine(&model);
    machine.devices[0].reads = vec![MemoryId(2)];
    let plan = planned(&machine, &model);
    assert!(homes(&plan, &machine, &model).contains(&"cxl".to_owned()), "{}", plan.to_yaml());
    // Everything is read in place, so there are no staging slots.
    assert!(plan.memory.values().all(|used| used.staging.get() == 0), "{}", plan.to_yaml());
}

#[test]
fn a_fetch_from_stripes_into_a_memory_within_one_of_them_reads_and_writes_it() {
    let model = model(1, 1024);
    let spec = Spec { cxl: Some(1 << 36), stripes: Some([3, 1]), ..Spec::loopback(1 << 30) };
    let (machine, formats) = (spec.machine(&model), formats());
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    let link = machine.link_between(MemoryId(3), MemoryId(1)).unwrap();
    let action =
        Action::FetchWeights { sublayer: Sublayer::Out, rows: 0..1024, device: DeviceId(1), slot: 0 };
    let (lane, micro_batch) = (Lane::Link(link), MicroBatch::WHOLE);
    let task = Task { lane, layer: Some(0), kind: None, micro_batch, action, after: TaskIds::new() };
    let step = Step { phase: Phase::Decode, batch: 1, new_tokens: 1, past_tokens: 1 };
    let price = cost_model.task_cost(&task, &step).unwrap();
    let loads: Vec<_> = price.loads.into_iter().flatten().map(|l| (l.memory.0, l.bytes.get())).collect();
    let bytes = 1024 * 1024 * 2;
    assert_eq!(loads, [(0, bytes * 3 / 4 + bytes), (2, bytes / 4)]);
}

#[test]
fn more_cards_never_make_it_slower() {
    let model = model(8, 1024);
    let workload = Workload { batch: 4, prompt_tokens: 64, output_tokens: 64, speculation: None };
    let took = |plan: &Plan| {
        let times = plan.predicted.simulated;
        times.ttft.get() + times.tpot.unwrap().get() * workload.decode_steps() as f64
    };
    for vram in [1 << 10, 80_000_000, 200_000_000] {
        let of = |rule| {
            let cards = [0, 1, 2, 4, 8].map(|cards| with_cards(cards, vram, &model));
            cards.map(|machine| answer(&machine, &model, workload, rule).map(|plan| took(&plan)))
        };
        for rule in Rule::ALL {
            // Rules may use stripes only where that is better, so cards never make them slower.
            let times = of(Some(rule));
            assert!(times.iter().all(|time| *time <= times[0]), "{vram}: {rule:?} {times:?}");
        }
        let all_cpu = of(Some(Rule::AllCpu)).map(Option::unwrap);
        assert!(all_cpu.is_sorted_by(|fewer, more| more < fewer), "{all_cpu:?}");
        // The plan is within one per cent of the best.
        let planned = of(None).map(Option::unwrap);
        assert!(planned.is_sorted_by(|fewer, more| *more <= fewer * 1.01), "{vram}: {planned:?}");
    }
}
