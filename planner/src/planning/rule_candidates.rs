//! Simulated placements of rules.

use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::placement::{IdenticalGpus, Placement};
use crate::planning::problem::{Problem, ScoredPlacement, better};
use crate::planning::scorer::Scorer;
use crate::program::{BatchSteps, prefill_chunks};
use crate::rules::{NoRule, Rule};
use crate::search::{Goal, MARGINS};
use hwprofiles::MemoryId;

impl Problem<'_> {
    /// The rule's best placement, with the host's part in the host's own memory or in one striped
    /// over it: both follow the rule (`numactl --weighted-interleave`).
    pub(crate) fn rule_candidate(
        &self,
        goal: &Goal,
        rule: Rule,
        scorer: &Scorer<'_>,
    ) -> Result<ScoredPlacement, NoRule> {
        let mut best = None;
        let mut refused = None;
        for memory in rule.host_memories(self.cost_model.machine)? {
            match self.rule_candidate_in(goal, rule, memory, scorer) {
                Ok(scored) => best = better(goal, best, scored),
                Err(reason) => refused = refused.or(Some(reason)),
            }
        }
        best.ok_or_else(|| refused.unwrap_or(NoRule::NoDevice("memory")))
    }

    /// The rule's placement with one host memory, at the first of the rule's chunks at which it
    /// fits.
    fn rule_candidate_in(
        &self,
        goal: &Goal,
        rule: Rule,
        memory: MemoryId,
        scorer: &Scorer<'_>,
    ) -> Result<ScoredPlacement, NoRule> {
        let mut chunks = prefill_chunks(&self.requirements.workload);
        if rule.streams() {
            chunks.reverse();
        }
        let mut refused = None;
        for chunk in chunks {
            let rule_placement =
                self.rule_placement(rule, memory, &BatchSteps::new(&self.requirements.workload, chunk));
            match rule_placement {
                Ok(placement) => return Ok(self.scored(goal, rule.name(), placement, chunk, scorer)?),
                Err(reason) => refused = Some(reason),
            }
        }
        Err(refused.unwrap_or(NoRule::NoDevice("prefill step")))
    }

    /// The rule's placement. Rules know one accelerator: of identical GPUs, one with the capacity
    /// of all, over which the layers are dealt out.
    fn rule_placement(
        &self,
        rule: Rule,
        memory: MemoryId,
        batch_steps: &BatchSteps,
    ) -> Result<Placement, NoRule> {
        let identical_gpus = IdenticalGpus::from_machine(self.cost_model.machine);
        if identical_gpus.count() == 1 {
            return rule.placement(self.cost_model, memory, batch_steps);
        }
        for margin in MARGINS {
            let pooled = identical_gpus.pooled(self.cost_model.machine, margin);
            let placement =
                rule.placement(CostModel { machine: &pooled, ..self.cost_model }, memory, batch_steps)?;
            let dealt = identical_gpus.dealt_out(self.cost_model, &batch_steps.extent, placement);
            if let Some(first) = dealt.map_err(PlannerError::from)?.into_iter().next() {
                return Ok(first);
            }
        }
        Err(NoRule::NoDevice("accelerator with room for its share"))
    }
}
