//! The sequences that decode, as sums.
//!
//! Every decode step adds one token to each of them. So no sequence is visited one by one: one
//! count of steps gives all their lengths. For their blocks it is enough to know how many sequences
//! fill a block after how many steps. Only sequences whose windows are not full yet take more than
//! that: they are counted by their length.

use crate::serving::kv::sequence_blocks::SequenceBlocks;
use crate::serving::schedule::sequence::Sequence;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The decoding sequences of one engine.
#[derive(Debug, Clone)]
pub(crate) struct DecodingSet {
    /// Decode steps so far.
    pub steps: u64,
    /// The number of sequences that decode.
    pub count: u64,
    /// The sum of their known tokens, which the next step attends to.
    pub tokens: u64,
    /// By class, the number of sequences in it. The class is the known tokens minus `steps`, modulo
    /// the block size.
    class_counts: Vec<u64>,
    /// The class of the sequences that need a block in the next step. Their known tokens are 1 more
    /// than full blocks. A step later it is the class before.
    growing_class: usize,
    /// What a sequence takes.
    sequence: SequenceBlocks,
    /// The number of sequences whose windows may not be full, by known tokens minus `steps`.
    filling: BTreeMap<i64, u64>,
    /// For each sequence the step after which it has its last token, its place, and its life.
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// The same for the step after which its client has its first tokens, where several are sent
    /// together.
    sent: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl DecodingSet {
    pub fn new(block_size: u64, sequence: SequenceBlocks) -> Self {
        Self {
            steps: 0,
            count: 0,
            tokens: 0,
            class_counts: vec![0; block_size as usize],
            growing_class: (1 % block_size) as usize,
            sequence,
            filling: BTreeMap::new(),
            ends: BinaryHeap::new(),
            sent: BinaryHeap::new(),
        }
    }

    /// Adds `sequence` at `place`, which has a token and decodes from the next step on.
    pub fn join(&mut self, place: u32, sequence: &mut Sequence) {
        sequence.joined = Some(self.steps as i64 - sequence.generated as i64);
        self.count += 1;
        self.tokens += sequence.known();
        let class = self.class(sequence.known());
        self.class_counts[class] += 1;
        if sequence.known() <= self.sequence.longest_pooled_window() {
            *self.filling.entry(sequence.known() as i64 - self.steps as i64).or_default() += 1;
        }
        let left = sequence.request.output_tokens - sequence.generated;
        self.ends.push(Reverse((self.steps + left, place, sequence.life)));
    }

    /// Notes that `sequence` at `place`, which has just joined, has its first `together` tokens
    /// sent when it has them all.
    pub fn send_together(&mut self, place: u32, sequence: &Sequence, together: u64) {
        if sequence.generated < together && together < sequence.request.output_tokens {
            let left = together - sequence.generated;
            self.sent.push(Reverse((self.steps + left, place, sequence.life)));
        }
    }

    /// Removes `sequence` and writes its present state into it.
    pub fn leave(&mut self, sequence: &mut Sequence) {
        let joined = sequence.joined.take().expect("a sequence joins before it leaves");
        sequence.generated = self.generated(joined);
        sequence.computed = sequence.known() - 1;
        sequence.held = self.sequence.blocks(sequence.computed, self.class_counts.len() as u64);
        self.count -= 1;
        self.tokens -= sequence.known();
        let class = self.class(sequence.known());
        self.class_counts[class] -= 1;
        let key = sequence.known() as i64 - self.steps as i64;
        if let Some(count) = self.filling.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.filling.remove(&key);
            }
        }
    }

    /// Tokens of an answer that began at step `joined`: see [`Sequence::joined`].
    pub fn generated(&self, joined: i64) -> u64 {
        (self.steps as i64 - joined) as u64
    }

    /// Blocks that the next step needs: one for each sequence whose known tokens but the last fill
    /// their blocks, and those of windows that are not full.
    pub fn growth(&self) -> u64 {
        let growing = if self.sequence.grows() { self.class_counts[self.growing_class] } else { 0 };
        growing + self.filled(|known| [known - 1, known])
    }

    /// Blocks that `steps` further steps need, after the next step.
    pub fn later_growth(&self, steps: u64) -> u64 {
        let windows = self.filled(|known| [known, known + steps]);
        if !self.sequence.grows() {
            return windows;
        }
        let size = self.class_counts.len() as u64;
        let rest: u64 = self.growing_counts((steps % size) as usize).sum();
        steps / size * self.count + rest + windows
    }

    /// Blocks of windows that sequences take between two numbers of tokens, which `ends` gives from
    /// their known tokens.
    fn filled(&self, ends: impl Fn(u64) -> [u64; 2]) -> u64 {
        if self.filling.is_empty() {
            return 0;
        }
        let size = self.class_counts.len() as u64;
        let each = |(&key, &count): (&i64, &u64)| {
            let [from, to] =
                ends((key + self.steps as i64) as u64).map(|tokens| self.sequence.beside(tokens, size));
            count * (to - from)
        };
        self.filling.iter().map(each).sum()
    }

    /// The number of further steps after the next one, at most `most`, that `free` blocks suffice
    /// for.
    pub fn steps_within(&self, free: u64, most: u64) -> u64 {
        if !self.filling.is_empty() || !self.sequence.grows() {
            return self.steps_within_windows(free, most);
        }
        let size = self.class_counts.len() as u64;
        if (most / size + 1).saturating_mul(self.count) <= free {
            return most;
        }
        let mut steps = free / self.count * size;
        let mut left = free % self.count;
        for growth in self.growing_counts(self.class_counts.len()) {
            if steps >= most || growth > left {
                break;
            }
            left -= growth;
            steps += 1;
        }
        steps.min(most)
    }

    /// The number of sequences that need a block, in each of `steps` steps after the next one: at
    /// most as many steps as a block has tokens.
    fn growing_counts(&self, steps: usize) -> impl Iterator<Item = u64> + '_ {
        let (before, behind) = self.class_counts.split_at(self.growing_class);
        let again = steps.saturating_sub(before.len());
        let [before, behind] = [&before[before.len() - (steps - again)..], &behind[behind.len() - again..]];
        before.iter().rev().chain(behind.iter().rev()).copied()
    }

    /// The same by halving: more steps never need fewer blocks.
    fn steps_within_windows(&self, free: u64, most: u64) -> u64 {
        if self.later_growth(most) <= free {
            return most;
        }
        let (mut enough, mut too_many) = (0, most);
        while too_many - enough > 1 {
            let middle = enough.midpoint(too_many);
            match self.later_growth(middle) <= free {
                true => enough = middle,
                false => too_many = middle,
            }
        }
        enough
    }

    /// Counts `steps` steps.
    pub fn advance(&mut self, steps: u64) {
        let size = self.class_counts.len();
        self.growing_class = (self.growing_class + size - (steps % size as u64) as usize) % size;
        self.steps += steps;
        self.tokens += self.count * steps;
        let full = self.sequence.longest_pooled_window() as i64 - self.steps as i64;
        if self.filling.last_key_value().is_some_and(|(&key, _)| key > full) {
            self.filling.split_off(&(full + 1));
        }
    }

    /// The steps from now until the first sequence ends, or its client has its first tokens.
    /// `lives` says whether a life is still the one at its place.
    pub fn next_event(&mut self, lives: impl Fn(u32, u32) -> bool) -> Option<u64> {
        let next = [&mut self.ends, &mut self.sent].map(|events| first_alive(events, &lives));
        let step = next.into_iter().flatten().min();
        step.map(|step| step - self.steps)
    }

    /// Takes the place of a sequence that has its last token.
    pub fn ended(&mut self, lives: impl Fn(u32, u32) -> bool) -> Option<u32> {
        take_due(&mut self.ends, self.steps, lives)
    }

    /// Takes the place of a sequence whose first tokens are sent.
    pub fn sent(&mut self, lives: impl Fn(u32, u32) -> bool) -> Option<u32> {
        take_due(&mut self.sent, self.steps, lives)
    }

    fn class(&self, known: u64) -> usize {
        (self.growing_class + known as usize - 1) % self.class_counts.len()
    }
}

/// The step of the first event of a life that is still the one at its place.
fn first_alive(
    events: &mut BinaryHeap<Reverse<(u64, u32, u32)>>,
    lives: impl Fn(u32, u32) -> bool,
) -> Option<u64> {
    while let Some(Reverse((step, place, life))) = events.peek().copied() {
        if lives(place, life) {
            return Some(step);
        }
        events.pop();
    }
    None
}

/// Takes the place of the first such event, if it is due by `steps`.
fn take_due(
    events: &mut BinaryHeap<Reverse<(u64, u32, u32)>>,
    steps: u64,
    lives: impl Fn(u32, u32) -> bool,
) -> Option<u32> {
    first_alive(events, lives).filter(|&step| step <= steps)?;
    events.pop().map(|Reverse((_, place, _))| place)
}
