//! One engine: its queue, its running sequences, its KV cache, its clock.
//!
//! A step is composed as in vLLM. First come all running sequences in the order of admission: each
//! decode with one token, and the prompt that has not fully entered with as many tokens as fit. If
//! blocks run out, the last admitted sequence is sent back to the queue and its blocks are freed
//! (see `preemption.rs`). Otherwise waiting sequences are admitted while tokens, blocks and places
//! are left. With `prefill_first` a step is composed as in SGLang: as long as prompts can enter,
//! they do so in steps of their own, and no sequence decodes.

mod admission;
mod preemption;
mod prefix_fetch;
mod resize;
mod slo;

use crate::clock::SimTime;
use crate::serving::engine::Reserve;
use crate::serving::engine::front_end::{Detokeniser, FrontEnd};
use crate::serving::engine::observer::{EngineObserver, ObservedSteps, notify_gaps};
use crate::serving::engine::request::{RejectReason, Request, RequestTotals, ServedRequest};
use crate::serving::engine::settings::{AdmissionPolicy, EngineSettings};
use crate::serving::kv::blocks::Blocks;
use crate::serving::kv::second_level::SecondLevelCache;
use crate::serving::prices::batch::{Batch, PrefillChunk, StepPrices};
use crate::serving::schedule::decoding_set::DecodingSet;
use crate::serving::schedule::prefix::{find_prompt, release, remember};
use crate::serving::schedule::sequence::Sequence;
use crate::serving::schedule::step_budget::StepBudget;
use crate::serving::schedule::waiting_queue::WaitingQueue;
use hwprofiles::MissingRate;

/// Why a replica stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Requests were answered: see [`Replica::served`].
    Served,
    /// The next step would begin at the given time or later.
    Reached,
    /// No request waits or runs.
    Idle,
}

/// One engine.
#[derive(Debug, Clone)]
pub struct Replica<P> {
    engine: EngineSettings,
    prices: P,
    now: SimTime,
    waiting: WaitingQueue,
    /// Sequences by place, and the places that are vacant.
    sequences: Vec<Sequence>,
    vacant: Vec<u32>,
    /// The places of running sequences, in the order of admission.
    running: Vec<u32>,
    /// The last of them, if its prompt has not fully entered.
    entering: Option<u32>,
    decoding: DecodingSet,
    /// When the last step of all decodes ended. A decode that joined later counts from its own last
    /// token.
    decoded: SimTime,
    /// Whether a step went by without the decodes.
    stalled: bool,
    /// The count of decode steps when the engine began to work, or last preempted a sequence.
    settled: u64,
    blocks: Blocks,
    /// Blocks that a resize has removed and that are still held.
    missing_blocks: u64,
    /// Free blocks of the swap space.
    swap_free: u64,
    /// The second level of the prefix cache.
    second: Option<SecondLevelCache>,
    /// The delay of the next step by blocks that move between the KV cache and the swap space or
    /// the second level.
    moving: SimTime,
    totals: RequestTotals,
    /// How long this step may become.
    budget: StepBudget,
    /// The chunks that enter in this step, and the places of their sequences.
    chunks: Vec<PrefillChunk>,
    places: Vec<u32>,
    /// The places of sequences that had their last token in this step.
    ended: Vec<u32>,
    served: Vec<ServedRequest>,
    detokeniser: Detokeniser,
}

impl<P: StepPrices> Replica<P> {
    /// An idle replica.
    pub fn new(engine: EngineSettings, prices: P) -> Self {
        let shares = matches!(engine.policy, AdmissionPolicy::Slo { .. });
        let engine = EngineSettings { prefill_first: engine.prefill_first && !shares, ..engine };
        let space = engine.second_level.filter(|_| engine.prefix_caching);
        let second = space.and_then(|space| SecondLevelCache::new(space, engine.stored_blocks_per_name()));
        Self {
            now: SimTime::ZERO,
            waiting: WaitingQueue::new(engine.policy),
            sequences: Vec::new(),
            vacant: Vec::new(),
            running: Vec::new(),
            entering: None,
            decoding: DecodingSet::new(engine.block_size, engine.sequence.clone()),
            decoded: SimTime::ZERO,
            stalled: false,
            settled: 0,
            blocks: Blocks::new(engine.num_blocks),
            missing_blocks: 0,
            swap_free: engine.swap.map_or(0, |swap| swap.blocks),
            second,
            moving: SimTime::ZERO,
            totals: RequestTotals::default(),
            budget: StepBudget::default(),
            chunks: Vec::new(),
            places: Vec::new(),
            ended: Vec::new(),
            served: Vec::new(),
            detokeniser: Detokeniser::default(),
            engine,
            prices,
        }
    }

    /// What stands between it and its clients.
    pub(crate) fn front_end(&self) -> FrontEnd {
        self.engine.front_end
    }

    /// Its clock: the end of its last step.
    pub fn now(&self) -> SimTime {
        self.now
    }

    /// Lets it do nothing until `time`.
    pub(crate) fn wait_until(&mut self, time: SimTime) {
        self.now = self.now.max(time);
    }

    /// Puts the prompt of a request that was answered before the first one into the KV cache, as
    /// far as there is room; older prompts are overwritten. Models with states or windows keep
    /// nothing.
    pub fn remember(&mut self, request: &Request) {
        remember(&self.engine, &mut self.blocks, request);
    }

    /// The number of running sequences.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The number of waiting sequences.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a sequence runs or waits.
    pub fn has_work(&self) -> bool {
        !self.running.is_empty() || self.waiting.len() > 0
    }

    /// Tokens of a prompt that its KV cache has.
    pub(crate) fn cached_tokens(&self, request: &Request) -> u64 {
        find_prompt(&self.engine, &self.blocks, request).min(request.prompt_tokens)
    }

    /// Free blocks of its KV cache.
    pub fn free_blocks(&self) -> u64 {
        self.blocks.free()
    }

    /// Used blocks of its swap space.
    pub fn swapped_blocks(&self) -> u64 {
        self.engine.swap.map_or(0, |swap| swap.blocks) - self.swap_free
    }

    /// Takes the requests that were answered since the last call.
    pub fn served(&mut self) -> std::vec::Drain<'_, ServedRequest> {
        self.served.drain(..)
    }

    /// Takes a request. No step that begins before its arrival may be left to do.
    ///
    /// # Errors
    /// Gives back a request that can never be served, with the reason.
    pub fn submit(&mut self, request: Request) -> Result<(), (Request, RejectReason)> {
        if let Some(reason) = self.engine.refusal(&request) {
            return Err((request, reason));
        }
        if !self.has_work() {
            self.now = self.now.max(request.arrival);
            self.settled = self.decoding.steps;
        }
        self.totals.add_request(&request);
        let place = match self.vacant.pop() {
            Some(place) => {
                let life = self.sequences[place as usize].life;
                self.sequences[place as usize] = Sequence::new(request, life);
                place
            }
            None => {
                self.sequences.push(Sequence::new(request, 0));
                self.sequences.len() as u32 - 1
            }
        };
        self.waiting.push(place, &self.sequences[place as usize]);
        Ok(())
    }

    /// Makes steps until requests are answered, or the next step would begin at `until` or later,
    /// or no work is left.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn advance(
        &mut self,
        until: SimTime,
        observer: &mut impl EngineObserver,
    ) -> Result<Pause, MissingRate> {
        loop {
            if !self.served.is_empty() {
                return Ok(Pause::Served);
            }
            if !self.has_work() {
                return Ok(Pause::Idle);
            }
            if self.now >= until {
                return Ok(Pause::Reached);
            }
            self.step(until, observer)?;
        }
    }

    /// Makes the next step, or the series of steps that begin before `until` and continue the same
    /// batch.
    fn step(&mut self, until: SimTime, observer: &mut impl EngineObserver) -> Result<(), MissingRate> {
        self.chunks.clear();
        self.places.clear();
        self.shrink(observer)?;
        let alone = self.engine.prefill_first;
        self.sort_arrivals()?;
        let mut preempted = !alone && self.grow_decodes(observer)?;
        self.set_budget()?;
        preempted |= self.continue_prompt(observer)?;
        if !preempted {
            self.admit(observer)?;
        }
        if self.chunks.is_empty() {
            preempted |= alone && self.grow_decodes(observer)?;
            return self.decode(until, preempted, observer);
        }
        self.prefill(observer)
    }

    /// A step in which prompts enter, beside decodes or alone.
    fn prefill(&mut self, observer: &mut impl EngineObserver) -> Result<(), MissingRate> {
        let alone = self.engine.prefill_first;
        let (decodes, decode_tokens) =
            if alone { (0, 0) } else { (self.decoding.count, self.decoding.tokens) };
        let sampled = self.places.iter().zip(&self.chunks).filter(|(place, chunk)| {
            let sequence = &self.sequences[**place as usize];
            sequence.computed + chunk.new == sequence.known()
        });
        let sampled = decodes + sampled.count() as u64;
        let batch = Batch { chunks: &self.chunks, decodes, decode_tokens, sampled };
        let sequences = if alone { self.chunks.len() } else { self.running.len() };
        let host = self.engine.host.time(sequences as u64);
        let time = self.prices.step(&batch)? + host + std::mem::take(&mut self.moving);
        let begin = self.now;
        self.now += time;
        let steps = ObservedSteps {
            begin,
            end: self.now,
            host,
            count: 1,
            batch,
            free_blocks: self.blocks.free(),
            price_set: self.prices.price_set(),
            waiting: self.waiting.len(),
        };
        observer.steps(&steps);
        let text = self.engine.front_end.detokeniser.per_token.times(sampled);
        self.detokeniser.steps([begin, self.now], 1, text);
        if alone {
            self.stalled |= self.decoding.count > 0;
        } else {
            observer.gaps(time, decodes);
            self.decoding.advance(1);
            self.finish();
        }
        self.end_chunks(observer);
        Ok(())
    }

    /// Steps in which no prompt enters, until a sequence ends, blocks run short, or the prices
    /// change their line.
    fn decode(
        &mut self,
        until: SimTime,
        preempted: bool,
        observer: &mut impl EngineObserver,
    ) -> Result<(), MissingRate> {
        let (count, tokens) = (self.decoding.count, self.decoding.tokens);
        let host = self.engine.host.time(count);
        let line = self.prices.decode(count, tokens)?.plus(host).plus(std::mem::take(&mut self.moving));
        let sequences = &self.sequences;
        let end = self.decoding.next_event(|place, life| sequences[place as usize].life == life);
        // After a preemption, the next step may admit again. It may also do so when more room is
        // left, when the passing of time makes other sequences late, or when the next sequence
        // may find other blocks.
        let once = preempted
            || self.stalled
            || self.room_may_grow() && self.waiting.len() > 0
            || self.depends_on_time()
            || self.may_find_otherwise(self.now);
        let most = if once { 1 } else { end.expect("every decode ends") };
        let most = most.min((line.until - 1 - tokens) / count + 1);
        let most = 1 + self.decoding.steps_within(self.blocks.free(), most - 1);
        let made = line.steps_begun(tokens, count, most, until - self.now);
        self.blocks.take(self.decoding.later_growth(made - 1));
        let begin = self.now;
        self.now += line.series(tokens, count, made);
        let batch = Batch { chunks: &[], decodes: count, decode_tokens: tokens, sampled: count };
        let steps = ObservedSteps {
            begin,
            end: self.now,
            host: host.times(made),
            count: made,
            batch,
            free_blocks: self.blocks.free(),
            price_set: self.prices.price_set(),
            waiting: self.waiting.len(),
        };
        observer.steps(&steps);
        let text = self.engine.front_end.detokeniser.per_token.times(count);
        self.detokeniser.steps([begin, self.now], made, text);
        if std::mem::take(&mut self.stalled) {
            self.notify_stalled(observer);
        } else {
            notify_gaps(&line, &steps, observer);
        }
        self.decoded = self.now;
        self.decoding.advance(made);
        self.finish();
        Ok(())
    }

    /// Whether there may be more room for others while answers grow: less is kept for them, or
    /// their windows have filled.
    fn room_may_grow(&self) -> bool {
        self.engine.reserve == Reserve::Answer || !self.engine.sequence.is_plain()
    }

    /// Reports the gaps of a decode step after steps without decodes. A sequence that joined since
    /// has waited less.
    fn notify_stalled(&self, observer: &mut impl EngineObserver) {
        let all = self.running.iter().map(|&place| &self.sequences[place as usize]);
        for sequence in all.filter(|sequence| sequence.joined.is_some()) {
            observer.gaps(self.now - self.decoded.max(sequence.last_token), 1);
        }
    }

    /// Ends the decodes that have their last token, in the order of admission.
    fn finish(&mut self) {
        self.ended.clear();
        let delivered = self.now + self.detokeniser.delay(self.now);
        let sequences = &mut self.sequences;
        while let Some(place) = self.decoding.sent(|place, life| sequences[place as usize].life == life) {
            sequences[place as usize].delivered.get_or_insert(delivered);
        }
        let sequences = &self.sequences;
        let lives = |place: u32, life: u32| sequences[place as usize].life == life;
        while let Some(place) = self.decoding.ended(lives) {
            self.ended.push(place);
        }
        if self.ended.len() > 1 {
            let running = &self.running;
            self.ended.sort_by_key(|place| running.iter().position(|running| running == place));
        }
        for index in 0..self.ended.len() {
            let place = self.ended[index];
            self.decoding.leave(&mut self.sequences[place as usize]);
            self.leave(place);
        }
    }

    /// Adds the computed chunks to their sequences. A prompt that has fully entered has a token.
    fn end_chunks(&mut self, observer: &mut impl EngineObserver) {
        for index in 0..self.places.len() {
            let (place, chunk) = (self.places[index], self.chunks[index]);
            let sequence = &mut self.sequences[place as usize];
            sequence.computed += chunk.new;
            self.publish(place, observer);
            let sequence = &mut self.sequences[place as usize];
            if sequence.computed < sequence.known() {
                continue;
            }
            if self.entering == Some(place) {
                self.entering = None;
            }
            sequence.generated += 1;
            match sequence.first_token {
                None => sequence.first_token = Some(self.now),
                Some(_) => observer.gaps(self.now - sequence.last_token, 1),
            }
            let together = self.engine.front_end.stream_interval;
            if sequence.generated >= together {
                sequence.delivered.get_or_insert(self.now + self.detokeniser.delay(self.now));
            }
            sequence.last_token = self.now;
            match sequence.generated == sequence.request.output_tokens {
                true => self.leave(place),
                false => {
                    self.decoding.join(place, sequence);
                    self.decoding.send_together(place, sequence, together);
                }
            }
        }
    }

    /// Ends a sequence that has its last token.
    fn leave(&mut self, place: u32) {
        let sequence = &mut self.sequences[place as usize];
        sequence.last_token = self.now;
        release(&self.engine, &mut self.blocks, sequence);
        let served = sequence.served(self.detokeniser.delay(self.now));
        self.totals.add_answer(&served);
        self.served.push(served);
        let index = self.running.iter().rposition(|&running| running == place);
        self.running.remove(index.expect("a sequence that ends has run"));
        self.vacant.push(place);
    }
}
