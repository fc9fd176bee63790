//! Scenario files, settings of the command line, and grids.

use crate::AnyMachine;
use hwprofiles::{DType, Seconds};
use scenarios::{
    Document, FileCatalog, FormatLists, Formats, Grid, MachineSpec, Model, Objective, ResolvedScenario,
    ScenarioError, Setting, Slo, SweepAxis, Training, WeightChoice, WeightFormats, WeightLists, Workload,
};
use std::path::{Path, PathBuf};

const BASE: &str = "machine: this
model: fulcrum-tiny
dtype: {weights: int4}
workload:
  batch: 2
  prompt_tokens: 100
  output_tokens: 20
objective: tpot
slo: {tpot: 50 ms}
";

fn base() -> Document {
    Document::from_yaml("dir/s.yaml", BASE).unwrap()
}

fn set(settings: &[&str]) -> Result<scenarios::Scenario, ScenarioError> {
    let settings: Vec<Setting> = settings.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    base().scenario_with(&settings)
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_example_resolves() {
    for file in examples() {
        let document = Document::from_file(&file).unwrap();
        let scenarios = match document.capacity() {
            Ok(question) => question.machines.into_iter().map(|machine| machine.scenario).collect(),
            Err(ScenarioError::Missing { key, .. }) if key == "capacity" => {
                vec![document.scenario().unwrap()]
            }
            Err(error) => panic!("{error}"),
        };
        for scenario in scenarios {
            assert!(scenario.resolve(&AnyMachine).is_ok(), "{}", file.display());
        }
    }
    assert!(examples().len() >= 2);
}

#[test]
fn a_machine_to_buy_is_a_name_words_or_parts() {
    let text = "model: llama-3.1-8b
workload: {arrivals: {poisson: 1 req/s}, requests: 10, prompt_tokens: 10, output_tokens: 10}
engine: vllm
slo: {ttft: 1 s}
capacity:
  load: 1 req/s
  machines:
    - h100-sxm
    - 8x H200
    - {cpu: xeon-8480p, dram: {capacity: 1 TB}, gpu: {part: h200-sxm, count: 4}, link: pcie5-x16}
    - {cpu: xeon-8480p, dram: {capacity: 1 TB}, price: 20000 USD}
    - {name: one, machine: {cpu: xeon-8480p, dram: {capacity: 1 TB}, gpu: l4, link: pcie4-x16}}
    - 4090
";
    let question = Document::from_yaml("s.yaml", text).unwrap().capacity().unwrap();
    let names: Vec<_> = question.machines.iter().map(|machine| &*machine.name).collect();
    assert_eq!(names, ["h100-sxm", "8x H200", "4x h200-sxm", "xeon-8480p", "one", "4090"]);
    assert_eq!(question.machines[3].price.as_ref().map(|price| price.get()), Some(20_000.0));
    let gpus = |option: &scenarios::MachineOption| {
        let resolved = option.scenario.resolve(&FileCatalog::default()).unwrap();
        resolved.machines.iter().map(|machine| machine.tensor_parallel()).max()
    };
    let most: Vec<_> = question.machines.iter().map(gpus).collect();
    assert_eq!(most, [1, 8, 4, 1, 1, 1].map(Some));
    // A wrong machine is told at its own place, and a rate may have other spellings.
    let wrong = text.replace("8x H200", "8x H2000").replace("1 req/s", "50 rps");
    let question = Document::from_yaml("s.yaml", &wrong).unwrap().capacity().unwrap();
    assert_eq!(question.load.to_string(), "50 req/s");
    let error = question.machines[1].scenario.resolve(&FileCatalog::default()).unwrap_err().to_string();
    assert!(error.contains(":7: capacity.machines[1] is \"8x H2000\": "), "{error}");
    // As many requests are simulated as the answer needs.
    let without = Document::from_yaml("s.yaml", &text.replace("requests: 10, ", "")).unwrap();
    assert_eq!(without.capacity().unwrap().machines.len(), question.machines.len());
    let error = without.with_settings(&["machine=this".parse().unwrap()]).unwrap().scenario().unwrap_err();
    assert!(error.to_string().contains("workload.requests is missing"), "{error}");
    let plan = Document::from_yaml("p.yaml", "plan: 1\n").unwrap_err().to_string();
    assert!(plan.starts_with("p.yaml: a plan, and a scenario is wanted"), "{plan}");
}

#[test]
fn a_scenario_resolves_to_model_formats_workload_and_objective() {
    let resolved = base().scenario().unwrap().resolve(&AnyMachine).unwrap();
    assert_eq!(resolved.model, Model::preset("fulcrum-tiny").unwrap());
    assert_eq!(
        resolved.requirements.workload,
        Workload { batch: 2, prompt_tokens: 100, output_tokens: 20, speculation: None }
    );
    assert_eq!(resolved.requirements.objective, Objective::Tpot);
    assert_eq!(resolved.requirements.slo.tpot, Some(Seconds::new(0.05)));
    let formats =
        Formats { weights: WeightFormats::all(DType::Int4), kv: DType::Bf16, activations: DType::F32 };
    assert_eq!(resolved.formats.allowed, [formats]);
    assert_eq!(resolved.machines.len(), 1);
    match base().scenario().unwrap().machine {
        MachineSpec::Named(machine) => assert_eq!(machine.text, "this"),
        MachineSpec::Parts { .. } => panic!("a name"),
    }
}

#[test]
fn a_shipped_machine_is_found_and_this_is_the_file_given() {
    let shipped = set(&["machine=example-loopback"]).unwrap().machine.machine(None, 1).unwrap();
    assert_eq!(shipped.name, "example-loopback");
    assert!(base().scenario().unwrap().machine.machine(None, 1).is_err(), "nobody has measured this machine");
}

#[test]
fn a_machine_is_resolved_once_for_each_degree() {
    let resolve = |settings: &[&str]| set(settings)?.resolve(&FileCatalog::default());
    let degrees = |resolved: ResolvedScenario| {
        resolved.machines.iter().map(|machine| machine.tensor_parallel()).collect::<Vec<_>>()
    };
    assert_eq!(degrees(resolve(&["machine=h100-sxm"]).unwrap()), [1]);
    assert_eq!(degrees(resolve(&["machine=h100-sxm", "tensor_parallel=[4, 2]"]).unwrap()), [2, 4]);
    let error = resolve(&["machine=h100-sxm", "tensor_parallel=[2, 3]"]).unwrap_err();
    assert!(error.to_string().contains("2 does not divide the 3 GPUs"), "{error}");
    assert!(resolve(&["machine=this"]).is_err(), "nobody has measured this machine");
}

#[test]
fn a_machine_that_cannot_be_is_told_at_the_key_of_the_scenario() {
    let cases = [
        ("pcie4-x16", "machine is \"pcie4-x16\": this is a link"),
        ("i7-14700k", "machine is \"i7-14700k\": dram: "),
        ("{cpu: i7-14700k, gpu: sn40l}", "machine.gpu is \"sn40l\": it needs a `link`"),
        (
            "{cpu: xeon-8480p, gpu: l4, link: pcie4-x17}",
            "machine.link is \"pcie4-x17\": 'pcie4-x17' is neither",
        ),
        ("{cpu: i7-14700k}", "machine.dram is absent: the CPU 'i7-14700k' does not say"),
        (
            "{cpu: i7-14700k, dram: {capasity: 1 GB}}",
            "machine.dram.capasity is \"1 GB\": `capasity` is not a key here: did you mean `capacity`?",
        ),
    ];
    for (machine, words) in cases {
        let text = BASE.replacen("machine: this", &format!("machine: {machine}"), 1);
        let scenario = Document::from_yaml("s.yaml", &text).unwrap().scenario();
        let error = scenario.and_then(|it| it.resolve(&FileCatalog::default())).unwrap_err().to_string();
        assert!(error.starts_with("s.yaml:1:") && error.contains(words), "{error}");
    }
}

#[test]
fn the_identity_of_a_question_follows_everything_but_machine_and_model() {
    let identity = |settings: &[&str]| set(settings).unwrap().resolve(&AnyMachine).unwrap().identity();
    let one = identity(&[]);
    assert_eq!(one, identity(&["machine=h100-sxm"]));
    for other in
        ["workload.batch=3", "objective=latency", "slo.tpot=51 ms", "costs.lifetime=4 y", "engine=vllm"]
    {
        assert_ne!(one, identity(&[other]), "{other}");
    }
}

#[test]
fn absent_keys_have_defaults() {
    let text = "machine: this\nmodel: opt-125m\nworkload: {batch: 1, prompt_tokens: 1, output_tokens: 1}\n";
    let resolved =
        Document::from_yaml("s.yaml", text).unwrap().scenario().unwrap().resolve(&AnyMachine).unwrap();
    assert_eq!(resolved.requirements.objective, Objective::Latency);
    assert_eq!(resolved.requirements.slo, Slo::default());
    let formats =
        Formats { weights: WeightFormats::all(DType::F16), kv: DType::Bf16, activations: DType::F32 };
    assert_eq!(resolved.formats.allowed, [formats], "weights as the model has them");
}

#[test]
fn a_model_is_a_preset_a_folder_or_a_config() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../executor/tests/golden/qwen2");
    let resolve = |path: &Path| {
        let setting = Setting { key: "model".into(), values: vec![path.display().to_string().into()] };
        let workload = "workload.prompt_tokens=8".parse().unwrap();
        base().scenario_with(&[setting, workload]).unwrap().resolve(&AnyMachine)
    };
    assert_eq!(resolve(&golden).unwrap().model.name, "qwen2");
    assert_eq!(resolve(&golden.join("config.json")).unwrap().model, resolve(&golden).unwrap().model);
    assert!(
        resolve(Path::new("nowhere"))
            .unwrap_err()
            .to_string()
            .contains("model is \"nowhere\": a preset, a folder")
    );
}

#[test]
fn relative_paths_start_at_the_file_or_where_the_command_was_typed() {
    let text = BASE.replace("fulcrum-tiny", "./m").replace("this", "host.yaml");
    let document = Document::from_yaml("dir/s.yaml", &text).unwrap();
    let scenario = document.scenario().unwrap();
    assert_eq!(scenario.model.path(), Path::new("dir/./m"));
    let MachineSpec::Named(machine) = scenario.machine else { panic!("a name") };
    assert_eq!(machine.path(), Path::new("dir/host.yaml"));
    let scenario = document.scenario_with(&["model=./m".parse().unwrap()]).unwrap();
    assert_eq!(scenario.model.path(), Path::new("./m"));
}

#[test]
fn settings_override_add_and_are_typed_as_yaml() {
    let scenario =
        set(&["workload.batch=8", "slo.ttft=2 s", "dtype={kv: int8}", "dtype.activations=bf16"]).unwrap();
    assert_eq!(scenario.workload.batch().unwrap().batch, 8);
    assert_eq!(scenario.slo.ttft, Some(Seconds::new(2.0)));
    let dtype = FormatLists {
        weights: WeightLists::default(),
        kv: vec![DType::Int8],
        activations: vec![DType::Bf16],
    };
    assert_eq!(scenario.dtype, dtype);
    // Null removes a key.
    assert_eq!(set(&["slo=null"]).unwrap().slo, Slo::default());
}

#[test]
fn commas_within_quotes_and_brackets_separate_nothing() {
    let values = |text: &str| text.parse::<Setting>().unwrap().values;
    assert_eq!(values("a=1 s,2 s,x"), ["1 s", "2 s", "x"]);
    assert_eq!(values("a={b: 1, c: [2, 3]},d"), [serde_json::json!({"b": 1, "c": [2, 3]}), "d".into()]);
    assert_eq!(values("a=\"b, c\",d"), ["b, c", "d"]);
    assert_eq!(values("a=it's,b"), ["it's", "b"]);
}

#[test]
fn ranges_are_lists_and_lists_are_of_one_kind() {
    let values = |text: &str| text.parse::<Setting>().unwrap().values;
    assert_eq!(values("a=1..4"), [1, 2, 3, 4]);
    assert_eq!(values("a=0..25+10,7"), [0, 10, 20, 7]);
    assert_eq!(values("a=1..20*3"), [1, 3, 9]);
    assert_eq!(values("a=5..5"), [5]);
    assert_eq!(values("a=1..x"), ["1..x"], "a text");
    assert_eq!(values("a=b,{c: 1},null").len(), 3, "a machine is a text or a mapping");
    for wrong in ["a=4..1", "a=1..9*1", "a=1..9+0", "a=0..9*2", "a=0..1000000", "a=1,b", "a=true,1"] {
        assert!(wrong.parse::<Setting>().is_err(), "{wrong}");
    }
}

fn axes<const N: usize>(texts: [&str; N]) -> Vec<SweepAxis> {
    texts.map(|text| text.parse::<Setting>().unwrap().into()).to_vec()
}

#[test]
fn keys_that_are_zipped_change_together() {
    let settings = ["a=1,2", "b=3,4,5", "c=6,7"].map(|text| text.parse().unwrap()).to_vec();
    let all = SweepAxis::from_settings(settings, &[vec!["c".into(), "a".into()]]).unwrap();
    assert_eq!(all.iter().map(|axis| axis.keys.join("+")).collect::<Vec<_>>(), ["a+c", "b"]);
    assert_eq!(all[0].rows, [[Some(1.into()), Some(6.into())], [Some(2.into()), Some(7.into())]]);
    let table = SweepAxis::from_csv("a,b.c\n1,\n\"{x: 1, y: 2}\",z\n".as_bytes(), "t.csv").unwrap();
    assert_eq!(table.rows[0], [Some(1.into()), None]);
    assert_eq!(table.rows[1], [Some(serde_json::json!({"x": 1, "y": 2})), Some("z".into())]);
    for (text, words) in
        [("", "t.csv:1"), ("a\n", "no row"), ("a,,b\n1,2,3\n", "dotted"), ("a\n{\n", "t.csv:2")]
    {
        let error = SweepAxis::from_csv(text.as_bytes(), "t.csv").unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_last_key_of_a_grid_turns_fastest() {
    let grid = Grid::new(base(), axes(["workload.batch=1,2,4", "dtype.weights=bf16,int8"]), 6).unwrap();
    assert_eq!(grid.count(), 6);
    let points: Vec<_> = grid.points().map(Result::unwrap).collect();
    let found: Vec<_> = points
        .iter()
        .map(|p| (p.scenario.workload.batch().unwrap().batch, p.scenario.dtype.weights.rest[0]))
        .collect();
    let [bf16, int8] = [DType::Bf16, DType::Int8].map(WeightChoice::from);
    assert_eq!(found, [(1, bf16), (1, int8), (2, bf16), (2, int8), (4, bf16), (4, int8)]);
    assert_eq!(
        points[3].settings,
        [("workload.batch".into(), 2.into()), ("dtype.weights".into(), "int8".into())]
    );
    let shard: Vec<_> =
        grid.points_in(2..4).map(|point| point.unwrap().scenario.workload.batch().unwrap().batch).collect();
    assert_eq!(shard, [2, 2]);
}

#[test]
fn a_grid_without_axes_is_the_scenario_itself() {
    let grid = Grid::new(base(), vec![], 1).unwrap();
    assert_eq!(grid.count(), 1);
    assert_eq!(grid.point(0).unwrap().scenario, base().scenario().unwrap());
}

#[test]
fn a_grid_beyond_its_limit_is_refused_before_anything_is_made() {
    let axis = |key: &str| SweepAxis::from(Setting { key: key.into(), values: vec![1.into(); 100_000] });
    let many = vec![
        axis("workload.batch"),
        axis("workload.prompt_tokens"),
        axis("workload.output_tokens"),
        axis("a"),
    ];
    let error = Grid::new(base(), many, 1_000_000).unwrap_err().to_string();
    assert_eq!(
        error,
        "the sweep has 100000000000000000000 scenarios (workload.batch: 100000, workload.prompt_tokens: 100000, \
         workload.output_tokens: 100000, a: 100000): at most 1000000 are allowed, leave out some values, or \
         `fulcrum sweep --budget` draws some of them"
    );
    let twice = axes(["workload.batch=1", "workload.batch=2"]);
    assert!(Grid::new(base(), twice, 9).unwrap_err().to_string().contains("workload.batch is set twice"));
}

/// The errors of files that differ from a correct one by one replaced text.
fn errors(cases: &[(&str, &str)]) -> String {
    let one = |(from, to): &(&str, &str)| {
        let text = BASE.replacen(from, to, 1);
        assert_ne!(text, BASE, "{from}");
        let scenario = Document::from_yaml("s.yaml", &text).and_then(|document| document.scenario());
        let error = scenario.and_then(|scenario| scenario.resolve(&AnyMachine)).expect_err(to);
        format!("{to}\n  {error}\n")
    };
    cases.iter().map(one).collect()
}

#[test]
fn errors_of_a_second_level_name_line_key_and_value() {
    let cases = [
        "engine: {prefix_cache: cxl}",
        "engine: {prefix_cache: {to: cxl}}",
        "engine: {prefix_cache: {to: cxl, space: 256}}",
        "engine: {prefix_cache: {swap_to: cxl, space: 256 GB}}",
        "engine: {prefix_caching: false, prefix_cache: {space: 256 GB}}",
    ];
    insta::assert_snapshot!(errors(&cases.map(|engine| ("slo: {tpot: 50 ms}", engine))));
}

#[test]
fn errors_of_a_file_name_line_key_and_value() {
    let cases = [
        ("this", "[this]"),
        ("machine: this\n", ""),
        ("this", "{cpu: this, loopback: {memory: 200, bandwidth: 4 GB/s}}"),
        ("this", "{cpu: this, gpus: 2}"),
        ("this", "{gpu: h100-sxm}"),
        ("fulcrum-tiny", "llama-9"),
        ("fulcrum-tiny", "7"),
        ("model: fulcrum-tiny", "modle: fulcrum-tiny"),
        ("{weights: int4}", "int3"),
        ("int4", "int3"),
        ("weights: int4", "activations: int4"),
        ("weights: int4", "weigths: int4"),
        ("batch: 2", "batch: 0"),
        ("batch: 2", "batch: -2"),
        ("batch: 2", "batch: 1.5"),
        ("batch: 2", "batch: two"),
        ("batch: 2", "batch: 123456789012345678901234567890"),
        ("batch: 2", "batch: .nan"),
        ("batch: 2", "batch: 2\n  batch: 3"),
        ("  batch: 2\n", ""),
        ("batch: 2", "rate: 12 req/s"),
        ("batch: 2", "requests: 100"),
        ("batch: 2", "concurrency: 0"),
        ("batch: 2", "concurrency: 2\n  speedup: 2"),
        ("batch: 2", "concurrency: 2\n  trace: requests.csv"),
        ("batch: 2", "batch: 2\n  concurrency: 2"),
        ("batch: 2", "arrivals: {poisson: often}\n  requests: 10"),
        ("batch: 2", "arrivals: {poisson: 50 rpm}\n  requests: 10"),
        ("batch: 2", "arrivals: {poisson: 5 req/s}"),
        ("batch: 2", "batch_size: 2"),
        ("batch: 2", "arrivals: {gamma: 5 req/s}\n  requests: 10"),
        ("batch: 2", "trace: requests.csv"),
        ("batch: 2\n  prompt_tokens: 100", "concurrency: 2\n  prompt_tokens: {from: 20, to: 10}"),
        ("prompt_tokens: 100", "prompt_tokens: 500"),
        ("tpot\nslo", "speed\nslo"),
        ("tpot\nslo", "tpot\ncosts: {lifetime: 4}\nslo"),
        ("tpot\nslo", "tpot\ncosts: {per_kwh: 0 USD}\nslo"),
        ("50 ms", "50"),
        ("50 ms", "50 m"),
        ("50 ms", "0 s"),
        ("{tpot: 50 ms}", "{tpot: {p99: 50 ms}}"),
        ("{tpot: 50 ms}", "{tpot: 50 ms, attainment: 0.99}"),
        ("{tpot: 50 ms}", "{tpott: 50 ms}"),
        ("slo: {tpot: 50 ms}", "engine: {name: vllm, max_num_seq: 3}"),
        ("slo: {tpot: 50 ms}", "engine: {gpu_memory_utilization: 1.5}"),
        ("slo: {tpot: 50 ms}", "engine: {max_num_seqs: 8, max_num_batched_tokens: 4}"),
        ("slo: {tpot: 50 ms}", "engine: turbo"),
        ("slo: {tpot: 50 ms}", "engine: {preemption: hope}"),
        ("slo: {tpot: 50 ms}", "engine: {preemption: swap}"),
        ("slo: {tpot: 50 ms}", "engine: {preemption: swap, swap_space: 16}"),
        ("slo: {tpot: 50 ms}", "engine: {swap_to: dram}"),
        ("slo: {tpot: 50 ms}", "engine: {scheduler: random}"),
        ("slo: {tpot: 50 ms}", "engine: {scheduler: slo}"),
        ("slo: {tpot: 50 ms}", "slo: {tpot: 50 ms}\nengine: {scheduler: slo}"),
        (
            "slo: {tpot: 50 ms}",
            "slo: {tpot: 50 ms, ttft: 1 s}\nengine: {scheduler: slo, prefill_first: true}",
        ),
        ("slo: {tpot: 50 ms}", "tensor_parallel: 0"),
        ("slo: {tpot: 50 ms}", "tensor_parallel: [1, 2, 2]"),
        ("slo: {tpot: 50 ms}", "slo: {tpot: 50 ms"),
        (BASE, ""),
        (BASE, "- a\n- b\n"),
    ];
    insta::assert_snapshot!(errors(&cases));
}

#[test]
fn errors_of_a_setting_quote_it() {
    let cases: [&[&str]; 15] = [
        &["workload.batch"],
        &["batch=4"],
        &["dtype=fp9"],
        &["dtype.weights=4bit"],
        &["=3"],
        &["workload..batch=3"],
        &["workload.batch="],
        &["workload.batch=1,,2"],
        &["workload.batch=[1"],
        &["workload.batch=1,2"],
        &["workload.batchsize=3"],
        &["wrokload.batch=3"],
        &["objective.word=tpot"],
        &["workload.batch=-1"],
        &["workload={batch: 1}", "workload.prompt_tokens=x"],
    ];
    let table: String =
        cases.iter().map(|case| format!("{case:?}\n  {}\n", set(case).expect_err(case[0]))).collect();
    insta::assert_snapshot!(table);
}

#[test]
fn a_training_step_may_be_as_long_as_the_model_has_positions() {
    let resolve = |training: &str| {
        let text = format!("machine: this\nmodel: opt-125m\nworkload: {{training: {training}}}\n");
        Document::from_yaml("s.yaml", &text).and_then(|document| document.scenario()?.resolve(&AnyMachine))
    };
    let whole = resolve("{sequences: 8, tokens: 2048}").unwrap();
    assert_eq!(whole.training, Some(Training { sequences: 8, tokens: 2048 }));
    assert_eq!((whole.requirements.workload.batch, whole.requirements.workload.context()), (8, 2048));
    assert!(resolve("{sequences: 8, tokens: 1}").is_ok());
    let long = resolve("{sequences: 8, tokens: 2049}").unwrap_err().to_string();
    assert!(long.contains("s.yaml:3") && long.contains("workload.training.tokens is 2049"), "{long}");
    assert!(long.contains("opt-125m has 2048 positions"), "{long}");
    let missing = resolve("{sequences: 8}").unwrap_err().to_string();
    assert!(missing.contains("workload.training.tokens") && missing.contains("from 1 to"), "{missing}");
}

#[test]
fn a_load_of_which_no_request_fits_into_the_context_is_refused() {
    let resolved = |prompt: &str| {
        let text = format!(
            "machine: h100-sxm\nmodel: llama-3.1-8b\nworkload: {{arrivals: {{poisson: 1 req/s}}, requests: 5, \
             prompt_tokens: {prompt}, output_tokens: 10}}\n"
        );
        let scenario = Document::from_yaml("s.yaml", &text).and_then(|document| document.scenario_with(&[]));
        scenario.unwrap().resolve(&FileCatalog::default()).map(|_| ()).map_err(|error| error.to_string())
    };
    let error = resolved("131070").unwrap_err();
    assert!(error.starts_with("s.yaml:3:") && error.contains("has 131072 positions"), "{error}");
    assert_eq!(resolved("131062"), Ok(()));
    assert_eq!(resolved("{from: 100, to: 200000}"), Ok(()), "some fit");
}
