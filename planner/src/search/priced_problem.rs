//! The problem of a search space at its best dual prices, solved under restrictions.

use crate::error::PlannerError;
use crate::search::column_pool::{ColumnPool, Restriction};
use crate::search::dual_prices::DualPrices;
use crate::search::layer_class::LayerClass;
use crate::search::measure::Measure;
use crate::search::pattern::{OneTimeItems, PatternGroup, Patterns};
use crate::search::pattern_program::{PatternProgram, SearchBudget, SolveResult};
use hwprofiles::Bytes;

/// Patterns of a group that are searched first.
const PROMISING: usize = 256;

/// The most patterns of a group that are searched where no solution is known: without one, reduced
/// costs exclude no pattern.
const MOST_WITHOUT_SOLUTION: usize = 4096;

/// The columns of a search space with the dual prices that bound it best.
#[derive(Debug)]
pub(crate) struct PricedProblem<'s> {
    items: OneTimeItems<'s>,
    capacity: Vec<u64>,
    measures: Vec<Measure>,
    pool: ColumnPool<'s>,
    prices: DualPrices,
    /// A lower bound of all solutions.
    pub floor: f64,
}

impl<'s> PricedProblem<'s> {
    /// The problem of `groups`, each a number of layers of a class. `None` if nothing can fit.
    pub fn new(
        patterns: &'s Patterns<'s>,
        groups: &[(u64, &'s LayerClass)],
        items: OneTimeItems<'s>,
        measures: Vec<Measure>,
        capacity: &[Bytes],
    ) -> Result<Option<Self>, PlannerError> {
        let capacity: Vec<u64> = capacity.iter().map(|bytes| bytes.get()).collect();
        let pool = ColumnPool::new(patterns, groups, items, &capacity, measures.clone());
        let Some(pool) = pool.filter(|pool| !pool.is_empty()) else { return Ok(None) };
        let prices = DualPrices::solve(&pool)?;
        let floor = prices.bound(&pool);
        Ok(Some(Self { items, capacity, measures, pool, prices, floor }))
    }

    /// The best solution under a restriction with a value below `below`.
    ///
    /// Of tens of thousands of patterns few can be in a good solution. A solution that uses a
    /// pattern costs at least the floor plus the reduced cost of the pattern (its cost at the dual
    /// prices beyond the cheapest of its group). So the most promising patterns are searched first,
    /// and the result tells which others could still improve it.
    pub fn solve(
        &self,
        restriction: Restriction,
        budget: SearchBudget,
        below: f64,
    ) -> Result<SolveResult, PlannerError> {
        let restricted;
        let (pool, floor) = match restriction == Restriction::NONE {
            true => (&self.pool, self.floor),
            false => {
                restricted = self.pool.restricted(restriction);
                if restricted.is_empty() {
                    return Ok(SolveResult::NOTHING);
                }
                (&restricted, self.prices.bound(&restricted))
            }
        };
        if floor >= below * (1.0 - budget.min_gain) {
            return Ok(SolveResult { solution: None, bound: floor });
        }
        let few = pool.nearest(&self.prices, PROMISING);
        let first = self.problem(pool.kinds(&few), budget).solve_below(below)?;
        let reached = first.solution.as_ref().map_or(below, |solution| solution.value);
        if !pool.has_others_within(&few, &self.prices, reached - floor) {
            return Ok(first);
        }
        if !(budget.all || reached.is_infinite()) {
            return Ok(SolveResult { bound: first.bound.min(floor), ..first });
        }
        if reached.is_infinite() {
            let many = pool.nearest(&self.prices, MOST_WITHOUT_SOLUTION);
            let found = self.problem(pool.kinds(&many), budget).solve_below(reached)?;
            let reached = found.solution.as_ref().map_or(reached, |solution| solution.value);
            let is_open = pool.has_others_within(&many, &self.prices, reached - floor);
            return Ok(SolveResult {
                bound: if is_open { found.bound.min(floor) } else { found.bound },
                ..found
            });
        }
        let could = pool.within(&self.prices, reached - floor);
        let all = self.problem(pool.kinds(&could), budget).solve_below(reached)?;
        Ok(match all.solution {
            Some(_) => all,
            None => SolveResult { solution: first.solution, ..all },
        })
    }

    /// The program with every permitted pattern written out.
    #[cfg(test)]
    pub fn everything(&self, restriction: Restriction, budget: SearchBudget) -> PatternProgram<'s> {
        let pool = self.pool.restricted(restriction);
        self.problem(pool.kinds(&pool.within(&self.prices, f64::INFINITY)), budget)
    }

    fn problem(&self, groups: Vec<PatternGroup>, budget: SearchBudget) -> PatternProgram<'s> {
        PatternProgram {
            groups,
            items: self.items,
            capacity: self.capacity.clone(),
            measures: self.measures.clone(),
            budget,
        }
    }
}
