//! What a rule comes to.

use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::placement::IdenticalGpus;
use crate::placement::Placement;
use crate::planning::problem::{Problem, ScoredPlacement, better};
use crate::planning::scorer::Scorer;
use crate::program::{BatchSteps, prefill_chunks};
use crate::rules::{NoRule, Rule};
use crate::search::Goal;
use crate::search::MARGINS;
use hwprofiles::MemoryId;

impl Problem<'_> {
    /// The rule's placement with what it leaves to the host in the host's own memory, or striped over that and another,
    /// whichever is better: who follows a rule does either without changing it (`numactl --weighted-interleave`).
    pub(crate) fn followed(
        &self,
        goal: &Goal,
        rule: Rule,
        scorer: &Scorer<'_>,
    ) -> Result<ScoredPlacement, NoRule> {
        let mut best = None;
        let mut refused = None;
        for memory in rule.host_memories(self.cost_model.machine)? {
            match self.followed_in(goal, rule, memory, scorer) {
                Ok(scored) => best = better(goal, best, scored),
                Err(reason) => refused = refused.or(Some(reason)),
            }
        }
        best.ok_or_else(|| refused.unwrap_or(NoRule::NoDevice("memory")))
    }

    /// The same in one memory, at the first of the rule's chunks at which it fits.
    fn followed_in(
        &self,
        goal: &Goal,
        rule: Rule,
        memory: MemoryId,
        scorer: &Scorer<'_>,
    ) -> Result<ScoredPlacement, NoRule> {
        let mut chunks = prefill_chunks(&self.workload);
        if rule.streams() {
            chunks.reverse();
        }
        let mut refused = None;
        for chunk in chunks {
            let placed = self.placed(rule, memory, &BatchSteps::new(&self.workload, chunk));
            match placed {
                Ok(placement) => return Ok(self.scored(goal, rule.name(), placement, chunk, scorer)?),
                Err(reason) => refused = Some(reason),
            }
        }
        Err(refused.unwrap_or(NoRule::NoDevice("prefill step")))
    }

    /// The rule's placement. Rules know one accelerator: of several alike, one with the room of all, over which the
    /// layers are dealt out.
    fn placed(&self, rule: Rule, memory: MemoryId, batch_steps: &BatchSteps) -> Result<Placement, NoRule> {
        let twins = IdenticalGpus::from_machine(self.cost_model.machine);
        if twins.count() == 1 {
            return rule.placement(self.cost_model, memory, batch_steps);
        }
        for margin in MARGINS {
            let pooled = twins.pooled(self.cost_model.machine, margin);
            let placement =
                rule.placement(CostModel { machine: &pooled, ..self.cost_model }, memory, batch_steps)?;
            let dealt = twins.dealt_out(self.cost_model, &batch_steps.extent, placement);
            if let Some(first) = dealt.map_err(PlannerError::from)?.into_iter().next() {
                return Ok(first);
            }
        }
        Err(NoRule::NoDevice("accelerator with room for its share"))
    }
}
