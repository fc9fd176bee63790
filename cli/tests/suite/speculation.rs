//! Scenarios with a draft.

use crate::place::Place;
use crate::tensors::{read_tensors, write_tensors};
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
        ("speculative.draft=mtp", ["speculative.draft", "llama-3.1-70b has no MTP module", "llama-3.2-1b"]),
        ("speculative.tokens=0", ["tokens", "0", "from 1 to 64"]),
        ("speculative.tokens=[4,4]", ["tokens", "different", "from 1 to 64"]),
        ("speculative.acceptance=1.5", ["acceptance", "1.5", "at most 1"]),
        ("speculative.lookahead=4", ["lookahead", "draft", "tokens"]),
    ] {
        place.refused(&format!("plan scenario.yaml --set {setting}"), 2, &words);
    }
    place.refused("plan scenario.yaml --front ttft,tpot", 2, &["without a draft"]);
}

/// A folder with a small model `draft`; a model `model` of twelve times its layers, of which all
/// but the first ones add nothing, so that both choose the same tokens; and plans for `model` with
/// and without the draft.
fn with_an_accepting_draft() -> Place {
    const SCENARIO: &str = "machine: example-loopback
model: model
dtype: {weights: f32, kv: f32}
workload: {batch: 2, prompt_tokens: 8, output_tokens: 17}
";
    let place = Place::with(&[("plain.yaml", SCENARIO.as_bytes())]);
    place.stdout("model init fulcrum-tiny -o draft");
    fs::create_dir(place.path("model")).expect("a folder");
    fs::copy(place.path("draft/tokenizer.json"), place.path("model/tokenizer.json")).expect("copied");
    let config = fs::read_to_string(place.path("draft/config.json")).expect("a config");
    let deep = config.replacen("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 36", 1);
    assert_ne!(config, deep);
    fs::write(place.path("model/config.json"), deep).expect("written");
    let mut tensors = read_tensors(&place.path("draft"));
    for (name, dtype, shape, bytes) in tensors.clone() {
        let Some(rest) = name.strip_prefix("model.layers.0.") else { continue };
        let silent = rest.contains("o_proj") || rest.contains("down_proj");
        let bytes = if silent { vec![0; bytes.len()] } else { bytes };
        let layer =
            |layer| (format!("model.layers.{layer}.{rest}"), dtype.clone(), shape.clone(), bytes.clone());
        tensors.extend((3..36).map(layer));
    }
    write_tensors(&place.path("model"), &tensors);
    let speculative = "speculative: {draft: draft, tokens: 3, acceptance: 1}\n";
    fs::write(place.path("drafted.yaml"), [SCENARIO, speculative].concat()).expect("written");
    for name in ["plain", "drafted"] {
        place.stdout(&format!("plan {name}.yaml -o {name}.plan.yaml"));
    }
    place
}

#[test]
fn every_command_takes_a_plan_with_a_draft_and_its_tokens_are_those_without() {
    let place = with_an_accepting_draft();
    let json =
        |command: &str| -> serde_json::Value { serde_json::from_str(&place.stdout(command)).expect("JSON") };
    let plain = json("run plain.plan.yaml --model-dir model --json");
    let drafted = json("run drafted.plan.yaml --model-dir model --draft-dir draft --json");
    assert_eq!(plain["tokens"], drafted["tokens"]);
    assert_eq!(drafted["draft"]["proposed"], drafted["draft"]["accepted"]);
    // What is validated are the same tokens, in steps of four.
    let validated = json("validate drafted.plan.yaml --model-dir model --draft-dir draft --repeats 2 --json");
    let measured = &validated["configurations"][0];
    assert_eq!(measured["draft"]["proposed"], measured["draft"]["accepted"]);
    assert_eq!(measured["draft"]["planned"], 1.0);
    let steps = measured["comparison"]["steps"].as_array().expect("steps");
    let checks = steps.iter().filter(|row| row["step"]["new_tokens"] == 4);
    assert_eq!(checks.count(), 4, "{steps:?}");
    assert!(steps.iter().all(|row| row["time"]["predicted_s"].as_f64() > Some(0.0)), "{steps:?}");
    for memory in measured["memory"].as_array().expect("memories") {
        let planned = ["weights", "kv", "activations", "staging"];
        let planned = planned.iter().filter_map(|key| memory[format!("{key}_bytes")].as_u64());
        assert_eq!(memory["allocated_bytes"].as_u64(), Some(planned.sum()), "{memory}");
    }
    let text = place.stdout(
        "validate plain.plan.yaml drafted.plan.yaml --model-dir model --draft-dir draft --repeats 1 --html page.html",
    );
    for words in ["(100.0 %, 100.0 % planned for each)", "its steps as they were made: TPOT "] {
        assert_eq!(text.matches(words).count(), 1, "{words}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for command in
        ["explain drafted.plan.yaml", "export drafted.plan.yaml --to llama.cpp", "sim drafted.plan.yaml"]
    {
        assert!(!place.stdout(command).is_empty(), "{command}");
    }
    let validate = "validate drafted.plan.yaml --model-dir model --repeats 1";
    place.refused(validate, 2, &["drafted.plan.yaml", "draft as its draft", "--draft-dir"]);
    place.refused(
        "validate plain.plan.yaml --model-dir model --draft-dir draft",
        2,
        &["--draft-dir", "no plan has a draft model"],
    );
    place.refused("run drafted.plan.yaml --model-dir model", 2, &["--draft-dir"]);
}

/// A model of GLM-4.5's shape with an MTP module.
const WITH_MODULE: &str = r#"{"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "attention_bias": true,
"first_k_dense_replace": 1, "head_dim": 32, "hidden_act": "silu", "hidden_size": 128, "intermediate_size": 256,
"max_position_embeddings": 128, "moe_intermediate_size": 64, "n_group": 1, "n_routed_experts": 8, "n_shared_experts": 1,
"norm_topk_prob": true, "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 12,
"num_key_value_heads": 2, "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
"rope_theta": 10000.0, "routed_scaling_factor": 1.5, "tie_word_embeddings": false, "topk_group": 1,
"use_qk_norm": false, "vocab_size": 384}"#;

/// A folder with a model whose layers add nothing and whose MTP module projects the embedding
/// alone, so that it chooses the model's tokens; and plans with and without it.
fn with_an_accepting_module() -> Place {
    const SCENARIO: &str = "machine: example-loopback
model: model
dtype: {weights: f32, kv: f32}
workload: {batch: 2, prompt_tokens: 8, output_tokens: 17}
";
    let place = Place::with(&[("plain.yaml", SCENARIO.as_bytes()), ("config.json", WITH_MODULE.as_bytes())]);
    place.stdout("model init config.json -o model");
    let mut tensors = read_tensors(&place.path("model"));
    for (name, _, shape, bytes) in &mut tensors {
        if name.contains("o_proj") || name.contains("down_proj") {
            bytes.fill(0);
        }
        if name.contains("eh_proj") {
            let one = |at: usize| at % shape[1] as usize == at / shape[1] as usize;
            // 1 in bf16.
            *bytes =
                (0..bytes.len() / 2).flat_map(|at| if one(at) { [0x80, 0x3f] } else { [0; 2] }).collect();
        }
    }
    write_tensors(&place.path("model"), &tensors);
    let speculative = "speculative: {draft: mtp, tokens: 3, acceptance: 1}\n";
    fs::write(place.path("drafted.yaml"), [SCENARIO, speculative].concat()).expect("written");
    for name in ["plain", "drafted"] {
        place.stdout(&format!("plan {name}.yaml -o {name}.plan.yaml"));
    }
    place
}

#[test]
fn a_models_own_module_drafts_in_every_command() {
    let place = with_an_accepting_module();
    let json =
        |command: &str| -> serde_json::Value { serde_json::from_str(&place.stdout(command)).expect("JSON") };
    let plan = fs::read_to_string(place.path("drafted.plan.yaml")).expect("a plan");
    assert!(plan.contains("draft: mtp"), "{plan}");
    let plain = json("run plain.plan.yaml --model-dir model --json");
    let drafted = json("run drafted.plan.yaml --model-dir model --json");
    assert_eq!(plain["tokens"], drafted["tokens"]);
    assert_eq!(drafted["draft"]["proposed"], drafted["draft"]["accepted"]);
    let validated = json("validate drafted.plan.yaml plain.plan.yaml --model-dir model --repeats 2 --json");
    let measured = &validated["configurations"][0];
    assert_eq!(measured["draft"]["proposed"], measured["draft"]["accepted"]);
    let steps = measured["comparison"]["steps"].as_array().expect("steps");
    assert_eq!(steps.iter().filter(|row| row["step"]["new_tokens"] == 4).count(), 7, "{steps:?}");
    for memory in measured["memory"].as_array().expect("memories") {
        let planned = ["weights", "kv", "activations", "staging"];
        let planned = planned.iter().filter_map(|key| memory[format!("{key}_bytes")].as_u64());
        assert_eq!(memory["allocated_bytes"].as_u64(), Some(planned.sum()), "{memory}");
    }
    let explained = place.stdout("explain drafted.plan.yaml");
    assert!(explained.contains("model-mtp on "), "{explained}");
    assert!(!place.stdout("sim drafted.plan.yaml --draw acceptance").is_empty());
    place.refused(
        "export drafted.plan.yaml --to llama.cpp",
        2,
        &["MTP module", "vllm, sglang or ktransformers"],
    );
    for command in ["run", "validate"] {
        let command = format!("{command} drafted.plan.yaml --model-dir model --draft-dir model");
        place.refused(&command, 2, &["--draft-dir", "leave it out"]);
    }
    let mut tensors = read_tensors(&place.path("model"));
    tensors.retain(|(name, ..)| !name.contains("hnorm"));
    write_tensors(&place.path("model"), &tensors);
    for command in ["run", "validate"] {
        let command = format!("{command} drafted.plan.yaml --model-dir model");
        let words = ["model.safetensors", "model.layers.12.hnorm.weight", "name a draft model"];
        place.refused(&command, 2, &words);
    }
}
