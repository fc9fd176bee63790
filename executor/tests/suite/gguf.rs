//! GGUF files give the same model as the folders that they were made from.

use crate::golden_files::gguf_file;
use crate::rig;
use executor::{Checkpoint, Sampling, Tokenizer};
use hwprofiles::DType;
use planner::RunExtent;
use scenarios::{Formats, Gguf, Model, WeightFormats};

/// The files of `tests/golden/make_gguf.py`, in f32.
const FILES: [&str; 8] = ["llama_gqa", "qwen3", "gemma", "gemma3", "phi3", "phi", "gpt_neox", "falcon_7b"];

#[test]
fn a_file_gives_the_folders_logits_bit_for_bit() {
    for name in FILES {
        let checkpoints = [rig::checkpoint(name), Checkpoint::open(&gguf_file(name)).expect("it opens")];
        for weights in [DType::F32, DType::Bf16, DType::Int4] {
            let [folder, file] = checkpoints.each_ref().map(|checkpoint| {
                let formats = Formats { weights: WeightFormats::all(weights), ..rig::F32 };
                let extent = RunExtent { batch: 2, context: 32, chunk: 7, step_tokens: 1 };
                let placement = rig::split(checkpoint.model());
                let mut session = rig::session(checkpoint, placement, formats, extent);
                let prompts = [vec![5, 17, 300, 2, 9, 11, 40, 8], vec![7; 8]];
                let generation = session.generate(&prompts, 6, Sampling::Greedy, |_| {}).expect("it runs");
                (generation.tokens, session.logits().expect("they are read"))
            });
            assert!(folder == file, "{name} in {weights}");
        }
    }
}

#[test]
fn scores_that_are_divided_by_another_number_than_a_file_says_are_those_of_scaled_queries() {
    let checkpoints = [rig::checkpoint("gemma2"), Checkpoint::open(&gguf_file("gemma2")).expect("it opens")];
    let logits = checkpoints.each_ref().map(|checkpoint| {
        let extent = RunExtent { batch: 1, context: 64, chunk: 7, step_tokens: 1 };
        let mut session = rig::session(checkpoint, rig::split(checkpoint.model()), rig::F32, extent);
        session.generate(&[(0..50).collect()], 6, Sampling::Greedy, |_| {}).expect("it runs");
        session.logits().expect("they are read")
    });
    let cosine = rig::cosine(&logits[0][0], &logits[1][0]);
    assert!(cosine > 0.99999, "{cosine}");
    // The folder says 48, and heads have 32 values.
    let [folder, file] = checkpoints.map(|checkpoint| checkpoint.model().wiring.query_scalar);
    assert_eq!((folder, file), (Some(48), None));
}

#[test]
fn a_file_describes_the_folders_model_and_has_a_tokenizer() {
    for name in FILES {
        let (folder, found) =
            (rig::checkpoint(name), Model::from_gguf_file(&gguf_file(name)).expect("a model"));
        let wanted = folder.model();
        let named = |shape: &Model| Model {
            name: name.to_owned(),
            dtype: found.dtype,
            published: None,
            ..shape.clone()
        };
        assert_eq!(found.map_shapes(named), wanted.map_shapes(named));
        Tokenizer::open(&gguf_file(name)).expect("its own tokenizer");
    }
}

#[test]
fn a_file_that_is_cut_short_or_in_another_format_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    let whole = std::fs::read(gguf_file("llama_gqa")).expect("a golden file");
    std::fs::write(&path, &whole[..whole.len() - 1]).expect("written");
    let error = Checkpoint::open(&path).expect_err("a byte is missing").to_string();
    assert!(error.contains("model.gguf") && error.contains("cut short"), "{error}");
    // The number of a matrix's format comes after its name, its number of dimensions and their
    // sizes.
    let name = b"blk.0.attn_q.weight";
    let at = whole.windows(name.len()).position(|window| window == name).expect("it is there")
        + name.len()
        + 4
        + 16;
    let mut other = whole.clone();
    other[at] = 16;
    std::fs::write(&path, &other).expect("written");
    let error = Checkpoint::open(&path).expect_err("IQ2_XXS is not read").to_string();
    assert!(error.contains("self_attn.q_proj") && error.contains("ggml's format 16"), "{error}");
    assert!(Gguf::open(&folder.path().join("nothing.gguf")).is_err());
}
