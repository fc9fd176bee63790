//! A space seen at shadow prices, and solved under many restrictions.

use crate::error::PlannerError;
use crate::search::column_pool::ColumnPool;
use crate::search::column_pool::Restriction;
use crate::search::dual_prices::DualPrices;
use crate::search::layer_class::LayerClass;
use crate::search::measure::Measure;
use crate::search::pattern::OneTimeItems;
use crate::search::pattern::PatternGroup;
use crate::search::pattern::Patterns;
use crate::search::pattern_program::{PatternProgram, SearchBudget, SolveResult};
use hwprofiles::Bytes;

/// Patterns of a group that are searched first.
const PROMISING: usize = 256;

/// What can be chosen, at the prices at which it is seen best.
#[derive(Debug)]
pub(crate) struct PricedProblem<'s> {
    items: OneTimeItems<'s>,
    capacity: Vec<u64>,
    measures: Vec<Measure>,
    pool: ColumnPool<'s>,
    prices: DualPrices,
    /// No solution is better than this.
    pub floor: f64,
}

impl<'s> PricedProblem<'s> {
    /// That of `groups`, so many layers of each stack; `None` where nothing can fit.
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

    /// The best solution of a family that is below `below`.
    ///
    /// Of tens of thousands of patterns few can be in a good solution. A solution that uses a pattern even once costs
    /// at least the floor and what the pattern costs, at the prices, beyond the cheapest of its group. So the most
    /// promising patterns are searched first; what they reach tells which others could still matter.
    pub fn solve(
        &self,
        restriction: Restriction,
        budget: SearchBudget,
        below: f64,
    ) -> Result<SolveResult, PlannerError> {
        let restricted;
        let (pool, floor) = match restriction == Restriction::ALL {
            true => (&self.pool, self.floor),
            false => {
                restricted = self.pool.restricted(restriction);
                if restricted.is_empty() {
                    return Ok(SolveResult::NOTHING);
                }
                (&restricted, self.prices.bound(&restricted))
            }
        };
        if floor >= below * (1.0 - budget.worth) {
            return Ok(SolveResult { chosen: None, bound: floor });
        }
        let few = pool.nearest(&self.prices, PROMISING);
        let first = self.problem(pool.kinds(&few), budget).solve_below(below)?;
        let reached = first.chosen.as_ref().map_or(below, |chosen| chosen.value);
        let could = pool.within(&self.prices, reached - floor);
        if could.iter().zip(&few).all(|(could, few)| could.is_subset(few)) {
            return Ok(first);
        }
        if !(budget.all || reached.is_infinite()) {
            return Ok(SolveResult { bound: first.bound.min(floor), ..first });
        }
        let all = self.problem(pool.kinds(&could), budget).solve_below(reached)?;
        Ok(match all.chosen {
            Some(_) => all,
            None => SolveResult { chosen: first.chosen, ..all },
        })
    }

    /// The problem with every pattern of a family written out.
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
