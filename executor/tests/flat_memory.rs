//! A long generation takes no more memory than a short one. This test needs its own process,
//! because it reads the memory of the process.

use executor::{
    Batching, Checkpoint, GenerationEvent, GenerationRequest, RunSetup, Sampling, Session, make_random,
};
use hwprofiles::{DType, DeviceId, Machine, MemoryId};
use planner::{Placement, RunExtent};
use scenarios::{Formats, Model, Scheduler, WeightFormats};
use std::time::Duration;

const TOKENS: u64 = 10_000;
/// Memory may grow before this many tokens: threads start, and kernels touch their scratch.
const BEGIN: u64 = 500;
/// Growth that is allowed after that: a token's number, and the start and end of its step.
const MOST_GROWTH: u64 = 2 << 20;

/// Bytes of this process that are in memory (Linux: pages of 4 KiB).
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
fn ten_thousand_tokens_take_no_more_memory_than_five_hundred() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("model");
    let tiny = Model::preset("fulcrum-tiny").expect("a preset");
    let model = Model { layers: 1, max_positions: TOKENS + 8, ..tiny };
    make_random(&model, &folder, 3).expect("written");
    let checkpoint = Checkpoint::open(&folder).expect("it opens");
    let text = include_str!("../../hwprofiles/data/example-loopback.yaml");
    let machine = Machine::from_yaml(text, "example-loopback.yaml").expect("the example is right");
    let weights = WeightFormats::all(DType::Bf16);
    let setup = RunSetup {
        placement: Placement::uniform(checkpoint.model(), DeviceId(0), MemoryId(0)),
        formats: Formats { weights, kv: DType::Bf16, activations: DType::F32 },
        extent: RunExtent { batch: 1, context: TOKENS + 8, chunk: 8, step_tokens: 1 },
        model: checkpoint.model().clone(),
        machine,
        plan: String::new(),
    };
    let mut session = Session::new(setup, &checkpoint).expect("it fits");
    let sampling = Sampling::Random { temperature: 1.0, top_k: Some(50), top_p: None, seed: 4 };
    let (mut count, mut least, mut most) = (0, u64::MAX, 0);
    let mut sample_memory = || {
        count += 1;
        if count >= BEGIN && count % 100 == 0 {
            let now = resident();
            (least, most) = (least.min(now), most.max(now));
        }
    };
    let prompt = vec![1; 8];
    let generation = session.generate_until(
        std::slice::from_ref(&prompt),
        TOKENS,
        sampling,
        false,
        |_| false,
        |_| sample_memory(),
    );
    let generation = generation.expect("valid");
    assert_eq!(generation.tokens[0].len() as u64, TOKENS);
    assert_eq!(generation.trace.steps.len() as u64, TOKENS);
    // The same prompt as a service's request, with the same seed.
    let batching = Batching {
        max_num_seqs: 1,
        max_num_batched_tokens: 8,
        prefill_first: false,
        scheduler: Scheduler::Fcfs,
    };
    let (arrival, stop) = (Duration::ZERO, vec![]);
    let request =
        GenerationRequest { id: 0, arrival, prompt, output_tokens: TOKENS, sampling, stop, logprobs: None };
    let mut service = session.service(batching, std::iter::once(request)).expect("valid");
    let mut answer = vec![];
    let served = session.serve(&mut service, &|| false, |event| match event {
        GenerationEvent::Token { .. } => sample_memory(),
        GenerationEvent::Finished(answered) => answer = answered.tokens,
        GenerationEvent::Refused { reason, .. } => panic!("{reason}"),
        GenerationEvent::PassDone(_) | GenerationEvent::Cancelled { .. } => {}
    });
    served.expect("it runs");
    assert_eq!(answer, generation.tokens[0], "two runs of one seed, thread count and placement");
    assert_eq!(count, 2 * TOKENS);
    assert!(most - least <= MOST_GROWTH, "from {least} to {most} bytes");
}
