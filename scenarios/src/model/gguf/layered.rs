//! GGUF headers of families whose layers differ: recurrences, windows, wider heads. What a layer is
//! shows in the tensors that it has.

use crate::model::gguf::later::is_true;
use crate::model::gguf::named_header::NamedHeader;
use crate::model::wiring::sparsity;
use serde_json::{Map, Value, json};

/// Reads the kinds of layers, and the sizes that some of them have.
pub(super) fn read_layers(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    if header.architecture != "mimo2" {
        read_kv_heads(header, config);
    }
    read_heads(header, config);
    match header.architecture {
        "qwen3next" | "qwen35" | "qwen35moe" => read_recurrent_layers(header, config),
        "nemotron_h" | "nemotron_h_moe" => read_nemotron(header, config),
        "granitehybrid" => read_granite(header, config),
        "gemma3n" => read_gemma3n(header, config),
        "gemma4" => read_gemma4(header, config),
        _ => {}
    }
    read_windows(header, config);
}

/// A list has 0 for layers without attention, and all others are equal. Some files have nothing but
/// 0; there the widths of q and k tell.
fn read_kv_heads(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    let Some(Value::Array(heads)) = header.value("attention.head_count_kv") else { return };
    let most = heads.iter().filter_map(Value::as_u64).max().filter(|&most| most > 0);
    let rows = |name: &str| {
        let mut tensors = header.gguf.tensors.iter().filter(|(tensor, _)| tensor.ends_with(name));
        tensors.next().and_then(|(_, tensor)| tensor.shape.first().copied())
    };
    let by_width = || {
        let keys = rows(".attn_k.weight")?.checked_mul(header.count("attention.head_count")?)?;
        keys.checked_div(rows(".attn_q.weight")?)
    };
    config.insert("num_key_value_heads".to_owned(), json!(most.or_else(by_width)));
}

/// A list of heads that differ between layers.
fn read_heads(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    let Some(Value::Array(heads)) = header.value("attention.head_count") else { return };
    if let Some(first) = heads.first().filter(|first| heads.iter().any(|heads| heads != *first)) {
        config.insert("num_attention_heads".to_owned(), first.clone());
        let layers = config.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(0) as usize;
        let own = heads.iter().take(layers).cloned().collect();
        config.insert("num_attention_heads_per_layer".to_owned(), own);
    }
}

/// The layers with windows, where the header lists them.
fn read_windows(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    let Some(Value::Array(windowed)) = header.value("attention.sliding_window_pattern") else { return };
    let kind = |windowed: &Value| if is_true(windowed) { "sliding_attention" } else { "full_attention" };
    let layers = config.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(0) as usize;
    config.insert("layer_types".to_owned(), windowed.iter().take(layers).map(kind).collect());
    config.remove("sliding_window_pattern");
}

/// For each layer the name of the first kind of which it has the tensor; otherwise `rest`.
fn kinds(header: &NamedHeader<'_>, tensors: &[(&str, &str)], rest: &str) -> Value {
    let kind = |layer: u64| {
        let has = |tensor: &str| header.gguf.tensors.contains_key(&format!("blk.{layer}.{tensor}.weight"));
        tensors.iter().find(|(tensor, _)| has(tensor)).map_or(rest, |(_, kind)| *kind).to_owned()
    };
    (0..header.count("block_count").unwrap_or(0).min(1 << 16)).map(kind).collect()
}

fn read_recurrent_layers(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    let Some(Value::Array(recurrent)) = header.value("attention.recurrent_layers") else { return };
    let kind =
        |recurrent: &Value| if recurrent == &json!(true) { "linear_attention" } else { "full_attention" };
    config.insert("layer_types".to_owned(), recurrent.iter().map(kind).collect());
    config.remove("full_attention_interval");
}

/// The widths of Mamba-2 under the names of `keys`: heads, a head's width, groups, state, taps.
fn read_mamba2(header: &NamedHeader<'_>, config: &mut Map<String, Value>, keys: [&str; 5]) {
    let [inner, heads] = ["ssm.inner_size", "ssm.time_step_rank"].map(|key| header.count(key));
    let width = inner.zip(heads).and_then(|(inner, heads)| inner.checked_div(heads));
    let [groups, state, taps] =
        ["ssm.group_count", "ssm.state_size", "ssm.conv_kernel"].map(|key| header.count(key));
    for (key, value) in keys.into_iter().zip([heads, width, groups, state, taps]) {
        config.extend(value.map(|value| (key.to_owned(), json!(value))));
    }
}

fn read_nemotron(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    const KEYS: [&str; 5] =
        ["mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"];
    const TENSORS: [(&str, &str); 3] =
        [("ssm_in", "mamba"), ("attn_q", "attention"), ("ffn_gate_inp", "moe")];
    read_mamba2(header, config, KEYS);
    config.insert("layers_block_type".to_owned(), kinds(header, &TENSORS, "mlp"));
    // Positions are not rotated, whatever the header says of it.
    config.remove("qk_rope_head_dim");
    let epsilon = header.value("attention.layer_norm_epsilon");
    config.extend(epsilon.map(|epsilon| ("layer_norm_epsilon".to_owned(), epsilon.clone())));
    config.extend(header.count("moe_latent_size").map(|size| ("moe_latent_size".to_owned(), json!(size))));
    if let Some(Value::Array(widths)) = header.value("feed_forward_length") {
        let widest = widths.iter().filter_map(Value::as_u64).max();
        config.insert("intermediate_size".to_owned(), json!(widest));
    }
}

fn read_granite(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    const KEYS: [&str; 5] =
        ["mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"];
    read_mamba2(header, config, KEYS);
    let sizes = header.count("ssm.inner_size").zip(header.count("embedding_length"));
    let expanded = sizes.and_then(|(inner, hidden)| inner.checked_div(hidden));
    config.insert("mamba_expand".to_owned(), json!(expanded));
    config.insert("layer_types".to_owned(), kinds(header, &[("ssm_in", "mamba")], "attention"));
    // Without experts the network is what is otherwise the shared expert.
    let experts = header.count("expert_count");
    let network = if experts.is_some() { "expert_shared_feed_forward_length" } else { "feed_forward_length" };
    config.remove("shared_expert_intermediate_size");
    config.insert("shared_intermediate_size".to_owned(), json!(header.count(network)));
    config.insert("num_local_experts".to_owned(), json!(experts.unwrap_or(0)));
}

/// What both layered families of Gemma have.
fn read_gemma(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    let vocab = config.get("vocab_size").cloned();
    config.extend(vocab.map(|vocab| ("vocab_size_per_layer_input".to_owned(), vocab)));
    for (key, name) in [
        ("num_kv_shared_layers", "attention.shared_kv_layers"),
        ("hidden_size_per_layer_input", "embedding_length_per_layer_input"),
    ] {
        config.insert(key.to_owned(), json!(header.count(name).unwrap_or(0)));
    }
}

fn read_gemma3n(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    read_gemma(header, config);
    config.extend(header.count("altup.num_inputs").map(|n| ("altup_num_inputs".to_owned(), json!(n))));
    let rank = header.gguf.tensors.get("blk.0.laurel_l.weight").and_then(|tensor| tensor.shape.first());
    config.extend(rank.map(|rank| ("laurel_rank".to_owned(), json!(rank))));
    config.extend(header.value("altup.active_idx").map(|at| ("altup_active_idx".to_owned(), at.clone())));
    // The file has each layer's cutoff in standard deviations, and −∞ where there is none.
    let Some(Value::Array(cutoffs)) = header.value("activation_sparsity_scale") else { return };
    let share = |cutoff: &Value| cutoff.as_f64().map_or(0.0, sparsity);
    config.insert("activation_sparsity_pattern".to_owned(), cutoffs.iter().map(share).collect());
}

/// Layers with windows have heads of their own number and width.
fn read_gemma4(header: &NamedHeader<'_>, config: &mut Map<String, Value>) {
    read_gemma(header, config);
    let width = |key: &str| header.count(key).map(|width| json!(width));
    config.insert("global_head_dim".to_owned(), json!(width("attention.key_length")));
    config.extend(width("attention.key_length_swa").map(|width| ("head_dim".to_owned(), width)));
    config.insert("enable_moe_block".to_owned(), json!(header.count("expert_count").is_some()));
    let listed = |key: &str| header.value(key).and_then(Value::as_array);
    // The widths of the layers' networks: those of layers with shared keys may be twice as wide.
    let widths = listed("feed_forward_length").into_iter().flatten().filter_map(Value::as_u64);
    if let Some((narrow, wide)) = widths.clone().min().zip(widths.max()) {
        config.insert("intermediate_size".to_owned(), json!(narrow));
        config.insert("use_double_wide_mlp".to_owned(), json!(wide > narrow));
    }
    let full = listed("attention.sliding_window_pattern")
        .and_then(|pattern| pattern.iter().position(|windowed| windowed == &json!(false)));
    let Some(full) = full else { return };
    let values = header.gguf.tensors.contains_key(&format!("blk.{full}.attn_v.weight"));
    config.insert("attention_k_eq_v".to_owned(), json!(!values));
    let heads = listed("attention.head_count_kv").and_then(|heads| heads.get(full));
    config.extend(heads.map(|heads| ("num_global_key_value_heads".to_owned(), heads.clone())));
    // A quarter of a wide head is rotated, which the file says by factors without a key.
    let theta = |key: &str| header.value(key).cloned().unwrap_or_default();
    let rotation = json!({
        "full_attention": {"rope_type": "proportional", "rope_theta": theta("rope.freq_base"), "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": theta("rope.freq_base_swa")},
    });
    config.insert("rope_parameters".to_owned(), rotation);
}
