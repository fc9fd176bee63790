//! The integer program in plain numbers.

use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Seconds by row, or additions to each measure. Small vectors, because the search creates hundreds
/// of thousands of them.
pub(crate) type RowTimes = SmallVec<[f64; 12]>;
/// Bytes by memory.
pub(crate) type MemorySizes = SmallVec<[u64; 6]>;

/// One way to place a layer of a group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PatternColumn {
    /// Index of its pattern in the pattern program.
    pub index: usize,
    /// Seconds by row.
    pub times: RowTimes,
    /// Additions to each measure that do not depend on other layers, for example energy.
    pub adds: SmallVec<[f64; 4]>,
    /// Bytes in each memory that could be overfilled.
    pub bytes: MemorySizes,
    /// The items that it needs, as bits.
    pub items: u64,
}

/// A number of equal layers, and the columns for one of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnGroup {
    pub layers: u64,
    pub choices: Vec<PatternColumn>,
}

/// A measure of solutions: Σ over the phases of weight · longest row, plus the columns' additions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RowMeasure {
    /// Weight of each phase.
    pub weight: [f64; 2],
    /// Largest permitted value; infinite without a limit.
    pub limit: f64,
}

/// The integer program. The first measure is minimised; every one must keep its limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IntegerProgram {
    pub groups: Vec<ColumnGroup>,
    /// The memory of each item, and its bytes there.
    pub items: Vec<(usize, u64)>,
    /// Capacity of each memory.
    pub room: Vec<u64>,
    /// The phase of each row.
    pub phases: Vec<usize>,
    pub measures: Vec<RowMeasure>,
}

/// A solution: for each group the (column index, layers) pairs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IntegerSolution {
    pub counts: Vec<Vec<(usize, u64)>>,
    pub value: f64,
}

/// The best solution so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Incumbent {
    pub found: Option<IntegerSolution>,
    below: f64,
}

impl Incumbent {
    /// No solution yet; only values below `below` count.
    pub fn below(below: f64) -> Self {
        Self { found: None, below }
    }

    /// The value below which the next solution is an improvement.
    pub fn limit(&self) -> f64 {
        self.found.as_ref().map_or(self.below, |found| found.value)
    }

    /// Keeps `found` if it is better.
    pub fn take(&mut self, found: IntegerSolution) {
        if found.value < self.limit() {
            self.found = Some(found);
        }
    }
}

impl IntegerProgram {
    /// The first measure of a solution with these sums. `None` if a limit is exceeded.
    pub fn value(&self, times: &[f64], adds: &[f64]) -> Option<f64> {
        let mut longest = [0.0_f64; 2];
        for (&time, &phase) in times.iter().zip(&self.phases) {
            longest[phase] = longest[phase].max(time);
        }
        let mut first = None;
        for (measure, add) in self.measures.iter().zip(adds) {
            let value = measure.weight[0] * longest[0] + measure.weight[1] * longest[1] + add;
            if value > measure.limit {
                return None;
            }
            first.get_or_insert(value);
        }
        first
    }

    fn choices_mut(&mut self) -> impl Iterator<Item = &mut PatternColumn> {
        self.groups.iter_mut().flat_map(|group| &mut group.choices)
    }

    /// Bytes of a set of items in `memory`.
    pub fn item_bytes(&self, items: u64, memory: usize) -> u64 {
        let needed = self.items.iter().enumerate().filter(|(item, _)| items >> item & 1 == 1);
        needed.filter(|(_, (of, _))| *of == memory).map(|(_, (_, bytes))| bytes).sum()
    }

    /// Every set of items that some solution needs. If there are more than `most`, the smallest
    /// items are charged to all solutions until there are few enough.
    pub fn item_sets(&mut self, most: usize) -> Vec<u64> {
        loop {
            if let Some(sets) = self.unions(most) {
                return sets;
            }
            let real = (0..self.items.len()).filter(|&item| self.items[item].1 > 0);
            let Some(least) = real.min_by_key(|&item| self.items[item].1) else { return vec![u64::MAX] };
            let (memory, bytes) = std::mem::take(&mut self.items[least]);
            match self.room[memory].checked_sub(bytes) {
                Some(room) => {
                    self.room[memory] = room;
                    self.choices_mut().for_each(|choice| choice.items &= !(1 << least));
                }
                // The item does not fit, so the columns that need it are impossible.
                None => self.groups.iter_mut().for_each(|group| {
                    group.choices.retain(|choice| choice.items >> least & 1 == 0);
                }),
            }
        }
    }

    fn unions(&self, most: usize) -> Option<Vec<u64>> {
        let mut sets = BTreeSet::from([0]);
        for group in &self.groups {
            let masks: BTreeSet<u64> = group.choices.iter().map(|choice| choice.items).collect();
            let mut grown: BTreeSet<u64> =
                sets.iter().flat_map(|set| masks.iter().map(move |mask| set | mask)).collect();
            // Layers of one group may need different items. A group of one layer has one column.
            let mut fresh: Vec<u64> = if group.layers > 1 { grown.iter().copied().collect() } else { vec![] };
            while let Some(set) = fresh.pop() {
                fresh.extend(masks.iter().map(|mask| set | mask).filter(|&more| grown.insert(more)));
                if grown.len() > most {
                    return None;
                }
            }
            if grown.len() > most {
                return None;
            }
            sets = grown;
        }
        Some(sets.into_iter().collect())
    }

    /// The program with exactly the items of `set`, whose bytes are subtracted from the capacities.
    /// `None` if they do not fit or a group has no columns left. Dominated columns are removed.
    pub fn restricted(&self, set: u64) -> Option<Self> {
        let mut room = self.room.clone();
        for (memory, room) in room.iter_mut().enumerate() {
            *room = room.checked_sub(self.item_bytes(set, memory))?;
        }
        let within = |choice: &&PatternColumn| choice.items & !set == 0;
        // A quick check whether the lightest columns fit: in each memory, and in all memories
        // together (bytes that leave one memory enter another).
        let mut least = vec![0_u64; room.len() + 1];
        for group in &self.groups {
            for (memory, least) in least.iter_mut().enumerate() {
                let bytes = |choice: &PatternColumn| {
                    choice.bytes.get(memory).copied().unwrap_or_else(|| choice.bytes.iter().sum())
                };
                let lightest = group.choices.iter().filter(within).map(bytes).min()?;
                *least = least.saturating_add(lightest.saturating_mul(group.layers));
            }
        }
        room.push(room.iter().sum());
        if least.iter().zip(&room).any(|(least, room)| least > room) {
            return None;
        }
        let restricted = |group: &ColumnGroup| {
            let fit = group.choices.iter().filter(within);
            let mut choices =
                undominated(fit.map(|choice| PatternColumn { items: 0, ..choice.clone() }).collect());
            choices.iter_mut().for_each(|choice| choice.bytes.push(choice.bytes.iter().sum()));
            ColumnGroup { layers: group.layers, choices }
        };
        let groups = self.groups.iter().map(restricted).collect();
        let (phases, measures) = (self.phases.clone(), self.measures.clone());
        Some(Self { groups, items: vec![], room, phases, measures })
    }
}

/// The columns that no other column dominates: a dominating column is nowhere slower or larger and
/// needs no further item.
pub(crate) fn undominated(mut choices: Vec<PatternColumn>) -> Vec<PatternColumn> {
    let sum = |c: &PatternColumn| c.times.iter().chain(&c.adds).sum::<f64>();
    // A dominating column has no larger sum. In ascending order of sums, no kept column is dropped
    // later.
    choices.sort_by_cached_key(|c| (sum(c).to_bits(), c.bytes.clone(), c.items, c.index));
    let mut kept: Vec<PatternColumn> = Vec::new();
    for next in choices {
        let beaten = kept.iter().any(|best| {
            best.items & !next.items == 0
                && best.bytes.iter().zip(&next.bytes).all(|(a, b)| a <= b)
                && best.times.iter().zip(&next.times).all(|(a, b)| a <= b)
                && best.adds.iter().zip(&next.adds).all(|(a, b)| a <= b)
        });
        if !beaten {
            kept.push(next);
        }
    }
    kept
}

/// The rows that can bind: rows that no other row exceeds in all of `costs`, and the first of equal
/// rows.
pub(crate) fn binding_rows(costs: &[&[f64]]) -> Vec<usize> {
    let rows = costs.first().map_or(0, |costs| costs.len());
    let covers = |one: usize, other: usize| costs.iter().all(|costs| costs[one] >= costs[other]);
    let mut kept: Vec<usize> = Vec::new();
    for row in 0..rows {
        if !kept.iter().any(|&other| covers(other, row)) {
            kept.retain(|&other| !covers(row, other));
            kept.push(row);
        }
    }
    kept
}
