//! Models from Hugging Face's `config.json`, in the spellings of transformers 4 and 5.
//!
//! Keys that do not change the shape of the computation (dropout, token ids, …) are ignored. Keys
//! that change it and are not supported are errors. Absent keys have the defaults of transformers'
//! configuration classes.

use crate::input::error::ScenarioError;
use crate::input::section::{DocumentSection, DocumentSource};
use crate::model::architecture::{Architecture, Norm};
use crate::model::config::experts::{dense_layers, read_experts, read_latent};
use crate::model::config::families::{FAMILIES, FamilyDefaults, REFUSED};
use crate::model::config::gemma::read_gemma;
use crate::model::config::gpt::read_gpt;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_WIDTH, dtype, plain_activation, sizes};
use crate::model::config::windows::read_windows;
use crate::model::positions::Positions;
use crate::model::transformer::Model;
use hwprofiles::DType;
use serde_json::Value;
use std::path::Path;

impl Model {
    /// Reads the text of a `config.json`. `name` becomes the model's name; messages call the text
    /// `file`.
    ///
    /// # Errors
    /// The text is not JSON; its `model_type` is unknown; a size has the wrong type or is out of
    /// range; or it has a feature that is not supported: sliding windows in layers without a
    /// regular pattern, experts in a family without experts, rotary scalings other than linear,
    /// Llama 3's, YaRN and LongRoPE, OPT with norms behind sublayers or projected embeddings,
    /// quantised checkpoints. Each error names `file`, key and value.
    pub fn from_config_json(name: &str, file: &str, text: &str) -> Result<Self, ScenarioError> {
        let value: Value = serde_json::from_str(text).map_err(|error| ScenarioError::Syntax {
            place: format!("{file}:{}", error.line()),
            reason: format!("not JSON: {error}"),
        })?;
        let source = DocumentSource::from_file(file);
        read(name, &DocumentSection::root(&source, &value)?)
    }

    /// Reads `config.json` in `folder`; the folder's name becomes the model's name.
    ///
    /// # Errors
    /// The file cannot be read, and the errors of [`Model::from_config_json`].
    pub fn from_folder(folder: &Path) -> Result<Self, ScenarioError> {
        let name = folder
            .file_name()
            .map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned());
        Self::from_config_file(&name, &folder.join("config.json"))
    }

    /// Reads the `config.json` at `path`.
    ///
    /// # Errors
    /// The errors of [`Model::from_folder`].
    pub fn from_config_file(name: &str, path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|reason| ScenarioError::Unreadable { path: path.to_owned(), reason })?;
        Self::from_config_json(name, &path.display().to_string(), &text)
    }
}

/// Reads the model from the root of the document.
fn read(name: &str, config: &DocumentSection<'_>) -> Result<Model, ScenarioError> {
    let supported = FAMILIES.map(|family| family.model_type).join(", ");
    let wanted = format!("the supported model types are {supported}");
    let model_type = config.text("model_type")?.ok_or_else(|| config.missing("model_type", &wanted))?;
    if let Some((_, feature)) = REFUSED.iter().find(|(other, _)| *other == model_type) {
        return Err(config.unsupported("model_type", feature, &wanted));
    }
    // The file of a multimodal model has the language model in a mapping of its own.
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
        Architecture::Opt => read_opt(config, family, &mut model)?,
        Architecture::Phi | Architecture::GptNeoX | Architecture::GptJ | Architecture::Falcon => {
            read_gpt(config, family, &mut model)?;
        }
        _ => read_llama(config, family, &mut model)?,
    }
    let windows = read_windows(config, family, &model)?;
    let dense = dense_layers(config, &model)?;
    let layer = |layer: u64| {
        let mut shape = model.clone();
        shape.wiring.window = windows.get(layer as usize).copied().flatten();
        if layer < dense {
            shape.experts = None;
        }
        shape
    };
    let layers = (0..model.layers).map(layer).collect();
    Ok(model.with_layers(layers))
}

/// The published checkpoints of gpt-oss and DeepSeek-V3 are in mxfp4 and fp8; these are accepted,
/// because only the shape is read, as bf16. The scenario chooses the formats of a run.
fn refuse_quantisation(config: &DocumentSection<'_>, family: &FamilyDefaults) -> Result<(), ScenarioError> {
    const KEY: &str = "quantization_config";
    let published = match family.architecture {
        Architecture::GptOss => Some("mxfp4"),
        Architecture::DeepSeekV3 => Some("fp8"),
        _ => None,
    };
    let Some(quantised) = config.get(KEY) else { return Ok(()) };
    if published.is_some() && quantised.get("quant_method").and_then(Value::as_str) == published {
        return Ok(());
    }
    Err(config.unsupported(
        KEY,
        "a quantised checkpoint",
        "use one in float32, float16 or bfloat16; Fulcrum quantises by itself (dtype: {weights: int4})",
    ))
}

/// Reads what Llama and the families derived from it add to the sizes.
fn read_llama(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<(), ScenarioError> {
    match family.architecture {
        Architecture::Gemma | Architecture::Gemma2 | Architecture::Gemma3 => {
            read_gemma(config, family, model)?;
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
    read_rotary(config, family, model)?;
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
            model.wiring.sinks = true;
            model.wiring.gate_limit = Some(config.positive("swiglu_limit")?.unwrap_or(7.0));
            if config.positive("swiglu_alpha")?.is_some_and(|alpha| alpha != 1.702) {
                return Err(config.unsupported("swiglu_alpha", "another slope of the gate", "only 1.702 is"));
            }
        }
        "qwen3" | "qwen3_moe" | "gemma3_text" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.qk_norm = true;
        }
        _ => {}
    }
    Ok(())
}

/// Reads what OPT adds to the sizes.
fn read_opt(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<(), ScenarioError> {
    for (key, allowed, feature, instead) in [
        ("do_layer_norm_before", true, "a norm behind each sublayer", "only norms in front are (true)"),
        ("_remove_final_layer_norm", false, "a missing final norm", "only false is"),
        ("layer_norm_elementwise_affine", true, "a norm without weights", "only true is"),
    ] {
        if config.flag(key)?.unwrap_or(allowed) != allowed {
            return Err(config.unsupported(key, feature, instead));
        }
    }
    if config.count("word_embed_proj_dim", MAX_WIDTH)?.is_some_and(|width| width != model.hidden) {
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
