//! Models that contradict themselves, lack a part or are in a format that is not read: one clear
//! error, exit status 2.

use crate::gguf::gguf;
use crate::place::Place;
use crate::tensors::{Tensors, read_tensors, write_tensors};
use serde_json::{Value, json};
use std::fs;

const SCENARIO: &str = "\
machine: example-loopback
model: model
workload: {batch: 1, prompt_tokens: 8, output_tokens: 4}
dtype: {weights: bf16}
";

/// A folder with a scenario, a model folder and a plan for it.
fn planned() -> Place {
    let place = Place::with(&[("scenario.yaml", SCENARIO.as_bytes())]);
    place.stdout("model init fulcrum-tiny -o model");
    place.stdout("plan scenario.yaml -o plan.yaml");
    place
}

/// Writes `model/config.json` with other values for some keys; null removes a key.
fn edit_config(place: &Place, before: &Value, edit: &Value) {
    let mut config = before.clone();
    for (key, value) in edit.as_object().expect("a mapping") {
        match value {
            Value::Null => config.as_object_mut().expect("a mapping").remove(key),
            _ => config.as_object_mut().expect("a mapping").insert(key.clone(), value.clone()),
        };
    }
    fs::write(place.path("model/config.json"), config.to_string()).expect("written");
}

fn config(place: &Place) -> Value {
    serde_json::from_slice(&fs::read(place.path("model/config.json")).expect("a file")).expect("JSON")
}

#[test]
fn rotations_that_are_unknown_and_keys_that_contradict_each_other_are_refused() {
    let place = planned();
    let before = config(&place);
    let yarn = json!({"rope_type": "yarn", "factor": 2.0});
    for (edit, words) in [
        (
            json!({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}),
            ["rope_scaling.rope_type", "spiral", "yarn"],
        ),
        (json!({"rope_parameters": {"type": "spiral"}}), ["rope_parameters.type", "spiral", "llama3"]),
        (
            json!({"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2.0}}),
            ["rope_scaling.rope_type", "linear", "type says yarn"],
        ),
        (
            json!({"rope_scaling": yarn, "rope_parameters": {"rope_type": "linear", "factor": 2.0}}),
            ["rope_scaling", "yarn", "rope_parameters says linear"],
        ),
        (
            json!({"dtype": "float16", "torch_dtype": "bfloat16"}),
            ["dtype", "float16", "torch_dtype says bf16"],
        ),
        (json!({"num_key_value_heads": 3}), ["num_key_value_heads", "3", "num_attention_heads, which is 4"]),
        (
            json!({"head_dim": null, "num_attention_heads": 6, "num_key_value_heads": 2}),
            ["num_attention_heads", "6", "hidden_size, which is 64"],
        ),
        (
            json!({"layer_types": ["full_attention"], "model_type": "qwen3"}),
            ["layer_types", "full_attention", "3 layers"],
        ),
        (
            json!({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 8, "moe_intermediate_size": 32}),
            ["num_experts_per_tok", "8", "4"],
        ),
    ] {
        edit_config(&place, &before, &edit);
        for command in ["model show model", "plan scenario.yaml", "run plan.yaml --model-dir model"] {
            place.refused(command, 2, &[&["config.json"], &words[..]].concat());
        }
    }
    // Both keys may say the same, as files do that transformers 5 has rewritten.
    edit_config(
        &place,
        &before,
        &json!({"rope_scaling": {"rope_type": "default", "type": "mrope"}, "dtype": "bfloat16"}),
    );
    place.stdout("run plan.yaml --model-dir model");
}

#[test]
fn a_multimodal_model_without_its_language_model_is_refused() {
    let place = planned();
    let before = config(&place);
    let without = json!({"hidden_size": null, "model_type": "gemma3"});
    let unknown = json!({"hidden_size": null, "model_type": "new_vl", "architectures": ["NewForConditionalGeneration"]});
    let text = json!({"hidden_size": null, "model_type": "kimi_k25", "text_config": "elsewhere"});
    for edit in [without, unknown, text] {
        edit_config(&place, &before, &edit);
        for command in ["model show model", "plan scenario.yaml", "run plan.yaml --model-dir model"] {
            place.refused(command, 2, &["config.json", "text_config", "a mapping", "is wanted"]);
        }
    }
}

#[test]
fn a_type_that_ggml_has_not_or_no_kernel_reads_is_refused() {
    const SCENARIO: &[u8] = b"machine: example-loopback\nmodel: tiny.gguf\nworkload: {batch: 2, prompt_tokens: 8, output_tokens: 4}\n";
    let place = Place::with(&[("s.yaml", SCENARIO), ("tiny.gguf", &gguf(0))]);
    place.stdout("plan s.yaml -o plan.yaml");
    fs::write(place.path("tiny.gguf"), gguf(99)).expect("written");
    for command in ["model show tiny.gguf", "plan s.yaml", "run plan.yaml --model-dir tiny.gguf"] {
        place.refused(command, 2, &["tiny.gguf", "tensor 'blk.0.attn_k.weight'", "ggml's type 99"]);
    }
    // Double precision is one of ggml's types, and no model of this kind has it.
    fs::write(place.path("tiny.gguf"), gguf(28)).expect("written");
    place.refused("run plan.yaml --model-dir tiny.gguf", 2, &["tiny.gguf", "28"]);
}

/// Replaces each matrix of a layer by `numbers` for its name and shape.
fn quantise(all: &Tensors, numbers: impl Fn(&str, [u64; 2]) -> Tensors) -> Tensors {
    let each = all.iter().flat_map(|tensor| match (&tensor.0, &tensor.2[..]) {
        (name, &[rows, columns]) if name.contains("_proj.weight") => numbers(name, [rows, columns]),
        _ => vec![tensor.clone()],
    });
    each.collect()
}

#[test]
fn quantised_weights_without_their_scales_are_refused() {
    let place = planned();
    let (before, tensors) = (config(&place), read_tensors(&place.path("model")));
    let nvfp4 = json!({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}});
    let fp8 = json!({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}});
    let matrix = json!({"quantization_config": {"quant_method": "fp8"}});
    let one = || 1_f32.to_le_bytes().to_vec();
    let numbers = |name: &str, [rows, columns]: [u64; 2]| {
        (name.to_owned(), "U8".to_owned(), vec![rows, columns / 2], vec![0x22; (rows * columns / 2) as usize])
    };
    let scales = |name: &str, [rows, columns]: [u64; 2]| {
        let count = rows * columns / 16;
        (format!("{name}_scale"), "F8_E4M3".to_owned(), vec![rows, columns / 16], vec![0x38; count as usize])
    };
    let eight = |name: &str, [rows, columns]: [u64; 2]| {
        (name.to_owned(), "F8_E4M3".to_owned(), vec![rows, columns], vec![0x30; (rows * columns) as usize])
    };
    let q = "model.layers.0.self_attn.q_proj.weight";
    let plan_for = |config: &Value| {
        edit_config(&place, &before, config);
        place.stdout("plan scenario.yaml -o plan.yaml");
    };
    let refused = |config: &Value, ending: &str, numbers: &dyn Fn(&str, [u64; 2]) -> Tensors| {
        plan_for(config);
        write_tensors(&place.path("model"), &quantise(&tensors, numbers));
        let missing = format!("tensor '{q}{ending}' is missing");
        place.refused("run plan.yaml --model-dir model", 2, &["model.safetensors", &missing]);
    };
    refused(&nvfp4, "_scale", &|name, size| vec![numbers(name, size)]);
    refused(&nvfp4, "_scale_2", &|name, size| vec![numbers(name, size), scales(name, size)]);
    refused(&fp8, "_scale_inv", &|name, size| vec![eight(name, size)]);
    // With all of their scales they run.
    let all = |value: f32| {
        let bytes = value.to_le_bytes().to_vec();
        let whole = |name: &str| (format!("{name}_scale_2"), "F32".to_owned(), vec![], bytes.clone());
        quantise(&tensors, |name, size| vec![numbers(name, size), scales(name, size), whole(name)])
    };
    plan_for(&nvfp4);
    write_tensors(&place.path("model"), &all(1.0));
    place.stdout("run plan.yaml --model-dir model");
    // Without a word about formats, the plan has the folder's.
    let scenario = SCENARIO.replace("dtype: {weights: bf16}\n", "");
    fs::write(place.path("published.yaml"), scenario).expect("written");
    place.stdout("plan published.yaml -o plan.yaml");
    let plan = fs::read_to_string(place.path("plan.yaml")).expect("a plan");
    assert!(plan.contains("nvfp4"), "{plan}");
    place.stdout("run plan.yaml --model-dir model");
    for (value, shown) in [(0.0, "0"), (f32::NAN, "NaN")] {
        write_tensors(&place.path("model"), &all(value));
        let wrong = format!("_scale_2' is {shown}: ");
        place.refused("run plan.yaml --model-dir model", 2, &["model.safetensors", &wrong]);
    }
    for (config, ending, side) in [(&fp8, "_scale_inv", 128), (&matrix, "_scale", u64::MAX)] {
        let scales = |name: &str, [rows, columns]: [u64; 2]| {
            let shape = vec![rows.div_ceil(side), columns.div_ceil(side)];
            let count = shape.iter().product::<u64>() as usize;
            (format!("{name}{ending}"), "F32".to_owned(), shape, one().repeat(count))
        };
        plan_for(config);
        write_tensors(
            &place.path("model"),
            &quantise(&tensors, |name, size| vec![eight(name, size), scales(name, size)]),
        );
        place.stdout("run plan.yaml --model-dir model");
    }
    // Scales of another shape are no scales of these numbers.
    let wide = |name: &str| (format!("{name}_scale_inv"), "F32".to_owned(), vec![5, 5], one().repeat(25));
    plan_for(&fp8);
    write_tensors(
        &place.path("model"),
        &quantise(&tensors, |name, size| vec![eight(name, size), wide(name)]),
    );
    place.refused("run plan.yaml --model-dir model", 2, &[&format!("{q}_scale_inv"), "[5, 5]", "[1, 1]"]);
}
