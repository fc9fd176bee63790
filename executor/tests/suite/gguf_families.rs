//! GGUF files of the later families give the models of their folders, on every placement.

use crate::gguf_blocks::setup;
use crate::golden_files::{gguf_config, gguf_file};
use crate::rig;
use executor::{Checkpoint, Sampling, Session};
use hwprofiles::DType;
use planner::{Placement, RunExtent};
use scenarios::{Formats, Mixer, Model, Wiring};
use std::path::Path;

/// The files of `tests/golden/gguf_families.py`, in f32.
const FAMILIES: [&str; 17] = [
    "gpt_oss",
    "qwen3_next",
    "qwen3_next_square",
    "qwen3_5",
    "qwen3_5_heads",
    "qwen3_5_moe",
    "glm4_moe",
    "deepseek_v2",
    "deepseek_v3",
    "gemma3n",
    "gemma4",
    "gemma4_moe",
    "gemma4_shared",
    "llama4",
    "minimax_m2",
    "nemotron_h",
    "nemotron_h_moe",
];

/// The folder of a golden model with the configuration of its file.
fn folder_of(name: &str, parent: &Path) -> Checkpoint {
    let weights = rig::folder(name).join("model.safetensors");
    std::fs::copy(weights, parent.join("model.safetensors")).expect("copied");
    std::fs::write(parent.join("config.json"), gguf_config(name).to_string()).expect("written");
    Checkpoint::open(parent).expect("it opens")
}

/// The tokens and the last logits of two sequences.
pub fn run(
    checkpoint: &Checkpoint,
    placement: Placement,
    formats: Formats,
) -> (Vec<Vec<u32>>, Vec<Vec<f32>>) {
    let extent = RunExtent { batch: 2, context: 64, chunk: 7, step_tokens: 1 };
    let setup = setup(checkpoint.model(), placement, formats, extent);
    let mut session = Session::new(setup, checkpoint).expect("it fits");
    // Several times as long as the windows.
    let prompts = [(0..40).map(|i| i * 7 % 384).collect(), (0..40).map(|i| i * 5 % 384).collect()];
    let generation = session.generate(&prompts, 6, Sampling::Greedy, |_| {}).expect("it runs");
    (generation.tokens, session.logits().expect("they are read"))
}

/// Both describe one model, and give the same bits on every placement. Recurrences give the same
/// tokens: files have their rates rounded.
pub fn assert_same(name: &str, folder: &Checkpoint, file: &Checkpoint) {
    let named = |shape: &Model| {
        // A file's table has a row for each token.
        let wiring = Wiring { layer_embedding_tokens: None, ..shape.wiring };
        Model { name: String::new(), dtype: DType::F32, published: None, wiring, ..shape.clone() }
    };
    assert_eq!(file.model().map_shapes(named), folder.model().map_shapes(named), "{name}");
    let rounded = folder.model().shapes().iter().any(|shape| matches!(shape.mixer, Mixer::Recurrent(_)));
    for (kind, placement) in rig::placements(folder.model()) {
        let [wanted, found] = [folder, file].map(|checkpoint| run(checkpoint, placement.clone(), rig::F32));
        assert!(wanted.1.iter().flatten().all(|logit| logit.is_finite()), "{name} {kind}");
        assert!(found.0 == wanted.0, "{name} {kind}");
        for (found, wanted) in found.1.iter().zip(&wanted.1) {
            let cosine = rig::cosine(found, wanted);
            assert!(found == wanted || rounded && cosine > 0.999_999, "{name} {kind}: {cosine}");
        }
    }
}

#[test]
fn a_file_gives_the_folders_tokens_and_logits() {
    for name in FAMILIES {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let file = Checkpoint::open(&gguf_file(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_same(name, &folder_of(name, parent.path()), &file);
    }
}
