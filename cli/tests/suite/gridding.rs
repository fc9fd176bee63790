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

    // A page says where the file is not as it was written.
    let page = |place: &Place| {
        place.stdout("report table.yaml -o page.html");
        std::fs::read_to_string(place.path("page.html")).expect("a page")
    };
    assert!(!page(&place).contains("was edited"));
    let text = std::fs::read_to_string(place.path("table.yaml")).expect("written");
    std::fs::write(place.path("table.yaml"), text.replacen("weight: 1.0", "weight: 2.0", 1))
        .expect("written");
    assert!(page(&place).contains("was edited"));
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
