//! Keys of GGUF headers that the later families have: experts, latent attention, recurrences.

use crate::input::error::ScenarioError;
use crate::model::gguf::named_header::NamedHeader;
use serde_json::{Map, Value, json};

/// The architectures of ggml that were read first; what they have beside sizes is read elsewhere.
const FIRST: [&str; 11] =
    ["llama", "qwen2", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "phi3", "phi2", "gptneox", "falcon"];

/// Whether the architecture was read later, and may have more keys.
pub(super) fn is_later(architecture: &str) -> bool {
    !FIRST.contains(&architecture)
}

/// Whether a file of `deepseek2` has DeepSeek-V2: its router's scores are a softmax, without a bias
/// that balances the experts.
pub(super) fn is_second_deepseek(header: &NamedHeader<'_>) -> bool {
    const SOFTMAX: u64 = 1;
    match header.count("expert_gating_func") {
        Some(function) => function == SOFTMAX,
        None => {
            let tensors = &header.gguf.tensors;
            let has = |part: &str| tensors.keys().any(|name| name.contains(part));
            has("ffn_gate_inp") && !has("exp_probs_b")
        }
    }
}

/// Reads what these families add to the sizes that all have.
pub(super) fn read_later_family(
    header: &NamedHeader<'_>,
    config: &mut Map<String, Value>,
) -> Result<(), ScenarioError> {
    if !is_later(header.architecture) {
        return Ok(());
    }
    // Blocks of modules that predict further tokens are counted with the others there.
    if let (Some(blocks), Some(modules)) = (header.count("block_count"), header.count("nextn_predict_layers"))
    {
        config.insert("num_hidden_layers".to_owned(), json!(blocks.saturating_sub(modules)));
        let tensors = &header.gguf.tensors;
        if tensors.contains_key("token_embd.weight") && !tensors.keys().any(|name| name.contains(".nextn.")) {
            let reason = "the file has no tensor blk.*.nextn.* of these modules: use a file that has them, or \
                          one that says 0";
            return Err(header.refused("nextn_predict_layers", reason));
        }
    }
    read_experts(header, config);
    read_sparse_layers(header, config);
    match header.architecture {
        "deepseek2" => read_latent(header, config)?,
        "deepseek32" | "glm-dsa" => {
            read_latent(header, config)?;
            read_indexer(header, config);
        }
        "mimo2" => read_mimo(header, config),
        "qwen3next" | "qwen35" | "qwen35moe" => read_delta(header, config),
        "llama4" => {
            // There the dense layers' width is the general one.
            if let Some(width) = header.value("feed_forward_length") {
                config.insert("intermediate_size_mlp".to_owned(), width.clone());
            }
            if let Some(width) = header.value("expert_feed_forward_length") {
                config.insert("intermediate_size".to_owned(), width.clone());
                config.remove("moe_intermediate_size");
            }
            // Files do not have these, and engines assume them: Maverick has 128 experts.
            config.entry("attention_chunk_size").or_insert(json!(8192));
            config.insert("use_qk_norm".to_owned(), json!(header.count("expert_count") != Some(128)));
        }
        "gpt-oss" => {
            if let Some(width) = header.value("expert_feed_forward_length") {
                config.insert("intermediate_size".to_owned(), width.clone());
                config.remove("moe_intermediate_size");
            }
            config.insert("attention_bias".to_owned(), json!(true));
        }
        "minimax-m2" => {
            if let Some(width) = header.value("expert_feed_forward_length") {
                config.insert("intermediate_size".to_owned(), width.clone());
            }
        }
        "glm4moe" => {
            let normed = header.gguf.tensors.contains_key("blk.0.attn_q_norm.weight");
            config.insert("use_qk_norm".to_owned(), json!(normed));
        }
        "phimoe" => {
            let biased = header.gguf.tensors.contains_key("output.bias");
            config.insert("lm_head_bias".to_owned(), json!(biased));
        }
        "lfm2" | "lfm2moe" => read_convolutions(header, config),
        _ => {}
    }
    Ok(())
}

/// The experts that every token goes to.
fn read_experts(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    // Some headers have the width of one shared expert, some that of all: the tensor has the
    // latter.
    let tensors = header.gguf.tensors.iter();
    let up = tensors.filter(|(name, _)| name.ends_with(".ffn_up_shexp.weight")).map(|(_, tensor)| tensor);
    let rows = up.filter_map(|tensor| tensor.shape.first()).next().copied();
    if let Some(width) = rows.or(header.count("expert_shared_feed_forward_length")) {
        config.insert("shared_expert_intermediate_size".to_owned(), json!(width));
    } else if let Some(count) = header.count("expert_shared_count") {
        config.insert("n_shared_experts".to_owned(), json!(count));
    }
}

/// The layers with experts, where no number of leading dense layers says it: those with a router.
fn read_sparse_layers(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    let is_listed = matches!(header.architecture, "laguna" | "mimo2" | "mellum");
    if !is_listed || header.count("leading_dense_block_count").is_some() {
        return;
    }
    let tensors = &header.gguf.tensors;
    let layers = config.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(0).min(1 << 16);
    let has_router = |layer: u64| tensors.contains_key(&format!("blk.{layer}.ffn_gate_inp.weight"));
    let kinds: Vec<_> = (0..layers).map(|layer| if has_router(layer) { "sparse" } else { "dense" }).collect();
    if kinds.contains(&"sparse") {
        config.insert("mlp_layer_types".to_owned(), json!(kinds));
    }
}

/// The indexer that chooses what latent attention reads.
fn read_indexer(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    for (key, name) in
        [("index_n_heads", "head_count"), ("index_head_dim", "key_length"), ("index_topk", "top_k")]
    {
        let value = header.value(&format!("attention.indexer.{name}"));
        config.extend(value.map(|value| (key.to_owned(), value.clone())));
    }
}

/// MiMo-V2 has other numbers of KV heads in layers with a window, and narrower values.
fn read_mimo(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    let width = header.count("attention.value_length");
    config.extend(width.map(|width| ("v_head_dim".to_owned(), json!(width))));
    let lists = ["attention.head_count_kv", "attention.sliding_window_pattern"].map(|key| header.value(key));
    let [Some(Value::Array(heads)), Some(Value::Array(windowed))] = lists else { return };
    let of = |wanted: bool| {
        let mut all = heads.iter().zip(windowed).filter(|(_, windowed)| is_true(windowed) == wanted);
        all.next().map(|(heads, _)| heads.clone())
    };
    for (key, heads) in [("num_key_value_heads", of(false)), ("swa_num_key_value_heads", of(true))] {
        config.extend(heads.map(|heads| (key.to_owned(), heads)));
    }
}

/// Whether a value is true, which some files write as 1.
pub(super) fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or(value.as_u64() == Some(1))
}

/// The widths of latent attention. Newer files keep the absorbed form, whose lengths have names of
/// their own beside those of a head.
fn read_latent(header: &NamedHeader<'_>, config: &mut Map<String, Value>) -> Result<(), ScenarioError> {
    let own = |name: &str| header.count(&format!("attention.{name}_length_mla"));
    let key = own("key").or(header.count("attention.key_length"));
    let value = own("value").or(header.count("attention.value_length"));
    let rotated = header.count("rope.dimension_count");
    let plain =
        key.zip(rotated).and_then(|(key, rotated)| key.checked_sub(rotated)).filter(|width| *width > 0);
    let Some((plain, value)) = plain.zip(value) else {
        return Err(header.refused("attention.key_length", "latent attention needs it, and a value_length"));
    };
    if is_second_deepseek(header) {
        config.entry("norm_topk_prob").or_insert(json!(false));
        config.insert("topk_method".to_owned(), json!("group_limited_greedy"));
    }
    config.insert("qk_nope_head_dim".to_owned(), json!(plain));
    config.insert("v_head_dim".to_owned(), json!(value));
    config.remove("head_dim");
    config.remove("num_key_value_heads");
    Ok(())
}

/// The widths of a gated delta net, in the names of state-space models.
fn read_delta(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    let inner = header.count("ssm.inner_size");
    let heads = header.count("ssm.time_step_rank");
    let width = inner.zip(heads).and_then(|(inner, heads)| inner.checked_div(heads));
    for (key, value) in [
        ("linear_num_value_heads", heads),
        ("linear_num_key_heads", header.count("ssm.group_count")),
        ("linear_key_head_dim", header.count("ssm.state_size")),
        ("linear_value_head_dim", width),
        ("linear_conv_kernel_dim", header.count("ssm.conv_kernel")),
    ] {
        config.extend(value.map(|value| (key.to_owned(), json!(value))));
    }
}

/// LFM2 writes no heads of keys and values for layers of convolutions.
fn read_convolutions(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    if let Some(taps) = header.count("shortconv.l_cache") {
        config.insert("conv_L_cache".to_owned(), json!(taps));
    }
    // The network's width is the adjusted one.
    config.insert("block_auto_adjust_ff_dim".to_owned(), json!(false));
    let Some(Value::Array(heads)) = header.value("attention.head_count_kv") else { return };
    let attends = |heads: &Value| heads.as_u64().is_some_and(|heads| heads > 0);
    let kinds = heads.iter().map(|heads| if attends(heads) { "full_attention" } else { "conv" });
    config.insert("layer_types".to_owned(), kinds.collect());
}

#[cfg(test)]
mod tests {
    use crate::model::gguf::header::{Gguf, GgufTensor};
    use crate::model::transformer::Model;
    use serde_json::{Value, json};

    fn model(values: Value, tensors: &[&str]) -> Model {
        let Value::Object(metadata) = values else { panic!("a mapping") };
        let tensor = GgufTensor { shape: vec![1], format: 0, start: 0 };
        let gguf = Gguf {
            metadata: metadata.into_iter().collect(),
            tensors: tensors.iter().map(|&name| (name.to_owned(), tensor.clone())).collect(),
        };
        Model::from_gguf("m", "m.gguf", &gguf).expect("a model")
    }

    #[test]
    fn headers_of_later_families_count_like_their_presets() {
        let oss = model(
            json!({
                "general.architecture": "gpt-oss", "gpt-oss.embedding_length": 2880, "gpt-oss.block_count": 24,
                "gpt-oss.feed_forward_length": 2880, "gpt-oss.expert_feed_forward_length": 2880, "gpt-oss.attention.head_count": 64,
                "gpt-oss.attention.head_count_kv": 8, "gpt-oss.attention.key_length": 64, "gpt-oss.rope.dimension_count": 64,
                "gpt-oss.expert_count": 32, "gpt-oss.expert_used_count": 4, "gpt-oss.attention.sliding_window": 128,
                "gpt-oss.context_length": 131072, "gpt-oss.vocab_size": 201088, "gpt-oss.rope.scaling.type": "yarn",
                "gpt-oss.rope.scaling.factor": 32.0, "gpt-oss.rope.scaling.original_context_length": 4096,
            }),
            &["output.weight"],
        );
        let deepseek = model(
            json!({
                "general.architecture": "deepseek2", "deepseek2.embedding_length": 7168, "deepseek2.block_count": 61,
                "deepseek2.feed_forward_length": 18432, "deepseek2.expert_feed_forward_length": 2048, "deepseek2.attention.head_count": 128,
                "deepseek2.attention.head_count_kv": 1, "deepseek2.attention.key_length": 576, "deepseek2.attention.value_length": 512,
                "deepseek2.attention.key_length_mla": 192, "deepseek2.attention.value_length_mla": 128,
                "deepseek2.rope.dimension_count": 64, "deepseek2.attention.q_lora_rank": 1536, "deepseek2.attention.kv_lora_rank": 512,
                "deepseek2.expert_count": 256, "deepseek2.expert_used_count": 8, "deepseek2.expert_shared_count": 1,
                "deepseek2.leading_dense_block_count": 3, "deepseek2.context_length": 163840, "deepseek2.vocab_size": 129280,
            }),
            &["output.weight"],
        );
        let next = model(
            json!({
                "general.architecture": "qwen3next", "qwen3next.embedding_length": 2048, "qwen3next.block_count": 48,
                "qwen3next.feed_forward_length": 5120, "qwen3next.expert_feed_forward_length": 512, "qwen3next.attention.head_count": 16,
                "qwen3next.attention.head_count_kv": 2, "qwen3next.attention.key_length": 256, "qwen3next.rope.dimension_count": 64,
                "qwen3next.expert_count": 512, "qwen3next.expert_used_count": 10, "qwen3next.expert_shared_feed_forward_length": 512,
                "qwen3next.ssm.inner_size": 4096, "qwen3next.ssm.time_step_rank": 32, "qwen3next.ssm.group_count": 16,
                "qwen3next.ssm.state_size": 128, "qwen3next.ssm.conv_kernel": 4, "qwen3next.context_length": 262144, "qwen3next.vocab_size": 151936,
            }),
            &["output.weight"],
        );
        let pattern: Vec<_> = (0..45).map(|layer| layer % 4 != 0).collect();
        let heads: Vec<_> = pattern.iter().map(|windowed| if *windowed { 96 } else { 64 }).collect();
        let step = model(
            json!({
                "general.architecture": "step35", "step35.embedding_length": 4096, "step35.block_count": 45,
                "step35.feed_forward_length": 11264, "step35.expert_feed_forward_length": 1280, "step35.attention.head_count": heads,
                "step35.attention.head_count_kv": vec![8; 45], "step35.attention.key_length": 128, "step35.attention.sliding_window": 512,
                "step35.attention.sliding_window_pattern": pattern, "step35.expert_count": 288, "step35.expert_used_count": 8,
                "step35.expert_shared_feed_forward_length": 1280, "step35.leading_dense_block_count": 3,
                "step35.context_length": 262144, "step35.vocab_size": 128896,
            }),
            &["output.weight"],
        );
        for (found, preset) in [
            (step, "step-3.5-flash"),
            (oss, "gpt-oss-20b"),
            (deepseek, "deepseek-v3"),
            (next, "qwen3-next-80b-a3b"),
        ] {
            let preset = Model::preset(preset).expect("a preset");
            assert_eq!(found.parameters(), preset.parameters(), "{}", preset.name);
            assert_eq!(found.active_parameters(), preset.active_parameters(), "{}", preset.name);
            assert_eq!(found.growing_kv_numbers(), preset.growing_kv_numbers(), "{}", preset.name);
            let [one, other] = [&found, &preset].map(|model| model.constant_bytes(hwprofiles::DType::Bf16));
            assert_eq!(one, other, "{}", preset.name);
        }
    }

    /// The model of a header whose keys, without the architecture's name, are `keys`; with a router
    /// in the layers from `first` on.
    fn headed(architecture: &str, mut keys: Value, routers: std::ops::Range<u64>) -> Model {
        let Value::Object(keys) = keys.take() else { panic!("a mapping") };
        let named = keys.into_iter().map(|(key, value)| (format!("{architecture}.{key}"), value));
        let own = [("general.architecture".to_owned(), json!(architecture))];
        let names: Vec<_> = routers.map(|layer| format!("blk.{layer}.ffn_gate_inp.weight")).collect();
        let tensors: Vec<&str> = names.iter().map(String::as_str).chain(["output.weight"]).collect();
        model(Value::Object(own.into_iter().chain(named).collect()), &tensors)
    }

    #[test]
    fn headers_of_this_years_families_count_like_their_presets() {
        let windowed = |layers: u64, is_full: fn(u64) -> bool| -> Vec<bool> {
            (0..layers).map(|layer| !is_full(layer)).collect()
        };
        let every_fourth = windowed(40, |layer| layer % 4 == 0);
        let heads: Vec<_> = every_fourth.iter().map(|windowed| if *windowed { 64 } else { 48 }).collect();
        let laguna = json!({
            "embedding_length": 2048, "block_count": 40, "feed_forward_length": 8192, "expert_feed_forward_length": 512,
            "attention.head_count": heads, "attention.head_count_kv": 8, "attention.key_length": 128, "attention.sliding_window": 512,
            "attention.sliding_window_pattern": every_fourth, "expert_count": 256, "expert_used_count": 8,
            "expert_shared_feed_forward_length": 512, "context_length": 262144, "vocab_size": 100352,
        });
        let muse = json!({
            "embedding_length": 6656, "block_count": 52, "feed_forward_length": 19968, "attention.head_count": 32,
            "attention.head_count_kv": 2, "attention.key_length": 128, "attention.sliding_window": 2048,
            "attention.sliding_window_pattern": windowed(52, |layer| layer % 4 == 3), "context_length": 131072, "vocab_size": 202048,
        });
        let is_full = |layer: u64| layer == 0 || layer % 6 == 5;
        let pattern: Vec<u8> = windowed(51, is_full).into_iter().map(u8::from).collect();
        let kv: Vec<_> = pattern.iter().map(|windowed| 4 + 4 * windowed).collect();
        let mimo = json!({
            "embedding_length": 4096, "block_count": 51, "nextn_predict_layers": 3, "feed_forward_length": 16384,
            "expert_feed_forward_length": 2048, "attention.head_count": 64, "attention.head_count_kv": kv, "attention.key_length": 192,
            "attention.value_length": 128, "attention.sliding_window": 128, "attention.sliding_window_pattern": pattern,
            "expert_count": 256, "expert_used_count": 8, "context_length": 262144, "vocab_size": 152576,
        });
        let glm = json!({
            "embedding_length": 6144, "block_count": 79, "nextn_predict_layers": 1, "feed_forward_length": 12288,
            "expert_feed_forward_length": 2048, "attention.head_count": 64, "attention.head_count_kv": 1, "attention.key_length": 576,
            "attention.value_length": 512, "attention.key_length_mla": 256, "attention.value_length_mla": 256,
            "rope.dimension_count": 64, "attention.q_lora_rank": 2048, "attention.kv_lora_rank": 512, "attention.indexer.head_count": 32,
            "attention.indexer.key_length": 128, "attention.indexer.top_k": 2048, "expert_count": 256, "expert_used_count": 8,
            "expert_shared_count": 1, "leading_dense_block_count": 3, "context_length": 202752, "vocab_size": 154880,
        });
        let deepseek = json!({
            "embedding_length": 7168, "block_count": 62, "nextn_predict_layers": 1, "feed_forward_length": 18432,
            "expert_feed_forward_length": 2048, "attention.head_count": 128, "attention.head_count_kv": 1, "attention.key_length": 576,
            "attention.value_length": 512, "attention.key_length_mla": 192, "attention.value_length_mla": 128,
            "rope.dimension_count": 64, "attention.q_lora_rank": 1536, "attention.kv_lora_rank": 512, "attention.indexer.head_count": 64,
            "attention.indexer.key_length": 128, "attention.indexer.top_k": 2048, "expert_count": 256, "expert_used_count": 8,
            "expert_shared_count": 1, "leading_dense_block_count": 3, "context_length": 163840, "vocab_size": 129280,
        });
        for (architecture, header, routers, preset) in [
            ("laguna", laguna, 1..40, "laguna-xs-2.1"),
            ("muse-glimmer", muse, 0..0, "muse-glimmer-30b"),
            ("mimo2", mimo, 1..48, "mimo-v2-flash"),
            ("glm-dsa", glm, 3..78, "glm-5"),
            ("deepseek32", deepseek, 3..61, "deepseek-v3.2"),
        ] {
            let (found, preset) =
                (headed(architecture, header, routers), Model::preset(preset).expect("a preset"));
            assert_eq!(found.parameters(), preset.parameters(), "{architecture}");
            assert_eq!(found.active_parameters(), preset.active_parameters(), "{architecture}");
            assert_eq!(found.growing_kv_numbers(), preset.growing_kv_numbers(), "{architecture}");
            let [one, other] = [&found, &preset].map(|model| model.constant_bytes(hwprofiles::DType::Bf16));
            assert_eq!(one, other, "{architecture}");
        }
    }

    #[test]
    fn a_header_is_read_like_the_config_of_its_family() {
        let sizes = [
            ("embedding_length", "hidden_size", 64),
            ("block_count", "num_hidden_layers", 4),
            ("feed_forward_length", "intermediate_size", 176),
            ("attention.head_count", "num_attention_heads", 4),
            ("attention.head_count_kv", "num_key_value_heads", 2),
            ("attention.key_length", "head_dim", 16),
            ("context_length", "max_position_embeddings", 4096),
            ("vocab_size", "vocab_size", 640),
        ];
        let experts = [
            ("expert_count", "num_experts", 8),
            ("expert_used_count", "num_experts_per_tok", 2),
            ("expert_feed_forward_length", "moe_intermediate_size", 40),
            ("expert_shared_count", "num_shared_experts", 1),
            ("leading_dense_block_count", "first_k_dense_replace", 1),
        ];
        for (architecture, model_type, experts) in [
            ("exaone", "exaone", &[][..]),
            ("olmo", "olmo", &[]),
            ("afmoe", "afmoe", &experts),
            ("hy_v3", "hy_v3", &experts),
            ("exaone-moe", "exaone_moe", &experts),
            ("bailingmoe2", "bailing_moe", &experts),
            ("mellum", "mellum", &experts),
        ] {
            let (mut header, mut config) =
                (json!({}), json!({"tie_word_embeddings": false, "sliding_window": null}));
            for (theirs, ours, value) in sizes.iter().chain(experts) {
                (header[theirs], config[ours]) = (json!(value), json!(value));
            }
            config["model_type"] = json!(model_type);
            let written = Model::from_config_json("m", "m.gguf", &config.to_string()).expect("a model");
            let found = headed(architecture, header, 0..0);
            assert_eq!(found.parameters(), written.parameters(), "{architecture}");
            assert_eq!(found.active_parameters(), written.active_parameters(), "{architecture}");
            assert_eq!(found.growing_kv_numbers(), written.growing_kv_numbers(), "{architecture}");
        }
    }
}
