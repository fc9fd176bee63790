//! Laws of the search on small instances, compared with brute force.

mod energy;
mod least_times;
#[cfg(all(feature = "highs", feature = "microlp"))]
mod per_layer;
mod striped;

use crate::cost::CostModel;
use crate::cost::PriceList;
use crate::cost::footprint;
use crate::fixture::{Spec, formats, model};
use crate::memory::MemoryUsage;
use crate::memory::usage;
use crate::placement::Home;
use crate::placement::Placement;
use crate::program::PhasePrograms;
use crate::program::{Action, Lane, Program};
use crate::program::{BatchSteps, prefill_chunk};
use crate::search::column_pool::Restriction;
use crate::search::goal::Goal;
use crate::search::layer_class::LayerClass;
use crate::search::measure::Measure;
use crate::search::pattern::PatternGroup;
use crate::search::pattern::{Pattern, Patterns};
use crate::search::pattern_program::{PatternProgram, PatternSolution, SearchBudget, SolveResult};
use crate::search::search_space::SearchSpace;
use hwprofiles::{Bytes, Machine, Ratio, Seconds};
use proptest::prelude::*;
use scenarios::{Costs, Experts, Model, Objective, Phase, Slo, Speculation, Step, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn workload(batch: u64) -> Workload {
    Workload { batch, prompt_tokens: 96, output_tokens: 32, speculation: None }
}

/// The model of the fixture with one dense layer and then layers of eight experts and a shared
/// expert.
fn expert_model(layers: u64, hidden: u64) -> Model {
    let mut experts = Experts::new(8, 2, 128);
    experts.shared = 128;
    Model { name: "tiny-experts".into(), experts: Some(experts), ..model(layers, hidden) }
        .with_dense_layers(1)
}

/// Machines of all proportions.
pub(crate) fn specs() -> impl Strategy<Value = Spec> {
    let rate = |low: f64, high: f64| (low.ln()..high.ln()).prop_map(f64::exp);
    let memory = (rate(1e10, 1e11), rate(1e10, 1e12), 0u64..40_000_000);
    (rate(1e10, 1e12), rate(1e10, 1e13), memory, rate(1e9, 1e11), rate(1e-7, 1e-4), any::<bool>()).prop_map(
        |(cpu, acc, (dram, vram, capacity), link, delay, loopback)| Spec {
            flop: [cpu, acc],
            read: [dram, vram],
            bandwidth: [dram * 1.3, vram * 1.1],
            capacity: [1 << 40, capacity],
            link,
            latency: delay,
            launch: [delay * 0.1, delay * 0.2],
            sync: delay * 0.3,
            loopback,
            cxl: None,
            stripes: None,
        },
    )
}

/// The longest chain of a step if fetches and stores take no time.
fn chain(cost_model: CostModel<'_>, placement: &Placement, step: &Step) -> Seconds {
    let program = Program::lower(cost_model.machine, cost_model.model, placement, step.phase).unwrap();
    let mut free: BTreeMap<Lane, Seconds> = BTreeMap::new();
    let mut ends: Vec<Seconds> = Vec::new();
    for task in &program.tasks {
        let transfer = matches!(
            task.action,
            Action::FetchWeights { .. } | Action::FetchKv { .. } | Action::StoreKv { .. }
        );
        if transfer {
            ends.push(Seconds::ZERO);
            continue;
        }
        let Lane::Device(device) = task.lane else { panic!("only transfers are on links") };
        let after = task.after.iter().map(|id| ends[id.0 as usize]);
        let ready = after.fold(Seconds::ZERO, Seconds::max);
        let free = free.entry(task.lane).or_default();
        let sync = if ready > *free { cost_model.machine.device(device).sync.value } else { Seconds::ZERO };
        *free = ready.max(*free) + sync + cost_model.task_cost(task, step).unwrap().alone;
        ends.push(*free);
    }
    ends.into_iter().fold(Seconds::ZERO, Seconds::max)
}

#[test]
fn a_patterns_chain_is_what_one_more_layer_of_it_adds_to_the_critical_path() {
    let striped = Spec { cxl: Some(1 << 30), stripes: Some([3, 1]), ..Spec::gpu(1 << 30) };
    for spec in [Spec::loopback(1 << 30), Spec::gpu(1 << 30), striped] {
        // A critical path does not see contention between parts, so bandwidths are very large.
        let spec = Spec { bandwidth: [1e18, 1e18], ..spec };
        let models = [2, 3].map(|layers| model(layers, 256));
        let machine = spec.machine(&models[0]);
        let batch_steps = BatchSteps::new(&workload(2), prefill_chunk(&workload(2)));
        let formats = formats();
        let cost_model =
            |index: usize| CostModel { machine: &machine, model: &models[index], formats: &formats };
        let homes = Home::all(&machine, &models[0], &crate::placement::IdenticalGpus::none());
        let prices = [Phase::Prefill, Phase::Decode]
            .map(|phase| PriceList::new(cost_model(0), &batch_steps, phase, &homes).unwrap());
        let patterns = Patterns::new(homes, prices, 2, 128, false);
        let classes = patterns.classes();
        let all = every_pattern(&patterns, &classes[1]);
        assert!(all.len() > 100, "{}", all.len());
        for pattern in all.iter().step_by(3) {
            let placements = models.each_ref().map(|model| {
                let uniform = Placement::uniform(model, hwprofiles::DeviceId(0), hwprofiles::MemoryId(0));
                let layers = vec![patterns.layer(&classes[1], pattern); model.layers as usize];
                Placement { layers, ..uniform }
            });
            for (phase, step) in [batch_steps.prefill[0][0], batch_steps.decode].into_iter().enumerate() {
                let [two, three] = [0, 1].map(|i| chain(cost_model(i), &placements[i], &step).get());
                let (added, ours) = (three - two, pattern.cost[phase][0]);
                assert!((added - ours).abs() < 1e-9 * three, "{pattern:?} {phase}: {added} and {ours}");
            }
        }
    }
}

#[test]
fn the_chain_of_embed_and_head_is_the_critical_path_of_a_model_without_layers() {
    let (model, spec) = (model(0, 256), Spec { bandwidth: [1e18, 1e18], ..Spec::gpu(1 << 30) });
    let machine = spec.machine(&model);
    let batch_steps = BatchSteps::new(&workload(2), prefill_chunk(&workload(2)));
    let formats = formats();
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    let homes = Home::all(&machine, &model, &crate::placement::IdenticalGpus::none());
    let prices = [Phase::Prefill, Phase::Decode]
        .map(|phase| PriceList::new(cost_model, &batch_steps, phase, &homes).unwrap());
    let patterns = Patterns::new(homes, prices, 2, 128, false);
    let ends = patterns.classes().swap_remove(0);
    let mut seen = 0;
    for pattern in &every_pattern(&patterns, &ends) {
        let [embed, head] = patterns.ends(&ends, pattern);
        let placement = Placement { embed, layers: vec![], head, pipelining: Default::default() };
        for (phase, step) in [batch_steps.prefill[0][0], batch_steps.decode].into_iter().enumerate() {
            if pattern.leads[phase][0] == pattern.leads[phase][1] {
                let (path, ours) = (chain(cost_model, &placement, &step).get(), pattern.cost[phase][0]);
                assert!((path - ours).abs() < 1e-9 * path, "{pattern:?} {phase}: {path} and {ours}");
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

fn every_pattern(patterns: &Patterns<'_>, class: &LayerClass) -> Vec<Arc<Pattern>> {
    let pattern_ids =
        class.residency.iter().enumerate().flat_map(|(index, residency)| residency.pattern_ids(index));
    pattern_ids.map(|pick| patterns.pattern(class, pick)).collect()
}

pub(crate) fn goal(machine: &Machine, batch: u64) -> Goal {
    Goal::new(machine, &workload(batch), Objective::Latency, Slo::default(), &Costs::default()).unwrap()
}

pub(crate) fn space<'a>(
    machine: &'a Machine,
    model: &'a Model,
    formats: &'a scenarios::Formats,
    batch: u64,
) -> SearchSpace<'a> {
    let cost_model = CostModel { machine, model, formats };
    let workload = workload(batch);
    SearchSpace::new(cost_model, &BatchSteps::new(&workload, prefill_chunk(&workload)), &goal(machine, batch))
        .unwrap()
}

/// Relative improvement that an exhaustive search may leave out.
const WORTH: f64 = 1e-4;

/// Keeps `few` patterns of embed and head, and `some` of each kind of layer.
pub(crate) fn pick(
    problem: &mut PatternProgram<'_>,
    few: &[prop::sample::Index],
    some: &[prop::sample::Index],
) {
    for (index, kind) in problem.groups.iter_mut().enumerate() {
        let which = if index == 0 { few } else { some };
        let which: BTreeSet<usize> = which.iter().map(|i| i.index(kind.patterns.len())).collect();
        kind.patterns = which.into_iter().map(|i| Arc::clone(&kind.patterns[i])).collect();
    }
}

/// The best value over every solution of a small program, computed from the definition of the
/// program.
pub(crate) fn brute_force(problem: &PatternProgram<'_>) -> Option<f64> {
    let mut best: Option<f64> = None;
    each_solution(&problem.groups, &mut Vec::new(), &mut |kinds| {
        let solution = PatternSolution { kinds: kinds.clone(), value: 0.0 };
        let used = problem.used(&solution);
        if used.iter().zip(&problem.capacity).any(|(used, capacity)| used > capacity) {
            return;
        }
        let longest = |phase: usize| {
            let rows = kinds[0][0].0.cost[phase].len();
            let time =
                |row: usize| kinds.iter().flatten().map(|(p, n)| p.cost[phase][row] * *n as f64).sum::<f64>();
            (0..rows).map(time).fold(0.0, f64::max)
        };
        let times = [longest(0), longest(1)];
        let measured = |measure: &Measure| {
            let work = |phase: usize| {
                let added = |(p, n): &(Arc<Pattern>, u64)| {
                    let busy = measure.busy[phase].iter().zip(&p.work[phase]);
                    busy.map(|(weight, time)| weight * time).sum::<f64>() * *n as f64
                };
                kinds.iter().flatten().map(added).sum::<f64>()
            };
            measure.weight[0] * times[0] + measure.weight[1] * times[1] + work(0) + work(1)
        };
        if problem.measures.iter().any(|measure| measured(measure) > measure.limit * (1.0 + 1e-12)) {
            return;
        }
        let value = measured(&problem.measures[0]);
        best = Some(best.map_or(value, |best| best.min(value)));
    });
    best
}

/// Layers by pattern, for each group.
pub(crate) type Kinds = Vec<Vec<(Arc<Pattern>, u64)>>;

pub(crate) fn each_solution(groups: &[PatternGroup], solution: &mut Kinds, visit: &mut dyn FnMut(&Kinds)) {
    let Some((kind, rest)) = groups.split_first() else { return visit(solution) };
    let mut counts = vec![0; kind.patterns.len()];
    each_count(&mut counts, 0, kind.layers, &mut |counts| {
        let used = kind.patterns.iter().cloned().zip(counts.iter().copied());
        solution.push(used.filter(|(_, n)| *n > 0).collect());
        each_solution(rest, solution, visit);
        solution.pop();
    });
}

fn each_count(counts: &mut [u64], at: usize, left: u64, visit: &mut dyn FnMut(&[u64])) {
    if at + 1 == counts.len() {
        counts[at] = left;
        return visit(counts);
    }
    for count in 0..=left {
        counts[at] = count;
        each_count(counts, at + 1, left - count, visit);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(160)))]
    #[test]
    fn the_search_finds_what_brute_force_finds(
        spec in specs(), experts in any::<bool>(), layers in 4u64..6, batch in 1u64..5,
        some in prop::collection::vec(any::<prop::sample::Index>(), 2..8),
        few in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        share in 0.0..1.2f64, cxl in 0.0..1.2f64,
        watts in prop::option::of((1.0..500.0f64, 1.0..500.0f64)),
        limits in (prop::option::of(0.3..3.0f64), prop::option::of(0.3..3.0f64)),
    ) {
        let model = if experts { expert_model(layers, 256) } else { model(layers, 256) };
        let machine = Spec { cxl: Some(1 << 40), ..spec }.machine(&model);
        let formats = formats();
        let space = space(&machine, &model, &formats, batch);
        let mut problem = space.problem(Restriction::NONE, &goal(&machine, batch), &space.capacity(), SearchBudget::EXACT);
        pick(&mut problem, &few, &some);
        // Capacities between nothing and the bytes of everything: most of them bind.
        for (memory, share) in [(1, share), (2, cxl)] {
            let most = |kind: &PatternGroup| kind.patterns.iter().map(|p| p.bytes[memory]).max().unwrap() * kind.layers;
            let everything: u64 = problem.groups.iter().map(most).sum();
            problem.capacity[memory] = (everything as f64 * share) as u64 + 1_000_000;
        }
        if let Some((one, other)) = watts {
            problem.measures[0].busy = [vec![one, other], vec![one * 31.0, other * 31.0]];
        }
        // Limits near the values of the best solution without limits.
        let free = brute_force(&problem);
        if let Some(free) = free {
            for (weight, limit) in [([1.0, 0.0], limits.0), ([0.0, 31.0], limits.1)] {
                let busy = [vec![0.0; 2], vec![0.0; 2]];
                let limit = limit.map(|limit| Measure { weight, busy, limit: free * limit * 0.5 });
                problem.measures.extend(limit);
            }
        }
        let SolveResult { solution, bound } = problem.solve().unwrap();
        match (&solution, brute_force(&problem)) {
            (None, None) => {}
            (Some(found), Some(best)) => {
                let used = problem.used(found);
                prop_assert!(used.iter().zip(&problem.capacity).all(|(used, capacity)| used <= capacity));
                prop_assert!((found.value - best).abs() <= 1e-9 * best, "{} and {best}", found.value);
                prop_assert!(bound <= best * (1.0 + 1e-9));
            }
            (found, best) => prop_assert!(false, "{found:?} and {best:?}"),
        }
    }

    #[test]
    fn the_programs_bytes_are_those_of_the_placement(
        spec in specs(), batch in 1u64..9, proposed in 0u64..80, restriction in 0usize..6, experts in any::<bool>(), tied in any::<bool>(),
        cores in 0usize..5,
    ) {
        let shape = if experts { expert_model(3, 256) } else { model(3, 256) };
        let model = Model { tied_embeddings: tied, qk_norm: tied, ..shape };
        let mut machine = spec.machine(&model);
        machine.devices.iter_mut().for_each(|device| device.cores = (0..cores).collect());
        let formats = formats();
        let speculation = Speculation { tokens: proposed, acceptance: Ratio::new(0.7).unwrap() };
        let workload = Workload { speculation: (proposed > 0).then_some(speculation), ..workload(batch) };
        let batch_steps = BatchSteps::new(&workload, prefill_chunk(&workload));
        let goal = goal(&machine, batch);
        let space = SearchSpace::new(CostModel { machine: &machine, model: &model, formats: &formats }, &batch_steps, &goal).unwrap();
        let restriction = Restriction::CANDIDATES.into_iter().chain([Restriction::NONE]).nth(restriction).unwrap();
        let problem = space.problem(restriction, &goal, &space.capacity(), SearchBudget::PLAN);
        if let Some(solution) = problem.solve().unwrap().solution {
            let placement = space.placement(&solution, &goal);
            let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
            let exact = usage(&machine, &model, &formats, &placement, &programs, &batch_steps.extent);
            let exact: Vec<_> = exact.iter().map(|used: &MemoryUsage| used.total().get()).collect();
            prop_assert_eq!(&exact, &problem.used(&solution));
            prop_assert!(exact.iter().zip(&problem.capacity).all(|(used, capacity)| used <= capacity));
        }
    }

    #[test]
    fn runs_of_equal_layers_take_what_they_take_when_each_is_lowered(
        spec in specs(), batch in 1u64..9,
        runs in prop::collection::vec((any::<prop::sample::Index>(), 1usize..5), 1..4),
    ) {
        let model = model(runs.iter().map(|(_, count)| *count as u64).sum(), 256);
        let machine = spec.machine(&model);
        let formats = formats();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let batch_steps = BatchSteps::new(&workload(batch), prefill_chunk(&workload(batch)));
        let homes = Home::all(&machine, &model, &crate::placement::IdenticalGpus::none());
        let prices = [Phase::Prefill, Phase::Decode]
            .map(|phase| PriceList::new(cost_model, &batch_steps, phase, &homes).unwrap());
        let patterns = Patterns::new(homes, prices, batch, 128, false);
        let classes = patterns.classes();
        let all = every_pattern(&patterns, &classes[1]);
        let layers = runs.iter().flat_map(|(which, count)| vec![patterns.layer(&classes[1], &all[which.index(all.len())]); *count]);
        let uniform = Placement::uniform(&model, hwprofiles::DeviceId(0), hwprofiles::MemoryId(0));
        let placement = Placement { layers: layers.collect(), ..uniform };
        let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
        let each = usage(&machine, &model, &formats, &placement, &programs, &batch_steps.extent);
        prop_assert_eq!(footprint(cost_model, &batch_steps.extent, &placement).unwrap(), each);
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(24)))]
    #[test]
    fn what_is_promising_holds_the_best_of_everything(
        spec in specs(), batch in 1u64..9, restriction in 0usize..6, experts in any::<bool>(),
    ) {
        let model = if experts { expert_model(3, 256) } else { model(3, 256) };
        let machine = spec.machine(&model);
        let formats = formats();
        let space = space(&machine, &model, &formats, batch);
        let goal = goal(&machine, batch);
        let restriction = Restriction::CANDIDATES.into_iter().chain([Restriction::NONE]).nth(restriction).unwrap();
        let budget = SearchBudget { min_gain: WORTH, ..SearchBudget::EXACT };
        let everything = space.problem(restriction, &goal, &space.capacity(), budget).solve().unwrap();
        let priced_problem = space.priced_problem(&goal, &space.capacity()).unwrap().unwrap();
        let ours = priced_problem.solve(restriction, budget, f64::INFINITY).unwrap();
        let value = |solved: &SolveResult| solved.solution.as_ref().map(|solution| solution.value);
        let (everything, found) = (value(&everything), value(&ours));
        match (everything, found) {
            (Some(everything), Some(found)) => {
                prop_assert!((everything - found).abs() <= 2.0 * WORTH * everything, "{everything} and {found}");
                prop_assert!(ours.bound <= everything * (1.0 + 1e-9));
                let none = priced_problem.solve(restriction, budget, everything * (1.0 - 2.0 * WORTH)).unwrap();
                prop_assert!(none.solution.is_none() && none.bound <= everything * (1.0 + 1e-9));
                prop_assert!(space.fitting().is_solvable().unwrap());
            }
            (everything, found) => prop_assert!(everything.is_none() && found.is_none()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(24)))]
    #[test]
    fn layers_that_hide_only_their_own_fetches_take_as_long_as_the_busiest_resource_of_each(
        spec in specs(), batch in 1u64..9,
    ) {
        let model = model(3, 256);
        let machine = spec.machine(&model);
        let formats = formats();
        let space = space(&machine, &model, &formats, batch);
        let goal = goal(&machine, batch);
        let shared = space.solve(&goal, &space.capacity(), SearchBudget::EXACT).unwrap().solution;
        let shared = shared.expect("the host holds everything").value;
        match space.classes_alone() {
            Some(classes) => {
                let groups: Vec<_> = classes.iter().map(|class| (class.layers, class)).collect();
                let problem = space.priced_problem_for(&groups, goal.measures(), &space.capacity()).unwrap();
                let solved = problem.unwrap().solve(Restriction::NONE, SearchBudget::EXACT, f64::INFINITY);
                let alone = solved.unwrap().solution.expect("the host holds everything");
                prop_assert!(alone.value >= shared * (1.0 - WORTH), "{} < {shared}", alone.value);
                // Embed and head stand before and behind all layers, and hide their own as before.
                let busiest = |cost: &Vec<f64>| cost.iter().copied().fold(0.0, f64::max);
                let [prefill, decode] = goal.measures()[0].weight;
                let layers = alone.kinds[1..].iter().flatten();
                let sum: f64 = layers.map(|(pattern, count)| {
                    let [first, second] = pattern.cost.each_ref().map(busiest);
                    *count as f64 * (prefill * first + decode * second)
                }).sum();
                prop_assert!(alone.value >= sum * (1.0 - 1e-9), "{} < {sum}", alone.value);
            }
            None => {
                let every = space.classes[1..].iter().flat_map(|class| every_pattern(&space.patterns, class));
                for pattern in every {
                    let chain = pattern.cost.iter().map(|cost| (cost[0], cost.iter().copied().fold(0.0, f64::max)));
                    chain.into_iter().for_each(|(chain, busiest)| assert!(chain >= busiest));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(160)))]
    #[test]
    fn more_room_and_faster_devices_never_make_it_slower(
        spec in specs(), room in 1.0..3.0f64, faster in 1.0..4.0f64, device in 0usize..2,
    ) {
        let model = model(3, 256);
        let formats = formats();
        let best = |spec: &Spec, capacity: u64| {
            let machine = spec.machine(&model);
            let space = space(&machine, &model, &formats, 2);
            let capacity = vec![space.capacity()[0], Bytes::new(capacity)];
            let goal = goal(&machine, 2);
            space.solve(&goal, &capacity, SearchBudget::EXACT).unwrap().solution.map(|solution| solution.value)
        };
        let mut fast = spec;
        fast.flop[device] *= faster;
        fast.read[device] *= faster;
        fast.bandwidth[device] *= faster;
        let capacity = spec.capacity[1];
        let before = best(&spec, capacity).expect("the host holds everything");
        let roomier = best(&spec, (capacity as f64 * room) as u64).expect("the host holds everything");
        let faster = best(&fast, capacity).expect("the host holds everything");
        prop_assert!(roomier <= before * (1.0 + 1e-9), "{roomier} > {before}");
        // A device that is done earlier may have to wait where it did not, and each wait ends with
        // the time of a signal.
        let steps = 1 + workload(2).decode_steps();
        let signals = (2 * model.layers * steps) as f64 * spec.sync;
        prop_assert!(faster <= before * (1.0 + 1e-9) + signals, "{faster} > {before} + {signals}");
    }
}
