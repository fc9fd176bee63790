//! The search space of one question, priced once and solved under many restrictions.

use crate::cost::Pricing;
use crate::course::Course;
use crate::error::PlannerError;
use crate::goal::Goal;
use crate::home::Home;
use crate::pattern::{Pattern, Patterns, Stack};
use crate::placement::Placement;
use crate::price_list::PriceList;
use crate::solve::{Chosen, Effort, Kind, Outlook, Problem};
use hwprofiles::{Bytes, DeviceId};
use scenarios::Phase;

const PHASES: [Phase; 2] = [Phase::Prefill, Phase::Decode];

/// Everything that can be chosen, and what it costs.
#[derive(Debug)]
pub(crate) struct Space<'a> {
    pub pricing: Pricing<'a>,
    pub patterns: Patterns<'a>,
    pub stacks: Vec<Stack>,
    items: Vec<Vec<Bytes>>,
    own: Vec<usize>,
}

/// A restriction of the search. The solver does not see contention, so what is best under a restriction may, once
/// simulated, beat what is best without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Family {
    /// Whether matrices may be divided.
    pub divided: bool,
    /// Whether weights or KV may be streamed in prefill and in decode.
    pub streamed: [bool; 2],
    /// Whether a layer may use more than one device in one phase.
    pub mixed: bool,
}

impl Family {
    /// No restriction.
    pub const ALL: Self = Self { divided: true, streamed: [true, true], mixed: true };

    /// Every restriction that is worth a candidate.
    pub const RESTRICTED: [Self; 5] = [
        Self { streamed: [true, false], ..Self::ALL },
        Self { divided: false, ..Self::ALL },
        Self { divided: false, streamed: [true, false], ..Self::ALL },
        Self { divided: false, streamed: [false, false], ..Self::ALL },
        Self { divided: false, mixed: false, ..Self::ALL },
    ];
}

impl<'a> Space<'a> {
    pub fn new(pricing: Pricing<'a>, course: &Course, goal: &Goal) -> Result<Self, PlannerError> {
        let homes = Home::all(pricing.machine, pricing.model);
        let list = |phase| PriceList::new(pricing, course, phase, &homes);
        let prices = [list(Phase::Prefill)?, list(Phase::Decode)?];
        let items = prices[0].item_bytes();
        let extent = &course.extent;
        let patterns = Patterns::new(homes, prices, extent.batch, extent.context, goal.is_frugal());
        let stacks = patterns.stacks();
        let own = pricing.machine.devices.iter().map(|device| device.memory.0).collect();
        Ok(Self { pricing, patterns, stacks, items, own })
    }

    /// The best solution of a family where each memory holds `capacity`; `None` where nothing fits.
    pub fn solve(
        &self,
        family: Family,
        goal: &Goal,
        capacity: &[Bytes],
        effort: Effort,
    ) -> Result<Option<Chosen<'_>>, PlannerError> {
        self.problem(family, goal, capacity, effort).solve()
    }

    /// The problem with every pattern, where the memories hold what they do.
    pub fn all(&self, goal: &Goal, effort: Effort) -> Problem<'_> {
        self.problem(Family::ALL, goal, &self.capacity(), effort)
    }

    /// The outlook of [`Space::all`].
    pub fn outlook(&self, goal: &Goal, effort: Effort) -> Result<Option<Outlook>, PlannerError> {
        self.all(goal, effort).outlook()
    }

    /// A good solution of each of `families`, in their order, where there is one.
    pub fn solve_each(
        &self,
        families: &[Family],
        outlook: &Outlook,
        goal: &Goal,
        effort: Effort,
    ) -> Result<Vec<Chosen<'_>>, PlannerError> {
        let problem = self.all(goal, effort);
        let mut solutions = Vec::new();
        for &family in families {
            let admits = |kind: usize, pattern: &Pattern| self.admits(family, &self.stacks[kind], pattern);
            solutions.extend(problem.solve_some(outlook, admits)?);
        }
        Ok(solutions)
    }

    pub fn problem(&self, family: Family, goal: &Goal, capacity: &[Bytes], effort: Effort) -> Problem<'_> {
        let kinds = self.stacks.iter().map(|stack| {
            let patterns = stack.patterns.iter().filter(|pattern| self.admits(family, stack, pattern));
            Kind { layers: stack.layers, patterns: patterns.collect() }
        });
        self.problem_of(kinds.collect(), goal, capacity, effort)
    }

    /// The problem of other groups of patterns of this space.
    pub fn problem_of<'s>(
        &'s self,
        groups: Vec<Kind<'s>>,
        goal: &Goal,
        capacity: &[Bytes],
        effort: Effort,
    ) -> Problem<'s> {
        Problem {
            groups,
            items: &self.items,
            own: &self.own,
            capacity: capacity.iter().map(|bytes| bytes.get()).collect(),
            measures: goal.yardsticks(),
            effort,
        }
    }

    /// What the machine's memories hold.
    pub fn capacity(&self) -> Vec<Bytes> {
        self.pricing.machine.memories.iter().map(|memory| memory.capacity.value).collect()
    }

    /// Whether a pattern of `stack` is one of the family's.
    pub fn admits(&self, family: Family, stack: &Stack, pattern: &Pattern) -> bool {
        // Embed and head are no layer: they may be elsewhere.
        let is_layer = stack.kind.is_some();
        let one = |phase: usize| pattern.leads[phase].iter().all(|lead| *lead == pattern.leads[phase][0]);
        (family.divided || !self.patterns.divides(pattern))
            && PHASES.iter().all(|&f| family.streamed[f as usize] || !self.patterns.streams(pattern, f))
            && (family.mixed || !is_layer || (one(0) && one(1)))
    }

    /// The placement of a solution: layers of one kind and pattern together, the patterns of each kind in the order
    /// with the shortest chain.
    pub fn placement(&self, chosen: &Chosen<'_>, goal: &Goal) -> Placement {
        self.placement_in(&self.stacks.iter().collect::<Vec<_>>(), chosen, goal)
    }

    /// The same where the groups of layers are those of `stacks`, embed and head first.
    pub fn placement_in(&self, stacks: &[&Stack], chosen: &Chosen<'_>, goal: &Goal) -> Placement {
        let [ends, kinds @ ..] = &chosen.kinds[..] else { panic!("embed and head are always placed") };
        let [ends] = &ends[..] else { panic!("embed and head are placed once") };
        let mut from = [0, 1].map(|phase| ends.0.leads[phase][0]);
        let mut layers = Vec::new();
        for (stack, runs) in stacks[1..].iter().copied().zip(kinds) {
            let orders = permutations(runs.len());
            let chains = orders.iter().map(|order| self.chain(stack, runs, order, from, goal));
            let best = chains.enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0));
            let Some((best, (_, exit))) = best else { continue };
            for &run in &orders[best] {
                let (pattern, count) = runs[run];
                layers.extend(std::iter::repeat_n(self.patterns.layer(stack, pattern), count as usize));
            }
            from = exit;
        }
        let [embed, head] = self.patterns.ends(stacks[0], ends.0);
        Placement { embed, layers, head }
    }

    /// The same layers dealt out evenly, where some stream and others do not: what is fetched for the ones can arrive
    /// while the others compute. `None` where all stream or none does.
    pub fn dealt(&self, chosen: &Chosen<'_>, goal: &Goal) -> Option<Placement> {
        let streams = |pattern: &Pattern, phase: Phase| self.patterns.streams(pattern, phase);
        let layers = || chosen.kinds[1..].iter().flatten();
        let mixed = |&phase: &Phase| {
            layers().any(|(p, _)| streams(p, phase)) && layers().any(|(p, _)| !streams(p, phase))
        };
        PHASES.iter().any(mixed).then_some(())?;
        let mut placement = self.placement(chosen, goal);
        placement.layers.clear();
        for (stack, runs) in self.stacks[1..].iter().zip(&chosen.kinds[1..]) {
            let place = |run: usize, layer: u64| ((2 * layer + 1) as f64 / runs[run].1 as f64, run);
            let mut order: Vec<(f64, usize)> = (0..runs.len())
                .flat_map(|run| (0..runs[run].1).map(move |layer| place(run, layer)))
                .collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let layers = order.into_iter().map(|(_, run)| self.patterns.layer(stack, runs[run].0));
            placement.layers.extend(layers);
        }
        Some(placement)
    }

    /// The weighted chain through the runs in this order, and where the residual is then in each phase.
    fn chain(
        &self,
        stack: &Stack,
        runs: &[(&Pattern, u64)],
        order: &[usize],
        from: [DeviceId; 2],
        goal: &Goal,
    ) -> (f64, [DeviceId; 2]) {
        let mut walk = self.patterns.walk();
        let weight = goal.yardsticks()[0].weight;
        let (mut total, mut exits) = (0.0, from);
        for phase in PHASES {
            let (mut from, mut sum) = (from[phase as usize], 0.0);
            for &run in order {
                let (pattern, count) = runs[run];
                let exit = *pattern.leads[phase as usize].last().expect("a layer has sublayers");
                sum += self.patterns.chain(&mut walk, stack, pattern, phase, from);
                if from != exit || count > 1 {
                    sum += self.patterns.chain(&mut walk, stack, pattern, phase, exit) * (count - 1) as f64;
                }
                from = exit;
            }
            exits[phase as usize] = from;
            total += weight[phase as usize] * sum;
        }
        (total, exits)
    }
}

/// Every order of few groups; of many, only theirs and its reverse.
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
