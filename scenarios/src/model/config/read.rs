//! Models from Hugging Face's `config.json`, in the spellings of transformers 4 and 5.
//!
//! Keys that do not change the shape of the computation (dropout, token ids, …) are ignored. Keys
//! that change it and are not supported are errors. Absent keys have the defaults of transformers'
//! configuration classes.

use crate::input::error::ScenarioError;
use crate::input::section::{DocumentSection, DocumentSource};
use crate::model::config::families::family::{FamilyDefaults, FamilyReader};
use crate::model::config::families::nearest::unknown_type;
use crate::model::config::families::wrappers::language_model;
use crate::model::config::misspelt::refuse_misspelt;
use crate::model::config::readers::compressed::read_compressed;
use crate::model::config::readers::decoder::read_decoder;
use crate::model::config::readers::gated_delta::read_gated_delta;
use crate::model::config::readers::gpt::read_gpt;
use crate::model::config::readers::kimi_delta::read_kimi_delta;
use crate::model::config::readers::latent::read_latent_family;
use crate::model::config::readers::layered_gemma::read_layered_gemma;
use crate::model::config::readers::llama::{read_llama, read_opt, refuse_experts, with_experts_in};
use crate::model::config::readers::llama4::read_llama4;
use crate::model::config::readers::mamba::read_mamba;
use crate::model::config::readers::mimo::read_mimo;
use crate::model::config::readers::minimax_m3::read_minimax_m3;
use crate::model::config::readers::one_sublayer::read_one_sublayer;
use crate::model::config::readers::short_convolution::read_short_convolution;
use crate::model::config::sizes::{dtype, sizes};
use crate::model::config::windows::read_windows;
use crate::model::transformer::Model;
use hwprofiles::DType;
use serde_json::Value;
use std::path::Path;

/// The key of a checkpoint's number formats.
const QUANTISATION: &str = "quantization_config";

impl Model {
    /// Reads the text of a `config.json`. `name` becomes the model's name; messages call the text
    /// `file`.
    ///
    /// # Errors
    /// The text is not JSON; its `model_type` is unknown; a multimodal file has no mapping of a
    /// language model; a size has the wrong type or is out of range; two keys contradict each
    /// other; or it has a feature that is not supported: rotary scalings other than linear, Llama
    /// 3's, YaRN and LongRoPE, OPT with norms behind sublayers or projected embeddings. Each error
    /// names `file`, key and value.
    pub fn from_config_json(name: &str, file: &str, text: &str) -> Result<Self, ScenarioError> {
        let value: Value =
            serde_json::from_str(&without_infinities(text)).map_err(|error| ScenarioError::Syntax {
                place: format!("{file}:{}", error.line()),
                reason: format!("not JSON: {error}"),
            })?;
        let source = DocumentSource::from_file(file);
        let root = DocumentSection::root(&source, &value)?;
        let model = read(name, &root)?;
        // The file of a multimodal model may have the key inside or outside of the language model.
        let inner = value.get("text_config").filter(|_| value.get(QUANTISATION).is_none());
        let published = model.published_formats(inner.unwrap_or(&value));
        let published = published.map_err(|why| root.wrong(QUANTISATION, &why))?;
        Ok(Self { published: published.map(|formats| Box::new(formats.into())), ..model })
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
        let text = hwprofiles::read_text(path)
            .map_err(|reason| ScenarioError::Unreadable { path: path.to_owned(), reason })?;
        Self::from_config_json(name, &path.display().to_string(), &text)
    }
}

/// Python writes infinite numbers and NaN into JSON, which has none. They become texts, so that
/// whoever reads such a key refuses it; other texts stay as they are.
fn without_infinities(text: &str) -> String {
    const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    let mut found = String::with_capacity(text.len());
    let (mut rest, mut quoted) = (text, false);
    while let Some(first) = rest.chars().next() {
        if let Some(after) = WORDS.into_iter().find_map(|word| rest.strip_prefix(word)).filter(|_| !quoted) {
            found.push('"');
            found.push_str(&rest[..rest.len() - after.len()]);
            found.push('"');
            rest = after;
            continue;
        }
        // An escaped character never ends a text.
        let next = rest.chars().nth(1).filter(|_| quoted && first == '\\');
        quoted ^= first == '"';
        let (begin, after) = rest.split_at(first.len_utf8() + next.map_or(0, char::len_utf8));
        found.push_str(begin);
        rest = after;
    }
    found
}

/// Reads the model from the root of the document.
fn read(name: &str, whole: &DocumentSection<'_>) -> Result<Model, ScenarioError> {
    let wanted = "a text is wanted, such as llama, qwen3 or deepseek_v3";
    let outer = whole.text("model_type")?.ok_or_else(|| whole.missing("model_type", wanted))?;
    let inner = language_model(whole, outer)?;
    let (config, model_type) = inner.unwrap_or((*whole, outer));
    let family = FamilyDefaults::find(model_type).ok_or_else(|| {
        let known = config.get("model_type").is_some();
        unknown_type(if known { &config } else { whole }, model_type)
    })?;
    let config = &config.with_defaults(family.class_defaults());
    refuse_misspelt(config, family)?;
    let mut model = sizes(name, config, whole, family)?;
    model.dtype = dtype(config)?.or(dtype(whole)?).unwrap_or(DType::F32);
    let mut layers = read_layers(config, family, &mut model)?;
    for (layer, window) in layers.iter_mut().zip(read_windows(config, family, &model)?) {
        layer.wiring.window = window;
    }
    // A file may state a rotation for windows that its family has not.
    if !family.has_own_defaults() && layers.iter().all(|layer| layer.wiring.window.is_none()) {
        let all = layers.iter_mut().chain([&mut model]);
        all.for_each(|shape| shape.wiring.window_theta = None);
    }
    Ok(model.with_layers(layers))
}

/// Reads what the family adds to the sizes; returns the shape of each layer. Windows are added
/// afterwards where [`read_windows`] knows them.
fn read_layers(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    match family.reader {
        FamilyReader::Llama => read_llama(config, family, model),
        FamilyReader::Opt => {
            refuse_experts(config)?;
            read_opt(config, family, model)?;
            Ok(with_experts_in(model, &[]))
        }
        FamilyReader::Gpt => {
            refuse_experts(config)?;
            read_gpt(config, family, model)?;
            Ok(with_experts_in(model, &[]))
        }
        FamilyReader::Decoder(wiring) => read_decoder(config, family, wiring, model),
        FamilyReader::Latent => read_latent_family(config, family, model),
        FamilyReader::Compressed => read_compressed(config, family, model),
        FamilyReader::KimiDelta => read_kimi_delta(config, family, model),
        FamilyReader::GatedDelta => read_gated_delta(config, family, model),
        FamilyReader::OneSublayer => read_one_sublayer(config, family, model),
        FamilyReader::Mamba => read_mamba(config, family, model),
        FamilyReader::ShortConvolution => read_short_convolution(config, family, model),
        FamilyReader::Llama4 => read_llama4(config, family, model),
        FamilyReader::LayeredGemma => read_layered_gemma(config, family, model),
        FamilyReader::MiMo => read_mimo(config, family, model),
        FamilyReader::MiniMaxM3 => read_minimax_m3(config, family, model),
    }
}
