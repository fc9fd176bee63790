//! Engines as data.

use hwprofiles::{DType, Library, Seconds};
use scenarios::{Document, EngineProfile, Reserve, Scenario, ScenarioError, ServingDefaults};
use std::path::Path;

fn scenario_in(folder: &Path, engine: &str) -> Result<Scenario, ScenarioError> {
    let file = folder.join("scenario.yaml");
    let text = format!(
        "machine: rtx-4090\nmodel: llama-3.1-8b\nworkload: {{concurrency: 4, requests: 8, prompt_tokens: 8, output_tokens: 8}}\nengine: {engine}\n"
    );
    std::fs::write(&file, text).unwrap();
    Document::from_file(&file).unwrap().scenario()
}

fn engine(engine: &str) -> EngineProfile {
    let folder = tempfile::tempdir().unwrap();
    scenario_in(folder.path(), engine).unwrap().engine.profile
}

fn refusal(engine: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let error = scenario_in(folder.path(), engine).unwrap_err().to_string();
    error.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn a_name_is_the_shipped_engine_and_keys_beside_it_change_it() {
    assert_eq!(engine("vllm"), EngineProfile::shipped("vllm").unwrap());
    assert_eq!(engine("fulcrum"), EngineProfile::default());
    let changed = engine(
        "{name: vllm, version: 0.19, stream_interval: 7, reserve: whole_answer, tokeniser: {per_request: 3 ms}, execution: {hop: 20 us, graphs: true}}",
    );
    assert_eq!((changed.engine.as_str(), changed.version.as_deref()), ("vllm", Some("0.19")));
    assert_eq!((changed.serving.stream_interval.value, changed.serving.reserve), (7, Reserve::WholeAnswer));
    let tokeniser = changed.serving.tokeniser.per_request.unwrap();
    assert_eq!(tokeniser.value, Seconds::new(3e-3));
    assert_eq!(tokeniser.source.to_string(), "estimated: chosen in the scenario");
    assert_eq!(changed.execution.hop.unwrap().value, Seconds::new(20e-6));
    assert_eq!(changed.execution.graphs, Some(true));
}

#[test]
fn a_file_says_in_what_it_differs_and_in_which_version() {
    let folder = tempfile::tempdir().unwrap();
    let text = "engine: mine\nserving:\n  kv: fp8\n  block_size: {value: 64, source: {estimated: {reason: chosen}}}\nversions:\n  \
                - from: \"1.10\"\n    serving: {prefill_first: true}\n  - from: \"1.9\"\n    serving: {prefill_first: false, chunked_prefill: false}\n";
    std::fs::write(folder.path().join("mine.yaml"), text).unwrap();
    let of = |engine: &str| scenario_in(folder.path(), engine).unwrap().engine.profile.serving;
    let newest = of("{file: mine.yaml}");
    assert_eq!((newest.block_size.value, newest.kv), (64, DType::Fp8));
    assert_eq!(newest.max_num_seqs, EngineProfile::default().serving.max_num_seqs);
    let way = |version: &str| {
        let serving = of(&format!("{{file: mine.yaml, version: \"{version}\"}}"));
        [serving.prefill_first, serving.chunked_prefill]
    };
    assert_eq!(way("1.8"), [false, true]);
    assert_eq!(way("1.9"), [false, false]);
    assert_eq!(way("1.10.2"), [true, false]);
    assert_eq!([newest.prefill_first, newest.chunked_prefill], [true, false]);
}

#[test]
fn a_wrong_engine_says_where_and_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = vec![];
    for engine in [
        "vlm",
        "{name: sg-lang}",
        "{name: vllm, file: mine.yaml}",
        "{file: none.yaml}",
        "{name: vllm, stream_interval: 0}",
        "{name: vllm, stream_interval: seven}",
        "{name: vllm, reserve: everything}",
        "{name: vllm, tokeniser: {per_day: 1 ms}}",
        "{name: vllm, execution: {hops: 1 us}}",
    ] {
        all.push(format!("{engine}\n    {}", refusal(engine)));
    }
    for text in [
        "engine: mine\nserving:\n  block_sizes: {value: 64, source: {estimated: {reason: chosen}}}\n",
        "engine: mine\nserving:\n  block_size: 64\n",
        "engine: mine\nexecution:\n  kernel: {value: 3 GB, source: {estimated: {reason: chosen}}}\n",
        "engine: mine\nexecution:\n  sparse_heads: {value: 0, source: {estimated: {reason: chosen}}}\n",
        "engine: mine\nversions: [{serving: {kv: fp8}}]\n",
        "engine: mine\nversions:\n  - {from: \"1.2\", servng: {kv: fp8}}\n",
    ] {
        std::fs::write(folder.path().join("mine.yaml"), text).unwrap();
        let error = scenario_in(folder.path(), "{file: mine.yaml}").unwrap_err().to_string();
        let error = error.replace(&format!("{}/", folder.path().display()), "");
        all.push(format!("{}\n    {error}", text.replace('\n', "⏎")));
    }
    insta::assert_snapshot!(all.join("\n"));
}

/// The serving settings of `engine` on a shipped machine, where the scenario chooses none.
fn serving_on(machine: &str, name: &str) -> ServingDefaults {
    let machine = Library::default().machine(machine).unwrap();
    let mut serving = engine(name).serving;
    serving.adapt_to(&machine);
    serving
}

/// The defaults of vLLM's and SGLang's servers, as their documents give them for these GPUs.
#[test]
fn engines_set_sizes_by_the_gpu() {
    let sizes = |serving: &ServingDefaults| {
        let kept_free = serving.kept_free.value.gibibytes();
        (
            serving.max_num_seqs.value,
            serving.max_num_batched_tokens.value,
            (kept_free * 100.0).round() / 100.0,
        )
    };
    let vllm = |machine: &str| sizes(&serving_on(machine, "vllm"));
    for machine in ["rtx-4090", "l40s", "a100-sxm"] {
        assert_eq!(vllm(machine), (256, 2048, 0.0), "{machine}");
    }
    for machine in ["h100-sxm", "h200-sxm", "mi300x", "rtx-pro-6000"] {
        assert_eq!(vllm(machine), (1024, 8192, 0.0), "{machine}");
    }
    let sglang = |machine: &str| sizes(&serving_on(machine, "sglang"));
    assert_eq!(sglang("rtx-4090"), (1024, 2048, 3.67));
    assert_eq!(sglang("l40s"), (1024, 4096, 6.69));
    assert_eq!(sglang("h100-sxm"), (1024, 8192, 13.13));
    assert_eq!(sglang("b200-sxm"), (1024, 16384, 25.63));
}

#[test]
fn settings_are_those_of_one_gpu_of_a_group() {
    let one = Library::default().machine_with("rtx-4090", 4).unwrap();
    let group = one.with_tensor_parallel(4).unwrap();
    let mut serving = engine("vllm").serving;
    serving.adapt_to(&group);
    assert_eq!(serving.max_num_batched_tokens.value, 2048);
}

/// The objects with a value and a source in `found`, by their keys.
fn sourced(found: &serde_json::Value, path: &str, all: &mut Vec<(String, serde_json::Value)>) {
    let Some(entries) = found.as_object() else { return };
    if entries.contains_key("value") && entries.contains_key("source") {
        all.push((path.to_owned(), found.clone()));
    }
    entries.iter().for_each(|(key, value)| sourced(value, &format!("{path}/{key}"), all));
}

#[test]
fn what_an_engine_has_as_another_is_that_engines_value() {
    let json = |name: &str| serde_json::to_value(EngineProfile::shipped(name).unwrap()).unwrap();
    let mut compared = 0;
    for name in EngineProfile::names() {
        let mut all = vec![];
        sourced(&json(name), "", &mut all);
        for (path, here) in all {
            let reason = here["source"]["estimated"]["reason"].as_str().unwrap_or_default();
            let Some(other) =
                reason.strip_prefix("as ").filter(|other| EngineProfile::shipped(other).is_some())
            else {
                continue;
            };
            assert_eq!(
                json(other).pointer(&path).map(|there| &there["value"]),
                Some(&here["value"]),
                "{name}{path}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 5, "{compared}");
}
