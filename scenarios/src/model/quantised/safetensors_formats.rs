//! The formats of a published safetensors checkpoint by class, from the `quantization_config` of
//! its `config.json`.
//!
//! Methods: `fp8` (one scale per matrix, or blocks of 128 × 128), `mxfp4`, `modelopt` (NVFP4, FP8
//! and mixtures by layer), `compressed-tensors` (integers and floats by group), `gptq` and `awq`;
//! and DeepSeek-V4's `expert_dtype`. Only linear layers are quantised: token tables keep the
//! model's own format, and so do modules that the file excludes.

use crate::model::formats::weight_format::WeightFormat;
use crate::model::operators::formats::{WeightClass, WeightFormats};
use crate::model::operators::sublayer::Sublayer;
use crate::model::quantised::modules::{WeightModule, modules};
use crate::model::transformer::Model;
use hwprofiles::DType;
use serde_json::Value;

/// The methods that are read, for messages.
const METHODS: &str = "fp8, mxfp4, modelopt, compressed-tensors, gptq and awq";

impl Model {
    /// The formats in which the checkpoint with this `config.json` holds the weights; `None` where
    /// nothing is quantised. `self` is the model that was read from it.
    ///
    /// # Errors
    /// The method is not known, or has bits or groups for which there is no format.
    pub fn published_formats(&self, config: &Value) -> Result<Option<WeightFormats>, String> {
        Scheme::read(config)?.map(|scheme| scheme.formats(self)).transpose()
    }
}

/// Which modules are quantised, and how.
#[derive(Debug, Default)]
pub(super) struct Scheme {
    /// The format of linear layers that no other rule names.
    pub usual: Option<DType>,
    /// The format of experts, where it differs.
    pub experts: Option<DType>,
    /// Formats by full names of modules. If there are any, they are all that is quantised.
    pub by_name: Vec<(String, DType)>,
    /// Patterns of modules that are not quantised.
    pub excluded: Vec<String>,
    /// Whether the output head is quantised unless it is excluded.
    pub head: bool,
}

impl Scheme {
    /// The formats of a checkpoint of `model`, by class.
    pub fn formats(&self, model: &Model) -> Result<WeightFormats, String> {
        let mut by_class: [Vec<(DType, u64)>; WeightClass::ALL.len()] = Default::default();
        let (mut embed, mut head) = (model.dtype, model.dtype);
        for module in modules(model) {
            let dtype = self.format(&module).unwrap_or(model.dtype);
            match module.sublayer {
                Sublayer::Embed => embed = dtype,
                Sublayer::Head => head = dtype,
                sublayer => {
                    by_class[WeightClass::from_sublayer(sublayer) as usize].push((dtype, module.values));
                }
            }
        }
        if model.tied_embeddings {
            (embed, head) = (model.dtype, model.dtype);
        }
        let mut formats = WeightFormats::all(head);
        for class in [WeightClass::Attention, WeightClass::Ffn, WeightClass::Experts] {
            let parts = std::mem::take(&mut by_class[class as usize]);
            if !parts.is_empty() {
                formats = formats.with_format(class, WeightFormat::from_values(parts)?);
            }
        }
        Ok(formats.for_model(model).with_embed(embed))
    }

    fn format(&self, module: &WeightModule) -> Option<DType> {
        if module.sublayer == Sublayer::Embed {
            return None;
        }
        if !self.by_name.is_empty() {
            let listed = self.by_name.iter().find(|(name, _)| module.is_listed_as(name));
            return listed.map(|(_, dtype)| *dtype);
        }
        let excluded = self.excluded.iter().any(|pattern| module.is_named_by(pattern));
        if excluded || (module.sublayer == Sublayer::Head && !self.head) {
            return None;
        }
        match module.sublayer {
            Sublayer::Experts => self.experts.or(self.usual),
            // Routers are small and stay as they are.
            Sublayer::Router => None,
            _ => self.usual,
        }
    }

    fn read(config: &Value) -> Result<Option<Self>, String> {
        let places = [config.get("quantization_config"), config.get("compression_config")];
        let nested = config.get("text_config").and_then(|text| text.get("quantization_config"));
        let found = places.into_iter().chain([nested]).flatten().find(|value| value.is_object());
        let experts = config.get("expert_dtype").and_then(Value::as_str);
        let experts = match experts {
            None => None,
            Some("fp4" | "mxfp4") => Some(DType::Mxfp4),
            Some(other) => Some(other.parse().map_err(|why| format!("expert_dtype: {why}"))?),
        };
        let Some(quantised) = found else {
            return Ok(experts.map(|experts| Self { experts: Some(experts), ..Self::default() }));
        };
        let scheme = match text(quantised, "quant_method").unwrap_or_default() {
            "fp8" | "fbgemm_fp8" => Self { usual: Some(fp8(quantised)), ..Self::default() },
            "mxfp4" => Self { experts: Some(DType::Mxfp4), ..Self::default() },
            "modelopt" | "modelopt_fp4" | "modelopt_mixed" | "nvfp4" => modelopt(quantised)?,
            "compressed-tensors" => compressed_tensors(quantised)?,
            method @ ("gptq" | "awq") => {
                let (bits, group) =
                    (whole(quantised, "bits").or(whole(quantised, "w_bit")), group(quantised));
                Self { usual: Some(integer(method, bits, group)?), ..Self::default() }
            }
            other => {
                return Err(format!("quantization_config.quant_method is '{other}': {METHODS} are read"));
            }
        };
        let lists = ["modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"];
        let excluded = lists.into_iter().filter_map(|key| quantised.get(key)?.as_array()).flatten();
        let excluded = excluded.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        Ok(Some(Self { excluded, experts: experts.or(scheme.experts), ..scheme }))
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

fn whole(value: &Value, key: &str) -> Option<u64> {
    value.get(key)?.as_u64()
}

/// The values of a group; `None` for one scale per row or matrix (−1, null or absent).
fn group(value: &Value) -> Option<u64> {
    whole(value, "group_size").or(whole(value, "q_group_size"))
}

fn fp8(quantised: &Value) -> DType {
    let blocks = quantised.get("weight_block_size").is_some_and(Value::is_array);
    if blocks { DType::Fp8Block } else { DType::Fp8 }
}

/// The format of integers in groups.
fn integer(method: &str, bits: Option<u64>, group: Option<u64>) -> Result<DType, String> {
    match (bits, group) {
        (Some(4), Some(32)) => Ok(DType::Int4),
        (Some(4), Some(64 | 128) | None) => Ok(DType::Int4G128),
        (Some(8), _) => Ok(DType::Int8),
        (bits, group) => {
            let shown = |number: Option<u64>| number.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
            Err(format!(
                "quantization_config: {method} with {} bits in groups of {}: 4 bits in groups of 32 or 128, and 8 bits, \
                 are read",
                shown(bits),
                shown(group)
            ))
        }
    }
}

/// The format that NVIDIA's model optimizer calls `word`.
fn algorithm(word: &str) -> Result<DType, String> {
    match word {
        "NVFP4" | "W4A16_NVFP4" | "W4A8_NVFP4_FP8" | "NVFP4_AWQ" => Ok(DType::Nvfp4),
        "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" => Ok(DType::Fp8),
        "FP8_PB_WO" | "FP8_PB_REAL" | "FP8_BLOCK_SCALES" => Ok(DType::Fp8Block),
        "MXFP4" | "W4A8_MXFP4_FP8" => Ok(DType::Mxfp4),
        "W4A16_AWQ" | "W4A8_AWQ" => Ok(DType::Int4G128),
        other => Err(format!(
            "quantization_config.quant_algo is '{other}': NVFP4, W4A16_NVFP4, FP8, MXFP4, W4A16_AWQ and \
             MIXED_PRECISION are read"
        )),
    }
}

fn modelopt(quantised: &Value) -> Result<Scheme, String> {
    let word = text(quantised, "quant_algo").or(text(quantised, "quant_type")).unwrap_or("NVFP4");
    if word != "MIXED_PRECISION" {
        return Ok(Scheme { usual: Some(algorithm(word)?), ..Scheme::default() });
    }
    let layers = quantised.get("quantized_layers").and_then(Value::as_object).ok_or_else(|| {
        "quantization_config.quantized_layers is missing: MIXED_PRECISION names the format of each layer"
            .to_owned()
    })?;
    let layer = |(name, layer): (&String, &Value)| {
        let word = text(layer, "quant_algo").or(layer.as_str()).unwrap_or_default();
        Ok((name.clone(), algorithm(word)?))
    };
    let by_name = layers.into_iter().map(layer).collect::<Result<_, String>>()?;
    Ok(Scheme { by_name, ..Scheme::default() })
}

fn compressed_tensors(quantised: &Value) -> Result<Scheme, String> {
    let groups = quantised.get("config_groups").and_then(Value::as_object);
    let weights = groups.and_then(|groups| groups.values().find_map(|group| group.get("weights")));
    let Some(weights) = weights.filter(|weights| weights.is_object()) else {
        return Err("quantization_config.config_groups has no weights: it says bits and groups".to_owned());
    };
    let (bits, size) = (whole(weights, "num_bits"), group(weights));
    let format = text(quantised, "format").unwrap_or_default();
    let usual = match (text(weights, "type").unwrap_or("int"), bits) {
        ("float", Some(8)) => {
            if text(weights, "strategy") == Some("block") {
                DType::Fp8Block
            } else {
                DType::Fp8
            }
        }
        ("float", Some(4)) if size == Some(32) || format.starts_with("mxfp4") => DType::Mxfp4,
        ("float", Some(4)) => DType::Nvfp4,
        _ => integer("compressed-tensors", bits, size)?,
    };
    Ok(Scheme { usual: Some(usual), head: true, ..Scheme::default() })
}
