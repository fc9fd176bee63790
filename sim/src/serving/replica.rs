//! One engine: its queue, its running sequences, its KV cache, its clock.
//!
//! A step is made up as vLLM does it: every running sequence first, in the order of admission, each decode with one
//! token, the prompt that is not all there with as many as fit; where blocks run out, the last admitted sequence is
//! sent back to the queue and its blocks are freed. Where nobody was, waiting sequences are admitted while tokens, blocks and
//! places are left.

use super::batch::{Batch, Piece, StepPrices};
use super::blocks::Blocks;
use super::decoding::Decoding;
use super::engine::Engine;
use super::picos::Picos;
use super::prefix::{find, hold, publish, release};
use super::request::{Rejected, Request, Served};
use super::sequence::Sequence;
use super::waiting::Waiting;
use super::watch::{Steps, Watch, gaps_of};
use hwprofiles::Missing;

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
    blocks: Blocks,
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
        Self {
            now: Picos::ZERO,
            waiting: Waiting::new(engine.policy),
            sequences: Vec::new(),
            vacant: Vec::new(),
            running: Vec::new(),
            entering: None,
            decoding: Decoding::new(engine.block_size),
            blocks: Blocks::new(engine.num_blocks),
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

    /// Blocks of its KV cache that are free.
    pub fn free_blocks(&self) -> u64 {
        self.blocks.free()
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
        if self.running.is_empty() && self.waiting.len() == 0 {
            self.now = self.now.max(request.arrival);
        }
        let prompt = request.prompt_tokens;
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
        self.waiting.push(place, prompt);
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
                () if self.running.is_empty() && self.waiting.len() == 0 => return Ok(Pause::Idle),
                () if self.now >= until => return Ok(Pause::Reached),
                () => self.step(until, watch)?,
            }
        }
    }

    /// The next step, or the series of steps that begin before `until` and are like it.
    fn step(&mut self, until: Picos, watch: &mut impl Watch) -> Result<(), Missing> {
        self.pieces.clear();
        self.places.clear();
        let preempted = self.grow(watch);
        if !preempted {
            self.admit();
        }
        if self.pieces.is_empty() {
            return self.decode(until, preempted, watch);
        }
        let sampled = self.places.iter().zip(&self.pieces).filter(|(place, piece)| {
            let sequence = &self.sequences[**place as usize];
            sequence.computed + piece.new == sequence.known()
        });
        let sampled = self.decoding.count + sampled.count() as u64;
        let batch = Batch {
            pieces: &self.pieces,
            decodes: self.decoding.count,
            decode_tokens: self.decoding.tokens,
            sampled,
        };
        let time = self.prices.step(&batch)? + self.engine.host.of(self.running.len() as u64);
        let begin = self.now;
        self.now += time;
        let steps = Steps {
            begin,
            end: self.now,
            count: 1,
            batch,
            free_blocks: self.blocks.free(),
            waiting: self.waiting.len(),
        };
        watch.steps(&steps);
        watch.gaps(time, self.decoding.count);
        self.decoding.advance(1);
        self.finish();
        self.enter(watch);
        Ok(())
    }

    /// Steps in which nobody enters, until one ends, blocks are short, or prices change their line.
    fn decode(&mut self, until: Picos, preempted: bool, watch: &mut impl Watch) -> Result<(), Missing> {
        let (count, tokens) = (self.decoding.count, self.decoding.tokens);
        let line = self.prices.decode(count, tokens)?.plus(self.engine.host.of(count));
        let sequences = &self.sequences;
        let end = self.decoding.first_end(|place, life| sequences[place as usize].life == life);
        // After a preemption, the next step may admit again.
        let most = if preempted { 1 } else { end.expect("who decodes will end") };
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
            count: made,
            batch,
            free_blocks: self.blocks.free(),
            waiting: self.waiting.len(),
        };
        watch.steps(&steps);
        gaps_of(&line, &steps, watch);
        self.decoding.advance(made);
        self.finish();
        Ok(())
    }

    /// Blocks for everybody who runs; whether somebody was sent back for that.
    fn grow(&mut self, watch: &mut impl Watch) -> bool {
        let mut preempted = false;
        while self.decoding.growth() > self.blocks.free() {
            self.send_back(watch);
            preempted = true;
        }
        self.blocks.take(self.decoding.growth());
        let Some(place) = self.entering else { return preempted };
        let sequence = &mut self.sequences[place as usize];
        let room = self.engine.max_num_batched_tokens - self.decoding.count;
        let new = (sequence.known() - sequence.computed).min(room);
        let more = self.engine.blocks(sequence.computed + new).saturating_sub(sequence.held);
        if more > self.blocks.free() {
            self.send_back(watch);
            return true;
        }
        self.blocks.take(more);
        sequence.held += more;
        if new > 0 {
            self.pieces.push(Piece { new, past: sequence.computed });
            self.places.push(place);
        }
        preempted
    }

    /// Admits who waits while there is room.
    fn admit(&mut self) {
        let entered = |pieces: &[Piece]| pieces.iter().map(|piece| piece.new).sum::<u64>();
        while let Some(place) = self.waiting.first() {
            let used = self.decoding.count + entered(&self.pieces);
            let room = self.engine.max_num_batched_tokens.saturating_sub(used);
            // Who does not get all of its prompt in is the last.
            let behind = self.entering.is_some_and(|entering| {
                let sequence = &self.sequences[entering as usize];
                self.pieces.first().is_none_or(|piece| sequence.computed + piece.new < sequence.known())
            });
            if room == 0 || behind || self.running.len() as u64 >= self.engine.max_num_seqs {
                return;
            }
            let sequence = &mut self.sequences[place as usize];
            let known = sequence.known();
            let (cached, idle) = find(&self.engine, &self.blocks, sequence);
            let computed = (cached * self.engine.block_size)
                .min((known - 1) / self.engine.block_size * self.engine.block_size);
            let wanted = known - computed;
            let new = match self.engine.chunked_prefill {
                true => wanted.min(room),
                false if wanted <= room || used == 0 => wanted,
                false => return,
            };
            let more = self.engine.blocks(computed + new).saturating_sub(cached);
            let reserved = if self.engine.reserve_prompt {
                self.engine.blocks(known).saturating_sub(cached)
            } else {
                more
            };
            if reserved > self.blocks.free() - idle {
                return;
            }
            self.waiting.pop();
            hold(&self.engine, &mut self.blocks, sequence, cached);
            self.blocks.take(more);
            sequence.held = cached + more;
            sequence.computed = computed;
            sequence.cached_tokens += computed;
            sequence.scheduled.get_or_insert(self.now);
            self.running.push(place);
            self.pieces.push(Piece { new, past: computed });
            self.places.push(place);
            if new < wanted {
                self.entering = Some(place);
                return;
            }
        }
    }

    /// Sends the last admitted sequence back to the queue.
    fn send_back(&mut self, watch: &mut impl Watch) {
        let place = self.running.pop().expect("who needs blocks runs");
        let sequence = &mut self.sequences[place as usize];
        match sequence.joined {
            Some(_) => {
                self.decoding.leave(sequence);
                sequence.last_token = self.now;
                sequence.life += 1;
            }
            None => self.entering = None,
        }
        release(&self.engine, &mut self.blocks, sequence);
        sequence.preemptions += 1;
        self.waiting.push_back_to_front(place, sequence.request.prompt_tokens);
        watch.preempted();
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
            publish(&self.engine, &mut self.blocks, sequence);
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
        self.served.push(sequence.served());
        let index = self.running.iter().rposition(|&running| running == place);
        self.running.remove(index.expect("who ends has run"));
        self.vacant.push(place);
    }
}
