//! Requests that other threads send while those before them are answered: what a server needs.

use super::batch::executor_request;
use super::batch_file::BatchRequest;
use super::planned_clock::PlannedClock;
use super::session::LiveSession;
use super::text_stream::TextStream;
use crate::error::{OrError, Result};
use executor::{
    Batching, Client, GenerationEvent, GenerationRequest, GenerationResult, PassReport, PromptChunk,
    TokenLogprobs, Tokenizer,
};
use planner::{CostModel, PhasePrograms};
use scenarios::{Phase, Scheduler};
use sim::serving::{Batch, PlanPrices, PrefillChunk, StepPrices};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two passes that are priced. Pricing takes time from the devices.
const PRICED_EVERY: Duration = Duration::from_millis(20);
/// Batches whose prices are remembered: a server's memory must not grow with its requests.
const MOST_REMEMBERED: u32 = 256;

/// Takes what is computed for a request. It is called by the threads of the session.
pub trait AnswerSink: Send + Sync {
    /// Takes the next event. Nothing follows [`AnswerEvent::Finished`] and
    /// [`AnswerEvent::Refused`]. A sink that is dropped before either gets no answer: the session
    /// has failed.
    fn send(&self, event: AnswerEvent);

    /// Whether nobody wants the answer any more. The request is then dropped between two passes.
    fn is_closed(&self) -> bool;
}

/// What becomes of a request.
#[derive(Debug)]
pub enum AnswerEvent {
    /// It has one more token.
    Token {
        /// The token.
        token: u32,
        /// Its log-probability, where that is wanted.
        logprobs: Option<TokenLogprobs>,
    },
    /// It is finished.
    Finished(GenerationResult),
    /// It can never be answered: why.
    Refused(String),
}

/// A request with the place for its answer.
pub struct OnlineRequest {
    /// The request.
    pub request: BatchRequest,
    /// The tokens that end the answer.
    pub ends: Vec<u32>,
    /// Whether log-probabilities are wanted, and of how many of the most probable tokens.
    pub logprobs: Option<usize>,
    /// When it arrived.
    pub arrived: Instant,
    /// Takes the answer.
    pub sink: Arc<dyn AnswerSink>,
}

/// Times of a request, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerTimes {
    /// From its arrival to its first token.
    pub ttft: f64,
    /// From its first token to its last, for each token but the first; `None` for a single token.
    pub tpot: Option<f64>,
}

/// What happens while requests are answered.
#[derive(Debug)]
pub enum OnlineEvent<'e> {
    /// A request is finished.
    Finished {
        /// The answer.
        answer: &'e GenerationResult,
        /// As measured.
        measured: AnswerTimes,
        /// As measured, but with every pass as long as the plan says.
        predicted: AnswerTimes,
    },
    /// A request was refused.
    Refused,
    /// A request was dropped, because nobody wanted its answer.
    Cancelled,
    /// A pass was made.
    PassDone {
        /// The pass.
        report: &'e PassReport,
        /// Seconds that the plan says. Not every pass is priced: those between two priced ones are
        /// taken as far from the plan as the one before them.
        predicted: f64,
    },
}

impl LiveSession<'_> {
    /// Answers the requests of `requests` as they come, until their senders are gone and all are
    /// answered, or the run is interrupted. `on` hears of everything, on this thread.
    ///
    /// # Errors
    /// A device fails. Running requests are then finished as failed, and the sinks of waiting ones
    /// are dropped.
    pub fn answer_online(
        &mut self,
        requests: Receiver<OnlineRequest>,
        tokenizer: Option<&Tokenizer>,
        mut on: impl FnMut(OnlineEvent<'_>),
    ) -> Result {
        let (planned, extent) = (self.planned, self.planned.plan.extent());
        let batching = Batching {
            max_num_seqs: extent.batch,
            max_num_batched_tokens: extent.batch * extent.chunk,
            prefill_first: false,
            scheduler: Scheduler::Fcfs,
        };
        let active = ActiveSinks::default();
        let origin = Instant::now();
        let client = OnlineClient {
            requests,
            held: None,
            origin,
            next: 0,
            active: active.clone(),
            tokenizer,
            streams: BTreeMap::new(),
        };
        let mut service = self.session.service(batching, client).or_input()?.counting_from(origin);
        let programs =
            PhasePrograms::lower(&planned.machine, &planned.model, &planned.placement).or_input()?;
        let mut prices = SampledPrices::new(planned.cost_model(), &programs);
        let (mut clock, mut finished) = (PlannedClock::default(), Vec::new());
        let served = self.run_service(&mut service, |event| match event {
            GenerationEvent::Token { id, token, logprobs } => {
                active.send(id, AnswerEvent::Token { token, logprobs });
            }
            GenerationEvent::Finished(answer) => {
                active.end(answer.id, Some(AnswerEvent::Finished(answer.clone())));
                finished.push(answer);
            }
            GenerationEvent::Refused { id, reason } => {
                active.end(id, Some(AnswerEvent::Refused(reason.to_string())));
                on(OnlineEvent::Refused);
            }
            GenerationEvent::Cancelled { id } => {
                active.end(id, None);
                on(OnlineEvent::Cancelled);
            }
            GenerationEvent::PassDone(report) => {
                let predicted = prices.seconds(&report);
                clock.add(report.begin, report.end, predicted);
                for answer in finished.drain(..) {
                    on(finished_event(&answer, &clock));
                }
                on(OnlineEvent::PassDone { report: &report, predicted });
            }
        });
        for answer in service.interrupt() {
            active.end(answer.id, Some(AnswerEvent::Finished(answer)));
        }
        served
    }
}

fn finished_event<'e>(answer: &'e GenerationResult, clock: &PlannedClock) -> OnlineEvent<'e> {
    let times = |seconds: &dyn Fn(Duration, Duration) -> f64| AnswerTimes {
        ttft: seconds(answer.arrival, answer.first_token),
        tpot: match answer.tokens.len() {
            0 | 1 => None,
            count => Some(seconds(answer.first_token, answer.last_token) / (count - 1) as f64),
        },
    };
    let measured = times(&|from, until| until.saturating_sub(from).as_secs_f64());
    let predicted = times(&|from, until| clock.seconds_between(from, until));
    OnlineEvent::Finished { answer, measured, predicted }
}

/// The sinks of the requests that are not finished, by number. The thread that makes passes asks
/// them, and the thread of the caller sends to them.
#[derive(Clone, Default)]
struct ActiveSinks(Arc<Mutex<BTreeMap<u64, Arc<dyn AnswerSink>>>>);

impl ActiveSinks {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn AnswerSink>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, id: u64, event: AnswerEvent) {
        if let Some(sink) = self.all().get(&id) {
            sink.send(event);
        }
    }

    fn end(&self, id: u64, event: Option<AnswerEvent>) {
        let sink = self.all().remove(&id);
        if let (Some(sink), Some(event)) = (sink, event) {
            sink.send(event);
        }
    }
}

/// A client of the executor whose requests come from a channel.
struct OnlineClient<'a> {
    requests: Receiver<OnlineRequest>,
    /// The request that ended the last wait.
    held: Option<OnlineRequest>,
    origin: Instant,
    next: u64,
    active: ActiveSinks,
    tokenizer: Option<&'a Tokenizer>,
    /// The texts of the answers that a text may stop.
    streams: BTreeMap<u64, TextStream<&'a Tokenizer>>,
}

impl Client for OnlineClient<'_> {
    fn next(&mut self) -> Option<GenerationRequest> {
        let online = self.held.take().or_else(|| self.requests.try_recv().ok())?;
        let OnlineRequest { request, ends, logprobs, arrived, sink } = online;
        let id = self.next;
        self.next += 1;
        self.active.all().insert(id, sink);
        if let (Some(tokenizer), false) = (self.tokenizer, request.stops.is_empty()) {
            self.streams.insert(id, TextStream::new(tokenizer, &request.stops));
        }
        let arrival = arrived.saturating_duration_since(self.origin);
        Some(GenerationRequest { arrival, logprobs, ..executor_request(id, &request, &ends) })
    }

    fn wait(&mut self, most: Duration) -> bool {
        match self.requests.recv_timeout(most) {
            Ok(request) => {
                self.held = Some(request);
                true
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    fn is_cancelled(&mut self, id: u64) -> bool {
        self.active.all().get(&id).is_some_and(|sink| sink.is_closed())
    }

    fn stops_after(&mut self, id: u64, tokens: &[u32]) -> bool {
        let (Some(stream), [.., token]) = (self.streams.get_mut(&id), tokens) else { return false };
        stream.add(*token);
        stream.is_stopped()
    }

    fn finished(&mut self, id: u64, _at: Duration) {
        self.streams.remove(&id);
    }
}

/// Prices of some of the passes, and for the others the error of the last one that was priced.
struct SampledPrices<'p> {
    cost_model: CostModel<'p>,
    programs: &'p PhasePrograms,
    prices: PlanPrices<'p>,
    /// How many batches `prices` has priced, all of which it remembers.
    remembered: u32,
    /// Predicted ÷ measured of the last priced pass, by phase: prefill, decode.
    ratios: [f64; 2],
    priced: [Option<Duration>; 2],
}

impl<'p> SampledPrices<'p> {
    fn new(cost_model: CostModel<'p>, programs: &'p PhasePrograms) -> Self {
        let prices = PlanPrices::new(cost_model, programs);
        Self { cost_model, programs, prices, remembered: 0, ratios: [1.0; 2], priced: [None; 2] }
    }

    /// The seconds that a pass should have taken.
    fn seconds(&mut self, report: &PassReport) -> f64 {
        let measured = (report.end - report.begin).as_secs_f64();
        let phase = usize::from(report.phase == Phase::Decode);
        if self.priced[phase].is_none_or(|last| report.end >= last + PRICED_EVERY) {
            let chunk = |chunk: &PromptChunk| PrefillChunk { new: chunk.new_tokens, past: chunk.past_tokens };
            let chunks: Vec<_> = report.entered.iter().map(chunk).collect();
            let &PassReport { decodes, decode_tokens, sampled, .. } = report;
            let batch = Batch { chunks: &chunks, decodes, decode_tokens, sampled };
            self.remembered += 1;
            if self.remembered > MOST_REMEMBERED {
                (self.prices, self.remembered) = (PlanPrices::new(self.cost_model, self.programs), 1);
            }
            // A device without a measured rate cannot be planned, so it was refused before.
            if let Ok(time) = self.prices.step(&batch) {
                self.ratios[phase] = time.to_seconds().get() / measured.max(f64::MIN_POSITIVE);
                self.priced[phase] = Some(report.end);
            }
        }
        self.ratios[phase] * measured
    }
}
