//! The program in its textbook form, with a binary variable for each layer and pattern, solved by
//! HiGHS. Counting layers by pattern, dual prices and branch and bound must reach the same optimum.

use super::{expert_model, goal, space, specs};
use crate::fixture::{Spec, formats};
use crate::search::column_pool::Restriction;
use crate::search::dual_prices::DualPrices;
use crate::search::measure::Measure;
use crate::search::pattern::{Pattern, PatternGroup};
use crate::search::pattern_program::{PatternProgram, PatternSolution, SearchBudget, SolveResult};
use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, SolutionStatus, SolverModel,
    Variable, constraint, highs, microlp, variable,
};
use hwprofiles::statistics::upper_median;
use hwprofiles::{Link, Machine, Memory, MemoryId, MemoryKind};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// Number of random instances. Some have no solution.
const DRAWN: usize = 100;
/// Least number of instances for which the search proves its solution.
const WANTED: usize = 30;
/// An exact search for improvements above a tenth of the asserted precision. Instances that take
/// more nodes are not proven.
const UNLIMITED: SearchBudget =
    SearchBudget { min_gain: 1e-7, nodes: 50_000, sets: usize::MAX, ..SearchBudget::EXACT };
/// Time limit of HiGHS in seconds.
const PATIENCE: f64 = 10.0;
/// Values that differ by a smaller share are equal.
const SAME: f64 = 1e-6;
/// Size of the numbers in the program.
const NEAR: f64 = 1000.0;

/// A random instance.
#[derive(Debug, Clone)]
struct Instance {
    spec: Spec,
    fourth: bool,
    /// Numbers of dense layers and of layers with experts.
    layers: [u64; 2],
    batch: u64,
    /// Choices of embed and head, of dense layers, and of layers with experts.
    choices: [Vec<Index>; 3],
    /// Capacity of each memory as a share of the bytes of everything in it.
    shares: [f64; 4],
    /// Power of the devices, if energy is the goal.
    watts: Option<[f64; 2]>,
    /// Limits of prefill and decode as a share of the times of the best solution without limits.
    limits: [Option<f64>; 2],
}

fn instances() -> impl Strategy<Value = Instance> {
    let limit = || prop::option::of(0.8..1.1f64);
    let layers = (4u64..11, 8u64..15).prop_map(|(dense, experts)| [dense, experts]);
    let share = || 0.05..1.0f64;
    let choices = |count| prop::collection::vec(any::<Index>(), count);
    (
        (specs(), any::<bool>(), layers, 1u64..5),
        [choices(4..9), choices(24..49), choices(24..49)],
        [share(), share(), share(), share()],
        prop::option::of([1.0..500.0f64, 1.0..500.0]),
        [limit(), limit()],
    )
        .prop_map(|((spec, fourth, layers, batch), choices, shares, watts, limits)| Instance {
            spec,
            fourth,
            layers,
            batch,
            choices,
            shares,
            watts,
            limits,
        })
}

/// Restricts `problem` to the instance: few patterns, small memories, its goal and its limits.
fn restrict(problem: &mut PatternProgram<'_>, instance: &Instance) {
    if let Some([one, other]) = instance.watts {
        // Time decides only between equal solutions.
        problem.measures[0].weight = [1e-2, 0.31];
        problem.measures[0].busy = [vec![one, other], vec![one * 31.0, other * 31.0]];
    }
    for (kind, pattern_ids) in problem.groups.iter_mut().zip(&instance.choices) {
        let pattern_ids: BTreeSet<usize> =
            pattern_ids.iter().map(|pick| pick.index(kind.patterns.len())).collect();
        kind.patterns = pattern_ids.into_iter().map(|index| Arc::clone(&kind.patterns[index])).collect();
    }
    for (memory, share) in instance.shares.iter().enumerate().take(problem.capacity.len()) {
        let most =
            |kind: &PatternGroup| kind.patterns.iter().map(|p| p.bytes[memory]).max().unwrap() * kind.layers;
        let everything: u64 = problem.groups.iter().map(most).sum();
        problem.capacity[memory] = (everything as f64 * share) as u64 + 1_000_000;
    }
    let free = PatternProgram { budget: SearchBudget::PLAN, ..problem.clone() }.solve().unwrap().solution;
    let Some(free) = free else { return };
    for (weight, share) in [[1.0, 0.0], [0.0, 1.0]].into_iter().zip(instance.limits) {
        let Some(share) = share else { continue };
        let time = Measure { weight, busy: [vec![0.0; 2], vec![0.0; 2]], limit: f64::INFINITY };
        let limit = free.measured(&time) * share;
        problem.measures.push(Measure { limit, ..time });
    }
}

/// The textbook program.
struct TextbookProgram {
    variables: ProblemVariables,
    objective: Expression,
    constraints: Vec<Constraint>,
    /// By group, layer and pattern.
    layers: Vec<Vec<Vec<Variable>>>,
    /// Size of one unit of the objective.
    unit: f64,
}

impl TextbookProgram {
    fn new(problem: &PatternProgram<'_>) -> Self {
        let mut variables = ProblemVariables::new();
        let layers: Vec<Vec<Vec<Variable>>> = problem
            .groups
            .iter()
            .map(|kind| {
                let layer = |_| variables.add_vector(variable().binary(), kind.patterns.len());
                (0..kind.layers).map(layer).collect()
            })
            .collect();
        let times = [0, 1].map(|_| variables.add(variable().min(0.0)));
        let needed: Vec<Vec<Variable>> = problem
            .items
            .bytes
            .iter()
            .map(|items| variables.add_vector(variable().binary(), items.len()))
            .collect();
        // Units of T and of the objective, about the values of a solution, so that numbers are near
        // `NEAR`.
        let seconds = [0, 1].map(|phase| {
            let least = |kind: &PatternGroup| {
                let longest = |p: &Arc<Pattern>| p.cost[phase].iter().copied().fold(0.0, f64::max);
                kind.patterns.iter().map(longest).fold(f64::INFINITY, f64::min) * kind.layers as f64
            };
            problem.groups.iter().map(least).sum::<f64>().max(f64::MIN_POSITIVE) / NEAR
        });
        let mut words = Self { variables, objective: 0.into(), constraints: vec![], layers, unit: 0.0 };
        words.choose_once();
        for (phase, time) in times.into_iter().enumerate() {
            for row in 0..problem.groups[0].patterns[0].cost[phase].len() {
                let busy = words.sum(problem, |p| p.cost[phase][row] / seconds[phase]);
                words.constraints.push(constraint!(busy <= time));
            }
        }
        words.fill_memories(problem, &needed);
        let measured = |words: &Self, measure: &Measure, unit: f64| {
            let mut sum = words.sum(problem, |p| added(measure, p) / unit);
            (0..2).for_each(|f| sum.add_mul(measure.weight[f] * seconds[f] / unit, times[f]));
            sum
        };
        let [first, limited @ ..] = &problem.measures[..] else { panic!("something is to be small") };
        let least = |kind: &PatternGroup| {
            kind.patterns.iter().map(|p| added(first, p)).fold(f64::INFINITY, f64::min) * kind.layers as f64
        };
        let work = problem.groups.iter().map(least).sum::<f64>() / NEAR;
        words.unit = first.weight[0] * seconds[0] + first.weight[1] * seconds[1] + work;
        words.objective = measured(&words, first, words.unit);
        for measure in limited {
            let sum = measured(&words, measure, measure.limit / NEAR);
            words.constraints.push(constraint!(sum <= NEAR));
        }
        words
    }

    /// Each layer follows one pattern.
    fn choose_once(&mut self) {
        for layer in self.layers.iter().flatten() {
            let solution: Expression = layer.iter().sum();
            self.constraints.push(constraint!(solution == 1));
        }
    }

    /// No memory is overfilled by layers and by the items that some layer needs.
    fn fill_memories(&mut self, problem: &PatternProgram<'_>, needed: &[Vec<Variable>]) {
        for (memory, &capacity) in problem.capacity.iter().enumerate() {
            let unit = capacity.max(1) as f64 / NEAR;
            let mut bytes = self.sum(problem, |p| p.bytes[memory] as f64 / unit);
            let own = problem.items.own.iter().enumerate().filter(|(_, own)| **own == memory);
            for (device, _) in own {
                for (size, &item) in problem.items.bytes[device].iter().zip(&needed[device]) {
                    bytes.add_mul(size.as_f64() / unit, item);
                }
            }
            self.constraints.push(constraint!(bytes <= capacity as f64 / unit));
        }
        for (device, items) in needed.iter().enumerate() {
            items.iter().enumerate().for_each(|(bit, &item)| self.pay_for(problem, device, bit, item));
        }
    }

    /// `item` is present if some layer needs it.
    fn pay_for(&mut self, problem: &PatternProgram<'_>, device: usize, bit: usize, item: Variable) {
        for (kind, layers) in problem.groups.iter().zip(&self.layers) {
            let needs = |p: &Pattern| p.items[device] >> bit & 1 == 1;
            if kind.patterns.iter().any(|p| needs(p)) {
                for layer in layers {
                    let who = kind.patterns.iter().zip(layer).filter(|(p, _)| needs(p));
                    let who: Expression = who.map(|(_, variable)| variable).sum();
                    self.constraints.push(constraint!(who <= item));
                }
            }
        }
    }

    /// Σ over the layers of the number that `of` returns for their patterns.
    fn sum(&self, problem: &PatternProgram<'_>, of: impl Fn(&Pattern) -> f64) -> Expression {
        let mut sum = Expression::default();
        for (kind, layers) in problem.groups.iter().zip(&self.layers) {
            for (pattern, &variable) in layers.iter().flat_map(|layer| kind.patterns.iter().zip(layer)) {
                sum.add_mul(of(pattern), variable);
            }
        }
        sum
    }

    /// The best solution, layer by layer. `Ok(None)` if there is none, an error if it took too
    /// long.
    fn solve(self, problem: &PatternProgram<'_>) -> Result<Option<PatternSolution>, ResolutionError> {
        let model = self.variables.minimise(self.objective).using(highs).with_all(self.constraints);
        let exact = ["mip_rel_gap", "mip_abs_gap"].into_iter().fold(model, |m, gap| m.set_option(gap, 0.0));
        let tight = ["mip_feasibility_tolerance", "primal_feasibility_tolerance"];
        let exact = tight.into_iter().fold(exact, |model, of| model.set_option(of, 1e-9));
        let solution = match exact.set_threads(1).set_time_limit(PATIENCE).solve() {
            Err(ResolutionError::Infeasible) => return Ok(None),
            solved => solved?,
        };
        if matches!(solution.status(), SolutionStatus::TimeLimit) {
            return Err(ResolutionError::Other("it took too long"));
        }
        let kind = |(kind, layers): (&PatternGroup, &Vec<Vec<Variable>>)| {
            let count =
                |at: usize| layers.iter().filter(|layer| solution.value(layer[at]) > 0.5).count() as u64;
            let counts =
                kind.patterns.iter().enumerate().map(|(at, pattern)| (Arc::clone(pattern), count(at)));
            counts.filter(|(_, count)| *count > 0).collect()
        };
        let kinds = problem.groups.iter().zip(&self.layers).map(kind).collect();
        let mut solution = PatternSolution { kinds, value: 0.0 };
        solution.value = solution.measured(&problem.measures[0]);
        Ok(Some(solution))
    }
}

/// What a layer that follows `pattern` adds to `measure` by the work of devices.
fn added(measure: &Measure, pattern: &Pattern) -> f64 {
    let work = measure.busy.iter().zip(&pattern.work);
    work.flat_map(|(busy, work)| busy.iter().zip(work)).map(|(weight, time)| weight * time).sum()
}

/// Calls `visit` with each instance's program and its number.
fn each_instance(mut visit: impl FnMut(usize, &PatternProgram<'_>)) {
    let mut runner = TestRunner::deterministic();
    let formats = formats();
    for number in 0..DRAWN {
        let instance = instances().new_tree(&mut runner).unwrap().current();
        let mut model = expert_model(instance.layers.iter().sum(), 256);
        model.experts.as_mut().unwrap().dense_layers = instance.layers[0];
        let mut machine = Spec { cxl: Some(1 << 40), ..instance.spec }.machine(&model);
        if instance.fourth {
            add_disk(&mut machine);
        }
        let space = space(&machine, &model, &formats, instance.batch);
        let mut problem =
            space.problem(Restriction::NONE, &goal(&machine, instance.batch), &space.capacity(), UNLIMITED);
        restrict(&mut problem, &instance);
        visit(number, &problem);
    }
}

/// A fourth memory with the links of the CXL memory and a quarter of their bandwidth.
fn add_disk(machine: &mut Machine) {
    let disk = MemoryId(machine.memories.len());
    let mut memory = Memory { name: "disk".into(), kind: MemoryKind::Nvme, ..machine.memories[2].clone() };
    memory.bandwidth.value = memory.bandwidth.value * 0.25;
    machine.memories.push(memory);
    let elsewhere = |id: MemoryId| if id.0 == 2 { disk } else { id };
    let of_cxl = machine.links.iter().filter(|link| link.from.0 == 2 || link.to.0 == 2);
    let links: Vec<Link> = of_cxl
        .map(|link| {
            let mut link = link.clone();
            (link.from, link.to) = (elsewhere(link.from), elsewhere(link.to));
            link.name = link.name.replace("cxl", "disk");
            link.bandwidth.value = link.bandwidth.value * 0.25;
            link
        })
        .collect();
    machine.links.extend(links);
}

#[test]
fn counting_layers_by_pattern_finds_what_a_binary_for_each_layer_and_choice_finds() {
    let (mut worst, mut ours, mut theirs, mut open) = (0.0_f64, Vec::new(), Vec::new(), 0);
    each_instance(|number, problem| {
        if ours.len() > WANTED {
            return;
        }
        let began = Instant::now();
        let SolveResult { solution: found, bound } = problem.solve().unwrap();
        let time = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let Ok(best) = TextbookProgram::new(problem).solve(problem) else {
            open += 1;
            return;
        };
        let literal = began.elapsed().as_secs_f64();
        match (found, best) {
            (None, None) => {}
            (Some(found), Some(best)) => {
                println!("{number}: {} in {time:.3} s, {} in {literal:.3} s", found.value, best.value);
                // No solution is better than the optimum, and no bound is above it.
                assert!(
                    found.value >= best.value * (1.0 - SAME),
                    "{number}: {} < {}",
                    found.value,
                    best.value
                );
                assert!(bound <= best.value * (1.0 + SAME), "{number}: {} > {}", bound, best.value);
                if bound < found.value * (1.0 - SAME) {
                    open += 1;
                    return;
                }
                let difference = (found.value - best.value).abs() / best.value;
                assert!(difference <= SAME, "{number}: {} and {}", found.value, best.value);
                worst = worst.max(difference);
                ours.push(time);
                theirs.push(literal);
            }
            (found, best) => panic!("{number}: {found:?} and {best:?}"),
        }
    });
    assert!(ours.len() >= WANTED, "{} instances have a proven solution", ours.len());
    println!(
        "{} instances ({open} more not proven), worst relative difference {worst:.1e}; median {:.1} ms, HiGHS layer by layer {:.1} ms",
        ours.len(),
        upper_median(&ours).expect("values") * 1e3,
        upper_median(&theirs).expect("values") * 1e3,
    );
}

#[test]
fn both_solvers_of_linear_programs_give_the_same_bound() {
    each_instance(|number, problem| {
        let Some(relaxed) = problem.numbers() else { return };
        let [ours, theirs] =
            [DualPrices::solve_with(&relaxed, microlp), DualPrices::solve_with(&relaxed, highs)];
        let [ours, theirs] = [ours.unwrap().bound(&relaxed), theirs.unwrap().bound(&relaxed)];
        assert!((ours - theirs).abs() <= SAME * ours.abs(), "{number}: {ours} and {theirs}");
    });
}
