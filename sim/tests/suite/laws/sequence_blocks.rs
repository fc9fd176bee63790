//! Engines whose sequences keep windows and states: room, conservation, and the prefixes that are
//! found again.

use crate::cases::cases;
use crate::laws::reference_engine::serve_by_reference;
use crate::laws::serving::{Prices, by_id, engines, requests, served};
use crate::machine::{machine, tiny_model};
use crate::unequal_layers;
use hwprofiles::{Bytes, DType, DeviceId, Machine, Ratio};
use planner::{CostModel, PhasePrograms, Placement, RunExtent, SequenceBytes, usage};
use proptest::prelude::*;
use scenarios::{Formats, Model, SlidingWindow, WeightFormats};
use sim::SimTime;
use sim::serving::{
    AdmissionPolicy, EngineMemory, EngineObserver, EngineSettings, KvCapacity, KvOffload, KvTransfer,
    ObservedSteps, Replica, Request, RequestOutcome, Reserve, SequenceBlocks, StateAllocation,
    StateSnapshots, serve,
};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// Blocks of 8 bytes, two windows and a state.
fn sequence_blocks() -> impl Strategy<Value = SequenceBlocks> {
    let windows = prop::collection::btree_map(1u64..20, (1u64..12).prop_map(Bytes::new), 0..3);
    (prop_oneof![4 => Just(true), 1 => Just(false)], windows, 0u64..20).prop_map(|(grows, windows, state)| {
        let block = Bytes::new(if grows { 8 } else { 0 });
        let kept = SequenceBytes { block, windows, state: Bytes::new(state) };
        SequenceBlocks::new(grows, [(Bytes::new(8), kept.clone(), kept)])
    })
}

fn with_sequences(plain: impl Fn(&mut EngineSettings)) -> impl Strategy<Value = EngineSettings> {
    (engines(), sequence_blocks(), 1u64..4).prop_map(move |(engine, sequence, interval)| {
        // The same number of tokens has room in more blocks.
        let num_blocks = engine.num_blocks * 3;
        let snapshots = StateSnapshots::Interval(interval * engine.block_size);
        let mut engine = EngineSettings { sequence, num_blocks, snapshots, ..engine };
        plain(&mut engine);
        engine
    })
}

/// A state of `state` blocks beside blocks of one token.
fn with_state(state: u64) -> SequenceBlocks {
    let kept =
        SequenceBytes { block: Bytes::new(8), state: Bytes::new(8 * state), ..SequenceBytes::default() };
    SequenceBlocks::new(true, [(Bytes::new(8), kept.clone(), kept)])
}

/// Checks that free blocks and the blocks that running sequences need make up the pool.
struct FreeBlocks<'e>(&'e EngineSettings);

impl EngineObserver for FreeBlocks<'_> {
    fn steps(&mut self, steps: &ObservedSteps<'_>) {
        let Self(engine) = self;
        let decodes = steps.batch.decodes + steps.batch.chunks.len() as u64;
        assert!(steps.free_blocks + decodes * engine.blocks(1) <= engine.num_blocks, "{steps:?}");
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn series_of_steps_are_the_steps_one_by_one(
        engine in with_sequences(|_| ()), requests in requests(true), stretch in 1u64..400,
    ) {
        // Every day ends with all blocks free, which `served` checks.
        let whole = served(&engine, Prices { stretch: 1 << 40 }, &requests);
        prop_assert_eq!(&served(&engine, Prices { stretch }, &requests), &whole);
        prop_assert_eq!(&served(&engine, Prices { stretch: 1 }, &requests), &whole);
    }

    #[test]
    fn a_replica_agrees_with_the_reference_engine(
        engine in with_sequences(|engine| {
            engine.prefix_caching = false;
            if engine.reserve == Reserve::Answer {
                engine.reserve = Reserve::Prompt;
            }
        }),
        requests in requests(false),
    ) {
        let ours = by_id(served(&engine, Prices { stretch: 50 }, &requests));
        prop_assert_eq!(ours, by_id(serve_by_reference(&engine, &requests, Prices { stretch: 50 })));
    }

    #[test]
    fn blocks_are_never_more_than_the_pool(engine in with_sequences(|_| ()), requests in requests(true)) {
        let mut replica = Replica::new(engine.clone(), Prices { stretch: 50 });
        serve(&mut requests.iter().cloned(), &mut replica, &mut FreeBlocks(&engine)).unwrap();
        prop_assert_eq!(replica.free_blocks(), engine.num_blocks);
    }

    #[test]
    fn a_sequence_takes_no_fewer_blocks_with_more_tokens(
        sequence in sequence_blocks(), size in 1u64..6, tokens in 0u64..60,
    ) {
        let [now, then] = [tokens, tokens + 1].map(|tokens| sequence.blocks(tokens, size));
        prop_assert!(now <= then);
        // Behind all windows, blocks are taken one by one.
        let far = sequence.longest_window().next_multiple_of(size) + tokens;
        let [now, then] = [far, far + size].map(|tokens| sequence.blocks(tokens, size));
        prop_assert!(far == 0 || then - now == u64::from(sequence.grows()));
    }
}

fn capacity(machine: &Machine, model: &Model, block_size: u64, allocation: StateAllocation) -> KvCapacity {
    let gpu = DeviceId(1);
    let placement = Placement::uniform(model, gpu, machine.device(gpu).memory);
    let cost_model = CostModel { machine, model, formats: &FORMATS };
    KvCapacity::new(cost_model, &placement, [block_size, 256], EngineMemory::of_all(0.9), allocation).unwrap()
}

/// How many sequences of `tokens` tokens fit.
fn sequences(machine: &Machine, model: &Model, tokens: u64, allocation: StateAllocation) -> u64 {
    let capacity = capacity(machine, model, 16, allocation);
    (capacity.blocks / capacity.sequence.blocks(tokens, 16)).min(capacity.most_sequences)
}

/// The test machine with so many bytes on the GPU.
fn with_memory(bytes: u64) -> Machine {
    let mut machine = machine();
    let memory = machine.device(DeviceId(1)).memory;
    machine.memories[memory.0].capacity.value = Bytes::new(bytes);
    machine
}

fn allocations() -> impl Strategy<Value = StateAllocation> {
    let reserved = (1u64..64, 1u64..64)
        .prop_map(|(sequences, step_tokens)| StateAllocation::Reserved { sequences, step_tokens });
    let split = (0.2f64..0.8, 1u64..6)
        .prop_map(|(share, slots)| StateAllocation::Split { share: Ratio::new(share).unwrap(), slots });
    prop_oneof![Just(StateAllocation::Shared), reserved, split]
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn more_memory_or_a_smaller_window_never_fits_fewer_sequences(
        memory in 20u64..200, more in 0u64..100, window in 8u64..300, wider in 0u64..300, tokens in 1u64..400,
        allocation in allocations(),
    ) {
        let [less, more] = [memory, memory + more].map(|megabytes| with_memory(megabytes * 1_000_000));
        for model in unequal_layers::all() {
            prop_assert!(
                sequences(&less, &model, tokens, allocation) <= sequences(&more, &model, tokens, allocation)
            );
        }
        let [narrow, wide] = [window, window + wider]
            .map(|window| sequences(&less, &unequal_layers::gemma_like(window), tokens, allocation));
        prop_assert!(wide <= narrow);
    }

    /// Sequences that fit by the count of blocks fit by the count of bytes.
    #[test]
    fn what_fits_takes_no_more_than_the_memory(
        memory in 20u64..200, tokens in 1u64..30, allocation in allocations(),
    ) {
        let (machine, tokens) = (with_memory(memory * 1_000_000), tokens * 16);
        for model in unequal_layers::all() {
            let batch = sequences(&machine, &model, tokens, allocation);
            let gpu = DeviceId(1);
            let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
            let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
            let of = |batch: u64, context: u64| {
                let extent = RunExtent { batch, context, chunk: 256, step_tokens: 1 };
                usage(&machine, &model, &FORMATS, &placement, &programs, &extent)[machine.device(gpu).memory.0]
            };
            let beside = of(1, 16);
            let taken = beside.total() - beside.kv + of(batch, tokens).kv;
            prop_assert!(taken.as_f64() <= 0.9 * memory as f64 * 1e6, "{}: {taken}", model.name);
        }
    }
}

#[test]
fn without_windows_and_states_a_block_is_what_its_tokens_keep() {
    let (machine, model) = (with_memory(50_000_000), tiny_model(3));
    for allocation in [
        StateAllocation::Shared,
        StateAllocation::Reserved { sequences: 8, step_tokens: 512 },
        StateAllocation::Split { share: Ratio::new(0.5).unwrap(), slots: 5 },
    ] {
        let ours = capacity(&machine, &model, 16, allocation);
        let gpu = DeviceId(1);
        let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
        let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
        let extent = RunExtent { batch: 1, context: 16, chunk: 256, step_tokens: 1 };
        let used = usage(&machine, &model, &FORMATS, &placement, &programs, &extent);
        let used = used[machine.device(gpu).memory.0];
        let free = 45_000_000 - (used.total() - used.kv).get();
        assert_eq!(ours.blocks, free / used.kv.get());
        assert!(ours.sequence.is_plain() && ours.most_sequences == u64::MAX);
    }
}

#[test]
fn a_window_of_any_length_is_kept_once() {
    let (machine, model) = (with_memory(50_000_000), unequal_layers::gemma_like(64));
    let capacity = capacity(&machine, &model, 16, StateAllocation::Shared);
    // One layer grows; five have windows: 5 blocks for each 16 tokens, up to 64 tokens.
    let taken = [1, 16, 17, 64, 65, 1000].map(|tokens| capacity.sequence.blocks(tokens, 16));
    assert_eq!(taken, [6, 6, 12, 24, 25, 20 + 63]);
}

/// Tokens that each of `requests` finds, one after the other.
fn found(engine: &EngineSettings, requests: &[(u64, &[u64])]) -> Vec<u64> {
    struct Found(Vec<(u64, u64)>);
    impl EngineObserver for Found {
        fn end(&mut self, end: &RequestOutcome) {
            let RequestOutcome::Served(one) = end else { panic!("{end:?}") };
            self.0.push((one.id, one.cached_tokens));
        }
    }
    let request = |(id, &(prompt_tokens, names)): (usize, &(u64, &[u64]))| Request {
        id: id as u64,
        arrival: SimTime::from_picos(1_000_000_000 * id as u64),
        prompt_tokens,
        output_tokens: 2,
        prefix: names.to_vec(),
    };
    let mut all = Found(vec![]);
    let mut replica = Replica::new(engine.clone(), Prices { stretch: 50 });
    serve(&mut requests.iter().enumerate().map(request), &mut replica, &mut all).unwrap();
    all.0.sort_unstable();
    all.0.into_iter().map(|(_, tokens)| tokens).collect()
}

/// An engine with names of four tokens, a block each.
fn prefix_engine(num_blocks: u64, sequence: SequenceBlocks, snapshots: StateSnapshots) -> EngineSettings {
    EngineSettings {
        max_num_seqs: 4,
        max_num_batched_tokens: 64,
        num_blocks,
        block_size: 4,
        prefix_tokens: 4,
        prefix_caching: true,
        sequence,
        snapshots,
        policy: AdmissionPolicy::Fcfs,
        ..crate::laws::queueing::engine(4)
    }
}

#[test]
fn a_prefix_is_found_where_its_state_was_kept() {
    let names: &[u64] = &[1, 2, 3, 4];
    let diverging: &[u64] = &[1, 2, 7, 8];
    let all = [(18, names), (18, names), (18, diverging)];
    let find = |blocks, state, snapshots| found(&prefix_engine(blocks, with_state(state), snapshots), &all);
    assert_eq!(
        found(&prefix_engine(100, SequenceBlocks::default(), StateSnapshots::EveryName), &all),
        [0, 16, 8]
    );
    assert_eq!(find(100, 3, StateSnapshots::EveryName), [0, 16, 8]);
    // At the end of the prompt alone: a prompt that leaves it earlier finds nothing.
    assert_eq!(find(100, 3, StateSnapshots::PromptEnd), [0, 16, 0]);
    // At 12 tokens, and at the end: behind 8 tokens there is none.
    assert_eq!(find(100, 3, StateSnapshots::Interval(12)), [0, 16, 0]);
    // Where the snapshots of four names have no room beside the names themselves, the oldest are
    // overwritten.
    assert_eq!(find(20, 6, StateSnapshots::EveryName)[0], 0);
    assert_eq!(find(12, 6, StateSnapshots::EveryName), [0, 0, 0]);
}

#[test]
fn a_state_is_not_taken_back_by_one_token() {
    // All tokens of the second prompt are named. Its last one must be computed, behind the name
    // before.
    let all: [(u64, &[u64]); 2] = [(12, &[1, 2, 3]), (12, &[1, 2, 3])];
    let find = |sequence| found(&prefix_engine(100, sequence, StateSnapshots::EveryName), &all);
    assert_eq!(find(with_state(2)), [0, 8]);
}

#[test]
fn a_prefix_needs_the_last_window_alone() {
    let kept = |window: u64| SequenceBytes {
        block: Bytes::new(8),
        windows: [(window, Bytes::new(2))].into(),
        state: Bytes::ZERO,
    };
    let sequence = |window: u64| SequenceBlocks::new(true, [(Bytes::new(8), kept(window), kept(window))]);
    let names: &[u64] = &[1, 2, 3, 4];
    let all = [(18, names), (18, names)];
    for window in [1, 4, 6, 100] {
        assert_eq!(found(&prefix_engine(100, sequence(window), StateSnapshots::default()), &all), [0, 16]);
    }
    // Where nothing grows, blocks of the window are all that is found.
    let alone = SequenceBytes { block: Bytes::ZERO, ..kept(6) };
    let alone = SequenceBlocks::new(false, [(Bytes::new(8), alone.clone(), alone)]);
    assert_eq!(found(&prefix_engine(100, alone, StateSnapshots::default()), &all), [0, 16]);
}

#[test]
fn a_swapped_sequence_takes_its_state_along() {
    // Two sequences grow until one must leave: with a state of 5 blocks, 5 more blocks move.
    let day = |state: u64| {
        let transfer = KvTransfer::default();
        let swap = KvOffload { blocks: 1000, out: transfer, back: transfer, only_if_faster: false };
        let engine = EngineSettings {
            num_blocks: 12 + 2 * state,
            block_size: 1,
            prefix_tokens: 1,
            max_num_batched_tokens: 64,
            swap: Some(swap),
            sequence: with_state(state),
            ..crate::laws::queueing::engine(2)
        };
        struct Swapped(u64, u64);
        impl EngineObserver for Swapped {
            fn preempted(&mut self) {
                self.1 += 1;
            }
            fn swapped(&mut self, out: u64, _: u64) {
                self.0 += out;
            }
        }
        let request = |id: u64| Request { id, prompt_tokens: 4, output_tokens: 6, ..Request::default() };
        let mut swapped = Swapped(0, 0);
        let mut replica = Replica::new(engine, Prices { stretch: 50 });
        serve(&mut (0..2).map(request), &mut replica, &mut swapped).unwrap();
        swapped
    };
    let [without, with] = [0, 5].map(day);
    assert!(without.1 > 0 && with.1 == without.1, "{} and {}", without.1, with.1);
    assert_eq!(with.0, without.0 + 5 * with.1);
}

/// Chunks of Llama 4 are kept as windows are.
#[test]
fn a_chunk_is_kept_like_a_window() {
    let machine = with_memory(50_000_000);
    let [moving, chunked] = [false, true].map(|chunked| {
        let model = unequal_layers::windows(4, 2, SlidingWindow { tokens: 64, chunked });
        capacity(&machine, &model, 16, StateAllocation::Shared)
    });
    assert_eq!(moving, chunked);
}
