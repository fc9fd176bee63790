//! Laws of the second level of the prefix cache, on engines whose KV cache overwrites prefixes.

use crate::cases::cases;
use crate::laws::reference_engine::serve_by_reference;
use crate::laws::serving::{Observations, Prices, by_id, engines, requests, served};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use sim::SimTime;
use sim::serving::{
    AdmissionPolicy, Batch, EngineObserver, EngineSettings, HostTimes, KvOffload, KvTransfer, PrefillChunk,
    Replica, Request, RequestOutcome, Reserve, StepPrices, serve,
};
use std::collections::BTreeSet;

/// Blocks that were written, overwritten and fetched, and the most that were stored at a time.
#[derive(Default)]
struct Moved {
    stored: u64,
    evicted: u64,
    fetched: u64,
    most: u64,
    fetched_tokens: u64,
}

impl EngineObserver for Moved {
    fn stored(&mut self, blocks: u64, evicted: u64) {
        self.stored += blocks;
        self.evicted += evicted;
        self.most = self.most.max(self.stored - self.evicted);
    }

    fn fetched(&mut self, blocks: u64) {
        self.fetched += blocks;
    }

    fn end(&mut self, end: &RequestOutcome) {
        if let RequestOutcome::Served(one) = end {
            self.fetched_tokens += one.fetched_tokens;
        }
    }
}

const FREE: KvTransfer = KvTransfer { start: SimTime::from_picos(0), per_block: SimTime::from_picos(0) };
const SLOW: KvTransfer =
    KvTransfer { start: SimTime::from_picos(0), per_block: SimTime::from_picos(1 << 40) };

fn level(blocks: u64, back: KvTransfer, only_if_faster: bool) -> Option<KvOffload> {
    Some(KvOffload { blocks, out: FREE, back, only_if_faster })
}

/// Engines with few blocks and a small second level over a fast link.
fn narrow() -> impl Strategy<Value = EngineSettings> {
    let transfer = || {
        (0u64..100, 0u64..100).prop_map(|(a, b)| KvTransfer {
            start: SimTime::from_picos(a),
            per_block: SimTime::from_picos(b),
        })
    };
    let level = (1u64..16, transfer(), transfer(), any::<bool>())
        .prop_map(|(blocks, out, back, only_if_faster)| KvOffload { blocks, out, back, only_if_faster });
    (engines(), 8u64..24, level).prop_map(|(engine, num_blocks, level)| EngineSettings {
        num_blocks,
        prefix_caching: true,
        second_level: Some(level),
        ..engine
    })
}

/// The same engines with names of several blocks.
fn with_names() -> impl Strategy<Value = EngineSettings> {
    let each = 1u64..4;
    (narrow(), each)
        .prop_map(|(engine, each)| EngineSettings { prefix_tokens: each * engine.block_size, ..engine })
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn fetched_blocks_agree_with_the_reference_engine(
        engine in narrow(), requests in requests(true),
    ) {
        let ours = by_id(served(&engine, Prices { stretch: 50 }, &requests));
        prop_assert_eq!(ours, by_id(serve_by_reference(&engine, &requests, Prices { stretch: 50 })));
    }

    #[test]
    fn stored_blocks_are_overwritten_or_present_and_never_exceed_the_space(
        engine in with_names(), requests in requests(true),
    ) {
        let mut moved = Moved::default();
        let mut replica = Replica::new(engine.clone(), Prices { stretch: 50 });
        serve(&mut requests.iter().cloned(), &mut replica, &mut moved).unwrap();
        prop_assert_eq!(moved.stored, moved.evicted + replica.stored_blocks());
        prop_assert!(moved.most <= engine.second_level.map_or(0, |space| space.blocks));
        prop_assert_eq!(moved.fetched * engine.block_size, moved.fetched_tokens);
        prop_assert!(moved.stored > 0 || moved.fetched == 0);
    }

    #[test]
    fn series_of_steps_are_the_steps_one_by_one_with_names_of_several_blocks(
        engine in with_names(), requests in requests(true), stretch in 1u64..400,
    ) {
        let whole = served(&engine, Prices { stretch: 1 << 40 }, &requests);
        prop_assert_eq!(&served(&engine, Prices { stretch }, &requests), &whole);
        prop_assert_eq!(&served(&engine, Prices { stretch: 1 }, &requests), &whole);
    }

    #[test]
    fn a_useless_second_level_changes_nothing(engine in with_names(), requests in requests(true)) {
        let day = |second_level| {
            served(&EngineSettings { second_level, ..engine.clone() }, Prices { stretch: 50 }, &requests)
        };
        let none = day(None);
        prop_assert_eq!(&day(level(0, FREE, false)), &none);
        prop_assert_eq!(&day(level(1 << 20, SLOW, true)), &none);
        let unfound = KvOffload { blocks: 1 << 20, out: SLOW, back: FREE, only_if_faster: false };
        prop_assert_eq!(&day(Some(unfound)), &none);
        // If every transfer is faster, all of them count as faster.
        prop_assert_eq!(day(level(1 << 20, FREE, true)), day(level(1 << 20, FREE, false)));
    }

    #[test]
    fn with_room_for_all_and_no_delay_no_name_is_computed_twice(
        engine in with_names(), requests in requests(true), only_if_faster: bool,
    ) {
        let second_level = level(1 << 20, FREE, only_if_faster);
        let engine = EngineSettings { max_num_seqs: 1, swap: None, second_level, ..engine };
        let mut observed = Observations::default();
        let mut replica = Replica::new(engine.clone(), Prices { stretch: 50 });
        serve(&mut requests.iter().cloned(), &mut replica, &mut observed).unwrap();
        let mut computed = BTreeSet::<u64>::new();
        for one in &observed.served {
            let prefix = &requests[one.id as usize].prefix;
            let names = &prefix[..prefix.len().min((one.prompt_tokens / engine.prefix_tokens) as usize)];
            let known = names.iter().take_while(|name| computed.contains(*name)).count() as u64;
            let most = (one.prompt_tokens - 1) / engine.block_size * engine.block_size;
            prop_assert_eq!(one.cached_tokens + one.fetched_tokens, most.min(known * engine.prefix_tokens));
            computed.extend(names);
        }
    }

    #[test]
    fn the_first_token_comes_after_the_faster_of_computing_all_and_fetching_the_known_part(
        names in 1u64..12, rest in 1u64..30, start in 0u64..20_000, per_block in 0u64..9000,
    ) {
        let hit = names * 4;
        let prompt = hit + rest;
        let back = KvTransfer { start: SimTime::from_picos(start), per_block: SimTime::from_picos(per_block) };
        let engine = EngineSettings {
            block_size: 4,
            prefix_tokens: 4,
            num_blocks: prompt.div_ceil(4),
            max_num_batched_tokens: 1 << 10,
            second_level: level(1 << 20, back, true),
            policy: AdmissionPolicy::Fcfs,
            host: HostTimes::default(),
            ..crate::laws::queueing::engine(1)
        };
        let engine = EngineSettings { prefix_caching: true, ..engine };
        // The second request overwrites all of the first, whose prompt the third request repeats.
        let request = |id: u64, prefix: Vec<u64>| Request {
            id, arrival: SimTime::from_picos(id << 40), prompt_tokens: prompt, output_tokens: 1, prefix,
        };
        let known: Vec<u64> = (0..names).collect();
        let requests = [request(0, known.clone()), request(1, vec![]), request(2, known)];
        let observed = served(&engine, Prices { stretch: 50 }, &requests);
        let step = |past: u64| {
            let chunks = [PrefillChunk { new: prompt - past, past }];
            let batch = Batch { chunks: &chunks, decodes: 0, decode_tokens: 0, sampled: 1 };
            Prices { stretch: 50 }.step(&batch).unwrap()
        };
        prop_assert_eq!(observed[2].ttft(), step(0).min(back.time(names) + step(hit)));
        prop_assert_eq!(observed[2].cached_tokens, 0);
    }
}

/// The third request is preempted. As the others grow, half of its first name is overwritten. Then
/// the next name, which the second level has, is no longer reached. With fewer tokens found, there
/// is room for the request.
#[test]
fn finding_fewer_tokens_may_let_a_request_enter() {
    let second_level = level(4, FREE, false);
    let engine = EngineSettings {
        max_num_seqs: 5,
        max_num_batched_tokens: 12,
        num_blocks: 15,
        block_size: 2,
        chunked_prefill: true,
        prefix_caching: true,
        prefix_tokens: 4,
        prefill_first: true,
        reserve: Reserve::Chunk,
        policy: AdmissionPolicy::Fcfs,
        swap: None,
        second_level,
        host: HostTimes::default(),
        ..crate::laws::queueing::engine(1)
    };
    let request = |id: u64, prompt_tokens: u64, output_tokens: u64, prefix: Vec<u64>| Request {
        id,
        arrival: SimTime::ZERO,
        prompt_tokens,
        output_tokens,
        prefix,
    };
    let requests = [request(0, 4, 8, vec![]), request(1, 1, 16, vec![]), request(2, 22, 2, vec![0, 1, 2])];
    let whole = served(&engine, Prices { stretch: 1 << 40 }, &requests);
    assert_eq!(whole, served(&engine, Prices { stretch: 1 }, &requests));
    assert!(whole.iter().any(|one| one.preemptions == 2), "{whole:?}");
}

#[test]
fn these_engines_write_overwrite_and_fetch() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut all = Moved::default();
    for _ in 0..200 {
        let engine = narrow().new_tree(&mut runner).unwrap().current();
        let requests = requests(true).new_tree(&mut runner).unwrap().current();
        serve(&mut requests.iter().cloned(), &mut Replica::new(engine, Prices { stretch: 50 }), &mut all)
            .unwrap();
    }
    let Moved { stored, evicted, fetched, .. } = all;
    assert!(stored > 200 && evicted > 50 && fetched > 50, "{stored}, {evicted}, {fetched}");
}
