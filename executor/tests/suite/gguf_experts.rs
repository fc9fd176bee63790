//! GGUF files of families with experts: written from the golden models' tensors, they give the
//! logits of the folders.

use crate::gguf_blocks::setup;
use crate::gguf_writer::GgufFile;
use crate::golden_files::{Tensors, draw};
use crate::mxfp4;
use crate::rig;
use executor::{Checkpoint, Sampling, Session};
use hwprofiles::DType;
use planner::{Placement, RunExtent};
use scenarios::{Formats, Model, WeightClass, WeightFormats};
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

/// Writes the keys that all of these files have.
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

/// The golden model `gpt_oss` as a file. With `in_blocks`, gates and ups are MXFP4 blocks of
/// [`mxfp4`]'s pattern.
fn write_gpt_oss(path: &Path, in_blocks: bool) {
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
        let (shape, values) = &tensors[&experts("gate_up_proj")];
        let &[count, hidden, both] = &shape[..] else { panic!("{shape:?}") };
        let rows = transposed(values, count, hidden);
        for (part, word) in ["gate", "up"].into_iter().enumerate() {
            let name = format!("blk.{layer}.ffn_{word}_exps.weight");
            if in_blocks {
                let blocks = mxfp4::ggml_blocks(&experts("gate_up_proj"), [count, both, hidden], part);
                file.tensor(&name, &[hidden as u64, both as u64 / 2, count as u64], 39, &blocks);
            } else {
                // Gates and ups are rows in turn.
                let own = alternate_rows(&rows, hidden, part);
                file.values(&name, &[count, both / 2, hidden], &own);
            }
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

/// The golden model `minimax_m2` as a file.
fn write_minimax_m2(path: &Path) {
    let (config, tensors) = (config_of("minimax_m2"), draw("minimax_m2"));
    let mut file = GgufFile::new("minimax-m2");
    write_sizes(&mut file, &config);
    file.number("rope.dimension_count", 8);
    let layers = config["num_hidden_layers"].as_u64().expect("a number");
    let norms = [
        ("self_attn.q_norm.weight", "attn_q_norm.weight"),
        ("self_attn.k_norm.weight", "attn_k_norm.weight"),
        ("post_attention_layernorm.weight", "ffn_norm.weight"),
        ("block_sparse_moe.gate.weight", "ffn_gate_inp.weight"),
        ("block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"),
    ];
    let own = |(theirs, _): &(&str, &str)| tensors.contains_key(&format!("model.layers.0.{theirs}"));
    let plain = LAYER.into_iter().filter(|(theirs, _)| !theirs.starts_with("post_")).filter(own);
    let names: Vec<_> = plain.chain(norms).collect();
    write_tensors(&mut file, &tensors, &names, layers);
    let count = config["num_local_experts"].as_u64().expect("a number") as usize;
    for layer in 0..layers {
        for (theirs, ours) in [("w1", "gate"), ("w2", "down"), ("w3", "up")] {
            let expert = |expert| {
                &tensors[&format!("model.layers.{layer}.block_sparse_moe.experts.{expert}.{theirs}.weight")]
            };
            let values: Vec<f32> = (0..count).flat_map(|index| &expert(index).1).copied().collect();
            let shape = [&[count], &expert(0).0[..]].concat();
            file.values(&format!("blk.{layer}.ffn_{ours}_exps.weight"), &shape, &values);
        }
    }
    file.write(path);
}

/// Every second row from row `first` on.
fn alternate_rows(values: &[f32], columns: usize, first: usize) -> Vec<f32> {
    values.chunks(columns).skip(first).step_by(2).flatten().copied().collect()
}

/// The golden folder `gpt_oss` with the gate's limit that all files have.
fn gpt_oss_folder(folder: &Path, in_blocks: bool) -> Checkpoint {
    if in_blocks {
        mxfp4::write(folder, true);
    } else {
        let from = rig::folder("gpt_oss").join("model.safetensors");
        std::fs::copy(from, folder.join("model.safetensors")).expect("copied");
    }
    let mut config = config_of("gpt_oss");
    config["swiglu_limit"] = 7.0.into();
    std::fs::write(folder.join("config.json"), config.to_string()).expect("written");
    Checkpoint::open(folder).expect("it opens")
}

/// The tokens and the last logits of two sequences.
fn run(checkpoint: &Checkpoint, placement: Placement, formats: Formats) -> (Vec<Vec<u32>>, Vec<Vec<f32>>) {
    let extent = RunExtent { batch: 2, context: 64, chunk: 7, step_tokens: 1 };
    let setup = setup(checkpoint.model(), placement, formats, extent);
    let mut session = Session::new(setup, checkpoint).expect("it fits");
    // Several times as long as the window.
    let prompts = [(0..40).map(|i| i * 7 % 384).collect(), (0..40).map(|i| i * 5 % 384).collect()];
    let generation = session.generate(&prompts, 6, Sampling::Greedy, |_| {}).expect("it runs");
    (generation.tokens, session.logits().expect("they are read"))
}

/// Both describe one model, and give the same bits on every placement.
fn assert_same(folder: &Checkpoint, file: &Checkpoint) {
    let named =
        |shape: &Model| Model { name: String::new(), dtype: DType::F32, published: None, ..shape.clone() };
    assert_eq!(file.model().map_shapes(named), folder.model().map_shapes(named));
    for (kind, placement) in rig::placements(folder.model()) {
        let [wanted, found] = [folder, file].map(|checkpoint| run(checkpoint, placement.clone(), rig::F32));
        assert!(wanted.1.iter().flatten().all(|logit| logit.is_finite()), "{kind}");
        assert!(found == wanted, "{kind}");
    }
}

#[test]
fn a_file_of_gpt_oss_gives_the_folders_logits_bit_for_bit() {
    for in_blocks in [false, true] {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let path = parent.path().join("model.gguf");
        write_gpt_oss(&path, in_blocks);
        let file = Checkpoint::open(&path).expect("it opens");
        let folder = gpt_oss_folder(parent.path(), in_blocks);
        assert_same(&folder, &file);
        if in_blocks {
            // The blocks as they lie, beside their values; the downs are bf16 here.
            let weights = WeightFormats::all(DType::F32).with(WeightClass::Experts, DType::Mxfp4);
            let on_cpu = rig::on(file.model(), rig::CPU);
            let (_, exact) = run(&file, on_cpu.clone(), rig::F32);
            let (_, kept) = run(&file, on_cpu, Formats { weights, ..rig::F32 });
            let cosine = rig::cosine(&kept[0], &exact[0]);
            assert!(cosine > 0.999, "{cosine}");
        }
    }
}

#[test]
fn a_file_of_minimax_m2_gives_the_folders_logits_bit_for_bit() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let path = parent.path().join("model.gguf");
    write_minimax_m2(&path);
    let file = Checkpoint::open(&path).expect("it opens");
    assert_same(&rig::checkpoint("minimax_m2"), &file);
}
