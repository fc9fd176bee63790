//! Model folders: what is written reads back, and what is wrong is refused with one clear message.

use crate::{golden_files, rig};
use executor::{Checkpoint, ExecutorError, Sampling, Tokenizer, make_random};
use planner::RunExtent;
use scenarios::{Model, Wiring};
use std::fs;
use std::path::Path;

fn tiny() -> Model {
    Model::preset("fulcrum-tiny").expect("a preset")
}

/// A copy of a golden folder, which a test may damage.
fn copy_of(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for entry in fs::read_dir(golden_files::folder(name)).expect("the folder exists") {
        let path = entry.expect("an entry").path();
        let to = folder.path().join(path.file_name().expect("a file name"));
        fs::copy(&path, to).expect("a copy");
    }
    folder
}

fn message(folder: &Path) -> String {
    Checkpoint::open(folder).expect_err("the folder is damaged").to_string()
}

/// Rewrites a safetensors file's header and keeps its data.
fn edit_header(path: &Path, edit: impl Fn(String) -> String) {
    let bytes = fs::read(path).expect("the file");
    let size = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header = edit(String::from_utf8(bytes[8..8 + size].to_vec()).expect("text"));
    let new = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes[8 + size..]].concat();
    fs::write(path, new).expect("written");
}

#[test]
fn every_golden_folder_opens() {
    let folders = fs::read_dir(golden_files::source(""))
        .expect("the folder exists")
        .map(|entry| entry.expect("an entry"));
    let mut count = 0;
    for folder in folders.filter(|entry| entry.path().is_dir()) {
        let name = folder.file_name().into_string().expect("a plain name");
        let checkpoint =
            Checkpoint::open(&golden_files::folder(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(checkpoint.model().name, name);
        count += 1;
    }
    assert_eq!(count, rig::GOLDEN.len() + rig::MIXERS.len());
}

#[test]
fn a_random_model_reads_back_as_the_model_it_was_made_of() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let others = [
        "gemma-2b",
        "gemma-2-2b",
        "gemma-3-4b",
        "phi-2",
        "phi-3-mini-4k",
        "pythia-1.4b",
        "gpt-j-6b",
        "falcon-7b",
        "falcon-40b",
    ];
    for name in ["fulcrum-tiny", "opt-125m"].into_iter().chain(others) {
        // A narrow model with the heads and switches of the real one.
        let model = Model::preset(name).expect("a preset");
        let (head_dim, intermediate) = (8, model.intermediate.min(96));
        // As many layers as show each of their shapes.
        let has_all = |&count: &u64| {
            let mut kinds: Vec<_> = (0..count).map(|layer| model.kind(layer)).collect();
            kinds.sort_unstable();
            kinds.dedup();
            kinds.len() == model.shapes().len()
        };
        let count = (2..=model.layers).find(has_all).expect("all layers show all shapes");
        let narrow = |shape: &Model| Model {
            layers: count,
            vocab: 500,
            head_dim,
            hidden: model.heads * head_dim,
            intermediate,
            wiring: Wiring { rotary_dim: shape.wiring.rotary_dim.map(|_| 4), ..shape.wiring },
            ..shape.clone()
        };
        let layers = (0..count).map(|layer| narrow(model.layer(layer))).collect();
        let narrow = narrow(&model).with_layers(layers);
        let model = if name == "opt-125m" { Model { layers: 2, vocab: 500, ..model } } else { narrow };
        let folder = parent.path().join(name);
        make_random(&model, &folder, 1).expect("written");
        let read = Checkpoint::open(&folder).expect("it opens");
        assert_eq!(read.model(), &Model { dtype: hwprofiles::DType::Bf16, ..model });
        assert_eq!(Tokenizer::open(&folder).expect("a tokenizer").encode("a").expect("a byte"), [97]);
    }
}

/// Golden models of this year's families are read, written with random weights and run.
#[test]
fn random_models_of_later_families_read_back_and_run() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    for name in ["glm4_moe", "qwen3_next", "qwen3_5", "minimax_m2", "llama4", "gpt_oss", "gemma3n"] {
        let model = rig::checkpoint(name).model().clone();
        let folder = parent.path().join(name);
        make_random(&model, &folder, 1).expect("written");
        let checkpoint = Checkpoint::open(&folder).expect("it opens");
        let bf16 = |shape: &Model| Model { dtype: hwprofiles::DType::Bf16, ..shape.clone() };
        assert_eq!(checkpoint.model().map_shapes(bf16), model.map_shapes(bf16), "{name}");
        let extent = RunExtent { batch: 1, context: 32, chunk: 7, step_tokens: 1 };
        let mut session = rig::session(&checkpoint, rig::split(&model), rig::F32, extent);
        let prompts = [(0..20).collect::<Vec<_>>()];
        session.generate(&prompts, 3, Sampling::Greedy, |_| {}).expect("it runs");
        assert!(session.logits().expect("they are read")[0].iter().all(|logit| logit.is_finite()), "{name}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let bytes = |name: &str, seed| {
        let folder = parent.path().join(name);
        make_random(&tiny(), &folder, seed).expect("written");
        fs::read(folder.join("model.safetensors")).expect("the file")
    };
    let first = bytes("first", 7);
    assert!(first == bytes("second", 7));
    assert!(first != bytes("third", 8));
}

#[test]
fn an_existing_folder_is_left_alone_and_nothing_half_written_stays() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("model");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("mine"), "keep").expect("written");
    let error = make_random(&tiny(), &folder, 1).expect_err("it exists").to_string();
    assert!(error.contains("model") && error.contains("exists"), "{error}");
    assert_eq!(fs::read_dir(parent.path()).expect("readable").count(), 1);
    assert_eq!(fs::read_to_string(folder.join("mine")).expect("still there"), "keep");
}

#[test]
fn a_file_cut_short_says_how_much_is_there_and_how_much_should_be() {
    let folder = copy_of("qwen2");
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).expect("the file");
    for keep in [0, 7, 100, whole.len() - 1] {
        fs::write(&path, &whole[..keep]).expect("written");
        let error = message(folder.path());
        assert!(error.contains("model.safetensors") && error.contains("cut short"), "{keep}: {error}");
    }
    fs::write(&path, [&whole[..], b"more"].concat()).expect("written");
    assert!(message(folder.path()).contains("4 bytes after its last tensor"));
    fs::write(&path, [255; 64]).expect("written");
    assert!(message(folder.path()).contains("not a safetensors file"));
}

#[test]
fn a_missing_tensor_is_named_with_the_shape_it_should_have() {
    let folder = copy_of("llama_gqa");
    edit_header(&folder.path().join("model.safetensors"), |header| {
        header.replace("model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.k_pro_.weight")
    });
    let error = message(folder.path());
    assert!(error.contains("'model.layers.1.self_attn.k_proj.weight' is missing"), "{error}");
    assert!(error.contains("[32, 128]") && error.contains("model.safetensors"), "{error}");
}

#[test]
fn a_tensor_of_the_wrong_shape_or_format_is_refused() {
    let folder = copy_of("llama_gqa");
    let path = folder.path().join("model.safetensors");
    edit_header(&path, |header| header.replacen("[32,128]", "[64,64]", 1));
    let error = message(folder.path());
    assert!(error.contains("shape [64, 64]") && error.contains("[32, 128]"), "{error}");
    let folder = copy_of("llama_gqa");
    let path = folder.path().join("model.safetensors");
    edit_header(&path, |header| header.replacen("F32", "I32", 1));
    let error = message(folder.path());
    assert!(error.contains("is I32") && error.contains("BF16 and F8_E4M3 are read"), "{error}");
}

#[test]
fn models_without_kernels_are_neither_made_nor_opened() {
    let model = Model::preset("qwen3-8b").expect("a preset");
    for (wiring, feature) in [
        (Wiring { residual_streams: Some(2), ..Wiring::default() }, "hyper-connections"),
        (Wiring { shares_kv: true, ..Wiring::default() }, "shared keys and values"),
    ] {
        let model = Model { wiring, ..model.clone() };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let new = folder.path().join("made");
        let error = make_random(&model, &new, 1).expect_err("it cannot run").to_string();
        assert!(error.contains("qwen3-8b") && error.contains(feature), "{error}");
        assert!(error.contains("simulated"), "{error}");
        assert!(!new.exists());
    }
    // DeepSeek-V3.2's indexer.
    let folder = copy_of("deepseek_v3");
    let path = folder.path().join("config.json");
    let text = fs::read_to_string(&path).expect("a config");
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    config["model_type"] = "deepseek_v32".into();
    for (key, value) in [("index_n_heads", 2), ("index_head_dim", 16), ("index_topk", 8)] {
        config[key] = value.into();
    }
    fs::write(&path, config.to_string()).expect("written");
    assert!(message(folder.path()).contains("an indexer"));
}

/// Qwen3.5 has a layer's experts in one tensor, or each in its own.
#[test]
fn experts_in_one_tensor_give_the_logits_of_experts_in_tensors_of_their_own() {
    let folder = copy_of("qwen3_5_moe");
    let mut tensors = golden_files::draw("qwen3_5_moe");
    for layer in 0..2 {
        let place = format!("model.layers.{layer}.mlp.experts");
        let mut part = |expert: usize, part: &str| {
            tensors.remove(&format!("{place}.{expert}.{part}_proj.weight")).expect("an expert's matrix").1
        };
        let (mut gate_up, mut down) = (vec![], vec![]);
        for expert in 0..6 {
            gate_up.extend([part(expert, "gate"), part(expert, "up")].concat());
            down.extend(part(expert, "down"));
        }
        tensors.insert(format!("{place}.gate_up_proj"), (vec![6, 64, 64], gate_up));
        tensors.insert(format!("{place}.down_proj"), (vec![6, 64, 32], down));
    }
    golden_files::write_tensors(&folder.path().join("model.safetensors"), &tensors);
    let stacked = Checkpoint::open(folder.path()).expect("it opens");
    let [one, other] = [&stacked, &rig::checkpoint("qwen3_5_moe")].map(|checkpoint| {
        let extent = RunExtent { batch: 1, context: 32, chunk: 7, step_tokens: 1 };
        let mut session = rig::session(checkpoint, rig::split(checkpoint.model()), rig::F32, extent);
        session.generate(&[(0..20).collect()], 3, Sampling::Greedy, |_| {}).expect("it runs");
        session.logits().expect("they are read")
    });
    assert!(one == other && one[0].iter().any(|logit| *logit != 0.0));
}

#[test]
fn a_missing_tensor_of_another_mixer_names_its_file() {
    for (name, tensor) in [
        ("deepseek_v3", "model.layers.1.self_attn.kv_b_proj.weight"),
        ("deepseek_v3", "model.layers.1.mlp.gate.e_score_correction_bias"),
        ("qwen3_next", "model.layers.0.linear_attn.conv1d.weight"),
        ("qwen3_next", "model.layers.1.mlp.shared_expert_gate.weight"),
    ] {
        let folder = copy_of(name);
        let path = folder.path().join("model.safetensors");
        edit_header(&path, |header| header.replacen(tensor, &"x".repeat(tensor.len()), 1));
        let error = message(folder.path());
        assert!(error.contains(tensor) && error.contains("model.safetensors"), "{error}");
    }
}

#[test]
fn what_is_missing_of_gpt_oss_is_named_as_its_files_name_it() {
    let damaged = |edit: &dyn Fn(String) -> String| {
        let folder = copy_of("gpt_oss");
        edit_header(&folder.path().join("model.safetensors"), edit);
        message(folder.path())
    };
    let error = damaged(&|header| header.replace("layers.1.self_attn.sinks", "layers.1.self_attn.links"));
    assert!(
        error.contains("model.safetensors") && error.contains("'model.layers.1.self_attn.sinks'"),
        "{error}"
    );
    let error =
        damaged(&|header| header.replace("layers.0.mlp.experts.down_proj\"", "layers.0.mlp.experts.down\""));
    assert!(error.contains("'model.layers.0.mlp.experts.down_proj'"), "{error}");
    let error = damaged(&|header| header.replace("experts.gate_up_proj\"", "experts.gate_up_proj_blocks\""));
    assert!(error.contains("model.safetensors") && error.contains("experts.gate_up_proj_scales'"), "{error}");
}

#[test]
fn an_index_must_tell_the_truth() {
    let folder = copy_of("mistral_sharded");
    let index = folder.path().join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).expect("the index");
    fs::write(&index, text.replace("\"model.norm.weight\"", "\"model.norm.weird\"")).expect("written");
    assert!(message(folder.path()).contains("'model.norm.weird' should be in"), "{}", message(folder.path()));
    fs::write(&index, text.replace("model-00002", "../model-00002")).expect("written");
    assert!(message(folder.path()).contains("outside the folder"));
    fs::write(&index, "{").expect("written");
    assert!(message(folder.path()).contains("not an index"));
    fs::write(&index, text).expect("written");
    fs::remove_file(folder.path().join("model-00002-of-00003.safetensors")).expect("removed");
    assert!(
        matches!(Checkpoint::open(folder.path()), Err(ExecutorError::File { path, .. }) if path.ends_with("model-00002-of-00003.safetensors"))
    );
}
