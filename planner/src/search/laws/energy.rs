//! Laws of energy: a device's idle power counts as long as the machine is on.

use crate::fixture::{Spec, formats, model};
use crate::program::{BatchSteps, Lane, PhasePrograms, PhaseTimes};
use crate::search::column_pool::Restriction;
use crate::search::goal::{DeviceWork, Goal, TIE, device_work};
use crate::search::laws::{brute_force, goal, pick, space, specs};
use crate::search::pattern_program::{PatternProgram, PatternSolution, SearchBudget};
use crate::search::search_space::SearchSpace;
use hwprofiles::{Machine, Seconds, Sourced, Watts};
use proptest::prelude::*;
use proptest::sample::Index;
use scenarios::{Costs, Model, Objective, Phase, Slo, Workload};

const DECODES: f64 = 31.0;

/// The goal of least energy for 32 tokens of two sequences, with the given idle and additional
/// working watts of each device.
fn energy(machine: &Machine, idle: [f64; 2], working: [f64; 2]) -> Goal {
    let mut machine = machine.clone();
    for (index, device) in machine.devices.iter_mut().enumerate() {
        let draw = |watts: f64| Some(Sourced::estimated(Watts::new(watts), "made up for tests"));
        device.power = draw(idle[index] + working[index]);
        device.idle_power = (idle[index] > 0.0).then(|| draw(idle[index])).flatten();
    }
    let workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 32, speculation: None };
    Goal::new(&machine, &workload, Objective::Energy, Slo::default(), &Costs::default()).unwrap()
}

/// A program of few patterns, with a share of the capacity that all of them need.
fn problem<'s>(
    space: &'s SearchSpace<'_>,
    goal: &Goal,
    some: &[Index],
    few: &[Index],
    share: f64,
) -> PatternProgram<'s> {
    let mut problem = space.problem(Restriction::NONE, goal, &space.capacity(), SearchBudget::EXACT);
    pick(&mut problem, few, some);
    let most = problem
        .groups
        .iter()
        .map(|kind| kind.patterns.iter().map(|pattern| pattern.bytes[1]).max().unwrap_or(0) * kind.layers);
    problem.capacity[1] = (most.sum::<u64>() as f64 * share) as u64 + 1_000_000;
    problem
}

/// Seconds of the whole run, and of all devices' work in it.
fn run_and_work(solution: &PatternSolution) -> [f64; 2] {
    let times = solution.times().map(Seconds::get);
    let work = |phase: usize| {
        let patterns = solution.kinds.iter().flatten();
        patterns.map(|(p, n)| p.work[phase].iter().sum::<f64>() * *n as f64).sum::<f64>()
    };
    [times[0] + DECODES * times[1], work(0) + DECODES * work(1)]
}

fn watts() -> impl Strategy<Value = [f64; 2]> {
    (1.0..500.0f64, 1.0..500.0f64).prop_map(|(one, other)| [one, other])
}

fn indices(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), count)
}

fn tiny() -> Model {
    model(4, 256)
}

#[test]
fn without_idle_draw_energy_is_that_of_work_alone_and_with_it_every_second_counts() {
    let machine = Spec::gpu(1 << 30).machine(&tiny());
    let times = PhaseTimes { ttft: Seconds::new(2.0), tpot: Some(Seconds::new(0.5)) };
    let seconds = |work: [f64; 2]| work.map(Seconds::new).to_vec();
    let work = DeviceWork { prefill: seconds([1.0, 0.5]), decode: seconds([0.25, 0.125]) };
    let per_token = |goal: &Goal| goal.energy(&times, &work).unwrap().get() * 64.0;
    let worked = 200.0 * (1.0 + DECODES * 0.25) + 300.0 * (0.5 + DECODES * 0.125);
    let waited = (10.0 + 20.0) * (2.0 + DECODES * 0.5);
    let without = energy(&machine, [0.0; 2], [200.0, 300.0]);
    assert!((per_token(&without) - worked).abs() < 1e-9 * worked);
    let with = energy(&machine, [10.0, 20.0], [200.0, 300.0]);
    assert!((per_token(&with) - worked - waited).abs() < 1e-9 * worked);
    // The solver's measure is equal except for its tie weights.
    let ties = TIE * (2.0 + DECODES * 0.5);
    assert!((with.value(&times, &work) - worked - waited - ties).abs() < 1e-9 * worked);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(crate::cases::cases(64)) })]
    #[test]
    fn the_least_energy_is_what_brute_force_finds(
        spec in specs(), some in indices(2..8), few in indices(1..4), share in 0.0..1.2f64,
        idle in watts(), working in watts(),
    ) {
        let (model, formats) = (tiny(), formats());
        let machine = spec.machine(&model);
        let space = space(&machine, &model, &formats, 2);
        let problem = problem(&space, &energy(&machine, idle, working), &some, &few, share);
        match (problem.solve().unwrap().solution, brute_force(&problem)) {
            (None, None) => {}
            (Some(found), Some(best)) => {
                prop_assert!((found.value - best).abs() <= 1e-9 * best, "{} and {best}", found.value);
            }
            (found, best) => prop_assert!(false, "{found:?} and {best:?}"),
        }
    }

    /// More idle power never makes a slower plan the best. If the busy power stays the same, more
    /// idle power never makes a plan with more idle time the best.
    #[test]
    fn more_idle_draw_never_prefers_a_slower_plan(
        spec in specs(), some in indices(2..8), few in indices(1..4), share in 0.0..1.2f64,
        idle in watts(), working in watts(), more in 50.0..500.0f64,
    ) {
        let (model, formats) = (tiny(), formats());
        let machine = spec.machine(&model);
        let space = space(&machine, &model, &formats, 2);
        let mut problem = problem(&space, &goal(&machine, 2), &some, &few, share);
        let mut best = |idle: [f64; 2], working: [f64; 2]| {
            problem.measures = energy(&machine, idle, working).measures();
            problem.solve().unwrap().solution
        };
        let raised = idle.map(|watts| watts + more);
        let (Some(before), Some(after)) = (best(idle, working), best(raised, working)) else { return Ok(()) };
        let ([run, _], [run_after, _]) = (run_and_work(&before), run_and_work(&after));
        prop_assert!(run_after <= run * (1.0 + 1e-6), "{run_after} > {run}");
        let busy = working.map(|watts| watts + more);
        let (Some(before), Some(after)) = (best(idle, busy), best(raised, working)) else { return Ok(()) };
        let waiting = |solution: &PatternSolution| {
            let [run, work] = run_and_work(solution);
            2.0 * run - work
        };
        let [run, _] = run_and_work(&before);
        prop_assert!(waiting(&after) <= waiting(&before) + run * 1e-6);
    }

    /// Devices work equally long by the outline and by all layers, whether layers are in runs or
    /// interleaved.
    #[test]
    fn devices_work_as_long_as_their_tasks_take(
        spec in specs(), some in indices(2..5), few in indices(1..4), share in 0.0..1.2f64,
    ) {
        let (model, formats) = (model(12, 256), formats());
        let machine = spec.machine(&model);
        let space = space(&machine, &model, &formats, 2);
        let goal = goal(&machine, 2);
        let problem = problem(&space, &goal, &some, &few, share);
        let Some(solution) = problem.solve().unwrap().solution else { return Ok(()) };
        let workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 32, speculation: None };
        let batch_steps = BatchSteps::new(&workload, 96);
        for placement in [space.placement(&solution, &goal), space.interleaved(&solution, &goal)] {
            let Ok(programs) = PhasePrograms::lower(&machine, &model, &placement) else { continue };
            let found = device_work(&space.cost_model, &placement, &batch_steps).unwrap();
            for phase in [Phase::Prefill, Phase::Decode] {
                let mut all = vec![0.0; machine.devices.len()];
                for step in batch_steps.kinds(phase).into_iter().flatten() {
                    for task in &programs.program(phase).tasks {
                        let Lane::Device(device) = task.lane else { continue };
                        all[device.0] += space.cost_model.task_cost(task, &step).unwrap().alone.get();
                    }
                }
                for (found, all) in found[phase].iter().zip(all) {
                    prop_assert!((found.get() - all).abs() <= 1e-9 * all, "{found} and {all}");
                }
            }
        }
    }
}
