//! `fulcrum reproduce`: published rows beside ours, reports, and errors of publications.

use crate::place::Place;
use std::fs;

#[test]
fn a_system_is_shown_row_by_row_and_scored() {
    let place = Place::with(&[("kept", b"")]);
    let text = place.stdout("reproduce gptq");
    assert!(text.contains("OPT-175B") && text.contains("scored") && text.contains("fitted"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&place.stdout("--json reproduce gptq sn40l")).expect("JSON");
    assert_eq!(json["systems"].as_array().map(Vec::len), Some(2));
    let score = &json["systems"][0]["score"];
    assert!(score["rows"].as_u64() > Some(0) && score["median_error"].as_f64() < Some(0.5), "{score}");
}

#[test]
fn a_report_has_a_page_a_plot_and_every_row() {
    let place = Place::with(&[("kept", b"")]);
    place.stdout("reproduce neo heteroinfer --report --out pages --table rows.csv");
    let page = fs::read_to_string(place.path("pages/published.md")).expect("a page");
    assert!(page.contains("## <a id=\"neo\"></a>NEO") && page.contains("(heteroinfer.svg)"), "{page}");
    assert!(fs::read_to_string(place.path("pages/neo.svg")).expect("a plot").contains("<svg"));
    let rows = fs::read_to_string(place.path("rows.csv")).expect("rows").lines().count();
    assert!(rows > 20, "{rows} lines");
}

#[test]
fn rows_that_are_no_target_run_and_have_no_error() {
    let place = Place::with(&[("kept", b"")]);
    // The rows are a training step, requests that come and go, a machine's own numbers, a plan's
    // energy, and a pool that is read in place.
    let ids = ["megatrain", "vultr-b200", "tacc-spr-hbm", "qeil", "photonic-fabric"];
    let json: serde_json::Value =
        serde_json::from_str(&place.stdout(&format!("--json reproduce {}", ids.join(" ")))).expect("JSON");
    for system in json["systems"].as_array().expect("systems") {
        let rows = system["rows"].as_array().expect("rows");
        assert!(rows.iter().any(|row| row["ours"].as_f64().is_some()), "{}", system["id"]);
        for row in rows {
            let why = row["why"].as_str().unwrap_or_default();
            let wanted = match row["ours"].is_null() {
                // A pool beside 16 GPUs keeps a model that no 16 GPUs hold.
                true if why.starts_with("the placement keeps") => "failed",
                true => "unscored",
                false => "shown",
            };
            assert_eq!(
                (&row["standing"], &row["error"]),
                (&wanted.into(), &serde_json::Value::Null),
                "{row}"
            );
            assert!(!why.is_empty(), "{row}");
        }
        assert_eq!(system["score"]["rows"], 0, "{}", system["id"]);
    }
}

const SYSTEM: &str = "system: Mine\nsource: a shed\nlicence: mine\nresources: one\nmechanism: m\nverdict: v\n\
    constants: {rate: {value: 30, prior: [10, 90], fitted: true, why: GB/s}}\nfitted_on: [{id: [a, b]}]\n\
    machines: {m: {base: xeon-8480p-56c, devices: {cpu: {products: 10 TFLOP/s, weights: \"${rate} GB/s\"}}}}\n\
    groups: [{rows: {metric: tokens}, runs: {run: {batch: 1, prompt: 16, output: 4}}, ours: 1 / tpot}]\n";
const ROWS: &str = "id,value,unit,metric,certainty,model\na,4,tok/s,tokens,table,opt-6.7b\nb,4,tok/s,tokens,table,opt-6.7b\n\
    c,2,tok/s,tokens,table,opt-13b\n";

#[test]
fn a_system_of_ones_own_is_fitted_where_it_says_so() {
    let place = Place::with(&[("mine.yaml", SYSTEM.as_bytes()), ("mine.csv", ROWS.as_bytes())]);
    let fitted = place.stdout("reproduce --file mine.yaml --fit");
    let rate = fitted.lines().find_map(|line| line.trim().strip_prefix("rate: ")).expect("a rate");
    // 4 tokens a second that each read 13.3 GB, and a step takes a little more than that.
    assert!(rate.contains("differs from the stored 30"), "{fitted}");
    let rate: f64 = rate.split(' ').next().and_then(|rate| rate.parse().ok()).expect("a number");
    assert!((50.0..70.0).contains(&rate), "{fitted}");
    let json: serde_json::Value =
        serde_json::from_str(&place.stdout("--json reproduce --file mine.yaml")).expect("JSON");
    assert_eq!(json["systems"][0]["score"]["rows"], 1, "two were fitted on");
}

#[test]
fn errors_name_the_file_and_the_key() {
    let outside = SYSTEM.replace("value: 30", "value: 3");
    let place = Place::with(&[("mine.yaml", outside.as_bytes()), ("mine.csv", ROWS.as_bytes())]);
    place.refused("reproduce nobody", 2, &["there is no publication 'nobody'", "flexgen"]);
    place.refused("reproduce --file absent.yaml", 2, &["absent.yaml"]);
    place.refused("reproduce --file mine.yaml", 2, &["mine.yaml:7", "constants.rate.value", "10 to 90"]);
}

#[test]
fn public_runs_are_answered_as_well_as_their_page_says() {
    let place = Place::with(&[("kept", b"")]);
    let text = place.stdout("--json reproduce --public --table rows.csv");
    let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let summary = |value: &serde_json::Value| -> reports::public_runs::PublicSummary {
        serde_json::from_value(value.clone()).expect("a summary")
    };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/validation/public.json");
    let before = serde_json::from_str(&fs::read_to_string(path).expect("public.json")).expect("JSON");
    let worse = summary(&found["summary"]).worse_than(&summary(&before));
    let again = "fulcrum reproduce --public --report --out docs/validation";
    assert!(worse.is_empty(), "{}: mend it, or run `{again}` and say why", worse.join("\n"));
    let rows = found["rows"].as_array().expect("rows");
    let lines = fs::read_to_string(place.path("rows.csv")).expect("rows").lines().count();
    assert_eq!(lines, rows.len() + 1);
    for row in rows {
        let answered = row["ours"].as_f64().is_some_and(|ours| ours > 0.0);
        assert_eq!(answered, row["why"] == "", "{row}");
    }
}
