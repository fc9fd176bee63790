//! `fulcrum machine list | show | check` over the shipped profiles.

use crate::place::Place;
use std::fs;
use std::process::{Command, Output};

fn machine(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fulcrum"));
    command.env("FULCRUM_HOME", env!("CARGO_TARGET_TMPDIR")).arg("machine").args(arguments);
    command.output().expect("it runs")
}

fn text(arguments: &[&str]) -> String {
    let output = machine(arguments);
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {complaints}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_list_holds_every_shipped_profile_under_its_kind_in_eighty_columns() {
    let list = text(&["list"]);
    for line in list.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let place = |line: &str| list.lines().position(|l| l.split_whitespace().next() == Some(line));
    let order = ["spr-a100", "h100-sxm", "xeon-8480p", "pcie4-x16", "samsung-128gb", "nvme-gcp-1.5tb"];
    let places = order.map(|name| place(name).expect(name));
    assert!(places.is_sorted(), "{list}");
    let json: serde_json::Value = serde_json::from_str(&text(&["list", "--json"])).expect("JSON");
    let rows = json.as_array().expect("a list");
    assert_eq!(rows.len(), hwprofiles::shipped().count());
    for (row, (name, _)) in rows.iter().zip(hwprofiles::shipped()) {
        assert_eq!(row["name"], name);
        assert!(list.contains(row["summary"].as_str().expect("words")), "{name}");
    }
}

#[test]
fn a_part_is_shown_as_its_file_and_as_the_machine_that_its_name_stands_for() {
    let link = text(&["show", "PCIe4_x16"]);
    assert!(link.starts_with("pcie4-x16, a link") && !link.contains("As a machine"), "{link}");
    let gpu = text(&["show", "h100-sxm"]);
    assert!(gpu.contains("peak.bf16") && gpu.contains("As a machine") && gpu.contains("device gpu"), "{gpu}");
    let alone = text(&["show", "sn40l"]);
    assert!(!alone.contains("As a machine"), "{alone}");
    let testbed = text(&["show", "spr-a100"]);
    assert!(testbed.starts_with("spr-a100  [") && testbed.contains("in registers"), "{testbed}");
    let json: serde_json::Value = serde_json::from_str(&text(&["show", "h100-sxm", "--json"])).expect("JSON");
    assert_eq!((json["part"]["name"].as_str(), json["name"].as_str()), (Some("h100-sxm"), Some("h100-sxm")));
    assert!(json["facts"].as_array().is_some_and(|facts| !facts.is_empty()), "{json}");
}

#[test]
fn every_kind_of_profile_can_be_checked() {
    for name in
        ["spr-h100-cxl", "t4", "sn40l", "xeon-8480p", "grace", "pcie3-x16", "micron-cz120", "nvme-gcp-1.5tb"]
    {
        assert!(text(&["check", name]).contains("nothing to complain about"), "{name}");
    }
    let output = machine(&["check", "h300"]);
    assert_eq!(output.status.code(), Some(2));
}

/// What was measured on somebody's machine.
const MEASURED: &str = "\
host: adas-laptop
cpu: {model: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz, cores: [0, 1]}
dram:
  capacity: {value: 8 GB, source: {estimated: {reason: for a test}}}
  bandwidth:
    - stream: read
      threads: 2
      curve:
        source: {measured: {date: 2026-11-23, command: /home/ada/fulcrum bench, spread: 0.01}}
        points: [{size: 1 GiB, value: 20 GB/s}]
teams:
  - threads: 2
    launch: {value: 1 us, source: {estimated: {reason: for a test}}}
    elementwise: {value: 8 GB/s, source: {estimated: {reason: for a test}}}
    gemm: {}
    attention: {}
";

const VALIDATION: &str = r#"{"kind": "validation", "version": 1, "machine": "adas-laptop", "facts": [],
"model": "MODEL", "commands": ["/home/ada/fulcrum validate"], "configurations": []}"#;

#[test]
fn measurements_are_shared_without_names_and_paths() {
    let place = Place::with(&[("results.json", VALIDATION.as_bytes())]);
    place.refused("share", 2, &["fulcrum bench"]);
    fs::write(place.path("this.yaml"), MEASURED).expect("written");
    let text = place.stdout("share results.json -o .");
    assert!(text.contains("xeon-platinum-8481c-2-cores.yaml"), "{text}");
    let part = fs::read_to_string(place.path("xeon-platinum-8481c-2-cores.yaml")).expect("a part");
    assert!(!part.contains("ada") && part.contains("20 GB/s") && part.contains("fulcrum bench"), "{part}");
    let shown = place.stdout("machine show xeon-platinum-8481c-2-cores.yaml");
    assert!(!shown.contains("ada"), "{shown}");
    assert!(place.stdout("share --name mine").starts_with("host: mine\n"));
    place.refused("share --name ../mine -o .", 2, &["../mine", "letters, digits and dashes"]);
    place.refused("share missing.json", 2, &["missing.json"]);
    place.refused("share this.yaml", 2, &["this.yaml"]);
}

#[test]
fn a_machine_in_words_is_planned_and_what_is_assumed_is_told() {
    let scenario = "machine: RTX 3060, 32 GB
model: llama-3.2-1b
workload: {batch: 1, prompt_tokens: 64, output_tokens: 8}
";
    let place = Place::with(&[("s.yaml", scenario.as_bytes())]);
    let shown = place.stdout("plan s.yaml -o plan.yaml");
    let told = "llama-3.2-1b on rtx-3060-12, 32 GB: batch 1, prompt 64, output 8, ";
    assert!(shown.starts_with(told) && shown.contains("\nassumed: CPU "), "{shown}");
    // The plan names the machine in the same words.
    assert!(place.stdout("explain plan.yaml").starts_with("llama-3.2-1b on rtx-3060-12, 32 GB"));
    place.refused("explain s.yaml", 2, &["s.yaml is a scenario", "fulcrum plan s.yaml -o plan.yaml"]);
    place.refused("plan plan.yaml", 2, &["plan.yaml: a plan", "explain, export, sim and report"]);
    let unclear = "plan s.yaml --set machine=RTX-3061";
    place.refused(unclear, 2, &["machine", "did you mean"]);
}
