//! Steps in which the host issues kernels one by one.

use crate::cases::cases;
use crate::laws::random_programs::{Work, gpu, micros, quiet, simulate, works};
use crate::machine::{machine, tiny_model};
use hwprofiles::{DType, DeviceId, Machine, MemoryId, Seconds, Sourced};
use planner::{CostModel, Lane, Placement, Problem, Program, Roofline, TaskCost, plan};
use proptest::prelude::*;
use scenarios::{Costs, Formats, Objective, Requirements, Slo, Step, WeightFormats, Workload};
use sim::{Simulator, estimate};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
const GPU: DeviceId = DeviceId(1);
const HBM: MemoryId = MemoryId(1);

/// The machine with a GPU whose kernels take the host `micros_each` microseconds.
fn issuing(micros_each: f64) -> Machine {
    let mut machine = machine();
    machine.devices[GPU.0].issue = Some(Sourced::estimated(micros(micros_each), "made up for tests"));
    machine
}

/// Nanoseconds of a step of a model that is all on the GPU, and of its kernels.
fn step(machine: &Machine, layers: u64, step: &Step) -> (u64, Vec<TaskCost>) {
    let model = tiny_model(layers);
    let cost_model = CostModel { machine, model: &model, formats: &FORMATS };
    let program = Program::lower(machine, &model, &Placement::uniform(&model, GPU, HBM), step.phase).unwrap();
    let mut simulator = Simulator::new(cost_model);
    let outcome = simulator.step(&program, step).unwrap();
    let bound = Roofline::new(&cost_model, &program, step).unwrap().bound().0;
    assert!(
        outcome.duration.to_seconds().get() >= bound.get() * (1.0 - 1e-9),
        "{} {bound}",
        outcome.duration
    );
    (outcome.duration.nanos(), outcome.prices().collect())
}

fn nanos(seconds: Seconds) -> u64 {
    seconds.to_nanos_ceil()
}

proptest! {
    #![proptest_config(cases(100))]

    /// The k-th kernel begins when k kernels were issued. From it on, kernels follow each other at
    /// best.
    #[test]
    fn a_step_on_one_device_takes_its_slowest_mix_of_launches_and_then_kernels(
        alones in prop::collection::vec((0.0..50.0f64, 0.0..50.0f64), 1..30),
    ) {
        let mut work = Work::new();
        for &(alone, issue) in &alones {
            work.add(gpu(), &[], TaskCost { issue: micros(issue), ..quiet(alone) });
        }
        let (_, duration) = simulate(&machine(), &work);
        let kernels: Vec<_> = work.prices.iter().map(|price| nanos(price.alone)).collect();
        let mix = (1..=kernels.len()).map(|issued| {
            let launches: u64 = work.prices[..issued].iter().map(|price| nanos(price.issue)).sum();
            launches + kernels[issued - 1..].iter().sum::<u64>()
        });
        prop_assert_eq!(duration.nanos(), mix.max().unwrap());
    }

    #[test]
    fn no_step_beats_the_launches_of_any_device_and_issuing_never_makes_one_faster(
        work in works(), issues in prop::collection::vec(0.0..60.0f64, 40), more in 1.0..3.0f64,
    ) {
        let mut machine = machine();
        // Whether a device had to wait may depend on the issue time, so wake-ups are left out.
        machine.devices.iter_mut().for_each(|device| device.sync.value = Seconds::ZERO);
        let quiet = work.prices.iter().map(|&price| TaskCost { loads: [None; 3], carried: None, ..price });
        let by = |factor: f64| {
            let issued = quiet.clone().zip(&issues).zip(&work.program.tasks).map(|((price, issue), task)| {
                let is_gpu = task.lane == Lane::Device(GPU);
                TaskCost { issue: micros(if is_gpu { issue * factor } else { 0.0 }), ..price }
            });
            let work = Work { program: work.program.clone(), prices: issued.collect() };
            let launches: u64 = work.prices.iter().map(|price| nanos(price.issue)).sum();
            (simulate(&machine, &work).1.nanos(), launches)
        };
        let (without, (some, launches), (longer, more_launches)) = (by(0.0).0, by(1.0), by(more));
        prop_assert!(some >= launches && longer >= more_launches);
        prop_assert!(without <= some && some <= longer && some <= without + launches);
    }

    #[test]
    fn kernels_issued_in_no_time_take_the_same_time_as_without_issuing(
        batch in 1u64..9, new in 1u64..64, layers in 1u64..5,
    ) {
        for steps in [Step::prefill(batch, new), Step::decode(batch, new)] {
            prop_assert_eq!(step(&issuing(0.0), layers, &steps), step(&machine(), layers, &steps));
        }
    }
}

#[test]
fn where_the_host_is_far_slower_a_step_takes_all_launches_and_the_last_kernel_and_where_it_is_faster_the_kernels()
 {
    let decode = Step::decode(1, 8);
    let (slow, kernels) = step(&issuing(1000.0), 4, &decode);
    let launches: u64 = kernels.iter().map(|price| nanos(price.issue)).sum();
    assert!(launches > 40_000_000, "{launches}");
    assert_eq!(slow, launches + nanos(kernels[kernels.len() - 1].alone));
    // Then the step waits for the first kernel alone.
    let (fast, kernels) = step(&issuing(0.001), 4, &decode);
    assert_eq!(fast, step(&machine(), 4, &decode).0 + nanos(kernels[0].issue));
}

/// The planner's bound holds if launches bind, and the planner leaves a GPU with a slow host.
#[test]
fn a_plan_includes_the_cost_of_issuing() {
    let (model, workload) = (tiny_model(4), Workload::new(4, 64, 16));
    let planned = |machine: Machine| {
        let mut machine = machine;
        // Other devices start so slowly that such a small model is on the GPU.
        [0, 2].into_iter().for_each(|other: usize| machine.devices[other].launch.value = micros(100.0));
        let machine = &machine;
        let cost_model = CostModel { machine, model: &model, formats: &FORMATS };
        let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
        let question = Problem {
            cost_model,
            draft: None,
            requirements: Requirements { workload, objective, slo, costs },
        };
        let score = |placement: &Placement, chunk: u64| estimate(cost_model, placement, &workload, chunk);
        let plan = plan(&question, &score).unwrap();
        let predicted = &plan.predicted;
        assert!(predicted.bound.ttft <= predicted.simulated.ttft, "{predicted:?}");
        assert!(predicted.bound.tpot <= predicted.simulated.tpot, "{predicted:?}");
        let groups = plan.layers.iter().flat_map(|group| group.parts());
        let on_gpu = groups.flat_map(|(_, parts)| &parts.0).filter(|part| part.decode == "gpu").count();
        (predicted.simulated, on_gpu)
    };
    let (free, on_gpu) = planned(machine());
    let (some, _) = planned(issuing(20.0));
    let (slow, left) = planned(issuing(5000.0));
    assert!(on_gpu > 0 && left == 0, "{on_gpu} {left}");
    assert!(free.tpot < some.tpot && some.tpot <= slow.tpot, "{free:?} {some:?} {slow:?}");
}
