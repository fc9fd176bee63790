//! Logits of a model with a real shape, in f32. `tests/golden/parity.py` runs this and compares the
//! logits with those of transformers.
//!
//! usage: logits FOLDER PRESET (makes FOLDER/model with random weights where it is missing, and
//! writes FOLDER/ours.json)

use executor::{Checkpoint, RunSetup, Sampling, Session, make_random};
use hwprofiles::{Bytes, DType, DeviceId, Machine, MemoryId};
use planner::{Placement, RunExtent};
use scenarios::{Formats, Model, WeightFormats};
use serde_json::json;
use std::error::Error;
use std::path::PathBuf;

/// Tokens in front of each row of logits that is compared.
const LENGTHS: [u64; 3] = [1, 17, 128];
/// Capacity of every memory: enough for any model.
const ROOM: Bytes = Bytes::new(1 << 40);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(preset)) = (arguments.next(), arguments.next()) else {
        return Err("usage: logits FOLDER PRESET".into());
    };
    let folder = PathBuf::from(folder);
    let (files, model) = (folder.join("model"), Model::preset(&preset)?);
    if !files.exists() {
        make_random(&model, &files, 1)?;
    }
    let checkpoint = Checkpoint::open(&files)?;
    let example = include_str!("../../hwprofiles/data/example-loopback.yaml");
    let mut machine = Machine::from_yaml(example, "example-loopback.yaml")?;
    machine.memories.iter_mut().for_each(|memory| memory.capacity.value = ROOM);
    let model = checkpoint.model().clone();
    let setup = RunSetup {
        machine,
        formats: Formats { weights: WeightFormats::all(DType::F32), kv: DType::F32, activations: DType::F32 },
        placement: Placement::uniform(&model, DeviceId(0), MemoryId(0)),
        extent: RunExtent { batch: 1, context: 256, chunk: 256, step_tokens: 1 },
        plan: "logits".to_owned(),
        model: model.clone(),
    };
    let mut session = Session::new(setup, &checkpoint)?;
    let mut rows = Vec::new();
    for length in LENGTHS {
        let tokens: Vec<u32> = (0..length).map(|i| ((i * 7919 + 13) % model.vocab) as u32).collect();
        session.generate(std::slice::from_ref(&tokens), 1, Sampling::Greedy, |_| {})?;
        rows.push(json!({ "tokens": tokens, "logits": session.logits()?[0] }));
    }
    std::fs::write(folder.join("ours.json"), json!(rows).to_string())?;
    Ok(())
}
