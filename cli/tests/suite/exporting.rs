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
    assert_eq!(again["predicted"]["nearest"], json["predicted"]["nearest"]);
    assert_eq!(again["cannot"], serde_json::json!([]));

    place.refused("export plan.yaml --to flexgen", 2, &["flexgen cannot run 'llama-3.1-8b'", "OPT"]);
    place.refused(
        "export plan.yaml --to ollama",
        2,
        &["ollama", "llama.cpp, ktransformers, accelerate, vllm"],
    );
}
