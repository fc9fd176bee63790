//! The integer program: how many layers follow each pattern.
//!
//! ```text
//! minimise   w_prefill · T_prefill + w_decode · T_decode + Σ n_p add_p
//! such that  Σ n_p = layers                            for each kind of layer; n_p whole: one pattern per layer
//!            T_f ≥ Σ n_p chain_pf                      what waits for each other, of one micro-batch
//!            T_f ≥ Σ n_p busy_pfr                      each link, each memory's bandwidth; each device if its work is
//!                                                      in several micro-batches
//!            the same sums with other w, add ≤ limit   time to the first token, time per token, energy, cost
//!            y_i ≥ 1 where a pattern in use needs item i
//!            Σ n_p bytes_pm + Σ y_i bytes_im ≤ capacity_m
//! ```
//! Embed and head together are a kind of which there is one. Items are what a device needs once however many layers
//! use it: activation buffers, staging slots, working memory, the rotation table. All bytes are exact.
//!
//! The program is solved once for each set of items that may be in use, its bytes taken off the capacities: that
//! leaves no indicators, whose relaxation (`Σ n_p ≤ layers · y_i`: a fraction of the layers pays a fraction of the
//! item) is what general solvers spend 0.1 s to minutes on. Sets are ordered by their bound at shadow prices
//! (`shadow`, linear programs by good_lp); those that cannot beat the best solution so far are skipped, the others
//! searched (`search`).

use crate::error::PlannerError;
use crate::search::branch_and_bound::search;
use crate::search::dual_prices::DualPrices;
use crate::search::integer_program::binding_rows;
use crate::search::integer_program::{
    ColumnGroup, Incumbent, IntegerProgram, IntegerSolution, PatternColumn, RowMeasure, undominated,
};
use crate::search::local_search::improve;
use crate::search::measure::Measure;
use crate::search::pattern::OneTimeItems;
use crate::search::pattern::Pattern;
use crate::search::pattern::PatternGroup;
use hwprofiles::Seconds;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Items that are told apart: a set is a word of bits.
const ITEMS: usize = 64;

/// When to stop looking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SearchBudget {
    /// Improvements by a smaller share are not looked for.
    pub worth: f64,
    /// Nodes of the search of one set of items.
    pub nodes: u64,
    /// Whether patterns beyond the most promising are searched too where they could matter.
    pub all: bool,
    /// Sets of items that are told apart: beyond them, the smallest items are paid for whether needed or not.
    pub sets: usize,
}

impl SearchBudget {
    /// Within 0.1 % of the best, far less than prices are known to, in a millisecond or two.
    pub const PLAN: Self = Self { worth: 1e-3, nodes: 1_000, all: false, sets: 12 };
    /// To know whether something fits: any solution is as good as another.
    pub const FITTING: Self = Self { worth: 0.0, nodes: 300, all: true, sets: 256 };
    /// Everything.
    #[cfg(test)]
    pub const EXACT: Self = Self { worth: 0.0, nodes: u64::MAX, all: true, sets: 8192 };
    /// Before something is said not to fit: as many sets as [`Self::FITTING`] has, or the two contradict each other.
    pub const THOROUGH: Self = Self { worth: 1e-3, nodes: 300, all: true, sets: 256 };
}

/// What is to be solved.
#[derive(Debug, Clone)]
pub(crate) struct PatternProgram<'a> {
    pub groups: Vec<PatternGroup>,
    /// What devices need once.
    pub items: OneTimeItems<'a>,
    /// Of each memory.
    pub capacity: Vec<u64>,
    /// What is to be small, and what must not be large.
    pub measures: Vec<Measure>,
    pub budget: SearchBudget,
}

/// A solution.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PatternSolution {
    /// Patterns with their layers, none empty, by kind.
    pub kinds: Vec<Vec<(Arc<Pattern>, u64)>>,
    /// The first measure.
    pub value: f64,
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SolveResult {
    /// The best solution; `None` where nothing fits (or what fits only just was not found), keeps the limits and is
    /// below what was asked for.
    pub chosen: Option<PatternSolution>,
    /// No solution is better than this.
    pub bound: f64,
}

impl SolveResult {
    /// There is no solution.
    pub const NOTHING: Self = Self { chosen: None, bound: f64::INFINITY };
}

impl PatternSolution {
    /// The time of each phase without contention: its longest row.
    pub fn times(&self) -> [Seconds; 2] {
        [0, 1].map(|phase| {
            let mut rows: Vec<f64> = Vec::new();
            for (pattern, count) in self.kinds.iter().flatten() {
                rows.resize(pattern.cost[phase].len(), 0.0);
                rows.iter_mut()
                    .zip(&pattern.cost[phase])
                    .for_each(|(sum, cost)| *sum += cost * *count as f64);
            }
            Seconds::new(rows.into_iter().fold(0.0, f64::max))
        })
    }

    /// Its value by `measure`, limit aside.
    pub fn measured(&self, measure: &Measure) -> f64 {
        let times = self.times();
        let waited = measure.weight[0] * times[0].get() + measure.weight[1] * times[1].get();
        let worked = self.kinds.iter().flatten().map(|(p, count)| measure.added_by(p) * *count as f64);
        waited + worked.sum::<f64>()
    }
}

impl PatternProgram<'_> {
    /// The best solution.
    #[cfg(test)]
    pub fn solve(&self) -> Result<SolveResult, PlannerError> {
        self.solve_below(f64::INFINITY)
    }

    /// The numbers alone.
    #[cfg(all(test, feature = "highs"))]
    pub fn numbers(&self) -> Option<IntegerProgram> {
        self.table(&self.tight())
    }

    /// Whether a problem in which every layer costs 1 has a solution.
    pub fn is_solvable(&self) -> Result<bool, PlannerError> {
        let layers: u64 = self.groups.iter().map(|kind| kind.layers).sum();
        Ok(self.solve_below(layers as f64 * 1.001)?.chosen.is_some())
    }

    /// The best solution whose value is below `below`.
    pub fn solve_below(&self, below: f64) -> Result<SolveResult, PlannerError> {
        let Some(table) = self.table(&self.tight()) else {
            return Ok(SolveResult::NOTHING);
        };
        let mut best = Incumbent::below(below);
        let least = self.search_sets(table, &mut best)?;
        let bound = least.min(best.limit() * (1.0 - self.budget.worth));
        Ok(SolveResult { chosen: best.found.map(|found| self.chosen(found)), bound })
    }

    /// Improves `best` with the solutions of `table`, set of items after set; what none of those that were not seen
    /// is better than.
    fn search_sets(&self, mut table: IntegerProgram, best: &mut Incumbent) -> Result<f64, PlannerError> {
        for group in &mut table.groups {
            group.choices = undominated(std::mem::take(&mut group.choices));
        }
        let sets = table.item_sets(self.budget.sets);
        let mut open: Vec<(f64, IntegerProgram)> =
            sets.into_iter().filter_map(|set| table.restricted(set)).map(|table| (0.0, table)).collect();
        let mut least = f64::INFINITY;
        while let Some(next) = (0..open.len()).min_by(|&a, &b| open[a].0.total_cmp(&open[b].0)) {
            if open[next].0 >= best.limit() * (1.0 - self.budget.worth) {
                break;
            }
            let (_, table) = open.swap_remove(next);
            let prices = DualPrices::solve(&table)?;
            let bound = prices.bound(&table);
            for (bound, other) in &mut open {
                *bound = prices.bound(other).max(*bound);
            }
            if bound >= best.limit() * (1.0 - self.budget.worth) {
                continue;
            }
            improve(&table, &prices, best);
            let mut nodes = self.budget.nodes;
            if !search(&table, &prices, self.budget.worth, &mut nodes, best) {
                least = least.min(bound);
            }
        }
        Ok(least)
    }

    fn chosen(&self, found: IntegerSolution) -> PatternSolution {
        let named = |(kind, counts): (&PatternGroup, &Vec<(usize, u64)>)| {
            counts.iter().map(|&(pattern, count)| (Arc::clone(&kind.patterns[pattern]), count)).collect()
        };
        let kinds = self.groups.iter().zip(&found.counts).map(named).collect();
        PatternSolution { kinds, value: found.value }
    }

    fn patterns(&self) -> impl Iterator<Item = &Arc<Pattern>> + Clone + '_ {
        self.groups.iter().flat_map(|kind| &kind.patterns)
    }

    /// The memories that some choice could overfill; the others bind nobody.
    fn tight(&self) -> Vec<bool> {
        (0..self.capacity.len())
            .map(|memory| {
                let items = self.items.bytes.iter().zip(self.items.own).filter(|(_, own)| **own == memory);
                let items: u64 = items.flat_map(|(items, _)| items).map(|bytes| bytes.get()).sum();
                let most = |kind: &PatternGroup| {
                    let most = kind.patterns.iter().map(|p| p.bytes[memory]).max().unwrap_or(0);
                    most.saturating_mul(kind.layers)
                };
                let layers = self.groups.iter().map(most).fold(0, u64::saturating_add);
                layers.saturating_add(items) > self.capacity[memory]
            })
            .collect()
    }

    /// The numbers alone, items that the same choices need taken together; `None` where nothing can fit.
    fn table(&self, tight: &[bool]) -> Option<IntegerProgram> {
        let costs = |phase: usize| self.patterns().map(|p| &p.cost[phase][..]).collect::<Vec<_>>();
        let rows = [0, 1].map(|phase| binding_rows(&costs(phase)));
        let memories: Vec<usize> = (0..tight.len()).filter(|&m| tight[m]).collect();
        let mut room: Vec<u64> = memories.iter().map(|&m| self.capacity[m]).collect();
        let items = self.merged_items(&memories, &mut room)?;
        let mut position = 0;
        let mut groups = Vec::new();
        for kind in &self.groups {
            let mut choices = Vec::new();
            for (index, p) in kind.patterns.iter().enumerate() {
                let needed = items.iter().zip(0..).filter(|(item, _)| item.who[position]);
                choices.push(PatternColumn {
                    index,
                    times: (0..2).flat_map(|f| rows[f].iter().map(move |&row| p.cost[f][row])).collect(),
                    adds: self.measures.iter().map(|measure| measure.added_by(p)).collect(),
                    bytes: memories.iter().map(|&m| p.bytes[m]).collect(),
                    items: needed.fold(0, |mask, (_, bit)| mask | 1 << bit),
                });
                position += 1;
            }
            groups.push(ColumnGroup { layers: kind.layers, choices });
        }
        Some(IntegerProgram {
            groups,
            items: items.iter().map(|item| (item.memory, item.bytes)).collect(),
            room,
            phases: (0..2).flat_map(|f| rows[f].iter().map(move |_| f)).collect(),
            measures: self.measures.iter().map(|m| RowMeasure { weight: m.weight, limit: m.limit }).collect(),
        })
    }

    /// The items that some solutions need and others do not. Those that all need are taken off the room at once, and
    /// so are the smallest beyond [`ITEMS`].
    fn merged_items(&self, memories: &[usize], room: &mut [u64]) -> Option<Vec<SharedItem>> {
        let mut merged: BTreeMap<(usize, Vec<bool>), u64> = BTreeMap::new();
        for (device, own) in self.items.own.iter().enumerate() {
            let Some(memory) = memories.iter().position(|m| m == own) else { continue };
            for (bit, bytes) in
                self.items.bytes[device].iter().enumerate().filter(|(_, bytes)| bytes.get() > 0)
            {
                let needs = |p: &Arc<Pattern>| p.items[device] >> bit & 1 == 1;
                if self.groups.iter().any(|kind| kind.patterns.iter().all(needs)) {
                    room[memory] = room[memory].checked_sub(bytes.get())?;
                    continue;
                }
                let who: Vec<bool> = self.patterns().map(needs).collect();
                if who.contains(&true) {
                    *merged.entry((memory, who)).or_default() += bytes.get();
                }
            }
        }
        let item = |((memory, who), bytes)| SharedItem { memory, bytes, who };
        let mut items: Vec<SharedItem> = merged.into_iter().map(item).collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.bytes));
        for item in items.drain(ITEMS.min(items.len())..) {
            room[item.memory] = room[item.memory].checked_sub(item.bytes)?;
        }
        Some(items)
    }

    /// Exact bytes in each memory.
    #[cfg(test)]
    pub fn used(&self, chosen: &PatternSolution) -> Vec<u64> {
        let mut used = vec![0; self.capacity.len()];
        let mut needs = vec![0; self.items.bytes.len()];
        for (pattern, count) in chosen.kinds.iter().flatten() {
            used.iter_mut().zip(&pattern.bytes).for_each(|(sum, bytes)| *sum += bytes * count);
            needs.iter_mut().zip(&pattern.items).for_each(|(all, items)| *all |= items);
        }
        for (device, &needs) in needs.iter().enumerate() {
            let items = self.items.bytes[device].iter().enumerate();
            let needed = items.filter(|(bit, _)| needs >> bit & 1 == 1).map(|(_, bytes)| bytes.get());
            used[self.items.own[device]] += needed.sum::<u64>();
        }
        used
    }
}

/// Something that some choices need once.
struct SharedItem {
    memory: usize,
    bytes: u64,
    /// By pattern, kind after kind.
    who: Vec<bool>,
}
