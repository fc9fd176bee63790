//! The search space of one problem. It is priced once and solved for several goals and
//! restrictions.

use crate::cost::{CostModel, PriceList};
use crate::error::PlannerError;
use crate::placement::{Home, IdenticalGpus, LayerPlacement, ModelShare, Pipelining, Placement};
use crate::program::{ALL_BUFFERS, BatchSteps, RunExtent};
use crate::search::column_pool::Restriction;
use crate::search::goal::Goal;
use crate::search::layer_class::{LayerClass, PatternId};
use crate::search::measure::Measure;
use crate::search::pattern::{OneTimeItems, Pattern, PatternGroup, Patterns};
use crate::search::pattern_program::{PatternProgram, PatternSolution, SearchBudget, SolveResult};
use crate::search::priced_problem::PricedProblem;
use hwprofiles::{Bytes, DeviceId};
use scenarios::{ActivationBuffer, Phase};
use std::sync::Arc;

const PHASES: [Phase; 2] = [Phase::Prefill, Phase::Decode];

/// All residencies of a problem with their costs.
#[derive(Debug)]
pub(crate) struct SearchSpace<'a> {
    pub cost_model: CostModel<'a>,
    pub patterns: Patterns<'a>,
    pub classes: Vec<LayerClass>,
    items: Vec<Vec<Bytes>>,
    own: Vec<usize>,
    identical_gpus: IdenticalGpus,
    extent: RunExtent,
}

impl<'a> SearchSpace<'a> {
    pub fn new(
        cost_model: CostModel<'a>,
        batch_steps: &BatchSteps,
        goal: &Goal,
    ) -> Result<Self, PlannerError> {
        let identical_gpus = IdenticalGpus::from_machine(cost_model.machine);
        let homes = Home::all(cost_model.machine, cost_model.model, &identical_gpus);
        let list = |phase| PriceList::among(cost_model, batch_steps, phase, &homes, &identical_gpus);
        let prices = [list(Phase::Prefill)?, list(Phase::Decode)?];
        let items = prices[0].item_bytes();
        let extent = &batch_steps.extent;
        let patterns = Patterns::new(homes, prices, extent.batch, extent.context, goal.prices_device_work());
        let classes = patterns.classes();
        let own = cost_model.machine.devices.iter().map(|device| device.memory.0).collect();
        Ok(Self { cost_model, patterns, classes, items, own, identical_gpus, extent: batch_steps.extent })
    }

    /// The problem with the objective `goal` and these capacities. `None` if nothing can fit.
    pub fn priced_problem(
        &self,
        goal: &Goal,
        capacity: &[Bytes],
    ) -> Result<Option<PricedProblem<'_>>, PlannerError> {
        let groups: Vec<_> = self.classes.iter().map(|class| (class.layers, class)).collect();
        self.priced_problem_for(&groups, goal.measures(), capacity)
    }

    /// The problem with other groups, each a number of layers of a class, and other measures.
    pub fn priced_problem_for<'s>(
        &'s self,
        groups: &[(u64, &'s LayerClass)],
        measures: Vec<Measure>,
        capacity: &[Bytes],
    ) -> Result<Option<PricedProblem<'s>>, PlannerError> {
        PricedProblem::new(&self.patterns, groups, self.items(), measures, capacity)
    }

    /// The classes as if layers hid only their own fetches: each takes as long as its busiest
    /// resource. The costs of [`Self::classes`] let a link fetch for some layers while any others
    /// compute, but it stops when its slots are full. `None` if that is the same.
    pub fn classes_alone(&self) -> Option<Vec<LayerClass>> {
        let mut classes = self.classes.clone();
        let mut differ = false;
        for residency in classes[1..].iter_mut().flat_map(|class| &mut class.residency) {
            for choice in residency.choices.iter_mut().flatten() {
                let busiest = choice.cost.iter().copied().fold(0.0, f64::max);
                differ |= choice.cost[0] < busiest;
                choice.cost[0] = busiest;
            }
        }
        differ.then_some(classes)
    }

    /// The best solution with these capacities.
    pub fn solve(
        &self,
        goal: &Goal,
        capacity: &[Bytes],
        budget: SearchBudget,
    ) -> Result<SolveResult, PlannerError> {
        match self.priced_problem(goal, capacity)? {
            Some(priced_problem) => priced_problem.solve(Restriction::NONE, budget, f64::INFINITY),
            None => Ok(SolveResult::NOTHING),
        }
    }

    /// A program that decides whether anything fits: each layer costs 1, and of patterns with the
    /// same bytes and items one is kept. A solution has the number of layers as its value.
    pub fn fitting(&self) -> PatternProgram<'_> {
        let layers = self.classes.iter().map(|class| {
            let pattern_ids = class
                .residency
                .iter()
                .enumerate()
                .flat_map(|(index, residency)| residency.pattern_ids(index));
            let room = |pattern_id: PatternId| {
                let pattern = Arc::unwrap_or_clone(self.patterns.pattern(class, pattern_id));
                (pattern.bytes.clone(), pattern.items.clone(), pattern)
            };
            let mut all: Vec<_> = pattern_ids.map(room).collect();
            all.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
            all.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
            let alike =
                |(_, _, pattern): (_, _, Pattern)| Arc::new(Pattern { cost: [vec![1.0], vec![]], ..pattern });
            PatternGroup { layers: class.layers, patterns: all.into_iter().map(alike).collect() }
        });
        let capacity = self.capacity().iter().map(|bytes| bytes.get()).collect();
        let count = Measure { weight: [1.0, 0.0], busy: [vec![], vec![]], limit: f64::INFINITY };
        let (groups, measures) = (layers.collect(), vec![count]);
        PatternProgram { groups, items: self.items(), capacity, measures, budget: SearchBudget::FITTING }
    }

    fn items(&self) -> OneTimeItems<'_> {
        OneTimeItems { bytes: &self.items, own: &self.own }
    }

    /// The program with every permitted pattern written out.
    #[cfg(test)]
    pub fn problem(
        &self,
        restriction: Restriction,
        goal: &Goal,
        capacity: &[Bytes],
        budget: SearchBudget,
    ) -> PatternProgram<'_> {
        let priced_problem = self.priced_problem(goal, capacity).unwrap().unwrap();
        priced_problem.everything(restriction, budget)
    }

    /// Capacity of each memory. The first of identical GPUs has the capacity of all.
    pub fn capacity(&self) -> Vec<Bytes> {
        self.identical_gpus.capacity(self.cost_model.machine)
    }

    /// The capacities with a share of the identical GPUs' left out, see
    /// [`crate::search::deal_out::MARGINS`].
    pub fn capacity_less(&self, share: f64) -> Vec<Bytes> {
        self.identical_gpus.capacity_less(self.cost_model.machine, share)
    }

    /// Whether the activations of prefill take more than a hundredth of a device's memory, so that
    /// steps of fewer rows would leave notably more for weights.
    pub fn is_cramped(&self) -> bool {
        const HUNDREDTHS: u64 = 100;
        let CostModel { machine, model, formats } = self.cost_model;
        let rows = self.extent.rows(Phase::Prefill);
        machine.device_ids().any(|device| {
            let shared = ModelShare::on_device(machine, model, device);
            let buffers = ALL_BUFFERS.into_iter().filter(|&buffer| buffer != ActivationBuffer::Logits);
            let bytes: Bytes = buffers.map(|buffer| shared.whole_buffer(buffer, formats, rows)).sum();
            bytes * HUNDREDTHS > machine.memories[machine.device(device).memory.0].capacity.value
        })
    }

    /// The placements of a solution: its runs of layers one after the other, and interleaved if
    /// only some stream; each dealt out over the identical GPUs. Empty if the layers fit in all
    /// GPUs together but cannot be dealt out.
    pub fn placements(&self, solution: &PatternSolution, goal: &Goal) -> Vec<Placement> {
        let placements = [Some(self.placement(solution, goal)), self.dealt(solution, goal)];
        // Patterns are priced separately, so there may be no link between two of them.
        let over_gpus = |placement| {
            self.identical_gpus.dealt_out(self.cost_model, &self.extent, placement).unwrap_or_default()
        };
        placements.into_iter().flatten().flat_map(over_gpus).collect()
    }

    /// The placement of a solution: of each class, layers with the same pattern follow each other,
    /// and the patterns are in the order with the shortest chain. Classes take turns as the model's
    /// layers do.
    pub fn placement(&self, solution: &PatternSolution, goal: &Goal) -> Placement {
        self.placement_in(&self.classes.iter().collect::<Vec<_>>(), solution, goal)
    }

    /// The placement for groups of the classes `classes`, embed and head first.
    pub fn placement_in(
        &self,
        classes: &[&LayerClass],
        solution: &PatternSolution,
        goal: &Goal,
    ) -> Placement {
        let [ends, kinds @ ..] = &solution.kinds[..] else { panic!("embed and head are always placed") };
        let [ends] = &ends[..] else { panic!("embed and head are placed once") };
        let mut from = [0, 1].map(|phase| ends.0.leads[phase][0]);
        let mut by_class = Vec::with_capacity(kinds.len());
        for (class, runs) in classes[1..].iter().copied().zip(kinds) {
            let orders = permutations(runs.len());
            let chains = orders.iter().map(|order| self.chain(class, runs, order, from, goal));
            let best = chains.enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0));
            let Some((best, (_, exit))) = best else { continue };
            let layers = orders[best].iter().flat_map(|&run| {
                let (pattern, count) = &runs[run];
                std::iter::repeat_n(self.patterns.layer(class, pattern), *count as usize)
            });
            by_class.push(layers.collect());
            from = exit;
        }
        let [embed, head] = self.patterns.ends(classes[0], &ends.0);
        let layers = self.in_model_order(by_class);
        Placement { embed, layers, head, pipelining: Pipelining::default() }
    }

    /// The layers of the classes, each class in its own order, where the model has layers of their
    /// kind.
    fn in_model_order(&self, by_class: Vec<Vec<LayerPlacement>>) -> Vec<LayerPlacement> {
        let model = self.cost_model.model;
        let mut left: Vec<_> = by_class.into_iter().map(|layers| layers.into_iter().peekable()).collect();
        let next = |layer| {
            let kind = model.kind(layer);
            left.iter_mut().find_map(|layers| layers.next_if(|next| next.kind == kind))
        };
        (0..model.layers).map_while(next).collect()
    }

    /// The interleaved placement if some layers stream and others do not: then fetches overlap with
    /// the computation of other layers. `None` otherwise.
    pub fn dealt(&self, solution: &PatternSolution, goal: &Goal) -> Option<Placement> {
        let streams = |pattern: &Pattern, phase: Phase| {
            self.patterns.streams(&pattern.homes, &pattern.leads[phase as usize], phase)
        };
        let layers = || solution.kinds[1..].iter().flatten();
        let mixed = |&phase: &Phase| {
            layers().any(|(p, _)| streams(p, phase)) && layers().any(|(p, _)| !streams(p, phase))
        };
        PHASES.iter().any(mixed).then(|| self.interleaved(solution, goal))
    }

    /// The placement with the layers of each pattern distributed evenly.
    pub fn interleaved(&self, solution: &PatternSolution, goal: &Goal) -> Placement {
        let mut placement = self.placement(solution, goal);
        let mut by_class = Vec::new();
        for (class, runs) in self.classes[1..].iter().zip(&solution.kinds[1..]) {
            let place = |run: usize, layer: u64| ((2 * layer + 1) as f64 / runs[run].1 as f64, run);
            let mut order: Vec<(f64, usize)> = (0..runs.len())
                .flat_map(|run| (0..runs[run].1).map(move |layer| place(run, layer)))
                .collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            by_class
                .push(order.into_iter().map(|(_, run)| self.patterns.layer(class, &runs[run].0)).collect());
        }
        placement.layers = self.in_model_order(by_class);
        placement
    }

    /// The weighted chain through the runs in this order, and the device of the residual after it
    /// in each phase.
    fn chain(
        &self,
        class: &LayerClass,
        runs: &[(Arc<Pattern>, u64)],
        order: &[usize],
        from: [DeviceId; 2],
        goal: &Goal,
    ) -> (f64, [DeviceId; 2]) {
        let mut serial_chain = self.patterns.serial_chain();
        let weight = goal.measures()[0].weight;
        let (mut total, mut exits) = (0.0, from);
        for phase in PHASES {
            let (mut from, mut sum) = (from[phase as usize], 0.0);
            for &run in order {
                let (pattern, count) = &runs[run];
                let exit = *pattern.leads[phase as usize].last().expect("a layer has sublayers");
                sum += self.patterns.chain(&mut serial_chain, class, pattern, phase, from);
                if from != exit || *count > 1 {
                    sum += self.patterns.chain(&mut serial_chain, class, pattern, phase, exit)
                        * (*count - 1) as f64;
                }
                from = exit;
            }
            exits[phase as usize] = from;
            total += weight[phase as usize] * sum;
        }
        (total, exits)
    }
}

/// All permutations of at most four groups; of more, only the given order and its reverse.
fn permutations(groups: usize) -> Vec<Vec<usize>> {
    const FEW: usize = 4;
    if groups > FEW {
        return vec![(0..groups).collect(), (0..groups).rev().collect()];
    }
    let mut all = vec![vec![]];
    for _ in 0..groups {
        let longer = all.iter().flat_map(|order: &Vec<usize>| {
            let rest = (0..groups).filter(|group| !order.contains(group));
            rest.map(|group| [&order[..], &[group]].concat()).collect::<Vec<_>>()
        });
        all = longer.collect();
    }
    all
}
