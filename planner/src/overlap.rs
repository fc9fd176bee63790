//! What the integer program does not choose, because its rooflines do not see it: how much overlaps. Tried on the best
//! placement, by simulation.

use crate::Slice;
use crate::error::PlannerError;
use crate::footprint::footprint;
use crate::goal::Goal;
use crate::memory::Extent;
use crate::pipelining::Pipelining;
use crate::placement::Placement;
use crate::plan::overfilled;
use crate::planner::{ENOUGH, PLANNED, Question, Scored, Scorer};
use crate::solve::Effort;
use crate::space::Space;
use scenarios::Phase;

/// A question whose best placement so far is known.
pub(crate) struct Overlap<'a, 's> {
    pub question: &'a Question<'a>,
    pub goal: &'a Goal,
    pub scorer: &'a Scorer<'s>,
    /// By prefill chunk.
    pub spaces: Vec<(u64, &'a Space<'a>)>,
}

impl Overlap<'_, '_> {
    /// `best` with more staging slots, where that is worth it.
    ///
    /// A link that fetches for some layers while others compute from memory, or while another device computes, stops
    /// when its slots are full. Their number is doubled as long as that gains; where the memory is full, less is held
    /// in it instead. Fewer than two are not tried: nothing that fits with two runs sooner with one.
    pub fn best(&self, mut best: Scored) -> Result<Scored, PlannerError> {
        if !self.streams(&best.placement) {
            return Ok(best);
        }
        loop {
            let slots = best.placement.pipelining.slots * 2;
            if !Pipelining::SLOTS.contains(&slots) {
                return Ok(best);
            }
            let placement = Placement { pipelining: Pipelining { slots }, ..best.placement.clone() };
            // Whether it fits is asked when it is known to gain.
            let deeper = self.scored(&best, placement)?;
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
    fn refitted(&self, best: &Scored, deeper: &Scored) -> Result<Option<Scored>, PlannerError> {
        let space = self.spaces.iter().find(|(chunk, _)| *chunk == best.chunk);
        let Some((_, space)) = space else { return Ok(None) };
        let (before, after) = (self.used(best)?, self.used(deeper)?);
        let mut capacity = space.capacity();
        for ((capacity, before), after) in capacity.iter_mut().zip(before).zip(after) {
            *capacity = capacity.saturating_sub(after.staging.saturating_sub(before.staging));
        }
        let Some(outlook) = space.outlook(self.goal, &capacity)? else { return Ok(None) };
        let Some(chosen) = outlook.solve(best.family, Effort::PLAN, best.value)?.chosen else {
            return Ok(None);
        };
        let placements = [Some(space.placement(&chosen, self.goal)), space.dealt(&chosen, self.goal)];
        let mut found: Option<Scored> = None;
        for placement in placements.into_iter().flatten() {
            let pipelining = deeper.placement.pipelining;
            let scored = match self.scored(best, Placement { pipelining, ..placement }) {
                // Patterns are priced alone: between two of them there may be no link.
                Err(PlannerError::Lower(_)) => continue,
                scored => scored?,
            };
            if self.fits(&scored)? && found.as_ref().is_none_or(|found| scored.value < found.value) {
                found = Some(scored);
            }
        }
        Ok(found)
    }

    /// `placement` in place of that of `best`.
    fn scored(&self, best: &Scored, placement: Placement) -> Result<Scored, PlannerError> {
        let scored = self.question.scored(self.goal, PLANNED, placement, best.chunk, self.scorer)?;
        Ok(Scored { family: best.family, ..scored })
    }

    /// Whether something is computed from a memory that is not its device's own.
    fn streams(&self, placement: &Placement) -> bool {
        let machine = self.question.pricing.machine;
        let far = |slice: &Slice| {
            let own = |phase| machine.device(slice.device(phase)).memory;
            [Phase::Prefill, Phase::Decode].into_iter().any(|phase| own(phase) != slice.home)
        };
        placement.sublayers().any(|(.., slices)| slices.iter().any(far))
    }

    fn used(&self, scored: &Scored) -> Result<Vec<crate::Usage>, PlannerError> {
        let workload = &self.question.workload;
        let extent = Extent { batch: workload.batch, context: workload.context(), chunk: scored.chunk };
        Ok(footprint(self.question.pricing, &extent, &scored.placement)?)
    }

    fn fits(&self, scored: &Scored) -> Result<bool, PlannerError> {
        Ok(overfilled(self.question.pricing.machine, &self.used(scored)?).is_none())
    }

    /// Whether `next` keeps limits that `best` does not, or is better by more than prices are known to.
    fn is_worth(&self, best: &Scored, next: &Scored) -> bool {
        match [best, next].map(|scored| self.goal.keeps(&scored.times)) {
            [true, false] => false,
            [false, true] => true,
            _ => next.value < best.value * ENOUGH,
        }
    }
}
