//! A plan for a model that is a GGUF file.

use crate::place::Place;

const SCENARIO: &[u8] = b"machine: example-loopback
model: tiny.gguf
workload: {batch: 2, prompt_tokens: 8, output_tokens: 4}
";

const LAYERS: usize = 2;
const HIDDEN: u64 = 64;
const KV_WIDTH: u64 = 32;
const WIDE: u64 = 128;
const VOCAB: u64 = 256;

/// Names and shapes (columns first, as GGUF writes them) of a small Llama's tensors.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let mut all = vec![("token_embd.weight".to_owned(), vec![HIDDEN, VOCAB])];
    for layer in 0..LAYERS {
        for (name, shape) in [
            ("attn_norm", vec![HIDDEN]),
            ("attn_q", vec![HIDDEN, HIDDEN]),
            ("attn_k", vec![HIDDEN, KV_WIDTH]),
            ("attn_v", vec![HIDDEN, KV_WIDTH]),
            ("attn_output", vec![HIDDEN, HIDDEN]),
            ("ffn_norm", vec![HIDDEN]),
            ("ffn_gate", vec![HIDDEN, WIDE]),
            ("ffn_up", vec![HIDDEN, WIDE]),
            ("ffn_down", vec![WIDE, HIDDEN]),
        ] {
            all.push((format!("blk.{layer}.{name}.weight"), shape));
        }
    }
    all.push(("output_norm.weight".to_owned(), vec![HIDDEN]));
    all.push(("output.weight".to_owned(), vec![HIDDEN, VOCAB]));
    all
}

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes(), value.as_bytes()].concat()
}

/// A GGUF file of version 3 with f32 weights, which it says are of ggml's type `kind`.
pub fn gguf(kind: u32) -> Vec<u8> {
    const U32: u32 = 4;
    const F32: u32 = 6;
    const STRING: u32 = 8;
    let number = |key: &str, value: u64| {
        [text(&format!("llama.{key}")), U32.to_le_bytes().to_vec(), (value as u32).to_le_bytes().to_vec()]
            .concat()
    };
    let real = |key: &str, value: f32| {
        [text(&format!("llama.{key}")), F32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat()
    };
    let metadata = [
        [text("general.architecture"), STRING.to_le_bytes().to_vec(), text("llama")].concat(),
        number("embedding_length", HIDDEN),
        number("block_count", LAYERS as u64),
        number("feed_forward_length", WIDE),
        number("attention.head_count", 4),
        number("attention.head_count_kv", 2),
        number("context_length", 512),
        number("rope.dimension_count", 16),
        number("vocab_size", VOCAB),
        real("attention.layer_norm_rms_epsilon", 1e-5),
        real("rope.freq_base", 10_000.0),
    ];
    let tensors = tensors();
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((metadata.len() as u64).to_le_bytes());
    file.extend(metadata.concat());
    let mut start = 0;
    for (name, shape) in &tensors {
        file.extend(text(name));
        file.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|size| file.extend(size.to_le_bytes()));
        file.extend(kind.to_le_bytes());
        file.extend(u64::to_le_bytes(start));
        start += shape.iter().product::<u64>() * 4;
    }
    file.resize(file.len().next_multiple_of(32), 0);
    let weight = |index: u64| ((index.wrapping_mul(0x9e37_79b9) >> 8) % 1000) as f32 / 5000.0 - 0.1;
    (0..start / 4).for_each(|index| file.extend(weight(index).to_le_bytes()));
    file
}

#[test]
fn a_plan_for_a_gguf_file_is_read_by_every_command() {
    let place = Place::with(&[("s.yaml", SCENARIO), ("tiny.gguf", &gguf(0))]);
    place.stdout("plan s.yaml -o plan.yaml");
    for command in [
        "sim plan.yaml",
        "explain plan.yaml",
        "export plan.yaml --to llama.cpp",
        "report plan.yaml -o page.html",
        "model show tiny.gguf",
        "run plan.yaml --model-dir tiny.gguf",
        "validate plan.yaml --model-dir tiny.gguf --repeats 1",
    ] {
        assert!(!place.stdout(command).is_empty(), "{command}");
    }
    assert!(place.stdout("sim plan.yaml").contains("tiny on example-loopback"));
}
