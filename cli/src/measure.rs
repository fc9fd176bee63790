//! A plan run for real, beside what was predicted.

use crate::exit::{Failure, Outcome, Sort};
use crate::pipeline::Planned;
use executor::{Checkpoint, Sampling, Session};
use hwprofiles::Bytes;
use planner::{Programs, Trace, usage};
use rand::{Rng, SeedableRng};
use reports::{Configuration, Label, MemoryUse, PlacementMap};
use scenarios::{Model, Workload};
use sim::Draws;

/// Prompts of random tokens: random data, because zeros run faster than real ones.
pub fn random_prompts(model: &Model, batch: u64, tokens: u64, seed: u64) -> Vec<Vec<u32>> {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut prompt = || (0..tokens).map(|_| (random.next_u64() % model.vocab) as u32).collect();
    (0..batch).map(|_| prompt()).collect()
}

/// What a configuration asks.
pub fn label(name: String, placement: String, load: &Workload) -> Label {
    let Workload { batch, prompt_tokens, output_tokens, .. } = *load;
    Label { name, placement, batch, prompt_tokens, output_tokens }
}

/// What was measured of a plan so far.
#[derive(Debug, Default)]
pub struct Measured {
    traces: Vec<Trace>,
    /// By memory, what the last session allocated.
    allocated: Vec<Bytes>,
}

impl Measured {
    /// Runs a plan `repeats` times more, after a warm-up.
    pub fn visit(&mut self, planned: &Planned, checkpoint: &Checkpoint, repeats: u32) -> Outcome {
        let mut session = Session::new(planned.setup()?, checkpoint).map_err(Failure::of_run)?;
        let load = &planned.plan.workload;
        let prompts = random_prompts(&planned.model, load.batch, load.prompt_tokens, 1);
        // Pages are touched and threads awake before anything counts: a short prompt visits every matrix.
        let warm: Vec<_> = prompts.iter().map(|prompt| prompt[..prompt.len().min(16)].to_vec()).collect();
        session.generate(&warm, load.output_tokens.min(2), Sampling::Greedy, |_| {}).or_failed()?;
        for _ in 0..repeats {
            let run = session.generate(&prompts, load.output_tokens, Sampling::Greedy, |_| {}).or_failed()?;
            self.traces.push(run.trace);
        }
        self.allocated = session.memory_used();
        Ok(())
    }

    /// Joins it with what was predicted.
    pub fn compare(&self, planned: &Planned, label: Label) -> Outcome<Configuration> {
        let predicted = planned.simulate(Draws::default())?;
        let Planned { machine, model, placement, plan, .. } = planned;
        let programs = Programs::lower(machine, model, placement).or_failed()?;
        let used = usage(machine, model, &plan.formats, placement, &programs, &plan.extent());
        let memory = MemoryUse::of(machine, &used, |id| self.allocated.get(id.0).copied());
        let map = PlacementMap::of(machine, placement);
        Configuration::of(label, &predicted, &self.traces, memory, map).or_failed()
    }
}
