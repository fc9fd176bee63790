//! Good first solutions by local search.
//!
//! Starts with the cheapest column in each group and moves layers to other columns as long as that
//! improves the value. It tries few columns: the cheapest ones at the dual prices and the lightest
//! one in each memory. Branch and bound then starts with a good incumbent.

use crate::search::dual_prices::DualPrices;
use crate::search::integer_program::{
    ColumnGroup, Incumbent, IntegerProgram, IntegerSolution, PatternColumn,
};

/// Number of a group's cheapest columns that are tried.
const CANDIDATES: usize = 14;
/// Most moves.
const MOVES: usize = 24;

/// Offers a solution that no single move improves to `best`.
pub(crate) fn improve(program: &IntegerProgram, prices: &DualPrices, best: &mut Incumbent) {
    let candidates: Vec<Vec<&PatternColumn>> =
        program.groups.iter().map(|group| candidates(program, group, prices)).collect();
    if candidates.iter().any(Vec::is_empty) {
        return;
    }
    let mut local = LocalSolution::cheapest_that_fits(program, &candidates);
    for _ in 0..MOVES {
        let Some(from) = &local else { return };
        let Some(better) = from.best_move(program, &candidates) else { break };
        local = Some(better);
    }
    if let Some(found) = local {
        best.take(found.named(&candidates));
    }
}

/// The cheapest columns, and the lightest in each memory.
fn candidates<'t>(
    program: &IntegerProgram,
    group: &'t ColumnGroup,
    prices: &DualPrices,
) -> Vec<&'t PatternColumn> {
    let mut order: Vec<(f64, &PatternColumn)> = group.choices.iter().map(|c| (prices.cost(c), c)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.index.cmp(&b.1.index)));
    let lightest = |memory: usize| {
        let choices = order.iter().map(|(_, choice)| *choice);
        choices.min_by_key(|choice| choice.bytes[memory])
    };
    let light: Vec<&PatternColumn> = (0..program.room.len()).filter_map(lightest).collect();
    let mut candidates: Vec<&PatternColumn> =
        order.iter().map(|(_, choice)| *choice).take(CANDIDATES).collect();
    for choice in light {
        if candidates.iter().all(|other| other.index != choice.index) {
            candidates.push(choice);
        }
    }
    candidates
}

/// Layers by group and candidate column, with their sums.
#[derive(Debug, Clone)]
struct LocalSolution {
    counts: Vec<Vec<u64>>,
    times: Vec<f64>,
    adds: Vec<f64>,
    bytes: Vec<i128>,
    value: f64,
}

impl LocalSolution {
    /// Every group in its cheapest column. If that does not fit, layers move to columns that
    /// relieve the overfull memories.
    fn cheapest_that_fits(program: &IntegerProgram, candidates: &[Vec<&PatternColumn>]) -> Option<Self> {
        let counts = program.groups.iter().zip(candidates);
        let counts = counts.map(|(group, candidates)| {
            let mut counts = vec![0; candidates.len()];
            counts[0] = group.layers;
            counts
        });
        let (rows, measures, memories) = (program.phases.len(), program.measures.len(), program.room.len());
        let mut solution = Self {
            counts: counts.collect(),
            times: vec![0.0; rows],
            adds: vec![0.0; measures],
            bytes: vec![0; memories],
            value: f64::INFINITY,
        };
        for (group, choices) in program.groups.iter().zip(candidates) {
            solution.add(choices[0], group.layers as i64);
        }
        for _ in 0..MOVES {
            let over = solution.over(program);
            if over == 0.0 {
                break;
            }
            // The move with the smallest remaining excess, and of those the cheapest.
            let mut best: Option<(f64, f64, Self)> = None;
            for (group, from, to) in solution.pairs() {
                for count in solution.amounts(group, from) {
                    let next = solution.moved(candidates, group, from, to, count);
                    let (excess, cost) = (next.over(program), next.unlimited_objective(program));
                    let better = |(e, c, _): &(f64, f64, Self)| excess < *e || (excess == *e && cost < *c);
                    if excess < over && best.as_ref().is_none_or(better) {
                        best = Some((excess, cost, next));
                    }
                }
            }
            solution = best?.2;
        }
        solution.value = solution.value_if_feasible(program)?;
        Some(solution)
    }

    /// The best improvement by one move.
    fn best_move(&self, program: &IntegerProgram, candidates: &[Vec<&PatternColumn>]) -> Option<Self> {
        let mut best: Option<(f64, (usize, usize, usize, u64))> = None;
        let mut trial = self.clone();
        for (group, from, to) in self.pairs() {
            let mut value_of = |count: u64| {
                trial.copy_sums(self);
                trial.add(candidates[group][from], -(count as i64));
                trial.add(candidates[group][to], count as i64);
                trial.value_if_feasible(program)
            };
            let Some((value, count)) = least(self.counts[group][from], &mut value_of) else { continue };
            if value < best.as_ref().map_or(self.value * (1.0 - 1e-9), |(value, _)| *value) {
                best = Some((value, (group, from, to, count)));
            }
        }
        let (value, (group, from, to, count)) = best?;
        Some(Self { value, ..self.moved(candidates, group, from, to, count) })
    }

    fn copy_sums(&mut self, other: &Self) {
        self.times.copy_from_slice(&other.times);
        self.adds.copy_from_slice(&other.adds);
        self.bytes.copy_from_slice(&other.bytes);
    }

    /// Every (group, column in use, other column).
    fn pairs(&self) -> Vec<(usize, usize, usize)> {
        let mut pairs = Vec::new();
        for (group, counts) in self.counts.iter().enumerate() {
            for from in (0..counts.len()).filter(|&from| counts[from] > 0) {
                pairs.extend((0..counts.len()).filter(|&to| to != from).map(|to| (group, from, to)));
            }
        }
        pairs
    }

    /// All layers of a column, then half of them, and so on.
    fn amounts(&self, group: usize, from: usize) -> Vec<u64> {
        let all = self.counts[group][from];
        std::iter::successors(Some(all), |&count| (count > 1).then_some(count / 2)).collect()
    }

    fn moved(
        &self,
        candidates: &[Vec<&PatternColumn>],
        group: usize,
        from: usize,
        to: usize,
        count: u64,
    ) -> Self {
        let mut next = self.clone();
        next.counts[group][from] -= count;
        next.counts[group][to] += count;
        next.add(candidates[group][from], -(count as i64));
        next.add(candidates[group][to], count as i64);
        next
    }

    fn add(&mut self, choice: &PatternColumn, count: i64) {
        self.times.iter_mut().zip(&choice.times).for_each(|(sum, time)| *sum += time * count as f64);
        self.adds.iter_mut().zip(&choice.adds).for_each(|(sum, add)| *sum += add * count as f64);
        let bytes = self.bytes.iter_mut().zip(&choice.bytes);
        bytes.for_each(|(sum, &bytes)| *sum += i128::from(bytes) * i128::from(count));
    }

    /// Sum of the shares by which memories are overfilled and limits exceeded.
    fn over(&self, program: &IntegerProgram) -> f64 {
        let memories = self.bytes.iter().zip(&program.room);
        let full =
            memories.map(|(&bytes, &room)| (bytes - i128::from(room)).max(0) as f64 / room.max(1) as f64);
        let limited = (0..program.measures.len()).filter(|&index| program.measures[index].limit.is_finite());
        let late = limited
            .map(|index| (self.measured(program, index) / program.measures[index].limit - 1.0).max(0.0));
        full.sum::<f64>() + late.sum::<f64>()
    }

    /// The objective, without regard to limits.
    fn unlimited_objective(&self, program: &IntegerProgram) -> f64 {
        self.measured(program, 0)
    }

    fn measured(&self, program: &IntegerProgram, measure: usize) -> f64 {
        let longest_row = |phase: usize| {
            let rows = self.times.iter().zip(&program.phases).filter(|(_, of)| **of == phase);
            rows.fold(0.0, |most: f64, (&time, _)| most.max(time))
        };
        let weight = program.measures[measure].weight;
        weight[0] * longest_row(0) + weight[1] * longest_row(1) + self.adds[measure]
    }

    /// Its value. `None` if it does not fit or exceeds a limit.
    fn value_if_feasible(&self, program: &IntegerProgram) -> Option<f64> {
        let fits = self.bytes.iter().zip(&program.room).all(|(&bytes, &room)| bytes <= i128::from(room));
        if fits { program.value(&self.times, &self.adds) } else { None }
    }

    fn named(&self, candidates: &[Vec<&PatternColumn>]) -> IntegerSolution {
        let group = |(counts, candidates): (&Vec<u64>, &Vec<&PatternColumn>)| {
            let used = counts.iter().zip(candidates).filter(|(count, _)| **count > 0);
            used.map(|(&count, choice)| (choice.index, count)).collect()
        };
        IntegerSolution { counts: self.counts.iter().zip(candidates).map(group).collect(), value: self.value }
    }
}

/// The least value of counts from 1 to `most`, and the first count that has it. The value is a
/// maximum of sums that are linear in the count, so it is convex, and the counts that are feasible
/// begin with 0.
fn least(most: u64, value_of: &mut impl FnMut(u64) -> Option<f64>) -> Option<(f64, u64)> {
    let (mut first, mut last) = (1, most);
    while first < last {
        let middle = first.midpoint(last);
        match (value_of(middle), value_of(middle + 1)) {
            (Some(here), Some(next)) if next < here => first = middle + 1,
            _ => last = middle,
        }
    }
    value_of(first).map(|value| (value, first))
}
