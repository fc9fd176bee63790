//! Continuous batching: requests that come and go, who of them is in which slot of the KV cache, and what the next pass
//! computes. Passes are made up as the simulator's engine makes up steps (`sim::serving::Replica`), with blocks as long as
//! the context: who decodes first, a token each, then the prompt that is not all there, then who waits, while there are
//! tokens and slots left.

use crate::error::Error;
use crate::pass::{Pass, Turn};
use crate::request::{Answer, Batching, Client, Event, Finish, Made, Request};
use crate::run::Moment;
use crate::sampling::Sampler;
use crate::sequence::Sequence;
use crate::setup::Setup;
use planner::{Lane, MicroBatch};
use scenarios::{Phase, Scheduler};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// While nobody asks for anything, so often it is looked whether the run is to pause.
const LOOK: Duration = Duration::from_millis(20);

/// The requests of a [`Client`] on their way through a session.
pub struct Service<C> {
    client: C,
    batching: Batching,
    limits: Limits,
    /// The next that will come.
    upcoming: Option<Request>,
    waiting: VecDeque<Request>,
    /// In the order of admission.
    running: Vec<Running>,
    /// By slot.
    taken: Vec<bool>,
    /// The pass at work: when it began, and who is in it.
    at_work: Option<(Phase, u64, Vec<Turn>)>,
    /// By slot, between runs.
    pub(crate) sequences: Vec<Sequence>,
    /// Since when time counts: from the first pass on.
    pub(crate) origin: Option<Instant>,
}

/// How large passes may become.
#[derive(Debug, Clone)]
struct Limits {
    batch: u64,
    context: u64,
    vocab: u64,
    micro_batches: u64,
    /// Rows of each micro-batch: its share of slots · the chunk.
    rows: Vec<usize>,
}

/// A request in a slot. Its tokens are in the slot's sequence.
struct Running {
    request: Request,
    slot: usize,
    prompt_tokens: usize,
    /// Tokens in the KV cache.
    computed: usize,
    scheduled: u64,
    first_token: Option<u64>,
    last_token: u64,
}

impl Running {
    fn is_decoding(&self) -> bool {
        self.first_token.is_some()
    }

    fn answer(self, mut tokens: Vec<u32>, finish: Finish) -> Answer {
        let last = self.last_token;
        Answer {
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
    /// [`Error::Refused`] for limits that the setup has no room for, and for a scheduler that needs forecasts.
    pub(crate) fn new(setup: &Setup, batching: Batching, client: C) -> Result<Self, Error> {
        let (extent, micro_batches) = (&setup.extent, setup.placement.pipelining.micro_batches);
        let Batching { max_num_seqs, max_num_batched_tokens, scheduler, .. } = batching;
        if !(1..=extent.batch).contains(&max_num_seqs) {
            let wanted = format!("from 1 to the {} sequences that were allocated for", extent.batch);
            return Err(Error::refused("max_num_seqs", max_num_seqs, wanted));
        }
        let rows = extent.batch * extent.chunk;
        if !(max_num_seqs..=rows).contains(&max_num_batched_tokens) {
            let wanted = format!(
                "from max_num_seqs, {max_num_seqs}, to the {rows} tokens that were allocated for: {} sequences of \
                 {} tokens",
                extent.batch, extent.chunk
            );
            return Err(Error::refused("max_num_batched_tokens", max_num_batched_tokens, wanted));
        }
        if let Scheduler::Slo { .. } = scheduler {
            let wanted =
                "fcfs or shortest_first: slo needs to know what a step will take, which is simulated only";
            return Err(Error::refused("scheduler", "slo", wanted));
        }
        let part_rows = |part: MicroBatch| {
            let slots = part.sequences(extent.batch);
            ((slots.end - slots.start) * extent.chunk) as usize
        };
        let limits = Limits {
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
            at_work: None,
            sequences: Sequence::none(limits.batch),
            limits,
            origin: None,
        })
    }

    /// Who sent the requests.
    pub fn into_client(self) -> C {
        self.client
    }

    /// Ends what runs, after the last pass: what there is of those answers, in the order of their admission.
    pub fn interrupt(&mut self) -> Vec<Answer> {
        self.end(Finish::Interrupted)
    }

    /// The same for another reason, also in the middle of a pass.
    pub(crate) fn end(&mut self, finish: Finish) -> Vec<Answer> {
        self.at_work = None;
        let running = std::mem::take(&mut self.running);
        let end = |one: Running| {
            let tokens = std::mem::take(&mut self.sequences[one.slot].tokens);
            self.taken[one.slot] = false;
            one.answer(tokens, finish)
        };
        running.into_iter().map(end).collect()
    }

    /// The next pass, and word of the last one to `said`; none where all requests are answered, or `pause` says so.
    pub(crate) fn conduct(
        &mut self,
        moment: &mut Moment<'_>,
        lanes: &[Lane],
        devices: usize,
        pause: &dyn Fn() -> bool,
        said: &Sender<Event>,
    ) -> Option<Pass> {
        // Nobody listens any more where the run's caller has gone.
        let say = |event| drop(said.send(event));
        self.take_in(moment, lanes, devices, &say);
        let mut now = moment.now;
        loop {
            self.listen(now, &say);
            if pause() {
                return None;
            }
            let turns = self.turns(moment.sequences, now);
            if !turns.is_empty() {
                let entering = self
                    .running
                    .iter()
                    .any(|one| !one.is_decoding() && turns.iter().any(|turn| turn.slot == one.slot));
                let phase = if entering { Phase::Prefill } else { Phase::Decode };
                let pass = Pass::new(phase, &turns, self.limits.batch, self.limits.micro_batches);
                self.at_work = Some((phase, now, turns));
                return Some(pass);
            }
            let next = self.upcoming.as_ref()?;
            let left = next.arrival.saturating_sub(self.elapsed());
            std::thread::sleep(left.min(LOOK));
            now = self.elapsed().as_nanos() as u64;
        }
    }

    fn elapsed(&self) -> Duration {
        self.origin.map_or(Duration::ZERO, |origin| origin.elapsed())
    }

    /// What the last pass made of those who were in it.
    fn take_in(&mut self, moment: &mut Moment<'_>, lanes: &[Lane], devices: usize, say: &dyn Fn(Event)) {
        let Some((phase, begin, turns)) = self.at_work.take() else { return };
        let now = moment.now;
        let mut made = Made {
            phase,
            begin: Duration::from_nanos(begin),
            end: Duration::from_nanos(now),
            busy: busy(moment, lanes, devices),
            entered: vec![],
            decodes: 0,
            decode_tokens: 0,
            sampled: moment.sampled.len() as u64,
        };
        for turn in &turns {
            let one = self.running.iter_mut().find(|one| one.slot == turn.slot).expect("who has a turn runs");
            one.computed += turn.new;
            match one.is_decoding() {
                true => {
                    made.decodes += 1;
                    made.decode_tokens += one.computed as u64;
                }
                false => made.entered.push([turn.past as u64, turn.new as u64]),
            }
        }
        for &(slot, token) in moment.sampled {
            let index = self.running.iter().position(|one| one.slot == slot).expect("who has a token runs");
            let one = &mut self.running[index];
            one.first_token.get_or_insert(now);
            one.last_token = now;
            say(Event::Token { id: one.request.id, token });
            let output = &moment.sequences[slot].tokens[one.prompt_tokens..];
            let stops = one.request.stop.contains(&token) || self.client.ends(one.request.id, output);
            if !stops && (output.len() as u64) < one.request.output_tokens {
                continue;
            }
            let one = self.running.remove(index);
            self.taken[slot] = false;
            let finish = if stops { Finish::Stop } else { Finish::Length };
            let answer = one.answer(std::mem::take(&mut moment.sequences[slot].tokens), finish);
            self.client.done(answer.id, answer.last_token);
            say(Event::Answered(answer));
        }
        say(Event::Made(made));
    }

    /// Takes in who has come.
    fn listen(&mut self, now: u64, say: &dyn Fn(Event)) {
        loop {
            match &mut self.upcoming {
                Some(held) => self.client.sooner(held),
                None => self.upcoming = self.client.next(),
            }
            let come = self.upcoming.take_if(|next| next.arrival.as_nanos() as u64 <= now);
            let Some(request) = come else { return };
            match check_request(&request, self.limits.context, self.limits.vocab) {
                Ok(()) => self.waiting.push_back(request),
                Err(reason) => {
                    self.client.done(request.id, request.arrival);
                    say(Event::Refused { id: request.id, reason });
                }
            }
        }
    }

    /// Who computes what next.
    fn turns(&mut self, sequences: &mut [Sequence], now: u64) -> Vec<Turn> {
        let decodes = self.running.iter().filter(|one| one.is_decoding());
        let decodes: Vec<_> =
            decodes.map(|one| Turn { slot: one.slot, past: one.computed, new: 1, sampled: true }).collect();
        let mut rows = self.limits.rows.clone();
        let mut room = self.batching.max_num_batched_tokens as usize;
        if !self.batching.prefill_first {
            room -= decodes.len();
            decodes.iter().for_each(|turn| rows[self.part_of(turn.slot)] -= 1);
        }
        let mut entering = Vec::new();
        let mut next = self.running.iter().position(|one| !one.is_decoding());
        while let Some(index) = next.take().or_else(|| self.admit(room, sequences, now)) {
            let one = &self.running[index];
            let rows = &mut rows[self.part_of(one.slot)];
            let left = one.prompt_tokens - one.computed;
            let new = left.min(room).min(*rows);
            if new > 0 {
                entering.push(Turn { slot: one.slot, past: one.computed, new, sampled: new == left });
                (room, *rows) = (room - new, *rows - new);
            }
            // Who does not get all of its prompt in is the last.
            if new < left {
                break;
            }
        }
        match (self.batching.prefill_first, entering.is_empty()) {
            (true, false) => entering,
            _ => [decodes, entering].concat(),
        }
    }

    /// Gives a slot to who is first in the queue; its index among those who run.
    fn admit(&mut self, room: usize, sequences: &mut [Sequence], now: u64) -> Option<usize> {
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
        // In the micro-batch with the most that are free, so that all have as much to do.
        let free = |part: &MicroBatch| {
            let slots = part.sequences(self.limits.batch);
            slots.filter(|&slot| !self.taken[slot as usize]).count()
        };
        let parts = MicroBatch::all(self.limits.micro_batches);
        let part = parts.min_by_key(|part| Reverse(free(part))).expect("there is a micro-batch");
        let mut slots = part.sequences(self.limits.batch).map(|slot| slot as usize);
        let slot = slots.find(|&slot| !self.taken[slot]).expect("fewer run than there are slots");
        self.taken[slot] = true;
        let sampler = Sampler::new(request.sampling).expect("it was checked when it came");
        let tokens = std::mem::take(&mut request.prompt);
        let prompt_tokens = tokens.len();
        sequences[slot] = Sequence { tokens, sampler };
        self.running.push(Running {
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

    fn part_of(&self, slot: usize) -> usize {
        let mut parts = MicroBatch::all(self.limits.micro_batches);
        let has = |part: MicroBatch| part.sequences(self.limits.batch).contains(&(slot as u64));
        parts.position(has).expect("a slot is in a micro-batch")
    }
}

/// Refuses what can never be answered where a slot has `context` positions and there are `vocab` tokens.
///
/// # Errors
/// [`Error::Refused`], which names the request and what is wrong with it.
pub fn check_request(request: &Request, context: u64, vocab: u64) -> Result<(), Error> {
    let key = |what: &str| format!("request {}: {what}", request.id);
    let length = request.prompt.len() as u64;
    if length == 0 {
        return Err(Error::refused(key("prompt"), "empty", "at least one token"));
    }
    if request.output_tokens == 0 {
        return Err(Error::refused(key("output tokens"), 0, "at least 1"));
    }
    // The last output token never enters the cache.
    if length.saturating_add(request.output_tokens - 1) > context {
        let wanted = format!("together at most the {} that were allocated for", context + 1);
        let both = length.saturating_add(request.output_tokens);
        return Err(Error::refused(key("prompt and output tokens"), both, wanted));
    }
    if let Some(token) = request.prompt.iter().find(|&&token| u64::from(token) >= vocab) {
        return Err(Error::refused(key("prompt"), format!("token {token}"), format!("below {vocab}")));
    }
    request.sampling.check()
}

/// By device, how long the last pass kept it at work.
fn busy(moment: &Moment<'_>, lanes: &[Lane], devices: usize) -> Vec<Duration> {
    let mut busy = vec![Duration::ZERO; devices];
    for (lane, record) in lanes.iter().zip(&moment.records) {
        if let Lane::Device(device) = lane {
            let nanos = record.tasks.iter().map(|interval| interval.end - interval.start).sum();
            busy[device.0] += Duration::from_nanos(nanos);
        }
    }
    busy
}
