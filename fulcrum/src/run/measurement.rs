//! A plan that is run for real, beside its prediction.

use super::session::run_error;
use crate::error::{OrError, Result};
use crate::pipeline::ResolvedPlan;
use executor::{Checkpoint, Sampling, Session};
use hwprofiles::Bytes;
use planner::{PhasePrograms, Trace, usage};
use rand::{Rng, SeedableRng};
use reports::{Configuration, Label, MemoryUse, PlacementMap};
use scenarios::{Model, Workload};
use sim::RandomDraws;

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
}

impl PlanMeasurement {
    /// Runs a plan `repeats` times, after a warm-up.
    ///
    /// # Errors
    /// The checkpoint does not fit the plan, or a device fails.
    pub(crate) fn run(&mut self, planned: &ResolvedPlan, checkpoint: &Checkpoint, repeats: u32) -> Result {
        let mut session = Session::new(planned.setup()?, checkpoint).map_err(run_error)?;
        let load = &planned.plan.workload;
        let prompts = random_prompts(&planned.model, load.batch, load.prompt_tokens, 1);
        // A short prompt visits every matrix, so that pages are touched and threads are awake
        // before anything counts.
        let warm: Vec<_> = prompts.iter().map(|prompt| prompt[..prompt.len().min(16)].to_vec()).collect();
        session.generate(&warm, load.output_tokens.min(2), Sampling::Greedy, |_| {}).or_failed()?;
        for _ in 0..repeats {
            let run = session.generate(&prompts, load.output_tokens, Sampling::Greedy, |_| {}).or_failed()?;
            self.traces.push(run.trace);
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
        let used = usage(machine, model, &plan.formats, placement, &programs, &plan.extent());
        let memory = MemoryUse::from_usage(machine, &used, |id| self.allocated.get(id.0).copied());
        let map = PlacementMap::from_placement(machine, placement);
        Configuration::from_traces(label, &predicted, &self.traces, memory, map).or_failed()
    }
}
