//! What can be chosen, and what it costs at some prices, without writing a pattern out: given the homes, what a layer
//! costs is the sum of what its homes and the halves of its phases cost. Of tens of thousands of patterns, those that
//! could be in a good solution are then few hundred.

use crate::search::dual_prices::{CheapestColumn, DualPrices, PricingOracle};
use crate::search::integer_program::RowMeasure;
use crate::search::integer_program::binding_rows;
use crate::search::layer_class::LayerClass;
use crate::search::layer_class::PhaseChoice;
use crate::search::layer_class::{LayerResidency, PatternId};
use crate::search::measure::Measure;
use crate::search::pattern::OneTimeItems;
use crate::search::pattern::PatternGroup;
use crate::search::pattern::Patterns;

use std::collections::BTreeSet;

/// The choices of some groups of layers, in a machine whose memories hold so much.
#[derive(Debug, Clone)]
pub(crate) struct ColumnPool<'s> {
    patterns: &'s Patterns<'s>,
    groups: Vec<PoolGroup<'s>>,
    /// The rows that can bind, by phase.
    rows: [Vec<usize>; 2],
    /// The phase of each row.
    phases: Vec<usize>,
    /// The memories that could be overfilled.
    memories: Vec<usize>,
    /// What they hold beside what every solution needs.
    room: Vec<u64>,
    measures: Vec<Measure>,
    row_measures: Vec<RowMeasure>,
}

/// The choices of one group.
#[derive(Debug, Clone)]
struct PoolGroup<'s> {
    layers: u64,
    stack: &'s LayerClass,
    /// Indices of homes and, of each phase, of the halves that may be chosen there.
    residency: Vec<(usize, [Vec<usize>; 2])>,
}

/// Prices where nothing is left out: of every row by phase, of every memory, and of each device's work by phase.
struct ExpandedPrices {
    rows: [Vec<f64>; 2],
    work: [Vec<f64>; 2],
    memories: Vec<f64>,
}

/// A restriction of the search. The solver does not see contention, so what is best under a restriction may, once
/// simulated, beat what is best without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restriction {
    /// Whether matrices may be divided.
    pub divided: bool,
    /// Whether weights or KV may be streamed in prefill and in decode.
    pub streamed: [bool; 2],
    /// Whether a layer may use more than one device in one phase.
    pub mixed: bool,
}

impl Restriction {
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

impl<'s> ColumnPool<'s> {
    /// Everything that `groups` offer, so many layers of each stack; `None` where what all solutions need does not fit.
    pub fn new(
        patterns: &'s Patterns<'s>,
        groups: &[(u64, &'s LayerClass)],
        items: OneTimeItems<'_>,
        capacity: &[u64],
        measures: Vec<Measure>,
    ) -> Option<Self> {
        let all = |&(layers, stack): &(u64, &'s LayerClass)| {
            let every =
                |residency: &LayerResidency| residency.choices.each_ref().map(|h| (0..h.len()).collect());
            let residency = stack.residency.iter().map(every).enumerate().collect();
            PoolGroup { layers, stack, residency }
        };
        let groups: Vec<PoolGroup<'s>> = groups.iter().map(all).collect();
        let row_measures = measures.iter().map(|m| RowMeasure { weight: m.weight, limit: m.limit }).collect();
        let (rows, phases, memories, room) = (Default::default(), vec![], vec![], vec![]);
        let mut pool = Self { patterns, groups, rows, phases, memories, room, measures, row_measures };
        let costs = |phase: usize| pool.choices(phase).map(|half| &half.cost[..]).collect::<Vec<_>>();
        pool.rows = [0, 1].map(|phase| binding_rows(&costs(phase)));
        pool.phases = (0..2).flat_map(|phase| pool.rows[phase].iter().map(move |_| phase)).collect();
        let free = pool.free(items, capacity)?;
        pool.memories =
            (0..capacity.len()).filter(|&memory| pool.most(items, memory) > free[memory]).collect();
        pool.room = pool.memories.iter().map(|&memory| free[memory]).collect();
        Some(pool)
    }

    /// The same with a family's choices alone.
    pub fn restricted(&self, restriction: Restriction) -> Self {
        let group = |group: &PoolGroup<'s>| {
            // Embed and head are no layer: they may be elsewhere.
            let is_layer = group.stack.kind.is_some();
            let residency = group.residency.iter().filter_map(|(index, choices)| {
                let residency = &group.stack.residency[*index];
                (restriction.divided || !self.patterns.divides(&residency.homes)).then_some(())?;
                let choices = [0, 1].map(|phase: usize| {
                    let admits = |half: &&usize| {
                        let leads = &residency.choices[phase][**half].leads;
                        (restriction.streamed[phase] || !self.patterns.streams(&residency.homes, leads))
                            && (restriction.mixed || !is_layer || leads.iter().all(|lead| *lead == leads[0]))
                    };
                    choices[phase].iter().filter(admits).copied().collect::<Vec<_>>()
                });
                choices.iter().all(|choices| !choices.is_empty()).then_some((*index, choices))
            });
            PoolGroup { residency: residency.collect(), ..*group }
        };
        Self { groups: self.groups.iter().map(group).collect(), ..self.clone() }
    }

    /// Whether some group has nothing to choose.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().any(|group| group.residency.is_empty())
    }

    /// Of each group the `most` cheapest choices, and the lightest in each memory.
    pub fn nearest(&self, prices: &DualPrices, most: usize) -> Vec<BTreeSet<PatternId>> {
        let rates = self.rates(prices);
        let nearest = |group: &PoolGroup<'_>| {
            let mut order = group.priced(&rates);
            if order.len() > most {
                order.select_nth_unstable_by(most, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                order.truncate(most);
            }
            let mut picks: BTreeSet<PatternId> = order.into_iter().map(|(_, pick)| pick).collect();
            picks.extend(self.memories.iter().filter_map(|&memory| group.lightest(memory, &rates)));
            picks
        };
        self.groups.iter().map(nearest).collect()
    }

    /// Of each group the choices that cost at most `gap` more than the cheapest.
    pub fn within(&self, prices: &DualPrices, gap: f64) -> Vec<BTreeSet<PatternId>> {
        let rates = self.rates(prices);
        let within = |group: &PoolGroup<'_>| {
            let order = group.priced(&rates);
            let least = order.iter().map(|(cost, _)| *cost).fold(f64::INFINITY, f64::min);
            order.into_iter().filter(|(cost, _)| cost - least <= gap).map(|(_, pick)| pick).collect()
        };
        self.groups.iter().map(within).collect()
    }

    /// The groups of a problem with these choices, written out.
    pub fn kinds(&self, picks: &[BTreeSet<PatternId>]) -> Vec<PatternGroup> {
        let kind = |(group, picks): (&PoolGroup<'_>, &BTreeSet<PatternId>)| PatternGroup {
            layers: group.layers,
            patterns: picks.iter().map(|&pick| self.patterns.pattern(group.stack, pick)).collect(),
        };
        self.groups.iter().zip(picks).map(kind).collect()
    }

    /// The halves of `phase` that may be chosen.
    fn choices(&self, phase: usize) -> impl Iterator<Item = &PhaseChoice> + '_ {
        self.groups.iter().flat_map(move |group| {
            let of = move |(index, choices): &'_ (usize, [Vec<usize>; 2])| {
                let residency = &group.stack.residency[*index];
                choices[phase].iter().map(|&half| &residency.choices[phase][half]).collect::<Vec<_>>()
            };
            group.residency.iter().flat_map(of)
        })
    }

    /// What each memory has beside the items that every solution needs.
    fn free(&self, items: OneTimeItems<'_>, capacity: &[u64]) -> Option<Vec<u64>> {
        let mut free = capacity.to_vec();
        for (device, &memory) in items.own.iter().enumerate() {
            // Every choice of some group needs them: every half of one phase, at each home.
            let idle = |group: &PoolGroup<'_>| {
                let of = |(index, choices): &(usize, [Vec<usize>; 2])| {
                    let residency = &group.stack.residency[*index];
                    let all = |phase: usize| {
                        let needs =
                            choices[phase].iter().map(|&h| residency.choices[phase][h].needs[device].items());
                        needs.fold(u128::MAX, |all, needs| all & needs)
                    };
                    all(0) | all(1)
                };
                group.residency.iter().map(of).fold(u128::MAX, |all, needs| all & needs)
            };
            let needed = self.groups.iter().filter(|group| !group.residency.is_empty());
            let needed = needed.map(idle).fold(0, |any, needs| any | needs);
            let once = items.bytes[device].iter().enumerate().filter(|(bit, _)| needed >> bit & 1 == 1);
            for (_, bytes) in once {
                free[memory] = free[memory].checked_sub(bytes.get())?;
            }
        }
        Some(free)
    }

    /// More than any solution puts into `memory`.
    fn most(&self, items: OneTimeItems<'_>, memory: usize) -> u64 {
        let own = items.bytes.iter().zip(items.own).filter(|(_, own)| **own == memory);
        let once: u64 = own.flat_map(|(items, _)| items).map(|bytes| bytes.get()).sum();
        let layers = self.groups.iter().map(|group| {
            let residency =
                group.residency.iter().map(|(index, _)| group.stack.residency[*index].bytes[memory]);
            let vectors = self.patterns.all_vector_bytes(group.stack, memory);
            residency.max().unwrap_or(0).saturating_add(vectors).saturating_mul(group.layers)
        });
        layers.fold(once, u64::saturating_add)
    }

    fn rates(&self, prices: &DualPrices) -> ExpandedPrices {
        let machine = self.patterns.prices[0].cost_model.machine;
        let rows = self.choices(0).next().map_or(0, |half| half.cost.len());
        let mut rates = ExpandedPrices {
            rows: [vec![0.0; rows], vec![0.0; rows]],
            work: [vec![0.0; machine.devices.len()], vec![0.0; machine.devices.len()]],
            memories: vec![0.0; machine.memories.len()],
        };
        let of_row = (0..2).flat_map(|phase| self.rows[phase].iter().map(move |&row| (phase, row)));
        of_row.zip(&prices.rows).for_each(|((phase, row), &price)| rates.rows[phase][row] = price);
        self.memories
            .iter()
            .zip(&prices.memories)
            .for_each(|(&memory, &price)| rates.memories[memory] = price);
        for (measure, price) in self.measures.iter().zip(&prices.measures) {
            for phase in 0..2 {
                let busy = rates.work[phase].iter_mut().zip(&measure.busy[phase]);
                busy.for_each(|(rate, weight)| *rate += price * weight);
            }
        }
        rates
    }

    /// What a choice is in the numbers of the program.
    fn liked(&self, group: &PoolGroup<'_>, pick: PatternId) -> CheapestColumn {
        let residency = &group.stack.residency[pick.residency];
        let half = |phase: usize| &residency.choices[phase][pick.choices[phase]];
        let added =
            |measure: &Measure| (0..2).map(|phase| dot(&measure.busy[phase], &half(phase).work)).sum::<f64>();
        CheapestColumn {
            layers: group.layers,
            times: (0..2).flat_map(|f| self.rows[f].iter().map(move |&row| half(f).cost[row])).collect(),
            adds: self.measures.iter().map(added).collect(),
            bytes: self.memories.iter().map(|&memory| residency.bytes[memory]).collect(),
        }
    }
}

impl PricingOracle for ColumnPool<'_> {
    fn phases(&self) -> &[usize] {
        &self.phases
    }

    fn room(&self) -> &[u64] {
        &self.room
    }

    fn measures(&self) -> &[RowMeasure] {
        &self.row_measures
    }

    fn liked(&self, prices: &DualPrices) -> Vec<CheapestColumn> {
        let rates = self.rates(prices);
        let cheapest = |group: &PoolGroup<'_>| Some(self.liked(group, group.cheapest(&rates)?));
        self.groups.iter().filter_map(cheapest).collect()
    }
}

impl PoolGroup<'_> {
    /// The cheapest, the first of equals.
    fn cheapest(&self, rates: &ExpandedPrices) -> Option<PatternId> {
        let mut best: Option<(f64, PatternId)> = None;
        for (index, choices) in &self.residency {
            let mut cost = self.of_bytes(*index, rates);
            let choices = [0, 1].map(|phase| {
                let costs =
                    choices[phase].iter().map(|&half| (self.of_half(*index, phase, half, rates), half));
                let least =
                    |best: (f64, usize), next: (f64, usize)| if next.0 < best.0 { next } else { best };
                let (least, half) = costs.fold((f64::INFINITY, 0), least);
                cost += least;
                half
            });
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, PatternId { residency: *index, choices }));
            }
        }
        best.map(|(_, pick)| pick)
    }

    /// Every choice with its cost.
    fn priced(&self, rates: &ExpandedPrices) -> Vec<(f64, PatternId)> {
        let mut priced = Vec::new();
        for (index, choices) in &self.residency {
            let bytes = self.of_bytes(*index, rates);
            let costs = |phase: usize| {
                let cost = |&half: &usize| (self.of_half(*index, phase, half, rates), half);
                choices[phase].iter().map(cost).collect::<Vec<_>>()
            };
            let decode = costs(1);
            for (first, prefill) in costs(0) {
                let pick = |&(second, d): &(f64, usize)| {
                    (bytes + first + second, PatternId { residency: *index, choices: [prefill, d] })
                };
                priced.extend(decode.iter().map(pick));
            }
        }
        priced
    }

    /// The choice with the fewest bytes in `memory`, the cheapest of those.
    fn lightest(&self, memory: usize, rates: &ExpandedPrices) -> Option<PatternId> {
        let bytes = |index: usize| self.stack.residency[index].bytes[memory];
        let least = self.residency.iter().map(|(index, _)| bytes(*index)).min()?;
        let light = self.residency.iter().filter(|(index, _)| bytes(*index) == least).cloned().collect();
        PoolGroup { residency: light, ..*self }.cheapest(rates)
    }

    fn of_bytes(&self, residency: usize, rates: &ExpandedPrices) -> f64 {
        let bytes = self.stack.residency[residency].bytes.iter().zip(&rates.memories);
        bytes.map(|(&bytes, price)| bytes as f64 * price).sum()
    }

    fn of_half(&self, residency: usize, phase: usize, half: usize, rates: &ExpandedPrices) -> f64 {
        let half = &self.stack.residency[residency].choices[phase][half];
        dot(&half.cost, &rates.rows[phase]) + dot(&half.work, &rates.work[phase])
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
