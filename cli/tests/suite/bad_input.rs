//! Wrong input: one clear error, exit status 2 (or 3 where nothing fits), and nothing is written.

use crate::place::Place;
use std::fs;
use std::path::Path;

const SCENARIO: &str = "\
machine: example-loopback
model: fulcrum-tiny
workload: {batch: 1, prompt_tokens: 8, output_tokens: 4}
";

/// A folder with a scenario, a model folder and a plan.
fn planned() -> Place {
    let place = Place::with(&[]);
    fs::write(place.path("scenario.yaml"), SCENARIO).expect("written");
    place.stdout("model init fulcrum-tiny -o model");
    place.stdout("plan scenario.yaml -o plan.yaml");
    place
}

fn replaced(path: &Path, from: &str, to: &str) -> String {
    let text = fs::read_to_string(path).expect("a file");
    assert!(text.contains(from), "{from:?} is not in {text}");
    text.replacen(from, to, 1)
}

#[test]
fn scenarios_with_unknown_keys_or_wrong_values_are_refused() {
    let place = Place::with(&[]);
    for (from, to, words) in [
        ("model:", "modell:", &["modell", "model"][..]),
        ("batch: 1", "batch: -1", &["workload.batch", "-1"]),
        ("batch: 1", "batch: 0", &["workload.batch", "0"]),
        ("batch: 1", "batch: many", &["workload.batch", "many"]),
        ("fulcrum-tiny", "fulcrum-huge", &["fulcrum-huge", "fulcrum model list"]),
        ("example-loopback", "no-such-machine", &["no-such-machine"]),
        ("prompt_tokens: 8", "prompt_tokens: 800000", &["prompt_tokens", "800000"]),
    ] {
        fs::write(place.path("scenario.yaml"), SCENARIO.replacen(from, to, 1)).expect("written");
        place.refused("plan scenario.yaml -o plan.yaml", 2, words);
    }
    fs::write(place.path("scenario.yaml"), SCENARIO).expect("written");
    place.refused("plan scenario.yaml --set workload.bach=2 -o plan.yaml", 2, &["bach", "batch"]);
    place.refused("plan scenario.yaml --set workload.batch=1,2 -o plan.yaml", 2, &["workload.batch"]);
    place.refused("plan absent.yaml -o plan.yaml", 2, &["absent.yaml"]);
}

#[test]
fn machine_files_without_units_or_with_negative_sizes_are_refused() {
    let (_, text) = hwprofiles::shipped().find(|(name, _)| *name == "example-loopback").expect("shipped");
    let place = Place::with(&[]);
    let capacity = text.lines().find(|line| line.contains("capacity")).expect("a capacity");
    let value = capacity.split("value:").nth(1).and_then(|v| v.split(',').next()).expect("a value").trim();
    for (wrong, words) in [
        ("4.8", &["capacity", "4.8", "GB"][..]),
        ("-1 GB", &["capacity", "negative"]),
        (".nan", &["capacity"]),
    ] {
        let broken = capacity.replacen(value, wrong, 1);
        fs::write(place.path("machine.yaml"), text.replacen(capacity, &broken, 1)).expect("written");
        place.refused("machine check machine.yaml", 2, &[&["machine.yaml:"], words].concat());
    }
}

#[test]
fn models_of_unknown_type_are_refused() {
    let place = planned();
    let config = place.path("model/config.json");
    fs::write(&config, replaced(&config, "\"llama\"", "\"lama\"")).expect("written");
    place.refused("model show model", 2, &["config.json", "model_type", "lama", "llama"]);
    place.refused("run plan.yaml --model-dir model", 2, &["config.json", "model_type"]);
}

#[test]
fn truncated_or_misshapen_weights_are_refused() {
    let place = planned();
    let weights = place.path("model/model.safetensors");
    let bytes = fs::read(&weights).expect("weights");
    for length in [0, 7, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&weights, &bytes[..length]).expect("written");
        place.refused("run plan.yaml --model-dir model", 2, &["model.safetensors"]);
    }
    fs::write(&weights, &bytes).expect("written");
    let config = place.path("model/config.json");
    let text = fs::read_to_string(&config).expect("a config");
    let line = text.lines().find(|line| line.contains("\"intermediate_size\"")).expect("the key");
    let width: u64 = line.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a number");
    fs::write(
        &config,
        text.replacen(line, &line.replacen(&width.to_string(), &(2 * width).to_string(), 1), 1),
    )
    .expect("written");
    fs::write(place.path("scenario.yaml"), SCENARIO.replacen("fulcrum-tiny", "model", 1)).expect("written");
    place.stdout("plan scenario.yaml -o wider.yaml");
    // The plan is for the wider model of the folder's config.json; the tensors are narrower.
    place.refused(
        "run wider.yaml --model-dir model",
        2,
        &["model.safetensors", "mlp", &(2 * width).to_string()],
    );
}

#[test]
fn plans_for_another_machine_or_model_are_refused() {
    let place = planned();
    let plan = place.path("plan.yaml");
    let text = fs::read_to_string(&plan).expect("a plan");
    fs::write(
        place.path("no-machine.yaml"),
        replaced(&plan, "machine: example-loopback", "machine: no-such-machine"),
    )
    .expect("written");
    place.refused("sim no-machine.yaml", 2, &["no-such-machine"]);
    // The machine differs in one number from the machine that the plan was made for.
    let (_, machine) = hwprofiles::shipped().find(|(name, _)| *name == "example-loopback").expect("shipped");
    let capacity = machine.lines().find(|line| line.contains("capacity")).expect("a capacity");
    let doubled = capacity.replacen("value: ", "value: 1", 1);
    fs::write(place.path("machine.yaml"), machine.replacen(capacity, &doubled, 1)).expect("written");
    fs::write(
        place.path("other-machine.yaml"),
        replaced(&plan, "machine: example-loopback", "machine: machine.yaml"),
    )
    .expect("written");
    place.refused("sim other-machine.yaml", 2, &["other-machine.yaml", "machine", "fulcrum plan"]);
    place.refused("sim plan.yaml --set workload.batch=2", 2, &["--set", "plan.yaml"]);
    fs::write(place.path("other-model.yaml"), replaced(&plan, "model: fulcrum-tiny", "model: fulcrum-250m"))
        .expect("written");
    place.refused("sim other-model.yaml", 2, &["other-model.yaml", "model", "fulcrum-250m"]);
    place.stdout("model init fulcrum-250m -o larger --seed 1");
    place.refused("run plan.yaml --model-dir larger", 2, &["fulcrum-tiny"]);
    fs::write(place.path("typo.yaml"), text.replacen("prefill_chunk", "prefil_chunk", 1)).expect("written");
    place.refused("sim typo.yaml", 2, &["typo.yaml", "prefil_chunk"]);
}

#[test]
fn a_model_that_does_not_fit_is_infeasible_and_the_memory_is_named() {
    let place = Place::with(&[]);
    fs::write(place.path("scenario.yaml"), SCENARIO.replacen("fulcrum-tiny", "llama-3.1-405b", 1))
        .expect("written");
    place.refused("plan scenario.yaml -o plan.yaml", 3, &["nothing fits", "memory '", "would have to hold"]);
}

#[test]
fn files_that_are_no_results_are_refused() {
    let place = Place::with(&[]);
    for text in ["", "{}", "{\"kind\": \"validation\", \"version\": 999}", "[1, 2"] {
        fs::write(place.path("results.json"), text).expect("written");
        place.refused("report results.json -o report.html", 2, &["results.json"]);
    }
}

const HOST: &str = "\
host: some-host
cpu: {model: Some CPU, cores: [0]}
dram:
  capacity: {value: 8 GB, source: {estimated: {reason: for a test}}}
  bandwidth:
    - stream: read
      threads: 1
      curve: {source: {estimated: {reason: for a test}}, points: [{size: 1 GiB, value: 20 GB/s}]}
teams:
  - threads: 1
    launch: {value: 1 us, source: {estimated: {reason: for a test}}}
    elementwise: {value: 8 GB/s, source: {estimated: {reason: for a test}}}
";

#[test]
fn hosts_are_compared_without_measuring_and_other_files_are_refused() {
    let place = Place::with(&[]);
    fs::write(place.path("a.yaml"), HOST).expect("written");
    fs::write(place.path("b.yaml"), HOST.replace("20 GB/s", "30 GB/s")).expect("written");
    let table = place.stdout("bench --compare a.yaml b.yaml");
    assert!(table.contains("dram bandwidth read threads=1 1 GiB") && table.contains("1.500"), "{table}");
    let changes: serde_json::Value =
        serde_json::from_str(&place.stdout("bench --compare a.yaml b.yaml --json")).expect("JSON");
    assert_eq!(changes["numbers"][0]["ratio"], 1.5);
    assert_eq!(fs::read_dir(place.path(".")).expect("a folder").count(), 2, "nothing is written");
    place.refused("bench --compare a.yaml", 2, &["--compare"]);
    place.refused("bench --compare a.yaml b.yaml --quick", 2, &["--quick"]);
    place.refused("bench --compare a.yaml c.yaml", 2, &["c.yaml"]);
    fs::write(place.path("c.yaml"), HOST.replace("1 us", "-1 us")).expect("written");
    place.refused("bench --compare a.yaml c.yaml", 2, &["c.yaml:11", "launch", "-1 us", "negative"]);
}

#[test]
fn the_roofline_of_another_machine_is_not_checked_here() {
    let place = Place::with(&[]);
    place.refused("bench --check a.yaml", 2, &["a.yaml"]);
    fs::write(place.path("a.yaml"), HOST).expect("written");
    place.refused("bench --check a.yaml", 2, &["a.yaml", "this machine", "fulcrum bench"]);
    place.refused("bench --check a.yaml --gpu-kernels", 2, &["--gpu-kernels"]);
}

#[test]
fn the_same_question_has_the_same_answer_to_the_byte() {
    let place = planned();
    place.stdout("plan scenario.yaml -o again.yaml");
    let read = |name: &str| fs::read(place.path(name)).expect("a file");
    assert_eq!(read("plan.yaml"), read("again.yaml"));
    place.stdout("sim plan.yaml --trace first.json --perfetto first.perfetto.json");
    place.stdout("sim plan.yaml --trace second.json");
    assert_eq!(read("first.json"), read("second.json"));
}

#[test]
fn with_json_an_error_is_an_object_on_stderr() {
    let place = Place::with(&[(
        "s.yaml",
        b"machine: l4\nmodel: lama-3.1-8b\nworkload: {batch: 1, prompt_tokens: 8, output_tokens: 4}\n",
    )]);
    let told = |arguments: &str, status: i32| -> serde_json::Value {
        let output = place.fulcrum(arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{arguments}");
        let told: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one JSON object");
        told["error"].clone()
    };
    let wrong = told("plan s.yaml --json", 2);
    assert_eq!((wrong["kind"].as_str(), wrong["key"].as_str()), (Some("input"), Some("model")));
    assert!(wrong["wanted"].as_str().is_some_and(|text| text.contains("llama-3.1-8b")), "{wrong}");
    assert_eq!(told("--json plan s.yaml --set model=deepseek-v3", 3)["kind"], "infeasible");
    let usage = told("--json plan s.yaml --sett a=b", 2);
    assert!(usage["text"].as_str().is_some_and(|text| text.contains("--set")), "{usage}");
}

/// Runs a command that must fail with this status, with one error and without a panic's text.
fn fails(place: &Place, arguments: &str, status: i32, words: &[&str]) {
    let output = place.command(arguments).env_remove("RUST_BACKTRACE").output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{arguments}: {message}");
    assert!(message.starts_with("error: ") && message.lines().count() == 1, "{arguments}: {message}");
    assert!(!message.contains("panicked") && words.iter().all(|word| message.contains(word)), "{message}");
}

#[test]
fn a_tokenizer_that_contradicts_itself_is_named() {
    let scenario = "machine: example-loopback\nmodel: fulcrum-tiny\nworkload: {batch: 1, prompt_tokens: 24, output_tokens: 4}\n";
    let place = Place::with(&[("s.yaml", scenario.as_bytes())]);
    place.stdout("model init fulcrum-tiny -o model");
    place.stdout("plan s.yaml -o plan.yaml");
    let path = place.path("model/tokenizer.json");
    let good = std::fs::read_to_string(&path).expect("a tokenizer");
    let truncation = r#"{"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 1}"#;
    let bad = good.replacen("\"truncation\": null", &format!("\"truncation\": {truncation}"), 1);
    assert_ne!(good, bad);
    std::fs::write(&path, bad).expect("written");
    fails(&place, "run plan.yaml --model-dir model --prompt lever", 2, &["tokenizer.json"]);
}

#[test]
fn no_time_or_number_is_told_that_is_only_the_end_of_a_scale() {
    let loopback = concat!(env!("CARGO_MANIFEST_DIR"), "/../hwprofiles/data/example-loopback.yaml");
    let loopback = std::fs::read_to_string(loopback).expect("a machine");
    let with = |old: &str, new: &str| loopback.replace(old, new);
    let batch = "{batch: 1, prompt_tokens: 64, output_tokens: 8}";
    let scenario = |machine: &str, workload: &str| {
        format!("machine: {machine}\nmodel: llama-3.2-1b\nworkload: {workload}\n").into_bytes()
    };
    let place = Place::with(&[
        ("slow.yaml", with("bandwidth: {value: 4 GB/s", "bandwidth: {value: 5e-324 GB/s").as_bytes()),
        ("late.yaml", with("latency: {value: 2 us", "latency: {value: 1e20 s").as_bytes()),
        ("s.yaml", &scenario("slow.yaml", batch)),
        ("l.yaml", &scenario("late.yaml", batch)),
        ("rare.yaml", &scenario("h100-sxm", "{arrivals: {poisson: 1e-6 req/s}, requests: 5000, prompt_tokens: 64, output_tokens: 8}")),
        ("many.yaml", &[&scenario("h100-sxm", "{arrivals: {poisson: 5 req/s}, requests: 20, prompt_tokens: 64, output_tokens: 8}")[..],
            b"slo: {ttft: 1 s}\ncapacity: {load: 1e15 req/s, growth: 900 %, years: 9, machines: [h100-sxm]}\n"].concat()),
    ]);
    fails(&place, "plan s.yaml", 2, &["slow.yaml", "bandwidth", "5e-324", "too small"]);
    fails(&place, "plan l.yaml --set placement.rule=flexgen", 2, &["longer than", "simulated time"]);
    fails(&place, "sim l.yaml --set placement.rule=flexgen", 2, &["longer than", "simulated time"]);
    fails(&place, "sim rare.yaml", 2, &["workload", "213 days"]);
    fails(&place, "capacity many.yaml", 2, &["capacity.load", "machines"]);
    // A limit that no time reaches is none.
    place.stdout(r#"sim rare.yaml --set workload.requests=5 --set slo={"ttft":"100h"}"#);
}

#[test]
fn a_layer_of_a_trace_may_have_any_number() {
    let scenario = "machine: example-loopback\nmodel: fulcrum-tiny\nworkload: {batch: 1, prompt_tokens: 24, output_tokens: 4}\n";
    let place = Place::with(&[("s.yaml", scenario.as_bytes())]);
    place.stdout("sim s.yaml --trace t.json");
    let text = std::fs::read_to_string(place.path("t.json")).expect("a trace");
    std::fs::write(place.path("t.json"), text.replacen("\"layer\":0", "\"layer\":4294967295", 1))
        .expect("written");
    place.stdout("report t.json -o page.html");
}

#[test]
fn a_name_never_steers_the_terminal() {
    let place = Place::with(&[]);
    let output = place.fulcrum("plan no\u{1b}[31msuch\u{7}.yaml");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("no\\u{1b}[31msuch\\u{7}.yaml"), "{message}");
    assert!(!message.contains('\u{1b}') && !message.contains('\u{7}'));
}
