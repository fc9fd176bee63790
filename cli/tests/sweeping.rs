//! `fulcrum sweep` and `fulcrum merge`.

mod place;

use place::Place;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

const SCENARIO: &str = "machine: h100-sxm
model: llama-3.2-1b
workload: {batch: 1, prompt_tokens: 64, output_tokens: 8}
";

fn placed() -> Place {
    Place::with(&[("s.yaml", SCENARIO.as_bytes())])
}

fn read(place: &Place, name: &str) -> String {
    fs::read_to_string(place.path(name)).expect("a table")
}

/// The cells of a column.
fn column(table: &str, name: &str) -> Vec<String> {
    let split = |line: &str| {
        let (mut cells, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                c => cells.last_mut().expect("one at least").push(c),
            }
        }
        cells
    };
    let mut lines = table.lines().map(split);
    let header = lines.next().expect("a header");
    let at = header.iter().position(|cell| cell == name).expect("the column");
    lines.map(|cells| cells[at].clone()).collect()
}

const AXES: &str = "--set workload.batch=1..32*2 --set workload.prompt_tokens=32,64,96";

#[test]
fn every_point_has_a_row_in_the_order_of_an_odometer() {
    let place = placed();
    let said = place.done(&format!("sweep s.yaml {AXES} -o all.csv"));
    assert!(said.contains("18 ok"), "{said}");
    let table = read(&place, "all.csv");
    let points: Vec<_> = (0..18).map(|point: u32| point.to_string()).collect();
    assert_eq!(column(&table, "point"), points);
    assert_eq!(column(&table, "workload.batch")[..6], ["1", "1", "1", "2", "2", "2"]);
    assert_eq!(column(&table, "workload.prompt_tokens")[..4], ["32", "64", "96", "32"]);
    let times: Vec<f64> =
        column(&table, "tpot_s_mean").iter().map(|cell| cell.parse().expect("a number")).collect();
    assert!(times[0] < times[17] && times.iter().all(|time| *time > 0.0), "{times:?}");
    let inputs = column(&table, "inputs");
    assert!(inputs[0].len() == 16 && inputs[0] != inputs[1]);
    assert!(!place.path("all.csv.journal").exists());
    // A plan says the same.
    let plan = place.done("--json plan s.yaml --set workload.batch=32 --set workload.prompt_tokens=96");
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let ttft: hwprofiles::Seconds =
        plan["predicted"]["simulated"]["ttft"].as_str().expect("a time").parse().expect("a time");
    let row: f64 = column(&table, "ttft_s_mean")[17].parse().expect("a number");
    assert!((row / ttft.get() - 1.0).abs() < 1e-12, "{row} and {ttft}");
}

#[test]
fn shards_join_to_the_table_of_the_whole_whatever_their_order() {
    let place = placed();
    place.done(&format!("sweep s.yaml {AXES} -o all.csv"));
    for shard in 0..4 {
        place.done(&format!("sweep s.yaml {AXES} --shard {shard}/4 -o part{shard}.csv"));
    }
    place.done("merge part2.csv part0.csv part3.csv part1.csv -o merged.csv");
    assert_eq!(read(&place, "merged.csv"), read(&place, "all.csv"));
    place.refused("merge part2.csv part0.csv part3.csv -o gap.csv", 2, &["point 1", "all shards"]);
    place.refused("merge part0.csv part0.csv -o twice.csv", 2, &["all shards"]);
    place.refused("merge s.yaml -o x.csv", 2, &["s.yaml:1", "point"]);
    assert!(!place.path("gap.csv").exists());
}

#[test]
fn a_sweep_that_is_killed_again_and_again_ends_as_one_that_is_not() {
    let place = placed();
    let axes = "--set workload.batch=1..40 --set workload.prompt_tokens=32,64,96";
    place.done(&format!("sweep s.yaml {axes} -o whole.csv"));
    let journal = place.path("killed.csv.journal");
    let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    let mut before = 0;
    for _ in 0..5 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fulcrum"))
            .args(["sweep", "s.yaml"])
            .args(axes.split(' '))
            .args(["--resume", "-o", "killed.csv"])
            .current_dir(place.path("."))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        // Until it has come further.
        while lines() < before + 4 && child.try_wait().expect("it is asked").is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().expect("it is killed");
        child.wait().expect("it is gone");
        before = lines().max(before);
    }
    assert!(before >= 20, "{before} lines");
    // What a kill leaves of a line is not a row.
    let mut text = fs::read(&journal).expect("a journal");
    text.extend_from_slice(b"119 119,40,96,ok,,torn");
    fs::write(&journal, text).expect("written");
    place.refused(&format!("sweep s.yaml {axes} -o killed.csv"), 2, &["killed.csv.journal", "--resume"]);
    place.refused(&format!("sweep s.yaml {AXES} --resume -o killed.csv"), 2, &["another sweep"]);
    let said = place.done(&format!("--json sweep s.yaml {axes} --resume -o killed.csv"));
    let counts: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let count = |key: &str| counts[key].as_u64().expect("a count");
    assert!(count("finished_before") >= 19, "{said}");
    assert_eq!(count("ok") + count("finished_before"), 120);
    assert_eq!(read(&place, "killed.csv"), read(&place, "whole.csv"));
}

#[test]
fn a_point_that_fails_is_a_row_and_not_the_end() {
    let place = placed();
    let said =
        place.done("sweep s.yaml --set workload.batch=1,0,4 --set model=llama-3.2-1b,nobody -o out.csv");
    assert!(said.contains("2 ok") && said.contains("4 invalid"), "{said}");
    let table = read(&place, "out.csv");
    assert_eq!(column(&table, "status"), ["ok", "invalid", "invalid", "invalid", "ok", "invalid"]);
    assert!(column(&table, "message")[2].contains("from 1"), "{table}");
    let tight = "sweep s.yaml --set model=llama-3.1-70b --set workload.batch=1,1000000 --set slo={ttft:1us} -o tight.csv";
    place.done(&tight.replace("{ttft:1us}", r#"{"ttft":"1us"}"#));
    assert!(column(&read(&place, "tight.csv"), "status").iter().all(|status| status != "ok"));
}

#[test]
fn a_served_day_is_a_point_too() {
    let place = placed();
    let load = r#"workload={"concurrency":4,"requests":20,"prompt_tokens":64,"output_tokens":8}"#;
    place.done(&format!("sweep s.yaml --set {load} --set engine=vllm,sglang -o day.csv"));
    let table = read(&place, "day.csv");
    assert_eq!(column(&table, "requests_completed"), ["20", "20"]);
    assert_eq!(column(&table, "plan")[0].split(',').next(), Some("all on gpu"));
    let day = place.done(&format!("--json sim s.yaml --set {load} --set engine=sglang"));
    let day: serde_json::Value = serde_json::from_str(&day).expect("JSON");
    assert_eq!(column(&table, "ttft_s_p99")[1], day["ttft_s"]["p99"].to_string());
}

#[test]
fn tables_and_zipped_keys_are_axes() {
    let place = placed();
    let rows = "workload.batch,dtype\n2,\"{weights: int8, kv: bf16}\"\n4,\n";
    fs::write(place.path("rows.csv"), rows).expect("written");
    place.done("sweep s.yaml --table rows.csv --set workload.prompt_tokens=32,64 -o out.csv");
    let table = read(&place, "out.csv");
    assert_eq!(column(&table, "workload.batch"), ["2", "2", "4", "4"]);
    assert_eq!(column(&table, "workload.prompt_tokens"), ["32", "64", "32", "64"]);
    let plans = column(&table, "plan");
    assert!(plans[0].contains("int8") && !plans[2].contains("int8"), "{plans:?}");
    let zip = "sweep s.yaml --set workload.batch=1,2 --set workload.prompt_tokens=32,64";
    place.done(&format!("{zip} --zip workload.batch,workload.prompt_tokens -o zip.csv"));
    assert_eq!(column(&read(&place, "zip.csv"), "workload.prompt_tokens"), ["32", "64"]);
    place.refused(
        &format!("{zip},96 --zip workload.batch,workload.prompt_tokens -o x.csv"),
        2,
        &["2 values", "3"],
    );
    place.refused(&format!("{zip} --zip workload.batch,model -o x.csv"), 2, &["model is not set"]);
    fs::write(place.path("rows.csv"), "workload.batch,model\n2\n").expect("written");
    place.refused("sweep s.yaml --table rows.csv -o x.csv", 2, &["rows.csv:2", "2 columns"]);
}

#[test]
fn what_is_wrong_with_a_sweep_is_told_before_it_begins() {
    let place = placed();
    place.refused("sweep s.yaml --set workload.btch=1,2 -o x.csv", 2, &["workload.btch", "batch"]);
    place.refused("sweep s.yaml --set workload.batch=1,big -o x.csv", 2, &["one kind"]);
    place.refused("sweep s.yaml --set workload.batch=8..1 -o x.csv", 2, &["8..1", "goes nowhere"]);
    place.refused("sweep s.yaml --set workload.batch=1..8*1 -o x.csv", 2, &["goes nowhere"]);
    let many = "--set workload.batch=1..1000000 --set workload.prompt_tokens=1..1000000";
    place.refused(&format!("sweep s.yaml {many} -o x.csv"), 2, &["1000000000000", "at most"]);
    place.refused("sweep s.yaml --shard 4/4 -o x.csv", 2, &["4/4", "i/n"]);
    place.refused("sweep s.yaml -o nowhere/x.csv", 1, &["nowhere/x.csv.journal"]);
    assert!(!place.path("x.csv").exists() && !place.path("x.csv.journal").exists());
}
