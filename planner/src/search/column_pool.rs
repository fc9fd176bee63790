//! The columns of column generation, without writing patterns out.
//!
//! For given homes the cost of a layer is the cost of its homes plus the costs of its two phases.
//! So the pool finds the cheapest of tens of thousands of patterns at given dual prices, and writes
//! out only the few hundred that can be in a good solution.

use crate::search::dual_prices::{CheapestColumn, DualPrices, PricingOracle};
use crate::search::integer_program::{RowMeasure, binding_rows};
use crate::search::layer_class::{LayerClass, LayerResidency, PatternId, PhaseChoice};
use crate::search::measure::Measure;
use crate::search::pattern::{OneTimeItems, PatternGroup, Patterns};

use scenarios::Phase;
use std::collections::BTreeSet;

/// The columns of several groups of layers, for given capacities.
#[derive(Debug, Clone)]
pub(crate) struct ColumnPool<'s> {
    patterns: &'s Patterns<'s>,
    groups: Vec<PoolGroup<'s>>,
    /// The rows that can bind, by phase.
    rows: [Vec<usize>; 2],
    /// The phase of each row.
    phases: Vec<usize>,
    /// The memories that a solution could overfill.
    memories: Vec<usize>,
    /// Their capacities less the items that every solution needs.
    room: Vec<u64>,
    measures: Vec<Measure>,
    row_measures: Vec<RowMeasure>,
}

/// The columns of one group.
#[derive(Debug, Clone)]
struct PoolGroup<'s> {
    layers: u64,
    class: &'s LayerClass,
    /// Indices of homes, each with the indices of its choices for both phases.
    residency: Vec<(usize, [Vec<usize>; 2])>,
}

/// Dual prices by phase of the rows and of the devices' work that have one, each with its index;
/// and of all memories.
struct ExpandedPrices {
    rows: [Vec<(usize, f64)>; 2],
    work: [Vec<(usize, f64)>; 2],
    memories: Vec<f64>,
}

/// A restriction of the search. The solver does not see contention, so the best solution under a
/// restriction can be faster in simulation than the best one without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restriction {
    /// Whether matrices may be divided.
    pub divided: bool,
    /// Whether weights or KV may be streamed, in prefill and in decode.
    pub streamed: [bool; 2],
    /// Whether a layer may use several devices in one phase.
    pub mixed: bool,
}

impl Restriction {
    /// No restriction.
    pub const NONE: Self = Self { divided: true, streamed: [true, true], mixed: true };

    /// The restrictions that lead to further candidates.
    pub const CANDIDATES: [Self; 5] = [
        Self { streamed: [true, false], ..Self::NONE },
        Self { divided: false, ..Self::NONE },
        Self { divided: false, streamed: [true, false], ..Self::NONE },
        Self { divided: false, streamed: [false, false], ..Self::NONE },
        Self { divided: false, mixed: false, ..Self::NONE },
    ];
}

impl<'s> ColumnPool<'s> {
    /// All columns of `groups`, each a number of layers of a class. `None` if the items that all
    /// solutions need do not fit.
    pub fn new(
        patterns: &'s Patterns<'s>,
        groups: &[(u64, &'s LayerClass)],
        items: OneTimeItems<'_>,
        capacity: &[u64],
        measures: Vec<Measure>,
    ) -> Option<Self> {
        let all = |&(layers, class): &(u64, &'s LayerClass)| {
            let every =
                |residency: &LayerResidency| residency.choices.each_ref().map(|h| (0..h.len()).collect());
            let residency = class.residency.iter().map(every).enumerate().collect();
            PoolGroup { layers, class, residency }
        };
        let groups: Vec<PoolGroup<'s>> = groups.iter().map(all).collect();
        let row_measures = measures.iter().map(|m| RowMeasure { weight: m.weight, limit: m.limit }).collect();
        let (rows, phases, memories, room) = (Default::default(), vec![], vec![], vec![]);
        let mut pool = Self { patterns, groups, rows, phases, memories, room, measures, row_measures };
        let costs = |phase: usize| pool.choices(phase).map(|choice| &choice.cost[..]).collect::<Vec<_>>();
        pool.rows = [0, 1].map(|phase| binding_rows(&costs(phase)));
        pool.phases = (0..2).flat_map(|phase| pool.rows[phase].iter().map(move |_| phase)).collect();
        let free = pool.free(items, capacity)?;
        pool.memories = (0..capacity.len())
            .filter(|&memory| pool.upper_bound_bytes(items, memory) > free[memory])
            .collect();
        pool.room = pool.memories.iter().map(|&memory| free[memory]).collect();
        Some(pool)
    }

    /// The columns that a restriction permits.
    pub fn restricted(&self, restriction: Restriction) -> Self {
        let group = |group: &PoolGroup<'s>| {
            // The restriction to one device is about layers: embed and head may use another one.
            let is_layer = group.class.kind.is_some();
            let residency = group.residency.iter().filter_map(|(index, choices)| {
                let residency = &group.class.residency[*index];
                (restriction.divided || !self.patterns.divides(&residency.homes)).then_some(())?;
                let choices = [Phase::Prefill, Phase::Decode].map(|phase| {
                    let streams = |leads: &[_]| self.patterns.streams(&residency.homes, leads, phase);
                    let phase = phase as usize;
                    let admits = |choice: &&usize| {
                        let leads = &residency.choices[phase][**choice].leads;
                        (restriction.streamed[phase] || !streams(leads))
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

    /// Whether some group has no column.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().any(|group| group.residency.is_empty())
    }

    /// The `most` cheapest columns of each group, and the lightest one in each memory.
    pub fn nearest(&self, prices: &DualPrices, most: usize) -> Vec<BTreeSet<PatternId>> {
        let rates = self.rates(prices);
        let nearest = |group: &PoolGroup<'_>| {
            let mut order = group.priced(&rates);
            if order.len() > most {
                order.select_nth_unstable_by(most, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                order.truncate(most);
            }
            let mut pattern_ids: BTreeSet<PatternId> =
                order.into_iter().map(|(_, pattern_id)| pattern_id).collect();
            pattern_ids.extend(self.memories.iter().filter_map(|&memory| group.lightest(memory, &rates)));
            pattern_ids
        };
        self.groups.iter().map(nearest).collect()
    }

    /// The columns of each group that cost at most `gap` more than its cheapest one.
    pub fn within(&self, prices: &DualPrices, gap: f64) -> Vec<BTreeSet<PatternId>> {
        let rates = self.rates(prices);
        let within = |group: &PoolGroup<'_>| {
            let order = group.priced(&rates);
            let least = order.iter().map(|(cost, _)| *cost).fold(f64::INFINITY, f64::min);
            order
                .into_iter()
                .filter(|(cost, _)| cost - least <= gap)
                .map(|(_, pattern_id)| pattern_id)
                .collect()
        };
        self.groups.iter().map(within).collect()
    }

    /// Whether a column that is not in `known` costs at most `gap` more than its group's cheapest
    /// one.
    pub fn has_others_within(&self, known: &[BTreeSet<PatternId>], prices: &DualPrices, gap: f64) -> bool {
        let rates = self.rates(prices);
        self.groups.iter().zip(known).any(|(group, known)| {
            let all = group.priced(&rates);
            let least = all.iter().map(|(cost, _)| *cost).fold(f64::INFINITY, f64::min);
            all.iter().any(|(cost, pattern_id)| cost - least <= gap && !known.contains(pattern_id))
        })
    }

    /// The groups of a pattern program with these patterns written out.
    pub fn kinds(&self, pattern_ids: &[BTreeSet<PatternId>]) -> Vec<PatternGroup> {
        let kind = |(group, pattern_ids): (&PoolGroup<'_>, &BTreeSet<PatternId>)| PatternGroup {
            layers: group.layers,
            patterns: pattern_ids
                .iter()
                .map(|&pattern_id| self.patterns.pattern(group.class, pattern_id))
                .collect(),
        };
        self.groups.iter().zip(pattern_ids).map(kind).collect()
    }

    /// The permitted choices of `phase`.
    fn choices(&self, phase: usize) -> impl Iterator<Item = &PhaseChoice> + '_ {
        self.groups.iter().flat_map(move |group| {
            let of = move |(index, choices): &'_ (usize, [Vec<usize>; 2])| {
                let residency = &group.class.residency[*index];
                choices[phase].iter().map(|&choice| &residency.choices[phase][choice]).collect::<Vec<_>>()
            };
            group.residency.iter().flat_map(of)
        })
    }

    /// The capacity of each memory less the items that every solution needs.
    fn free(&self, items: OneTimeItems<'_>, capacity: &[u64]) -> Option<Vec<u64>> {
        let mut free = capacity.to_vec();
        for (device, &memory) in items.own.iter().enumerate() {
            // The items of all columns of a group: those that all choices of one phase need, at
            // each home.
            let needed_by_all = |group: &PoolGroup<'_>| {
                let needed_at_home = |(index, choices): &(usize, [Vec<usize>; 2])| {
                    let residency = &group.class.residency[*index];
                    let all = |phase: usize| {
                        let needs =
                            choices[phase].iter().map(|&h| residency.choices[phase][h].needs[device].items());
                        needs.fold(u128::MAX, |all, needs| all & needs)
                    };
                    all(0) | all(1)
                };
                group.residency.iter().map(needed_at_home).fold(u128::MAX, |all, needs| all & needs)
            };
            let needed = self.groups.iter().filter(|group| !group.residency.is_empty());
            let needed = needed.map(needed_by_all).fold(0, |any, needs| any | needs);
            let once = items.bytes[device].iter().enumerate().filter(|(bit, _)| needed >> bit & 1 == 1);
            for (_, bytes) in once {
                free[memory] = free[memory].checked_sub(bytes.get())?;
            }
        }
        Some(free)
    }

    /// An upper bound of the bytes in `memory` over all solutions.
    fn upper_bound_bytes(&self, items: OneTimeItems<'_>, memory: usize) -> u64 {
        let own = items.bytes.iter().zip(items.own).filter(|(_, own)| **own == memory);
        let once: u64 = own.flat_map(|(items, _)| items).map(|bytes| bytes.get()).sum();
        let layers = self.groups.iter().map(|group| {
            let residency =
                group.residency.iter().map(|(index, _)| group.class.residency[*index].bytes[memory]);
            let vectors = self.patterns.all_vector_bytes(group.class, memory);
            residency.max().unwrap_or(0).saturating_add(vectors).saturating_mul(group.layers)
        });
        layers.fold(once, u64::saturating_add)
    }

    fn rates(&self, prices: &DualPrices) -> ExpandedPrices {
        let machine = self.patterns.prices[0].cost_model.machine;
        let mut rates = ExpandedPrices {
            rows: Default::default(),
            work: Default::default(),
            memories: vec![0.0; machine.memories.len()],
        };
        let of_row = (0..2).flat_map(|phase| self.rows[phase].iter().map(move |&row| (phase, row)));
        let priced = of_row.zip(&prices.rows).filter(|(_, price)| **price != 0.0);
        priced.for_each(|((phase, row), &price)| rates.rows[phase].push((row, price)));
        self.memories
            .iter()
            .zip(&prices.memories)
            .for_each(|(&memory, &price)| rates.memories[memory] = price);
        for phase in 0..2 {
            let mut work = vec![0.0; machine.devices.len()];
            for (measure, price) in self.measures.iter().zip(&prices.measures) {
                work.iter_mut().zip(&measure.busy[phase]).for_each(|(rate, weight)| *rate += price * weight);
            }
            rates.work[phase] = work.into_iter().enumerate().filter(|(_, rate)| *rate != 0.0).collect();
        }
        rates
    }

    /// The column of a pattern.
    fn column(&self, group: &PoolGroup<'_>, pattern_id: PatternId) -> CheapestColumn {
        let residency = &group.class.residency[pattern_id.residency];
        let choice = |phase: usize| &residency.choices[phase][pattern_id.choices[phase]];
        let added = |measure: &Measure| {
            (0..2).map(|phase| dot(&measure.busy[phase], &choice(phase).work)).sum::<f64>()
        };
        CheapestColumn {
            layers: group.layers,
            times: (0..2).flat_map(|f| self.rows[f].iter().map(move |&row| choice(f).cost[row])).collect(),
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

    fn cheapest_columns(&self, prices: &DualPrices) -> Vec<CheapestColumn> {
        let rates = self.rates(prices);
        let cheapest = |group: &PoolGroup<'_>| Some(self.column(group, group.cheapest(&rates)?));
        self.groups.iter().filter_map(cheapest).collect()
    }
}

impl PoolGroup<'_> {
    /// The cheapest column, the first of equal ones.
    fn cheapest(&self, rates: &ExpandedPrices) -> Option<PatternId> {
        let mut best: Option<(f64, PatternId)> = None;
        for (index, choices) in &self.residency {
            let mut cost = self.residency_cost(*index, rates);
            let choices = [0, 1].map(|phase| {
                let costs = choices[phase]
                    .iter()
                    .map(|&choice| (self.choice_cost(*index, phase, choice, rates), choice));
                let least =
                    |best: (f64, usize), next: (f64, usize)| if next.0 < best.0 { next } else { best };
                let (least, choice) = costs.fold((f64::INFINITY, 0), least);
                cost += least;
                choice
            });
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, PatternId { residency: *index, choices }));
            }
        }
        best.map(|(_, pattern_id)| pattern_id)
    }

    /// Every column with its cost.
    fn priced(&self, rates: &ExpandedPrices) -> Vec<(f64, PatternId)> {
        let mut priced = Vec::new();
        for (index, choices) in &self.residency {
            let bytes = self.residency_cost(*index, rates);
            let costs = |phase: usize| {
                let cost = |&choice: &usize| (self.choice_cost(*index, phase, choice, rates), choice);
                choices[phase].iter().map(cost).collect::<Vec<_>>()
            };
            let decode = costs(1);
            for (first, prefill) in costs(0) {
                let pattern_id = |&(second, d): &(f64, usize)| {
                    (bytes + first + second, PatternId { residency: *index, choices: [prefill, d] })
                };
                priced.extend(decode.iter().map(pattern_id));
            }
        }
        priced
    }

    /// The cheapest of the columns with the fewest bytes in `memory`.
    fn lightest(&self, memory: usize, rates: &ExpandedPrices) -> Option<PatternId> {
        let bytes = |index: usize| self.class.residency[index].bytes[memory];
        let least = self.residency.iter().map(|(index, _)| bytes(*index)).min()?;
        let light = self.residency.iter().filter(|(index, _)| bytes(*index) == least).cloned().collect();
        PoolGroup { residency: light, ..*self }.cheapest(rates)
    }

    fn residency_cost(&self, residency: usize, rates: &ExpandedPrices) -> f64 {
        let bytes = self.class.residency[residency].bytes.iter().zip(&rates.memories);
        bytes.map(|(&bytes, price)| bytes as f64 * price).sum()
    }

    fn choice_cost(&self, residency: usize, phase: usize, choice: usize, rates: &ExpandedPrices) -> f64 {
        let choice = &self.class.residency[residency].choices[phase][choice];
        let sum = |numbers: &[f64], rates: &[(usize, f64)]| {
            rates.iter().map(|&(index, rate)| numbers[index] * rate).sum::<f64>()
        };
        sum(&choice.cost, &rates.rows[phase]) + sum(&choice.work, &rates.work[phase])
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
