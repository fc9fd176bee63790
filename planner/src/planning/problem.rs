//! A planning problem, and the placements that are found for it.

use crate::cost::{CostModel, Roofline, footprint};
use crate::error::PlannerError;
use crate::memory::{MemoryUsage, overfilled};
use crate::placement::{Placement, named};
use crate::plan::{Identity, PLAN_VERSION, Plan, Prediction};
use crate::planning::draft::DraftPlan;
use crate::planning::scorer::Scorer;
use crate::program::{BatchSteps, PhaseTimes, RunExtent};
use crate::search::{DeviceWork, Goal, Restriction, device_work};
use hwprofiles::{Ratio, Seconds};
use scenarios::Requirements;
use std::collections::BTreeMap;

/// A placement within this share of its lower bound is good enough: costs are not more precise.
pub(crate) const ENOUGH: f64 = 0.99;

/// Name of the solver's placement in predictions.
pub const PLANNED: &str = "planned";

/// What the name of a plan within an engine's options begins with.
pub(crate) const OPTIONS: &str = "options of";

/// What is chosen in a plan that was edited by hand.
pub const EDITED: &str = "edited";

/// What to plan: a workload of a model on a machine, with an objective.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// Machine, model and number formats.
    pub cost_model: CostModel<'a>,
    /// The workload, the objective, the limits, and the prices of the objective `cost`.
    pub requirements: Requirements,
    /// The draft that proposes the tokens of the workload's speculation. The model is placed beside
    /// it.
    pub draft: Option<&'a DraftPlan>,
}

/// A simulated placement.
#[derive(Clone)]
pub(crate) struct ScoredPlacement {
    pub name: String,
    pub placement: Placement,
    pub chunk: u64,
    pub times: PhaseTimes,
    /// The objective.
    pub value: f64,
    /// The rooflines of its phases, where they were asked for.
    pub bounds: Option<PhaseTimes>,
    /// The restriction under which the solver found it.
    pub restriction: Restriction,
}

impl Problem<'_> {
    pub(crate) fn goal(&self) -> Result<Goal, PlannerError> {
        Goal::new(
            self.cost_model.machine,
            &self.requirements.workload,
            self.requirements.objective,
            self.requirements.slo,
            &self.requirements.costs,
        )
    }

    /// `placement` with its simulated times.
    pub(crate) fn scored(
        &self,
        goal: &Goal,
        name: &str,
        placement: Placement,
        chunk: u64,
        scorer: &Scorer<'_>,
    ) -> Result<ScoredPlacement, PlannerError> {
        let (times, value) = self.simulated(goal, &placement, chunk, scorer)?;
        let (name, bounds, restriction) = (name.to_owned(), None, Restriction::NONE);
        Ok(ScoredPlacement { name, placement, chunk, times, value, bounds, restriction })
    }

    /// The simulated times of `placement`, and the objective.
    pub(crate) fn simulated(
        &self,
        goal: &Goal,
        placement: &Placement,
        chunk: u64,
        scorer: &Scorer<'_>,
    ) -> Result<(PhaseTimes, f64), PlannerError> {
        let times = self.with_draft(scorer(placement, chunk)?);
        let work = match goal.prices_device_work() {
            true => self.work(placement, chunk)?,
            false => DeviceWork::default(),
        };
        Ok((times, goal.value(&times, &work)))
    }

    /// The rooflines of a placement's phases.
    pub(crate) fn bounds(&self, scored: &ScoredPlacement) -> Result<PhaseTimes, PlannerError> {
        let batch_steps = BatchSteps::new(&self.requirements.workload, scored.chunk);
        let computed = || Roofline::run_bounds(&self.cost_model, &scored.placement, &batch_steps);
        scored.bounds.map_or_else(computed, Ok)
    }

    /// The bytes of a simulated placement in each memory.
    pub(crate) fn used(&self, scored: &ScoredPlacement) -> Result<Vec<MemoryUsage>, PlannerError> {
        let extent = RunExtent::from_workload(&self.requirements.workload, scored.chunk);
        Ok(footprint(self.cost_model, &extent, &scored.placement)?)
    }

    /// Whether a simulated placement overfills no memory.
    pub(crate) fn fits(&self, scored: &ScoredPlacement) -> Result<bool, PlannerError> {
        Ok(overfilled(self.cost_model.machine, &self.used(scored)?).is_none())
    }

    /// The placement of a rule in those of `chunks` that are best for it, which the rule does not
    /// choose.
    pub(crate) fn in_best_chunks(
        &self,
        goal: &Goal,
        rule: ScoredPlacement,
        chunks: &[u64],
        scorer: &Scorer<'_>,
    ) -> Result<ScoredPlacement, PlannerError> {
        let (placement, chosen, mut best) = (rule.placement.clone(), rule.chunk, rule);
        for &chunk in chunks.iter().filter(|&&chunk| chunk != chosen) {
            let next = self.scored(goal, PLANNED, placement.clone(), chunk, scorer)?;
            if is_better(goal, &best, &next) && self.fits(&next)? {
                best = next;
            }
        }
        Ok(best)
    }

    pub(crate) fn work(&self, placement: &Placement, chunk: u64) -> Result<DeviceWork, PlannerError> {
        let mut all =
            device_work(&self.cost_model, placement, &BatchSteps::new(&self.requirements.workload, chunk))?;
        if let Some(draft) = self.draft {
            let drafts = draft.work.prefill.iter().chain(&draft.work.decode);
            let both = all.prefill.iter_mut().chain(&mut all.decode).zip(drafts);
            both.for_each(|(all, drafts)| *all += *drafts);
        }
        Ok(all)
    }

    /// The times of steps with the draft's added.
    fn with_draft(&self, times: PhaseTimes) -> PhaseTimes {
        self.draft.map_or(times, |draft| draft.placed.join(times))
    }

    /// The draft's part of the objective, which no placement changes.
    pub(crate) fn draft_value(&self, goal: &Goal) -> f64 {
        let Some(draft) = self.draft else { return 0.0 };
        let none = PhaseTimes { ttft: Seconds::ZERO, tpot: Some(Seconds::ZERO) };
        goal.value(&draft.placed.join(none), &draft.work)
    }

    pub(crate) fn finished_plan(
        &self,
        goal: &Goal,
        best: ScoredPlacement,
        known: Option<&Identity>,
        least: Option<f64>,
        baselines: BTreeMap<String, PhaseTimes>,
        without: BTreeMap<String, String>,
    ) -> Result<Plan, PlannerError> {
        let work = self.work(&best.placement, best.chunk)?;
        // The middle decode step stands for all, so its bound may exceed the mean step by a little.
        let bound = goal.per_token(self.with_draft(self.bounds(&best)?).min(best.times));
        // The bound holds for steps without micro-batches.
        let whole = best.placement.pipelining.micro_batches == 1;
        let predicted = Prediction {
            chosen: best.name,
            bound,
            proven: least.filter(|_| whole).and_then(|least| proven(least, best.value)),
            simulated: goal.per_token(best.times),
            energy_per_token: goal.energy(&best.times, &work),
            cost_per_token: goal.cost(&best.times, &work),
            baselines: baselines.into_iter().map(|(name, times)| (name, goal.per_token(times))).collect(),
            without,
            search: None,
        };
        self.document(known, best.chunk, &best.placement, predicted)
    }

    /// The document for `placement`. Equal neighbours become one group. `known` is the machine's
    /// identity, if the caller knows it.
    ///
    /// # Errors
    /// A link does not exist, or a memory is too small.
    fn document(
        &self,
        known: Option<&Identity>,
        prefill_chunk: u64,
        placement: &Placement,
        predicted: Prediction,
    ) -> Result<Plan, PlannerError> {
        let Problem { cost_model, draft, requirements: Requirements { workload, objective, slo, costs } } =
            *self;
        let CostModel { machine, model, formats } = cost_model;
        let (embed, layers, head) = named(machine, model, placement);
        let extent = RunExtent::from_workload(&workload, prefill_chunk);
        let used = footprint(cost_model, &extent, placement)?;
        // Bytes in a striped memory count in the memories below it.
        let memories = machine.memories.iter().zip(&used).filter(|(memory, _)| memory.stripes.is_empty());
        let memory = memories.map(|(memory, used)| (memory.name.clone(), *used)).collect();
        let plan = Plan {
            plan: PLAN_VERSION,
            from: None,
            machine: match (draft, known) {
                (Some(draft), _) => draft.machine.clone(),
                (None, Some(known)) => known.clone(),
                (None, None) => Identity::of_machine(machine),
            },
            model: Identity::of_model(model),
            formats: *formats,
            workload,
            objective,
            slo,
            costs,
            prefill_chunk,
            staging_slots: placement.pipelining.slots,
            micro_batches: placement.pipelining.micro_batches,
            draft: draft.map(|draft| draft.placed.clone()),
            embed,
            layers,
            head,
            memory,
            predicted,
            digest: None,
            edited: false,
        };
        match overfilled(machine, &used) {
            None => Ok(plan),
            Some((memory, needed)) => Err(PlannerError::TooLarge {
                memory: memory.name.clone(),
                needed,
                capacity: memory.capacity.value,
            }),
        }
    }
}

/// `least` as a share of `value`, at most 1. `None` if `value` is below `least` by more than the
/// middle decode step can differ from the mean one.
fn proven(least: f64, value: f64) -> Option<Ratio> {
    const ALIKE: f64 = 1.01;
    Ratio::new((least / value).min(1.0)).filter(|_| least <= ALIKE * value)
}

/// The better of two placements; of equal ones the first, so that a rule stays if nothing beats it.
pub(crate) fn better(
    goal: &Goal,
    best: Option<ScoredPlacement>,
    next: ScoredPlacement,
) -> Option<ScoredPlacement> {
    match best {
        Some(best) if !is_better(goal, &best, &next) => Some(best),
        _ => Some(next),
    }
}

/// Whether `next` keeps limits that `best` does not, or has a smaller objective.
pub(crate) fn is_better(goal: &Goal, best: &ScoredPlacement, next: &ScoredPlacement) -> bool {
    let rank = |scored: &ScoredPlacement| (!goal.keeps(&scored.times), scored.value);
    rank(next) < rank(best)
}
