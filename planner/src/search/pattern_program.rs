//! The integer program: how many layers follow each pattern.
//!
//! ```text
//! minimise   w_prefill · T_prefill + w_decode · T_decode + Σ n_p add_p
//! such that  Σ n_p = layers                            for each class of layers; n_p integer
//! T_f ≥ Σ n_p chain_pf                      serial chain of one micro-batch
//! T_f ≥ Σ n_p busy_pfr                      each link and each memory's bandwidth; each
//! device if there are several micro-batches
//! the same sums with other w, add ≤ limit   TTFT, TPOT, energy, cost
//! y_i ≥ 1 if a pattern in use needs item i
//! Σ n_p bytes_pm + Σ y_i bytes_im ≤ capacity_m
//! ```
//! Embed and head together are a class with one layer. Items are what a device needs once for any
//! number of layers: activation buffers, staging slots, scratch memory, the rotation table. All
//! bytes are exact.
//!
//! The program is solved once for each set of items that may be in use, with their bytes subtracted
//! from the capacities. So there are no indicator variables. Their relaxation (`Σ n_p ≤ layers ·
//! y_i`: a fraction of the layers pays a fraction of the item) is weak, and general solvers need
//! 0.1 s to minutes for it. The sets are ordered by their bounds at dual prices; sets that cannot
//! beat the incumbent are skipped, the others are searched by branch and bound.

use crate::error::PlannerError;
use crate::search::branch_and_bound::search;
use crate::search::dual_prices::DualPrices;
use crate::search::integer_program::{
    ColumnGroup, Incumbent, IntegerProgram, IntegerSolution, PatternColumn, RowMeasure, binding_rows,
    undominated,
};
use crate::search::local_search::improve;
use crate::search::measure::Measure;
use crate::search::pattern::{OneTimeItems, Pattern, PatternGroup};
use hwprofiles::Seconds;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most items that are told apart. A set of items is a word of bits.
const ITEMS: usize = 64;

/// Limits of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SearchBudget {
    /// Smallest relative improvement that the search looks for.
    pub min_gain: f64,
    /// Most nodes of branch and bound for one set of items.
    pub nodes: u64,
    /// Whether to search all patterns that could improve the solution, and not only the promising
    /// ones.
    pub all: bool,
    /// Most sets of items. Beyond it, the smallest items are charged to all solutions.
    pub sets: usize,
}

impl SearchBudget {
    /// Looks for gains above 0.1 %, among promising patterns and with at most 1,000 nodes for each
    /// set of items; costs are known less precisely. [`SolveResult::bound`] says how far the
    /// optimum may be.
    pub const PLAN: Self = Self { min_gain: 1e-3, nodes: 1_000, all: false, sets: 12 };
    /// To decide whether anything fits: the first solution suffices.
    pub const FITTING: Self = Self { min_gain: 0.0, nodes: 300, all: true, sets: 256 };
    /// An exact search.
    #[cfg(test)]
    pub const EXACT: Self = Self { min_gain: 0.0, nodes: u64::MAX, all: true, sets: 8192 };
    /// Before reporting that nothing fits. As many sets as [`Self::FITTING`], so that the two
    /// agree.
    pub const THOROUGH: Self = Self { min_gain: 1e-3, nodes: 300, all: true, sets: 256 };
}

/// A pattern program with its limits.
#[derive(Debug, Clone)]
pub(crate) struct PatternProgram<'a> {
    pub groups: Vec<PatternGroup>,
    /// The items of devices.
    pub items: OneTimeItems<'a>,
    /// Capacity of each memory.
    pub capacity: Vec<u64>,
    /// The measure to minimise, then those with limits.
    pub measures: Vec<Measure>,
    pub budget: SearchBudget,
}

/// A solution of a pattern program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PatternSolution {
    /// The patterns in use with their numbers of layers, by group.
    pub kinds: Vec<Vec<(Arc<Pattern>, u64)>>,
    /// Value of the first measure.
    pub value: f64,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SolveResult {
    /// The best solution. `None` if no solution fits, keeps the limits and is below the given
    /// value, or if the search did not find it.
    pub solution: Option<PatternSolution>,
    /// A lower bound of all solutions.
    pub bound: f64,
}

impl SolveResult {
    /// There is no solution.
    pub const NOTHING: Self = Self { solution: None, bound: f64::INFINITY };
}

impl PatternSolution {
    /// Time of each phase without contention: the longest row.
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

    /// Its value by `measure`, without regard to the limit.
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

    /// The program in plain numbers.
    #[cfg(all(test, feature = "highs"))]
    pub fn numbers(&self) -> Option<IntegerProgram> {
        self.program(&self.tight())
    }

    /// Whether a program in which every layer costs 1 has a solution.
    pub fn is_solvable(&self) -> Result<bool, PlannerError> {
        let layers: u64 = self.groups.iter().map(|kind| kind.layers).sum();
        Ok(self.solve_below(layers as f64 * 1.001)?.solution.is_some())
    }

    /// The best solution with a value below `below`.
    pub fn solve_below(&self, below: f64) -> Result<SolveResult, PlannerError> {
        let Some(program) = self.program(&self.tight()) else {
            return Ok(SolveResult::NOTHING);
        };
        let mut best = Incumbent::below(below);
        let least = self.search_sets(program, &mut best)?;
        let bound = least.min(best.limit() * (1.0 - self.budget.min_gain));
        Ok(SolveResult { solution: best.found.map(|found| self.solution(found)), bound })
    }

    /// Improves `best` with solutions of `program`, one set of items after the other. Returns a
    /// lower bound of the solutions that were not searched.
    fn search_sets(&self, mut program: IntegerProgram, best: &mut Incumbent) -> Result<f64, PlannerError> {
        for group in &mut program.groups {
            group.choices = undominated(std::mem::take(&mut group.choices));
        }
        let sets = program.item_sets(self.budget.sets);
        let mut open: Vec<(f64, IntegerProgram)> = sets
            .into_iter()
            .filter_map(|set| program.restricted(set))
            .map(|program| (0.0, program))
            .collect();
        let mut least = f64::INFINITY;
        while let Some(next) = (0..open.len()).min_by(|&a, &b| open[a].0.total_cmp(&open[b].0)) {
            if open[next].0 >= best.limit() * (1.0 - self.budget.min_gain) {
                break;
            }
            let (_, program) = open.swap_remove(next);
            let prices = DualPrices::solve(&program)?;
            let bound = prices.bound(&program);
            for (bound, other) in &mut open {
                *bound = prices.bound(other).max(*bound);
            }
            if bound >= best.limit() * (1.0 - self.budget.min_gain) {
                continue;
            }
            improve(&program, &prices, best);
            let mut nodes = self.budget.nodes;
            if !search(&program, &prices, self.budget.min_gain, &mut nodes, best) {
                least = least.min(bound);
            }
        }
        Ok(least)
    }

    fn solution(&self, found: IntegerSolution) -> PatternSolution {
        let named = |(kind, counts): (&PatternGroup, &Vec<(usize, u64)>)| {
            counts.iter().map(|&(pattern, count)| (Arc::clone(&kind.patterns[pattern]), count)).collect()
        };
        let kinds = self.groups.iter().zip(&found.counts).map(named).collect();
        PatternSolution { kinds, value: found.value }
    }

    fn patterns(&self) -> impl Iterator<Item = &Arc<Pattern>> + Clone + '_ {
        self.groups.iter().flat_map(|kind| &kind.patterns)
    }

    /// Whether some solution could overfill each memory.
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

    /// The program in plain numbers; items with the same users are merged. `None` if nothing can
    /// fit.
    fn program(&self, tight: &[bool]) -> Option<IntegerProgram> {
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
                let needed = items.iter().zip(0..).filter(|(item, _)| item.users[position]);
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

    /// The items that only some solutions need. The bytes of items that all solutions need, and of
    /// the smallest items beyond [`ITEMS`], are subtracted from the capacities.
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
                let users: Vec<bool> = self.patterns().map(needs).collect();
                if users.contains(&true) {
                    *merged.entry((memory, users)).or_default() += bytes.get();
                }
            }
        }
        let item = |((memory, users), bytes)| SharedItem { memory, bytes, users };
        let mut items: Vec<SharedItem> = merged.into_iter().map(item).collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.bytes));
        for item in items.drain(ITEMS.min(items.len())..) {
            room[item.memory] = room[item.memory].checked_sub(item.bytes)?;
        }
        Some(items)
    }

    /// Exact bytes in each memory.
    #[cfg(test)]
    pub fn used(&self, solution: &PatternSolution) -> Vec<u64> {
        let mut used = vec![0; self.capacity.len()];
        let mut needs = vec![0; self.items.bytes.len()];
        for (pattern, count) in solution.kinds.iter().flatten() {
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

/// An item that only some patterns need.
struct SharedItem {
    memory: usize,
    bytes: u64,
    /// Whether each pattern needs it, group after group.
    users: Vec<bool>,
}
