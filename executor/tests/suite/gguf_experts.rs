//! A GGUF file of gpt-oss with its experts in blocks gives the logits of the folder.

use crate::gguf_families::{assert_same, run};
use crate::gguf_writer::GgufFile;
use crate::golden_files::{Tensors, draw};
use crate::mxfp4;
use crate::rig;
use executor::Checkpoint;
use hwprofiles::DType;
use scenarios::{Formats, WeightClass, WeightFormats};
use serde_json::Value;
use std::path::Path;

/// The names of a layer's tensors, in folders and in files.
const LAYER: [(&str, &str); 13] = [
    ("input_layernorm.weight", "attn_norm.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.q_proj.bias", "attn_q.bias"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.k_proj.bias", "attn_k.bias"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.v_proj.bias", "attn_v.bias"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("self_attn.o_proj.bias", "attn_output.bias"),
    ("self_attn.sinks", "attn_sinks.weight"),
    ("post_attention_layernorm.weight", "post_attention_norm.weight"),
    ("mlp.router.weight", "ffn_gate_inp.weight"),
    ("mlp.router.bias", "ffn_gate_inp.bias"),
];
const ENDS: [(&str, &str); 3] = [
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

/// Writes the sizes.
fn write_sizes(file: &mut GgufFile, config: &Value) {
    for (key, name) in [
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("expert_feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("expert_count", "num_local_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("vocab_size", "vocab_size"),
    ] {
        file.number(key, config[name].as_u64().expect("a size"));
    }
    let real = |value: &Value| value.as_f64().expect("a number") as f32;
    file.real("attention.layer_norm_rms_epsilon", real(&config["rms_norm_eps"]));
    file.real("rope.freq_base", real(&config["rope_parameters"]["rope_theta"]));
}

/// Writes the tensors that `names` of a layer has, and those outside the layers.
fn write_tensors(file: &mut GgufFile, tensors: &Tensors, names: &[(&str, &str)], layers: u64) {
    let mut write = |theirs: &str, ours: &str| {
        let (shape, values) = &tensors[theirs];
        file.values(ours, shape, values);
    };
    ENDS.into_iter().for_each(|(theirs, ours)| write(theirs, ours));
    for layer in 0..layers {
        for (theirs, ours) in names {
            write(&format!("model.layers.{layer}.{theirs}"), &format!("blk.{layer}.{ours}"));
        }
    }
}

/// Every `step`-th value from `first` on of each run of `columns` values.
fn alternate(values: &[f32], columns: usize, first: usize, step: usize) -> Vec<f32> {
    values.chunks(columns).flat_map(|row| row.iter().skip(first).step_by(step)).copied().collect()
}

/// Each of `count` matrices of `rows` rows with rows for columns.
fn transposed(values: &[f32], count: usize, rows: usize) -> Vec<f32> {
    let size = values.len() / count;
    let turned = |matrix: &[f32]| -> Vec<f32> {
        let columns = size / rows;
        (0..columns)
            .flat_map(|column| (0..rows).map(move |row| row * columns + column))
            .map(|at| matrix[at])
            .collect()
    };
    values.chunks(size).flat_map(turned).collect()
}

fn config_of(name: &str) -> Value {
    let text = std::fs::read(rig::folder(name).join("config.json")).expect("a golden file");
    serde_json::from_slice(&text).expect("JSON")
}

/// The golden model `gpt_oss` as a file whose gates and ups are MXFP4 blocks of [`mxfp4`]'s
/// pattern.
fn write_gpt_oss(path: &Path) {
    let (config, tensors) = (config_of("gpt_oss"), draw("gpt_oss"));
    let mut file = GgufFile::new("gpt-oss");
    write_sizes(&mut file, &config);
    let rope = &config["rope_parameters"];
    file.word("rope.scaling.type", "yarn");
    file.real("rope.scaling.factor", rope["factor"].as_f64().expect("a factor") as f32);
    let original = rope["original_max_position_embeddings"].as_u64();
    file.number("rope.scaling.original_context_length", original.expect("a length"));
    file.number("rope.dimension_count", config["head_dim"].as_u64().expect("a width"));
    file.number("attention.sliding_window", config["sliding_window"].as_u64().expect("a window"));
    let layers = config["num_hidden_layers"].as_u64().expect("a number");
    write_tensors(&mut file, &tensors, &LAYER, layers);
    for layer in 0..layers {
        let experts = |name: &str| format!("model.layers.{layer}.mlp.experts.{name}");
        let (shape, _) = &tensors[&experts("gate_up_proj")];
        let &[count, hidden, both] = &shape[..] else { panic!("{shape:?}") };
        for (part, word) in ["gate", "up"].into_iter().enumerate() {
            let name = format!("blk.{layer}.ffn_{word}_exps.weight");
            // Gates and ups are rows in turn.
            let blocks = mxfp4::ggml_blocks(&experts("gate_up_proj"), [count, both, hidden], part);
            file.tensor(&name, &[hidden as u64, both as u64 / 2, count as u64], 39, &blocks);
            let (_, biases) = &tensors[&experts("gate_up_proj_bias")];
            let biases = alternate(biases, both, part, 2);
            file.values(&format!("blk.{layer}.ffn_{word}_exps.bias"), &[count, both / 2], &biases);
        }
        let (shape, values) = &tensors[&experts("down_proj")];
        let &[count, inner, hidden] = &shape[..] else { panic!("{shape:?}") };
        let down = transposed(values, count, inner);
        file.values(&format!("blk.{layer}.ffn_down_exps.weight"), &[count, hidden, inner], &down);
        let (shape, biases) = &tensors[&experts("down_proj_bias")];
        file.values(&format!("blk.{layer}.ffn_down_exps.bias"), shape, biases);
    }
    file.write(path);
}

/// The golden folder `gpt_oss` with the gate's limit that all files have, and gates and ups in
/// blocks.
fn gpt_oss_folder(folder: &Path) -> Checkpoint {
    mxfp4::write(folder, true);
    let mut config = config_of("gpt_oss");
    config["swiglu_limit"] = 7.0.into();
    std::fs::write(folder.join("config.json"), config.to_string()).expect("written");
    Checkpoint::open(folder).expect("it opens")
}

#[test]
fn a_file_of_gpt_oss_gives_the_folders_logits_bit_for_bit() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let path = parent.path().join("model.gguf");
    write_gpt_oss(&path);
    let file = Checkpoint::open(&path).expect("it opens");
    assert_same("gpt_oss", &gpt_oss_folder(parent.path()), &file);
    // The blocks as they lie, beside their values; the downs are bf16 here.
    let weights = WeightFormats::all(DType::F32).with(WeightClass::Experts, DType::Mxfp4);
    let on_cpu = rig::on(file.model(), rig::CPU);
    let (_, exact) = run(&file, on_cpu.clone(), rig::F32);
    let (_, kept) = run(&file, on_cpu, Formats { weights, ..rig::F32 });
    let cosine = rig::cosine(&kept[0], &exact[0]);
    assert!(cosine > 0.999, "{cosine}");
}
