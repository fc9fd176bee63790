//! `fulcrum sweep --halve` and `--budget`.

use crate::killed::killed_at;
use crate::place::Place;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Requests that come and go. The more there are, the longer a simulation takes.
const DAY: &str = "machine: h100-sxm
model: llama-3.2-1b
workload: {arrivals: {poisson: 40 req/s}, requests: 240, prompt_tokens: {mean: 300, cv: 1}, output_tokens: {mean: 60, cv: 1}}
engine: vllm
slo: {ttft: 200 ms, tpot: 5 ms}
";

const AXES: &str = "--set machine=h100-sxm,a100-sxm,l40s --set workload.replicas=1,2 --set workload.arrivals.poisson=20,60,100,140";

fn day() -> Place {
    Place::with(&[("s.yaml", DAY.as_bytes())])
}

fn json(place: &Place, arguments: &str) -> Value {
    serde_json::from_str(&place.stdout(&format!("--json {arguments}"))).expect("JSON")
}

/// The table's rows as text, cell by cell.
fn rows(place: &Place, name: &str) -> Vec<Vec<String>> {
    let table = fs::read_to_string(place.path(name)).expect("a table");
    table.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn column(rows: &[Vec<String>], name: &str) -> Vec<String> {
    let at = rows[0].iter().position(|cell| cell == name).expect("the column");
    rows[1..].iter().map(|row| row[at].clone()).collect()
}

#[test]
fn halving_finds_what_the_whole_grid_has_best() {
    let place = day();
    let all = json(&place, &format!("sweep s.yaml {AXES} --most goodput_per_s -o all.csv"));
    let halving = format!(
        "sweep s.yaml {AXES} --halve workload.requests=15,60,240 --eta 2.5 --most goodput_per_s -o halved.csv"
    );
    let halved = json(&place, &halving);
    let best = |result: &Value| result["best"]["goodput_per_s"].as_f64().expect("a number");
    assert!(best(&halved) >= 0.98 * best(&all), "{halved} beside {all}");
    let points: Vec<_> = (0..3).map(|rung| halved["rungs"][rung]["points"].as_u64()).collect();
    assert_eq!(points, [Some(24), Some(10), Some(4)]);
    assert!(halved["rungs"][0]["against_last"]["rank_correlation"].is_number(), "{halved}");
    // A point's row is that of the last value that it was run with. A point that was run with all
    // requests has the row of the whole grid.
    let (grid, table) = (rows(&place, "all.csv"), rows(&place, "halved.csv"));
    let reached = column(&table, "rung");
    let requests = column(&table, "workload.requests");
    assert!(reached.iter().zip(&requests).all(|(rung, requests)| match &**rung {
        "1" => requests == "15",
        "2" => requests == "60",
        _ => requests == "240",
    }));
    assert_eq!(
        ["1", "2", "3"].map(|rung| reached.iter().filter(|reached| *reached == rung).count()),
        [14, 6, 4]
    );
    for name in ["goodput_per_s", "ttft_s_p99", "inputs"] {
        let same = column(&grid, name).into_iter().zip(column(&table, name)).zip(&reached);
        assert!(same.into_iter().all(|((one, other), rung)| (one == other) == (rung == "3")), "{name}");
    }
    let printed = place.stdout(&halving);
    assert!(printed.contains("workload.requests=15: 24 points, 10 went on"), "{printed}");
    // Parquet has the same rows.
    place.stdout(&halving.replace("halved.csv", "halved.parquet"));
    assert!(fs::read(place.path("halved.parquet")).expect("a table").starts_with(b"PAR1"));
}

#[test]
fn a_halving_that_is_killed_ends_as_one_that_is_not() {
    let place = day();
    let arguments =
        format!("sweep s.yaml {AXES} --halve workload.requests=20..320*4 --eta 2 --most goodput_per_s");
    place.stdout(&format!("{arguments} -o whole.csv"));
    for lines in [9, 27, 38] {
        killed_at(&place, &format!("{arguments} --resume -o killed.csv"), "killed.csv.journal", lines);
    }
    place.refused(&format!("{arguments} --seed 1 --budget 20 --resume -o killed.csv"), 2, &["another sweep"]);
    place.stdout(&format!("{arguments} --resume -o killed.csv"));
    assert_eq!(rows(&place, "killed.csv"), rows(&place, "whole.csv"));
}

#[test]
fn shards_of_the_first_value_leave_their_answers_to_a_halving_in_a_cache() {
    let place = day();
    let halving = format!("sweep s.yaml {AXES} --halve workload.requests=15,60 --eta 4 --most goodput_per_s");
    place.stdout(&format!("{halving} -o whole.csv"));
    for shard in 0..3 {
        let first = format!("--set workload.requests=15 --shard {shard}/3 --cache kept -o part{shard}.csv");
        place.stdout(&format!("sweep s.yaml {AXES} {first}"));
    }
    let answers = || {
        let kept = fs::read_to_string(place.path("kept/answers")).expect("a cache");
        kept.lines().filter(|line| !line.is_empty()).count()
    };
    assert_eq!(answers(), 24);
    place.stdout(&format!("{halving} --cache kept -o halved.csv"));
    assert_eq!(rows(&place, "halved.csv"), rows(&place, "whole.csv"));
    // A quarter of 24 went on, and nothing else was computed.
    assert_eq!(answers(), 24 + 6);
}

#[test]
fn a_budget_draws_from_a_space_that_nobody_could_run() {
    let place = Place::with(&[(
        "s.yaml",
        b"machine: h100-sxm\nmodel: llama-3.2-1b\nworkload: {batch: 1, prompt_tokens: 64, output_tokens: 8}\n",
    )]);
    let space = "--set workload.batch=1..16 --set workload.prompt_tokens=1..50000 --set workload.output_tokens=1..50000";
    place.refused(&format!("sweep s.yaml {space} -o x.csv"), 2, &["40000000000", "--budget"]);
    let drawn = |seed: u64, out: &str| {
        place.stdout(&format!("sweep s.yaml {space} --budget 12 --seed {seed} -o {out}"));
        rows(&place, out)
    };
    let (one, again, other) = (drawn(1, "one.csv"), drawn(1, "again.csv"), drawn(2, "other.csv"));
    assert_eq!(one, again);
    assert_ne!(column(&one, "point"), column(&other, "point"));
    let points: BTreeSet<u64> =
        column(&one, "point").iter().map(|cell| cell.parse().expect("a number")).collect();
    assert_eq!(points.len(), 12);
    // A point sets the values that the odometer shows at its number.
    let (batches, prompts) = (column(&one, "workload.batch"), column(&one, "workload.prompt_tokens"));
    for ((point, batch), prompt) in points.iter().zip(batches).zip(prompts) {
        assert_eq!(batch, (point / 2_500_000_000 + 1).to_string());
        assert_eq!(prompt, (point / 50_000 % 50_000 + 1).to_string());
    }
}

#[test]
fn errors_of_a_halving_come_before_it_begins() {
    let place = day();
    let refused = |more: &str, words: &[&str]| {
        place.refused(&format!("sweep s.yaml {AXES} {more} -o x.csv"), 2, words);
    };
    let most = "--most goodput_per_s";
    refused(&format!("--halve workload.requests=9 {most}"), &["workload.requests", "two values"]);
    refused(&format!("--halve workload.requests=9,90 --eta 1 {most}"), &["--eta 1", "more than 1"]);
    refused(&format!("--halve workload.requests=9,90 --eta nan {most}"), &["--eta", "more than 1"]);
    refused("--halve workload.requests=9,90", &["--least", "--most"]);
    refused(&format!("--halve workload.replicas=1,2 {most}"), &["workload.replicas is set already"]);
    refused(&format!("--halve workload.request=9,90 {most}"), &["workload.request", "requests"]);
    refused("--halve workload.requests=9,90 --most plan", &["plan", "goodput_per_s"]);
    let sharded = ["--shard", "--set workload.requests=9", "--cache"];
    refused(&format!("--halve workload.requests=9,90 {most} --shard 0/2"), &sharded);
    refused(&format!("--budget 0 {most}"), &["--budget 0"]);
    refused("--budget 5 --shard 0/2", &["--shard", "merge"]);
    refused("--eta 2", &["--halve"]);
}
