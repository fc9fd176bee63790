//! A session of the executor on a plan. Its devices are watched: where one becomes slower than
//! planned, the caller hears of it, and another placement is followed if that is allowed and worth
//! moving for.

use super::answer_file::is_whole;
use super::batch::{BatchAnswers, BatchClient, PassSpan, executor_request};
use super::batch_file::BatchRequest;
use super::replan::better_placement;
use super::text_stream::TextStream;
use crate::error::{Error, OrError, Result};
use crate::pipeline::ResolvedPlan;
use crate::progress::{ProgressEvent, ProgressFn};
use executor::{
    Batching, Checkpoint, Client, GeneratedBatch, GenerationEvent, GenerationResult, GpuPassCounts,
    PassReport, PromptChunk, RunSetup, Sampling, Service, Session, Tokenizer,
};
use hwprofiles::{DeviceId, Machine, Ratio, Seconds};
use planner::{Drift, PhasePrograms};
use scenarios::Scheduler;
use sim::serving::{Batch, PlanPrices, PrefillChunk};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The shortest time between two comparisons of passes with the plan. A comparison takes time from
/// the devices.
const COMPARED_EVERY: Duration = Duration::from_millis(20);

impl ResolvedPlan {
    /// What the executor needs to run the plan.
    ///
    /// ```
    /// use fulcrum::{Checkpoint, Sampling, Session};
    /// let scenario = "{machine: example-loopback, model: fulcrum-tiny,
    ///     workload: {batch: 1, prompt_tokens: 8, output_tokens: 4}}";
    /// let planned = fulcrum::plan(&fulcrum::parse_scenario(scenario)?)?;
    /// let folder = tempfile::tempdir()?;
    /// let model = folder.path().join("model");
    /// fulcrum::init_model(&planned.model, &model, 1)?;
    /// let mut session = Session::new(planned.setup()?, &Checkpoint::open(&model)?)?;
    /// let made = session.generate(&[vec![1, 2, 3]], 4, Sampling::Greedy, |_| {})?;
    /// assert_eq!(made.tokens[0].len(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The plan has a draft, or the executor cannot run it.
    pub fn setup(&self) -> Result<RunSetup> {
        self.require_no_draft("this run")?;
        RunSetup::from_plan(self.machine.clone(), self.model.clone(), &self.plan).or_input()
    }
}

/// An executor's error by its kind: a GPU that fails is the world's failure, and other errors are
/// about plans, prompts and files.
pub(crate) fn run_error(error: executor::ExecutorError) -> Error {
    match error {
        executor::ExecutorError::Gpu { .. } => Error::failed(error),
        _ => Error::input(error),
    }
}

/// How a plan is run.
#[derive(Clone, Copy)]
pub struct LiveOptions<'l> {
    /// Whether another placement is followed where a device becomes slow.
    pub replan: bool,
    /// Set by the caller to end the run between two steps.
    pub interrupted: &'l AtomicBool,
    /// Hears of slow devices and of requests that are refused.
    pub progress: &'l ProgressFn<'l>,
}

/// How a batch of prompts is continued.
#[derive(Debug, Clone, Copy)]
pub struct GenerationOptions {
    /// The most tokens of each answer.
    pub output_tokens: u64,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Whether the trace lists the tasks of each step.
    pub record_tasks: bool,
    /// Whether a GPU first prepares its products, by a run whose tokens nobody hears: then the
    /// times are those of a server at work. The session of a draft does not.
    pub prepares: bool,
}

/// What ends the answer of a single prompt.
pub struct TextEnds<'t> {
    /// Makes text of tokens.
    pub tokenizer: &'t Tokenizer,
    /// The texts that end the answer.
    pub stops: &'t [String],
    /// The tokens that end the answer.
    pub tokens: Vec<u32>,
}

/// The most tokens that are generated before anything counts. A GPU's second decode pass is
/// recorded as a graph.
pub(super) const WARMING_TOKENS: u64 = 3;

/// The prompts of a run before anything counts. A short one visits every matrix, so that pages are
/// touched and threads are awake. A GPU also prepares its products for each number of rows, so it
/// gets prompts of the length that is measured.
pub(super) fn warming_prompts(planned: &ResolvedPlan, prompts: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let most = if planned.has_gpu() { usize::MAX } else { 16 };
    prompts.iter().map(|prompt| prompt[..prompt.len().min(most)].to_vec()).collect()
}

/// A session with the plan and the weights that it was made of.
pub struct LiveSession<'l> {
    pub(crate) planned: &'l ResolvedPlan,
    checkpoint: &'l Checkpoint,
    pub(crate) session: Session,
    pub(crate) options: LiveOptions<'l>,
}

impl<'l> LiveSession<'l> {
    /// Loads the weights of `checkpoint` where `planned` places them.
    ///
    /// # Errors
    /// The checkpoint is of another model, or a device or its memory is missing.
    pub fn new(
        planned: &'l ResolvedPlan,
        checkpoint: &'l Checkpoint,
        options: LiveOptions<'l>,
    ) -> Result<Self> {
        let session = Session::new(planned.setup()?, checkpoint).map_err(run_error)?;
        Ok(Self { planned, checkpoint, session, options })
    }

    /// Continues `prompts`, all of one length, until every answer has its tokens; a single prompt
    /// also until `ends` end its answer. `on_token` hears the tokens of the first answer.
    ///
    /// # Errors
    /// The prompts do not fit the plan, or a device fails.
    pub fn generate(
        &mut self,
        prompts: &[Vec<u32>],
        options: GenerationOptions,
        ends: Option<TextEnds<'_>>,
        mut on_token: impl FnMut(u32),
    ) -> Result<GeneratedBatch> {
        let GenerationOptions { output_tokens, sampling, record_tasks, prepares } = options;
        if prepares && self.planned.has_gpu() {
            let (prompts, few) = (warming_prompts(self.planned, prompts), output_tokens.min(WARMING_TOKENS));
            self.session.generate(&prompts, few, Sampling::Greedy, |_| {}).map_err(run_error)?;
        }
        let interrupted = self.options.interrupted;
        let mut ends = ends.map(|ends| (TextStream::new(ends.tokenizer, ends.stops), ends.tokens));
        let is_ended = |tokens: &[u32]| {
            if let (Some((stream, end_tokens)), [token]) = (&mut ends, tokens) {
                stream.add(*token);
                if stream.is_stopped() || end_tokens.contains(token) {
                    return true;
                }
            }
            interrupted.load(Ordering::Acquire)
        };
        let on_tokens = |tokens: &[u32]| on_token(tokens[0]);
        let generation = self
            .session
            .generate_until(prompts, output_tokens, sampling, record_tasks, is_ended, on_tokens)
            .map_err(run_error)?;
        self.note_passes();
        Ok(generation)
    }

    /// Answers `requests`, which are all there from the beginning. `on_token` hears every token,
    /// `on_answer` every answer as soon as it has come to its own end. Where the run fails, the
    /// answers are those until then.
    ///
    /// # Errors
    /// The requests do not fit the plan.
    pub fn answer(
        &mut self,
        requests: &[BatchRequest],
        ends: &[u32],
        tokenizer: Option<&Tokenizer>,
        mut on_token: impl FnMut(u32),
        mut on_answer: impl FnMut(&GenerationResult),
    ) -> Result<BatchAnswers> {
        let extent = self.planned.plan.extent();
        let batching = Batching {
            max_num_seqs: extent.batch,
            max_num_batched_tokens: extent.batch * extent.chunk,
            prefill_first: false,
            scheduler: Scheduler::Fcfs,
        };
        let client = BatchClient::new(requests, ends, tokenizer);
        let mut service = self.session.service(batching, client).or_input()?;
        let (mut answers, mut passes) = (Vec::new(), Vec::new());
        let progress = self.options.progress;
        let served = self.run_service(&mut service, |event| match event {
            GenerationEvent::Token { token, .. } => on_token(token),
            GenerationEvent::Finished(answer) => {
                if is_whole(&answer) {
                    on_answer(&answer);
                }
                answers.push(answer);
            }
            GenerationEvent::PassDone(made) => passes.push(PassSpan::new(&made)),
            GenerationEvent::Refused { reason, .. } => progress(ProgressEvent::Note(&reason.to_string())),
            GenerationEvent::Cancelled { .. } => {}
        });
        answers.extend(service.interrupt());
        answers.sort_by_key(|answer| answer.id);
        Ok(BatchAnswers { answers, passes, failure: served.err() })
    }

    /// Answers the requests of `service` until none is left or the run is interrupted; `on_event`
    /// hears of everything. Where a device fails, the requests that ran have been answered as far
    /// as they came.
    pub(crate) fn run_service<C: Client>(
        &mut self,
        service: &mut Service<C>,
        mut on_event: impl FnMut(GenerationEvent),
    ) -> Result {
        let (planned, LiveOptions { replan, interrupted, progress }) = (self.planned, self.options);
        let mut drift = Drift::new(planned.machine.devices.len());
        let mut placement = planned.placement.clone();
        loop {
            let programs = PhasePrograms::lower(&planned.machine, &planned.model, &placement).or_input()?;
            let prices = RefCell::new(PlanPrices::new(planned.cost_model(), &programs));
            let (paused, mut next, mut compared) = (AtomicBool::new(false), None, Duration::ZERO);
            let pause = || interrupted.load(Ordering::Acquire) || paused.load(Ordering::Acquire);
            let served = self.session.serve(service, &pause, |event| {
                if let GenerationEvent::PassDone(made) = &event
                    && made.end >= compared + COMPARED_EVERY
                {
                    compared = made.end;
                    let changed = changed_devices(&mut prices.borrow_mut(), &mut drift, made);
                    for &device in &changed {
                        let note = speed_note(&planned.machine, device, &drift, made.end);
                        progress(ProgressEvent::Note(&note));
                    }
                    if replan && !changed.is_empty() {
                        next = better_placement(planned, &placement, &drift.slowdown());
                        paused.store(next.is_some(), Ordering::Release);
                    }
                }
                on_event(event);
            });
            served.or_failed()?;
            let Some(found) = next.filter(|_| !interrupted.load(Ordering::Acquire)) else {
                self.note_passes();
                return Ok(());
            };
            progress(ProgressEvent::Note(&found.to_string()));
            self.session.replace_placement(found.placement.clone(), self.checkpoint).or_failed()?;
            placement = found.placement;
        }
    }

    /// Tells how a GPU ran its passes, where there is one.
    fn note_passes(&self) {
        if let Some(GpuPassCounts { device, launched, replayed }) = self.session.gpu_passes() {
            let note = format!("'{device}': {replayed} passes replayed as graphs, {launched} in launches");
            (self.options.progress)(ProgressEvent::Note(&note));
        }
    }
}

/// Refuses a request that does not fit the plan.
///
/// # Errors
/// The prompt and the answer are longer than the plan's context, or a token is none of the model's.
pub fn check_request(planned: &ResolvedPlan, request: &BatchRequest, ends: &[u32]) -> Result {
    let (context, vocab) = (planned.plan.extent().context, planned.model.vocab);
    executor::check_request(&executor_request(0, request, ends), context, vocab).or_input()
}

/// Compares the time of each device in a pass with the plan: the devices that have become slow, or
/// as fast as planned again.
fn changed_devices(prices: &mut PlanPrices<'_>, drift: &mut Drift, made: &PassReport) -> Vec<DeviceId> {
    let chunk = |chunk: &PromptChunk| PrefillChunk { new: chunk.new_tokens, past: chunk.past_tokens };
    let chunks: Vec<_> = made.entered.iter().map(chunk).collect();
    let PassReport { decodes, decode_tokens, sampled, .. } = *made;
    // A device without a measured rate cannot be planned, so it was refused before.
    let Ok(planned) = prices.device_times(&Batch { chunks: &chunks, decodes, decode_tokens, sampled }) else {
        return vec![];
    };
    let times = planned.iter().zip(&made.busy).enumerate();
    let devices = times.map(|(device, (&planned, busy))| (DeviceId(device), planned, busy.as_secs_f64()));
    let changed = devices
        .filter(|&(device, planned, busy)| drift.observe(device, planned, Seconds::new(busy)).is_some());
    changed.map(|(device, ..)| device).collect()
}

/// A sentence about the speed of a device.
fn speed_note(machine: &Machine, device: DeviceId, drift: &Drift, at: Duration) -> String {
    let (name, at) = (&machine.device(device).name, Seconds::new(at.as_secs_f64()));
    let times = drift.slowdown()[device.0];
    if times == Ratio::ONE {
        return format!("at {at}: '{name}' is as fast as planned again");
    }
    let times = times.get();
    format!(
        "at {at}: '{name}' takes {times:.1} times as long as planned: does another process use its cores?"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{parse_scenario, plan};

    /// A device that measured times show to be slow, without anything that slows it down.
    #[test]
    fn a_device_that_passes_show_to_be_slow_is_noticed() {
        let scenario = "{machine: example-loopback, model: fulcrum-tiny,
            workload: {batch: 2, prompt_tokens: 64, output_tokens: 256}}";
        let planned = plan(&parse_scenario(scenario).expect("valid")).expect("a plan");
        let programs =
            PhasePrograms::lower(&planned.machine, &planned.model, &planned.placement).expect("it runs");
        let mut prices = PlanPrices::new(planned.cost_model(), &programs);
        let batch = Batch { chunks: &[], decodes: 2, decode_tokens: 200, sampled: 2 };
        let busy = prices.device_times(&batch).expect("priced");
        let at_work = busy.iter().position(|&busy| busy > Seconds::ZERO).expect("a device works");
        let made = |slower: f64| PassReport {
            phase: scenarios::Phase::Decode,
            begin: Duration::ZERO,
            end: Duration::ZERO,
            busy: busy.iter().map(|busy| Duration::from_secs_f64(busy.get() * slower)).collect(),
            entered: vec![],
            decodes: 2,
            decode_tokens: 200,
            sampled: 2,
            running: 2,
            cached_tokens: 200,
        };
        let mut drift = Drift::new(busy.len());
        let mut changed = |slower: f64| {
            let passes = (0..30).flat_map(|_| changed_devices(&mut prices, &mut drift, &made(slower)));
            passes.collect::<Vec<_>>()
        };
        assert_eq!(changed(1.1), []);
        let slow = changed(3.0);
        assert!(slow.contains(&DeviceId(at_work)), "{slow:?}");
        assert_eq!(changed(3.0), [], "once is enough");
        assert_eq!(changed(1.0).len(), slow.len());
    }
}
