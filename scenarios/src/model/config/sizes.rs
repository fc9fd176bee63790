//! What all families share in a `config.json`: sizes and their limits, number format,
//! non-linearity.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Activation, Norm};
use crate::model::config::families::FamilyDefaults;
use crate::model::layer_shapes::LayerShapes;
use crate::model::mixer::Mixer;
use crate::model::positions::Positions;
use crate::model::transformer::Model;
use crate::model::wiring::Wiring;
use hwprofiles::DType;

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
    family: &FamilyDefaults,
) -> Result<Model, ScenarioError> {
    let count = |key: &str, limit: u64, default: u64| Ok(config.count(key, limit)?.unwrap_or(default));
    let keys = &family.keys;
    let hidden = count(keys.hidden, MAX_WIDTH, family.hidden)?;
    let heads = count(keys.heads, MAX_WIDTH, family.heads)?;
    let kv_heads = match keys.kv_heads {
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
    let own = keys.head_dim.map_or(Ok(None), |key| config.count(key, MAX_WIDTH))?;
    let written = keys.head_dim.is_some_and(|key| config.has(key));
    let head_dim = match own.or(family.head_dim.filter(|_| !written)) {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let or = if keys.head_dim.is_some() { " (or a head_dim)" } else { "" };
            let wanted = format!("a divisor of {}, which is {hidden}, is wanted{or}", keys.hidden);
            return Err(config.wrong(keys.heads, &wanted));
        }
    };
    if heads * head_dim > MAX_WIDTH {
        let wanted =
            format!("{} · head_dim is {}, at most {MAX_WIDTH} is allowed", keys.heads, heads * head_dim);
        return Err(config.wrong(keys.heads, &wanted));
    }
    Ok(Model {
        name: name.to_owned(),
        architecture: family.architecture,
        hidden,
        layers: count(keys.layers, MAX_LAYERS, family.layers)?,
        heads,
        kv_heads,
        head_dim,
        intermediate: count(
            keys.intermediate,
            MAX_WIDTH,
            family.intermediate.unwrap_or_else(|| MAX_WIDTH.min(4 * hidden)),
        )?,
        vocab: count("vocab_size", MAX_VOCAB, family.vocab)?,
        max_positions: count(keys.max_positions, MAX_CONTEXT, family.max_positions)?,
        norm: Norm::Rms,
        norm_eps: config.positive(keys.norm_eps)?.unwrap_or(family.norm_eps),
        activation: Activation::SiluGated,
        positions: Positions::Rotary { theta: 10000.0, scaling: None },
        qkv_bias: false,
        out_bias: false,
        ffn_bias: false,
        qk_norm: false,
        tied_embeddings: config.flag("tie_word_embeddings")?.unwrap_or(family.tied),
        dtype: DType::F32,
        experts: None,
        mixer: Mixer::Attention,
        index: None,
        wiring: Wiring::default(),
        mtp: 0,
        shapes: LayerShapes::default(),
    })
}

/// `dtype` (transformers 5) or `torch_dtype` (transformers 4); without either it is float32.
pub(crate) fn dtype(config: &DocumentSection<'_>) -> Result<Option<DType>, ScenarioError> {
    let key = if config.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
    let Some(text) = config.text(key)? else { return Ok(None) };
    Ok(Some(match text.strip_prefix("torch.").unwrap_or(text) {
        "float32" | "float" => DType::F32,
        "float16" | "half" => DType::F16,
        "bfloat16" => DType::Bf16,
        _ => return Err(config.wrong(key, "one of float32, float16, bfloat16 is wanted")),
    }))
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
