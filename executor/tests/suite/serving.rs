//! Continuous batching: sharing a pass changes when a request is answered, and nothing else.

use crate::cases::cases;
use crate::laws::EXTENT;
use crate::rig;
use executor::{
    Batching, Client, ExecutorError, FinishReason, GenerationEvent, GenerationRequest, GenerationResult,
    PassReport, Sampling, Session,
};
use planner::RunExtent;
use proptest::prelude::*;
use scenarios::{Phase, Scheduler};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Request number `id`: a prompt of `prompt` tokens and at most `output` output tokens.
fn request(id: u64, prompt: usize, output: u64) -> GenerationRequest {
    let prompt = (0..prompt).map(|index| (id as u32 * 131 + index as u32 * 37 + 5) % 384).collect();
    GenerationRequest {
        id,
        arrival: Duration::ZERO,
        prompt,
        output_tokens: output,
        sampling: Sampling::Greedy,
        stop: vec![],
        logprobs: None,
    }
}

fn batching(extent: RunExtent) -> Batching {
    Batching {
        max_num_seqs: extent.batch,
        max_num_batched_tokens: extent.batch * extent.chunk,
        prefill_first: false,
        scheduler: Scheduler::Fcfs,
    }
}

/// The results of the requests, by request, and the passes that were made. With `pauses`, the
/// service pauses after every pass.
fn serve(
    session: &mut Session,
    batching: Batching,
    requests: &[GenerationRequest],
    pauses: bool,
) -> (BTreeMap<u64, GenerationResult>, Vec<PassReport>) {
    let (mut answers, mut passes) = (BTreeMap::new(), vec![]);
    let mut service = session.service(batching, requests.iter().cloned()).expect("valid");
    let mut received = BTreeMap::<u64, Vec<u32>>::new();
    while answers.len() < requests.len() {
        let pause = AtomicBool::new(false);
        let served = session.serve(&mut service, &|| pause.load(Ordering::Acquire), |event| match event {
            GenerationEvent::Token { id, token, .. } => received.entry(id).or_default().push(token),
            GenerationEvent::Finished(answer) => drop(answers.insert(answer.id, answer)),
            GenerationEvent::Refused { id, reason } => panic!("{id}: {reason}"),
            GenerationEvent::Cancelled { id } => panic!("nobody cancelled {id}"),
            GenerationEvent::PassDone(made) => {
                pause.store(pauses, Ordering::Release);
                passes.push(made);
            }
        });
        served.expect("it runs");
    }
    assert!(
        answers.iter().all(|(id, answer)| received[id] == answer.tokens),
        "tokens are received as they come"
    );
    (answers, passes)
}

fn alone(session: &mut Session, request: &GenerationRequest) -> Vec<u32> {
    let prompts = std::slice::from_ref(&request.prompt);
    session
        .generate(prompts, request.output_tokens, request.sampling, |_| {})
        .expect("valid")
        .tokens
        .remove(0)
}

proptest! {
    #![proptest_config(cases(24))]

    /// On any placement each request gets the tokens that it gets alone, and every token is
    /// computed once.
    #[test]
    fn requests_of_any_lengths_are_answered_as_each_is_alone(
        seed in any::<u64>(),
        name in prop::sample::select(rig::GOLDEN.to_vec()),
        lengths in prop::collection::vec((1usize..30, 1u64..8), 1..12),
        (prefill_first, shortest, pauses) in any::<(bool, bool, bool)>(),
        (seqs, tokens) in (1u64..=rig::BATCH as u64, 0u64..40),
    ) {
        let extent = RunExtent { batch: rig::BATCH as u64, ..EXTENT };
        let checkpoint = rig::checkpoint(name);
        let placement = rig::random(checkpoint.model(), seed);
        let mut session = rig::session(&checkpoint, placement, rig::F32, extent);
        let requests: Vec<_> =
            lengths.iter().zip(0..).map(|(&(prompt, output), id)| request(id, prompt, output)).collect();
        let scheduler = if shortest { Scheduler::ShortestFirst } else { Scheduler::Fcfs };
        let max_num_batched_tokens = (seqs + tokens).min(extent.batch * extent.chunk);
        let batching = Batching { max_num_seqs: seqs, max_num_batched_tokens, prefill_first, scheduler };
        let used = session.memory_used();
        let (answers, passes) = serve(&mut session, batching, &requests, pauses);
        prop_assert_eq!(session.memory_used(), used, "nothing more is allocated");
        for request in &requests {
            let answer = &answers[&request.id];
            prop_assert_eq!(&answer.tokens, &alone(&mut session, request), "request {}", request.id);
            prop_assert_eq!(answer.finish, FinishReason::Length);
            let times = [answer.arrival, answer.scheduled, answer.first_token, answer.last_token];
            prop_assert!(times.is_sorted(), "{times:?}");
        }
        let sum = |of: &dyn Fn(&PassReport) -> u64| passes.iter().map(of).sum::<u64>();
        let prompts: usize = requests.iter().map(|request| request.prompt.len()).sum();
        prop_assert_eq!(sum(&|made| made.entered.iter().map(|chunk| chunk.new_tokens).sum()), prompts as u64);
        let outputs: u64 = requests.iter().map(|request| request.output_tokens).sum();
        prop_assert_eq!(sum(&|made| made.sampled), outputs);
        prop_assert_eq!(sum(&|made| made.decodes), outputs - requests.len() as u64);
        for made in &passes {
            let entered: u64 = made.entered.iter().map(|chunk| chunk.new_tokens).sum();
            prop_assert!(entered + made.decodes <= max_num_batched_tokens, "{made:?}");
            prop_assert!(made.entered.len() as u64 + made.decodes <= seqs, "{made:?}");
            prop_assert_eq!(made.phase == Phase::Prefill, entered > 0);
            prop_assert!(!prefill_first || entered == 0 || made.decodes == 0, "{made:?}");
            prop_assert!(made.begin <= made.end && made.busy.iter().all(|&busy| busy <= made.end - made.begin));
        }
        prop_assert!(passes.windows(2).all(|two| two[0].end <= two[1].begin), "one pass after the other");
    }
}

#[test]
fn a_seed_gives_the_same_answer_whatever_else_is_in_the_batch() {
    let checkpoint = rig::checkpoint("qwen3");
    let extent = RunExtent { batch: 4, ..EXTENT };
    let mut session = rig::session(&checkpoint, rig::mixed(checkpoint.model()), rig::F32, extent);
    let random = |id, prompt, seed| GenerationRequest {
        sampling: Sampling::Random { temperature: 1.2, top_k: Some(40), top_p: None, seed },
        ..request(id, prompt, 12)
    };
    let wanted = GenerationRequest { id: 9, ..random(1, 14, 7) };
    let others: Vec<_> = (0..6).map(|id| random(id, 3 + 4 * id as usize, id)).collect();
    let (few, _) = serve(&mut session, batching(extent), std::slice::from_ref(&wanted), false);
    let (many, _) =
        serve(&mut session, batching(extent), &[&others[..], std::slice::from_ref(&wanted)].concat(), false);
    assert_eq!(few[&9].tokens, many[&9].tokens);
    let again = GenerationRequest { sampling: random(1, 14, 8).sampling, ..wanted };
    let (other, _) = serve(&mut session, batching(extent), &[again], false);
    assert_ne!(other[&9].tokens, few[&9].tokens, "another seed draws otherwise");
}

#[test]
fn an_answer_ends_with_its_stop_token_and_an_interrupted_one_with_what_there_is() {
    let checkpoint = rig::checkpoint("llama_gqa");
    let mut session = rig::session(&checkpoint, rig::split(checkpoint.model()), rig::F32, EXTENT);
    let wanted = request(0, 9, 12);
    let whole = alone(&mut session, &wanted);
    let at = (1..12).find(|&at| !whole[..at].contains(&whole[at])).expect("some token is new");
    let stopped = GenerationRequest { stop: vec![whole[at]], ..wanted.clone() };
    let (answers, _) = serve(&mut session, batching(EXTENT), &[stopped], false);
    assert_eq!(answers[&0].finish, FinishReason::Stop);
    assert_eq!(answers[&0].tokens, whole[..=at]);

    // `pause` is called between passes, and returns true the sixth time, within a run of twelve.
    let calls = AtomicU64::new(0);
    let mut service = session.service(batching(EXTENT), [wanted.clone()].into_iter()).expect("valid");
    let served = session.serve(&mut service, &|| calls.fetch_add(1, Ordering::AcqRel) >= 5, |_| {});
    served.expect("it runs");
    let rest = service.interrupt();
    let [answer] = &rest[..] else { panic!("one request was running: {rest:?}") };
    assert_eq!(answer.finish, FinishReason::Interrupted);
    assert!((1..12).contains(&answer.tokens.len()) && whole.starts_with(&answer.tokens), "{answer:?}");
    // Its slot is free again.
    let (answers, _) = serve(&mut session, batching(EXTENT), &[wanted], false);
    assert_eq!(answers[&0].tokens, whole);
}

#[test]
fn requests_come_when_they_come_and_those_that_never_fit_are_refused_alone() {
    let checkpoint = rig::checkpoint("opt");
    let mut session = rig::session(&checkpoint, rig::on(checkpoint.model(), rig::CPU), rig::F32, EXTENT);
    let late = GenerationRequest { arrival: Duration::from_millis(30), ..request(2, 5, 2) };
    let requests = [request(0, 5, 3), request(1, 30, 12), late];
    let mut service = session.service(batching(EXTENT), requests.into_iter()).expect("valid");
    let (mut answers, mut refused) = (vec![], vec![]);
    let served = session.serve(&mut service, &|| false, |event| match event {
        GenerationEvent::Finished(answer) => answers.push(answer),
        GenerationEvent::Refused { id, reason } => refused.push((id, reason.to_string())),
        _ => {}
    });
    served.expect("it runs");
    answers.sort_by_key(|answer| answer.id);
    assert_eq!(answers.iter().map(|answer| answer.id).collect::<Vec<_>>(), [0, 2]);
    assert!(answers[1].scheduled >= Duration::from_millis(30), "{answers:?}");
    let [(1, reason)] = &refused[..] else { panic!("{refused:?}") };
    assert!(reason.contains("42") && reason.contains("at most the 41"), "{reason}");

    let limits = |change: &dyn Fn(&mut Batching)| {
        let mut batching = batching(EXTENT);
        change(&mut batching);
        let service = session.service(batching, std::iter::empty::<GenerationRequest>());
        let error = service.err().expect("it cannot run");
        assert!(matches!(error, ExecutorError::Refused { .. }));
        error.to_string()
    };
    assert!(limits(&|b| b.max_num_seqs = 3).contains("from 1 to the 2 sequences"));
    assert!(limits(&|b| b.max_num_batched_tokens = 23).contains("2 sequences of 11 tokens"));
    let second = hwprofiles::Seconds::new(1.0);
    assert!(
        limits(&|b| b.scheduler = Scheduler::Slo { ttft: second, tpot: second }).contains("fcfs or shortest")
    );
}

proptest! {
    #![proptest_config(cases(12))]

    /// Weights and KV caches move while requests go on. Changing the placement in the middle
    /// changes no result.
    #[test]
    fn a_service_goes_on_with_its_requests_on_another_placement(
        seeds in prop::collection::vec(any::<u64>(), 2..4),
        name in prop::sample::select(rig::GOLDEN.to_vec()),
        micro_batches in 1u64..=3,
        lengths in prop::collection::vec((1usize..30, 2u64..8), 1..8),
    ) {
        let extent = RunExtent { batch: rig::BATCH as u64, ..EXTENT };
        let checkpoint = rig::checkpoint(name);
        let model = checkpoint.model();
        let placement = |seed: u64| rig::divided(rig::random(model, seed), micro_batches);
        let mut session = rig::session(&checkpoint, placement(seeds[0]), rig::F32, extent);
        let requests: Vec<_> =
            lengths.iter().zip(0..).map(|(&(prompt, output), id)| request(id, prompt, output)).collect();
        let mut service = session.service(batching(extent), requests.clone().into_iter()).expect("valid");
        let mut answers = BTreeMap::new();
        for &seed in seeds.iter().cycle().skip(1) {
            let passes = std::sync::atomic::AtomicUsize::new(0);
            let served = session.serve(&mut service, &|| passes.fetch_add(1, Ordering::Relaxed) == 2, |event| {
                if let GenerationEvent::Finished(answer) = event {
                    answers.insert(answer.id, answer.tokens);
                }
            });
            served.expect("it runs");
            if answers.len() == requests.len() {
                break;
            }
            session.replace_placement(placement(seed), &checkpoint).expect("it fits");
            let setup = session.setup();
            let programs = planner::PhasePrograms::lower(&setup.machine, model, &setup.placement).expect("it lowers");
            let usage = planner::usage(&setup.machine, model, &rig::F32, &setup.placement, &programs, &extent);
            let planned: Vec<_> = usage.iter().map(planner::MemoryUsage::total).collect();
            prop_assert_eq!(session.memory_used(), planned, "nothing of the old placement is left");
        }
        for request in &requests {
            prop_assert_eq!(&answers[&request.id], &alone(&mut session, request));
        }
        let other = rig::divided(rig::on(model, rig::CPU), micro_batches + 1);
        let error = session.replace_placement(other, &checkpoint).expect_err("KV caches are divided").to_string();
        prop_assert!(error.contains("micro_batches"), "{error}");
    }
}

/// A client that cancels request 0 after its third token, and sends `late` when nothing is left.
struct Impatient {
    requests: VecDeque<GenerationRequest>,
    late: Option<GenerationRequest>,
    seen: usize,
}

impl Client for Impatient {
    fn next(&mut self) -> Option<GenerationRequest> {
        self.requests.pop_front()
    }

    fn wait(&mut self, _most: Duration) -> bool {
        self.requests.extend(self.late.take());
        !self.requests.is_empty()
    }

    fn is_cancelled(&mut self, id: u64) -> bool {
        id == 0 && self.seen >= 3
    }

    fn stops_after(&mut self, id: u64, tokens: &[u32]) -> bool {
        self.seen = if id == 0 { tokens.len() } else { self.seen };
        false
    }
}

#[test]
fn a_cancelled_request_ends_at_once_and_the_others_are_answered_as_alone() {
    let checkpoint = rig::checkpoint("llama_gqa");
    let extent = RunExtent { batch: 2, ..EXTENT };
    let mut session = rig::session(&checkpoint, rig::split(checkpoint.model()), rig::F32, extent);
    let requests: Vec<_> = (0..4).map(|id| request(id, 5 + id as usize, 10)).collect();
    let late = request(9, 7, 3);
    let client = Impatient { requests: requests.clone().into(), late: Some(late.clone()), seen: 0 };
    let mut service = session.service(batching(extent), client).expect("valid");
    let (mut answers, mut cancelled, mut first, mut last) = (BTreeMap::new(), vec![], 0, None);
    let served = session.serve(&mut service, &|| false, |event| match event {
        GenerationEvent::Token { id, .. } => first += u64::from(id == 0),
        GenerationEvent::Finished(answer) => drop(answers.insert(answer.id, answer.tokens)),
        GenerationEvent::Cancelled { id } => cancelled.push(id),
        GenerationEvent::Refused { id, reason } => panic!("{id}: {reason}"),
        GenerationEvent::PassDone(made) => last = Some(made),
    });
    served.expect("it runs");
    assert_eq!((cancelled, first), (vec![0], 3));
    assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 9]);
    for request in requests[1..].iter().chain([&late]) {
        assert_eq!(answers[&request.id], alone(&mut session, request), "request {}", request.id);
    }
    let last = last.expect("passes were made");
    assert_eq!((last.running, last.cached_tokens), (0, 0), "nothing is left in the cache");
}

#[test]
fn log_probabilities_change_no_token_and_a_greedy_token_has_the_greatest() {
    for name in ["llama_gqa", "qwen3"] {
        let checkpoint = rig::checkpoint(name);
        let placement = rig::divided(rig::mixed(checkpoint.model()), 2);
        let mut session = rig::session(&checkpoint, placement, rig::F32, EXTENT);
        let wanted =
            |id| GenerationRequest { logprobs: (id > 0).then_some(id as usize), ..request(id, 9, 6) };
        let mut service = session.service(batching(EXTENT), (0..3).map(wanted)).expect("valid");
        let (mut tokens, mut all) = (BTreeMap::<u64, Vec<u32>>::new(), vec![]);
        let served = session.serve(&mut service, &|| false, |event| {
            if let GenerationEvent::Token { id, token, logprobs } = event {
                tokens.entry(id).or_default().push(token);
                all.push((id, token, logprobs));
            }
        });
        served.expect("it runs");
        for id in 0..3 {
            assert_eq!(tokens[&id], alone(&mut session, &request(id, 9, 6)));
        }
        for (id, token, logprobs) in all {
            assert_eq!(logprobs.is_some(), id > 0);
            let Some(logprobs) = logprobs else { continue };
            assert_eq!(logprobs.top.len(), id as usize);
            assert_eq!(logprobs.top[0], (token, logprobs.chosen), "{name}");
        }
    }
}
