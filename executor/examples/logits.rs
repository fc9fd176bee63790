//! Logits of a model in f32, and the tokens that follow. `tests/golden/parity.py` runs this and
//! compares the logits with those of transformers, `scripts/llama_cpp_logits.py` with those of
//! llama.cpp.
//!
//! usage: logits FOLDER PRESET (makes FOLDER/model with random weights where it is missing, and
//! writes FOLDER/ours.json), or logits FILE.gguf OUT.json

use executor::{Checkpoint, RunSetup, Sampling, Session, make_random};
use hwprofiles::{Bytes, DType, DeviceId, Machine, MemoryId};
use planner::{Placement, RunExtent};
use scenarios::{Formats, Model, WeightFormats};
use serde_json::json;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Tokens in front of each row of logits that is compared.
const LENGTHS: [u64; 4] = [1, 17, 70, 128];
/// Tokens of a run, and those that follow each row.
const CONTEXT: u64 = 256;
const FOLLOWING: u64 = 16;
/// Capacity of every memory: enough for any model.
const ROOM: Bytes = Bytes::new(1 << 40);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(first), Some(second)) = (arguments.next(), arguments.next()) else {
        return Err("usage: logits FOLDER PRESET, or logits FILE.gguf OUT.json".into());
    };
    let first = PathBuf::from(first);
    if first.extension().is_some_and(|kind| kind == "gguf") {
        return write_logits(&Checkpoint::open(&first)?, &PathBuf::from(second));
    }
    let (files, model) = (first.join("model"), Model::preset(&second)?);
    if !files.exists() {
        make_random(&model, &files, 1)?;
    }
    write_logits(&Checkpoint::open(&files)?, &first.join("ours.json"))
}

fn write_logits(checkpoint: &Checkpoint, out: &Path) -> Result<(), Box<dyn Error>> {
    let example = include_str!("../../hwprofiles/data/example-loopback.yaml");
    let mut machine = Machine::from_yaml(example, "example-loopback.yaml")?;
    machine.memories.iter_mut().for_each(|memory| memory.capacity.value = ROOM);
    let model = checkpoint.model().clone();
    let context = CONTEXT.min(model.max_positions);
    let setup = RunSetup {
        machine,
        formats: Formats { weights: WeightFormats::all(DType::F32), kv: DType::F32, activations: DType::F32 },
        placement: Placement::uniform(&model, DeviceId(0), MemoryId(0)),
        extent: RunExtent { batch: 1, context, chunk: context, step_tokens: 1 },
        plan: "logits".to_owned(),
        model: model.clone(),
    };
    let mut session = Session::new(setup, checkpoint)?;
    let mut rows = Vec::new();
    for length in LENGTHS.into_iter().filter(|length| length + FOLLOWING <= context) {
        let tokens: Vec<u32> = (0..length).map(|i| ((i * 7919 + 13) % model.vocab) as u32).collect();
        let prompt = std::slice::from_ref(&tokens);
        session.generate(prompt, 1, Sampling::Greedy, |_| {})?;
        let logits = session.logits()?.swap_remove(0);
        let following = session.generate(prompt, FOLLOWING, Sampling::Greedy, |_| {})?.tokens.swap_remove(0);
        rows.push(json!({ "tokens": tokens, "logits": logits, "following": following }));
    }
    std::fs::write(out, json!(rows).to_string())?;
    Ok(())
}
