//! The front of an integer program under several measures.

use crate::error::PlannerError;
use crate::search::{Measure, PatternSolution, SolveResult};
use std::cmp::Ordering;

/// Values that differ by a smaller share count as equal.
pub(super) const SAME: f64 = 1e-7;
/// A limit that was reached may be reached again in spite of rounding.
const SLACK: f64 = 1.0 + 1e-9;

/// Finds the best solution of a problem under some measures.
pub(super) type Solver<'p> = dyn Fn(Vec<Measure>) -> Result<SolveResult, PlannerError> + 'p;

/// The solutions of several problems, measured by several criteria.
pub(super) struct Tradeoff<'p> {
    /// A solution of any of these counts.
    pub solvers: Vec<Box<Solver<'p>>>,
    /// Two or three criteria; their limits are ignored.
    pub criteria: Vec<Measure>,
    /// A usual value of each criterion, above zero, which makes them comparable.
    pub units: Vec<f64>,
    /// The share of a unit by which one criterion may exceed its minimum where the others gain
    /// more.
    pub tie: f64,
    /// The limits that all solutions must keep.
    pub limits: Vec<Measure>,
}

/// A solution of the front.
#[derive(Debug, Clone)]
pub(super) struct Compromise {
    /// By criterion.
    pub values: Vec<f64>,
    pub solution: PatternSolution,
    /// No solution has a lower value in the measure that this one minimises.
    pub bound: f64,
    /// The index of its solver.
    pub solver: usize,
}

/// Whether `one` is worse than `other` nowhere by more than the share `same`, and somewhere better
/// by more.
pub(super) fn dominates(one: &[f64], other: &[f64], same: f64) -> bool {
    let pairs = || one.iter().zip(other);
    pairs().all(|(a, b)| *a <= b * (1.0 + same)) && pairs().any(|(a, b)| *a < b * (1.0 - same))
}

impl<'p> Tradeoff<'p> {
    /// `None` where nothing fits and keeps `limits`.
    pub fn new(
        solvers: Vec<Box<Solver<'p>>>,
        criteria: Vec<Measure>,
        limits: Vec<Measure>,
        tie: f64,
    ) -> Result<Option<Self>, PlannerError> {
        let units = vec![1.0; criteria.len()];
        let mut tradeoff = Self { solvers, criteria, limits, units, tie: 1.0 };
        // A compromise in seconds, joules and dollars gives the usual size of each.
        let Some(usual) = tradeoff.least(0, &vec![f64::INFINITY; tradeoff.criteria.len()])? else {
            return Ok(None);
        };
        tradeoff.units = usual.values.iter().map(|&value| if value > 0.0 { value } else { 1.0 }).collect();
        tradeoff.tie = tie;
        Ok(Some(tradeoff))
    }

    /// The front, ascending in the first criterion: at most `points` points of two criteria; of
    /// three, √points slices with √points points each.
    pub fn front(&self, points: usize) -> Result<Vec<Compromise>, PlannerError> {
        let free = vec![f64::INFINITY; self.criteria.len()];
        let mut found = match self.criteria.len() {
            2 => self.slice(free, points)?,
            _ => self.slices(free, (points as f64).sqrt().ceil() as usize)?,
        };
        let all: Vec<_> = found.iter().map(|one| one.values.clone()).collect();
        found.retain(|one| !all.iter().any(|other| dominates(other, &one.values, SAME)));
        found.sort_by(|a, b| a.values.partial_cmp(&b.values).unwrap_or(Ordering::Equal));
        let alike = |a: &f64, b: &f64| (a - b).abs() <= SAME * b.abs();
        found.dedup_by(|b, a| a.values.iter().zip(&b.values).all(|(a, b)| alike(a, b)));
        Ok(found)
    }

    /// The fronts of the first two criteria under falling limits of the third.
    fn slices(&self, mut limits: Vec<f64>, points: usize) -> Result<Vec<Compromise>, PlannerError> {
        let mut found: Vec<Compromise> = Vec::new();
        let Some(least) = self.least(2, &limits)? else { return Ok(found) };
        let mut step = None;
        loop {
            let slice = self.slice(limits.clone(), points)?;
            let most = slice.iter().map(|one| one.values[2]).fold(f64::NEG_INFINITY, f64::max);
            found.extend(slice);
            let step = *step.get_or_insert_with(|| (most - least.values[2]) / (points as f64 - 1.0).max(1.0));
            let Some(limit) = below(most, step, least.values[2]) else { return Ok(found) };
            limits[2] = limit;
        }
    }

    /// The front of the first two criteria within `limits`, descending in the second.
    fn slice(&self, mut limits: Vec<f64>, points: usize) -> Result<Vec<Compromise>, PlannerError> {
        let mut found: Vec<Compromise> = Vec::new();
        let Some(least) = self.least(1, &limits)? else { return Ok(found) };
        let mut step = None;
        while let Some(next) = self.least(0, &limits)? {
            let value = next.values[1];
            found.push(next);
            let step =
                *step.get_or_insert_with(|| (value - least.values[1]) / (points as f64 - 1.0).max(1.0));
            let Some(limit) = below(value, step, least.values[1]) else { break };
            limits[1] = limit;
        }
        Ok(found)
    }

    /// A solution within `limits` that minimises one criterion and, among those nearly as good in
    /// it, the others. So nothing within the limits is nowhere worse and somewhere better.
    fn least(&self, criterion: usize, limits: &[f64]) -> Result<Option<Compromise>, PlannerError> {
        let limited = (0..limits.len()).filter(|&other| limits[other].is_finite());
        let limited = limited.map(|index| Measure { limit: limits[index], ..self.criteria[index].clone() });
        let measures = std::iter::once(self.mostly(criterion)).chain(limited);
        let measures: Vec<Measure> = measures.chain(self.limits.iter().cloned()).collect();
        let mut best: Option<Compromise> = None;
        for (index, solver) in self.solvers.iter().enumerate() {
            let SolveResult { solution: Some(solution), bound } = solver(measures.clone())? else { continue };
            if best.as_ref().is_none_or(|best| solution.value < best.solution.value) {
                let values = self.criteria.iter().map(|measure| solution.measured(measure)).collect();
                best = Some(Compromise { values, solution, bound, solver: index });
            }
        }
        Ok(best)
    }

    /// One criterion with a small weight on the others, each in its unit.
    fn mostly(&self, criterion: usize) -> Measure {
        let mut sum: Option<Measure> = None;
        for (index, measure) in self.criteria.iter().enumerate() {
            let share = if index == criterion { 1.0 } else { self.tie };
            let scaled = measure.scaled(share / self.units[index]);
            sum = Some(match sum {
                Some(sum) => sum.plus(&scaled),
                None => scaled,
            });
        }
        sum.expect("there are two or three criteria")
    }
}

/// The next limit below `value`, `step` away but not below the least possible value; `None` where
/// that is reached.
fn below(value: f64, step: f64, least: f64) -> Option<f64> {
    let last = least * SLACK;
    (value > least * (1.0 + SAME)).then(|| (value - step.max(value * SAME)).max(last))
}
