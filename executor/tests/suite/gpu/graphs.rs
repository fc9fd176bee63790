//! Decode passes that are replayed, and tokens that a GPU chooses.

use crate::gpu::agreement::{setup, there_is_one};
use crate::gpu::{orders, stand_in};
use crate::rig;
use executor::{Checkpoint, GpuPassCounts, Sampling, Session};
use hwprofiles::DType;
use kernels::SamplingParams;
use planner::Placement;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SEED: u64 = 11;

fn session(checkpoint: &Checkpoint, placement: Placement) -> Session {
    let setup = setup(checkpoint.model(), placement, rig::formats(DType::Bf16, DType::Bf16), 8);
    Session::new(setup, checkpoint).expect("it fits")
}

fn prompts() -> Vec<Vec<u32>> {
    (0..3).map(|i| (0..17).map(|j| (i * 131 + j * j * 7) % 384).collect()).collect()
}

fn random() -> Sampling {
    Sampling::Random { temperature: 1.2, top_k: Some(60), top_p: Some(0.9), seed: SEED }
}

/// Tokens and the last logits of a run without times of tasks.
fn generate(session: &mut Session, tokens: u64) -> (Vec<Vec<u32>>, Vec<Vec<f32>>) {
    let generation = session.generate_until(&prompts(), tokens, random(), false, |_| false, |_| ());
    (generation.expect("it runs").tokens, session.logits().expect("they are read"))
}

#[test]
fn tokens_that_a_gpu_chooses_are_those_that_the_cpu_would_choose_of_its_logits() {
    if !there_is_one() {
        return;
    }
    let checkpoint = rig::checkpoint("llama_gqa");
    let model = checkpoint.model();
    // The head is on the GPU, as a whole or with a part on the CPU.
    for placement in [rig::on(model, rig::LOOPBACK), rig::split(model)] {
        let mut session = session(&checkpoint, placement);
        for count in 1..8 {
            let (tokens, logits) = generate(&mut session, count);
            for ((index, tokens), logits) in (0..).zip(&tokens).zip(&logits) {
                let mut random = Pcg64Mcg::seed_from_u64(SEED + index);
                let last = (0..count).map(|_| random.next_u32()).last().expect("at least one");
                let uniform = (last >> 8) as f32 / (1 << 24) as f32;
                let choice = SamplingParams { uniform, temperature: 1.2, top_p: 0.9, top_k: 60 };
                let wanted = kernels::sample(logits, choice, &mut Vec::new());
                assert_eq!(tokens.last().map(|&token| token as usize), Some(wanted), "{count} of {index}");
            }
        }
    }
    println!("they agree");
}

#[test]
fn the_cpus_choice_is_the_gpus() {
    let test = "gpu::graphs::tokens_that_a_gpu_chooses_are_those_that_the_cpu_would_choose_of_its_logits";
    orders::run_any(&stand_in::folder(), test, "late").unwrap_or_else(|text| panic!("{text}"));
}

#[test]
fn replayed_passes_give_what_launched_ones_do() {
    if !there_is_one() {
        return;
    }
    let checkpoint = rig::checkpoint("llama_gqa");
    let (all, streamed) =
        (|| rig::on(checkpoint.model(), rig::LOOPBACK), || rig::streamed(checkpoint.model()));
    let run = |placement, tokens| {
        let mut session = session(&checkpoint, placement);
        let found = generate(&mut session, tokens);
        (found, session.gpu_passes().expect("it has one"))
    };
    let counts = |launched, replayed| GpuPassCounts { device: "loopback".to_owned(), launched, replayed };
    // A prompt of 17 tokens takes three passes, and the first pass of a shape is launched.
    let (few, passes) = run(all(), 12);
    assert_eq!(passes, counts(4, 10));
    let (many, passes) = run(all(), 24);
    assert_eq!(passes, counts(4, 22));
    assert!(few.0.iter().zip(&many.0).all(|(few, many)| many.starts_with(few)));
    // What is fetched during the pass is enqueued, and the same kernels compute.
    let (launched, passes) = run(streamed(), 24);
    assert_eq!(passes, counts(26, 0));
    assert!(many == launched, "tokens and logits, to the bit");
    // With times of every task the graph has events.
    let mut session = session(&checkpoint, all());
    let timed = session.generate(&prompts(), 24, random(), |_| ()).expect("it runs");
    assert_eq!((timed.tokens, session.logits().expect("they are read")), many);
    assert_eq!(session.gpu_passes(), Some(counts(4, 22)));
    assert!(timed.trace.events.windows(2).all(|two| two[0].start_ns <= two[1].start_ns));
    println!("they agree");
}

#[test]
fn a_gpu_that_works_in_one_phase_needs_no_times_of_the_other() {
    if !there_is_one() {
        return;
    }
    let checkpoint = rig::checkpoint("llama_gqa");
    for placement in [rig::by_phase(checkpoint.model()), rig::decode_far(checkpoint.model())] {
        let mut session = session(&checkpoint, placement);
        let (tokens, logits) = generate(&mut session, 12);
        let timed = session.generate(&prompts(), 12, random(), |_| ()).expect("it runs");
        assert_eq!((timed.tokens, session.logits().expect("they are read")), (tokens, logits));
    }
    println!("they agree");
}

#[test]
fn one_phase_works_on_the_stand_in() {
    let test = "gpu::graphs::a_gpu_that_works_in_one_phase_needs_no_times_of_the_other";
    orders::run_any(&stand_in::folder(), test, "late").unwrap_or_else(|text| panic!("{text}"));
}

#[test]
fn windows_slide_in_replayed_passes_as_in_launched_ones() {
    if !there_is_one() {
        return;
    }
    for name in ["mistral_window", "gemma2", "gemma3"] {
        let checkpoint = rig::checkpoint(name);
        let model = checkpoint.model();
        let [replayed, launched] = [rig::on(model, rig::LOOPBACK), rig::streamed(model)].map(|placement| {
            let mut session = session(&checkpoint, placement);
            (generate(&mut session, 24), session.gpu_passes().expect("it has one").replayed)
        });
        assert!(replayed.0 == launched.0, "{name}: tokens and logits, to the bit");
        assert_eq!((replayed.1, launched.1), (22, 0), "{name}");
    }
    println!("they agree");
}

#[test]
fn windows_slide_on_the_stand_in() {
    let test = "gpu::graphs::windows_slide_in_replayed_passes_as_in_launched_ones";
    orders::run_any(&stand_in::folder(), test, "late").unwrap_or_else(|text| panic!("{text}"));
}

/// By context that was used: launches, kernels that ran, and graphs.
fn calls(text: &str) -> Vec<[u64; 3]> {
    let numbers = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().unwrap_or_else(|_| panic!("{line}"))
    };
    let lines = text.lines().filter_map(|line| line.split_once("calls: "));
    lines.map(|(_, line)| numbers(line)).filter(|calls: &[u64; 3]| calls[0] > 0).collect()
}

#[test]
fn a_replayed_pass_is_one_launch_in_every_order() {
    let folder = stand_in::folder();
    for words in ["early count", "late count", "others count"] {
        let test = "gpu::graphs::replayed_passes_give_what_launched_ones_do";
        let text = orders::run_any(&folder, test, words).unwrap_or_else(|text| panic!("{words}: {text}"));
        let calls = calls(&text);
        let [few, many, launched, timed] = calls[..] else { panic!("{calls:?}") };
        // Twelve more tokens take twelve more graph launches and no other launch.
        assert_eq!([few[0], many[2]], [many[0], few[2] + 12]);
        assert_eq!(many[2], 22);
        // The same kernels run, and one that copies each streamed matrix. The host launches each of
        // them where nothing is replayed.
        assert!(many[1] < launched[1] && timed == many, "{many:?} {launched:?} {timed:?}");
        assert_eq!(launched, [launched[1], launched[1], 0]);
        // Three passes of the prompt, the first pass of a token, and the recording are launched.
        assert!(many[0] * 4 < launched[0], "{many:?} {launched:?}");
    }
}
