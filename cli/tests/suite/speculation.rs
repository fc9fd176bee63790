//! Scenarios with a draft.

use crate::place::Place;
use std::fs;

const SCENARIO: &str = "machine: spr-h100
model: llama-3.1-70b
workload: {batch: 1, prompt_tokens: 512, output_tokens: 64}
objective: tpot
speculative: {draft: llama-3.1-8b, tokens: [2, 4], acceptance: 0.8}
";

#[test]
fn a_draft_is_tried_on_each_device_and_the_plan_records_the_best() {
    let place = Place::with(&[("scenario.yaml", SCENARIO.as_bytes())]);
    let text = place.stdout("plan scenario.yaml -o plan.yaml");
    for words in ["llama-3.1-8b on gpu proposes 4 tokens", "draft none", "draft of 2 on cpu", "* draft of "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let plan = fs::read_to_string(place.path("plan.yaml")).expect("a plan");
    assert!(plan.contains("speculation:") && plan.contains("draft:"), "{plan}");
    let explained = place.stdout("explain plan.yaml");
    assert!(explained.contains("llama-3.1-8b on gpu proposes 4 tokens in "), "{explained}");
    assert!(explained.lines().all(|line| line.chars().count() <= 80), "{explained}");
    let exported = place.stdout("export plan.yaml --to llama.cpp");
    assert!(
        exported.contains("-md llama-3.1-8b.gguf -ngld 999 --spec-type draft-simple --spec-draft-n-max 4"),
        "{exported}"
    );
    place.refused("export plan.yaml --to deepspeed", 2, &["draft", "plan without speculative"]);
    // A run needs the draft's weights too, and nothing is opened before that is said.
    place.refused("run plan.yaml --model-dir missing", 2, &["missing"]);
}

#[test]
fn a_run_with_a_draft_is_simulated_step_by_step_in_the_mean_or_drawn() {
    let place = Place::with(&[("scenario.yaml", SCENARIO.as_bytes())]);
    place.stdout("plan scenario.yaml -o plan.yaml");
    let rates = |command: &str| -> serde_json::Value {
        serde_json::from_str(&place.stdout(&format!("sim {command} --json"))).expect("JSON")
    };
    let plan: serde_json::Value =
        serde_json::from_str(&place.stdout("plan scenario.yaml --json")).expect("JSON");
    let promised = plan["predicted"]["simulated"]["tpot"].as_str().expect("a time");
    let tpot = |rates: &serde_json::Value| rates["tpot_s"].as_f64().expect("a time");
    let mean = rates("plan.yaml --trace trace.json --perfetto picture.json");
    let promised: hwprofiles::Seconds = promised.parse().expect("a time");
    assert!((tpot(&mean) / promised.get() - 1.0).abs() < 0.02, "{mean} {promised}");
    assert_eq!(rates("scenario.yaml"), mean);
    let drawn = rates("plan.yaml --draw acceptance --seed 3");
    assert_eq!(drawn, rates("plan.yaml --draw acceptance --seed 3"));
    assert!(drawn != mean && drawn != rates("plan.yaml --draw acceptance --seed 4"));
    assert!((tpot(&drawn) / tpot(&mean) - 1.0).abs() < 0.5, "{drawn}");
    let trace = fs::read_to_string(place.path("trace.json")).expect("a trace");
    assert!(trace.contains("\"draft\":true") && trace.contains("\"tokens\":"), "{}", &trace[..2000]);
    let picture = fs::read_to_string(place.path("picture.json")).expect("a picture");
    assert!(picture.contains("draft decode") && picture.contains("draft prefill"));
    place.refused("sim plan.yaml --draw experts", 2, &["experts", "has none"]);
    place.refused("sim plan.yaml --draw luck", 2, &["luck", "acceptance"]);
}

#[test]
fn errors_of_a_draft_name_the_key() {
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
