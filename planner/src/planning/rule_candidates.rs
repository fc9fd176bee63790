//! Simulated placements of rules.

use crate::cost::{CostModel, footprint};
use crate::error::PlannerError;
use crate::memory::overfilled;
use crate::placement::{IdenticalGpus, Placement};
use crate::planning::problem::{Problem, ScoredPlacement, better, is_better};
use crate::planning::scorer::Scorer;
use crate::program::{BatchSteps, prefill_chunks};
use crate::rules::{NoRule, ParameterRule, Rule};
use crate::search::{Goal, MARGINS};
use hwprofiles::MemoryId;
use rayon::prelude::*;

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
        Err(refused.unwrap_or(NoRule::NoStep))
    }

    /// The rule's placement. Rules know one accelerator.
    fn rule_placement(
        &self,
        rule: Rule,
        memory: MemoryId,
        batch_steps: &BatchSteps,
    ) -> Result<Placement, NoRule> {
        self.dealt_out(batch_steps, |cost_model| rule.placement(cost_model, memory, batch_steps))
    }

    /// What `place` makes of the machine. Of identical GPUs it sees one with the capacity of all,
    /// over which the layers are dealt out.
    fn dealt_out(
        &self,
        batch_steps: &BatchSteps,
        place: impl Fn(CostModel<'_>) -> Result<Placement, NoRule>,
    ) -> Result<Placement, NoRule> {
        let identical_gpus = IdenticalGpus::from_machine(self.cost_model.machine);
        if identical_gpus.count() == 1 {
            return place(self.cost_model);
        }
        for margin in MARGINS {
            let pooled = identical_gpus.pooled(self.cost_model.machine, margin);
            let placement = place(CostModel { machine: &pooled, ..self.cost_model })?;
            let dealt = identical_gpus.dealt_out(self.cost_model, &batch_steps.extent, placement);
            if let Some(first) = dealt.map_err(PlannerError::from)?.into_iter().next() {
                return Ok(first);
            }
        }
        Err(NoRule::NoDevice("accelerator with room for its share"))
    }

    /// The placements of the rules and of the rules with one number.
    pub(crate) fn simple_placements(&self, goal: &Goal, scorer: &Scorer<'_>) -> Vec<Placement> {
        let named = Rule::ALL.into_iter().filter_map(|rule| self.rule_candidate(goal, rule, scorer).ok());
        named.chain(self.parameter_rules(goal, scorer)).map(|scored| scored.placement).collect()
    }

    /// The best placement of each rule with one number, over its numbers, the prefill chunks, and
    /// whether the GPU computes prefill: first the largest number that fits, then others with the
    /// best of the rest. The name says the rule and its number.
    pub(crate) fn parameter_rules(&self, goal: &Goal, scorer: &Scorer<'_>) -> Vec<ScoredPlacement> {
        let Ok(memories) = Rule::FillMemory.host_memories(self.cost_model.machine) else { return vec![] };
        let Some(&dram) = memories.first() else { return vec![] };
        let best = |&rule: &ParameterRule| {
            let first = |held: &[usize]| held.first().copied().into_iter().collect::<Vec<_>>();
            let (mut best, mut with) = (None, None);
            for chunk in prefill_chunks(&self.requirements.workload) {
                for offload in [true, false] {
                    let way = ParameterVariant { rule, dram, chunk, offload };
                    for scored in self.parameter_rule(goal, way, first, scorer) {
                        if best.as_ref().is_none_or(|best| is_better(goal, best, &scored)) {
                            (best, with) = (Some(scored), Some(way));
                        }
                    }
                }
            }
            let others = |held: &[usize]| held.get(1..).unwrap_or_default().to_vec();
            let finer = with.map(|way| self.parameter_rule(goal, way, others, scorer)).unwrap_or_default();
            finer.into_iter().fold(best, |best, next| better(goal, best, next))
        };
        ParameterRule::ALL.par_iter().filter_map(best).collect()
    }

    /// The placements of a rule for the numbers that `chosen` takes of those that fit.
    fn parameter_rule(
        &self,
        goal: &Goal,
        way: ParameterVariant,
        chosen: impl Fn(&[usize]) -> Vec<usize>,
        scorer: &Scorer<'_>,
    ) -> Vec<ScoredPlacement> {
        let ParameterVariant { rule, dram, chunk, offload } = way;
        let batch_steps = BatchSteps::new(&self.requirements.workload, chunk);
        let layers = self.cost_model.model.layers as usize;
        let gpus = IdenticalGpus::from_machine(self.cost_model.machine);
        let pooled = (gpus.count() > 1).then(|| gpus.pooled(self.cost_model.machine, MARGINS[1]));
        let machine = pooled.as_ref().unwrap_or(self.cost_model.machine);
        let cost_model = CostModel { machine, ..self.cost_model };
        let counts = rule.counts(cost_model, dram, &batch_steps.extent, offload);
        let scored = |held: usize| -> Option<ScoredPlacement> {
            let place = |cost_model: CostModel<'_>| rule.placement(cost_model, dram, held, offload);
            let placement = self.dealt_out(&batch_steps, place).ok()?;
            let used = footprint(self.cost_model, &batch_steps.extent, &placement).ok()?;
            overfilled(self.cost_model.machine, &used).is_none().then_some(())?;
            self.scored(goal, &rule.name(layers, held), placement, chunk, scorer).ok()
        };
        chosen(&counts.unwrap_or_default()).into_iter().filter_map(scored).collect()
    }
}

/// What a rule with one number leaves open.
#[derive(Debug, Clone, Copy)]
struct ParameterVariant {
    rule: ParameterRule,
    dram: MemoryId,
    chunk: u64,
    /// Whether the GPU computes prefill with the host's matrices, too.
    offload: bool,
}
