//! The loss of quality with fewer bits: the relative rise of a language model's perplexity.
//!
//! This is an approximation. The figures are those of Llama-like models on WikiText-2, and are used
//! for every model. Losses of weights and of the KV cache are added. f32, f16 and bf16 count as
//! lossless. A format without a published figure is refused.
//!
//! If classes of matrices have different formats, each class contributes in proportion to its share
//! of all matrix elements. This assumes that errors are small and independent, so that the rise is
//! a sum over matrices. No figures by class are published.
//!
//! - `int8` weights, 0.007 %: perplexity rises by 0.0004 from 5.9066 (LLaMA-7B in Q8_0, which has
//!   the same groups of 32; llama.cpp, `llama-quantize --help`).
//! - `int4` weights, 3.67 %: it rises by 0.2166 from 5.9066 (LLaMA-7B in Q4_0, same source).
//!   Llama-2-70B loses 3.61 % (llama.cpp, `examples/perplexity/README.md`).
//! - `int8` KV cache, 0.035 %: it rises from 6.2322 with f16 to 6.2344 (K and V in Q8_0; llama.cpp,
//!   pull request 7412).
//! - `fp8` KV cache, 0.25 %: it rises from 7.1354 with f16 to 7.1529 (E4M3, Phi-4-reasoning-plus;
//!   kekzl/imp, pull request 749). The figure depends on the model: at most 0.12 % (vLLM, issue
//!   54426), and 1.07 % for Qwen3-14B (kekzl/imp, pull request 704).
//! - `int2` KV cache: no figure. KIVI (arXiv:2402.02750) publishes accuracies of tasks instead, and
//!   groups keys along positions.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::operators::formats::Formats;
use crate::model::transformer::Model;
use hwprofiles::DType;
use std::fmt;

/// A relative rise of perplexity.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct QualityLoss(f64);

impl QualityLoss {
    /// The loss of `model` in `formats`.
    ///
    /// # Errors
    /// A format has no published figure; the text names it.
    pub fn from_formats(formats: &Formats, model: &Model) -> Result<Self, String> {
        let weights = match formats.weights.one() {
            Some(dtype) => weights_loss(dtype)?,
            None => {
                let each = formats.weights.classes().map(|(class, dtype)| match model.share_of(class) {
                    0.0 => Ok(0.0),
                    share => Ok(share * weights_loss(dtype)?),
                });
                each.sum::<Result<f64, String>>()?
            }
        };
        let kv = match formats.kv {
            DType::F32 | DType::F16 | DType::Bf16 => 0.0,
            DType::Fp8 => 7.1529 / 7.1354 - 1.0,
            DType::Int8 => 6.234369 / 6.232196 - 1.0,
            _ => return Err(unknown(formats.kv, "in the KV cache")),
        };
        Ok(Self(weights + kv))
    }
}

/// The loss if all matrices are in `dtype`.
fn weights_loss(dtype: DType) -> Result<f64, String> {
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => Ok(0.0),
        DType::Int8 => Ok(0.0004 / 5.9066),
        DType::Int4 => Ok(0.2166 / 5.9066),
        _ => Err(unknown(dtype, "in weights")),
    }
}

/// The message for a format without a published figure.
fn unknown(dtype: DType, what: &str) -> String {
    format!("the loss of {dtype} {what} is not published")
}

impl fmt::Display for QualityLoss {
    /// As a percentage.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} %", self.0 * 100.0)
    }
}

/// Reads the limit under `quality`.
pub(crate) fn read_quality(section: &DocumentSection<'_>) -> Result<QualityLoss, ScenarioError> {
    const KEY: &str = "max_loss";
    const WANTED: &str = "how much perplexity may rise is wanted, from \"0 %\" to \"100 %\"";
    section.only(&[KEY])?;
    if section.get(KEY).is_none() {
        return Err(section.missing(KEY, WANTED));
    }
    let percent = section.get(KEY).and_then(|value| value.as_str()).and_then(|text| text.strip_suffix('%'));
    match percent.and_then(|number| number.trim().parse::<f64>().ok()) {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(QualityLoss(percent / 100.0)),
        _ => Err(section.wrong(KEY, WANTED)),
    }
}
