//! A model ready to run: load once, generate often.

use crate::checkpoint::Checkpoint;
use crate::engine::Engine;
use crate::error::Error;
use crate::run::Run;
use crate::sampling::{Sampler, Sampling};
use crate::setup::Setup;
use hwprofiles::Bytes;
use planner::Trace;
use scenarios::{Phase, Workload};

/// A placement on real devices, weights loaded.
pub struct Session {
    engine: Engine,
    /// Phase of the last step run, and its sequences.
    last: Option<(Phase, usize)>,
}

/// What a run yields.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The output tokens of each sequence.
    pub tokens: Vec<Vec<u32>>,
    /// What happened when.
    pub trace: Trace,
}

impl Session {
    /// Checks that `setup` can run and that `checkpoint` is of its model, allocates everything and loads the
    /// weights. The whole run's memory is allocated here, out of memories of the machine's capacities.
    ///
    /// # Errors
    /// [`Error::Refused`] for a setup that cannot run, [`Error::Device`] where a memory is too small or a core is
    /// not there, [`Error::Unmeasured`] for a rate that the trace needs, and those of reading files.
    pub fn new(setup: Setup, checkpoint: &Checkpoint) -> Result<Self, Error> {
        Ok(Self { engine: Engine::new(setup, checkpoint)?, last: None })
    }

    /// What it was made of.
    pub fn setup(&self) -> &Setup {
        &self.engine.setup
    }

    /// Bytes really allocated in each of the machine's memories, by index: what [`planner::usage`] counts.
    pub fn memory_used(&self) -> Vec<Bytes> {
        self.engine.store.used()
    }

    /// Continues each of `prompts` (of equal length) by `output_tokens` tokens: prefill in the setup's chunks, then
    /// one decode step for each token but the first. An end-of-text token does not stop it: runs of one shape must
    /// be comparable. `on_tokens` hears the tokens of all sequences as soon as they are sampled.
    ///
    /// # Errors
    /// [`Error::Refused`] for prompts that are empty, of unequal length, too many or too long for the setup's
    /// extent, or with tokens outside the vocabulary; or a sampling that makes no sense.
    pub fn generate(
        &mut self,
        prompts: &[Vec<u32>],
        output_tokens: u64,
        sampling: Sampling,
        on_tokens: impl FnMut(&[u32]),
    ) -> Result<Generation, Error> {
        let prompt_tokens = self.check(prompts, output_tokens)?;
        let sampler = Sampler::new(sampling)?;
        let chunk = self.engine.setup.extent.chunk;
        let steps = planner::steps(&Workload::new(prompts.len() as u64, prompt_tokens, output_tokens), chunk);
        let run = Run::new(&self.engine, &steps, prompts.to_vec(), sampler);
        let records = run.play(on_tokens);
        let trace = run.trace(&records)?;
        self.last = steps.last().map(|step| (step.phase, prompts.len()));
        let history = run.history.into_inner().expect("no lane has panicked");
        let tokens = history.into_iter().map(|mut tokens| tokens.split_off(prompt_tokens as usize)).collect();
        Ok(Generation { tokens, trace })
    }

    /// The logits of the last step run, `[sequence][vocab]`: those that chose its tokens. Empty before any run.
    pub fn logits(&self) -> Vec<Vec<f32>> {
        let Some((phase, sequences)) = self.last else { return Vec::new() };
        let device = self.engine.setup.placement.head[0].device(phase);
        self.engine.store.logits(device, sequences as u64, self.engine.setup.model.vocab, <[f32]>::to_vec)
    }

    /// The prompts' common length, where they fit.
    fn check(&self, prompts: &[Vec<u32>], output_tokens: u64) -> Result<u64, Error> {
        let (extent, model) = (&self.engine.setup.extent, &self.engine.setup.model);
        let length = prompts.first().map_or(0, Vec::len);
        if length == 0 {
            return Err(Error::refused("prompts", "empty", "at least one sequence of at least one token"));
        }
        if let Some(other) = prompts.iter().find(|prompt| prompt.len() != length) {
            let wanted = format!("as long as the first, {length} tokens");
            return Err(Error::refused("prompts", format!("{} tokens", other.len()), wanted));
        }
        if prompts.len() as u64 > extent.batch {
            let wanted = format!("at most the {} that were allocated for", extent.batch);
            return Err(Error::refused("prompts", format!("{} sequences", prompts.len()), wanted));
        }
        if output_tokens == 0 {
            return Err(Error::refused("output_tokens", 0, "at least 1"));
        }
        // The last output token never enters the cache.
        if (length as u64).saturating_add(output_tokens - 1) > extent.context {
            let wanted = format!("together at most the {} that were allocated for", extent.context);
            return Err(Error::refused(
                "prompt and output tokens",
                (length as u64).saturating_add(output_tokens),
                wanted,
            ));
        }
        if let Some(token) = prompts.iter().flatten().find(|&&token| u64::from(token) >= model.vocab) {
            return Err(Error::refused(
                "prompts",
                format!("token {token}"),
                format!("below {}", model.vocab),
            ));
        }
        Ok(length as u64)
    }
}
