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
fn files_that_are_published_are_named_by_their_repository() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    let files = "plan scenario.yaml --set dtype.weights=q4_k_m --set workload.batch=1 -o plan.yaml";
    place.stdout(files);
    let text = place.stdout("export plan.yaml --to llama.cpp");
    assert!(
        text.starts_with("llama-server -hf bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M -ngl "),
        "{text}"
    );
    let text = place.stdout("export plan.yaml --to ik_llama.cpp");
    assert!(text.starts_with("llama-server -m llama-3.1-8b-Q4_K_M.gguf -ngl "), "{text}");
    let text = place.stdout("export plan.yaml --to ollama");
    assert!(text.contains("FROM hf.co/bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M\n"), "{text}");

    // Its weights were never published in more bits, so there is nothing to quantise.
    let own = "machine: rtx4090-desktop\nmodel: gpt-oss-20b\nworkload: {batch: 1, prompt_tokens: 256, output_tokens: 32}\n";
    std::fs::write(place.path("own.yaml"), own).expect("written");
    place.stdout("plan own.yaml -o own-plan.yaml");
    let text = place.stdout("export own-plan.yaml --to llama.cpp");
    assert!(text.starts_with("llama-server -hf ggml-org/gpt-oss-20b-GGUF -ngl "), "{text}");
    assert!(!text.contains("llama-quantize") && text.contains("such a file has q8_0"), "{text}");
}

#[test]
fn numbers_that_were_edited_in_a_plan_are_predicted_anew_and_the_plan_says_so() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    place.stdout("plan scenario.yaml -o plan.yaml");
    let text = std::fs::read_to_string(place.path("plan.yaml")).expect("a plan");
    let planned = ["explain plan.yaml --full", "explain plan.yaml"].map(|command| place.stdout(command));
    assert!(planned.iter().all(|shown| shown.contains("Proven") && !shown.contains("edited")), "{planned:?}");
    let export = |plan: &str| -> serde_json::Value {
        let json = place.stdout(&format!("export {plan} --to llama.cpp --json"));
        serde_json::from_str(&json).expect("JSON")
    };
    // The numbers are those of the placement, beside the same rules, but nothing is proven.
    let mut as_edited = export("plan.yaml");
    as_edited["plan"]["chosen"] = "edited".into();
    as_edited["plan"]["proven"] = serde_json::Value::Null;
    for (start, edited) in [
        ("  simulated:", "  simulated: {ttft: 1.5 us, tpot: 1.5 us}"),
        ("  bound:", "  bound: {ttft: 1.5 us, tpot: 1.5 us}"),
        ("  proven:", "  proven: 0.015"),
        ("    all-cpu:", "    all-cpu: {ttft: 1.5 us, tpot: 1.5 us}"),
        ("  dram:", "  dram: {weights: 15 B, kv: 0 B, activations: 0 B, staging: 0 B}"),
        ("    judged:", "    judged: 15"),
        ("digest:", ""),
    ] {
        let line =
            text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
        std::fs::write(place.path("edited.yaml"), text.replacen(line, edited, 1)).expect("written");
        assert_eq!(export("edited.yaml"), as_edited, "{edited}");
        place.stdout("report edited.yaml -o page.html");
        let page = std::fs::read_to_string(place.path("page.html")).expect("a page");
        assert!(page.contains("chosen as ‘edited’") && !page.contains(">1.5 us<"), "the page shows {edited}");
        for command in ["explain edited.yaml --full", "explain edited.yaml"] {
            let shown = place.stdout(command);
            assert!(shown.contains("was edited") && !shown.contains("Proven"), "{edited}: {shown}");
            let edits = ["1.5 us", "15 B", "judged 15 "];
            assert!(edits.iter().all(|number| !shown.contains(number)), "{edited}: {shown}");
        }
    }
}
