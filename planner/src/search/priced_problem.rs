//! A space seen at shadow prices, and solved under many restrictions.

use crate::error::PlannerError;
use crate::search::column_pool::Family;
use crate::search::column_pool::Menu;
use crate::search::dual_prices::Prices;
use crate::search::layer_class::Stack;
use crate::search::measure::Yardstick;
use crate::search::pattern::Items;
use crate::search::pattern::Kind;
use crate::search::pattern::Patterns;
use crate::search::pattern_program::{Effort, Problem, Solved};
use hwprofiles::Bytes;

/// Patterns of a group that are searched first.
const PROMISING: usize = 256;

/// What can be chosen, at the prices at which it is seen best.
#[derive(Debug)]
pub(crate) struct Outlook<'s> {
    items: Items<'s>,
    capacity: Vec<u64>,
    measures: Vec<Yardstick>,
    menu: Menu<'s>,
    prices: Prices,
    /// No solution is better than this.
    pub floor: f64,
}

impl<'s> Outlook<'s> {
    /// That of `groups`, so many layers of each stack; `None` where nothing can fit.
    pub fn new(
        patterns: &'s Patterns<'s>,
        groups: &[(u64, &'s Stack)],
        items: Items<'s>,
        measures: Vec<Yardstick>,
        capacity: &[Bytes],
    ) -> Result<Option<Self>, PlannerError> {
        let capacity: Vec<u64> = capacity.iter().map(|bytes| bytes.get()).collect();
        let menu = Menu::new(patterns, groups, items, &capacity, measures.clone());
        let Some(menu) = menu.filter(|menu| !menu.is_empty()) else { return Ok(None) };
        let prices = Prices::of(&menu)?;
        let floor = prices.bound(&menu);
        Ok(Some(Self { items, capacity, measures, menu, prices, floor }))
    }

    /// The best solution of a family that is below `below`.
    ///
    /// Of tens of thousands of patterns few can be in a good solution. A solution that uses a pattern even once costs
    /// at least the floor and what the pattern costs, at the prices, beyond the cheapest of its group. So the most
    /// promising patterns are searched first; what they reach tells which others could still matter.
    pub fn solve(&self, family: Family, effort: Effort, below: f64) -> Result<Solved, PlannerError> {
        let restricted;
        let (menu, floor) = match family == Family::ALL {
            true => (&self.menu, self.floor),
            false => {
                restricted = self.menu.restricted(family);
                if restricted.is_empty() {
                    return Ok(Solved::NOTHING);
                }
                (&restricted, self.prices.bound(&restricted))
            }
        };
        if floor >= below * (1.0 - effort.worth) {
            return Ok(Solved { chosen: None, bound: floor });
        }
        let few = menu.nearest(&self.prices, PROMISING);
        let first = self.problem(menu.kinds(&few), effort).solve_below(below)?;
        let reached = first.chosen.as_ref().map_or(below, |chosen| chosen.value);
        let could = menu.within(&self.prices, reached - floor);
        if could.iter().zip(&few).all(|(could, few)| could.is_subset(few)) {
            return Ok(first);
        }
        if !(effort.all || reached.is_infinite()) {
            return Ok(Solved { bound: first.bound.min(floor), ..first });
        }
        let all = self.problem(menu.kinds(&could), effort).solve_below(reached)?;
        Ok(match all.chosen {
            Some(_) => all,
            None => Solved { chosen: first.chosen, ..all },
        })
    }

    /// The problem with every pattern of a family written out.
    #[cfg(test)]
    pub fn everything(&self, family: Family, effort: Effort) -> Problem<'s> {
        let menu = self.menu.restricted(family);
        self.problem(menu.kinds(&menu.within(&self.prices, f64::INFINITY)), effort)
    }

    fn problem(&self, groups: Vec<Kind>, effort: Effort) -> Problem<'s> {
        Problem {
            groups,
            items: self.items,
            capacity: self.capacity.clone(),
            measures: self.measures.clone(),
            effort,
        }
    }
}
