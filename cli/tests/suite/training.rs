//! Training steps.

use crate::place::Place;
use std::fs;

const SCENARIO: &str = "machine: h100-sxm
model: qwen2.5-7b
dtype: {weights: bf16, activations: bf16}
workload: {training: {sequences: 8, tokens: 2048}}
";

#[test]
fn a_training_step_is_simulated_and_its_tasks_are_in_the_trace() {
    let place = Place::with(&[("scenario.yaml", SCENARIO.as_bytes())]);
    let text = place.stdout("sim scenario.yaml --trace trace.json --perfetto picture.json");
    for words in
        ["training qwen2.5-7b on h100-sxm: 8 sequences of 2048 tokens", "tokens/s", "dram->gpu", "gpu->dram"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let trace = fs::read_to_string(place.path("trace.json")).expect("a trace");
    for words in ["backward up_proj", "store gradients ffn_down", "update qkv", "fetch head"] {
        assert!(trace.contains(words), "{words}");
    }
    assert!(fs::read_to_string(place.path("picture.json")).expect("a picture").contains("update qkv"));
    let rates: serde_json::Value =
        serde_json::from_str(&place.stdout("sim scenario.yaml --json")).expect("JSON");
    let mfu = rates["mfu"].as_f64().expect("a share");
    assert!(mfu > 0.1 && mfu < 1.0 && rates["step_s"].as_f64().expect("a time") > 1.0, "{rates}");
}

#[test]
fn errors_of_a_training_step_name_the_key() {
    let place = Place::with(&[("scenario.yaml", SCENARIO.as_bytes())]);
    for (setting, words) in [
        ("workload.training.sequences=0", ["workload.training.sequences", "0", "from 1 to"]),
        ("workload.training.tokens=many", ["workload.training.tokens", "many", "from 1 to"]),
        ("workload.training.tokens=99999999", ["workload.training.tokens", "99999999", "positions"]),
        ("workload.training.epochs=3", ["workload.training.epochs", "sequences", "tokens"]),
        ("workload.batch=3", ["workload.batch", "training", "unknown"]),
        ("dtype.weights=int8", ["int8", "training", "bf16"]),
        ("dtype.weights=[bf16,f16]", ["a training step", "needs one", "dtype"]),
    ] {
        let words: Vec<_> = words.into_iter().filter(|word| *word != "unknown").collect();
        place.refused(&format!("sim scenario.yaml --set {setting}"), 2, &words);
    }
    place.refused("plan scenario.yaml", 2, &["training step", "fulcrum sim"]);
    place.refused("sim scenario.yaml --draw experts", 2, &["--draw", "training step"]);
    place.refused("sim scenario.yaml --set model=llama-3.1-70b", 2, &["dram"]);
}
