//! The table of scenario keys and the reader know the same keys.

use scenarios::{Document, SCENARIO_KEYS, ScenarioError};
use std::collections::BTreeSet;

const BATCH: &str = "machine: m\nmodel: opt-125m\n";
const LOAD: &str = "workload: {batch: 1, prompt_tokens: 8, output_tokens: 8}\n";
const DAY: &str =
    "workload: {arrivals: {poisson: 1 req/s}, requests: 10, prompt_tokens: 8, output_tokens: 8}\n";

/// The keys that the reader accepts beside an unknown one in `text`.
fn accepted(text: &str) -> BTreeSet<String> {
    let document = Document::from_yaml("s.yaml", text).expect("YAML");
    let error = match document.scenario() {
        Err(error) => error,
        Ok(_) => document.capacity().expect_err("an unknown key"),
    };
    match error {
        ScenarioError::UnknownKey { known, .. } => known.split(", ").map(str::to_owned).collect(),
        other => panic!("{text}: {other}"),
    }
}

/// The keys directly under `path` in the table.
fn listed(path: &str) -> BTreeSet<String> {
    let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
    let below = SCENARIO_KEYS.iter().filter_map(|key| key.path.strip_prefix(&prefix));
    below.filter_map(|rest| rest.split('.').next()).map(|key| key.trim_end_matches("[]").to_owned()).collect()
}

#[test]
fn the_table_lists_the_keys_that_the_reader_accepts() {
    let capacity = "slo: {ttft: 1 s, tpot: 50 ms}\n";
    let sections = [
        ("", format!("{BATCH}{LOAD}zzz: 1")),
        ("dtype", format!("{BATCH}{LOAD}dtype: {{zzz: 1}}")),
        ("dtype.weights", format!("{BATCH}{LOAD}dtype: {{weights: {{zzz: bf16}}}}")),
        ("quality", format!("{BATCH}{LOAD}quality: {{zzz: 1}}")),
        ("slo", format!("{BATCH}{LOAD}slo: {{zzz: 1}}")),
        ("costs", format!("{BATCH}{LOAD}costs: {{zzz: 1}}")),
        ("speculative", format!("{BATCH}{LOAD}speculative: {{zzz: 1}}")),
        ("placement", format!("{BATCH}{LOAD}placement: {{zzz: 1}}")),
        ("engine", format!("{BATCH}{DAY}engine: {{name: vllm, zzz: 1}}")),
        ("engine.prefix_cache", format!("{BATCH}{DAY}engine: {{name: vllm, prefix_cache: {{zzz: 1}}}}")),
        ("capacity", format!("{BATCH}{DAY}{capacity}capacity: {{zzz: 1}}")),
        ("capacity.prices", format!("{BATCH}{DAY}{capacity}capacity: {{machines: [m], prices: {{zzz: 1}}}}")),
        (
            "capacity.machines[]",
            format!("{BATCH}{DAY}{capacity}capacity: {{machines: [{{name: n, zzz: 1}}]}}"),
        ),
        ("workload.training", format!("{BATCH}workload: {{training: {{zzz: 1}}}}")),
    ];
    for (path, text) in sections {
        assert_eq!(listed(path), accepted(&text), "keys of '{path}'");
    }
    // A workload is a batch, a serving workload or a training step, and each has keys of its own.
    let workloads = ["workload: {batch: 1, zzz: 1}", "workload: {concurrency: 1, zzz: 1}"];
    let mut all: BTreeSet<String> =
        workloads.iter().flat_map(|text| accepted(&format!("{BATCH}{text}"))).collect();
    all.insert("training".to_owned());
    assert_eq!(listed("workload"), all, "keys of 'workload'");
}

#[test]
fn every_key_has_values_and_a_meaning_and_stands_once() {
    let paths: BTreeSet<_> = SCENARIO_KEYS.iter().map(|key| key.path).collect();
    assert_eq!(paths.len(), SCENARIO_KEYS.len());
    for key in SCENARIO_KEYS {
        assert!(key.values.contains('`') && key.meaning.ends_with('.'), "{}", key.path);
    }
}
