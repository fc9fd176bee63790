//! What is known to be lost with fewer bits: by how much a language model's perplexity rises.
//!
//! An approximation: the figures are of Llama-like models on WikiText-2 and are used for every model; what weights and
//! KV lose is added up. f32, f16 and bf16 count as lossless. A format without a published figure has none here.
//! Where classes of matrices have formats of their own, each loses its share of the matrices' numbers of what all of
//! them in its format lose. That is an assumption: that errors are small and independent makes the rise a sum over
//! matrices, and nobody publishes it by class.
//!
//! - `int8` weights, 0.007 %: +0.0004 to 5.9066, LLaMA-7B in Q8_0, the same groups of 32 (llama.cpp, `llama-quantize --help`).
//! - `int4` weights, 3.67 %: +0.2166 likewise in Q4_0; Llama-2-70B loses 3.61 % (llama.cpp, `examples/perplexity/README.md`).
//! - `int8` KV, 0.035 %: 6.2344 after 6.2322 with f16, both halves in Q8_0 (llama.cpp, pull request 7412).
//! - `fp8` KV, 0.25 %: 7.1529 after 7.1354 with f16, E4M3, Phi-4-reasoning-plus (kekzl/imp, pull request 749). It
//!   depends on the model: at most 0.12 % (vLLM, issue 54426), 1.07 % for Qwen3-14B (kekzl/imp, pull request 704).
//! - `int2` KV has none: KIVI (arXiv:2402.02750) publishes accuracies of tasks, and groups keys along positions.

use crate::input::error::ScenarioError;
use crate::input::section::Section;
use crate::model::operators::operator::Formats;
use crate::model::transformer::Model;
use hwprofiles::DType;
use std::fmt;

/// A relative rise of perplexity.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Loss(f64);

impl Loss {
    /// None at all.
    pub const NONE: Self = Self(0.0);

    /// What `model` loses with `formats`.
    ///
    /// # Errors
    /// Which format has no published figure.
    pub fn of(formats: &Formats, model: &Model) -> Result<Self, String> {
        let weights = match formats.weights.one() {
            Some(dtype) => of_weights(dtype)?,
            None => {
                let each = formats.weights.classes().map(|(class, dtype)| match model.share_of(class) {
                    0.0 => Ok(0.0),
                    share => Ok(share * of_weights(dtype)?),
                });
                each.sum::<Result<f64, String>>()?
            }
        };
        let kv = match formats.kv {
            DType::F32 | DType::F16 | DType::Bf16 => 0.0,
            DType::Fp8 => 7.1529 / 7.1354 - 1.0,
            DType::Int8 => 6.234369 / 6.232196 - 1.0,
            DType::Int4 | DType::Int2 => return Err(unknown(formats.kv, "in the KV cache")),
        };
        Ok(Self(weights + kv))
    }
}

/// With all matrices in `dtype`.
fn of_weights(dtype: DType) -> Result<f64, String> {
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => Ok(0.0),
        DType::Int8 => Ok(0.0004 / 5.9066),
        DType::Int4 => Ok(0.2166 / 5.9066),
        DType::Fp8 | DType::Int2 => Err(unknown(dtype, "in weights")),
    }
}

fn unknown(dtype: DType, what: &str) -> String {
    format!("what {dtype} {what} loses is not published")
}

impl fmt::Display for Loss {
    /// In percent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} %", self.0 * 100.0)
    }
}

/// The limit under `quality`.
pub(crate) fn read_quality(section: &Section<'_>) -> Result<Loss, ScenarioError> {
    const KEY: &str = "max_loss";
    const WANTED: &str = "how much perplexity may rise is wanted, from \"0 %\" to \"100 %\"";
    section.only(&[KEY])?;
    if section.get(KEY).is_none() {
        return Err(section.missing(KEY, WANTED));
    }
    let percent = section.get(KEY).and_then(|value| value.as_str()).and_then(|text| text.strip_suffix('%'));
    match percent.and_then(|number| number.trim().parse::<f64>().ok()) {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Loss(percent / 100.0)),
        _ => Err(section.wrong(KEY, WANTED)),
    }
}
