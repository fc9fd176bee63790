//! The formats of a safetensors checkpoint as those who publish such checkpoints usually make them.

use crate::model::mixer::Mixer;
use crate::model::operators::formats::WeightFormats;
use crate::model::quantised::safetensors_formats::Scheme;
use crate::model::recurrence::Recurrence;
use crate::model::transformer::Model;
use hwprofiles::DType;

impl Model {
    /// The formats of a checkpoint that is published as one in `dtype`. What its makers leave as it
    /// was has the model's own format. GGUF's kinds of blocks, and formats of 16 bits or more, are
    /// those of all matrices.
    ///
    /// Token tables, output heads and routers are never quantised. Neither are:
    ///
    /// - in `nvfp4`, the projections of gated delta nets, and of all attention where there are
    ///   experts, as in NVIDIA's checkpoints of DeepSeek-R1 and GLM-4.7 and in llm-compressor's of
    ///   Qwen3.5 and 3.6;
    /// - in 4-bit integers, shared experts (Gemma 4 calls its own a network, which is quantised);
    ///   and all projections of attention in a model that has gated delta nets or latent
    ///   attention, as in GPTQ and AWQ checkpoints of Qwen3.6, GLM-4.7 and Kimi-K2;
    /// - in `mxfp4`, all but the routed experts, as in gpt-oss.
    ///
    /// # Errors
    /// A class of matrices would have more formats than a mixture may have.
    pub fn usual_checkpoint(&self, dtype: DType) -> Result<WeightFormats, String> {
        let has_experts = self.experts.is_some();
        let all_but = |kept: &[&str]| Scheme {
            usual: Some(dtype),
            excluded: kept.iter().map(|&pattern| pattern.to_owned()).collect(),
            ..Scheme::default()
        };
        let scheme = match dtype {
            DType::Mxfp4 if has_experts => Scheme { experts: Some(dtype), ..Scheme::default() },
            DType::Nvfp4 if has_experts => all_but(&["*self_attn*", "*linear_attn*"]),
            DType::Nvfp4 => all_but(&["*linear_attn*"]),
            DType::Int4 | DType::Int4G128 if self.has_linear_or_latent_attention() => {
                all_but(&["*self_attn*", "*linear_attn*", "*shared_expert*"])
            }
            DType::Int4 | DType::Int4G128 => all_but(&["*shared_expert*"]),
            DType::Mxfp4 | DType::Fp8 | DType::Fp8Block | DType::Int8 => all_but(&[]),
            _ => return Ok(WeightFormats::all(dtype).for_model(self)),
        };
        scheme.formats(self)
    }

    fn has_linear_or_latent_attention(&self) -> bool {
        self.shapes().iter().any(|shape| {
            matches!(shape.mixer, Mixer::Latent(_) | Mixer::Recurrent(Recurrence::GatedDelta { .. }))
        })
    }
}
