//! Laws of the swap space, on engines that run out of blocks.

use crate::cases::cases;
use crate::laws::serving::{Prices, engines, requests, served};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use sim::SimTime;
use sim::serving::{
    EngineObserver, EngineSettings, KvOffload, KvTransfer, Replica, Request, ServedRequest, serve,
};

/// Blocks that moved out and back.
#[derive(Default)]
struct Moved([u64; 2]);

impl EngineObserver for Moved {
    fn swapped(&mut self, out: u64, back: u64) {
        self.0 = [self.0[0] + out, self.0[1] + back];
    }
}

const FREE: KvTransfer = KvTransfer { start: SimTime::from_picos(0), per_block: SimTime::from_picos(0) };
const SLOW: KvTransfer =
    KvTransfer { start: SimTime::from_picos(0), per_block: SimTime::from_picos(1 << 40) };

fn swap(blocks: u64, transfer: KvTransfer, only_if_faster: bool) -> Option<KvOffload> {
    Some(KvOffload { blocks, out: transfer, back: transfer, only_if_faster })
}

fn day(engine: &EngineSettings, requests: &[Request]) -> Vec<ServedRequest> {
    served(engine, Prices { stretch: 50 }, requests)
}

fn moved(engine: &EngineSettings, requests: &[Request]) -> [u64; 2] {
    let mut moved = Moved::default();
    let mut replica = Replica::new(engine.clone(), Prices { stretch: 50 });
    serve(&mut requests.iter().cloned(), &mut replica, &mut moved).unwrap();
    moved.0
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn swapped_blocks_come_back_except_for_found_ones(engine in engines(), requests in requests(true)) {
        let [out, back] = moved(&engine, &requests);
        prop_assert!(back <= out);
        let without = EngineSettings { prefix_caching: false, ..engine };
        let [out, back] = moved(&without, &requests);
        prop_assert_eq!(out, back);
    }

    #[test]
    fn a_useless_swap_space_changes_nothing(engine in engines(), requests in requests(true)) {
        let none = day(&EngineSettings { swap: None, ..engine.clone() }, &requests);
        prop_assert_eq!(&day(&EngineSettings { swap: swap(0, FREE, false), ..engine.clone() }, &requests), &none);
        prop_assert_eq!(&day(&EngineSettings { swap: swap(1 << 20, SLOW, true), ..engine.clone() }, &requests), &none);
        // If every transfer is faster, all of them count as faster.
        let all = day(&EngineSettings { swap: swap(1 << 20, FREE, false), ..engine.clone() }, &requests);
        prop_assert_eq!(&day(&EngineSettings { swap: swap(1 << 20, FREE, true), ..engine }, &requests), &all);
    }
}

/// Requests that arrive at once at an engine without prefix caching.
fn crowd(count: u64, prompt_tokens: u64, output_tokens: u64) -> Vec<Request> {
    let request = |id| Request {
        id,
        arrival: SimTime::from_picos(0),
        prompt_tokens,
        output_tokens,
        prefix: Vec::new(),
    };
    (0..count).map(request).collect()
}

#[test]
fn moving_for_nothing_is_never_slower_than_computing_again() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut swapped = 0;
    for prompt in (2..30).step_by(3) {
        for output in (2..30).step_by(3) {
            let engine = engines().new_tree(&mut runner).unwrap().current();
            let engine = EngineSettings {
                num_blocks: 64u64.div_ceil(engine.block_size),
                prefix_caching: false,
                ..engine
            };
            let requests = crowd(12, prompt, output);
            let last = |swap| {
                let served = day(&EngineSettings { swap, ..engine.clone() }, &requests);
                served.iter().map(|one| one.last_token).max().unwrap()
            };
            let [free, again] = [last(swap(1 << 20, FREE, false)), last(None)];
            assert!(free <= again, "{engine:?}, {prompt} + {output}: {free:?} after {again:?}");
            swapped += moved(&EngineSettings { swap: swap(1 << 20, FREE, false), ..engine }, &requests)[0];
        }
    }
    assert!(swapped > 100, "{swapped} blocks");
}
