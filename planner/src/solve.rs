//! The integer program: how many layers follow each pattern.
//!
//! ```text
//! minimise   w_prefill · T_prefill + w_decode · T_decode
//! such that  Σ n_p = layers                               n_p whole: one pattern per layer
//!            Σ e_k = 1                                    one placement of embed and head
//!            T_f ≥ Σ n_p chain_pf + Σ e_k chain_kf        what waits for each other
//!            T_f ≥ Σ n_p busy_pfr + Σ e_k busy_kfr        each link, each memory's bandwidth
//!            y_i ≥ 1 where a pattern or end in use needs item i
//!            Σ n_p bytes_pm + Σ e_k bytes_km + Σ y_i bytes_im ≤ capacity_m
//! ```
//! Items are what a device needs once however many layers use it: activation buffers, staging slots, working
//! memory, the rotation table. All bytes are exact.
//!
//! The program is solved once for each set of items that may be in use, its bytes taken off the capacities: that
//! leaves no indicators, whose relaxation (`Σ n_p ≤ layers · y_i`: a fraction of the layers pays a fraction of the
//! item) is what general solvers spend 0.1 s to minutes on. Sets are ordered by their bound at shadow prices
//! (`shadow`, linear programs by good_lp); those that cannot beat the best solution so far are skipped, the others
//! searched (`search`).

use crate::error::PlannerError;
use crate::improve::improve;
use crate::pattern::Pattern;
use crate::search::search;
use crate::shadow::Prices;
use crate::table::{Choice, Found, Table, undominated};
use hwprofiles::{Bytes, Seconds};
use std::collections::{BTreeMap, BTreeSet};

/// Sets of items that are told apart.
const SETS: usize = 256;
/// Items that are told apart: a set is a word of bits.
const ITEMS: usize = 64;

/// When to stop looking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Effort {
    /// Improvements by a smaller share are not looked for.
    pub worth: f64,
    /// Nodes of the search of one set of items.
    pub nodes: u64,
}

impl Effort {
    /// Within 0.1 % of the best, far less than prices are known to, in milliseconds.
    pub const PLAN: Self = Self { worth: 1e-3, nodes: 10_000 };
}

/// What is to be solved.
#[derive(Debug, Clone)]
pub(crate) struct Problem<'a> {
    pub layers: u64,
    /// Patterns of a layer.
    pub patterns: Vec<&'a Pattern>,
    /// Placements of embed and head.
    pub ends: Vec<&'a Pattern>,
    /// Bytes of each device's items, by bit.
    pub items: &'a [Vec<Bytes>],
    /// The memory of each device.
    pub own: &'a [usize],
    /// Of each memory.
    pub capacity: Vec<u64>,
    /// Of prefill and decode in the objective.
    pub weight: [f64; 2],
    pub effort: Effort,
}

/// A solution.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chosen<'a> {
    /// Patterns with their layers, none empty.
    pub layers: Vec<(&'a Pattern, u64)>,
    pub ends: &'a Pattern,
    /// The objective.
    pub value: Seconds,
    /// No solution is better than this.
    pub bound: Seconds,
}

impl<'a> Problem<'a> {
    /// The best solution, or `None` where nothing fits (or what fits only just was not found in `effort`).
    pub fn solve(&self) -> Result<Option<Chosen<'a>>, PlannerError> {
        let tight = self.tight();
        let Some(mut table) = self.table(&tight) else { return Ok(None) };
        table.patterns = undominated(table.patterns);
        table.ends = undominated(table.ends);
        let sets = table.item_sets(SETS);
        let mut best = None;
        let mut open: Vec<(f64, Table)> =
            sets.into_iter().filter_map(|set| table.restricted(set)).map(|table| (0.0, table)).collect();
        let mut least = f64::INFINITY;
        while let Some(next) = (0..open.len()).min_by(|&a, &b| open[a].0.total_cmp(&open[b].0)) {
            let limit = |best: &Option<Found>| best.as_ref().map_or(f64::INFINITY, |best| best.value);
            if open[next].0 >= limit(&best) * (1.0 - self.effort.worth) {
                break;
            }
            let (_, table) = open.swap_remove(next);
            let prices = Prices::of(&table)?;
            let bound = prices.bound(&table);
            for (bound, other) in &mut open {
                *bound = prices.bound(other).max(*bound);
            }
            if bound >= limit(&best) * (1.0 - self.effort.worth) {
                continue;
            }
            improve(&table, &prices, &mut best);
            let mut nodes = self.effort.nodes;
            if !search(&table, &prices, self.effort.worth, &mut nodes, &mut best) {
                least = least.min(bound);
            }
        }
        Ok(best.map(|found| self.chosen(found, least)))
    }

    fn chosen(&self, found: Found, bound: f64) -> Chosen<'a> {
        let bound = bound.min(found.value * (1.0 - self.effort.worth));
        Chosen {
            layers: found.counts.iter().map(|&(p, count)| (self.patterns[p], count)).collect(),
            ends: self.ends[found.end],
            value: Seconds::new(found.value),
            bound: Seconds::new(bound),
        }
    }

    /// The memories that some choice could overfill; the others bind nobody.
    fn tight(&self) -> Vec<bool> {
        let most = |patterns: &[&Pattern], memory: usize| {
            patterns.iter().map(|p| p.bytes[memory]).max().unwrap_or(0)
        };
        (0..self.capacity.len())
            .map(|memory| {
                let items = self.items.iter().zip(self.own).filter(|(_, own)| **own == memory);
                let items: u64 = items.flat_map(|(items, _)| items).map(|bytes| bytes.get()).sum();
                let layers = most(&self.patterns, memory) * self.layers;
                layers + most(&self.ends, memory) + items > self.capacity[memory]
            })
            .collect()
    }

    /// The rows that can bind: the chain, and what is the longest of some pattern. (Others could bind only in a
    /// mixture, and hardly: leaving them out keeps the bound a bound.)
    fn binding_rows(&self, phase: usize) -> Vec<usize> {
        let longest = self.patterns.iter().chain(&self.ends).map(|p| {
            let rows = p.cost[phase].iter().enumerate();
            rows.fold(0, |most, (row, &time)| if time > p.cost[phase][most] { row } else { most })
        });
        let rows: BTreeSet<usize> = longest.chain([0]).collect();
        rows.into_iter().collect()
    }

    /// The numbers alone, items that the same choices need taken together; `None` where nothing can fit.
    fn table(&self, tight: &[bool]) -> Option<Table> {
        let rows = [0, 1].map(|phase| self.binding_rows(phase));
        let memories: Vec<usize> = (0..tight.len()).filter(|&m| tight[m]).collect();
        let mut room: Vec<u64> = memories.iter().map(|&m| self.capacity[m]).collect();
        let items = self.merged_items(&memories, &mut room)?;
        let all = || self.patterns.iter().chain(&self.ends);
        let choice = |(index, p): (usize, &&Pattern)| Choice {
            index,
            times: (0..2).flat_map(|f| rows[f].iter().map(move |&row| p.cost[f][row])).collect(),
            bytes: memories.iter().map(|&m| p.bytes[m]).collect(),
            items: items
                .iter()
                .zip(0..)
                .fold(0, |mask, (item, bit)| mask | u64::from(item.who[index]) << bit),
        };
        let mut patterns: Vec<_> = all().enumerate().map(choice).collect();
        let mut ends = patterns.split_off(self.patterns.len());
        ends.iter_mut().for_each(|end| end.index -= self.patterns.len());
        Some(Table {
            layers: self.layers,
            patterns,
            ends,
            items: items.iter().map(|item| (item.memory, item.bytes)).collect(),
            room,
            phases: (0..2).flat_map(|f| rows[f].iter().map(move |_| f)).collect(),
            weight: self.weight,
        })
    }

    /// The items that some solutions need and others do not. Those that all need are taken off the room at once, and
    /// so are the smallest beyond [`ITEMS`].
    fn merged_items(&self, memories: &[usize], room: &mut [u64]) -> Option<Vec<Item>> {
        let mut merged: BTreeMap<(usize, Vec<bool>), u64> = BTreeMap::new();
        for (device, own) in self.own.iter().enumerate() {
            let Some(memory) = memories.iter().position(|m| m == own) else { continue };
            for (bit, bytes) in self.items[device].iter().enumerate() {
                let needs = |p: &&Pattern| p.items[device] >> bit & 1 == 1;
                let who: Vec<bool> = self.patterns.iter().chain(&self.ends).map(needs).collect();
                let (patterns, ends) = who.split_at(self.patterns.len());
                if [patterns, ends].iter().any(|who| who.iter().all(|&needs| needs)) {
                    room[memory] = room[memory].checked_sub(bytes.get())?;
                } else if who.contains(&true) {
                    *merged.entry((memory, who)).or_default() += bytes.get();
                }
            }
        }
        let item = |((memory, who), bytes)| Item { memory, bytes, who };
        let mut items: Vec<Item> = merged.into_iter().map(item).collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.bytes));
        for item in items.drain(ITEMS.min(items.len())..) {
            room[item.memory] = room[item.memory].checked_sub(item.bytes)?;
        }
        Some(items)
    }

    /// Exact bytes in each memory.
    #[cfg(test)]
    pub fn used(&self, chosen: &Chosen<'_>) -> Vec<u64> {
        let mut used = chosen.ends.bytes.clone();
        let mut needs = chosen.ends.items.clone();
        for (pattern, count) in &chosen.layers {
            used.iter_mut().zip(&pattern.bytes).for_each(|(sum, bytes)| *sum += bytes * count);
            needs.iter_mut().zip(&pattern.items).for_each(|(all, items)| *all |= items);
        }
        for (device, &needs) in needs.iter().enumerate() {
            let items = self.items[device].iter().enumerate();
            let needed = items.filter(|(bit, _)| needs >> bit & 1 == 1).map(|(_, bytes)| bytes.get());
            used[self.own[device]] += needed.sum::<u64>();
        }
        used
    }
}

/// Something that some choices need once.
struct Item {
    memory: usize,
    bytes: u64,
    /// By pattern, then by end.
    who: Vec<bool>,
}
