//! Scenarios with a draft.

mod place;

use place::Place;
use std::fs;

const SCENARIO: &str = "machine: spr-h100
model: llama-3.1-70b
workload: {batch: 1, prompt_tokens: 512, output_tokens: 64}
objective: tpot
speculative: {draft: llama-3.1-8b, tokens: [2, 4], acceptance: 0.8}
";

#[test]
fn a_draft_is_tried_on_each_device_and_what_was_chosen_is_written_down() {
    let place = Place::with(&[("scenario.yaml", SCENARIO.as_bytes())]);
    let text = place.done("plan scenario.yaml -o plan.yaml");
    for words in ["llama-3.1-8b on gpu proposes 4 tokens", "draft none", "draft of 2 on cpu", "* draft of "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let plan = fs::read_to_string(place.path("plan.yaml")).expect("a plan");
    assert!(plan.contains("speculation:") && plan.contains("draft:"), "{plan}");
    for command in ["sim plan.yaml", "explain plan.yaml", "export plan.yaml --to vllm"] {
        place.refused(command, 2, &["draft", "plan without speculative"]);
    }
}

#[test]
fn what_is_wrong_with_a_draft_is_named() {
    let place = Place::with(&[("scenario.yaml", SCENARIO.as_bytes())]);
    for (setting, words) in [
        ("speculative.draft=opt-125m", ["speculative.draft", "vocabulary", "same family"]),
        ("speculative.draft=nobody", ["speculative.draft", "nobody", "is wanted"]),
        ("speculative.tokens=0", ["tokens", "0", "from 1 to 64"]),
        ("speculative.tokens=[4,4]", ["tokens", "different", "from 1 to 64"]),
        ("speculative.acceptance=1.5", ["acceptance", "1.5", "at most 1"]),
        ("speculative.lookahead=4", ["lookahead", "draft", "tokens"]),
    ] {
        place.refused(&format!("plan scenario.yaml --set {setting}"), 2, &words);
    }
    place.refused("plan scenario.yaml --front ttft,tpot", 2, &["without a draft"]);
}
