//! Laws of the search, on small instances where brute force can say what is best.

use crate::course::Course;
use crate::fixture::{Spec, formats, model};
use crate::home::Home;
use crate::memory::{Programs, usage};
use crate::pattern::{Pattern, Patterns};
use crate::placement::Placement;
use crate::price_list::PriceList;
use crate::program::{Action, Lane, Program};
use crate::solve::{Chosen, Effort, Problem};
use crate::space::{Family, Space};
use crate::{Pricing, Usage};
use hwprofiles::{Bytes, Machine, Seconds};
use proptest::prelude::*;
use scenarios::{Model, Objective, Phase, Step, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Everything is looked at.
const EXACT: Effort = Effort { worth: 0.0, nodes: u64::MAX };

fn workload(batch: u64) -> Workload {
    Workload { batch, prompt_tokens: 96, output_tokens: 32 }
}

/// Machines of all proportions.
fn specs() -> impl Strategy<Value = Spec> {
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
        },
    )
}

/// The longest chain of a step when fetches and stores take no time.
fn chain(pricing: Pricing<'_>, placement: &Placement, step: &Step) -> Seconds {
    let program = Program::lower(pricing.machine, pricing.model, placement, step.phase).unwrap();
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
        let sync = if ready > *free { pricing.machine.device(device).sync.value } else { Seconds::ZERO };
        *free = ready.max(*free) + sync + pricing.price(task, step).unwrap().alone;
        ends.push(*free);
    }
    ends.into_iter().fold(Seconds::ZERO, Seconds::max)
}

#[test]
fn a_patterns_chain_is_what_one_more_layer_of_it_adds_to_the_critical_path() {
    for spec in [Spec::loopback(1 << 30), Spec::gpu(1 << 30)] {
        // Contention between parts, which a critical path does not see, is out of the way.
        let spec = Spec { bandwidth: [1e18, 1e18], ..spec };
        let models = [2, 3].map(|layers| model(layers, 256));
        let machine = spec.machine(&models[0]);
        let course = Course::of(&workload(2));
        let formats = formats();
        let pricing = |index: usize| Pricing { machine: &machine, model: &models[index], formats: &formats };
        let homes = Home::all(&machine);
        let prices = [Phase::Prefill, Phase::Decode]
            .map(|phase| PriceList::new(pricing(0), &course, phase, &homes).unwrap());
        let patterns = Patterns::new(homes, prices, 2, 128);
        let all = patterns.of_layer();
        assert!(all.len() > 100, "{}", all.len());
        for pattern in all.iter().step_by(3) {
            let placements = models.each_ref().map(|model| {
                let uniform = Placement::uniform(model, hwprofiles::DeviceId(0), hwprofiles::MemoryId(0));
                let layers = vec![patterns.layer(pattern); model.layers as usize];
                Placement { layers, ..uniform }
            });
            for (phase, step) in [course.prefill[0][0], course.decode].into_iter().enumerate() {
                let [two, three] = [0, 1].map(|i| chain(pricing(i), &placements[i], &step).get());
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
    let course = Course::of(&workload(2));
    let formats = formats();
    let pricing = Pricing { machine: &machine, model: &model, formats: &formats };
    let homes = Home::all(&machine);
    let prices =
        [Phase::Prefill, Phase::Decode].map(|phase| PriceList::new(pricing, &course, phase, &homes).unwrap());
    let patterns = Patterns::new(homes, prices, 2, 128);
    let mut seen = 0;
    for pattern in patterns.of_ends() {
        let [embed, head] = patterns.ends(&pattern);
        let placement = Placement { embed, layers: vec![], head };
        for (phase, step) in [course.prefill[0][0], course.decode].into_iter().enumerate() {
            if pattern.leads[phase][0] == pattern.leads[phase][1] {
                let (path, ours) = (chain(pricing, &placement, &step).get(), pattern.cost[phase][0]);
                assert!((path - ours).abs() < 1e-9 * path, "{pattern:?} {phase}: {path} and {ours}");
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

fn space<'a>(
    machine: &'a Machine,
    model: &'a Model,
    formats: &'a scenarios::Formats,
    batch: u64,
) -> Space<'a> {
    let pricing = Pricing { machine, model, formats };
    Space::new(pricing, &Course::of(&workload(batch)), Objective::Latency).unwrap()
}

/// Every solution of a small problem: the best value, by the words of the integer program.
fn brute_force(problem: &Problem<'_>) -> Option<f64> {
    let rows = [0, 1].map(|phase| {
        let longest = problem.patterns.iter().chain(&problem.ends).map(|p: &&Pattern| {
            let costs = &p.cost[phase];
            (0..costs.len()).rev().max_by(|&a, &b| costs[a].total_cmp(&costs[b])).unwrap()
        });
        longest.chain([0]).collect::<BTreeSet<_>>()
    });
    let mut best: Option<f64> = None;
    let mut counts = vec![0; problem.patterns.len()];
    each_count(&mut counts, 0, problem.layers, &mut |counts| {
        let layers: Vec<_> = problem.patterns.iter().zip(counts).map(|(&p, &n)| (p, n)).collect();
        let layers: Vec<_> = layers.into_iter().filter(|(_, n)| *n > 0).collect();
        for &ends in &problem.ends {
            let chosen = Chosen { layers: layers.clone(), ends, value: Seconds::ZERO, bound: Seconds::ZERO };
            let used = problem.used(&chosen);
            if used.iter().zip(&problem.capacity).any(|(used, capacity)| used > capacity) {
                continue;
            }
            let time = |phase: usize, row: usize| {
                let layers = layers.iter().map(|(p, n)| p.cost[phase][row] * *n as f64);
                ends.cost[phase][row] + layers.sum::<f64>()
            };
            let longest = |phase: usize| rows[phase].iter().map(|&row| time(phase, row)).fold(0.0, f64::max);
            let value = problem.weight[0] * longest(0) + problem.weight[1] * longest(1);
            best = Some(best.map_or(value, |best| best.min(value)));
        }
    });
    best
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
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn the_search_finds_what_brute_force_finds(
        spec in specs(), layers in 1u64..5, batch in 1u64..5,
        some in prop::collection::vec(any::<prop::sample::Index>(), 2..10),
        few in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
        share in 0.0..1.2f64,
    ) {
        let model = model(layers, 256);
        let machine = spec.machine(&model);
        let formats = formats();
        let space = space(&machine, &model, &formats, batch);
        let mut problem = space.problem(Family::ALL, &space.capacity(), EXACT);
        let pick = |all: &[&'_ Pattern], which: &[prop::sample::Index]| -> Vec<usize> {
            which.iter().map(|i| i.index(all.len())).collect::<BTreeSet<_>>().into_iter().collect()
        };
        let (patterns, ends) = (pick(&problem.patterns, &some), pick(&problem.ends, &few));
        problem.patterns = patterns.into_iter().map(|i| problem.patterns[i]).collect();
        problem.ends = ends.into_iter().map(|i| problem.ends[i]).collect();
        // A capacity between nothing and what everything would take: most of them bind.
        let everything = problem.patterns.iter().map(|p| p.bytes[1]).max().unwrap() * (layers + 1);
        problem.capacity[1] = (everything as f64 * share) as u64 + 1_000_000;
        let found = problem.solve().unwrap();
        let best = brute_force(&problem);
        match (&found, best) {
            (None, None) => {}
            (Some(found), Some(best)) => {
                let used = problem.used(found);
                prop_assert!(used.iter().zip(&problem.capacity).all(|(used, capacity)| used <= capacity));
                prop_assert!((found.value.get() - best).abs() <= 1e-9 * best, "{} and {best}", found.value);
            }
            (found, best) => prop_assert!(false, "{found:?} and {best:?}"),
        }
    }

    #[test]
    fn the_programs_bytes_are_those_of_the_placement(
        spec in specs(), batch in 1u64..9, family in 0usize..8, tied in any::<bool>(), cores in 0usize..5,
    ) {
        let model = Model { tied_embeddings: tied, qk_norm: tied, ..model(3, 256) };
        let mut machine = spec.machine(&model);
        machine.devices.iter_mut().for_each(|device| device.cores = (0..cores).collect());
        let formats = formats();
        let space = space(&machine, &model, &formats, batch);
        let family = Family::each()[family];
        let problem = space.problem(family, &space.capacity(), Effort::PLAN);
        if let Some(chosen) = problem.solve().unwrap() {
            let placement = space.placement(&chosen);
            let programs = Programs::lower(&machine, &model, &placement).unwrap();
            let extent = Course::of(&workload(batch)).extent;
            let exact = usage(&machine, &model, &formats, &placement, &programs, &extent);
            let exact: Vec<_> = exact.iter().map(|used: &Usage| used.total().get()).collect();
            prop_assert_eq!(&exact, &problem.used(&chosen));
            prop_assert!(exact.iter().zip(&problem.capacity).all(|(used, capacity)| used <= capacity));
        }
    }

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
            space.solve(Family::ALL, &capacity, EXACT).unwrap().map(|chosen| chosen.value.get())
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
        prop_assert!(faster <= before * (1.0 + 1e-9), "{faster} > {before}");
    }
}
