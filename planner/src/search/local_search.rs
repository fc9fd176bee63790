//! Good solutions at once: in each group a mixture of two choices, then layers moved to other choices as long as that
//! helps. Few choices are tried, those cheapest at the shadow prices and the lightest in each memory; the search then
//! knows what to beat.

use crate::search::dual_prices::DualPrices;
use crate::search::integer_program::{
    ColumnGroup, Incumbent, IntegerProgram, IntegerSolution, PatternColumn,
};

/// How many of a group's cheapest choices are tried.
const TRIED: usize = 14;
/// How often layers are moved.
const MOVES: usize = 24;

/// Takes a solution that no single move improves where it is better than `best`.
pub(crate) fn improve(table: &IntegerProgram, prices: &DualPrices, best: &mut Incumbent) {
    let tried: Vec<Vec<&PatternColumn>> =
        table.groups.iter().map(|group| tried(table, group, prices)).collect();
    if tried.iter().any(Vec::is_empty) {
        return;
    }
    let mut local = LocalSolution::cheapest_that_fits(table, &tried);
    for _ in 0..MOVES {
        let Some(from) = &local else { return };
        let Some(better) = from.best_move(table, &tried) else { break };
        local = Some(better);
    }
    if let Some(found) = local {
        best.take(found.named(&tried));
    }
}

/// The cheapest choices, and those that leave most room.
fn tried<'t>(table: &IntegerProgram, group: &'t ColumnGroup, prices: &DualPrices) -> Vec<&'t PatternColumn> {
    let mut order: Vec<(f64, &PatternColumn)> = group.choices.iter().map(|c| (prices.cost(c), c)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.index.cmp(&b.1.index)));
    let lightest = |memory: usize| {
        let choices = order.iter().map(|(_, choice)| *choice);
        choices.min_by_key(|choice| choice.bytes[memory])
    };
    let light: Vec<&PatternColumn> = (0..table.room.len()).filter_map(lightest).collect();
    let mut tried: Vec<&PatternColumn> = order.iter().map(|(_, choice)| *choice).take(TRIED).collect();
    for choice in light {
        if tried.iter().all(|other| other.index != choice.index) {
            tried.push(choice);
        }
    }
    tried
}

/// Layers by group and tried choice, with their sums.
#[derive(Debug, Clone)]
struct LocalSolution {
    counts: Vec<Vec<u64>>,
    times: Vec<f64>,
    adds: Vec<f64>,
    bytes: Vec<i128>,
    value: f64,
}

impl LocalSolution {
    /// Every group in its cheapest choice; where that does not fit, layers are moved, fewest first, to the choices
    /// that lose least for each byte that they take off what is too full.
    fn cheapest_that_fits(table: &IntegerProgram, tried: &[Vec<&PatternColumn>]) -> Option<Self> {
        let counts = table.groups.iter().zip(tried);
        let counts = counts.map(|(group, tried)| {
            let mut counts = vec![0; tried.len()];
            counts[0] = group.layers;
            counts
        });
        let (rows, measures, memories) = (table.phases.len(), table.measures.len(), table.room.len());
        let mut solution = Self {
            counts: counts.collect(),
            times: vec![0.0; rows],
            adds: vec![0.0; measures],
            bytes: vec![0; memories],
            value: f64::INFINITY,
        };
        for (group, choices) in table.groups.iter().zip(tried) {
            solution.add(choices[0], group.layers as i64);
        }
        for _ in 0..MOVES {
            let over = solution.over(table);
            if over == 0.0 {
                break;
            }
            // The move that takes most of what is too much off, and of equals the one that costs least.
            let mut best: Option<(f64, f64, Self)> = None;
            for (group, from, to) in solution.pairs() {
                for count in solution.amounts(group, from) {
                    let next = solution.moved(tried, group, from, to, count);
                    let (excess, cost) = (next.over(table), next.longest(table));
                    let better = |(e, c, _): &(f64, f64, Self)| excess < *e || (excess == *e && cost < *c);
                    if excess < over && best.as_ref().is_none_or(better) {
                        best = Some((excess, cost, next));
                    }
                }
            }
            solution = best?.2;
        }
        solution.value = solution.worth(table)?;
        Some(solution)
    }

    /// The best solution that is one move away and better.
    fn best_move(&self, table: &IntegerProgram, tried: &[Vec<&PatternColumn>]) -> Option<Self> {
        let mut best: Option<(f64, (usize, usize, usize, u64))> = None;
        let mut trial = self.clone();
        for (group, from, to) in self.pairs() {
            trial.clone_from(self);
            for count in 1..=self.counts[group][from] {
                trial.add(tried[group][from], -1);
                trial.add(tried[group][to], 1);
                let Some(value) = trial.worth(table) else { continue };
                if value < best.as_ref().map_or(self.value * (1.0 - 1e-9), |(value, _)| *value) {
                    best = Some((value, (group, from, to, count)));
                }
            }
        }
        let (value, (group, from, to, count)) = best?;
        Some(Self { value, ..self.moved(tried, group, from, to, count) })
    }

    /// Every group, choice in use and other choice.
    fn pairs(&self) -> Vec<(usize, usize, usize)> {
        let mut pairs = Vec::new();
        for (group, counts) in self.counts.iter().enumerate() {
            for from in (0..counts.len()).filter(|&from| counts[from] > 0) {
                pairs.extend((0..counts.len()).filter(|&to| to != from).map(|to| (group, from, to)));
            }
        }
        pairs
    }

    /// All, or as many as halving leads to.
    fn amounts(&self, group: usize, from: usize) -> Vec<u64> {
        let all = self.counts[group][from];
        std::iter::successors(Some(all), |&count| (count > 1).then_some(count / 2)).collect()
    }

    fn moved(&self, tried: &[Vec<&PatternColumn>], group: usize, from: usize, to: usize, count: u64) -> Self {
        let mut next = self.clone();
        next.counts[group][from] -= count;
        next.counts[group][to] += count;
        next.add(tried[group][from], -(count as i64));
        next.add(tried[group][to], count as i64);
        next
    }

    fn add(&mut self, choice: &PatternColumn, count: i64) {
        self.times.iter_mut().zip(&choice.times).for_each(|(sum, time)| *sum += time * count as f64);
        self.adds.iter_mut().zip(&choice.adds).for_each(|(sum, add)| *sum += add * count as f64);
        let bytes = self.bytes.iter_mut().zip(&choice.bytes);
        bytes.for_each(|(sum, &bytes)| *sum += i128::from(bytes) * i128::from(count));
    }

    /// By which share the memories are overfilled and limits exceeded, all together.
    fn over(&self, table: &IntegerProgram) -> f64 {
        let memories = self.bytes.iter().zip(&table.room);
        let full =
            memories.map(|(&bytes, &room)| (bytes - i128::from(room)).max(0) as f64 / room.max(1) as f64);
        let limited = (0..table.measures.len()).filter(|&index| table.measures[index].limit.is_finite());
        let late =
            limited.map(|index| (self.measured(table, index) / table.measures[index].limit - 1.0).max(0.0));
        full.sum::<f64>() + late.sum::<f64>()
    }

    /// The first measure, limits aside.
    fn longest(&self, table: &IntegerProgram) -> f64 {
        self.measured(table, 0)
    }

    fn measured(&self, table: &IntegerProgram, measure: usize) -> f64 {
        let of = |phase: usize| {
            let rows = self.times.iter().zip(&table.phases).filter(|(_, of)| **of == phase);
            rows.fold(0.0, |most: f64, (&time, _)| most.max(time))
        };
        let weight = table.measures[measure].weight;
        weight[0] * of(0) + weight[1] * of(1) + self.adds[measure]
    }

    /// Its value; `None` where it does not fit or exceeds a limit.
    fn worth(&self, table: &IntegerProgram) -> Option<f64> {
        let fits = self.bytes.iter().zip(&table.room).all(|(&bytes, &room)| bytes <= i128::from(room));
        if fits { table.value(&self.times, &self.adds) } else { None }
    }

    fn named(&self, tried: &[Vec<&PatternColumn>]) -> IntegerSolution {
        let group = |(counts, tried): (&Vec<u64>, &Vec<&PatternColumn>)| {
            let used = counts.iter().zip(tried).filter(|(count, _)| **count > 0);
            used.map(|(&count, choice)| (choice.index, count)).collect()
        };
        IntegerSolution { counts: self.counts.iter().zip(tried).map(group).collect(), value: self.value }
    }
}
