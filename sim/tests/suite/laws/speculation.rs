//! Runs in which a draft proposes tokens.

use crate::cases::cases;
use crate::machine::{machine, tiny_model};
use hwprofiles::{DType, DeviceId, MemoryId, Ratio, Seconds};
use planner::{CostModel, PhasePrograms, Placement, Trace, steps};
use proptest::prelude::*;
use scenarios::{Formats, Model, Phase, Speculation, WeightFormats, Workload};
use sim::{BatchRun, Drafting, RandomDraws, estimate};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

fn workload([batch, prompt, output]: [u64; 3], tokens: u64, acceptance: f64) -> Workload {
    let speculation = Speculation { tokens, acceptance: Ratio::new(acceptance).unwrap() };
    Workload { speculation: Some(speculation), ..Workload::new(batch, prompt, output) }
}

/// A model on the CPU whose draft is on the GPU.
fn trace(workload: &Workload, draws: RandomDraws) -> Trace {
    let machine = machine();
    let (model, small) = (tiny_model(6), Model { name: "small".to_owned(), ..tiny_model(1) });
    let on = |model: &Model, device: usize| {
        let placement = Placement::uniform(model, DeviceId(device), MemoryId(device));
        PhasePrograms::lower(&machine, model, &placement).unwrap()
    };
    let (programs, drafts) = (on(&model, 0), on(&small, 1));
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let steps = steps(workload, 32);
    let drafting = CostModel { model: &small, ..cost_model };
    let draft = Drafting { cost_model: drafting, programs: &drafts, chunk: 16, workload: *workload };
    let run = BatchRun { draft: Some(draft), draws, ..BatchRun::new(cost_model, &programs, &steps) };
    let trace = run.trace("plan").unwrap();
    let times = run.times().unwrap();
    assert_eq!(times.ttft, Seconds::from_nanos(trace.ttft_ns()));
    // The steps that were made take as long when they are repeated, whatever was drawn.
    let plain = BatchRun { draws: RandomDraws::default(), ..run };
    assert_eq!(plain.repeat(&trace.steps, "plan").unwrap().steps, trace.steps);
    // The mean run takes what the planner adds up: the model's steps, and the draft's steps before
    // each.
    if !draws.acceptance {
        let times_of = |cost_model, placement: Placement, workload: &Workload, chunk| {
            estimate(cost_model, &placement, workload, chunk).unwrap()
        };
        let alone = Workload { speculation: None, ..*workload };
        let own = times_of(cost_model, Placement::uniform(&model, DeviceId(0), MemoryId(0)), workload, 32);
        let drafts = times_of(drafting, Placement::uniform(&small, DeviceId(1), MemoryId(1)), &alone, 16);
        let ttft = own.ttft + drafts.ttft;
        assert!((times.ttft / ttft - 1.0).abs() < 1e-3, "{times:?} {ttft}");
        if let (Some(own), Some(drafts)) = (own.tpot, drafts.tpot) {
            let step = own + drafts * (workload.step_tokens() - 1) as f64;
            let tpot = step / workload.tokens_per_step();
            assert!((times.tpot.unwrap() / tpot - 1.0).abs() < 0.02, "{times:?} {tpot}");
        }
    }
    trace
}

fn drawn(seed: u64) -> RandomDraws {
    RandomDraws { acceptance: true, seed, ..RandomDraws::default() }
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn every_sequence_gets_its_tokens_and_each_check_follows_its_proposals(
        batch in 1u64..6, prompt in 1u64..60, output in 1u64..40, tokens in 1u64..6, acceptance in 0.0..=1.0f64,
        seed in any::<u64>(),
    ) {
        let workload = workload([batch, prompt, output], tokens, acceptance.max(1e-6));
        let trace = trace(&workload, drawn(seed));
        prop_assert_eq!(trace.output_tokens(), (batch * output) as f64);
        let decodes: Vec<_> = trace.steps.iter().filter(|span| span.step.phase == Phase::Decode).collect();
        let mut batch = batch;
        for round in decodes.chunks(tokens as usize + 1) {
            let (check, drafts) = round.split_last().unwrap();
            prop_assert!(!check.draft && check.step.new_tokens == tokens + 1 && drafts.iter().all(|span| span.draft));
            for (index, span) in drafts.iter().enumerate() {
                prop_assert_eq!(span.step.past_tokens, check.step.past_tokens + index as u64);
                prop_assert_eq!((span.step.batch, span.step.new_tokens), (check.step.batch, 1));
            }
            // From one token for each sequence to all proposed tokens and one more. Finished
            // sequences have left.
            let yielded = check.tokens.unwrap();
            let ends = (check.step.batch * (tokens + 1)) as f64;
            prop_assert!(yielded >= check.step.batch as f64 && yielded <= ends && check.step.batch <= batch);
            prop_assert!(check.step.past_tokens + check.step.new_tokens <= workload.context());
            batch = check.step.batch;
        }
        prop_assert!(trace.steps.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
        let text = trace.to_json();
        prop_assert_eq!(Trace::from_json("t.json".as_ref(), &text).unwrap(), trace);
    }

    #[test]
    fn in_the_mean_times_are_those_that_the_planner_adds_up(
        batch in 1u64..6, prompt in 1u64..100, output in 2u64..60, tokens in 1u64..6, acceptance in 0.05..=1.0f64,
    ) {
        trace(&workload([batch, prompt, output], tokens, acceptance), RandomDraws::default());
    }
}

/// Four seeds of 4 × 400 tokens. The drawn tokens per step are (1 − α^(γ+1)) ÷ (1 − α), apart from
/// chance and from proposals of the last steps beyond the end.
#[test]
fn drawn_acceptance_agrees_with_the_formula_in_the_mean() {
    for (tokens, acceptance) in [(1, 0.5), (3, 0.8), (5, 0.6)] {
        let workload = workload([4, 16, 401], tokens, acceptance);
        let mean = trace(&workload, RandomDraws::default()).tpot_ns().unwrap();
        let all: Vec<f64> = (0..4).map(|seed| trace(&workload, drawn(seed)).tpot_ns().unwrap()).collect();
        let drawn = all.iter().sum::<f64>() / all.len() as f64;
        assert!((drawn / mean - 1.0).abs() < 0.03, "{tokens} {acceptance}: {all:?}, {mean}");
        assert!(all.iter().any(|tpot| *tpot != all[0]));
    }
}

#[test]
fn one_seed_gives_one_run_and_a_draft_that_is_always_right_leaves_nothing_to_chance() {
    let usual = workload([3, 20, 30], 3, 0.7);
    let json = |seed| trace(&usual, drawn(seed)).to_json();
    assert_eq!(json(1), json(1));
    assert_ne!(json(1), json(2));
    // 28 tokens in steps of 4.
    let sure = workload([3, 20, 29], 3, 1.0);
    let (drawn, mean) = (trace(&sure, drawn(5)), trace(&sure, RandomDraws::default()));
    assert_eq!(drawn, mean);
    assert_eq!(mean.steps.iter().filter(|span| span.tokens == Some(12.0)).count(), 7);
}
