//! Models from Hugging Face's `config.json`, in the spellings of transformers 4 and 5.
//!
//! Keys that do not change the shape of the computation (dropout, token ids, …) are passed over; those
//! that do and are not supported are refused by name. Absent keys have the defaults of transformers'
//! configuration classes.

use crate::config_experts::{read_experts, read_latent};
use crate::error::ScenarioError;
use crate::family::{Defaults, FAMILIES};
use crate::model::{Activation, Architecture, Llama3Scaling, Model, Norm, Positions, YarnScaling};
use crate::section::{Origin, Section};
use hwprofiles::DType;
use serde_json::Value;
use std::path::Path;

// Sizes beyond these are typing errors; within them every product that `Work` forms for one token, in
// bytes and over all layers, stays below 2⁶³ (vocab · hidden · 4 = 2⁴⁶, layers · matrices · 4 < 2⁶²,
// positions · hidden · 4 = 2⁵⁴).
pub(crate) const WIDEST: u64 = 1 << 20;
const DEEPEST: u64 = 1 << 16;
const LARGEST_VOCAB: u64 = 1 << 24;
const LONGEST_CONTEXT: u64 = 1 << 32;

impl Model {
    /// The model of a `config.json`'s text. `name` becomes the model's name, `file` is what messages call the text.
    ///
    /// # Errors
    /// Not JSON; an unknown `model_type`; a size of the wrong type or out of range; a feature that cannot be
    /// placed (sliding windows in use, experts in another family's layers, other rotary scalings than Llama 3's or
    /// YaRN, OPT with norms behind or projected embeddings, quantised checkpoints). Each names `file`, key and value.
    pub fn from_config_json(name: &str, file: &str, text: &str) -> Result<Self, ScenarioError> {
        let value: Value = serde_json::from_str(text).map_err(|error| ScenarioError::Syntax {
            place: format!("{file}:{}", error.line()),
            reason: format!("not JSON: {error}"),
        })?;
        let origin = Origin::file(file);
        read(name, &Section::root(&origin, &value)?)
    }

    /// The model whose `config.json` is in `folder`, named after the folder.
    ///
    /// # Errors
    /// The file cannot be read, and all of [`Model::from_config_json`].
    pub fn from_folder(folder: &Path) -> Result<Self, ScenarioError> {
        let name = folder
            .file_name()
            .map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned());
        Self::from_config_file(&name, &folder.join("config.json"))
    }

    /// The model of the `config.json` at `path`.
    ///
    /// # Errors
    /// Those of [`Model::from_folder`].
    pub fn from_config_file(name: &str, path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|reason| ScenarioError::Unreadable { path: path.to_owned(), reason })?;
        Self::from_config_json(name, &path.display().to_string(), &text)
    }
}

fn read(name: &str, config: &Section<'_>) -> Result<Model, ScenarioError> {
    let supported = FAMILIES.map(|family| family.model_type).join(", ");
    let wanted = format!("the supported model types are {supported}");
    let model_type = config.text("model_type")?.ok_or_else(|| config.missing("model_type", &wanted))?;
    let family = FAMILIES
        .into_iter()
        .find(|family| family.model_type == model_type)
        .ok_or_else(|| config.wrong("model_type", &wanted))?;
    refuse_quantisation(config, family)?;
    let mut model = sizes(name, config, family)?;
    read_latent(config, &mut model)?;
    read_experts(config, &mut model)?;
    match family.architecture {
        Architecture::Opt => finish_opt(config, &mut model)?,
        _ => finish_llama(config, family, &mut model)?,
    }
    Ok(model)
}

/// The published checkpoints of gpt-oss and DeepSeek-V3 are in mxfp4 and fp8. Only their shapes are read, in bf16:
/// the formats of a run are the scenario's.
fn refuse_quantisation(config: &Section<'_>, family: &Defaults) -> Result<(), ScenarioError> {
    const KEY: &str = "quantization_config";
    let published = match family.architecture {
        Architecture::GptOss => "mxfp4",
        Architecture::DeepSeekV3 => "fp8",
        _ => "",
    };
    let Some(quantised) = config.get(KEY) else { return Ok(()) };
    if quantised.get("quant_method").and_then(Value::as_str) == Some(published) {
        return Ok(());
    }
    Err(config.unsupported(
        KEY,
        "a quantised checkpoint",
        "use one in float32, float16 or bfloat16; Fulcrum quantises by itself (dtype: {weights: int4})",
    ))
}

/// Everything that all families share; the rest as Llama has it.
fn sizes(name: &str, config: &Section<'_>, family: &Defaults) -> Result<Model, ScenarioError> {
    let count = |key: &str, limit: u64, default: u64| Ok(config.count(key, limit)?.unwrap_or(default));
    let opt = family.architecture == Architecture::Opt;
    let hidden = count("hidden_size", WIDEST, family.hidden)?;
    let heads = count("num_attention_heads", WIDEST, family.heads)?;
    let kv_heads = match config.count("num_key_value_heads", WIDEST)? {
        _ if opt => heads,
        Some(kv_heads) => kv_heads,
        None if config.has("num_key_value_heads") => heads,
        None => family.kv_heads.unwrap_or(heads),
    };
    if !heads.is_multiple_of(kv_heads) {
        let wanted = format!("a divisor of num_attention_heads, which is {heads}, is wanted");
        return Err(config.wrong("num_key_value_heads", &wanted));
    }
    let head_dim = match config.count("head_dim", WIDEST)? {
        Some(head_dim) if !opt => head_dim,
        None if family.head_dim.is_some() && !config.has("head_dim") => family.head_dim.unwrap_or(1),
        _ if hidden % heads == 0 => hidden / heads,
        _ => {
            let wanted = format!("a divisor of hidden_size, which is {hidden}, is wanted (or a head_dim)");
            return Err(config.wrong("num_attention_heads", &wanted));
        }
    };
    if heads * head_dim > WIDEST {
        let wanted =
            format!("num_attention_heads · head_dim is {}, at most {WIDEST} is allowed", heads * head_dim);
        return Err(config.wrong("num_attention_heads", &wanted));
    }
    Ok(Model {
        name: name.to_owned(),
        architecture: family.architecture,
        hidden,
        layers: count("num_hidden_layers", DEEPEST, family.layers)?,
        heads,
        kv_heads,
        head_dim,
        intermediate: count(if opt { "ffn_dim" } else { "intermediate_size" }, WIDEST, family.intermediate)?,
        vocab: count("vocab_size", LARGEST_VOCAB, family.vocab)?,
        max_positions: count("max_position_embeddings", LONGEST_CONTEXT, family.max_positions)?,
        norm: Norm::Rms,
        norm_eps: 1e-6,
        activation: Activation::SiluGated,
        positions: Positions::Rotary { theta: 10000.0, scaling: None },
        qkv_bias: false,
        out_bias: false,
        ffn_bias: false,
        qk_norm: false,
        tied_embeddings: config.flag("tie_word_embeddings")?.unwrap_or(opt),
        dtype: dtype(config)?,
        experts: None,
        latent: None,
    })
}

/// `dtype` of transformers 5, else `torch_dtype`; a file without either means float32.
fn dtype(config: &Section<'_>) -> Result<DType, ScenarioError> {
    let key = if config.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
    let Some(text) = config.text(key)? else { return Ok(DType::F32) };
    match text.strip_prefix("torch.").unwrap_or(text) {
        "float32" | "float" => Ok(DType::F32),
        "float16" | "half" => Ok(DType::F16),
        "bfloat16" => Ok(DType::Bf16),
        _ => Err(config.wrong(key, "one of float32, float16, bfloat16 is wanted")),
    }
}

fn finish_llama(config: &Section<'_>, family: &Defaults, model: &mut Model) -> Result<(), ScenarioError> {
    match config.text("hidden_act")?.unwrap_or("silu") {
        "silu" | "swish" => {}
        _ => return Err(config.unsupported("hidden_act", "another gate than SiLU", "use silu")),
    }
    model.norm_eps = config.positive("rms_norm_eps")?.unwrap_or(1e-6);
    if !model.head_dim.is_multiple_of(2) {
        let key = if config.get("head_dim").is_some() { "head_dim" } else { "num_attention_heads" };
        let wanted = format!("the head's width is {}: rotary positions need an even one", model.head_dim);
        return Err(config.wrong(key, &wanted));
    }
    model.positions = rotary(config, model)?;
    refuse_windows(config, family, model)?;
    let biased = family.architecture == Architecture::GptOss;
    let attention_bias = config.flag("attention_bias")?.unwrap_or(biased);
    match family.model_type {
        "llama" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.ffn_bias = config.flag("mlp_bias")?.unwrap_or(false);
        }
        "qwen2" => model.qkv_bias = true,
        "gpt_oss" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.ffn_bias = true;
        }
        "qwen3" | "qwen3_moe" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.qk_norm = true;
        }
        _ => {}
    }
    Ok(())
}

/// `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling`. A theta within the mapping wins.
fn rotary(config: &Section<'_>, model: &Model) -> Result<Positions, ScenarioError> {
    const INSTEAD: &str = "rope_type default and llama3 are";
    let yarn = model.latent.is_some() || model.architecture == Architecture::GptOss;
    let outer_theta = config.positive("rope_theta")?;
    if config.positive("partial_rotary_factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(config.unsupported("partial_rotary_factor", "partial rotation", "only 1.0 is"));
    }
    let key = if config.get("rope_scaling").is_some() { "rope_scaling" } else { "rope_parameters" };
    let Some(rope) = config.section(key)? else {
        return Ok(Positions::Rotary { theta: outer_theta.unwrap_or(10000.0), scaling: None });
    };
    let theta = rope.positive("rope_theta")?.or(outer_theta).unwrap_or(10000.0);
    if rope.positive("partial_rotary_factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(rope.unsupported("partial_rotary_factor", "partial rotation", "only 1.0 is"));
    }
    let type_key = if rope.get("rope_type").is_some() { "rope_type" } else { "type" };
    let scaling = match rope.text(type_key)?.unwrap_or("default") {
        "default" => match ["full_attention", "sliding_attention"].into_iter().find(|key| rope.has(key)) {
            Some(key) => return Err(rope.unsupported(key, "a rotation for each kind of layer", INSTEAD)),
            None => None,
        },
        "llama3" => {
            let need = |key: &str| {
                rope.positive(key)?.ok_or_else(|| rope.missing(key, "llama3 needs it, a number above 0"))
            };
            Some(Llama3Scaling {
                factor: need("factor")?,
                low_freq_factor: need("low_freq_factor")?,
                high_freq_factor: need("high_freq_factor")?,
                original_max_positions: rope
                    .count("original_max_position_embeddings", LONGEST_CONTEXT)?
                    .unwrap_or(model.max_positions),
            })
        }
        "yarn" if yarn => {
            let need = |key: &str| {
                rope.positive(key)?.ok_or_else(|| rope.missing(key, "yarn needs it, a number above 0"))
            };
            let original = rope.count("original_max_position_embeddings", LONGEST_CONTEXT)?;
            let scaling = YarnScaling {
                factor: need("factor")?,
                original_max_positions: original.unwrap_or(model.max_positions),
                beta_fast: rope.positive("beta_fast")?.unwrap_or(32.0),
                beta_slow: rope.positive("beta_slow")?.unwrap_or(1.0),
            };
            return Ok(Positions::Yarn { theta, scaling });
        }
        _ => return Err(rope.unsupported(type_key, "this rotary scaling", INSTEAD)),
    };
    if let Some(Llama3Scaling { low_freq_factor, high_freq_factor, .. }) = scaling
        && high_freq_factor <= low_freq_factor
    {
        let wanted = format!("a number above low_freq_factor, which is {low_freq_factor}, is wanted");
        return Err(rope.wrong("high_freq_factor", &wanted));
    }
    Ok(Positions::Rotary { theta, scaling })
}

/// A window that is in use, that is shorter than the longest context, is refused.
fn refuse_windows(config: &Section<'_>, family: &Defaults, model: &Model) -> Result<(), ScenarioError> {
    const FEATURE: &str = "a sliding window";
    const INSTEAD: &str = "every layer must attend to the whole context";
    // Every second layer of gpt-oss has a window of 128 tokens: it is counted as if it had none.
    if model.architecture == Architecture::GptOss || model.latent.is_some() {
        return Ok(());
    }
    if let Some(types) = config.get("layer_types") {
        let layer_types: Vec<&str> =
            types.as_array().into_iter().flatten().filter_map(|kind| kind.as_str()).collect();
        if layer_types.len() as u64 != model.layers
            || types.as_array().is_none_or(|t| t.len() != layer_types.len())
        {
            return Err(config
                .wrong("layer_types", &format!("one text for each of {} layers is wanted", model.layers)));
        }
        if layer_types.iter().any(|&kind| kind != "full_attention") {
            return Err(config.unsupported("layer_types", "a layer that is not full_attention", INSTEAD));
        }
    }
    let default = match family.model_type {
        "llama" => return Ok(()),
        // Absent means 4096 in MistralConfig; null means none.
        "mixtral" => None,
        "mistral" if config.has("sliding_window") => None,
        "mistral" => Some(4096),
        _ if !config.flag("use_sliding_window")?.unwrap_or(false) => return Ok(()),
        _ if config.has("sliding_window") => None,
        _ => Some(4096),
    };
    let Some(window) = config.count("sliding_window", LONGEST_CONTEXT)?.or(default) else { return Ok(()) };
    let first = match family.model_type {
        "mistral" | "mixtral" => 0,
        // Layers from this one on have the window.
        _ => match config.get("max_window_layers").map(Value::as_u64) {
            None => 28,
            Some(Some(first)) => first,
            Some(None) => return Err(config.wrong("max_window_layers", "a whole number from 0 is wanted")),
        },
    };
    if window < model.max_positions && first < model.layers && config.get("layer_types").is_none() {
        let feature = format!("{FEATURE} of {window} tokens (context: {})", model.max_positions);
        return Err(config.unsupported("sliding_window", &feature, INSTEAD));
    }
    Ok(())
}

fn finish_opt(config: &Section<'_>, model: &mut Model) -> Result<(), ScenarioError> {
    for (key, allowed, feature, instead) in [
        ("do_layer_norm_before", true, "a norm behind each sublayer", "only norms in front are (true)"),
        ("_remove_final_layer_norm", false, "a missing final norm", "only false is"),
        ("layer_norm_elementwise_affine", true, "a norm without weights", "only true is"),
    ] {
        if config.flag(key)?.unwrap_or(allowed) != allowed {
            return Err(config.unsupported(key, feature, instead));
        }
    }
    if config.count("word_embed_proj_dim", WIDEST)?.is_some_and(|width| width != model.hidden) {
        let instead = format!("it must equal hidden_size, which is {}", model.hidden);
        return Err(config.unsupported("word_embed_proj_dim", "a projection of the embeddings", &instead));
    }
    model.activation = match config.text("activation_function")?.unwrap_or("relu") {
        "relu" => Activation::Relu,
        "gelu" => Activation::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
        _ => {
            let instead = "relu, gelu, gelu_new and gelu_pytorch_tanh are";
            return Err(config.unsupported("activation_function", "this non-linearity", instead));
        }
    };
    let bias = config.flag("enable_bias")?.unwrap_or(true);
    (model.qkv_bias, model.out_bias, model.ffn_bias) = (bias, bias, bias);
    model.norm = Norm::Layer;
    model.norm_eps = 1e-5;
    model.positions = Positions::Learned { offset: 2 };
    Ok(())
}
