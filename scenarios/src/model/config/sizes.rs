//! What all families share in a `config.json`: sizes and their limits, number format,
//! non-linearity.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Activation, Norm};
use crate::model::config::families::family::FamilyDefaults;
use crate::model::mixer::Mixer;
use crate::model::positions::Positions;
use crate::model::transformer::LayerShapes;
use crate::model::transformer::Model;
use crate::model::wiring::Wiring;
use hwprofiles::DType;
use serde_json::Value;

// Larger sizes are typing errors. Within these limits every product that `Work` forms for one
// token, in bytes and over all layers, stays below 2⁶³: vocab · hidden · 4 = 2⁴⁶, layers · matrices
// · 4 < 2⁶², positions · hidden · 4 = 2⁵⁴.
/// The largest width of anything.
pub(crate) const MAX_WIDTH: u64 = 1 << 20;
const MAX_LAYERS: u64 = 1 << 16;
const MAX_VOCAB: u64 = 1 << 24;
/// The longest context, in tokens.
pub(crate) const MAX_CONTEXT: u64 = 1 << 32;

/// The keys that all families have; everything else is as in Llama.
pub(crate) fn sizes(
    name: &str,
    config: &DocumentSection<'_>,
    whole: &DocumentSection<'_>,
    family: &FamilyDefaults,
) -> Result<Model, ScenarioError> {
    // Families without a default of 0 need the key.
    let count = |key: &str, limit: u64, default: u64| match config.count(key, limit)? {
        Some(count) => Ok(count),
        None if default > 0 => Ok(default),
        None => Err(config.missing(key, &format!("a whole number from 1 to {limit} is wanted"))),
    };
    let keys = &family.keys;
    let hidden = count(keys.hidden, MAX_WIDTH, family.hidden)?;
    let heads = count(keys.heads, MAX_WIDTH, family.heads)?;
    // Step's remote code has another name for it.
    let groups = Some("num_attention_groups").filter(|key| !family.has_own_defaults() && config.writes(key));
    let kv_heads = match keys.kv_heads.map(|key| groups.unwrap_or(key)) {
        None => heads,
        Some(key) => match config.count(key, MAX_WIDTH)? {
            Some(kv_heads) => kv_heads,
            None if config.has(key) => heads,
            None => family.kv_heads.unwrap_or(heads),
        },
    };
    if !heads.is_multiple_of(kv_heads) {
        let wanted = format!("a divisor of {}, which is {heads}, is wanted", keys.heads);
        return Err(config.wrong(keys.kv_heads.unwrap_or(keys.heads), &wanted));
    }
    let head_dim = head_width(config, family, hidden, heads)?;
    if heads * head_dim > MAX_WIDTH {
        let wanted =
            format!("{} · head_dim is {}, at most {MAX_WIDTH} is allowed", keys.heads, heads * head_dim);
        return Err(config.wrong(keys.heads, &wanted));
    }
    Ok(Model {
        name: name.to_owned(),
        architecture: family.architecture,
        hidden,
        layers: layers(config, family)?,
        heads,
        kv_heads,
        head_dim,
        intermediate: network_width(config, family, hidden)?,
        vocab: count("vocab_size", MAX_VOCAB, family.vocab)?,
        max_positions: count(context_key(config, family), MAX_CONTEXT, family.max_positions)?,
        norm: Norm::Rms,
        norm_eps: norm_eps(config, family)?,
        activation: Activation::SiluGated,
        positions: Positions::Rotary { theta: 10000.0, scaling: None },
        qkv_bias: false,
        out_bias: false,
        ffn_bias: false,
        qk_norm: false,
        tied_embeddings: tied_embeddings(config, whole, family)?,
        dtype: DType::F32,
        published: None,
        experts: None,
        mixer: Mixer::Attention,
        index: None,
        wiring: Wiring::default(),
        mtp: 0,
        beams: 1,
        shapes: LayerShapes::default(),
    })
}

/// The number of layers.
fn layers(config: &DocumentSection<'_>, family: &FamilyDefaults) -> Result<u64, ScenarioError> {
    const OTHER: &str = "num_layers";
    let own = family.keys.layers;
    let is_other = !family.has_own_defaults() && config.writes(OTHER) && !config.writes(own);
    let key = if is_other { OTHER } else { own };
    if let Some(layers) = pattern_layers(config)?.filter(|_| config.get(key).is_none()) {
        return Ok(layers);
    }
    match config.count(key, MAX_LAYERS)? {
        Some(layers) => Ok(layers),
        None if family.layers > 0 => Ok(family.layers),
        None => Err(config.missing(key, &format!("a whole number from 1 to {MAX_LAYERS} is wanted"))),
    }
}

/// The number of layers, which the pattern gives if no key does.
fn pattern_layers(config: &DocumentSection<'_>) -> Result<Option<u64>, ScenarioError> {
    let count = match config.text("hybrid_override_pattern")? {
        Some(pattern) => pattern.chars().count(),
        None => config.get("layers_block_type").and_then(Value::as_array).map_or(0, Vec::len),
    };
    Ok(Some(count as u64).filter(|count| (1..=MAX_LAYERS).contains(count)))
}

/// The width of a head: written, or hidden / heads. Latent attention sets it by its own keys.
fn head_width(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    hidden: u64,
    heads: u64,
) -> Result<u64, ScenarioError> {
    let keys = &family.keys;
    if family.is_latent() {
        return Ok(1);
    }
    // Nemotron-H once had another name for it.
    let other = Some("attention_head_dim").filter(|key| config.writes(key));
    let key = keys.head_dim.map(|key| other.unwrap_or(key));
    let own = key.map_or(Ok(None), |key| config.count(key, MAX_WIDTH))?;
    let written = key.is_some_and(|key| config.has(key));
    match own.or(family.head_dim.filter(|_| !written)) {
        Some(head_dim) => Ok(head_dim),
        None if hidden.is_multiple_of(heads) => Ok(hidden / heads),
        None => {
            let or = if keys.head_dim.is_some() { " (or a head_dim)" } else { "" };
            let wanted = format!("a divisor of {}, which is {hidden}, is wanted{or}", keys.hidden);
            Err(config.wrong(keys.heads, &wanted))
        }
    }
}

/// The network's width. Families with experts alone write only that of an expert; a list for each
/// layer is read by its family.
fn network_width(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    hidden: u64,
) -> Result<u64, ScenarioError> {
    const EXPERT: &str = "moe_intermediate_size";
    let key = family.keys.intermediate;
    if let Some(list) = config.get(key).and_then(Value::as_array) {
        let widths = list.iter().map(|width| width.as_u64().filter(|width| (1..=MAX_WIDTH).contains(width)));
        let widest = widths.collect::<Option<Vec<_>>>().and_then(|widths| widths.into_iter().max());
        return widest
            .ok_or_else(|| config.wrong(key, &format!("whole numbers from 1 to {MAX_WIDTH} are wanted")));
    }
    if let Some(width) = config.count(key, MAX_WIDTH)? {
        return Ok(width);
    }
    match config.get(EXPERT) {
        Some(Value::Number(_)) if !family.has_own_defaults() => {
            Ok(config.count(EXPERT, MAX_WIDTH)?.unwrap_or(hidden))
        }
        _ => Ok(family.intermediate.unwrap_or_else(|| MAX_WIDTH.min(4 * hidden))),
    }
}

/// The key of the longest context.
fn context_key(config: &DocumentSection<'_>, family: &FamilyDefaults) -> &'static str {
    const OTHERS: [&str; 3] = ["model_max_length", "max_sequence_length", "max_seq_len"];
    let own = family.keys.max_positions;
    if family.has_own_defaults() || config.writes(own) {
        return own;
    }
    OTHERS.into_iter().find(|key| config.get(key).is_some_and(Value::is_u64)).unwrap_or(own)
}

/// The norm's ε, under one of its names.
fn norm_eps(config: &DocumentSection<'_>, family: &FamilyDefaults) -> Result<f64, ScenarioError> {
    const OTHERS: [&str; 4] = ["norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"];
    let own = family.keys.norm_eps;
    let other = OTHERS.into_iter().find(|key| !family.has_own_defaults() && config.get(key).is_some());
    let key = if config.writes(own) { own } else { other.unwrap_or(own) };
    Ok(config.positive(key)?.unwrap_or(family.norm_eps))
}

/// Whether the head uses the token table. A multimodal file may say it outside of the language
/// model's mapping.
fn tied_embeddings(
    config: &DocumentSection<'_>,
    whole: &DocumentSection<'_>,
    family: &FamilyDefaults,
) -> Result<bool, ScenarioError> {
    const KEY: &str = "tie_word_embeddings";
    let at = if config.writes(KEY) || !whole.writes(KEY) { config } else { whole };
    Ok(at.flag(KEY)?.unwrap_or(family.tied))
}

/// `dtype` (transformers 5) or `torch_dtype` (transformers 4); without either it is float32.
pub(crate) fn dtype(config: &DocumentSection<'_>) -> Result<Option<DType>, ScenarioError> {
    let read = |key: &str| {
        let Some(text) = config.text(key)? else { return Ok(None) };
        Ok(Some(match text.strip_prefix("torch.").unwrap_or(text) {
            "float32" | "float" => DType::F32,
            "float16" | "half" => DType::F16,
            "bfloat16" => DType::Bf16,
            _ => return Err(config.wrong(key, "one of float32, float16, bfloat16 is wanted")),
        }))
    };
    match (read("dtype")?, read("torch_dtype")?) {
        (Some(new), Some(old)) if new != old => {
            Err(config.wrong("dtype", &format!("torch_dtype says {old}: the same format in both is wanted")))
        }
        (new, old) => Ok(new.or(old)),
    }
}

/// The non-linearity of a feed-forward network without a gate.
pub(crate) fn plain_activation(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
) -> Result<Activation, ScenarioError> {
    let key = family.keys.activation;
    match config.text(key)?.unwrap_or(family.activation) {
        "relu" => Ok(Activation::Relu),
        "gelu" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        _ => {
            let instead = "relu, gelu, gelu_new, gelu_fast and gelu_pytorch_tanh are";
            Err(config.unsupported(key, "this non-linearity", instead))
        }
    }
}
