//! A GPU that fails: the caller is told which GPU, which call and what to do, and nothing panics.

use crate::gpu::agreement::{setup, there_is_one};
use crate::gpu::stand_in;
use crate::rig;
use executor::{
    Batching, ExecutorError, FinishReason, GenerationEvent, GenerationRequest, GenerationResult, Sampling,
    Session,
};
use hwprofiles::DType;
use planner::Placement;
use scenarios::{Model, Scheduler};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// CUDA's error numbers.
const OUT_OF_MEMORY: u32 = 2;
const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_FAILED: u32 = 719;

/// Lets the stand-in's call number `which` from now on fail, and all calls after it.
fn fail(call: &str, which: u32, error: u32) {
    std::fs::write(file(), format!("{call} {which} {error}")).expect("a file to write");
}

/// The file that asks for a failure. It is gone when the call has failed.
fn file() -> PathBuf {
    std::env::var_os("STAND_IN_FAULT").expect("the stand-in's").into()
}

fn session(placement: fn(&Model) -> Placement) -> Result<Session, ExecutorError> {
    let checkpoint = rig::checkpoint("llama_gqa");
    let placement = placement(checkpoint.model());
    Session::new(setup(checkpoint.model(), placement, rig::formats(DType::Bf16, DType::Bf16), 8), &checkpoint)
}

/// The error says which device failed at which call, and what to do.
fn check_message(error: &ExecutorError, call: &str) {
    let text = error.to_string();
    assert!(matches!(error, ExecutorError::Gpu { .. }), "{text}");
    assert!(text.starts_with("device 'loopback': the GPU refused ") && text.contains(call), "{text}");
    assert!(text.contains("`nvidia-smi`") && !text.contains('\n'), "{text}");
}

fn request(id: u64, prompt: usize, output: u64) -> GenerationRequest {
    let prompt = (0..prompt as u32).map(|index| (id as u32 * 131 + index * 37 + 5) % 384).collect();
    let (arrival, sampling) = (Duration::ZERO, Sampling::Greedy);
    GenerationRequest { id, arrival, prompt, output_tokens: output, sampling, stop: vec![], logprobs: None }
}

/// The results of three requests, two at a time. `before` is called before each pass, with its
/// number.
fn serve(
    session: &mut Session,
    before: impl Fn(u32) + Sync,
) -> (Vec<GenerationResult>, Result<(), ExecutorError>) {
    let batching = Batching {
        max_num_seqs: 2,
        max_num_batched_tokens: 16,
        prefill_first: false,
        scheduler: Scheduler::Fcfs,
    };
    let requests = [request(0, 9, 3), request(1, 12, 12), request(2, 5, 12)];
    let mut service = session.service(batching, requests.into_iter()).expect("valid");
    let (mut answers, passes) = (vec![], AtomicU32::new(0));
    let pause = || {
        before(passes.fetch_add(1, Ordering::Relaxed));
        false
    };
    let served = session.serve(&mut service, &pause, |event| match event {
        GenerationEvent::Finished(answer) => answers.push(answer),
        GenerationEvent::Refused { reason, .. } => panic!("{reason}"),
        _ => {}
    });
    assert!(service.interrupt().is_empty(), "nobody is left running");
    answers.sort_by_key(|answer| answer.id);
    (answers, served)
}

#[test]
fn a_gpu_that_fails_ends_what_runs_with_its_error() {
    if !there_is_one() || std::env::var_os("STAND_IN_FAULT").is_none() {
        return;
    }
    let prompts = [vec![3, 1, 4, 1, 5, 9, 2, 6, 5], vec![2, 7, 1, 8, 2, 8, 1, 8, 2]];
    let (whole, done) = serve(&mut session(rig::split).expect("it fits"), |_| {});
    done.expect("nothing fails");
    assert_eq!(whole.len(), 3);
    for (call, which, error) in [
        ("cuLaunchKernel", 40, LAUNCH_FAILED),
        ("cuMemcpyAsync", 2, ILLEGAL_ADDRESS),
        ("cuStreamSynchronize", 3, LAUNCH_FAILED),
        ("cuEventRecord", 50, LAUNCH_FAILED),
        ("kernel", 60, ILLEGAL_ADDRESS),
    ] {
        // The lanes race for the call that reports the error.
        let name = if error == LAUNCH_FAILED { "LAUNCH_FAILED" } else { "ILLEGAL_ADDRESS" };
        for placement in [rig::split, rig::streamed] {
            let mut session = session(placement).expect("it fits");
            fail(call, which, error);
            let failed = session.generate(&prompts, 8, Sampling::Greedy, |_| {});
            check_message(&failed.expect_err("it fails"), name);
            assert!(!file().exists(), "{call} has failed");
            assert_eq!(session.logits().expect("there are none"), Vec::<Vec<f32>>::new());
            // A context that failed keeps failing, and says so.
            check_message(
                &session.generate(&prompts, 8, Sampling::Greedy, |_| {}).expect_err("it fails"),
                "",
            );
        }
        let mut session = session(rig::split).expect("another context works");
        let (answers, served) = serve(&mut session, |pass| {
            if pass == 6 {
                fail(call, which, error)
            }
        });
        check_message(&served.expect_err("it fails"), name);
        assert_eq!(answers[0], GenerationResult { tokens: whole[0].tokens.clone(), ..answers[0].clone() });
        assert_eq!(answers[0].finish, FinishReason::Length, "it was done before");
        assert_eq!(answers.len(), 3, "who ran is answered");
        for (answer, whole) in answers[1..].iter().zip(&whole[1..]) {
            assert_eq!(answer.finish, FinishReason::Failed);
            assert!(whole.tokens.starts_with(&answer.tokens), "{answer:?}");
        }
    }
    let all = |model: &Model| rig::on(model, rig::LOOPBACK);
    for (call, which, name) in
        [("cuGraphLaunch", 3, "a graph"), ("cuGraphInstantiateWithFlags", 1, "a graph")]
    {
        let mut session = session(all).expect("it fits");
        fail(call, which, LAUNCH_FAILED);
        check_message(&session.generate(&prompts, 8, Sampling::Greedy, |_| {}).expect_err("it fails"), name);
    }
    fail("cuMemAlloc_v2", 12, OUT_OF_MEMORY);
    let error = session(rig::split).err().expect("no memory");
    check_message(&error, "OUT_OF_MEMORY");
    assert!(error.to_string().contains("plan for a GPU with less"), "{error}");
    println!("they fail as they should");
}

#[test]
fn a_stand_in_that_fails_at_any_call_ends_no_process() {
    let folder = stand_in::folder();
    for words in ["early", "late"] {
        let name = "gpu::failing::a_gpu_that_fails_ends_what_runs_with_its_error";
        let output = stand_in::run_in(&folder, name, words);
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            output.status.success() && text.contains("they fail as they should"),
            "{words}: {text}{errors}"
        );
    }
}
