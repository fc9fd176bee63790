//! Micro-batches and staging slots for the best placement. The rooflines of the integer program do
//! not see overlap, so simulation chooses them.

use crate::error::PlannerError;
use crate::placement::{Pipelining, Placement, Slice};
use crate::planning::problem::{ENOUGH, PLANNED, Problem, ScoredPlacement, better, is_better};
use crate::planning::scorer::Scorer;
use crate::program::BatchSteps;
use crate::search::{Goal, Restriction, SearchBudget, SearchSpace};
use rayon::prelude::*;
use scenarios::Phase;

/// Numbers of micro-batches, each with the fewest sequences for which it is tried: each part must
/// be worth its launches.
const PARTS: [(u64, u64); 3] = [(2, 2), (4, 8), (8, 64)];

/// Number of micro-batches in the search for placements with two devices that work at the same
/// time.
pub(crate) const CONCURRENT: u64 = 2;

const PHASES: [Phase; 2] = [Phase::Prefill, Phase::Decode];

/// A problem whose best placement so far is known.
pub(crate) struct Overlap<'a, 's> {
    pub problem: &'a Problem<'a>,
    pub goal: &'a Goal,
    pub scorer: &'a Scorer<'s>,
    /// Search spaces by prefill chunk.
    pub spaces: Vec<(u64, &'a SearchSpace<'a>)>,
    /// A lower bound of all mixtures of patterns without micro-batches, for any number of slots.
    pub least: f64,
    /// The draft's part of the objective, which the solver does not see.
    pub draft_value: f64,
}

impl Overlap<'_, '_> {
    /// The better of the best rule and the best solution, each with micro-batches or more staging
    /// slots if they help. A solution that streams more gains more from slots, so with them it may
    /// be ahead of a rule that was better without.
    pub fn better(
        &self,
        best_rule: Option<ScoredPlacement>,
        found: Option<ScoredPlacement>,
    ) -> Result<Option<ScoredPlacement>, PlannerError> {
        let (first, second) = match (best_rule, found) {
            (Some(best_rule), Some(found)) if is_better(self.goal, &best_rule, &found) => (found, None),
            (Some(best_rule), found) => (best_rule, found),
            (None, Some(found)) => (found, None),
            (None, None) => return Ok(None),
        };
        let best = self.with_slots(self.with_micro_batches(first)?)?;
        match second {
            Some(second) if !self.is_enough(&best) => {
                Ok(better(self.goal, Some(best), self.with_slots(second)?))
            }
            _ => Ok(Some(best)),
        }
    }

    /// `best` with more staging slots if they help.
    fn with_slots(&self, best: ScoredPlacement) -> Result<ScoredPlacement, PlannerError> {
        match self.streams(&best.placement) && !self.is_enough(&best) {
            true => self.with_more_slots(best),
            false => Ok(best),
        }
    }

    /// Whether no other placement can be better by more than the precision of costs.
    fn is_enough(&self, best: &ScoredPlacement) -> bool {
        best.placement.pipelining.micro_batches == 1 && self.least >= best.value * ENOUGH
    }

    /// The best of `best` and of placements whose devices work at the same time, with
    /// micro-batches.
    fn with_micro_batches(&self, best: ScoredPlacement) -> Result<ScoredPlacement, PlannerError> {
        let batch = self.problem.requirements.workload.batch;
        if self.problem.cost_model.machine.devices.len() < 2 || batch < CONCURRENT {
            return Ok(best);
        }
        let mut candidates = vec![];
        if self.alternates(&best.placement) {
            candidates.push(divided(&best.placement, CONCURRENT));
        }
        candidates.extend(self.concurrent_placements(&best)?);
        let found = candidates.into_par_iter().map(|placement| self.candidate(&best, placement));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let Some(mut found) =
            found.into_iter().flatten().min_by(|a, b| self.rank(a).total_cmp(&self.rank(b)))
        else {
            return Ok(best);
        };
        for (parts, _) in PARTS.into_iter().filter(|&(parts, least)| parts > CONCURRENT && batch >= least) {
            let finer = self.scored(&found, divided(&found.placement, parts))?;
            if self.rank(&finer) >= self.rank(&found) {
                break;
            }
            found = finer;
        }
        Ok(if self.is_worth(&best, &found) { found } else { best })
    }

    /// Placements in which devices work at the same time, if these could be better than `best`.
    fn concurrent_placements(&self, best: &ScoredPlacement) -> Result<Vec<Placement>, PlannerError> {
        let space = self.space(best.chunk, CONCURRENT)?;
        let Some(priced_problem) = space.priced_problem(self.goal, &space.capacity())? else {
            return Ok(vec![]);
        };
        // Both devices work on each part of a divided matrix anyway.
        let restrictions = [Restriction::NONE, Restriction { divided: false, ..Restriction::NONE }];
        let mut placements: Vec<Placement> = vec![];
        for restriction in restrictions {
            let solved = priced_problem.solve(
                restriction,
                SearchBudget::PLAN,
                self.rank(best) * ENOUGH - self.draft_value,
            )?;
            let Some(solution) = solved.solution else { continue };
            for placement in [space.placement(&solution, self.goal), space.interleaved(&solution, self.goal)]
            {
                let placement = divided(&placement, CONCURRENT);
                if self.alternates(&placement) && !placements.contains(&placement) {
                    placements.push(placement);
                }
            }
        }
        Ok(placements)
    }

    /// The search space of steps in `micro_batches` parts.
    fn space(&self, chunk: u64, micro_batches: u64) -> Result<SearchSpace<'_>, PlannerError> {
        let batch_steps =
            BatchSteps::new(&self.problem.requirements.workload, chunk).with_micro_batches(micro_batches);
        SearchSpace::new(self.problem.cost_model, &batch_steps, self.goal)
    }

    /// `best` with more staging slots.
    ///
    /// A link that fetches for some layers while other layers compute from memory, or while another
    /// device computes, stops when its slots are full. The number of slots is doubled as long as
    /// that helps. If the memory is full, fewer weights stay in it. One slot is not tried: no
    /// placement that fits with two is faster with one.
    fn with_more_slots(&self, mut best: ScoredPlacement) -> Result<ScoredPlacement, PlannerError> {
        loop {
            let slots = best.placement.pipelining.slots * 2;
            if !Pipelining::SLOTS.contains(&slots) {
                return Ok(best);
            }
            let pipelining = Pipelining { slots, ..best.placement.pipelining };
            // The check whether it fits is expensive, so it comes second.
            let with_more_slots = self.scored(&best, Placement { pipelining, ..best.placement.clone() })?;
            if !self.is_worth(&best, &with_more_slots) {
                return Ok(best);
            }
            let with_more_slots = if self.problem.fits(&with_more_slots)? {
                Some(with_more_slots)
            } else {
                self.refitted(&best, &with_more_slots)?
            };
            match with_more_slots.filter(|with_more_slots| self.is_worth(&best, with_more_slots)) {
                Some(with_more_slots) => best = with_more_slots,
                None => return Ok(best),
            }
        }
    }

    /// The solver's placement for the memory that more slots leave free. `None` if it cannot be
    /// better.
    fn refitted(
        &self,
        best: &ScoredPlacement,
        with_more_slots: &ScoredPlacement,
    ) -> Result<Option<ScoredPlacement>, PlannerError> {
        let pipelining = with_more_slots.placement.pipelining;
        let known = self.spaces.iter().find(|(chunk, _)| *chunk == best.chunk);
        let own;
        let space = match (known, pipelining.micro_batches) {
            (Some((_, space)), 1) => *space,
            (_, parts) => {
                own = self.space(best.chunk, parts)?;
                &own
            }
        };
        let (before, after) = (self.problem.used(best)?, self.problem.used(with_more_slots)?);
        let mut capacity = space.capacity();
        for ((capacity, before), after) in capacity.iter_mut().zip(before).zip(after) {
            *capacity = capacity.saturating_sub(after.staging.saturating_sub(before.staging));
        }
        let Some(priced_problem) = space.priced_problem(self.goal, &capacity)? else { return Ok(None) };
        let Some(solution) = priced_problem
            .solve(best.restriction, SearchBudget::PLAN, self.rank(best) - self.draft_value)?
            .solution
        else {
            return Ok(None);
        };
        let placements = [Some(space.placement(&solution, self.goal)), space.dealt(&solution, self.goal)];
        let mut found: Option<ScoredPlacement> = None;
        for placement in placements.into_iter().flatten() {
            let scored = self.candidate(best, Placement { pipelining, ..placement })?;
            let scored = scored
                .filter(|scored| found.as_ref().is_none_or(|found| self.rank(scored) < self.rank(found)));
            found = scored.or(found);
        }
        Ok(found)
    }

    /// `placement` in place of that of `best`. `None` if it does not fit, or if there is no link
    /// between two patterns, which are priced separately.
    fn candidate(
        &self,
        best: &ScoredPlacement,
        placement: Placement,
    ) -> Result<Option<ScoredPlacement>, PlannerError> {
        let scored = match self.scored(best, placement) {
            Err(PlannerError::Lower(_)) => return Ok(None),
            scored => scored?,
        };
        Ok(if self.problem.fits(&scored)? { Some(scored) } else { None })
    }

    /// `placement` in place of that of `best`, whether it fits or not.
    fn scored(&self, best: &ScoredPlacement, placement: Placement) -> Result<ScoredPlacement, PlannerError> {
        let scored = self.problem.scored(self.goal, PLANNED, placement, best.chunk, self.scorer)?;
        Ok(ScoredPlacement { restriction: best.restriction, ..scored })
    }

    /// Whether a device computes from a memory that it cannot read in place.
    fn streams(&self, placement: &Placement) -> bool {
        let machine = self.problem.cost_model.machine;
        let far = |slice: &Slice| {
            PHASES.into_iter().any(|phase| !machine.reads_in_place(slice.device(phase), slice.home))
        };
        placement.sublayers().any(|(.., slices)| slices.iter().any(far))
    }

    /// Whether the layers use several devices in one phase.
    fn alternates(&self, placement: &Placement) -> bool {
        let layers = || placement.layers.iter().flat_map(|layer| layer.iter().flat_map(|(_, slices)| slices));
        let first = |phase| layers().next().map(|slice| slice.device(phase));
        PHASES.into_iter().any(|phase| layers().any(|slice| Some(slice.device(phase)) != first(phase)))
    }

    /// The objective; infinite if a limit is exceeded.
    fn rank(&self, scored: &ScoredPlacement) -> f64 {
        if self.goal.keeps(&scored.times) { scored.value } else { f64::INFINITY }
    }

    /// Whether `next` keeps limits that `best` does not, or is better by more than the precision of
    /// costs.
    fn is_worth(&self, best: &ScoredPlacement, next: &ScoredPlacement) -> bool {
        match [best, next].map(|scored| self.goal.keeps(&scored.times)) {
            [true, false] => false,
            [false, true] => true,
            _ => next.value < best.value * ENOUGH,
        }
    }
}

/// The placement with `micro_batches` micro-batches.
fn divided(placement: &Placement, micro_batches: u64) -> Placement {
    Placement { pipelining: Pipelining { micro_batches, ..placement.pipelining }, ..placement.clone() }
}
