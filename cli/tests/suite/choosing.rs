//! Number formats as a choice on the command line.

use crate::place::Place;

const SCENARIO: &[u8] = b"machine: rtx4090-desktop
model: llama-3.1-8b
dtype: {weights: [bf16, fp8, int4], kv: bf16}
workload: {batch: 1, prompt_tokens: 256, output_tokens: 32}
objective: latency
";

#[test]
fn the_plan_has_the_best_formats_and_the_table_has_the_others() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    let text = place.stdout("plan scenario.yaml -o plan.yaml");
    let row = |name: &str| text.lines().find(|line| line.contains(name)).expect(name).to_owned();
    let chosen: Vec<_> = text.lines().filter(|line| line.starts_with('*')).collect();
    assert_eq!(chosen.len(), 1, "{text}");
    assert!(!row("weights bf16").starts_with('*'), "16 GB of weights beside 24 GB are read slower: {text}");
    let plan = std::fs::read_to_string(place.path("plan.yaml")).expect("written");
    let plan = planner::Plan::from_yaml(&plan, "plan.yaml").expect("a plan");
    assert!(chosen[0].contains(&format!("weights {}", plan.formats.weights)), "{text}");
    // The plan is like any other, and the same as where its formats are the only choice.
    assert!(!place.stdout("sim plan.yaml").is_empty() && !place.stdout("sim scenario.yaml").is_empty());
    let alone = place.outputs(&format!("plan scenario.yaml --set dtype.weights={}", plan.formats.weights));
    assert_eq!((alone.0, alone.1.as_str()), (std::fs::read_to_string(place.path("plan.yaml")).unwrap(), ""));
    // The document alone goes to stdout.
    let (document, printed) = place.outputs("plan scenario.yaml");
    assert!(document.starts_with("plan:") && printed.contains("weights int4"), "{printed}");
}

#[test]
fn a_limit_on_quality_names_what_it_leaves_out() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    let (_, printed) = place.outputs("plan scenario.yaml --set quality.max_loss=1%");
    assert!(
        printed.contains("weights int4") && printed.contains("loses 3.67 %: quality.max_loss is 1.00 %"),
        "{printed}"
    );
    let none = "plan scenario.yaml --set dtype.weights=int4 --set quality.max_loss=1%";
    place.refused(none, 2, &["quality.max_loss", "weights int4", "3.67 %"]);
}

#[test]
fn classes_of_matrices_have_formats_of_their_own() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    let set = "--set dtype.weights.ffn=[bf16,int4] --set dtype.weights.default=bf16";
    let text = place.stdout(&format!("plan scenario.yaml --set dtype.weights=null {set} -o plan.yaml"));
    let row = |name: &str| text.lines().find(|line| line.contains(name)).expect(name).to_owned();
    assert!(row("ffn int4").starts_with('*'), "{text}");
    assert!(row("ffn bf16").starts_with(' '), "{text}");
    let plan = std::fs::read_to_string(place.path("plan.yaml")).expect("written");
    let plan = planner::Plan::from_yaml(&plan, "plan.yaml").expect("a plan");
    assert_eq!(plan.formats.weights.to_string(), "{default: int4, attention: bf16, ends: bf16}");
    assert!(
        place.stdout("explain plan.yaml").contains("weights {default: int4, attention: bf16, ends: bf16}")
    );
    // llama.cpp has a type for each tensor; other engines take the checkpoint's types.
    let text = place.stdout("export plan.yaml --to llama.cpp");
    assert!(
        text.contains("--tensor-type 'attn_(q|k|v)=bf16'") && text.contains("'ffn_(gate|up)=q4_0'"),
        "{text}"
    );
    assert!(place.stdout("export plan.yaml --to vllm").contains("--dtype auto"));
}

#[test]
fn options_that_need_one_format_say_how_to_name_it() {
    let place = Place::with(&[("scenario.yaml", SCENARIO)]);
    let words = ["3 combinations", "--set \"dtype={weights: bf16, kv: bf16, activations: f32}\""];
    place.refused("plan scenario.yaml --front ttft,tpot", 2, &words);
    place.refused("plan scenario.yaml --grid --set workload.batch=1,2", 2, &words);
}

#[test]
fn a_plans_tasks_are_a_graph_that_graphviz_reads() {
    let scenario = b"machine: rtx4090-desktop
model: opt-125m
workload: {batch: 1, prompt_tokens: 8, output_tokens: 4}
";
    let place = Place::with(&[("s.yaml", scenario)]);
    place.stdout("plan s.yaml -o plan.yaml");
    place.stdout("explain plan.yaml --dot decode.dot");
    place.stdout("explain plan.yaml --dot prefill.dot --step prefill");
    for name in ["decode.dot", "prefill.dot"] {
        let graph = std::fs::read_to_string(place.path(name)).expect("written");
        assert!(graph.starts_with("digraph {") && graph.trim_end().ends_with('}'), "{graph}");
        assert!(graph.contains("qkv_proj of layer 11") && graph.contains("->"), "{graph}");
    }
}
