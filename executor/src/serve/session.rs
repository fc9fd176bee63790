//! A model ready to run: loaded once, used for many generations.

use crate::batch::pass::{Pass, slots_of};
use crate::batch::sampling::{Sampler, Sampling};
use crate::batch::sequence::SlotSequence;
use crate::error::ExecutorError;
use crate::run::engine::RunEngine;
use crate::run::log::RunLog;
use crate::run::shared::{BetweenPasses, SharedRun, TaskTimes};
use crate::serve::request::{Batching, Client, FinishReason, GeneratedBatch, GenerationEvent};
use crate::serve::service::Service;
use crate::setup::run_setup::RunSetup;
use crate::weights::checkpoint::Checkpoint;
use hwprofiles::Bytes;
use planner::Placement;
use scenarios::{Phase, Workload};
use std::sync::mpsc::Sender;
use std::time::Instant;

/// A placement on real devices, weights loaded.
pub struct Session {
    engine: RunEngine,
    last: Option<LastPass>,
}

/// The last pass of a session, whose logits are still there.
struct LastPass {
    phase: Phase,
    /// By micro-batch: sequences with logits.
    rows: Vec<usize>,
}

impl LastPass {
    fn new(pass: &Pass) -> Self {
        Self { phase: pass.phase, rows: pass.parts.iter().map(|part| part.ends.len()).collect() }
    }
}

/// How many passes a GPU ran, of those whose tokens it chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuPassCounts {
    /// The machine's name for the GPU.
    pub device: String,
    /// Passes whose kernels the host launched one by one.
    pub launched: u64,
    /// Passes that were replayed with one launch each.
    pub replayed: u64,
}

impl Session {
    /// Checks that `setup` can run and that `checkpoint` is of its model, allocates all memory of
    /// the run out of memories of the machine's capacities, and loads the weights.
    ///
    /// # Errors
    /// [`ExecutorError::Refused`] for a setup that cannot run, [`ExecutorError::Device`] where a
    /// memory is too small or a core is missing, [`ExecutorError::Unmeasured`] for a rate that the
    /// trace needs, and errors of reading files.
    pub fn new(setup: RunSetup, checkpoint: &Checkpoint) -> Result<Self, ExecutorError> {
        let machine = setup.machine.clone();
        let engine = RunEngine::new(setup, checkpoint).map_err(|error| error.naming_gpu(&machine))?;
        Ok(Self { engine, last: None })
    }

    /// The setup that the session runs.
    pub fn setup(&self) -> &RunSetup {
        &self.engine.setup
    }

    /// Bytes allocated in each of the machine's memories, by index: what [`planner::usage`] counts.
    pub fn memory_used(&self) -> Vec<Bytes> {
        self.engine.store.used()
    }

    /// The passes that the GPU ran so far; `None` where the session has no GPU.
    pub fn gpu_passes(&self) -> Option<GpuPassCounts> {
        let gpu = self.engine.gpu.as_ref()?;
        let device = self.engine.setup.machine.device(gpu.device()).name.clone();
        Some(GpuPassCounts { device, launched: gpu.launched(), replayed: gpu.replayed() })
    }

    /// Continues each of `prompts` (of equal length) by `output_tokens` tokens: prefill in the
    /// setup's chunks, then one decode step for each token but the first. An end-of-text token does
    /// not stop it, so that runs of one shape are comparable. `on_tokens` gets the tokens of all
    /// sequences as soon as they are sampled.
    ///
    /// # Errors
    /// [`ExecutorError::Refused`] for prompts that are empty, of unequal length, too many or too
    /// long for the setup's extent, or with tokens outside the vocabulary, and for an impossible
    /// sampling. [`ExecutorError::Gpu`] where a GPU fails.
    pub fn generate(
        &mut self,
        prompts: &[Vec<u32>],
        output_tokens: u64,
        sampling: Sampling,
        on_tokens: impl FnMut(&[u32]),
    ) -> Result<GeneratedBatch, ExecutorError> {
        self.generate_until(prompts, output_tokens, sampling, true, |_| false, on_tokens)
    }

    /// As [`Session::generate`], but ends after the step for which `ends` returns true. It is
    /// called between steps with the tokens that were sampled last, none within the prompt. The
    /// trace lists tasks only where `tasks` is set: they take 16 bytes each while the run lasts.
    ///
    /// # Errors
    /// As [`Session::generate`].
    pub fn generate_until(
        &mut self,
        prompts: &[Vec<u32>],
        output_tokens: u64,
        sampling: Sampling,
        tasks: bool,
        mut ends: impl FnMut(&[u32]) -> bool + Send,
        mut on_tokens: impl FnMut(&[u32]),
    ) -> Result<GeneratedBatch, ExecutorError> {
        let prompt_tokens = self.check(prompts, output_tokens)?;
        if self.engine.setup.model.wiring.module_behind.is_some() {
            let wanted = "an MTP module reads its model's hidden states: run both in a SpeculativeSession";
            return Err(ExecutorError::refused(
                "model",
                format!("'{}'", self.engine.setup.model.name),
                wanted,
            ));
        }
        let (batch, chunk) = (self.engine.setup.extent.batch, self.engine.setup.extent.chunk);
        let parts = self.engine.setup.placement.pipelining.micro_batches;
        let steps = planner::steps(&Workload::new(prompts.len() as u64, prompt_tokens, output_tokens), chunk);
        let slots: Vec<_> = slots_of(prompts.len() as u64, batch, parts).collect();
        let mut sequences = SlotSequence::empty_slots(batch);
        for ((&slot, prompt), index) in slots.iter().zip(prompts).zip(0..) {
            let sampler = Sampler::new(sampling.for_sequence(index))?;
            sequences[slot] = SlotSequence::new(prompt.clone(), sampler);
        }
        let (mut log, mut left) = (RunLog::new(&self.engine, if tasks { &steps } else { &[] }), steps.iter());
        let times = if tasks { TaskTimes::Each } else { TaskTimes::None };
        let run = SharedRun::new(&self.engine, sequences, Instant::now(), times);
        let schedule = |state: &mut BetweenPasses<'_>, sender: &Sender<Vec<u32>>| {
            log.note(state, tasks);
            let tokens: Vec<_> = state.sampled.iter().map(|&(_, token)| token).collect();
            let ended = ends(&tokens);
            if !tokens.is_empty() {
                // Sending fails only where the run's caller is gone; the sequences have the tokens
                // too.
                drop(sender.send(tokens));
            }
            left.next().filter(|_| !ended).map(|step| Pass::uniform(step, batch, parts))
        };
        run.play(schedule, |tokens: Vec<u32>| on_tokens(&tokens));
        if let Some(error) = run.take_failure() {
            self.last = None;
            return Err(ExecutorError::from(error).naming_gpu(&self.engine.setup.machine));
        }
        let steps = &steps[..log.passes()];
        let trace = log.trace(&self.engine, steps, tasks)?;
        let mut sequences = run.sequences.into_inner().expect("no lane has panicked");
        let new = |&slot: &usize| sequences[slot].tokens.split_off(prompt_tokens as usize);
        let tokens = slots.iter().map(new).collect();
        self.last = steps.last().map(|step| LastPass::new(&Pass::uniform(step, batch, parts)));
        Ok(GeneratedBatch { tokens, trace })
    }

    /// Changes to another placement, between two runs. What keeps its home stays, KV caches with
    /// their contents, so a service goes on with its requests.
    ///
    /// # Errors
    /// [`ExecutorError::Refused`] for a placement that cannot run, whose number of micro-batches
    /// differs, or for which a memory is too small: then nothing has changed. Errors of reading
    /// weights that move from `checkpoint`, and [`ExecutorError::Gpu`]: then the session cannot run
    /// any more.
    pub fn replace_placement(
        &mut self,
        placement: Placement,
        checkpoint: &Checkpoint,
    ) -> Result<(), ExecutorError> {
        self.last = None;
        let replaced = self.engine.replace_placement(placement, checkpoint);
        replaced.map_err(|error| error.naming_gpu(&self.engine.setup.machine))
    }

    /// A service for the requests of `client`, to be run by [`Session::serve`].
    ///
    /// # Errors
    /// [`ExecutorError::Refused`] for limits beyond the setup's extent, and for a scheduler that
    /// needs forecasts.
    pub fn service<C: Client>(&self, batching: Batching, client: C) -> Result<Service<C>, ExecutorError> {
        Service::new(&self.engine.setup, batching, client)
    }

    /// Answers the requests of `service`, each of its own length, as they arrive. Prompts enter in
    /// chunks, beside decodes or before them, as soon as there is a slot. `on` gets every event, on
    /// this thread. Returns when all requests are finished, or between two passes where `pause`
    /// returns true. The next call continues what was begun, if nothing else has run in between.
    ///
    /// # Errors
    /// [`ExecutorError::Gpu`] where a GPU fails. Before that, running requests finish with the
    /// tokens they have, as [`FinishReason::Failed`]; waiting requests keep waiting.
    pub fn serve<C: Client>(
        &mut self,
        service: &mut Service<C>,
        pause: &(dyn Fn() -> bool + Sync),
        mut on: impl FnMut(GenerationEvent),
    ) -> Result<(), ExecutorError> {
        let engine = &self.engine;
        let origin = *service.origin.get_or_insert_with(Instant::now);
        let run = SharedRun::new(engine, std::mem::take(&mut service.sequences), origin, TaskTimes::Busy);
        let mut last = None;
        let schedule = |state: &mut BetweenPasses<'_>, events: &Sender<GenerationEvent>| {
            // Sending fails only where the caller of the run is gone.
            let send = |event| drop(events.send(event));
            let pass = service.next_pass(state, engine, pause, &send);
            last = pass.as_ref().map(LastPass::new).or(last.take());
            pass
        };
        run.play(schedule, &mut on);
        let failure = run.take_failure();
        service.sequences = run.sequences.into_inner().expect("no lane has panicked");
        self.last = last.filter(|_| failure.is_none());
        let Some(error) = failure else { return Ok(()) };
        let results = service.end_running(FinishReason::Failed);
        results.into_iter().for_each(|result| on(GenerationEvent::Finished(result)));
        Err(ExecutorError::from(error).naming_gpu(&self.engine.setup.machine))
    }

    /// The logits of the last step run, `[sequence][vocab]`: those that chose its tokens. Empty
    /// before any run, and after one that failed.
    ///
    /// # Errors
    /// [`ExecutorError::Gpu`] where they cannot be read back.
    pub fn logits(&self) -> Result<Vec<Vec<f32>>, ExecutorError> {
        let Some(LastPass { phase, rows }) = &self.last else { return Ok(Vec::new()) };
        let device = self.engine.setup.placement.head[0].device(*phase);
        let vocab = self.engine.setup.model.vocab;
        let logits = self.engine.store.logits(device, rows.iter().copied(), vocab, <[f32]>::to_vec);
        logits.map_err(|error| ExecutorError::from(error).naming_gpu(&self.engine.setup.machine))
    }

    /// Notes that `pass` was the last one that was run.
    pub(super) fn set_last(&mut self, pass: &Pass) {
        self.last = Some(LastPass::new(pass));
    }

    /// What its lanes run on.
    pub(super) fn engine(&self) -> &RunEngine {
        &self.engine
    }

    /// The common length of the prompts, where they fit.
    pub(super) fn check(&self, prompts: &[Vec<u32>], output_tokens: u64) -> Result<u64, ExecutorError> {
        let (extent, model) = (&self.engine.setup.extent, &self.engine.setup.model);
        let length = prompts.first().map_or(0, Vec::len);
        if length == 0 {
            return Err(ExecutorError::refused(
                "prompts",
                "empty",
                "at least one sequence of at least one token",
            ));
        }
        if let Some(other) = prompts.iter().find(|prompt| prompt.len() != length) {
            let wanted = format!("as long as the first, {length} tokens");
            return Err(ExecutorError::refused("prompts", format!("{} tokens", other.len()), wanted));
        }
        if prompts.len() as u64 > extent.batch {
            let wanted = format!("at most the {} that were allocated for", extent.batch);
            return Err(ExecutorError::refused("prompts", format!("{} sequences", prompts.len()), wanted));
        }
        if output_tokens == 0 {
            return Err(ExecutorError::refused("output_tokens", 0, "at least 1"));
        }
        // The last output token never enters the cache.
        if (length as u64).saturating_add(output_tokens - 1) > extent.context {
            let wanted = format!("together at most the {} that were allocated for", extent.context + 1);
            return Err(ExecutorError::refused(
                "prompt and output tokens",
                (length as u64).saturating_add(output_tokens),
                wanted,
            ));
        }
        if let Some(token) = prompts.iter().flatten().find(|&&token| u64::from(token) >= model.vocab) {
            return Err(ExecutorError::refused(
                "prompts",
                format!("token {token}"),
                format!("below {}", model.vocab),
            ));
        }
        Ok(length as u64)
    }
}
