//! The formats of a safetensors checkpoint as those who publish such checkpoints usually make them.

use crate::model::mixer::Mixer;
use crate::model::operators::formats::WeightFormats;
use crate::model::quantised::safetensors_formats::Scheme;
use crate::model::recurrence::Recurrence;
use crate::model::transformer::Model;
use hwprofiles::DType;

impl Model {
    /// The formats of a checkpoint that is published as one in `dtype`: what quantisers leave as it
    /// was keeps the model's own format. A kind of block that GGUF files have, and 16 bits or more,
    /// are the format of all matrices.
    ///
    /// Token tables, output heads and routers are never quantised. Beside them keep their format:
    ///
    /// - in `nvfp4`, the projections of gated delta nets, and of all attention where there are
    ///   experts, as in NVIDIA's checkpoints of DeepSeek-R1 and GLM-4.7 and in llm-compressor's of
    ///   Qwen3.5 and 3.6;
    /// - in 4-bit integers, shared experts; and all projections of attention in a model that has
    ///   gated delta nets or latent attention, as in GPTQ and AWQ checkpoints of Qwen3.6, GLM-4.7
    ///   and Kimi-K2;
    /// - in `mxfp4`, all but the routed experts, as in gpt-oss.
    ///
    /// # Errors
    /// A class of matrices would have more formats than a mixture may have.
    pub fn usual_checkpoint(&self, dtype: DType) -> Result<WeightFormats, String> {
        let has_experts = self.experts.is_some();
        let excluded: &[&str] = match dtype {
            DType::Nvfp4 if has_experts => &["*self_attn*", "*linear_attn*"],
            DType::Nvfp4 => &["*linear_attn*"],
            DType::Int4 | DType::Int4G128 if self.has_linear_or_latent_attention() => {
                &["*self_attn*", "*linear_attn*", "*shared_expert*"]
            }
            DType::Int4 | DType::Int4G128 => &["*shared_expert*"],
            DType::Mxfp4 | DType::Fp8 | DType::Fp8Block | DType::Int8 => &[],
            _ => return Ok(WeightFormats::all(dtype).for_model(self)),
        };
        let excluded = excluded.iter().map(|&pattern| pattern.to_owned()).collect();
        let scheme = match dtype {
            DType::Mxfp4 if has_experts => Scheme { experts: Some(dtype), ..Scheme::default() },
            _ => Scheme { usual: Some(dtype), excluded, ..Scheme::default() },
        };
        scheme.formats(self)
    }

    fn has_linear_or_latent_attention(&self) -> bool {
        self.shapes().iter().any(|shape| {
            matches!(shape.mixer, Mixer::Latent(_) | Mixer::Recurrent(Recurrence::GatedDelta { .. }))
        })
    }
}
