//! The sequences that decode, by their sums.
//!
//! Every decode step adds one token to each of them. So nobody is asked one by one: a count of steps stands for all of
//! their lengths, and of their blocks it is enough to know how many fill up after how many steps.

use super::sequence::Sequence;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// They.
#[derive(Debug, Clone)]
pub(super) struct Decoding {
    /// Decode steps so far.
    pub steps: u64,
    /// How many decode.
    pub count: u64,
    /// Their known tokens, all together: what the next step attends to.
    pub tokens: u64,
    /// How many have known tokens that are `class` more than `steps`, modulo the size of a block.
    fill: Vec<u64>,
    /// After which step each has its last token: its place, and the life in it.
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl Decoding {
    pub fn new(block_size: u64) -> Self {
        Self { steps: 0, count: 0, tokens: 0, fill: vec![0; block_size as usize], ends: BinaryHeap::new() }
    }

    /// `sequence` at `place` has a token, and decodes from the next step on.
    pub fn join(&mut self, place: u32, sequence: &mut Sequence) {
        sequence.joined = Some(self.steps as i64 - sequence.generated as i64);
        self.count += 1;
        self.tokens += sequence.known();
        let class = self.class(sequence.known());
        self.fill[class] += 1;
        let left = sequence.request.output_tokens - sequence.generated;
        self.ends.push(Reverse((self.steps + left, place, sequence.life)));
    }

    /// `sequence` decodes no longer: what it is now stands in it.
    pub fn leave(&mut self, sequence: &mut Sequence) {
        let joined = sequence.joined.take().expect("who leaves has joined");
        sequence.generated = self.generated(joined);
        sequence.computed = sequence.known() - 1;
        sequence.held = sequence.computed.div_ceil(self.fill.len() as u64);
        self.count -= 1;
        self.tokens -= sequence.known();
        let class = self.class(sequence.known());
        self.fill[class] -= 1;
    }

    /// Tokens of an answer that would have begun at that step: see [`Sequence::joined`].
    pub fn generated(&self, joined: i64) -> u64 {
        (self.steps as i64 - joined) as u64
    }

    /// Blocks that the next step needs: of those whose known tokens but the last fill their blocks.
    pub fn growth(&self) -> u64 {
        self.fill[self.growing(0)]
    }

    /// Blocks that `steps` further steps need, after the next one.
    pub fn later_growth(&self, steps: u64) -> u64 {
        let size = self.fill.len() as u64;
        let rest = (1..=steps % size).map(|later| self.fill[self.growing(later)]);
        steps / size * self.count + rest.sum::<u64>()
    }

    /// How many of at most `most` further steps, after the next one, `free` blocks are enough for.
    pub fn steps_within(&self, free: u64, most: u64) -> u64 {
        let size = self.fill.len() as u64;
        if (most / size + 1).saturating_mul(self.count) <= free {
            return most;
        }
        let mut steps = free / self.count * size;
        let mut left = free % self.count;
        loop {
            let growth = self.fill[self.growing(steps % size + 1)];
            if steps >= most || growth > left {
                return steps.min(most);
            }
            left -= growth;
            steps += 1;
        }
    }

    /// So many steps were made.
    pub fn advance(&mut self, steps: u64) {
        self.steps += steps;
        self.tokens += self.count * steps;
    }

    /// How many steps from now the first of them ends; `lives` says whether a life is still the one at its place.
    pub fn first_end(&mut self, lives: impl Fn(u32, u32) -> bool) -> Option<u64> {
        while let Some(Reverse((end, place, life))) = self.ends.peek().copied() {
            if lives(place, life) {
                return Some(end - self.steps);
            }
            self.ends.pop();
        }
        None
    }

    /// The place of one that has its last token.
    pub fn ended(&mut self, lives: impl Fn(u32, u32) -> bool) -> Option<u32> {
        while let Some(Reverse((end, place, life))) = self.ends.peek().copied() {
            let alive = lives(place, life);
            if alive && end > self.steps {
                return None;
            }
            self.ends.pop();
            if alive {
                return Some(place);
            }
        }
        None
    }

    fn class(&self, known: u64) -> usize {
        (known as i64 - self.steps as i64).rem_euclid(self.fill.len() as i64) as usize
    }

    /// The class of those that need a block so many steps after the next one: whose known tokens are then 1 more than
    /// full blocks.
    fn growing(&self, later: u64) -> usize {
        (1 - (self.steps + later) as i64).rem_euclid(self.fill.len() as i64) as usize
    }
}
