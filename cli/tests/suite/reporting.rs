//! A page of what the other commands wrote.

use crate::place::Place;
use std::fs;

const BATCH: &[u8] = b"machine: example-loopback
model: fulcrum-tiny
dtype: {weights: bf16, kv: bf16}
workload: {batch: 1, prompt_tokens: 8, output_tokens: 4}
objective: latency
";
const DAY: &[u8] = b"machine: example-loopback
model: fulcrum-tiny
dtype: {weights: bf16, kv: bf16}
workload: {arrivals: {poisson: 4 req/s}, requests: 30, prompt_tokens: 16, output_tokens: 8}
engine: vllm
slo: {ttft: 1 s, tpot: 100 ms}
";

#[test]
fn every_kind_of_result_is_on_the_page() {
    let place = Place::with(&[("batch.yaml", BATCH), ("day.yaml", DAY)]);
    place.stdout("plan batch.yaml -o plan.yaml");
    place.stdout("sim plan.yaml --trace trace.json");
    place.stdout(
        "plan batch.yaml --grid --set workload.batch=1,2 --set workload.prompt_tokens=8,16 -o grid.yaml",
    );
    place.stdout("plan batch.yaml --front ttft,tpot -o front.csv");
    fs::write(place.path("front.json"), place.stdout("plan batch.yaml --front ttft,tpot --json"))
        .expect("written");
    fs::write(
        place.path("day.json"),
        place.stdout("sim day.yaml --json --requests r.parquet --series s.csv"),
    )
    .expect("written");
    place.stdout("sim day.yaml --requests r.csv");
    place
        .stdout("sweep batch.yaml --set workload.batch=1,2,0 --set workload.prompt_tokens=8,16 -o sweep.csv");
    let files =
        "plan.yaml trace.json grid.yaml front.csv front.json day.json r.parquet r.csv s.csv sweep.csv";
    let printed =
        place.stdout(&format!("report {files} -o report.html --plots plots --format svg,png --json"));
    let told: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(told["files"].as_array().map(Vec::len), Some(10));
    let page = fs::read_to_string(place.path("report.html")).expect("a page");
    for words in [
        "fulcrum-tiny on example-loopback: plan",
        "fulcrum-tiny on example-loopback: simulated run",
        "fulcrum-tiny on example-loopback: best placements",
        "What can be traded off: ttft, tpot",
        "30 of 30 requests completed",
        "30 requests.",
        "Sweep of workload.batch, workload.prompt_tokens",
        "workload.batch is 0",
        "bf16 products",
    ] {
        assert!(page.contains(words), "{words} is not on the page");
    }
    let plots =
        fs::read_dir(place.path("plots")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (drawings, pictures): (Vec<_>, Vec<_>) =
        plots.partition(|path| path.extension().is_some_and(|end| end == "svg"));
    assert_eq!(page.matches("<svg").count(), drawings.len());
    assert_eq!(pictures.len(), drawings.len());
    for picture in pictures {
        let bytes = fs::read(&picture).expect("a file");
        assert!(bytes.starts_with(b"\x89PNG\r\n"), "{}", picture.display());
    }
    // Requests have the same section from CSV and from Parquet.
    let section = |from: &str, to: &str| {
        let start = page.find(&format!("<section id=\"{from}\">")).expect("a section");
        let end = page.find(&format!("<section id=\"{to}\">")).expect("a section");
        page[start..end].replace(&format!("id=\"{from}"), "")
    };
    assert!(section("r7", "r8") == section("r8", "r9"), "Parquet and CSV differ");
}

#[test]
fn a_file_that_is_no_result_is_refused_and_no_page_is_written() {
    let place = Place::with(&[("batch.yaml", BATCH), ("notes.txt", b"hello"), ("torn.parquet", b"PAR1xx")]);
    for (file, words) in [
        ("batch.yaml", "batch.yaml: is a scenario"),
        ("notes.txt", "notes.txt: is a text that begins with 'hello'"),
        ("torn.parquet", "torn.parquet: cannot be read as Parquet"),
        ("missing.json", "missing.json: cannot be read"),
    ] {
        place.refused(&format!("report {file}"), 2, &[words]);
    }
}
