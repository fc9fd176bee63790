//! The search space of one question, priced once and solved under many restrictions.

use crate::cost::Pricing;
use crate::course::Course;
use crate::error::PlannerError;
use crate::home::Home;
use crate::pattern::{Pattern, Patterns};
use crate::placement::Placement;
use crate::price_list::PriceList;
use crate::solve::{Chosen, Effort, Problem};
use hwprofiles::{Bytes, DeviceId};
use scenarios::{Objective, Phase};

const PHASES: [Phase; 2] = [Phase::Prefill, Phase::Decode];

/// Everything that can be chosen, and what it costs.
#[derive(Debug)]
pub(crate) struct Space<'a> {
    pricing: Pricing<'a>,
    patterns: Patterns<'a>,
    layers: Vec<Pattern>,
    ends: Vec<Pattern>,
    items: Vec<Vec<Bytes>>,
    own: Vec<usize>,
    weight: [f64; 2],
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
    pub fn each() -> [Self; 8] {
        let resident = [false, false];
        let prefill = [true, false];
        [
            Self::ALL,
            Self { streamed: prefill, ..Self::ALL },
            Self { streamed: resident, ..Self::ALL },
            Self { divided: false, ..Self::ALL },
            Self { divided: false, streamed: prefill, ..Self::ALL },
            Self { divided: false, streamed: resident, ..Self::ALL },
            Self { divided: false, mixed: false, ..Self::ALL },
            Self { divided: false, streamed: resident, mixed: false },
        ]
    }
}

/// What prefill and decode count in an objective. For TPOT, prefill only decides between equals.
pub(crate) fn weights(objective: Objective, decodes: u64) -> [f64; 2] {
    const TIE: f64 = 1e-4;
    match objective {
        Objective::Latency | Objective::Throughput => [1.0, decodes as f64],
        Objective::Tpot if decodes == 0 => [1.0, 0.0],
        Objective::Tpot => [TIE, 1.0],
    }
}

impl<'a> Space<'a> {
    pub fn new(pricing: Pricing<'a>, course: &Course, objective: Objective) -> Result<Self, PlannerError> {
        // A pattern is one of a dense layer.
        if pricing.model.experts.is_some() {
            let reason = format!("layers with experts, as those of {}, are not searched", pricing.model.name);
            return Err(PlannerError::Solver { reason });
        }
        let homes = Home::all(pricing.machine);
        let list = |phase| PriceList::new(pricing, course, phase, &homes);
        let prices = [list(Phase::Prefill)?, list(Phase::Decode)?];
        let items = prices[0].item_bytes();
        let patterns = Patterns::new(homes, prices, course.extent.batch, course.extent.context);
        let (layers, ends) = (patterns.of_layer(), patterns.of_ends());
        let own = pricing.machine.devices.iter().map(|device| device.memory.0).collect();
        let weight = weights(objective, course.decodes);
        Ok(Self { pricing, patterns, layers, ends, items, own, weight })
    }

    /// The best solution of a family where each memory holds `capacity`; `None` where nothing fits.
    pub fn solve(
        &self,
        family: Family,
        capacity: &[Bytes],
        effort: Effort,
    ) -> Result<Option<Chosen<'_>>, PlannerError> {
        self.problem(family, capacity, effort).solve()
    }

    pub fn problem(&self, family: Family, capacity: &[Bytes], effort: Effort) -> Problem<'_> {
        Problem {
            layers: self.pricing.model.layers,
            patterns: self.layers.iter().filter(|p| self.admits(family, p)).collect(),
            ends: self.ends.iter().filter(|p| self.admits(family, p)).collect(),
            items: &self.items,
            own: &self.own,
            capacity: capacity.iter().map(|bytes| bytes.get()).collect(),
            weight: self.weight,
            effort,
        }
    }

    /// What the machine's memories hold.
    pub fn capacity(&self) -> Vec<Bytes> {
        self.pricing.machine.memories.iter().map(|memory| memory.capacity.value).collect()
    }

    fn admits(&self, family: Family, pattern: &Pattern) -> bool {
        // Embed and head are no layer: they may be elsewhere.
        let is_layer = pattern.homes.len() > 2;
        let one = |phase: usize| pattern.leads[phase].iter().all(|lead| *lead == pattern.leads[phase][0]);
        (family.divided || !self.patterns.divides(pattern))
            && PHASES.iter().all(|&f| family.streamed[f as usize] || !self.patterns.streams(pattern, f))
            && (family.mixed || !is_layer || (one(0) && one(1)))
    }

    /// The placement of a solution: layers of one pattern together, the patterns in the order with the shortest
    /// chain.
    pub fn placement(&self, chosen: &Chosen<'_>) -> Placement {
        let mut orders = permutations(chosen.layers.len());
        let length: Vec<f64> = orders.iter().map(|order| self.chain(chosen, order)).collect();
        let best = (0..orders.len()).min_by(|&a, &b| length[a].total_cmp(&length[b])).unwrap_or(0);
        let order = orders.swap_remove(best);
        let layers = order.iter().flat_map(|&group| {
            let (pattern, count) = chosen.layers[group];
            std::iter::repeat_n(self.patterns.layer(pattern), count as usize)
        });
        let [embed, head] = self.patterns.ends(chosen.ends);
        Placement { embed, layers: layers.collect(), head }
    }

    /// The weighted chain through the groups in this order.
    fn chain(&self, chosen: &Chosen<'_>, order: &[usize]) -> f64 {
        let mut walk = self.patterns.walk();
        let of_phase = |&phase: &Phase| {
            let mut from: DeviceId = chosen.ends.leads[phase as usize][0];
            let mut sum = 0.0;
            for &group in order {
                let (pattern, count) = chosen.layers[group];
                let exit = *pattern.leads[phase as usize].last().expect("a layer has sublayers");
                sum += self.patterns.chain(&mut walk, pattern, phase, from);
                if from != exit || count > 1 {
                    sum += self.patterns.chain(&mut walk, pattern, phase, exit) * (count - 1) as f64;
                }
                from = exit;
            }
            self.weight[phase as usize] * sum
        };
        PHASES.iter().map(of_phase).sum()
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
