//! The loss of quality with fewer bits: the relative rise of a language model's perplexity.
//!
//! This is an approximation. The figures are those of Llama-like models on WikiText-2, and are used
//! for every model. Losses of weights and of the KV cache are added. f32, f16 and bf16 count as
//! lossless. A format without a published figure is refused.
//!
//! If classes of matrices have different formats, each class contributes in proportion to its share
//! of all matrix elements, and each format of a mixture in proportion to its share of the class.
//! This assumes that errors are small and independent, so that the rise is a sum over matrices. No
//! figures by class are published. A kind of GGUF file has its own figure.
//!
//! - `int8` weights, 0.007 %: perplexity rises by 0.0004 from 5.9066 (LLaMA-7B in Q8_0, which has
//!   the same groups of 32; llama.cpp, `llama-quantize --help`).
//! - `int4` weights, 3.67 %: it rises by 0.2166 from 5.9066 (LLaMA-7B in Q4_0, same source).
//!   Llama-2-70B loses 3.61 % (llama.cpp, `tools/perplexity/README.md`).
//! - GGUF formats: Llama-3-8B, which rises from 6.2317 in f16 (llama.cpp,
//!   `tools/perplexity/README.md`, the scoreboard at revision f364eb6f). Kinds named `iq` were made
//!   with an importance matrix of 10 million tokens (`iq1_s` with one million), others without one.
//!   Of formats in several kinds, the smallest kind's figure counts for the format alone: that of
//!   `q4_k_s` for `q4_k`.
//! - `iq4_k`, 1.77 %, and `iq4_ks`, 2.68 %: LLaMA-3.1-8B (ik_llama.cpp, pull requests 6 and 83).
//! - `int4_g128`, 4.3 %: Llama-3-8B-Instruct rises from 10.936 to 11.409 by AWQ (pytorch/ao, pull
//!   request 1036). Llama-2-7B loses 3.1 % by AWQ (model card of smpanaro/Llama-2-7b-NuGPTQ).
//! - `fp8` and `fp8_block` weights, 0.96 %: Llama-3.1-8B rises from 7.55 to 7.62, activations in
//!   fp8 included (pytorch/ao, pull request 3394, scales by row).
//! - `nvfp4` weights, 11.8 %: Llama-3.1-8B rises from 7.55 to 8.44, activations in nvfp4 included
//!   (same source).
//! - `mxfp4` weights: no figure. The models in it were trained so.
//! - `int8` KV cache, 0.035 %: it rises from 6.2322 with f16 to 6.2344 (K and V in Q8_0; llama.cpp,
//!   pull request 7412).
//! - `fp8` KV cache, 0.25 %: it rises from 7.1354 with f16 to 7.1529 (E4M3, Phi-4-reasoning-plus;
//!   kekzl/imp, pull request 749). The figure depends on the model: at most 0.12 % (vLLM, issue
//!   54426), and 1.07 % for Qwen3-14B (kekzl/imp, pull request 704).
//! - `int2` KV cache: no figure. KIVI (arXiv:2402.02750) publishes accuracies of tasks instead, and
//!   groups keys along positions.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::formats::file_type::GgufFileType;
use crate::model::formats::weight_format::WeightFormat;
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
        let weights = match (formats.weights.file(), formats.weights.one()) {
            (Some(file), _) => file_loss(file)?,
            (None, Some(dtype)) => weights_loss(dtype)?,
            (None, None) => {
                let each = formats.weights.classes().map(|(class, format)| match model.share_of(class) {
                    0.0 => Ok(0.0),
                    share => Ok(share * mixture_loss(format)?),
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

impl QualityLoss {
    /// The rise as a share: 0.03 where perplexity rises by 3 %.
    pub fn share(self) -> f64 {
        self.0
    }
}

/// The loss of a class in `format`.
fn mixture_loss(format: WeightFormat) -> Result<f64, String> {
    format.parts().map(|(dtype, share)| Ok(share * weights_loss(dtype)?)).sum()
}

/// The loss if all matrices are in `dtype`.
fn weights_loss(dtype: DType) -> Result<f64, String> {
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => Ok(0.0),
        DType::Int8 => Ok(0.0004 / 5.9066),
        DType::Int4 => Ok(0.2166 / 5.9066),
        DType::Int4G128 => Ok(11.409 / 10.936 - 1.0),
        DType::Fp8 | DType::Fp8Block => Ok(7.62 / 7.5472 - 1.0),
        DType::Nvfp4 => Ok(8.44 / 7.5472 - 1.0),
        DType::Iq4K => Ok(0.0177),
        DType::Iq4Ks => Ok(0.0268),
        // Alone, a format has the figure of the smallest kind of file that it is the base of.
        DType::Q2K => file_loss(GgufFileType::Q2KS),
        DType::Q3K => file_loss(GgufFileType::Q3KS),
        DType::Q4K => file_loss(GgufFileType::Q4KS),
        DType::Q5K => file_loss(GgufFileType::Q5KS),
        DType::Iq2S => file_loss(GgufFileType::Iq2M),
        DType::Iq2Xs => file_loss(GgufFileType::Iq2Xs),
        DType::Iq3S => file_loss(GgufFileType::Iq3S),
        _ => {
            let mut kinds = GgufFileType::ALL.into_iter().filter(|entry| entry.2 == dtype);
            let loss = kinds.next().and_then(|entry| file_loss(entry.0).ok());
            loss.ok_or_else(|| unknown(dtype, "in weights"))
        }
    }
}

/// The rise of Llama-3-8B's perplexity from 6.2317 by kinds of GGUF files.
fn file_loss(file: GgufFileType) -> Result<f64, String> {
    use GgufFileType as F;
    let rise = match file {
        F::Q8_0 => 0.002_650,
        F::Q6K => 0.021_748,
        F::Q5KM => 0.056_974,
        F::Q5KS => 0.104_964,
        F::Q5_1 => 0.106_223,
        F::Q5_0 => 0.131_591,
        F::Q4KM => 0.175_482,
        F::Q4KS => 0.268_895,
        F::Iq4Nl => 0.223_959,
        F::Iq4Xs => 0.228_071,
        F::Q4_1 => 0.451_103,
        F::Q4_0 => 0.468_514,
        F::Q3KL => 0.556_242,
        F::Q3KM => 0.656_864,
        F::Q3KS => 1.632_152,
        F::Iq3M => 0.666_694,
        F::Iq3S => 0.733_867,
        F::Iq3Xs => 0.931_409,
        F::Iq3Xxs => 1.226_803,
        F::Q2K => 3.519_934,
        // The smallest importance matrix; without one there is no file in this kind.
        F::Q2KS => 3.183_567,
        F::Iq2M => 2.369_166,
        F::Iq2S => 3.419_148,
        F::Iq2Xs => 4.529_791,
        F::Iq2Xxs => 7.860_148,
        F::Iq1M => 19.262_089,
        F::Iq1S => 51.866_126,
        F::Mxfp4Moe => return Err(format!("the loss of files in {file} is not published")),
    };
    // The scoreboard's perplexity of Q8_0 less its rise.
    Ok(rise / (6.234_284 - 0.002_650))
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
