//! A model ready to run: load once, generate often.

use crate::checkpoint::Checkpoint;
use crate::engine::Engine;
use crate::error::Error;
use crate::gpu;
use crate::log::Log;
use crate::pass::{Pass, slots_of};
use crate::request::{Batching, Client, Event, Finish, Generation};
use crate::run::{Moment, Run};
use crate::sampling::{Sampler, Sampling};
use crate::sequence::Sequence;
use crate::service::Service;
use crate::setup::Setup;
use hwprofiles::Bytes;
use planner::Placement;
use scenarios::{Phase, Workload};
use std::sync::mpsc::Sender;
use std::time::Instant;

/// A placement on real devices, weights loaded.
pub struct Session {
    engine: Engine,
    /// Phase of the last pass, and of how many sequences of each micro-batch it has logits.
    last: Option<(Phase, Vec<usize>)>,
}

/// How a GPU's passes were enqueued: those whose tokens it chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnGpu {
    /// The machine's name for it.
    pub device: String,
    /// Passes whose kernels the host launched one by one.
    pub launched: u64,
    /// Passes that were replayed: one launch each.
    pub replayed: u64,
}

impl Session {
    /// Checks that `setup` can run and that `checkpoint` is of its model, allocates everything and loads the
    /// weights. The whole run's memory is allocated here, out of memories of the machine's capacities.
    ///
    /// # Errors
    /// [`Error::Refused`] for a setup that cannot run, [`Error::Device`] where a memory is too small or a core is
    /// not there, [`Error::Unmeasured`] for a rate that the trace needs, and those of reading files.
    pub fn new(setup: Setup, checkpoint: &Checkpoint) -> Result<Self, Error> {
        let machine = setup.machine.clone();
        let engine = Engine::new(setup, checkpoint).map_err(|error| gpu::named(error, &machine))?;
        Ok(Self { engine, last: None })
    }

    /// What it was made of.
    pub fn setup(&self) -> &Setup {
        &self.engine.setup
    }

    /// Bytes really allocated in each of the machine's memories, by index: what [`planner::usage`] counts.
    pub fn memory_used(&self) -> Vec<Bytes> {
        self.engine.store.used()
    }

    /// What a GPU did so far, where there is one.
    pub fn on_gpu(&self) -> Option<OnGpu> {
        let board = self.engine.board.as_ref()?;
        let (device, [launched, replayed]) = (board.device(), board.passes());
        Some(OnGpu { device: self.engine.setup.machine.device(device).name.clone(), launched, replayed })
    }

    /// Continues each of `prompts` (of equal length) by `output_tokens` tokens: prefill in the setup's chunks, then
    /// one decode step for each token but the first. An end-of-text token does not stop it: runs of one shape must
    /// be comparable. `on_tokens` hears the tokens of all sequences as soon as they are sampled.
    ///
    /// # Errors
    /// [`Error::Refused`] for prompts that are empty, of unequal length, too many or too long for the setup's
    /// extent, or with tokens outside the vocabulary; or a sampling that makes no sense. [`Error::Gpu`] where a GPU
    /// fails.
    pub fn generate(
        &mut self,
        prompts: &[Vec<u32>],
        output_tokens: u64,
        sampling: Sampling,
        on_tokens: impl FnMut(&[u32]),
    ) -> Result<Generation, Error> {
        self.generate_until(prompts, output_tokens, sampling, true, |_| false, on_tokens)
    }

    /// As [`Session::generate`], but the last step is that after which `ends`, asked between steps, says so of the tokens
    /// that were sampled last (none within the prompt). The trace lists tasks only where `tasks` are wanted: they take
    /// 16 bytes each while the run lasts.
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
    ) -> Result<Generation, Error> {
        let prompt_tokens = self.check(prompts, output_tokens)?;
        let (batch, chunk) = (self.engine.setup.extent.batch, self.engine.setup.extent.chunk);
        let parts = self.engine.setup.placement.pipelining.micro_batches;
        let steps = planner::steps(&Workload::new(prompts.len() as u64, prompt_tokens, output_tokens), chunk);
        let slots: Vec<_> = slots_of(prompts.len() as u64, batch, parts).collect();
        let mut sequences = Sequence::none(batch);
        for ((&slot, prompt), index) in slots.iter().zip(prompts).zip(0..) {
            sequences[slot] = Sequence { tokens: prompt.clone(), sampler: Sampler::new(sampling.of(index))? };
        }
        let (mut log, mut left) = (Log::new(&self.engine, if tasks { &steps } else { &[] }), steps.iter());
        let run = Run::new(&self.engine, sequences, Instant::now(), tasks);
        let conduct = |moment: &mut Moment<'_>, said: &Sender<Vec<u32>>| {
            log.note(moment, tasks);
            let tokens: Vec<_> = moment.sampled.iter().map(|&(_, token)| token).collect();
            let ended = ends(&tokens);
            if !tokens.is_empty() {
                // Nobody listens any more where the run's caller has gone; the tokens are in the sequences too.
                drop(said.send(tokens));
            }
            left.next().filter(|_| !ended).map(|step| Pass::uniform(step, batch, parts))
        };
        run.play(conduct, |tokens: Vec<u32>| on_tokens(&tokens));
        if let Some(error) = run.failure() {
            self.last = None;
            return Err(gpu::named(error.into(), &self.engine.setup.machine));
        }
        let steps = &steps[..log.passes()];
        let trace = log.trace(&self.engine, steps, tasks)?;
        let mut sequences = run.sequences.into_inner().expect("no lane has panicked");
        let new = |&slot: &usize| sequences[slot].tokens.split_off(prompt_tokens as usize);
        let tokens = slots.iter().map(new).collect();
        let last = steps.last().map(|step| (step.phase, Pass::uniform(step, batch, parts)));
        self.last =
            last.map(|(phase, pass)| (phase, pass.parts.iter().map(|part| part.ends.len()).collect()));
        Ok(Generation { tokens, trace })
    }

    /// Goes over to another placement, between two runs: what has the same home there stays where it is, KV caches with what
    /// is in them. A service goes on with its requests.
    ///
    /// # Errors
    /// [`Error::Refused`] for a placement that cannot run, whose micro-batches are others, or for which a memory is too
    /// small: then nothing has changed. Those of reading weights, which are to live elsewhere, from `checkpoint`: then
    /// nothing can be run any more. [`Error::Gpu`] likewise.
    pub fn follow(&mut self, placement: Placement, checkpoint: &Checkpoint) -> Result<(), Error> {
        self.last = None;
        let followed = self.engine.follow(placement, checkpoint);
        followed.map_err(|error| gpu::named(error, &self.engine.setup.machine))
    }

    /// A service for the requests of `client`, to be run by [`Session::serve`].
    ///
    /// # Errors
    /// [`Error::Refused`] for limits beyond the setup's extent, and for a scheduler that needs forecasts.
    pub fn service<C: Client>(&self, batching: Batching, client: C) -> Result<Service<C>, Error> {
        Service::new(&self.engine.setup, batching, client)
    }

    /// Answers the requests of `service`, each of its own length, as they come: prompts enter in chunks, beside those that
    /// decode or before them, as soon as there is a slot. `on` hears of everything, on this thread. Returns when all are
    /// answered, or between two passes where `pause`, asked there, says so; what was begun goes on with the next
    /// call, where nothing else has run meanwhile.
    ///
    /// # Errors
    /// [`Error::Gpu`] where a GPU fails: who ran is answered before with what there is, as [`Finish::Failed`]; who waited
    /// waits still.
    pub fn serve<C: Client>(
        &mut self,
        service: &mut Service<C>,
        pause: &(dyn Fn() -> bool + Sync),
        mut on: impl FnMut(Event),
    ) -> Result<(), Error> {
        let (lanes, devices) = (&self.engine.lanes, self.engine.setup.machine.devices.len());
        let origin = *service.origin.get_or_insert_with(Instant::now);
        let run = Run::new(&self.engine, std::mem::take(&mut service.sequences), origin, false);
        let mut last = None;
        let conduct = |moment: &mut Moment<'_>, said: &Sender<Event>| {
            let pass = service.conduct(moment, lanes, devices, pause, said);
            let rows = |pass: &Pass| pass.parts.iter().map(|part| part.ends.len()).collect();
            last = pass.as_ref().map(|pass| (pass.phase, rows(pass))).or(last.take());
            pass
        };
        run.play(conduct, &mut on);
        let failure = run.failure();
        service.sequences = run.sequences.into_inner().expect("no lane has panicked");
        self.last = last.filter(|_| failure.is_none());
        let Some(error) = failure else { return Ok(()) };
        service.end(Finish::Failed).into_iter().for_each(|answer| on(Event::Answered(answer)));
        Err(gpu::named(error.into(), &self.engine.setup.machine))
    }

    /// The logits of the last step run, `[sequence][vocab]`: those that chose its tokens. Empty before any run, and
    /// after one that failed.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn logits(&self) -> Result<Vec<Vec<f32>>, Error> {
        let Some((phase, rows)) = &self.last else { return Ok(Vec::new()) };
        let device = self.engine.setup.placement.head[0].device(*phase);
        let vocab = self.engine.setup.model.vocab;
        let logits = self.engine.store.logits(device, rows.iter().copied(), vocab, <[f32]>::to_vec);
        logits.map_err(|error| gpu::named(error.into(), &self.engine.setup.machine))
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
