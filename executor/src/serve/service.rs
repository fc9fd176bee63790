//! Continuous batching: which request is in which slot of the KV cache, and what the next pass
//! computes.
//!
//! Passes are composed as the simulator's engine composes steps (`sim::serving::Replica`), with
//! blocks as long as the context. Sequences that decode come first, with one token each. Then comes
//! the prompt that has entered in part, then waiting requests, while there are tokens and slots
//! left.

use crate::batch::logprobs::TokenLogprobs;
use crate::batch::pass::{Pass, ScheduledSequence};
use crate::batch::sampling::Sampler;
use crate::batch::sequence::SlotSequence;
use crate::error::ExecutorError;
use crate::run::engine::RunEngine;
use crate::run::shared::BetweenPasses;
use crate::serve::request::{
    Batching, Client, FinishReason, GenerationEvent, GenerationRequest, GenerationResult, PassReport,
    PromptChunk,
};
use crate::setup::run_setup::RunSetup;
use planner::{Lane, MicroBatch};
use scenarios::{Phase, Scheduler};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How often `pause` is called while no request is there to compute.
const PAUSE_CHECK: Duration = Duration::from_millis(20);

/// The requests of a [`Client`] on their way through a session.
pub struct Service<C> {
    client: C,
    batching: Batching,
    limits: PassLimits,
    /// The next request that will arrive.
    upcoming: Option<GenerationRequest>,
    waiting: VecDeque<GenerationRequest>,
    /// In the order of admission.
    running: Vec<RunningRequest>,
    /// By slot.
    taken: Vec<bool>,
    current: Option<CurrentPass>,
    /// By slot, between runs.
    pub(crate) sequences: Vec<SlotSequence>,
    /// When time 0 was: the start of the first pass.
    pub(crate) origin: Option<Instant>,
}

/// The pass at work.
struct CurrentPass {
    phase: Phase,
    /// When it began, in nanoseconds since the service's origin.
    begin: u64,
    sequences: Vec<ScheduledSequence>,
    /// By micro-batch: rows of logits.
    rows: Vec<usize>,
}

/// How large passes may become.
#[derive(Debug, Clone)]
struct PassLimits {
    batch: u64,
    context: u64,
    vocab: u64,
    micro_batches: u64,
    /// Rows of each micro-batch: its slots · the chunk.
    rows: Vec<usize>,
}

/// A request in a slot. Its tokens are in the slot's sequence.
struct RunningRequest {
    request: GenerationRequest,
    slot: usize,
    prompt_tokens: usize,
    /// Tokens in the KV cache.
    computed: usize,
    scheduled: u64,
    first_token: Option<u64>,
    last_token: u64,
}

impl RunningRequest {
    fn is_decoding(&self) -> bool {
        self.first_token.is_some()
    }

    fn into_result(self, mut tokens: Vec<u32>, finish: FinishReason) -> GenerationResult {
        let last = self.last_token;
        GenerationResult {
            id: self.request.id,
            arrival: self.request.arrival,
            scheduled: Duration::from_nanos(self.scheduled),
            first_token: Duration::from_nanos(self.first_token.unwrap_or(last)),
            last_token: Duration::from_nanos(last),
            prompt_tokens: self.prompt_tokens as u64,
            tokens: tokens.split_off(self.prompt_tokens),
            finish,
        }
    }
}

impl<C: Client> Service<C> {
    /// A service for `client` on the slots of `setup`.
    ///
    /// # Errors
    /// [`ExecutorError::Refused`] for limits that the setup has no room for, and for a scheduler
    /// that needs forecasts.
    pub(crate) fn new(setup: &RunSetup, batching: Batching, client: C) -> Result<Self, ExecutorError> {
        let (extent, micro_batches) = (&setup.extent, setup.placement.pipelining.micro_batches);
        let Batching { max_num_seqs, max_num_batched_tokens, scheduler, .. } = batching;
        if !(1..=extent.batch).contains(&max_num_seqs) {
            let wanted = format!("from 1 to the {} sequences that were allocated for", extent.batch);
            return Err(ExecutorError::refused("max_num_seqs", max_num_seqs, wanted));
        }
        let rows = extent.batch * extent.chunk;
        if !(max_num_seqs..=rows).contains(&max_num_batched_tokens) {
            let wanted = format!(
                "from max_num_seqs, {max_num_seqs}, to the {rows} tokens that were allocated for: {} sequences of \
                 {} tokens",
                extent.batch, extent.chunk
            );
            return Err(ExecutorError::refused("max_num_batched_tokens", max_num_batched_tokens, wanted));
        }
        if let Scheduler::Slo { .. } = scheduler {
            let wanted =
                "fcfs or shortest_first: slo needs to know what a step will take, which is simulated only";
            return Err(ExecutorError::refused("scheduler", "slo", wanted));
        }
        let part_rows = |part: MicroBatch| {
            let slots = part.sequences(extent.batch);
            ((slots.end - slots.start) * extent.chunk) as usize
        };
        let limits = PassLimits {
            batch: extent.batch,
            context: extent.context,
            vocab: setup.model.vocab,
            micro_batches,
            rows: MicroBatch::all(micro_batches).map(part_rows).collect(),
        };
        Ok(Self {
            client,
            batching,
            upcoming: None,
            waiting: VecDeque::new(),
            running: Vec::new(),
            taken: vec![false; limits.batch as usize],
            current: None,
            sequences: SlotSequence::empty_slots(limits.batch),
            limits,
            origin: None,
        })
    }

    /// Makes `origin` time 0 instead of the start of the first pass, for a client whose arrivals
    /// count from there.
    #[must_use]
    pub fn counting_from(mut self, origin: Instant) -> Self {
        self.origin = Some(origin);
        self
    }

    /// The client that sent the requests.
    pub fn into_client(self) -> C {
        self.client
    }

    /// Ends the running requests after the last pass. Returns their results so far, in the order of
    /// their admission.
    pub fn interrupt(&mut self) -> Vec<GenerationResult> {
        self.end_running(FinishReason::Interrupted)
    }

    /// As [`Service::interrupt`], for another reason, also in the middle of a pass.
    pub(crate) fn end_running(&mut self, finish: FinishReason) -> Vec<GenerationResult> {
        self.current = None;
        let running = std::mem::take(&mut self.running);
        let end = |request: RunningRequest| {
            let tokens = std::mem::take(&mut self.sequences[request.slot].tokens);
            self.taken[request.slot] = false;
            request.into_result(tokens, finish)
        };
        running.into_iter().map(end).collect()
    }

    /// The next pass; `None` where all requests are finished or `pause` returns true. Events of the
    /// last pass go to `send`.
    pub(crate) fn next_pass(
        &mut self,
        state: &mut BetweenPasses<'_>,
        engine: &RunEngine,
        pause: &dyn Fn() -> bool,
        send: &dyn Fn(GenerationEvent),
    ) -> Option<Pass> {
        self.record_pass(state, engine, send);
        let mut now = state.now;
        loop {
            self.receive_requests(now, send);
            if pause() {
                return None;
            }
            let scheduled = self.schedule(state.sequences, now);
            if !scheduled.is_empty() {
                let enters = |request: &RunningRequest| {
                    !request.is_decoding() && scheduled.iter().any(|it| it.slot == request.slot)
                };
                let phase = if self.running.iter().any(enters) { Phase::Prefill } else { Phase::Decode };
                let pass = Pass::new(phase, &scheduled, self.limits.batch, self.limits.micro_batches);
                let rows = pass.parts.iter().map(|part| part.ends.len()).collect();
                self.current = Some(CurrentPass { phase, begin: now, sequences: scheduled, rows });
                return Some(pass);
            }
            match &self.upcoming {
                Some(next) => {
                    let left = next.arrival.saturating_sub(self.elapsed());
                    std::thread::sleep(left.min(PAUSE_CHECK));
                }
                None if self.client.wait(PAUSE_CHECK) => {}
                None => return None,
            }
            now = self.elapsed().as_nanos() as u64;
        }
    }

    fn elapsed(&self) -> Duration {
        self.origin.map_or(Duration::ZERO, |origin| origin.elapsed())
    }

    /// Takes over what the last pass computed: tokens in the cache, new tokens, finished requests.
    fn record_pass(
        &mut self,
        state: &mut BetweenPasses<'_>,
        engine: &RunEngine,
        send: &dyn Fn(GenerationEvent),
    ) {
        let Some(CurrentPass { phase, begin, sequences, rows }) = self.current.take() else { return };
        let now = state.now;
        let mut logprobs = self.logprobs(state.sampled, &rows, phase, engine);
        let mut report = PassReport {
            phase,
            begin: Duration::from_nanos(begin),
            end: Duration::from_nanos(now),
            busy: busy_times(state, engine),
            entered: vec![],
            decodes: 0,
            decode_tokens: 0,
            sampled: state.sampled.len() as u64,
            running: 0,
            cached_tokens: 0,
        };
        for it in &sequences {
            let request = self.running.iter_mut().find(|request| request.slot == it.slot);
            let request = request.expect("scheduled requests run");
            request.computed += it.new;
            if request.is_decoding() {
                report.decodes += 1;
                report.decode_tokens += request.computed as u64;
            } else {
                let chunk = PromptChunk { past_tokens: it.past as u64, new_tokens: it.new as u64 };
                report.entered.push(chunk);
            }
        }
        for &(slot, token) in state.sampled {
            let index = self.running.iter().position(|request| request.slot == slot);
            let index = index.expect("sampled requests run");
            let request = &mut self.running[index];
            request.first_token.get_or_insert(now);
            request.last_token = now;
            let id = request.request.id;
            send(GenerationEvent::Token { id, token, logprobs: logprobs.remove(&slot) });
            let output = &state.sequences[slot].tokens[request.prompt_tokens..];
            let stops = request.request.stop.contains(&token) || self.client.stops_after(id, output);
            if !stops && (output.len() as u64) < request.request.output_tokens {
                continue;
            }
            let request = self.running.remove(index);
            self.taken[slot] = false;
            let finish = if stops { FinishReason::Stop } else { FinishReason::Length };
            let result = request.into_result(std::mem::take(&mut state.sequences[slot].tokens), finish);
            self.client.finished(result.id, result.last_token);
            send(GenerationEvent::Finished(result));
        }
        self.drop_cancelled(state.sequences, now, send);
        report.running = self.running.len() as u64;
        report.cached_tokens = self.running.iter().map(|request| request.computed as u64).sum();
        send(GenerationEvent::PassDone(report));
    }

    /// By slot: the log-probabilities of the tokens that the last pass sampled, where requests want
    /// them. `rows` has the number of rows of logits of each micro-batch.
    fn logprobs(
        &self,
        sampled: &[(usize, u32)],
        rows: &[usize],
        phase: Phase,
        engine: &RunEngine,
    ) -> BTreeMap<usize, TokenLogprobs> {
        let wanted = |slot: usize| {
            let request = self.running.iter().find(|request| request.slot == slot);
            request.and_then(|request| request.request.logprobs)
        };
        if !sampled.iter().any(|&(slot, _)| wanted(slot).is_some()) {
            return BTreeMap::new();
        }
        let device = engine.setup.placement.head[0].device(phase);
        let (mut by_slot, mut tokens) = (BTreeMap::new(), sampled.iter());
        // This may be the thread of a link, which no GPU knows yet. A GPU that fails here fails in
        // the next pass too, and there it is told.
        let bound = engine.gpu.as_ref().map_or(Ok(()), |gpu| gpu.accelerator().bind());
        let read = bound.and_then(|()| {
            engine.store.logits(device, rows.iter().copied(), self.limits.vocab, |logits| {
                let &(slot, token) = tokens.next().expect("every row of logits gave a token");
                by_slot.extend(wanted(slot).map(|count| (slot, TokenLogprobs::new(logits, token, count))));
            })
        });
        drop(read);
        by_slot
    }

    /// Frees the places of the requests that nobody wants any more.
    fn drop_cancelled(&mut self, sequences: &mut [SlotSequence], now: u64, send: &dyn Fn(GenerationEvent)) {
        let mut cancelled = Vec::new();
        let mut is_cancelled = |id: u64| {
            let gone = self.client.is_cancelled(id);
            cancelled.extend(gone.then_some(id));
            gone
        };
        self.waiting.retain(|request| !is_cancelled(request.id));
        self.running.retain(|request| {
            let gone = is_cancelled(request.request.id);
            if gone {
                self.taken[request.slot] = false;
                sequences[request.slot].tokens = Vec::new();
            }
            !gone
        });
        for id in cancelled {
            self.client.finished(id, Duration::from_nanos(now));
            send(GenerationEvent::Cancelled { id });
        }
    }

    /// Takes over the requests that have arrived.
    fn receive_requests(&mut self, now: u64, send: &dyn Fn(GenerationEvent)) {
        loop {
            match &mut self.upcoming {
                Some(held) => self.client.exchange_for_earlier(held),
                None => self.upcoming = self.client.next(),
            }
            let arrived = self.upcoming.take_if(|next| next.arrival.as_nanos() as u64 <= now);
            let Some(request) = arrived else { return };
            match check_request(&request, self.limits.context, self.limits.vocab) {
                Ok(()) => self.waiting.push_back(request),
                Err(reason) => {
                    self.client.finished(request.id, request.arrival);
                    send(GenerationEvent::Refused { id: request.id, reason });
                }
            }
        }
    }

    /// The sequences of the next pass.
    fn schedule(&mut self, sequences: &mut [SlotSequence], now: u64) -> Vec<ScheduledSequence> {
        let decoding = self.running.iter().filter(|request| request.is_decoding());
        let decodes: Vec<_> = decoding
            .map(|it| ScheduledSequence { slot: it.slot, past: it.computed, new: 1, logits: 1 })
            .collect();
        let mut rows = self.limits.rows.clone();
        let mut room = self.batching.max_num_batched_tokens as usize;
        if !self.batching.prefill_first {
            room -= decodes.len();
            decodes.iter().for_each(|it| rows[self.part_of(it.slot)] -= 1);
        }
        let mut entering = Vec::new();
        let mut next = self.running.iter().position(|request| !request.is_decoding());
        while let Some(index) = next.take().or_else(|| self.admit(room, sequences, now)) {
            let request = &self.running[index];
            let rows = &mut rows[self.part_of(request.slot)];
            let left = request.prompt_tokens - request.computed;
            let new = left.min(room).min(*rows);
            if new > 0 {
                let (slot, past) = (request.slot, request.computed);
                entering.push(ScheduledSequence { slot, past, new, logits: usize::from(new == left) });
                (room, *rows) = (room - new, *rows - new);
            }
            // A prompt that enters only in part is the last one of the pass.
            if new < left {
                break;
            }
        }
        if self.batching.prefill_first && !entering.is_empty() {
            return entering;
        }
        [decodes, entering].concat()
    }

    /// Admits the first request of the queue to a slot. Returns its index among the running
    /// requests.
    fn admit(&mut self, room: usize, sequences: &mut [SlotSequence], now: u64) -> Option<usize> {
        if room == 0 || self.running.len() as u64 >= self.batching.max_num_seqs {
            return None;
        }
        let first = match self.batching.scheduler {
            Scheduler::ShortestFirst => {
                let lengths = self.waiting.iter().map(|request| request.prompt.len()).enumerate();
                lengths.min_by_key(|&(index, length)| (length, index)).map(|(index, _)| index)
            }
            Scheduler::Fcfs | Scheduler::Slo { .. } => Some(0),
        };
        let mut request = self.waiting.remove(first?)?;
        let slot = self.free_slot();
        self.taken[slot] = true;
        let sampler = Sampler::new(request.sampling).expect("it was checked on arrival");
        let tokens = std::mem::take(&mut request.prompt);
        let prompt_tokens = tokens.len();
        sequences[slot] = SlotSequence::new(tokens, sampler);
        self.running.push(RunningRequest {
            request,
            slot,
            prompt_tokens,
            computed: 0,
            scheduled: now,
            first_token: None,
            last_token: now,
        });
        Some(self.running.len() - 1)
    }

    /// A free slot of the micro-batch with the most free slots, so that all have as much to do.
    fn free_slot(&self) -> usize {
        let free = |part: &MicroBatch| {
            let slots = part.sequences(self.limits.batch);
            slots.filter(|&slot| !self.taken[slot as usize]).count()
        };
        let parts = MicroBatch::all(self.limits.micro_batches);
        let part = parts.min_by_key(|part| Reverse(free(part))).expect("there is a micro-batch");
        let mut slots = part.sequences(self.limits.batch).map(|slot| slot as usize);
        slots.find(|&slot| !self.taken[slot]).expect("fewer requests run than there are slots")
    }

    /// Index of the micro-batch that has a slot.
    fn part_of(&self, slot: usize) -> usize {
        let mut parts = MicroBatch::all(self.limits.micro_batches);
        let has = |part: MicroBatch| part.sequences(self.limits.batch).contains(&(slot as u64));
        parts.position(has).expect("a slot is in a micro-batch")
    }
}

/// Refuses a request that can never be answered where a slot has `context` positions and there are
/// `vocab` tokens.
///
/// # Errors
/// [`ExecutorError::Refused`], which names the request and what is wrong with it.
pub fn check_request(request: &GenerationRequest, context: u64, vocab: u64) -> Result<(), ExecutorError> {
    let key = |part: &str| format!("request {}: {part}", request.id);
    let length = request.prompt.len() as u64;
    if length == 0 {
        return Err(ExecutorError::refused(key("prompt"), "empty", "at least one token"));
    }
    if request.output_tokens == 0 {
        return Err(ExecutorError::refused(key("output tokens"), 0, "at least 1"));
    }
    // The last output token never enters the cache.
    if length.saturating_add(request.output_tokens - 1) > context {
        let wanted = format!("together at most the {} that were allocated for", context + 1);
        let both = length.saturating_add(request.output_tokens);
        return Err(ExecutorError::refused(key("prompt and output tokens"), both, wanted));
    }
    if let Some(token) = request.prompt.iter().find(|&&token| u64::from(token) >= vocab) {
        return Err(ExecutorError::refused(
            key("prompt"),
            format!("token {token}"),
            format!("below {vocab}"),
        ));
    }
    request.sampling.check()
}

/// By device: how long the last pass kept it busy.
fn busy_times(state: &BetweenPasses<'_>, engine: &RunEngine) -> Vec<Duration> {
    let mut busy = vec![Duration::ZERO; engine.setup.machine.devices.len()];
    for (lane, record) in engine.lanes.iter().zip(&state.records) {
        if let Lane::Device(device) = lane {
            let nanos = record.tasks.iter().map(|interval| interval.end - interval.start).sum();
            busy[device.0] += Duration::from_nanos(nanos);
        }
    }
    busy
}
