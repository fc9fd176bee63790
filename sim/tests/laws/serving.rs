//! A replica against a literal engine: every block a thing of its own, every sequence asked in every step.

use proptest::prelude::*;
use sim::serving::{
    Batch, End, Engine, Host, Line, Picos, Piece, Policy, Replica, Request, Served, StepPrices, Watch, serve,
};
use std::collections::{BTreeMap, VecDeque};

/// A straight line in everything, in stretches of `stretch` tokens.
#[derive(Debug, Clone)]
struct Prices {
    stretch: u64,
}

impl StepPrices for Prices {
    fn step(&mut self, batch: &Batch<'_>) -> Result<Picos, hwprofiles::Missing> {
        let pairs: u64 = batch.pieces.iter().map(|p| p.new * (p.past + p.new)).sum();
        Ok(Picos(1000 + 70 * batch.tokens() + 3 * pairs + 5 * batch.decode_tokens + 11 * batch.sampled))
    }

    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<Line, hwprofiles::Missing> {
        let from = tokens / self.stretch * self.stretch;
        Ok(Line { from, until: from + self.stretch, base: 1000 + 81 * decodes + 5 * from, per_token: 5 })
    }
}

/// A sequence of the literal engine.
#[derive(Debug, Clone, Default)]
struct Naive {
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
    preemptions: u32,
}

/// What stands in a block: the n-th name of all, or the n-th block of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    Name(u64),
    Own(u64, u64),
}

struct Literal<'a> {
    engine: &'a Engine,
    free: VecDeque<usize>,
    content: Vec<Option<Content>>,
    holders: Vec<u64>,
    found: BTreeMap<Content, usize>,
}

impl Literal<'_> {
    fn take(&mut self) -> usize {
        let block = self.free.pop_front().unwrap();
        if let Some(content) = self.content[block].take() {
            self.found.remove(&content);
        }
        self.holders[block] = 1;
        block
    }

    fn content(&self, sequence: &Naive, index: u64) -> Content {
        let named = sequence.request.prompt_tokens / self.engine.block_size;
        match sequence.request.prefix.get(index as usize) {
            Some(&name) if index < named => Content::Name(name),
            _ => Content::Own(sequence.request.id, index),
        }
    }

    fn hits(&self, sequence: &Naive) -> Vec<usize> {
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

    /// After `new` more tokens were computed.
    fn name_full(&mut self, sequence: &mut Naive, new: u64) {
        if !self.engine.prefix_caching {
            return;
        }
        let before = (sequence.computed - new) / self.engine.block_size;
        for index in before..sequence.computed / self.engine.block_size {
            let (block, content) = (sequence.blocks[index as usize], self.content(sequence, index));
            if self.content[block].is_some() {
                continue;
            }
            if self.found.contains_key(&content) {
                sequence.copies = true;
            } else if !(sequence.copies && matches!(content, Content::Own(..))) {
                self.content[block] = Some(content);
                self.found.insert(content, block);
            }
        }
    }

    fn release(&mut self, sequence: &mut Naive) {
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

fn literal(engine: &Engine, requests: &[Request]) -> Vec<Served> {
    let blocks = engine.num_blocks as usize;
    let mut prices = Prices { stretch: u64::MAX };
    let mut cache = Literal {
        engine,
        free: (0..blocks).collect(),
        content: vec![None; blocks],
        holders: vec![0; blocks],
        found: BTreeMap::new(),
    };
    let (mut now, mut next, mut served) = (0, 0, vec![]);
    let (mut waiting, mut running): (VecDeque<Naive>, Vec<Naive>) = Default::default();
    let size = engine.block_size;
    loop {
        if waiting.is_empty() && running.is_empty() {
            let Some(request) = requests.get(next) else { return served };
            now = now.max(request.arrival.0);
        }
        while next < requests.len() && requests[next].arrival.0 <= now {
            if engine.refusal(&requests[next]).is_none() {
                waiting.push_back(Naive { request: requests[next].clone(), ..Naive::default() });
            }
            next += 1;
        }
        if waiting.is_empty() && running.is_empty() {
            continue;
        }
        let (mut budget, mut entering, mut sent_back) = (engine.max_num_batched_tokens, vec![], false);
        let mut index = 0;
        while index < running.len() {
            let known = running[index].request.prompt_tokens + running[index].generated;
            let new = (known - running[index].computed).min(budget);
            let wanted = (running[index].computed + new).div_ceil(size) as usize;
            while running.len() > index
                && wanted.saturating_sub(running[index].blocks.len()) > cache.free.len()
            {
                let mut last = running.pop().unwrap();
                cache.release(&mut last);
                last.preemptions += 1;
                waiting.push_front(last);
                sent_back = true;
            }
            if index == running.len() {
                break;
            }
            while running[index].blocks.len() < wanted {
                let block = cache.take();
                running[index].blocks.push(block);
            }
            budget -= new;
            entering.push(new);
            index += 1;
        }
        let all_in = |running: &[Naive], entering: &[u64]| {
            running
                .iter()
                .zip(entering)
                .all(|(s, new)| s.computed + new == s.request.prompt_tokens + s.generated)
        };
        while !sent_back
            && budget > 0
            && (running.len() as u64) < engine.max_num_seqs
            && all_in(&running, &entering)
        {
            let Some(first) = waiting.front() else { break };
            let known = first.request.prompt_tokens + first.generated;
            let hits = cache.hits(first);
            let computed = (hits.len() as u64 * size).min((known - 1) / size * size);
            let wanted = known - computed;
            let used = engine.max_num_batched_tokens - budget;
            let new = if engine.chunked_prefill { wanted.min(budget) } else { wanted };
            if !engine.chunked_prefill && new > budget && used > 0 {
                break;
            }
            let more = ((computed + new).div_ceil(size) as usize).saturating_sub(hits.len());
            let reserved = (known.div_ceil(size) as usize).saturating_sub(hits.len());
            let idle = hits.iter().filter(|&&block| cache.holders[block] == 0).count();
            if (if engine.reserve_prompt { reserved } else { more }) + idle > cache.free.len() {
                break;
            }
            let mut first = waiting.pop_front().unwrap();
            hits.iter().for_each(|&block| cache.hold(block));
            first.blocks = hits;
            first.blocks.extend((0..more).map(|_| cache.take()));
            first.computed = computed;
            first.cached += computed;
            first.scheduled.get_or_insert(now);
            budget = budget.saturating_sub(new);
            running.push(first);
            entering.push(new);
        }
        let fresh: Vec<bool> = running.iter().map(|s| !s.decodes).collect();
        let pieces: Vec<_> = running
            .iter()
            .zip(&entering)
            .zip(&fresh)
            .filter(|(_, fresh)| **fresh)
            .map(|((s, &new), _)| Piece { new, past: s.computed })
            .collect();
        let decoding: Vec<_> =
            running.iter().zip(&fresh).filter(|(_, fresh)| !**fresh).map(|(s, _)| s.computed + 1).collect();
        let ends = |s: &Naive, new: u64| s.computed + new == s.request.prompt_tokens + s.generated;
        let sampled = running.iter().zip(&entering).filter(|(s, new)| ends(s, **new)).count() as u64;
        let batch = Batch {
            pieces: &pieces,
            decodes: decoding.len() as u64,
            decode_tokens: decoding.iter().sum(),
            sampled,
        };
        now += prices.step(&batch).unwrap().0 + engine.host.of(running.len() as u64).0;
        let mut index = 0;
        for new in entering {
            let sequence = &mut running[index];
            sequence.computed += new;
            if sequence.computed < sequence.request.prompt_tokens + sequence.generated {
                cache.name_full(sequence, new);
                index += 1;
                continue;
            }
            cache.name_full(sequence, new);
            sequence.generated += 1;
            sequence.decodes = true;
            sequence.first.get_or_insert(now);
            if sequence.generated < sequence.request.output_tokens {
                index += 1;
                continue;
            }
            let mut done = running.remove(index);
            cache.release(&mut done);
            served.push(Served {
                id: done.request.id,
                arrival: done.request.arrival,
                prompt_tokens: done.request.prompt_tokens,
                output_tokens: done.request.output_tokens,
                scheduled: Picos(done.scheduled.unwrap()),
                first_token: Picos(done.first.unwrap()),
                last_token: Picos(now),
                cached_tokens: done.cached,
                preemptions: done.preemptions,
            });
        }
    }
}

fn served(engine: &Engine, prices: Prices, requests: &[Request]) -> Vec<Served> {
    let mut told = Told::default();
    let mut replica = Replica::new(engine.clone(), prices);
    serve(&mut requests.iter().cloned(), &mut replica, &mut told).unwrap();
    assert_eq!(replica.free_blocks(), engine.num_blocks, "all blocks come back");
    told.served
}

fn engines() -> impl Strategy<Value = Engine> {
    let sizes = (1u64..6, 0u64..12, 8u64..60, 1u64..5);
    let habits = (any::<bool>(), any::<bool>(), any::<bool>(), 0u64..3);
    (sizes, habits).prop_map(
        |((seqs, more, num_blocks, block_size), (chunked_prefill, prefix_caching, reserve_prompt, host))| {
            Engine {
                max_num_seqs: seqs,
                max_num_batched_tokens: seqs + more,
                max_model_len: 64,
                num_blocks,
                block_size,
                chunked_prefill,
                prefix_caching,
                prefix_tokens: block_size,
                reserve_prompt,
                policy: Policy::Fcfs,
                host: Host { per_step: Picos(host * 10), per_sequence: Picos(host) },
            }
        },
    )
}

fn requests(named: bool) -> impl Strategy<Value = Vec<Request>> {
    let one = (0u64..8000, 0u64..40, 0u64..30, 0u64..4, 0usize..5);
    prop::collection::vec(one, 1..14).prop_map(move |all| {
        let mut at = 0;
        let request = |(id, (gap, prompt_tokens, output_tokens, family, names)): (
            usize,
            (u64, u64, u64, u64, usize),
        )| {
            at += gap;
            let names = if named { names } else { 0 };
            // Names of a family begin alike.
            let prefix = (0..names as u64).map(|index| family * 100 + index).collect();
            Request { id: id as u64, arrival: Picos(at), prompt_tokens, output_tokens, prefix }
        };
        all.into_iter().enumerate().map(request).collect()
    })
}

fn by_id(mut served: Vec<Served>) -> Vec<Served> {
    served.sort_by_key(|one| one.id);
    served
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn series_of_steps_are_the_steps_one_by_one(
        engine in engines(), requests in requests(true), stretch in 1u64..400,
    ) {
        let whole = served(&engine, Prices { stretch: 1 << 40 }, &requests);
        prop_assert_eq!(&served(&engine, Prices { stretch }, &requests), &whole);
        prop_assert_eq!(&served(&engine, Prices { stretch: 1 }, &requests), &whole);
    }

    #[test]
    fn a_replica_does_what_an_engine_does_that_asks_every_block_and_sequence(
        engine in engines(), requests in requests(false),
    ) {
        let ours = by_id(served(&engine, Prices { stretch: 50 }, &requests));
        prop_assert_eq!(ours, by_id(literal(&engine, &requests)));
    }

    #[test]
    fn prefixes_are_found_as_an_engine_finds_them_that_asks_every_block(
        engine in engines(), requests in requests(true),
    ) {
        let ours = by_id(served(&engine, Prices { stretch: 50 }, &requests));
        prop_assert_eq!(ours, by_id(literal(&engine, &requests)));
    }
}

/// Adds up what it is told.
#[derive(Default)]
struct Told {
    gaps: u64,
    time: u64,
    served: Vec<Served>,
    ends: usize,
}

impl Watch for Told {
    fn gaps(&mut self, _gap: Picos, times: u64) {
        self.gaps += times;
    }

    fn steps(&mut self, steps: &sim::serving::Steps<'_>) {
        assert!(steps.begin.0 >= self.time, "steps do not overlap");
        self.time = steps.end.0;
    }

    fn end(&mut self, end: &End) {
        self.ends += 1;
        if let End::Served(one) = end {
            self.served.push(*one);
        }
    }
}

proptest! {
    #[test]
    fn requests_are_conserved_and_every_token_but_the_first_has_a_gap(engine in engines(), requests in requests(true)) {
        let mut told = Told::default();
        let mut replica = Replica::new(engine, Prices { stretch: 50 });
        serve(&mut requests.iter().cloned(), &mut replica, &mut told).unwrap();
        for one in &told.served {
            let times = [one.arrival, one.scheduled, one.first_token, one.last_token];
            prop_assert!(times.is_sorted() && one.scheduled < one.first_token, "{:?}", one);
        }
        prop_assert_eq!(told.ends, requests.len());
        prop_assert_eq!(told.gaps, told.served.iter().map(|one| one.output_tokens - 1).sum::<u64>());
        prop_assert_eq!((replica.running(), replica.waiting()), (0, 0));
    }
}
