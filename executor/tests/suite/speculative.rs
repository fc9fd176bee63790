//! Speculative decoding: the tokens are those of a run without a draft.

use crate::rig;
use executor::{Checkpoint, Sampling, Session, SpeculativeBatch, SpeculativeSession, make_random};
use planner::{Placement, RunExtent};
use scenarios::{Model, Phase};

const OUTPUT: u64 = 18;

fn extent(step_tokens: u64) -> RunExtent {
    RunExtent { batch: 3, context: 40, chunk: 4, step_tokens }
}

fn prompts() -> Vec<Vec<u32>> {
    vec![vec![5, 9, 200, 31, 7], vec![77, 3, 3, 150, 12], vec![1, 2, 3, 4, 5]]
}

/// The tokens without a draft.
fn alone(checkpoint: &Checkpoint, placement: Placement, sampling: Sampling) -> Vec<Vec<u32>> {
    let mut session = rig::session(checkpoint, placement, rig::F32, extent(1));
    session.generate(&prompts(), OUTPUT, sampling, |_| {}).expect("valid").tokens
}

fn with_draft(
    model: (&Checkpoint, Placement),
    draft: (&Checkpoint, Placement),
    proposed: u64,
    sampling: Sampling,
) -> SpeculativeBatch {
    let model = rig::session(model.0, model.1, rig::F32, extent(proposed + 1));
    let draft = rig::session(draft.0, draft.1, rig::F32, extent(2));
    let mut session = SpeculativeSession::new(model, draft).expect("they fit each other");
    let mut heard = vec![Vec::new(); 3];
    let batch = session.generate_until(&prompts(), OUTPUT, sampling, |index, token| {
        heard[index].push(token);
        false
    });
    let batch = batch.expect("valid");
    assert_eq!(heard, batch.generated.tokens, "every token is heard once, in order");
    batch
}

const RANDOM: Sampling = Sampling::Random { temperature: 0.7, top_k: Some(50), top_p: None, seed: 3 };

#[test]
fn a_draft_changes_no_token_whether_it_is_right_or_wrong() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let model = rig::checkpoint("llama_gqa");
    // Of the same vocabulary, with other weights: nearly all of its tokens are rejected.
    let other = parent.path().join("other");
    make_random(&Model { dtype: hwprofiles::DType::Bf16, ..model.model().clone() }, &other, 9)
        .expect("written");
    let other = Checkpoint::open(&other).expect("it opens");
    for sampling in [Sampling::Greedy, RANDOM] {
        for place in [|model: &Model| rig::on(model, rig::CPU), rig::mixed, rig::streamed] {
            let expected = alone(&model, place(model.model()), sampling);
            for draft in [&model, &other] {
                for proposed in [1, 3] {
                    let on_cpu = rig::on(draft.model(), rig::CPU);
                    let placed = (&model, place(model.model()));
                    let batch = with_draft(placed, (draft, on_cpu), proposed, sampling);
                    assert_eq!(batch.generated.tokens, expected, "{proposed} proposed, {sampling:?}");
                    assert!(batch.accepted <= batch.proposed);
                }
            }
        }
    }
}

#[test]
fn a_recurrence_takes_rejected_tokens_back() {
    for name in ["qwen3_next_square", "qwen3_5_heads", "nemotron_h", "nemotron_h_moe"] {
        let (model, draft) = (rig::checkpoint(name), rig::checkpoint("llama_gqa"));
        for sampling in [Sampling::Greedy, RANDOM] {
            for (kind, placement) in rig::placements(model.model()) {
                let expected = alone(&model, placement.clone(), sampling);
                for proposed in [1, 3, 6] {
                    let on_cpu = rig::on(draft.model(), rig::CPU);
                    let batch = with_draft((&model, placement.clone()), (&draft, on_cpu), proposed, sampling);
                    assert_eq!(batch.generated.tokens, expected, "{name} {kind}, {proposed} proposed");
                    assert!(batch.accepted < batch.proposed, "another model is mostly wrong");
                }
            }
        }
    }
}

#[test]
fn a_draft_that_is_the_model_is_always_right_and_saves_steps() {
    let model = rig::checkpoint("llama_gqa");
    for proposed in [1, 2, 5] {
        let place = || rig::on(model.model(), rig::CPU);
        let batch = with_draft((&model, place()), (&model, place()), proposed, Sampling::Greedy);
        assert_eq!(batch.accepted, batch.proposed, "{proposed} proposed");
        let steps = &batch.generated.trace.steps;
        let checks = steps.iter().filter(|span| !span.draft && span.step.phase == Phase::Decode);
        // The prompt's step yields the first token, and every other step as many as it can.
        assert_eq!(checks.count() as u64, (OUTPUT - 1).div_ceil(proposed + 1));
        assert_eq!(batch.generated.trace.output_tokens(), 3.0 * OUTPUT as f64);
        assert!(steps.windows(2).all(|two| two[0].end_ns <= two[1].start_ns), "one step after the other");
    }
}

#[test]
fn what_cannot_take_a_token_back_or_has_other_tokens_is_refused() {
    let (window, llama) = (rig::checkpoint("mistral_window"), rig::checkpoint("llama_gqa"));
    let session = |checkpoint: &Checkpoint, step| -> Session {
        rig::session(checkpoint, rig::on(checkpoint.model(), rig::CPU), rig::F32, extent(step))
    };
    let refused = |model, draft| match SpeculativeSession::new(model, draft) {
        Ok(_) => panic!("it is accepted"),
        Err(error) => error.to_string(),
    };
    let error = refused(session(&window, 3), session(&window, 2));
    assert!(error.contains("window"), "{error}");
    let error = refused(session(&llama, 3), session(&rig::checkpoint("qwen3_next"), 2));
    assert!(error.contains("without a state"), "{error}");
    let error = refused(session(&llama, 1), session(&llama, 2));
    assert!(error.contains("step_tokens"), "{error}");
    let error = refused(session(&llama, 3), session(&llama, 1));
    assert!(error.contains("draft.extent.step_tokens"), "{error}");
    let opt = rig::checkpoint("opt");
    if opt.model().vocab != llama.model().vocab {
        let error = refused(session(&llama, 3), session(&opt, 2));
        assert!(error.contains("vocabulary"), "{error}");
    }
}
