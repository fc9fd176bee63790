//! One engine: its queue, its running sequences, its KV cache, its clock.
//!
//! A step is made up as vLLM does it: every running sequence first, in the order of admission, each decode with one
//! token, the prompt that is not all there with as many as fit; where blocks run out, the last admitted sequence is
//! sent back to the queue and its blocks are freed (see `room.rs`). Where nobody was, waiting sequences are admitted while tokens, blocks and
//! places are left. Or as SGLang does it: as long as prompts can enter, they do so in steps of their own, and nobody
//! decodes.

mod admission;
mod change;
mod fetch;
mod room;
mod slack;

pub use change::Seen;

use super::batch::{Batch, Piece, StepPrices};
use super::blocks::Blocks;
use super::decoding::Decoding;
use super::engine::{Engine, Policy, Reserve};
use super::picos::Picos;
use super::prefix::{find_prompt, release};
use super::request::{Rejected, Request, Served};
use super::second_level::SecondLevel;
use super::sequence::Sequence;
use super::waiting::Waiting;
use super::watch::{Steps, Watch, gaps_of};
use hwprofiles::Missing;
use slack::Pace;

/// Why a replica stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Requests were answered: see [`Replica::served`].
    Served,
    /// The next step would begin at that time or later.
    Reached,
    /// There is nothing to do.
    Idle,
}

/// One engine.
#[derive(Debug, Clone)]
pub struct Replica<P> {
    engine: Engine,
    prices: P,
    now: Picos,
    waiting: Waiting,
    /// Sequences by place, and the places that are vacant.
    sequences: Vec<Sequence>,
    vacant: Vec<u32>,
    /// Who runs, in the order of admission.
    running: Vec<u32>,
    /// The last of them, where its prompt is not all there.
    entering: Option<u32>,
    decoding: Decoding,
    /// When those who decode had their last token, or one of their own since; whether a step went by without one.
    decoded: Picos,
    stalled: bool,
    /// Of the decode steps, how many there were when the engine began, or last sent somebody back.
    settled: u64,
    blocks: Blocks,
    /// Of them, those that it is to have no more.
    lacking: u64,
    /// Of the swap space, the blocks that are free.
    swap_free: u64,
    /// The second level of the prefix cache.
    second: Option<SecondLevel>,
    /// What this step takes longer because blocks move out to the swap space, or back from there or from the second level.
    moving: Picos,
    /// What came, and what was answered.
    seen: Seen,
    /// How long this step may become.
    pace: Pace,
    /// Who enters in this step, with how much.
    pieces: Vec<Piece>,
    places: Vec<u32>,
    /// Whose last token a step was.
    ended: Vec<u32>,
    served: Vec<Served>,
}

impl<P: StepPrices> Replica<P> {
    /// An idle one.
    pub fn new(engine: Engine, prices: P) -> Self {
        let shares = matches!(engine.policy, Policy::Slo { .. });
        let engine = Engine { prefill_first: engine.prefill_first && !shares, ..engine };
        Self {
            now: Picos::ZERO,
            waiting: Waiting::new(engine.policy),
            sequences: Vec::new(),
            vacant: Vec::new(),
            running: Vec::new(),
            entering: None,
            decoding: Decoding::new(engine.block_size),
            decoded: Picos::ZERO,
            stalled: false,
            settled: 0,
            blocks: Blocks::new(engine.num_blocks),
            lacking: 0,
            swap_free: engine.swap.map_or(0, |swap| swap.blocks),
            second: SecondLevel::new(&engine),
            moving: Picos::ZERO,
            seen: Seen::default(),
            pace: Pace::default(),
            pieces: Vec::new(),
            places: Vec::new(),
            ended: Vec::new(),
            served: Vec::new(),
            engine,
            prices,
        }
    }

    /// Its clock: the end of its last step.
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Sequences that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Sequences that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is anything to do.
    pub fn works(&self) -> bool {
        !self.running.is_empty() || self.waiting.len() > 0
    }

    /// Tokens of a prompt that its KV cache has.
    pub(super) fn cached(&self, request: &Request) -> u64 {
        let blocks = find_prompt(&self.engine, &self.blocks, request);
        (blocks * self.engine.block_size).min(request.prompt_tokens)
    }

    /// Blocks of its KV cache that are free.
    pub fn free_blocks(&self) -> u64 {
        self.blocks.free()
    }

    /// Blocks of its swap space in which somebody's KV cache is.
    pub fn swapped_blocks(&self) -> u64 {
        self.engine.swap.map_or(0, |swap| swap.blocks) - self.swap_free
    }

    /// Takes what was answered since the last call.
    pub fn served(&mut self) -> std::vec::Drain<'_, Served> {
        self.served.drain(..)
    }

    /// Takes a request; nothing that would begin before its arrival must be left to do.
    ///
    /// # Errors
    /// Gives back what can never be served, with the reason.
    pub fn submit(&mut self, request: Request) -> Result<(), (Request, Rejected)> {
        if let Some(reason) = self.engine.refusal(&request) {
            return Err((request, reason));
        }
        if !self.works() {
            self.now = self.now.max(request.arrival);
            self.settled = self.decoding.steps;
        }
        self.seen.came(&request);
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

    /// Steps until requests are answered, the next step would begin at `until` or later, or nothing is left to do.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn advance(&mut self, until: Picos, watch: &mut impl Watch) -> Result<Pause, Missing> {
        loop {
            match () {
                () if !self.served.is_empty() => return Ok(Pause::Served),
                () if !self.works() => return Ok(Pause::Idle),
                () if self.now >= until => return Ok(Pause::Reached),
                () => self.step(until, watch)?,
            }
        }
    }

    /// The next step, or the series of steps that begin before `until` and are like it.
    fn step(&mut self, until: Picos, watch: &mut impl Watch) -> Result<(), Missing> {
        self.pieces.clear();
        self.places.clear();
        self.shrink(watch)?;
        let alone = self.engine.prefill_first;
        self.appraise()?;
        let mut preempted = !alone && self.grow(watch)?;
        self.set_pace()?;
        preempted |= self.go_on(watch)?;
        if !preempted {
            self.admit(watch)?;
        }
        if self.pieces.is_empty() {
            preempted |= alone && self.grow(watch)?;
            return self.decode(until, preempted, watch);
        }
        self.prefill(watch)
    }

    /// A step in which prompts enter, beside who decodes or alone.
    fn prefill(&mut self, watch: &mut impl Watch) -> Result<(), Missing> {
        let alone = self.engine.prefill_first;
        let (decodes, decode_tokens) =
            if alone { (0, 0) } else { (self.decoding.count, self.decoding.tokens) };
        let sampled = self.places.iter().zip(&self.pieces).filter(|(place, piece)| {
            let sequence = &self.sequences[**place as usize];
            sequence.computed + piece.new == sequence.known()
        });
        let sampled = decodes + sampled.count() as u64;
        let batch = Batch { pieces: &self.pieces, decodes, decode_tokens, sampled };
        let sequences = if alone { self.pieces.len() } else { self.running.len() };
        let host = self.engine.host.of(sequences as u64);
        let time = self.prices.step(&batch)? + host + std::mem::take(&mut self.moving);
        let begin = self.now;
        self.now += time;
        let steps = Steps {
            begin,
            end: self.now,
            host,
            count: 1,
            batch,
            free_blocks: self.blocks.free(),
            course: self.prices.course(),
            waiting: self.waiting.len(),
        };
        watch.steps(&steps);
        if alone {
            self.stalled |= self.decoding.count > 0;
        } else {
            watch.gaps(time, decodes);
            self.decoding.advance(1);
            self.finish();
        }
        self.enter(watch);
        Ok(())
    }

    /// Steps in which nobody enters, until one ends, blocks are short, or prices change their line.
    fn decode(&mut self, until: Picos, preempted: bool, watch: &mut impl Watch) -> Result<(), Missing> {
        let (count, tokens) = (self.decoding.count, self.decoding.tokens);
        let host = self.engine.host.of(count);
        let line = self.prices.decode(count, tokens)?.plus(host).plus(std::mem::take(&mut self.moving));
        let sequences = &self.sequences;
        let end = self.decoding.first_end(|place, life| sequences[place as usize].life == life);
        // After a preemption, the next step may admit again; and so it may where less and less is reserved,
        // where who is late changes with time, or where something else is found meanwhile.
        let once = preempted
            || self.stalled
            || self.engine.reserve == Reserve::Answer && self.waiting.len() > 0
            || self.is_paced()
            || self.may_find_otherwise(self.now);
        let most = if once { 1 } else { end.expect("who decodes will end") };
        let most = most.min((line.until - 1 - tokens) / count + 1);
        let most = 1 + self.decoding.steps_within(self.blocks.free(), most - 1);
        let made = line.begun(tokens, count, most, until - self.now);
        self.blocks.take(self.decoding.later_growth(made - 1));
        let begin = self.now;
        self.now += line.series(tokens, count, made);
        let batch = Batch { pieces: &[], decodes: count, decode_tokens: tokens, sampled: count };
        let steps = Steps {
            begin,
            end: self.now,
            host: Picos(host.0.saturating_mul(made)),
            count: made,
            batch,
            free_blocks: self.blocks.free(),
            course: self.prices.course(),
            waiting: self.waiting.len(),
        };
        watch.steps(&steps);
        if std::mem::take(&mut self.stalled) {
            self.tell_stalled(watch);
        } else {
            gaps_of(&line, &steps, watch);
        }
        self.decoded = self.now;
        self.decoding.advance(made);
        self.finish();
        Ok(())
    }

    /// Tells the gaps of a decode step after steps without one: who joined since has waited less.
    fn tell_stalled(&self, watch: &mut impl Watch) {
        let all = self.running.iter().map(|&place| &self.sequences[place as usize]);
        for sequence in all.filter(|sequence| sequence.joined.is_some()) {
            watch.gaps(self.now - self.decoded.max(sequence.last_token), 1);
        }
    }

    /// Ends the decodes that have their last token, in the order of admission.
    fn finish(&mut self) {
        self.ended.clear();
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

    /// What the step computed of prompts is there; where that is all of one, so is a token.
    fn enter(&mut self, watch: &mut impl Watch) {
        for index in 0..self.places.len() {
            let (place, piece) = (self.places[index], self.pieces[index]);
            let sequence = &mut self.sequences[place as usize];
            sequence.computed += piece.new;
            self.publish(place, watch);
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
                Some(_) => watch.gaps(self.now - sequence.last_token, 1),
            }
            sequence.last_token = self.now;
            match sequence.generated == sequence.request.output_tokens {
                true => self.leave(place),
                false => self.decoding.join(place, sequence),
            }
        }
    }

    /// A sequence has its last token.
    fn leave(&mut self, place: u32) {
        let sequence = &mut self.sequences[place as usize];
        sequence.last_token = self.now;
        release(&self.engine, &mut self.blocks, sequence);
        let served = sequence.served();
        self.seen.answered(&served);
        self.served.push(served);
        let index = self.running.iter().rposition(|&running| running == place);
        self.running.remove(index.expect("who ends has run"));
        self.vacant.push(place);
    }
}
