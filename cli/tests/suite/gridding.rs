//! `fulcrum plan --grid`: a table of plans.

use crate::place::Place;

const SCENARIO: &[u8] = b"machine: rtx4090-desktop
model: llama-3.1-8b
dtype: {weights: bf16, kv: bf16}
workload: {batch: 1, prompt_tokens: 256, output_tokens: 32}
objective: latency
";

#[test]
fn a_grid_is_shown_in_80_columns_and_its_file_is_its_json() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    let grid =
        "plan scenario.yaml --grid --set workload.batch=1,16 --set workload.prompt_tokens=128,512,2000000";
    let text = place.stdout(&format!("{grid} -o table.yaml"));
    assert!(text.starts_with("llama-3.1-8b on rtx4090-desktop: 4 cells"), "{text}");
    assert!(text.contains("batch 16, 2000000 prompt tokens: "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let json: serde_json::Value =
        serde_json::from_str(&place.stdout(&format!("{grid} --json"))).expect("JSON");
    let sizes: Vec<_> = json["cells"].as_array().expect("cells").iter().collect();
    let sizes = sizes.iter().map(|cell| (cell["batch"].as_u64(), cell["prompt_tokens"].as_u64()));
    let expected = [(1, 128), (1, 512), (16, 128), (16, 512)].map(|(b, p)| (Some(b), Some(p)));
    assert_eq!(sizes.collect::<Vec<_>>(), expected);
    let written = std::fs::read_to_string(place.path("table.yaml")).expect("written");
    let written = planner::PlanTable::from_yaml(&written, "table.yaml").expect("a table");
    assert_eq!(serde_json::to_value(written.sealed()).expect("JSON"), json);
}

#[test]
fn times_that_were_edited_in_a_grid_are_predicted_anew_and_the_page_says_so() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    place.stdout(
        "plan scenario.yaml --grid --set workload.batch=1,16 --set workload.prompt_tokens=128,512 -o table.yaml",
    );
    let text = std::fs::read_to_string(place.path("table.yaml")).expect("written");
    let page = |table: &str| {
        std::fs::write(place.path("edited.yaml"), table).expect("written");
        place.stdout("report edited.yaml -o page.html");
        let page = std::fs::read_to_string(place.path("page.html")).expect("a page");
        page.split("This page was made by").next().expect("a page").to_owned()
    };
    let planned = page(&text);
    assert!(!planned.contains("was edited") && planned.contains("TTFT alone"));
    // Without its digest the table is the same, so its times are those that were planned.
    let digest = text.lines().find(|line| line.starts_with("digest:")).expect("a digest");
    let unsealed = page(&text.replace(digest, ""));
    assert!(unsealed.contains("was edited") && !unsealed.contains("TTFT alone"));
    // The map of the cells has all times, those of TTFT where one points at a cell.
    let map = |page: &str| {
        let svg = page.split_once("<svg").and_then(|(_, rest)| rest.split_once("</svg>"));
        svg.expect("a map of the cells").0.to_owned()
    };
    assert!(map(&planned).contains("TTFT") && map(&planned) == map(&unsealed));
    for key in ["simulated", "own", "sharing"] {
        let line = text.lines().find(|line| line.trim_start().starts_with(key)).expect(key);
        let edited = match key {
            "sharing" => "sharing: {slowdown: 1.5, worst: 1.5, proven: 0.9}".to_owned(),
            _ => format!("    {key}: {{ttft: 1.5 us, tpot: 1.5 us}}"),
        };
        assert_eq!(page(&text.replacen(line, &edited, 1)), unsealed, "{key}");
    }
    // Another placement has other times, or does not fit: it never keeps those of the first.
    std::fs::write(place.path("edited.yaml"), text.replace("placement: 0", "placement: 99"))
        .expect("written");
    place.refused("report edited.yaml -o page.html", 2, &["edited.yaml", "placements"]);
}

#[test]
fn only_batches_and_prompts_make_a_grid() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    place.refused(
        "plan scenario.yaml --grid --set workload.output_tokens=1,2",
        2,
        &["workload.output_tokens", "workload.batch and workload.prompt_tokens"],
    );
}
