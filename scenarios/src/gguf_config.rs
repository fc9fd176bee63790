//! The model of a GGUF file, by way of the configuration that Hugging Face would have for it.

use crate::error::ScenarioError;
use crate::gguf::Gguf;
use crate::model::Model;
use serde_json::{Map, Value, json};
use std::path::Path;

/// ggml's architectures that we read, with transformers' model types: without experts, and with.
const FAMILIES: [(&str, &str, &str); 4] = [
    ("llama", "llama", "mixtral"),
    ("qwen2", "qwen2", ""),
    ("qwen3", "qwen3", ""),
    ("qwen3moe", "", "qwen3_moe"),
];

/// Keys of transformers with those of ggml, behind the architecture.
const SIZES: [(&str, &str); 12] = [
    ("hidden_size", "embedding_length"),
    ("num_hidden_layers", "block_count"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("max_position_embeddings", "context_length"),
    ("rope_theta", "rope.freq_base"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("vocab_size", "vocab_size"),
];

impl Model {
    /// The model of a GGUF file's header, named `name`; `file` is what messages call it.
    ///
    /// # Errors
    /// An architecture, a rotation or a window that is not read, and those of [`Model::from_config_json`].
    pub fn from_gguf(name: &str, file: &str, gguf: &Gguf) -> Result<Self, ScenarioError> {
        Self::from_config_json(name, file, &config(file, gguf)?.to_string())
    }

    /// The model of the GGUF file at `path`, named after it.
    ///
    /// # Errors
    /// Those of [`Gguf::open`] and of [`Model::from_gguf`].
    pub fn from_gguf_file(path: &Path) -> Result<Self, ScenarioError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::from_gguf(&name, &path.display().to_string(), &Gguf::open(path)?)
    }
}

fn config(file: &str, gguf: &Gguf) -> Result<Value, ScenarioError> {
    let unsupported = |key: &str, reason: &str| {
        let value = gguf.metadata.get(key).map_or_else(|| "absent".to_owned(), Value::to_string);
        let (place, key, reason) = (file.to_owned(), key.to_owned(), reason.to_owned());
        ScenarioError::Unsupported { place, key, value, reason }
    };
    let architecture = gguf.text("general.architecture").unwrap_or_default();
    let of = |key: &str| gguf.metadata.get(&format!("{architecture}.{key}"));
    let experts = of("expert_count").and_then(Value::as_u64).filter(|&count| count > 0);
    let family = FAMILIES.into_iter().find(|(name, ..)| *name == architecture);
    let model_type = family.map(|(_, dense, mixture)| if experts.is_some() { mixture } else { dense });
    let Some(model_type) = model_type.filter(|name| !name.is_empty()) else {
        return Err(unsupported(
            "general.architecture",
            "llama, qwen2, qwen3 and qwen3moe are read from GGUF files",
        ));
    };
    let mut config = Map::new();
    config.insert("model_type".to_owned(), json!(model_type));
    for (theirs, ours) in SIZES {
        config.extend(of(ours).map(|value| (theirs.to_owned(), value.clone())));
    }
    if let Some(tokens) = gguf.list("tokenizer.ggml.tokens") {
        config.entry("vocab_size").or_insert(json!(tokens.len()));
    }
    let count = if model_type == "qwen3_moe" { "num_experts" } else { "num_local_experts" };
    config.extend(experts.map(|experts| (count.to_owned(), json!(experts))));
    config.insert("attention_bias".to_owned(), json!(gguf.tensors.contains_key("blk.0.attn_q.bias")));
    config.insert("tie_word_embeddings".to_owned(), json!(!gguf.tensors.contains_key("output.weight")));
    config.insert("dtype".to_owned(), json!("bfloat16"));
    let key = |key: &str| format!("{architecture}.{key}");
    if of("rope.scaling.type").and_then(Value::as_str).is_some_and(|kind| kind != "none")
        && of("rope.scaling.factor").and_then(Value::as_f64) != Some(1.0)
    {
        return Err(unsupported(
            &key("rope.scaling.type"),
            "a stretched rotation is not read from GGUF files",
        ));
    }
    let head = of("attention.key_length").or(of("rope.dimension_count"));
    if of("rope.dimension_count").is_some_and(|turned| Some(turned) != head) {
        return Err(unsupported(&key("rope.dimension_count"), "heads that are turned in part are not read"));
    }
    if of("attention.sliding_window").and_then(Value::as_u64).is_some_and(|window| window > 0) {
        return Err(unsupported(
            &key("attention.sliding_window"),
            "every layer must attend to the whole context",
        ));
    }
    if gguf.tensors.contains_key("rope_freqs.weight") {
        // Llama 3's stretched rotation: the file has its factors, not what they were made of. 3.1 and 3.3 were stretched by 8, the
        // small 3.2 by 32.
        let small = config.get("hidden_size").and_then(Value::as_u64).is_some_and(|hidden| hidden < 4096);
        let scaling = json!({
            "rope_type": "llama3", "factor": if small { 32.0 } else { 8.0 }, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        });
        config.insert("rope_scaling".to_owned(), scaling);
    }
    Ok(Value::Object(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::GgufTensor;

    fn gguf(values: Value, tensors: &[&str]) -> Gguf {
        let Value::Object(metadata) = values else { panic!("a mapping") };
        let tensor = GgufTensor { shape: vec![1], format: 0, start: 0 };
        Gguf {
            metadata: metadata.into_iter().collect(),
            tensors: tensors.iter().map(|&name| (name.to_owned(), tensor.clone())).collect(),
        }
    }

    fn llama() -> Value {
        json!({
            "general.architecture": "llama", "llama.embedding_length": 4096, "llama.block_count": 32,
            "llama.feed_forward_length": 14336, "llama.attention.head_count": 32, "llama.attention.head_count_kv": 8,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.context_length": 131072, "llama.rope.freq_base": 500000.0,
            "llama.rope.dimension_count": 128, "llama.vocab_size": 128256,
        })
    }

    #[test]
    fn the_header_of_a_llama_is_the_preset() {
        let found =
            Model::from_gguf("llama-3.1-8b", "f", &gguf(llama(), &["output.weight", "rope_freqs.weight"]));
        assert_eq!(found.expect("a model"), Model::preset("llama-3.1-8b").expect("a preset"));
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_its_key() {
        for (key, value) in [
            ("general.architecture", json!("mamba")),
            ("llama.rope.scaling.type", json!("yarn")),
            ("llama.rope.dimension_count", json!(64)),
            ("llama.attention.sliding_window", json!(4096)),
            ("llama.attention.head_count", json!(33)),
        ] {
            let mut values = llama();
            values["llama.attention.key_length"] = json!(128);
            values[key] = value;
            let error = Model::from_gguf("m", "m.gguf", &gguf(values, &[])).expect_err(key).to_string();
            assert!(error.starts_with("m.gguf"), "{error}");
            assert!(
                error.contains(key.rsplit('.').next().expect("a word")) || key.ends_with("head_count"),
                "{error}"
            );
        }
    }
}
