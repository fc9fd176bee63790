//! The what-if questions that come with Fulcrum: one command answers each.

use crate::column::column;
use crate::place::Place;
use std::fs;
use std::path::Path;

#[test]
fn every_what_if_runs_by_one_command_and_answers_something() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/what-if");
    let files = fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = files.filter(|path| path.is_file()).collect();
    files.sort();
    assert!(files.len() >= 9, "{files:?}");
    let place = Place::with(&[]);
    for file in files {
        // Every ninth point is enough, with short answers.
        let short = "--shard 0/9 --set workload.output_tokens=4";
        let printed = place.stdout(&format!("--json sweep {} {short} -o out.csv", file.display()));
        let counts: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
        let count = |status: &str| counts[status].as_u64().expect("a count");
        let table = fs::read_to_string(place.path("out.csv")).expect("a table");
        assert!(count("ok") >= 1, "{}: {table}", file.display());
        assert_eq!((count("invalid"), count("failed")), (0, 0), "{}: {table}", file.display());
    }
}

#[test]
fn a_faster_pool_and_more_cards_never_make_an_answer_slower() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/what-if");
    // The pools come in the order of their bandwidth, then of their latency. The cards go from none
    // to eight; the points behind them are interleaved in another way.
    for (file, points) in [("photonic-cxl.yaml", 5), ("cxl-cards.yaml", 5)] {
        let place = Place::with(&[]);
        place.stdout(&format!("sweep {} -o out.csv", folder.join(file).display()));
        let table = fs::read_to_string(place.path("out.csv")).expect("a table");
        let rates = column(&table, "output_tokens_per_s").into_iter().take(points);
        let rates: Vec<f64> = rates.map(|cell| cell.parse().expect("a number")).collect();
        assert_eq!(rates.len(), points);
        // The search stops when no placement is better by more than a hundredth.
        assert!(rates.windows(2).all(|pair| pair[1] >= pair[0] * 0.99), "{file}: {rates:?}");
    }
}

#[test]
fn lists_of_a_scenario_span_a_sweep_and_the_command_line_takes_their_place() {
    let scenario = "machine: h100-sxm
model: llama-3.2-1b
workload: {batch: 1, prompt_tokens: 64, output_tokens: 8}
sweep:
  workload.batch: 1..8*2
  workload.prompt_tokens, workload.output_tokens: [[32, 4], [64, 8]]
";
    let place = Place::with(&[("s.yaml", scenario.as_bytes())]);
    let printed = place.stdout("sweep s.yaml -o all.csv");
    assert!(printed.contains("8 ok"), "{printed}");
    let table = fs::read_to_string(place.path("all.csv")).expect("a table");
    let header = "point,workload.batch,workload.prompt_tokens,workload.output_tokens,status";
    assert!(table.starts_with(header), "{table}");
    assert!(table.lines().nth(2).expect("a row").starts_with("1,1,64,8,ok"), "{table}");
    let printed = place.stdout("sweep s.yaml --set workload.batch=3 -o some.csv");
    assert!(printed.contains("2 ok"), "{printed}");
    // Other commands read the scenario without its lists.
    assert!(place.stdout("sim s.yaml").contains("batch 1, prompt 64"));
    for (wrong, words) in [
        ("workload.batch: []", ["sweep.workload.batch", "a list"]),
        ("workload.batch: 8..1", ["sweep.workload.batch", "range"]),
        ("model, dtype: [[llama-3.2-1b]]", ["sweep.model, dtype", "each"]),
        ("workload.btch: [1]", ["workload.btch", "batch"]),
    ] {
        let text =
            scenario.split("  workload.batch").next().expect("a text").to_owned() + "  " + wrong + "\n";
        fs::write(place.path("wrong.yaml"), text).expect("written");
        place.refused("sweep wrong.yaml -o x.csv", 2, &words);
    }
}
