//! Replays recorded runs of vLLM. Plots the predicted against the measured end-to-end latency of
//! every request and prints the errors. `cargo run -p fulcrum-reports --example replayed_runs --
//! replayed_runs.svg`

use reports::{Pair, scatter, statistics};
use scenarios::Model;
use sim::serving::{LayerTables, LayerTimes, RecordedRun, TableText};
use std::error::Error;
use std::fs;
use std::path::Path;

/// The model of both runs.
const MODEL: &str = "llama-3.1-8b";

const RUNS: [(&str, &str); 2] =
    [("RTX 4090", "rtx4090_llama-3.1-8b"), ("RTX PRO 6000", "rtxpro6000_llama-3.1-8b")];

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "replayed_runs.svg".to_owned());
    let mut groups = Vec::new();
    for (name, folder) in RUNS {
        let pairs = replayed(folder)?;
        let errors: Vec<f64> = pairs.iter().filter_map(|(_, pair)| Some(pair.error()?.abs())).collect();
        let [median, p90] = [50.0, 90.0]
            .map(|percent| statistics::percentile(&errors, percent).map_or(f64::NAN, |error| 100.0 * error));
        println!("{name}: {} requests, |error| of E2EL: median {median:.2} %, p90 {p90:.2} %", pairs.len());
        groups.push((name.to_owned(), pairs));
    }
    fs::write(&path, scatter("End-to-end latency of requests", &groups))?;
    println!("written to {path}");
    Ok(())
}

/// The end-to-end latency of each request, predicted and measured.
fn replayed(folder: &str) -> Result<Vec<(String, Pair)>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/data/vllm_runs").join(folder);
    let text = |file: &str| fs::read_to_string(folder.join(file));
    let texts = ["engine.yaml", "requests.csv", "dense_tp1.csv", "per_sequence_tp1.csv", "attention_tp1.csv"];
    let [engine, requests, dense, per_sequence, attention] = texts.map(text);
    let texts = [engine?, requests?, dense?, per_sequence?, attention?];
    let [engine, requests, dense, per_sequence, attention] =
        texts.each_ref().map(|text| TableText { file: folder.to_str().unwrap_or_default(), text });
    let recorded = RecordedRun::read(engine, requests)?;
    let tables = LayerTables { dense, per_sequence, attention, experts: None, all_reduce: None };
    let times = LayerTimes::read(&tables, &Model::preset(MODEL)?, recorded.ranks)?;
    let pairs = recorded.replay(|| times.clone())?.into_iter().map(|[theirs, ours]| {
        let [measured, predicted] = [theirs, ours].map(|served| served.e2el().to_seconds());
        (format!("request {}", theirs.id), Pair { predicted, measured })
    });
    Ok(pairs.collect())
}
