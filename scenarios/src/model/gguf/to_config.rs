//! Reads the model of a GGUF file: its header becomes a `config.json`, which is then read.

use crate::input::error::ScenarioError;
use crate::model::gguf::header::Gguf;
use crate::model::gguf::later;
use crate::model::gguf::layered;
use crate::model::gguf::named_header::NamedHeader;
use crate::model::transformer::Model;
use hwprofiles::DType;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The supported architectures of ggml, each with transformers' model types: without experts, and
/// with experts.
const GGML_FAMILIES: [(&str, Option<&str>, Option<&str>); 59] = [
    ("llama", Some("llama"), Some("mixtral")),
    ("qwen2", Some("qwen2"), None),
    ("qwen3", Some("qwen3"), None),
    ("qwen3moe", None, Some("qwen3_moe")),
    ("gemma", Some("gemma"), None),
    ("gemma2", Some("gemma2"), None),
    ("gemma3", Some("gemma3_text"), None),
    ("phi3", Some("phi3"), None),
    ("phi2", Some("phi"), None),
    ("gptneox", Some("gpt_neox"), None),
    ("falcon", Some("falcon"), None),
    ("qwen2moe", None, Some("qwen2_moe")),
    ("qwen3next", None, Some("qwen3_next")),
    ("qwen35", Some("qwen3_5_text"), None),
    ("qwen35moe", None, Some("qwen3_5_moe_text")),
    ("gpt-oss", None, Some("gpt_oss")),
    ("deepseek2", None, Some("deepseek_v3")),
    ("glm4", Some("glm4"), None),
    ("glm4moe", None, Some("glm4_moe")),
    ("llama4", None, Some("llama4_text")),
    ("mistral3", Some("mistral"), None),
    ("minimax-m2", None, Some("minimax_m2")),
    ("granite", Some("granite"), None),
    ("granitemoe", None, Some("granitemoe")),
    ("phimoe", None, Some("phimoe")),
    ("olmo2", Some("olmo2"), None),
    ("olmoe", None, Some("olmoe")),
    ("seed_oss", Some("seed_oss"), None),
    ("smollm3", Some("smollm3"), None),
    ("lfm2", Some("lfm2"), None),
    ("lfm2moe", None, Some("lfm2_moe")),
    ("nemotron_h", Some("nemotron_h"), None),
    ("nemotron_h_moe", None, Some("nemotron_h")),
    ("granitehybrid", Some("granitemoehybrid"), Some("granitemoehybrid")),
    ("gemma3n", Some("gemma3n_text"), None),
    ("gemma4", Some("gemma4_text"), Some("gemma4_text")),
    ("dots1", None, Some("dots1")),
    ("ernie4_5", Some("ernie4_5"), None),
    ("ernie4_5-moe", None, Some("ernie4_5_moe")),
    ("hunyuan-dense", Some("hunyuan_v1_dense"), None),
    ("hunyuan-moe", None, Some("hunyuan_v1_moe")),
    ("exaone4", Some("exaone4"), None),
    ("cohere2", Some("cohere2"), None),
    ("starcoder2", Some("starcoder2"), None),
    ("arcee", Some("arcee"), None),
    ("apertus", Some("apertus"), None),
    ("exaone", Some("exaone"), None),
    ("afmoe", None, Some("afmoe")),
    ("step35", None, Some("step3p5")),
    ("laguna", None, Some("laguna")),
    ("muse-glimmer", Some("muse_glimmer_text"), None),
    ("mimo2", None, Some("mimo_v2_flash")),
    ("hy_v3", None, Some("hy_v3")),
    ("exaone-moe", None, Some("exaone_moe")),
    ("bailingmoe2", None, Some("bailing_moe")),
    ("glm-dsa", None, Some("glm_moe_dsa")),
    ("deepseek32", None, Some("deepseek_v32")),
    ("mellum", None, Some("mellum")),
    ("olmo", Some("olmo"), None),
];

/// Keys of transformers with those of ggml, which follow the architecture's name.
const SIZES: [(&str, &str); 29] = [
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
    ("sliding_window", "attention.sliding_window"),
    ("sliding_window_pattern", "attention.sliding_window_pattern"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("q_lora_rank", "attention.q_lora_rank"),
    ("kv_lora_rank", "attention.kv_lora_rank"),
    ("qk_rope_head_dim", "rope.dimension_count"),
    ("first_k_dense_replace", "leading_dense_block_count"),
    ("num_nextn_predict_layers", "nextn_predict_layers"),
    ("norm_topk_prob", "expert_weights_norm"),
    ("interleave_moe_layer_step", "interleave_moe_layer_step"),
    ("attention_chunk_size", "attention.chunk_size"),
    ("full_attention_interval", "full_attention_interval"),
    ("routed_scaling_factor", "expert_weights_scale"),
    ("n_group", "expert_group_count"),
    ("topk_group", "expert_group_used_count"),
];

impl Model {
    /// Reads the model from a GGUF file's header. `name` becomes the model's name; messages call
    /// the file `file`.
    ///
    /// # Errors
    /// The architecture, the rotation or the window is not supported, and the errors of
    /// [`Model::from_config_json`].
    pub fn from_gguf(name: &str, file: &str, gguf: &Gguf) -> Result<Self, ScenarioError> {
        let model = Self::from_config_json(name, file, &config(file, gguf)?.to_string())?;
        if !gguf.tensors.contains_key("token_embd.weight") {
            return Ok(model);
        }
        let formats = gguf.weight_formats().map_err(|reason| ScenarioError::Unsupported {
            place: file.to_owned(),
            key: "tensors".to_owned(),
            value: "one of them".to_owned(),
            reason,
        })?;
        let published = formats.distinct().any(DType::is_quantised).then(|| Box::new(formats.into()));
        Ok(Self { published, ..model })
    }

    /// Reads the model of the GGUF file at `path`; the file's name becomes the model's name.
    ///
    /// # Errors
    /// The errors of [`Gguf::open`] and of [`Model::from_gguf`].
    pub fn from_gguf_file(path: &Path) -> Result<Self, ScenarioError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::from_gguf(&name, &path.display().to_string(), &Gguf::open(path)?)
    }
}

/// Writes the `config.json` that Hugging Face would have for the model.
fn config(file: &str, gguf: &Gguf) -> Result<Value, ScenarioError> {
    let architecture = gguf.text("general.architecture").unwrap_or_default();
    let header = NamedHeader { file, gguf, architecture };
    let experts = header.count("expert_count");
    let family = GGML_FAMILIES.into_iter().find(|(name, ..)| *name == architecture);
    let model_type = family.and_then(|(_, dense, mixture)| if experts.is_some() { mixture } else { dense });
    let Some(model_type) = model_type else {
        let known = GGML_FAMILIES.map(|(name, ..)| name).join(", ");
        let reason = format!("{known} are read from GGUF files");
        return Err(header.unsupported("general.architecture", &reason));
    };
    // OLMo 3 is OLMo 2 with windows.
    let windowed = architecture == "olmo2" && header.count("attention.sliding_window").is_some();
    let model_type = match model_type {
        _ if windowed => "olmo3",
        "deepseek_v3" if later::is_second_deepseek(&header) => "deepseek_v2",
        _ => model_type,
    };
    let mut config = Map::new();
    config.insert("model_type".to_owned(), json!(model_type));
    for (theirs, ours) in SIZES {
        config.extend(header.value(ours).map(|value| (theirs.to_owned(), value.clone())));
    }
    if let Some(tokens) = gguf.list("tokenizer.ggml.tokens") {
        config.entry("vocab_size").or_insert(json!(tokens.len()));
    }
    if let Some(table) = gguf.tensors.get("token_embd.weight") {
        config.entry("vocab_size").or_insert(json!(table.shape.first()));
    }
    let count = if model_type.starts_with("qwen") { "num_experts" } else { "num_local_experts" };
    let count = if matches!(
        model_type,
        "deepseek_v2" | "deepseek_v3" | "deepseek_v32" | "glm_moe_dsa" | "nemotron_h"
    ) {
        "n_routed_experts"
    } else {
        count
    };
    config.extend(experts.map(|experts| (count.to_owned(), json!(experts))));
    config.insert("attention_bias".to_owned(), json!(gguf.tensors.contains_key("blk.0.attn_q.bias")));
    config.insert("tie_word_embeddings".to_owned(), json!(!gguf.tensors.contains_key("output.weight")));
    config.insert("dtype".to_owned(), json!("bfloat16"));
    read_layer_norm_family(&header, &mut config);
    later::read_later_family(&header, &mut config)?;
    layered::read_layers(&header, &mut config);
    read_rotation(&header, &mut config)?;
    read_window_and_scale(&header, &mut config)?;
    Ok(Value::Object(config))
}

/// Reads what the families with layer norms have.
fn read_layer_norm_family(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    let mut set = |key: &str, value: Value| config.insert(key.to_owned(), value);
    let epsilon = header.value("attention.layer_norm_epsilon").cloned().unwrap_or_default();
    match header.architecture {
        "phi2" | "cohere2" => {
            set("layer_norm_eps", epsilon);
        }
        "starcoder2" => {
            set("norm_epsilon", epsilon);
        }
        "gptneox" => {
            set("layer_norm_eps", epsilon);
            set("attention_bias", json!(header.gguf.tensors.contains_key("blk.0.attn_qkv.bias")));
            let parallel = header.value("use_parallel_residual").and_then(Value::as_bool);
            set("use_parallel_residual", json!(parallel.unwrap_or(true)));
        }
        "falcon" => {
            set("layer_norm_epsilon", epsilon);
            let two = header.gguf.tensors.contains_key("blk.0.attn_norm_2.weight");
            let [heads, kv_heads] =
                ["attention.head_count", "attention.head_count_kv"].map(|key| header.count(key));
            let kv_heads = kv_heads.or(heads);
            // The older class has one KV head, or as many KV heads as query heads.
            let new = two || (kv_heads != Some(1) && kv_heads != heads);
            set("num_kv_heads", json!(kv_heads));
            set("multi_query", json!(!new && kv_heads == Some(1)));
            set("new_decoder_architecture", json!(new));
            set("num_ln_in_parallel_attn", json!(if two { 2 } else { 1 }));
            set("ffn_hidden_size", header.value("feed_forward_length").cloned().unwrap_or_default());
        }
        _ => {}
    }
}

/// Reads the rotated columns and the scaling of the rotation.
fn read_rotation(header: &NamedHeader<'_>, config: &mut Map<String, Value>) -> Result<(), ScenarioError> {
    match header.value("rope.scaling.type").and_then(Value::as_str) {
        None | Some("none") => {}
        _ if header.value("rope.scaling.factor").and_then(Value::as_f64) == Some(1.0) => {}
        Some("yarn") if later::is_later(header.architecture) => {
            let mut scaling = json!({ "rope_type": "yarn", "factor": header.value("rope.scaling.factor") });
            let original = header.value("rope.scaling.original_context_length");
            scaling["original_max_position_embeddings"] = json!(original);
            if header.architecture == "gpt-oss" {
                scaling["truncate"] = json!(false);
            }
            // DeepSeek's files have a tenth of the factor that its scores are scaled by.
            let tenth = header.value("rope.scaling.yarn_log_multiplier").and_then(Value::as_f64);
            for key in ["mscale", "mscale_all_dim"] {
                // Seven digits are what a 32-bit float of a file holds.
                let scale = tenth.map(|tenth| f64::from((10.0 * tenth) as f32));
                scale.into_iter().for_each(|scale| scaling[key] = json!(scale));
            }
            config.insert("rope_scaling".to_owned(), scaling);
        }
        Some("linear") => {
            let scaling = json!({ "rope_type": "linear", "factor": header.value("rope.scaling.factor") });
            config.insert("rope_scaling".to_owned(), scaling);
        }
        Some(_) => {
            let reason = "a rotation that is stretched so is not read from GGUF files";
            return Err(header.refused("rope.scaling.type", reason));
        }
    }
    let factors = ["rope_factors_long.weight", "rope_factors_short.weight"];
    if let Some(name) = factors.into_iter().find(|&name| header.gguf.tensors.contains_key(name)) {
        let reason = "a rotation with a factor for each pair is not read from GGUF files";
        return Err(header.unsupported(name, reason));
    }
    let rotated = header.count("rope.dimension_count");
    let head = header.count("attention.key_length");
    match (rotated, head) {
        (Some(rotated), _) if matches!(header.architecture, "phi3" | "phi2" | "gptneox") => {
            let head = header.count("embedding_length").zip(header.count("attention.head_count"));
            let head = head.map_or(1.0, |(hidden, heads)| hidden as f64 / heads as f64);
            // Half a column is added, so that rounding down gives the number of rotated columns.
            let share = ((rotated as f64 + 0.5) / head).min(1.0);
            config.insert("partial_rotary_factor".to_owned(), json!(share));
        }
        // Falcon rotates whole heads, Nemotron-H none, and Gemma 4 has keys of its own.
        _ if matches!(header.architecture, "falcon" | "nemotron_h" | "nemotron_h_moe" | "gemma4") => {}
        // Latent attention has keys of its own for the rotated columns.
        _ if matches!(header.architecture, "deepseek2" | "deepseek32" | "glm-dsa") => {}
        (Some(rotated), Some(head)) if later::is_later(header.architecture) && rotated < head => {
            let share = ((rotated as f64 + 0.5) / head as f64).min(1.0);
            config.insert("partial_rotary_factor".to_owned(), json!(share));
        }
        (Some(rotated), Some(head)) if rotated != head => {
            let reason = "heads that are turned in part are not read";
            return Err(header.refused("rope.dimension_count", reason));
        }
        _ => {}
    }
    if header.gguf.tensors.contains_key("rope_freqs.weight") && header.architecture == "llama" {
        // Llama 3's scaled rotation: the file has the resulting factors, not the parameters. Llama
        // 3.1 and 3.3 have a factor of 8, the small models of 3.2 have 32.
        let small = config.get("hidden_size").and_then(Value::as_u64).is_some_and(|hidden| hidden < 4096);
        let scaling = json!({
            "rope_type": "llama3", "factor": if small { 32.0 } else { 8.0 }, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        });
        config.insert("rope_scaling".to_owned(), scaling);
    }
    Ok(())
}

/// Reads the sliding window and the scale of attention scores.
fn read_window_and_scale(
    header: &NamedHeader<'_>,
    config: &mut Map<String, Value>,
) -> Result<(), ScenarioError> {
    const WINDOW: &str = "attention.sliding_window";
    match header.count(WINDOW) {
        None => {
            config.insert("sliding_window".to_owned(), Value::Null);
        }
        Some(_) if matches!(header.architecture, "gemma2" | "gemma3" | "phi3" | "gpt-oss" | "phimoe") => {}
        Some(_)
            if config.contains_key("layer_types") || matches!(header.architecture, "cohere2" | "afmoe") => {}
        Some(_) => return Err(header.refused(WINDOW, "every layer must attend to the whole context")),
    }
    // A GGUF file has no scale of scores. llama.cpp recognises the largest models by their number
    // of layers, and so does this.
    let scalar = match (header.architecture, header.count("block_count")) {
        ("gemma2", Some(46)) | ("gemma3", Some(62)) => {
            let sizes = header.count("embedding_length").zip(header.count("attention.head_count"));
            sizes.and_then(|(hidden, heads)| hidden.checked_div(heads))
        }
        ("gemma2" | "gemma3", _) => header.count("attention.key_length"),
        _ => None,
    };
    config.extend(scalar.map(|scalar| ("query_pre_attn_scalar".to_owned(), json!(scalar))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gguf::header::GgufTensor;

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
    fn errors_name_the_unsupported_key() {
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
