//! What is asked for, and what is found for it.

use crate::cost::CostModel;
use crate::cost::Roofline;
use crate::cost::footprint;
use crate::error::PlannerError;
use crate::memory::overfilled;
use crate::placement::Placement;
use crate::placement::named;
use crate::plan::{Identity, PLAN_VERSION, Plan, Prediction};
use crate::planning::draft::DraftPlan;
use crate::planning::scorer::Scorer;
use crate::program::BatchSteps;
use crate::program::PhaseTimes;
use crate::program::RunExtent;
use crate::search::Restriction;
use crate::search::{Goal, work};
use hwprofiles::{Ratio, Seconds};
use scenarios::{Costs, Objective, Slo, Workload};
use std::collections::BTreeMap;

/// What is proven to be so near to the best is good enough: prices are not known better.
pub(crate) const ENOUGH: f64 = 0.99;

/// What was chosen when the solver's placement is the best.
pub const PLANNED: &str = "planned";

/// What is asked for: a workload of a model on a machine, and what the answer is to be best at.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// Machine, model and formats.
    pub cost_model: CostModel<'a>,
    /// The load.
    pub workload: Workload,
    /// What is to be best.
    pub objective: Objective,
    /// What must be kept.
    pub slo: Slo,
    /// What the objective `cost` needs to know.
    pub costs: Costs,
    /// The draft that proposes what the workload says, beside which everything is placed.
    pub draft: Option<&'a DraftPlan>,
}

/// A placement that was simulated.
pub(crate) struct ScoredPlacement {
    pub name: String,
    pub placement: Placement,
    pub chunk: u64,
    pub times: PhaseTimes,
    /// The objective.
    pub value: f64,
    /// The restriction under which the solver found it.
    pub restriction: Restriction,
}

impl Problem<'_> {
    pub(crate) fn goal(&self) -> Result<Goal, PlannerError> {
        Goal::new(self.cost_model.machine, &self.workload, self.objective, self.slo, &self.costs)
    }

    /// `placement` as `scorer` sees it.
    pub(crate) fn scored(
        &self,
        goal: &Goal,
        name: &str,
        placement: Placement,
        chunk: u64,
        scorer: &Scorer<'_>,
    ) -> Result<ScoredPlacement, PlannerError> {
        let times = self.beside(scorer(&placement, chunk)?);
        let work = match goal.is_frugal() {
            true => self.work(&placement, chunk)?,
            false => [vec![], vec![]],
        };
        let value = goal.value(&times, &work);
        Ok(ScoredPlacement {
            name: name.to_owned(),
            placement,
            chunk,
            times,
            value,
            restriction: Restriction::ALL,
        })
    }

    pub(crate) fn work(&self, placement: &Placement, chunk: u64) -> Result<[Vec<Seconds>; 2], PlannerError> {
        let mut all = work(&self.cost_model, placement, &BatchSteps::new(&self.workload, chunk))?;
        if let Some(draft) = self.draft {
            let both = all.iter_mut().flatten().zip(draft.work.iter().flatten());
            both.for_each(|(all, drafts)| *all += *drafts);
        }
        Ok(all)
    }

    /// The times of steps, with the draft's.
    fn beside(&self, times: PhaseTimes) -> PhaseTimes {
        self.draft.map_or(times, |draft| draft.placed.join(times))
    }

    /// What of the objective is the draft's: no placement changes it.
    pub(crate) fn of_draft(&self, goal: &Goal) -> f64 {
        let Some(draft) = self.draft else { return 0.0 };
        let none = PhaseTimes { ttft: Seconds::ZERO, tpot: Some(Seconds::ZERO) };
        goal.value(&draft.placed.join(none), &draft.work)
    }

    pub(crate) fn answer(
        &self,
        goal: &Goal,
        best: ScoredPlacement,
        known: Option<&Identity>,
        least: Option<f64>,
        baselines: BTreeMap<String, PhaseTimes>,
        without: BTreeMap<String, String>,
    ) -> Result<Plan, PlannerError> {
        let batch_steps = BatchSteps::new(&self.workload, best.chunk);
        let work = self.work(&best.placement, best.chunk)?;
        // What was proven is of steps in one piece.
        let whole = best.placement.pipelining.micro_batches == 1;
        let predicted = Prediction {
            chosen: best.name,
            bound: goal.per_token(self.beside(Roofline::run_bounds(
                &self.cost_model,
                &best.placement,
                &batch_steps,
            )?)),
            proven: least.filter(|_| whole).and_then(|least| proven(least, best.value)),
            simulated: goal.per_token(best.times),
            energy_per_token: goal.energy(&best.times, &work),
            cost_per_token: goal.cost(&best.times, &work),
            baselines: baselines.into_iter().map(|(name, times)| (name, goal.per_token(times))).collect(),
            without,
        };
        self.document(known, best.chunk, &best.placement, predicted)
    }

    /// The document for `placement`, in which equal neighbours become one group; `known` is the machine's identity, where somebody
    /// looked.
    ///
    /// # Errors
    /// Where bytes must move without a link, or more is needed of a memory than it holds.
    fn document(
        &self,
        known: Option<&Identity>,
        prefill_chunk: u64,
        placement: &Placement,
        predicted: Prediction,
    ) -> Result<Plan, PlannerError> {
        let Problem { cost_model, workload, objective, slo, costs, draft } = *self;
        let CostModel { machine, model, formats } = cost_model;
        let (embed, layers, head) = named(machine, model, placement);
        let extent = RunExtent::from_workload(&workload, prefill_chunk);
        let used = footprint(cost_model, &extent, placement)?;
        // What is in a striped memory is counted where it lies.
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

/// The share of `value` that nothing goes below, `least` of it; `None` where `value` itself does, by more than the
/// middle step of the output differs from the mean one.
fn proven(least: f64, value: f64) -> Option<Ratio> {
    const ALIKE: f64 = 1.01;
    Ratio::new((least / value).min(1.0)).filter(|_| least <= ALIKE * value)
}

/// The better of two: of equals the first, so that a rule stays where nothing beats it.
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

/// Whether `next` keeps limits that `best` does not, or is less.
pub(crate) fn is_better(goal: &Goal, best: &ScoredPlacement, next: &ScoredPlacement) -> bool {
    let rank = |scored: &ScoredPlacement| (!goal.keeps(&scored.times), scored.value);
    rank(next) < rank(best)
}
