//! A plan that is run for real, beside its prediction.

use super::drafted::DraftedSession;
use super::session::{GenerationOptions, WARMING_TOKENS, run_error, warming_prompts};
use crate::error::{Error, OrError, Result};
use crate::pipeline::ResolvedPlan;
use executor::{Checkpoint, Sampling, Session};
use hwprofiles::Bytes;
use planner::{PhasePrograms, Trace, usage};
use rand::{Rng, SeedableRng};
use reports::{Configuration, DraftOutcome, Label, MemoryUse, PlacementMap};
use scenarios::{Model, Workload};
use sim::RandomDraws;
use std::sync::atomic::AtomicBool;

/// Prompts of random tokens. Prompts of zeros would run faster than real ones.
pub fn random_prompts(model: &Model, batch: u64, tokens: u64, seed: u64) -> Vec<Vec<u32>> {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut prompt = || (0..tokens).map(|_| (random.next_u64() % model.vocab) as u32).collect();
    (0..batch).map(|_| prompt()).collect()
}

/// The label of a configuration: its name, what placed it, and its load.
pub(crate) fn label(name: String, placement: String, load: &Workload) -> Label {
    let Workload { batch, prompt_tokens, output_tokens, .. } = *load;
    Label { name, placement, batch, prompt_tokens, output_tokens }
}

/// The runs of a plan that were measured so far.
#[derive(Debug, Default)]
pub(crate) struct PlanMeasurement {
    traces: Vec<Trace>,
    /// By memory, the bytes that the last session allocated.
    allocated: Vec<Bytes>,
    /// Tokens that a draft proposed, and those that the model accepted.
    proposed: [u64; 2],
}

/// The checkpoints of plans' model and of their drafts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checkpoints<'c> {
    pub(crate) model: &'c Checkpoint,
    pub(crate) draft: Option<&'c Checkpoint>,
    /// The model's own MTP module.
    pub(crate) module: Option<&'c Checkpoint>,
}

impl<'c> Checkpoints<'c> {
    /// The checkpoint of a plan's draft; `None` where the plan has none.
    ///
    /// # Errors
    /// The plan has a draft, and there is no checkpoint of it.
    pub(crate) fn draft_of(self, planned: &ResolvedPlan) -> Result<Option<&'c Checkpoint>> {
        let draft = if planned.drafts_with_module() { self.module } else { self.draft };
        match (&planned.plan.draft, draft) {
            (None, _) => Ok(None),
            (Some(_), Some(draft)) => Ok(Some(draft)),
            (Some(placed), None) => Err(Error::input(format!(
                "the plan has {} as its draft: name its folder with --draft-dir",
                placed.model.name
            ))),
        }
    }
}

/// Measurements run to their end.
static UNINTERRUPTED: AtomicBool = AtomicBool::new(false);

impl PlanMeasurement {
    /// Runs a plan `repeats` times, after a warm-up.
    ///
    /// # Errors
    /// The checkpoint does not fit the plan, or a device fails.
    pub(crate) fn run(&mut self, planned: &ResolvedPlan, from: Checkpoints<'_>, repeats: u32) -> Result {
        if let Some(draft) = from.draft_of(planned)? {
            return self.run_with_draft(planned, [from.model, draft], repeats);
        }
        let mut session = Session::new(planned.setup()?, from.model).map_err(run_error)?;
        let load = &planned.plan.workload;
        let prompts = random_prompts(&planned.model, load.batch, load.prompt_tokens, 1);
        let warming = warming_prompts(planned, &prompts);
        session
            .generate(&warming, load.output_tokens.min(WARMING_TOKENS), Sampling::Greedy, |_| {})
            .or_failed()?;
        let mut run = |lists_tasks| {
            let (output, sampling) = (load.output_tokens, Sampling::Greedy);
            let run = session.generate_until(&prompts, output, sampling, lists_tasks, |_| false, |_| {});
            run.or_failed().map(|run| self.traces.push(run.trace))
        };
        // A GPU marks the start and the end of each task on its stream, and the marks take time. So
        // its runs are timed without, and one more run says what each task takes.
        let has_gpu = planned.has_gpu();
        (0..repeats).try_for_each(|_| run(!has_gpu))?;
        if has_gpu {
            run(true)?;
        }
        self.allocated = session.memory_used();
        Ok(())
    }

    /// As [`PlanMeasurement::run`], for a plan with a draft.
    fn run_with_draft(
        &mut self,
        planned: &ResolvedPlan,
        [model, draft]: [&Checkpoint; 2],
        repeats: u32,
    ) -> Result {
        let mut session = DraftedSession::new(planned, model, draft, &UNINTERRUPTED)?;
        let load = &planned.plan.workload;
        let prompts = random_prompts(&planned.model, load.batch, load.prompt_tokens, 1);
        let warm = warming_prompts(planned, &prompts);
        let mut generate = |prompts: &[Vec<u32>], output_tokens| {
            let options = GenerationOptions {
                output_tokens,
                sampling: Sampling::Greedy,
                record_tasks: false,
                prepares: false,
            };
            session.generate(prompts, options, None, |_| ())
        };
        generate(&warm, load.output_tokens.min(load.step_tokens() + 1))?;
        for _ in 0..repeats {
            let run = generate(&prompts, load.output_tokens)?;
            self.traces.push(run.generated.trace);
            self.proposed = [self.proposed[0] + run.proposed, self.proposed[1] + run.accepted];
        }
        self.allocated = session.memory_used();
        Ok(())
    }

    /// The measured runs beside the predicted one.
    ///
    /// # Errors
    /// A rate is missing, or the traces do not belong together.
    pub(crate) fn compare(&self, planned: &ResolvedPlan, label: Label) -> Result<Configuration> {
        let predicted = planned.simulate(RandomDraws::default())?;
        let ResolvedPlan { machine, model, placement, plan, .. } = planned;
        let programs = PhasePrograms::lower(machine, model, placement).or_failed()?;
        let mut used = usage(machine, model, &plan.formats, placement, &programs, &plan.extent());
        let of_draft = plan.draft.iter().flat_map(|draft| &draft.memory);
        for (name, draft) in of_draft {
            let used = machine.memory_named(name).map(|id| &mut used[id.0]);
            used.into_iter().for_each(|used| *used = *used + *draft);
        }
        let memory = MemoryUse::from_usage(machine, &used, |id| self.allocated.get(id.0).copied());
        let map = PlacementMap::from_placement(machine, placement);
        let Some(speculation) = plan.workload.speculation.filter(|_| plan.draft.is_some()) else {
            return Configuration::from_traces(label, &predicted, &self.traces, memory, map).or_failed();
        };
        // Greedy runs of the same prompts have the same tokens, and so the same steps.
        let steps = self.traces.first().map_or(&[][..], |trace| &trace.steps);
        let repeated = planned.predict_steps(steps)?;
        let measured = Configuration::from_traces(label, &repeated, &self.traces, memory, map).or_failed()?;
        let [proposed, accepted] = self.proposed;
        let outcome = DraftOutcome { proposed, accepted, planned: speculation.acceptance.get() };
        Ok(measured.with_draft(outcome, &predicted))
    }
}
