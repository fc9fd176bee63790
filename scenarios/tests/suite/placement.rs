//! The key `placement`, and llama.cpp's names of tensors.

use scenarios::{
    CpuMoe, Document, Model, OffloadOptions, PlacementChoice, Reference, ScenarioError, Sublayer,
    TensorOverride,
};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn read(placement: &str) -> Result<Option<PlacementChoice>, ScenarioError> {
    let text = format!(
        "machine: m\nmodel: opt-125m\nworkload: {{batch: 1, prompt_tokens: 8, output_tokens: 8}}\nplacement: {placement}\n"
    );
    Ok(Document::from_yaml("folder/s.yaml", &text)?.scenario()?.placement)
}

fn options(placement: &str) -> OffloadOptions {
    match read(placement).expect("a placement") {
        Some(PlacementChoice::Offload(options)) => options,
        other => panic!("{placement}: {other:?}"),
    }
}

#[test]
fn options_are_those_of_the_command_line() {
    let one = options("{gpu_layers: 20}");
    assert_eq!((one.gpu_layers, one.micro_batch, one.op_offload), (Some(20), 512, None));
    let two = options("{cpu_moe_layers: 30, op_offload: false, micro_batch: 2048}");
    assert_eq!((two.cpu_moe, two.op_offload, two.micro_batch), (CpuMoe::First(30), Some(u64::MAX), 2048));
    assert_eq!(options("{cpu_moe: all, op_offload: true}").op_offload, Some(32));
    assert_eq!(options("{cpu_moe: all, op_offload: 1024}").op_offload, Some(1024));
    let split = options("{tensor_split: [3, 0], kv_offload: false}");
    assert_eq!((split.tensor_split, split.kv_on_host), (vec![3, 0], true));
    assert!(!options("{gpu_layers: 1, kv_offload: true}").kv_on_host);
    let part =
        |pattern: &str, buffer: &str| TensorOverride { pattern: pattern.into(), buffer: buffer.into() };
    let wanted = [part(r"blk\.(0|1)\.ffn.*", "CUDA0"), part("exps", "CPU")];
    for text in [
        r#"{override_tensor: ["blk\\.(0|1)\\.ffn.*=CUDA0", "exps=CPU"]}"#,
        r"{override_tensor: 'blk\.(0|1)\.ffn.*=CUDA0,exps=CPU'}",
    ] {
        assert_eq!(options(text).override_tensor, wanted, "{text}");
    }
}

#[test]
fn rules_and_plans_stand_alone() {
    assert_eq!(read("{rule: flexgen}").expect("read"), Some(PlacementChoice::Rule("flexgen".into())));
    let plan = Reference { text: "p.yaml".into(), folder: PathBuf::from("folder") };
    assert_eq!(read("{plan: p.yaml}").expect("read"), Some(PlacementChoice::Plan(plan)));
    for (text, words) in [
        ("{rule: flexgen, gpu_layers: 3}", "leave gpu_layers out"),
        ("{micro_batch: 512}", "what goes where is missing"),
        ("{gpu_layers: -1}", "from 0 on"),
        ("{cpu_moe: 3}", "text"),
        ("{cpu_moe: some}", "`all`"),
        ("{cpu_moe: all, cpu_moe_layers: 3}", "leave one of them out"),
        ("{override_tensor: [exps]}", "pattern=buffer"),
        ("{override_tensor: 3}", "a list"),
        ("{gpu_layers: 3, op_offload: maybe}", "true, false"),
        ("{tensor_split: [0, 0]}", "not all of them 0"),
        ("{tensor_split: 3}", "one for each GPU"),
        ("{tensor_split: [1, -1]}", "whole numbers"),
        ("all-cpu", "mapping"),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn the_names_of_a_matrix_hold_its_numbers() {
    for preset in [
        "llama-3.1-8b",
        "qwen3-30b-a3b",
        "deepseek-v3",
        "gpt-oss-20b",
        "phi-3-mini-4k",
        "gemma-2-9b",
        "opt-125m",
    ] {
        let model = Model::preset(preset).expect("a preset");
        let mut all = BTreeSet::new();
        for layer in 0..model.layers {
            for &sublayer in model.kind(layer).sublayers() {
                let names = model.tensor_names(layer, sublayer);
                let numbers: u64 = names.iter().map(|tensor| tensor.numbers).sum();
                let matrix = sublayer.matrix(model.layer(layer)).map_or(0, |(rows, columns)| rows * columns);
                // A sublayer of several matrices counts whole rows.
                assert!(
                    numbers.abs_diff(matrix) <= model.hidden,
                    "{preset} {sublayer}: {numbers} of {matrix}"
                );
                for tensor in names {
                    assert!(tensor.name.starts_with(&format!("blk.{layer}.")), "{}", tensor.name);
                    all.insert((tensor.name, sublayer == Sublayer::FfnUp || sublayer == Sublayer::Router));
                }
            }
        }
        let head = &model.tensor_names(0, Sublayer::Head)[0].name;
        assert_eq!(head == "token_embd.weight", model.tied_embeddings, "{preset}");
        assert!(all.len() >= 5 * model.layers as usize, "{preset}");
    }
}
