//! Models from Hugging Face's `config.json`, in the spellings of transformers 4 and 5.
//!
//! Keys that do not change the shape of the computation (dropout, token ids, …) are passed over; those
//! that do and are not supported are refused by name. Absent keys have the defaults of transformers'
//! configuration classes.

use crate::input::error::ScenarioError;
use crate::input::section::{Origin, Section};
use crate::model::config::experts::{read_experts, read_latent};
use crate::model::config::families::{Defaults, FAMILIES, OTHERS};
use crate::model::config::gemma::make_gemma;
use crate::model::config::gpt::finish_gpt;
use crate::model::config::rotary::rotary;
use crate::model::config::windows::window;
use crate::model::transformer::{Activation, Architecture, Model, Norm, Positions};
use crate::model::wiring::Wiring;
use hwprofiles::DType;
use serde_json::Value;
use std::path::Path;

// Sizes beyond these are typing errors; within them every product that `Work` forms for one token, in
// bytes and over all layers, stays below 2⁶³ (vocab · hidden · 4 = 2⁴⁶, layers · matrices · 4 < 2⁶²,
// positions · hidden · 4 = 2⁵⁴).
pub(crate) const WIDEST: u64 = 1 << 20;
const DEEPEST: u64 = 1 << 16;
const LARGEST_VOCAB: u64 = 1 << 24;
pub(crate) const LONGEST_CONTEXT: u64 = 1 << 32;

impl Model {
    /// The model of a `config.json`'s text. `name` becomes the model's name, `file` is what messages call the text.
    ///
    /// # Errors
    /// Not JSON; an unknown `model_type`; a size of the wrong type or out of range; a feature that cannot be
    /// placed (windows in layers that keep to no pattern, experts in another family's layers, other rotary scalings than
    /// linear, Llama 3's or YaRN, OPT with norms behind or projected embeddings, quantised checkpoints). Each names `file`, key and value.
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
    if let Some((_, feature)) = OTHERS.iter().find(|(other, _)| *other == model_type) {
        return Err(config.unsupported("model_type", feature, &wanted));
    }
    // What a file says of a model for images too is that of its part for text.
    let whole = config;
    let text = if model_type == "gemma3" { config.section("text_config")? } else { None };
    let (config, model_type) = text.as_ref().map_or((config, model_type), |text| (text, "gemma3_text"));
    let family = FAMILIES
        .into_iter()
        .find(|family| family.model_type == model_type)
        .ok_or_else(|| whole.wrong("model_type", &wanted))?;
    refuse_quantisation(whole, family)?;
    let mut model = sizes(name, config, family)?;
    model.dtype = dtype(config)?.or(dtype(whole)?).unwrap_or(DType::F32);
    read_latent(config, &mut model)?;
    read_experts(config, &mut model)?;
    match family.architecture {
        Architecture::Opt => finish_opt(config, family, &mut model)?,
        Architecture::Phi | Architecture::GptNeoX | Architecture::GptJ | Architecture::Falcon => {
            finish_gpt(config, family, &mut model)?;
        }
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
    let keys = &family.keys;
    let hidden = count(keys.hidden, WIDEST, family.hidden)?;
    let heads = count(keys.heads, WIDEST, family.heads)?;
    let kv_heads = match keys.kv_heads {
        None => heads,
        Some(key) => match config.count(key, WIDEST)? {
            Some(kv_heads) => kv_heads,
            None if config.has(key) => heads,
            None => family.kv_heads.unwrap_or(heads),
        },
    };
    if !heads.is_multiple_of(kv_heads) {
        let wanted = format!("a divisor of {}, which is {heads}, is wanted", keys.heads);
        return Err(config.wrong(keys.kv_heads.unwrap_or(keys.heads), &wanted));
    }
    let own = keys.head_dim.map_or(Ok(None), |key| config.count(key, WIDEST))?;
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
    if heads * head_dim > WIDEST {
        let wanted =
            format!("{} · head_dim is {}, at most {WIDEST} is allowed", keys.heads, heads * head_dim);
        return Err(config.wrong(keys.heads, &wanted));
    }
    Ok(Model {
        name: name.to_owned(),
        architecture: family.architecture,
        hidden,
        layers: count(keys.layers, DEEPEST, family.layers)?,
        heads,
        kv_heads,
        head_dim,
        intermediate: count(
            keys.intermediate,
            WIDEST,
            family.intermediate.unwrap_or_else(|| WIDEST.min(4 * hidden)),
        )?,
        vocab: count("vocab_size", LARGEST_VOCAB, family.vocab)?,
        max_positions: count(keys.max_positions, LONGEST_CONTEXT, family.max_positions)?,
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
        latent: None,
        wiring: Wiring::default(),
    })
}

/// `dtype` of transformers 5, else `torch_dtype`; a file without either means float32.
fn dtype(config: &Section<'_>) -> Result<Option<DType>, ScenarioError> {
    let key = if config.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
    let Some(text) = config.text(key)? else { return Ok(None) };
    Ok(Some(match text.strip_prefix("torch.").unwrap_or(text) {
        "float32" | "float" => DType::F32,
        "float16" | "half" => DType::F16,
        "bfloat16" => DType::Bf16,
        _ => return Err(config.wrong(key, "one of float32, float16, bfloat16 is wanted")),
    }))
}

fn finish_llama(config: &Section<'_>, family: &Defaults, model: &mut Model) -> Result<(), ScenarioError> {
    match family.architecture {
        Architecture::Gemma | Architecture::Gemma2 | Architecture::Gemma3 => {
            make_gemma(config, family, model)?;
        }
        _ => match config.text("hidden_act")?.unwrap_or(family.activation) {
            "silu" | "swish" => {}
            _ => return Err(config.unsupported("hidden_act", "another gate than SiLU", "use silu")),
        },
    }
    if !model.head_dim.is_multiple_of(2) {
        let key = if config.get("head_dim").is_some() { "head_dim" } else { "num_attention_heads" };
        let wanted = format!("the head's width is {}: rotary positions need an even one", model.head_dim);
        return Err(config.wrong(key, &wanted));
    }
    rotary(config, family, model)?;
    model.wiring.window = window(config, family, model)?;
    let biased = family.architecture == Architecture::GptOss;
    let attention_bias = config.flag("attention_bias")?.unwrap_or(biased);
    match family.model_type {
        "gemma" | "gemma2" => (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias),
        "llama" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.ffn_bias = config.flag("mlp_bias")?.unwrap_or(false);
        }
        "qwen2" => model.qkv_bias = true,
        "gpt_oss" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.ffn_bias = true;
        }
        "qwen3" | "qwen3_moe" | "gemma3_text" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.qk_norm = true;
        }
        _ => {}
    }
    Ok(())
}

/// The non-linearity of a network without a gate.
pub(crate) fn plain_activation(config: &Section<'_>, family: &Defaults) -> Result<Activation, ScenarioError> {
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

fn finish_opt(config: &Section<'_>, family: &Defaults, model: &mut Model) -> Result<(), ScenarioError> {
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
    model.activation = plain_activation(config, family)?;
    let bias = config.flag("enable_bias")?.unwrap_or(true);
    (model.qkv_bias, model.out_bias, model.ffn_bias) = (bias, bias, bias);
    model.norm = Norm::Layer;
    model.norm_eps = 1e-5;
    model.positions = Positions::Learned { offset: 2 };
    Ok(())
}
