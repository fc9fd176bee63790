//! A reference engine: every block is an object of its own, and every sequence is visited in every
//! step.

mod second_level;
mod slo;
mod swap;

use second_level::NameList;
use sim::SimTime;
use sim::serving::{
    AdmissionPolicy, Batch, EngineSettings, PrefillChunk, Request, Reserve, ServedRequest, StepPrices,
};
use std::collections::{BTreeMap, VecDeque};

/// A sequence of the reference engine.
#[derive(Debug, Clone, Default)]
struct ReferenceSequence {
    request: Request,
    generated: u64,
    computed: u64,
    blocks: Vec<usize>,
    copies: bool,
    /// Whether its last step gave it a token.
    decodes: bool,
    scheduled: Option<u64>,
    first: Option<u64>,
    cached: u64,
    fetched: u64,
    /// The number of its first tokens in the swap space, and of those that came back or were
    /// fetched for this step.
    swapped: u64,
    came_back: u64,
    preemptions: u32,
}

impl ReferenceSequence {
    fn known(&self) -> u64 {
        self.request.prompt_tokens + self.generated
    }
}

/// The content of a block: the n-th name of all, or the n-th block of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    Name(u64),
    Own(u64, u64),
}

/// Blocks of a sequence of `tokens` tokens, counted one by one.
fn blocks_of(engine: &EngineSettings, tokens: u64) -> u64 {
    let ends = (1..=tokens).filter(|token| token % engine.block_size == 1 % engine.block_size);
    let growing = if engine.sequence.grows() { ends.count() as u64 } else { 0 };
    growing + engine.sequence.beside(tokens, engine.block_size)
}

struct ReferenceCache<'a> {
    engine: &'a EngineSettings,
    free: VecDeque<usize>,
    content: Vec<Option<Content>>,
    holders: Vec<u64>,
    found: BTreeMap<Content, usize>,
}

impl ReferenceCache<'_> {
    fn take(&mut self) -> usize {
        let block = self.free.pop_front().unwrap();
        if let Some(content) = self.content[block].take() {
            self.found.remove(&content);
        }
        self.holders[block] = 1;
        block
    }

    fn content(&self, sequence: &ReferenceSequence, index: u64) -> Content {
        let named = sequence.request.prompt_tokens / self.engine.block_size;
        match sequence.request.prefix.get(index as usize) {
            Some(&name) if index < named => Content::Name(name),
            _ => Content::Own(sequence.request.id, index),
        }
    }

    fn hits(&self, sequence: &ReferenceSequence) -> Vec<usize> {
        if !self.engine.prefix_caching {
            return vec![];
        }
        let known = sequence.request.prompt_tokens + sequence.generated;
        let mut hits = vec![];
        for index in 0..known / self.engine.block_size {
            let content = self.content(sequence, index);
            let last = (index + 1) * self.engine.block_size == known;
            match self.found.get(&content) {
                Some(&block) if !(last && matches!(content, Content::Own(..))) => hits.push(block),
                _ => break,
            }
        }
        hits
    }

    fn hold(&mut self, block: usize) {
        if self.holders[block] == 0 {
            self.free.retain(|&free| free != block);
        }
        self.holders[block] += 1;
    }

    /// The names that are complete after `new` more tokens were computed.
    fn name_full(&mut self, sequence: &mut ReferenceSequence, new: u64) -> Vec<u64> {
        let mut names = vec![];
        if !self.engine.prefix_caching {
            return names;
        }
        let before = (sequence.computed - new) / self.engine.block_size;
        for index in before..sequence.computed / self.engine.block_size {
            let (block, content) = (sequence.blocks[index as usize], self.content(sequence, index));
            if self.content[block].is_some() {
                continue;
            }
            if let Content::Name(name) = content {
                names.push(name);
            }
            if self.found.contains_key(&content) {
                sequence.copies = true;
            } else if !(sequence.copies && matches!(content, Content::Own(..))) {
                self.content[block] = Some(content);
                self.found.insert(content, block);
            }
        }
        names
    }

    fn release(&mut self, sequence: &mut ReferenceSequence) {
        let named = |content: &Option<Content>| matches!(content, Some(Content::Name(_)));
        let own: Vec<_> = sequence.blocks.iter().copied().filter(|&b| !named(&self.content[b])).collect();
        let names: Vec<_> = sequence.blocks.iter().copied().filter(|&b| named(&self.content[b])).collect();
        for block in own.into_iter().rev().chain(names.into_iter().rev()) {
            self.holders[block] -= 1;
            if self.holders[block] == 0 {
                if sequence.copies
                    && !named(&self.content[block])
                    && let Some(content) = self.content[block].take()
                {
                    self.found.remove(&content);
                }
                self.free.push_back(block);
            }
        }
        sequence.blocks.clear();
        sequence.computed = 0;
        sequence.copies = false;
        sequence.decodes = false;
    }
}

/// The engine at work.
struct ReferenceEngine<'a, P> {
    cache: ReferenceCache<'a>,
    prices: P,
    now: u64,
    /// Blocks in the swap space, and the delay of the step by moving blocks.
    swapped: u64,
    moving: u64,
    second: NameList,
    waiting: VecDeque<ReferenceSequence>,
    running: Vec<ReferenceSequence>,
    served: Vec<ServedRequest>,
    /// The number of decode steps, and that number when the engine began to work or last preempted.
    steps: u64,
    settled: u64,
}

/// Serves `requests` step by step.
pub fn serve_by_reference(
    engine: &EngineSettings,
    requests: &[Request],
    prices: impl StepPrices,
) -> Vec<ServedRequest> {
    let shares = matches!(engine.policy, AdmissionPolicy::Slo { .. });
    let engine = &EngineSettings { prefill_first: engine.prefill_first && !shares, ..engine.clone() };
    let blocks = engine.num_blocks as usize;
    let cache = ReferenceCache {
        engine,
        free: (0..blocks).collect(),
        content: vec![None; blocks],
        holders: vec![0; blocks],
        found: BTreeMap::new(),
    };
    let (waiting, running, served) = Default::default();
    let mut work = ReferenceEngine {
        cache,
        prices,
        now: 0,
        swapped: 0,
        moving: 0,
        second: NameList::default(),
        waiting,
        running,
        served,
        steps: 0,
        settled: 0,
    };
    let mut next = 0;
    loop {
        if work.waiting.is_empty() && work.running.is_empty() {
            let Some(request) = requests.get(next) else { return work.served };
            work.now = work.now.max(request.arrival.picos());
            work.settled = work.steps;
        }
        while next < requests.len() && requests[next].arrival.picos() <= work.now {
            if engine.refusal(&requests[next]).is_none() {
                work.waiting.push_back(ReferenceSequence {
                    request: requests[next].clone(),
                    ..ReferenceSequence::default()
                });
            }
            next += 1;
        }
        if !work.waiting.is_empty() || !work.running.is_empty() {
            work.step();
        }
    }
}

impl<P: StepPrices> ReferenceEngine<'_, P> {
    fn step(&mut self) {
        let mut entering = vec![];
        let alone = self.cache.engine.prefill_first;
        let sent_back = self.grow(&mut entering, |sequence| !(alone && sequence.decodes));
        while !sent_back && self.admit(&mut entering) {}
        let enters = entering.iter().any(|&new| new > 0);
        if alone && !enters {
            entering.clear();
            self.grow(&mut entering, |_| true);
        }
        if !(alone && enters) {
            self.steps += 1;
        }
        let fresh: Vec<bool> = self.running.iter().map(|s| !s.decodes).collect();
        let with = |fresh_ones: bool| {
            let all = self.running.iter().zip(&entering).zip(&fresh);
            all.filter(move |(_, fresh)| **fresh == fresh_ones).map(|((s, &new), _)| (s, new))
        };
        let chunks: Vec<_> = with(true)
            .filter(|(_, new)| *new > 0)
            .map(|(s, new)| PrefillChunk { new, past: s.computed })
            .collect();
        let decodes = || with(false).filter(|(_, new)| *new > 0);
        let decode_tokens = decodes().map(|(s, _)| s.computed + 1).sum();
        let sampled = self.running.iter().zip(&entering).filter(|(s, new)| s.computed + **new == s.known());
        let sampled = sampled.count() as u64;
        let batch = Batch { chunks: &chunks, decodes: decodes().count() as u64, decode_tokens, sampled };
        let there = entering.iter().filter(|&&new| new > 0).count();
        let host = self.cache.engine.host.time(there as u64);
        self.now +=
            self.prices.step(&batch).unwrap().picos() + host.picos() + std::mem::take(&mut self.moving);
        self.end(entering);
    }

    /// Takes blocks for the running sequences that `selects` chooses, and notes how much of each
    /// enters. Returns whether a sequence was preempted.
    fn grow(&mut self, entering: &mut Vec<u64>, selects: impl Fn(&ReferenceSequence) -> bool) -> bool {
        let (mut sent_back, mut index) = (false, 0);
        let mut budget = self.cache.engine.max_num_batched_tokens;
        while index < self.running.len() {
            let sequence = &self.running[index];
            if !selects(sequence) {
                entering.push(0);
                index += 1;
                continue;
            }
            let (computed, decodes) = (sequence.computed, sequence.decodes);
            let mut new = (sequence.known() - computed).min(budget);
            if !decodes {
                let behind = self.running[index].clone();
                new = self.fit(entering, &behind, true, new, computed);
            }
            let wanted = blocks_of(self.cache.engine, computed + new) as usize;
            while self.running.len() > index
                && wanted.saturating_sub(self.running[index].blocks.len()) > self.cache.free.len()
            {
                let mut last = self.running.pop().unwrap();
                let computed = last.computed;
                self.cache.release(&mut last);
                self.swap_out(&mut last, computed);
                last.preemptions += 1;
                self.settled = self.steps;
                self.requeue(last);
                sent_back = true;
            }
            if index == self.running.len() {
                break;
            }
            while self.running[index].blocks.len() < wanted {
                let block = self.cache.take();
                self.running[index].blocks.push(block);
            }
            budget -= new;
            entering.push(new);
            index += 1;
        }
        sent_back
    }

    /// The index of the waiting sequence that comes first.
    fn next_waiting(&mut self, entering: &[u64]) -> Option<usize> {
        match self.cache.engine.policy {
            AdmissionPolicy::Fcfs => (!self.waiting.is_empty()).then_some(0),
            AdmissionPolicy::ShortestFirst => {
                (0..self.waiting.len()).min_by_key(|&index| self.waiting[index].request.prompt_tokens)
            }
            AdmissionPolicy::Slo { ttft, tpot } => self.next_by_slack(entering, ttft, tpot),
        }
    }

    /// The tokens that running answers are expected to need, and the rest of the entering prompt.
    fn expected(&self) -> u64 {
        let left = |s: &ReferenceSequence| (s.request.output_tokens - s.generated).min(4096);
        let likely: u64 = self.running.iter().filter(|s| s.decodes).map(left).sum();
        let fresh = self.running.iter().filter(|s| !s.decodes);
        let whole: u64 = fresh
            .map(|s| left(s) + s.known().saturating_sub(s.blocks.len() as u64 * self.cache.engine.block_size))
            .sum();
        let share = 0.7 - 0.602 * (self.steps - self.settled).min(600) as f64 / 600.0;
        whole + (likely as f64 * share).ceil() as u64
    }

    /// The blocks that a running sequence still needs until it ends.
    fn promised(&self, sequence: &ReferenceSequence) -> usize {
        let all = sequence.request.prompt_tokens + sequence.request.output_tokens - 1;
        (blocks_of(self.cache.engine, all) as usize).saturating_sub(sequence.blocks.len())
    }

    /// Admits the first waiting sequence. Returns whether there was room.
    fn admit(&mut self, entering: &mut Vec<u64>) -> bool {
        let engine = self.cache.engine;
        let (size, used) = (engine.block_size, entering.iter().sum::<u64>());
        let budget = engine.max_num_batched_tokens.saturating_sub(used);
        let all_in = |(s, new): (&ReferenceSequence, &u64)| s.decodes || s.computed + new == s.known();
        let all_in = self.running.iter().zip(&*entering).all(all_in);
        if budget == 0 || self.running.len() as u64 >= engine.max_num_seqs || !all_in {
            return false;
        }
        let Some(turn) = self.next_waiting(entering) else { return false };
        let first = &self.waiting[turn];
        let known = first.known();
        let hits = self.cache.hits(first);
        let found = (hits.len() as u64 * size).min((known - 1) / size * size);
        let first = first.clone();
        let without = found.max(first.swapped);
        let computed = self.reach(&first, hits.len(), without);
        let wanted = known - computed;
        let new = if engine.chunked_prefill { wanted.min(budget) } else { wanted };
        if !engine.chunked_prefill && new > budget && used > 0 {
            return false;
        }
        let new = self.fit(entering, &first, false, new, computed);
        if new == 0 {
            return false;
        }
        let more = (blocks_of(engine, computed + new) as usize).saturating_sub(hits.len());
        let left = (first.request.output_tokens - first.generated).min(4096);
        let reserved = match engine.reserve {
            Reserve::Chunk => computed + new,
            Reserve::Prompt => known,
            Reserve::Answer => known + left - 1,
            Reserve::WholeAnswer => known + first.request.output_tokens - first.generated - 1,
        };
        let mut reserved = (blocks_of(engine, reserved) as usize).saturating_sub(hits.len());
        if engine.reserve == Reserve::Answer {
            reserved += self.expected().div_ceil(size) as usize;
        }
        if engine.reserve == Reserve::WholeAnswer {
            reserved += self.running.iter().map(|s| self.promised(s)).sum::<usize>();
        }
        let full = hits.len() as u64 * size;
        let idle = hits.iter().filter(|&&block| self.cache.holders[block] == 0).count();
        if reserved + idle > self.cache.free.len() {
            return false;
        }
        let mut first = self.waiting.remove(turn).unwrap();
        hits.iter().for_each(|&block| self.cache.hold(block));
        self.swap_back(&mut first, hits.len());
        self.fetch(&mut first, computed - without);
        first.came_back = computed.saturating_sub(full);
        first.blocks = hits;
        first.blocks.extend((0..more).map(|_| self.cache.take()));
        first.computed = computed;
        first.cached += found;
        first.scheduled.get_or_insert(self.now);
        self.running.push(first);
        entering.push(new);
        true
    }

    /// Adds the computed tokens to their sequences, with the tokens that were sampled.
    fn end(&mut self, entering: Vec<u64>) {
        let mut index = 0;
        for new in entering {
            let sequence = &mut self.running[index];
            sequence.computed += new;
            let all = sequence.computed == sequence.known();
            let fresh = new + std::mem::take(&mut sequence.came_back);
            let named = self.cache.name_full(sequence, fresh);
            self.second.store(self.cache.engine, sequence, named, self.now);
            if all {
                sequence.generated += 1;
                sequence.decodes = true;
                sequence.first.get_or_insert(self.now);
            }
            if !all || sequence.generated < sequence.request.output_tokens {
                index += 1;
                continue;
            }
            let mut done = self.running.remove(index);
            self.cache.release(&mut done);
            self.served.push(ServedRequest {
                id: done.request.id,
                arrival: done.request.arrival,
                prompt_tokens: done.request.prompt_tokens,
                output_tokens: done.request.output_tokens,
                scheduled: SimTime::from_picos(done.scheduled.unwrap()),
                first_token: SimTime::from_picos(done.first.unwrap()),
                last_token: SimTime::from_picos(self.now),
                cached_tokens: done.cached,
                fetched_tokens: done.fetched,
                preemptions: done.preemptions,
            });
        }
    }
}
