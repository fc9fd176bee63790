//! Families of transformers, with their norms and non-linearities.

use serde::{Deserialize, Serialize};

/// A family of transformers: how its tensors are named and how its layers are wired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Llama 1 to 3, and Mistral, which has the same wiring.
    Llama,
    /// Llama with biases on q, k, v.
    Qwen2,
    /// Llama with RMS norms on each head of q and k.
    Qwen3,
    /// OPT: layer norms, biases, ReLU, learned positions.
    Opt,
    /// Mistral with a mixture of experts.
    Mixtral,
    /// Qwen 3 with a mixture of experts.
    #[serde(rename = "qwen3_moe")]
    Qwen3Moe,
    /// gpt-oss: a mixture of experts, biases everywhere, an attention sink for each head.
    #[serde(rename = "gpt_oss")]
    GptOss,
    /// DeepSeek-V2: latent attention, shared and routed experts.
    #[serde(rename = "deepseek_v2")]
    DeepSeekV2,
    /// DeepSeek-V3: DeepSeek-V2 with another router.
    #[serde(rename = "deepseek_v3")]
    DeepSeekV3,
    /// Gemma 1: norms of 1 + weight, scaled embeddings, a GELU gate.
    Gemma,
    /// Gemma 2: Gemma 1 with norms behind sublayers too, soft caps, and a sliding window in every
    /// second layer.
    Gemma2,
    /// Gemma 3: Gemma 2 with norms of q and k instead of caps, and a separate rotation in layers
    /// with a sliding window.
    Gemma3,
    /// Phi 1 to 2: layer norms, biases everywhere, parallel blocks with one norm, partial rotation.
    Phi,
    /// Phi 3 and 4: Llama with q, k, v in one tensor, and gate and up in one.
    Phi3,
    /// GPT-NeoX: layer norms, biases, parallel blocks with two norms, partial rotation.
    #[serde(rename = "gpt_neox")]
    GptNeoX,
    /// GPT-J: parallel blocks with one norm, partial rotation of neighbouring columns, a bias on
    /// the logits.
    GptJ,
    /// Falcon: layer norms, parallel blocks, few heads of keys and values.
    Falcon,
    /// Qwen3-Next: gated delta nets, and gated attention in every fourth layer.
    #[serde(rename = "qwen3_next")]
    Qwen3Next,
    /// Qwen 3.5 and 3.6: Qwen3-Next with other tensors, with or without experts.
    #[serde(rename = "qwen3_5")]
    Qwen35,
    /// GLM-4.5 to 4.7: shared and routed experts.
    #[serde(rename = "glm4_moe")]
    Glm4Moe,
}

/// Normalisation in front of each half of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    /// x / rms(x) · w
    Rms,
    /// x / rms(x) · (1 + w)
    RmsPlusOne,
    /// (x − mean) / std · w + b
    Layer,
}

/// The feed-forward network's non-linearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// silu(gate) · up: two matrices in front.
    SiluGated,
    /// gelu(gate) · up with the tanh approximation: two matrices in front.
    GeluTanhGated,
    /// max(0, x)
    Relu,
    /// x · Φ(x), exact.
    Gelu,
    /// x · Φ(x) with the tanh approximation.
    GeluTanh,
}

impl Activation {
    /// Whether the network has a gate beside its up projection.
    pub fn is_gated(self) -> bool {
        matches!(self, Activation::SiluGated | Activation::GeluTanhGated)
    }
}
