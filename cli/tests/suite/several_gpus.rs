//! Several GPUs on the command line: how they are grouped is tried and printed.

use crate::place::Place;

const MACHINE: &str = "name: four
parts:
  cpu: xeon-8168
  dram: {capacity: {value: 512 GB, source: {estimated: {reason: \"made up\"}}}}
  gpu: {part: a100-sxm, count: 4, link: nvlink3}
  link: pcie4-x16
";
const SCENARIO: &str = "machine: four.yaml
model: llama-3.1-70b
dtype: {activations: bf16}
workload: {batch: 4, prompt_tokens: 256, output_tokens: 32}
objective: tpot
";

fn place() -> Place {
    Place::with(&[("four.yaml", MACHINE.as_bytes()), ("scenario.yaml", SCENARIO.as_bytes())])
}

/// The lines of the table of what was tried, without their times.
fn tried(text: &str) -> Vec<String> {
    let names = text.lines().skip_while(|line| !line.starts_with("  tried"));
    names.map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn every_way_to_group_them_is_planned_and_the_best_is_marked() {
    let place = place();
    let text = place.stdout("plan scenario.yaml -o plan.yaml");
    let lines = tried(&text);
    let [title, one, two, four, written] = &lines[..] else { panic!("{text}") };
    assert_eq!([title, written], ["tried TTFT TPOT", "written to plan.yaml"]);
    assert!(one.starts_with("tensor_parallel 1") && two.starts_with("tensor_parallel 2"), "{text}");
    assert_eq!(four, "* tensor_parallel 4", "{text}");
    // The plan records the grouping, so that other commands find the same machine.
    let plan = std::fs::read_to_string(place.path("plan.yaml")).expect("written");
    assert!(plan.contains("tensor_parallel: 4") && plan.contains("hbm:"), "{plan}");
    for command in ["sim plan.yaml", "explain plan.yaml", "export plan.yaml --to vllm"] {
        assert!(!place.stdout(command).is_empty(), "{command}");
    }
    assert!(place.stdout("export plan.yaml --to vllm").contains("--tensor-parallel-size 4"));
    place.refused("export plan.yaml --to accelerate", 2, &["4 GPUs", "tensor_parallel: 1"]);
    place.refused("run plan.yaml --model-dir .", 2, &[]);
}

#[test]
fn one_degree_is_planned_alone_and_layers_go_over_the_devices_that_are_left() {
    let place = place();
    let text = place.stdout("plan scenario.yaml --set tensor_parallel=2 -o plan.yaml");
    assert_eq!(tried(&text), Vec::<String>::new(), "nothing to choose: {text}");
    let plan = std::fs::read_to_string(place.path("plan.yaml")).expect("written");
    assert!(plan.contains("hbm0:") && plan.contains("hbm1:") && !plan.contains("hbm2:"), "{plan}");
    let text = place.stdout("plan scenario.yaml --set tensor_parallel=1 -o plan.yaml");
    assert_eq!(tried(&text), Vec::<String>::new());
    let plan = std::fs::read_to_string(place.path("plan.yaml")).expect("written");
    assert!(plan.contains("gpu0") && plan.contains("gpu1") && plan.contains("hbm3:"), "{plan}");
    assert!(!plan.contains("  tensor_parallel:"), "each GPU by itself is not said: {plan}");
}

#[test]
fn impossible_groupings_are_refused_by_name() {
    let place = place();
    place.refused(
        "plan scenario.yaml --set tensor_parallel=3",
        2,
        &["tensor_parallel: 3 does not divide the 4 GPUs of 'four': use 1 or 2 or 4"],
    );
    let one = "plan scenario.yaml --set machine=spr-h100 --set tensor_parallel=2";
    place.refused(one, 2, &["2 does not divide the one GPU of 'spr-h100': use 1"]);
    place.refused("plan scenario.yaml --front ttft,tpot", 2, &["1, 2, 4", "--set tensor_parallel=4"]);
    let grid = "plan scenario.yaml --grid --set workload.batch=1,2 --set tensor_parallel=2";
    place.refused(grid, 2, &["2", "tensor_parallel: 4"]);
    for (from, to, words) in [
        ("count: 4", "count: 0", "must be above zero"),
        ("count: 4", "count: 1000", "gpu.count: 1000 are more than the 64"),
        ("count: 4", "count: 1", "gpu.link: 'nvlink3' joins GPUs"),
        ("link: nvlink3", "link: nvlink33", "'nvlink33' is neither a file nor a shipped profile"),
        ("link: nvlink3", "lnik: nvlink3", "lnik"),
    ] {
        let machine = MACHINE.replace(from, to);
        assert_ne!(machine, MACHINE);
        let files = [("four.yaml", machine.as_bytes()), ("scenario.yaml", SCENARIO.as_bytes())];
        Place::with(&files).refused("plan scenario.yaml", 2, &[words]);
    }
}

#[test]
fn without_a_link_between_them_gpus_reach_each_other_over_the_host() {
    let machine = MACHINE.replace(", link: nvlink3}", "}");
    let files = [("four.yaml", machine.as_bytes()), ("scenario.yaml", SCENARIO.as_bytes())];
    let text = Place::with(&files).stdout("machine show four.yaml");
    assert!(text.contains("gpu0->gpu1") && text.contains("hbm3"), "{text}");
}

#[test]
fn stages_and_whole_experts_are_tried_recorded_and_exported() {
    let place = place();
    let several = "--set tensor_parallel=[2,4] --set pipeline_parallel=[1,2] --set objective=throughput";
    let text = place.stdout(&format!("plan scenario.yaml {several} -o plan.yaml"));
    let lines = tried(&text);
    // Of four GPUs: two groups of two, one of four, and one of two stages of two.
    assert_eq!(lines.len(), 5, "{text}");
    assert!(text.contains("pipeline_parallel 2"), "{text}");
    let one = "--set tensor_parallel=2 --set pipeline_parallel=2";
    place.stdout(&format!("plan scenario.yaml {one} -o stages.yaml"));
    let plan = std::fs::read_to_string(place.path("stages.yaml")).expect("written");
    assert!(plan.contains("tensor_parallel: 2") && plan.contains("pipeline_parallel: 2"), "{plan}");
    let words = "--tensor-parallel-size 2 --pipeline-parallel-size 2";
    assert!(place.stdout("export stages.yaml --to vllm").contains(words));
    assert_eq!(place.stdout("sim stages.yaml"), place.stdout("sim stages.yaml"));
    // Experts are whole, and what is chosen of both ways is no worse than either.
    let model = "--set model=qwen3-30b-a3b --set tensor_parallel=4";
    let tpot = |experts: &str| -> f64 {
        let command = format!("--json sim scenario.yaml {model} --set expert_parallel={experts}");
        let rates: serde_json::Value = serde_json::from_str(&place.stdout(&command)).expect("JSON");
        rates["tpot_s"].as_f64().unwrap_or_else(|| panic!("{rates}"))
    };
    let [either, divided, whole] = ["[false,true]", "false", "true"].map(tpot);
    assert!((either - divided.min(whole)).abs() < 1e-9, "{either}: {divided} {whole}");
    assert!(divided < whole, "the busiest rank waits for more than its share: {divided} {whole}");
    place.stdout(&format!("plan scenario.yaml {model} --set expert_parallel=true -o plan.yaml"));
    assert!(place.stdout("export plan.yaml --to vllm").contains("--enable-expert-parallel"));
    place.refused(
        "plan scenario.yaml --set expert_parallel=true --set tensor_parallel=4",
        2,
        &["expert_parallel", "dense"],
    );
    place.refused("plan scenario.yaml --set expert_parallel=often", 2, &["true, false or [false, true]"]);
}

#[test]
fn a_pipeline_serves_about_as_much_as_its_gpus_and_answers_no_sooner_than_one() {
    let place = place();
    let serve = |users: u64, settings: &str| -> (f64, f64) {
        let load = format!(
            "machine: four.yaml\nmodel: llama-3.1-8b\nengine: vllm\nworkload: {{concurrency: {users}, requests: {}, \
             prompt_tokens: 256, output_tokens: 32}}\n{settings}\n",
            20 * users
        );
        std::fs::write(place.path("day.yaml"), load).expect("written");
        let day: serde_json::Value =
            serde_json::from_str(&place.stdout("--json sim day.yaml")).expect("JSON");
        let number = |value: &serde_json::Value| value.as_f64().expect("a number");
        (number(&day["tpot_s"]["mean"]), number(&day["output_tokens_per_s"]))
    };
    let (one, stages) = ("tensor_parallel: 1", "tensor_parallel: 1\npipeline_parallel: 4");
    let (alone, piped) = (serve(1, one), serve(1, stages));
    assert!(alone.0 < piped.0 && piped.0 < 1.05 * alone.0, "{alone:?} {piped:?}");
    let (alone, piped) = (serve(8, one), serve(32, stages));
    assert!((0.9..=1.0).contains(&(piped.1 / (4.0 * alone.1))), "{alone:?} {piped:?}");
}

#[test]
fn engines_share_experts_and_have_sequences_of_their_own() {
    let place = place();
    let load = "machine: four.yaml\nmodel: qwen3-30b-a3b\nengine: vllm\nworkload: {concurrency: 64, requests: 256, \
                prompt_tokens: 256, output_tokens: 32}\ntensor_parallel: 1\n";
    std::fs::write(place.path("day.yaml"), load).expect("written");
    let shared = "--set data_parallel=4 --set expert_parallel=true";
    let text = place.stdout(&format!("sim day.yaml {shared}"));
    assert!(text.contains("256 requests answered"), "{text}");
    let plan =
        format!("plan scenario.yaml --set model=qwen3-30b-a3b --set tensor_parallel=1 {shared} -o plan.yaml");
    place.stdout(&plan);
    let written = std::fs::read_to_string(place.path("plan.yaml")).expect("written");
    assert!(written.contains("data_parallel: 4"), "{written}");
    let words = "--tensor-parallel-size 1 --enable-expert-parallel --data-parallel-size 4";
    assert!(place.stdout("export plan.yaml --to vllm").contains(words));
    assert!(
        place.stdout("export plan.yaml --to sglang").contains("--data-parallel-size 4 --enable-dp-attention")
    );
    place.refused("sim day.yaml --set data_parallel=4", 2, &["data_parallel", "expert_parallel: true"]);
    place.refused(
        "sim day.yaml --set model=llama-3.1-8b --set data_parallel=4 --set expert_parallel=true",
        2,
        &["dense"],
    );
}

#[test]
fn prompts_and_answers_on_different_engines() {
    let place = place();
    let serve = |load: &str| -> serde_json::Value {
        let scenario = format!(
            "machine: h100-sxm\nmodel: llama-3.1-8b\nengine: vllm\nslo: {{ttft: 1 s, tpot: 50 ms}}\n\
             workload: {{arrivals: {{poisson: 8 req/s}}, requests: 200, prompt_tokens: 2000, output_tokens: 40, \
             replicas: 4{load}}}\n"
        );
        std::fs::write(place.path("day.yaml"), scenario).expect("written");
        serde_json::from_str(&place.stdout("--json sim day.yaml")).expect("JSON")
    };
    let number = |day: &serde_json::Value, key: &str| day[key]["mean"].as_f64().expect("a number");
    let together = serve("");
    let apart = serve(", prefill_engines: 1, kv_link: 50 GB/s");
    let slowly = serve(", prefill_engines: 1, kv_link: 1 GB/s");
    for day in [&together, &apart, &slowly] {
        assert_eq!(day["requests"]["completed"], 200, "{day}");
        assert_eq!(day["output_tokens_per_s"].as_f64().map(|rate| rate > 0.0), Some(true));
    }
    // No prompt enters beside decodes, so the slowest of them are sooner. A slower link delays what
    // comes behind the first token, and nothing else: 2,000 tokens of 131,072 bytes.
    let p99 = |day: &serde_json::Value| day["tpot_s"]["p99"].as_f64().expect("a number");
    assert!(p99(&apart) < p99(&together), "{} {}", p99(&apart), p99(&together));
    assert_eq!(apart["ttft_s"], slowly["ttft_s"]);
    let later = number(&slowly, "e2el_s") - number(&apart, "e2el_s");
    let bytes = 2000.0 * 131_072.0;
    let wanted = bytes / 1e9 - bytes / 50e9;
    assert!((later / wanted - 1.0).abs() < 0.1, "{later} and {wanted}");
    for (load, words) in [
        (", prefill_engines: 4, kv_link: 1 GB/s", ["workload.prefill_engines", "leave none"]),
        (", prefill_engines: 1", ["workload.kv_link", "50 GB/s"]),
    ] {
        let text = std::fs::read_to_string(place.path("day.yaml")).expect("read");
        let text = text.replace(", prefill_engines: 1, kv_link: 1 GB/s", load);
        std::fs::write(place.path("wrong.yaml"), text).expect("written");
        place.refused("sim wrong.yaml", 2, &words);
    }
}

/// A split by memories puts too much on a card whose layers keep their experts; the error says one
/// that fits.
#[test]
fn options_that_do_not_fit_by_memories_are_told_a_split_that_does() {
    let scenario = "machine: RTX 4090, RTX 3060 pcie4-x4, i7-13700K, 96 GB
model: gpt-oss-120b
engine: llama.cpp
workload: {batch: 1, prompt_tokens: 2048, output_tokens: 64}
placement: {gpu_layers: 99, cpu_moe_layers: 22}
";
    let place = Place::with(&[("scenario.yaml", scenario.as_bytes())]);
    let told = place.refused("sim scenario.yaml", 3, &["it fits with tensor_split: ["]);
    let split = told.split("tensor_split: ").nth(1).and_then(|rest| rest.split(']').next()).expect("a split");
    let forced = format!("--set placement.tensor_split={}]", split.replace(' ', ""));
    assert!(place.stdout(&format!("sim scenario.yaml {forced}")).contains("TPOT"));
    // The formats are those of its only GGUF file.
    place.stdout(&format!("plan scenario.yaml {forced} -o plan.yaml"));
    let plan = std::fs::read_to_string(place.path("plan.yaml")).expect("written");
    assert!(plan.contains("mxfp4_moe"), "{plan}");
}
