//! `fulcrum replay`: recorded runs of vLLM served again, from layer times and from a profile alone.

use crate::place::Place;
use serde_json::Value;
use std::path::PathBuf;

fn recorded(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../sim/data/vllm_runs").join(name)
}

/// The replay as JSON, and the errors of the means of TTFT, TPOT and E2EL.
fn replayed(place: &Place, name: &str, options: &str) -> (Value, [f64; 3]) {
    let folder = recorded(name);
    let text = place.stdout(&format!("--json replay {} {options}", folder.display()));
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["rejected"], 0, "all are answered");
    let error = |index: usize| json["errors"][index]["error"]["mean"].as_f64().expect("an error");
    let errors = [0, 1, 2].map(error);
    println!("{name} {options}: TTFT, TPOT, E2EL {errors:+.3?}");
    (json, errors)
}

#[test]
fn a_real_day_of_vllm_is_replayed_from_layer_times() {
    let place = Place::with(&[]);
    for name in ["rtx4090_llama-3.1-8b", "rtxpro6000_llama-3.1-8b"] {
        let (json, [ttft, tpot, e2el]) = replayed(&place, name, "-o requests.csv");
        assert!(ttft.abs() <= 0.05, "{name}: TTFT {ttft}");
        assert!(tpot.abs() <= 0.01, "{name}: TPOT {tpot}");
        assert!(e2el.abs() <= 0.02, "{name}: E2EL {e2el}");
        let median = json["errors"][2]["request_error"]["p50"].as_f64().expect("a median");
        assert!(median <= 0.05, "{name}: median E2EL {median}");
        let rows = std::fs::read_to_string(place.path("requests.csv")).expect("a table").lines().count();
        assert_eq!(rows, 301);
    }
}

#[test]
fn two_gpus_that_share_each_layer_are_replayed_with_their_all_reduces() {
    let place = Place::with(&[]);
    let (_, [ttft, tpot, e2el]) = replayed(&place, "rtxpro6000_qwen3-32b", "");
    assert!(tpot.abs() <= 0.03, "TPOT {tpot}");
    assert!(e2el.abs() <= 0.05 && ttft.abs() <= 0.1, "TTFT {ttft}, E2EL {e2el}");
}

#[test]
fn a_profile_alone_prices_the_same_day_and_shows_where_it_differs() {
    let place = Place::with(&[]);
    for (name, machine) in
        [("rtx4090_llama-3.1-8b", "rtx-4090"), ("rtxpro6000_llama-3.1-8b", "rtx-pro-6000-se")]
    {
        let (json, [_, tpot, e2el]) = replayed(&place, name, &format!("--machine {machine}"));
        assert!(tpot.abs() <= 0.05, "{name}: TPOT {tpot}");
        assert!(e2el.abs() <= 0.07, "{name}: E2EL {e2el}");
        let steps = json["differences"].as_array().expect("differences");
        assert_eq!(steps.len(), 2, "a decode step and a step with a prompt");
        let layers = steps[0]["layers"].as_array().expect("layers");
        assert!(layers.iter().any(|layer| layer["layer"] == "attention"));
    }
}

#[test]
fn what_is_wrong_in_a_recording_is_named_with_its_place() {
    let engine = b"model: llama-3.1-8b\nmax_num_seqs: 8\nmax_num_batched_tokens: 64\n";
    let requests =
        b"arrival_s,prompt_tokens,output_tokens,scheduled_s,first_token_s,last_token_s\n0,8,4,0,2,1\n";
    let place = Place::with(&[("engine.yaml", engine), ("requests.csv", requests)]);
    place.refused("replay .", 2, &["requests.csv:2", "last_token_s", "before first_token_s"]);
    place.refused("replay nowhere", 2, &["engine.yaml"]);
    let requests =
        "arrival_s,prompt_tokens,output_tokens,scheduled_s,first_token_s,last_token_s\n0,8,4,0,1,2\n";
    std::fs::write(place.path("requests.csv"), requests).expect("written");
    place.refused("replay .", 2, &["dense_tp1.csv"]);
    std::fs::write(place.path("dense_tp1.csv"), "layer,tokens,time_us\nqkv_proj,1,fast\n").expect("written");
    for table in ["per_sequence_tp1.csv", "attention_tp1.csv"] {
        std::fs::write(place.path(table), "").expect("written");
    }
    place.refused("replay .", 2, &["dense_tp1.csv:2", "time_us", "'fast'"]);
    let shared = "model: llama-3.1-8b\nmax_num_seqs: 8\nmax_num_batched_tokens: 64\ndata_parallel_size: 2\n\
        enable_expert_parallel: true\n";
    std::fs::write(place.path("engine.yaml"), shared).expect("written");
    place.refused("replay . --machine rtx-4090", 2, &["2 engines share their experts"]);
}

/// vLLM 0.19 found room for 2,588 blocks beside Llama-3.1-8B in bf16 on an RTX 4090. The engine's
/// own memory is chosen by this number.
#[test]
fn a_servers_kv_blocks_are_those_of_a_recorded_run() {
    let place = Place::with(&[(
        "day.yaml",
        b"machine: rtx-4090\nmodel: llama-3.1-8b\nengine: {name: vllm, version: \"0.19\"}\n\
         workload: {concurrency: 4, requests: 8, prompt_tokens: 64, output_tokens: 8}\n",
    )]);
    let day = place.stdout("sim day.yaml");
    let blocks = day.split_once(" KV blocks").and_then(|(before, _)| before.rsplit_once(' '));
    let blocks: f64 = blocks.expect("a number of blocks").1.parse().expect("a number");
    assert!((blocks / 2588.0 - 1.0).abs() < 0.02, "{blocks} blocks");
}
