//! `fulcrum export` from a plan's file to an engine's.

use crate::place::Place;

const SCENARIO: &[u8] = b"machine: rtx4090-desktop
model: llama-3.1-8b
dtype: {weights: bf16, kv: bf16}
workload: {batch: 4, prompt_tokens: 256, output_tokens: 32}
objective: latency
";

#[test]
fn a_plan_becomes_options_files_and_the_cost_of_the_nearest() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    place.stdout("plan scenario.yaml -o plan.yaml");
    let text = place.stdout("export plan.yaml --to llama.cpp");
    assert!(text.starts_with("llama-server -m llama-3.1-8b-BF16.gguf -ngl "), "{text}");
    assert!(text.contains("this plan") && text.contains("nearest of llama.cpp"), "{text}");

    let json = place.stdout("export plan.yaml --to accelerate -o offload --json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let file = std::fs::read_to_string(place.path("offload/device_map.json")).expect("written");
    assert_eq!(json["files"]["device_map.json"], file);
    let nearest = std::fs::read_to_string(place.path("offload/nearest.yaml")).expect("written");
    assert!(nearest.contains("chosen: accelerate"), "{nearest}");
    // The nearest plan is like any other: its simulation is what was predicted.
    let again: serde_json::Value =
        serde_json::from_str(&place.stdout("export offload/nearest.yaml --to accelerate --json"))
            .expect("JSON");
    assert_eq!(again["nearest"], json["nearest"]);
    assert!(again["nearest"]["ttft_s"].as_f64() > Some(0.0), "{again}");
    assert_eq!(again["cannot"], serde_json::json!([]));

    place.refused("export plan.yaml --to flexgen", 2, &["flexgen cannot run 'llama-3.1-8b'", "OPT"]);
    place.refused(
        "export plan.yaml --to olama",
        2,
        &["did you mean ollama?", "llama.cpp, ik_llama.cpp, ollama"],
    );
}

#[test]
fn times_that_were_edited_in_a_plan_are_predicted_anew() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    place.stdout("plan scenario.yaml -o plan.yaml");
    let text = std::fs::read_to_string(place.path("plan.yaml")).expect("a plan");
    let line = text.lines().find(|line| line.starts_with("  simulated:")).expect("its times");
    let edited = text.replace(line, "  simulated: {ttft: 1 us, tpot: 1 us}");
    std::fs::write(place.path("edited.yaml"), edited).expect("written");
    for command in ["export PLAN --to llama.cpp --json", "explain PLAN"] {
        let [planned, edited] =
            ["plan.yaml", "edited.yaml"].map(|plan| place.stdout(&command.replace("PLAN", plan)));
        assert_eq!(planned, edited, "{command}");
    }
    place.stdout("report edited.yaml -o page.html");
    let page = std::fs::read_to_string(place.path("page.html")).expect("a page");
    assert!(!page.contains("1 us</p>"), "the page shows an edited time");
}
