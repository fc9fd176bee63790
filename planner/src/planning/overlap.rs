//! What the integer program does not choose, because its rooflines do not see it: how much overlaps. Tried on the best
//! placement, by simulation.

use crate::cost::footprint;
use crate::error::PlannerError;
use crate::memory::MemoryUsage;
use crate::memory::overfilled;
use crate::placement::Pipelining;
use crate::placement::Placement;
use crate::placement::Slice;
use crate::planning::problem::{ENOUGH, PLANNED};
use crate::planning::problem::{Problem, ScoredPlacement, better, is_better};
use crate::planning::scorer::Scorer;
use crate::program::BatchSteps;
use crate::program::RunExtent;
use crate::search::Goal;
use crate::search::SearchBudget;
use crate::search::{Restriction, SearchSpace};
use rayon::prelude::*;
use scenarios::Phase;

/// The numbers of micro-batches that are tried, and from how many sequences on: a part must be worth its launches.
const PARTS: [(u64, u64); 3] = [(2, 2), (4, 8), (8, 64)];

/// Placements meant for micro-batches are looked for with so many: two devices that take turns can then both be busy.
const TURNS: u64 = 2;

const PHASES: [Phase; 2] = [Phase::Prefill, Phase::Decode];

/// A question whose best placement so far is known.
pub(crate) struct Overlap<'a, 's> {
    pub problem: &'a Problem<'a>,
    pub goal: &'a Goal,
    pub scorer: &'a Scorer<'s>,
    /// By prefill chunk.
    pub spaces: Vec<(u64, &'a SearchSpace<'a>)>,
    /// No mixture of patterns is better than this in one piece, whatever is fetched ahead.
    pub least: f64,
    /// What the solver does not see of the objective.
    pub apart: f64,
}

impl Overlap<'_, '_> {
    /// The better of the best of the rules' and of the solver's, in micro-batches or with more staging slots, where that is
    /// worth it. More slots may put the solver's before a rule's, which holds less and streams more evenly.
    pub fn better(
        &self,
        ruled: Option<ScoredPlacement>,
        found: Option<ScoredPlacement>,
    ) -> Result<Option<ScoredPlacement>, PlannerError> {
        let (first, second) = match (ruled, found) {
            (Some(ruled), Some(found)) if is_better(self.goal, &ruled, &found) => (found, None),
            (Some(ruled), found) => (ruled, found),
            (None, Some(found)) => (found, None),
            (None, None) => return Ok(None),
        };
        let best = self.with_slots(self.in_parts(first)?)?;
        match second {
            Some(second) if !self.is_enough(&best) => {
                Ok(better(self.goal, Some(best), self.with_slots(second)?))
            }
            _ => Ok(Some(best)),
        }
    }

    /// `best` with more staging slots, where that is worth it.
    fn with_slots(&self, best: ScoredPlacement) -> Result<ScoredPlacement, PlannerError> {
        match self.streams(&best.placement) && !self.is_enough(&best) {
            true => self.deeper(best),
            false => Ok(best),
        }
    }

    /// Whether no other placement is better by more than prices are known to.
    fn is_enough(&self, best: &ScoredPlacement) -> bool {
        best.placement.pipelining.micro_batches == 1 && self.least >= best.value * ENOUGH
    }

    /// The best placement, and those that the solver finds where each device's work counts and not their turns, in
    /// micro-batches.
    fn in_parts(&self, best: ScoredPlacement) -> Result<ScoredPlacement, PlannerError> {
        let batch = self.problem.workload.batch;
        if self.problem.cost_model.machine.devices.len() < 2 || batch < TURNS {
            return Ok(best);
        }
        let mut candidates = vec![];
        if self.takes_turns(&best.placement) {
            candidates.push(divided(&best.placement, TURNS));
        }
        candidates.extend(self.for_turns(&best)?);
        let found = candidates.into_par_iter().map(|placement| self.candidate(&best, placement));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let Some(mut found) =
            found.into_iter().flatten().min_by(|a, b| self.rank(a).total_cmp(&self.rank(b)))
        else {
            return Ok(best);
        };
        for (parts, _) in PARTS.into_iter().filter(|&(parts, least)| parts > TURNS && batch >= least) {
            let finer = self.scored(&found, divided(&found.placement, parts))?;
            if self.rank(&finer) >= self.rank(&found) {
                break;
            }
            found = finer;
        }
        Ok(if self.is_worth(&best, &found) { found } else { best })
    }

    /// Placements for devices that work at the same time, where these could be better than `best`.
    fn for_turns(&self, best: &ScoredPlacement) -> Result<Vec<Placement>, PlannerError> {
        let space = self.space(best.chunk, TURNS)?;
        let Some(priced_problem) = space.priced_problem(self.goal, &space.capacity())? else {
            return Ok(vec![]);
        };
        // Both devices are in every part of a divided matrix: there is no turn to take.
        let families = [Restriction::ALL, Restriction { divided: false, ..Restriction::ALL }];
        let mut placements: Vec<Placement> = vec![];
        for restriction in families {
            let solved = priced_problem.solve(
                restriction,
                SearchBudget::PLAN,
                self.rank(best) * ENOUGH - self.apart,
            )?;
            let Some(chosen) = solved.chosen else { continue };
            for placement in [space.placement(&chosen, self.goal), space.interleaved(&chosen, self.goal)] {
                let placement = divided(&placement, TURNS);
                if self.takes_turns(&placement) && !placements.contains(&placement) {
                    placements.push(placement);
                }
            }
        }
        Ok(placements)
    }

    /// The space of steps in so many micro-batches.
    fn space(&self, chunk: u64, micro_batches: u64) -> Result<SearchSpace<'_>, PlannerError> {
        let batch_steps = BatchSteps::new(&self.problem.workload, chunk).in_parts(micro_batches);
        SearchSpace::new(self.problem.cost_model, &batch_steps, self.goal)
    }

    /// `best` with more staging slots.
    ///
    /// A link that fetches for some layers while others compute from memory, or while another device computes, stops
    /// when its slots are full. Their number is doubled as long as that gains; where the memory is full, less is held
    /// in it instead. Fewer than two are not tried: nothing that fits with two runs sooner with one.
    fn deeper(&self, mut best: ScoredPlacement) -> Result<ScoredPlacement, PlannerError> {
        loop {
            let slots = best.placement.pipelining.slots * 2;
            if !Pipelining::SLOTS.contains(&slots) {
                return Ok(best);
            }
            let pipelining = Pipelining { slots, ..best.placement.pipelining };
            // Whether it fits is asked when it is known to gain.
            let deeper = self.scored(&best, Placement { pipelining, ..best.placement.clone() })?;
            if !self.is_worth(&best, &deeper) {
                return Ok(best);
            }
            let deeper = if self.fits(&deeper)? { Some(deeper) } else { self.refitted(&best, &deeper)? };
            match deeper.filter(|deeper| self.is_worth(&best, deeper)) {
                Some(deeper) => best = deeper,
                None => return Ok(best),
            }
        }
    }

    /// What the solver does with the room that more slots leave; `None` where it finds nothing that could be better.
    fn refitted(
        &self,
        best: &ScoredPlacement,
        deeper: &ScoredPlacement,
    ) -> Result<Option<ScoredPlacement>, PlannerError> {
        let pipelining = deeper.placement.pipelining;
        let known = self.spaces.iter().find(|(chunk, _)| *chunk == best.chunk);
        let own;
        let space = match (known, pipelining.micro_batches) {
            (Some((_, space)), 1) => *space,
            (_, parts) => {
                own = self.space(best.chunk, parts)?;
                &own
            }
        };
        let (before, after) = (self.used(best)?, self.used(deeper)?);
        let mut capacity = space.capacity();
        for ((capacity, before), after) in capacity.iter_mut().zip(before).zip(after) {
            *capacity = capacity.saturating_sub(after.staging.saturating_sub(before.staging));
        }
        let Some(priced_problem) = space.priced_problem(self.goal, &capacity)? else { return Ok(None) };
        let Some(chosen) =
            priced_problem.solve(best.restriction, SearchBudget::PLAN, self.rank(best) - self.apart)?.chosen
        else {
            return Ok(None);
        };
        let placements = [Some(space.placement(&chosen, self.goal)), space.dealt(&chosen, self.goal)];
        let mut found: Option<ScoredPlacement> = None;
        for placement in placements.into_iter().flatten() {
            let scored = self.candidate(best, Placement { pipelining, ..placement })?;
            let scored = scored
                .filter(|scored| found.as_ref().is_none_or(|found| self.rank(scored) < self.rank(found)));
            found = scored.or(found);
        }
        Ok(found)
    }

    /// `placement` in place of that of `best`; `None` where it does not fit, or bytes cannot move: patterns are priced
    /// alone, and between two of them there may be no link.
    fn candidate(
        &self,
        best: &ScoredPlacement,
        placement: Placement,
    ) -> Result<Option<ScoredPlacement>, PlannerError> {
        let scored = match self.scored(best, placement) {
            Err(PlannerError::Lower(_)) => return Ok(None),
            scored => scored?,
        };
        Ok(if self.fits(&scored)? { Some(scored) } else { None })
    }

    /// `placement` in place of that of `best`, whether it fits or not.
    fn scored(&self, best: &ScoredPlacement, placement: Placement) -> Result<ScoredPlacement, PlannerError> {
        let scored = self.problem.scored(self.goal, PLANNED, placement, best.chunk, self.scorer)?;
        Ok(ScoredPlacement { restriction: best.restriction, ..scored })
    }

    /// Whether something is computed from a memory that its device does not read in place.
    fn streams(&self, placement: &Placement) -> bool {
        let machine = self.problem.cost_model.machine;
        let far = |slice: &Slice| {
            PHASES.into_iter().any(|phase| !machine.reads_in_place(slice.device(phase), slice.home))
        };
        placement.sublayers().any(|(.., slices)| slices.iter().any(far))
    }

    /// Whether layers are computed by more than one device in one phase.
    fn takes_turns(&self, placement: &Placement) -> bool {
        let layers = || placement.layers.iter().flat_map(|layer| layer.iter().flat_map(|(_, slices)| slices));
        let first = |phase| layers().next().map(|slice| slice.device(phase));
        PHASES.into_iter().any(|phase| layers().any(|slice| Some(slice.device(phase)) != first(phase)))
    }

    fn used(&self, scored: &ScoredPlacement) -> Result<Vec<MemoryUsage>, PlannerError> {
        let workload = &self.problem.workload;
        let extent = RunExtent::from_workload(workload, scored.chunk);
        Ok(footprint(self.problem.cost_model, &extent, &scored.placement)?)
    }

    fn fits(&self, scored: &ScoredPlacement) -> Result<bool, PlannerError> {
        Ok(overfilled(self.problem.cost_model.machine, &self.used(scored)?).is_none())
    }

    /// The objective; infinite where limits are not kept.
    fn rank(&self, scored: &ScoredPlacement) -> f64 {
        if self.goal.keeps(&scored.times) { scored.value } else { f64::INFINITY }
    }

    /// Whether `next` keeps limits that `best` does not, or is better by more than prices are known to.
    fn is_worth(&self, best: &ScoredPlacement, next: &ScoredPlacement) -> bool {
        match [best, next].map(|scored| self.goal.keeps(&scored.times)) {
            [true, false] => false,
            [false, true] => true,
            _ => next.value < best.value * ENOUGH,
        }
    }
}

/// The same in so many micro-batches.
fn divided(placement: &Placement, micro_batches: u64) -> Placement {
    Placement { pipelining: Pipelining { micro_batches, ..placement.pipelining }, ..placement.clone() }
}
