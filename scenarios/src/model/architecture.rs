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
    /// Ministral: Mistral with a window in some layers.
    #[serde(rename = "ministral")]
    Mistral3,
    /// Qwen 2 with a mixture of experts and a gated shared expert.
    #[serde(rename = "qwen2_moe")]
    Qwen2Moe,
    /// Qwen3-Next: gated delta nets, and gated attention in every fourth layer.
    #[serde(rename = "qwen3_next")]
    Qwen3Next,
    /// Qwen 3.5 and 3.6: Qwen3-Next with other tensors, with or without experts.
    #[serde(rename = "qwen3_5")]
    Qwen35,
    /// DeepSeek's first mixture of experts, with plain attention.
    #[serde(rename = "deepseek")]
    DeepSeek,
    /// DeepSeek-V3.2: DeepSeek-V3 with an indexer that chooses the tokens to attend to.
    #[serde(rename = "deepseek_v32")]
    DeepSeekV32,
    /// DeepSeek-V4: windows and compressed keys, several residual streams.
    #[serde(rename = "deepseek_v4")]
    DeepSeekV4,
    /// GLM-4: biases on q, k, v, partial rotation; GLM-4-0414 has norms behind sublayers too.
    #[serde(rename = "glm4")]
    Glm4,
    /// GLM-4.5 to 4.7: shared and routed experts.
    #[serde(rename = "glm4_moe")]
    Glm4Moe,
    /// GLM-5: latent attention with an indexer, in some layers a shared one.
    #[serde(rename = "glm_moe_dsa")]
    GlmMoeDsa,
    /// Kimi-Linear and Kimi-K3: Kimi delta attention and latent attention.
    #[serde(rename = "kimi_linear")]
    KimiLinear,
    /// MiniMax-M2: grouped queries, norms over all of q and k, experts in every layer.
    #[serde(rename = "minimax_m2")]
    MiniMaxM2,
    /// MiniMax-M3: MiniMax-M2 with an indexer of blocks, and shared experts.
    #[serde(rename = "minimax_m3")]
    MiniMaxM3,
    /// MiMo-V2-Flash: windows with sinks, values narrower than keys.
    #[serde(rename = "mimo_v2_flash")]
    MiMoV2,
    /// Llama 4: chunks in most layers, one routed and one shared expert.
    #[serde(rename = "llama4")]
    Llama4,
    /// Gemma 3n: an embedding for each layer, predicted residual streams, shared keys and values.
    #[serde(rename = "gemma3n")]
    Gemma3n,
    /// Gemma 4: wider heads in layers that see everything, experts beside the network.
    #[serde(rename = "gemma4")]
    Gemma4,
    /// Nemotron-H and Nemotron 3: one sublayer per layer, most of them Mamba-2.
    #[serde(rename = "nemotron_h")]
    NemotronH,
    /// Granite 4 and Bamba: Mamba-2 and attention, with or without experts.
    #[serde(rename = "granitemoehybrid")]
    GraniteHybrid,
    /// Jamba: Mamba and attention, experts in every second layer.
    Jamba,
    /// LFM2: short convolutions and attention, with or without experts.
    #[serde(rename = "lfm2")]
    Lfm2,
    /// OLMo 3 with gated delta nets.
    #[serde(rename = "olmo_hybrid")]
    OlmoHybrid,
    /// OLMo 2 and 3: norms behind sublayers only, norms over all of q and k.
    #[serde(rename = "olmo2")]
    Olmo2,
    /// EXAONE 4: norms behind sublayers only, norms on each head of q and k.
    #[serde(rename = "exaone4")]
    Exaone4,
    /// Any other decoder with plain attention and a network or experts; it is counted, not run.
    #[serde(rename = "decoder")]
    Decoder,
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
    /// max(0, x)²
    #[serde(rename = "relu_squared")]
    ReluSquared,
    /// xIELU, two parabolas with learned coefficients.
    Xielu,
}

impl Activation {
    /// Whether the network has a gate beside its up projection.
    pub fn is_gated(self) -> bool {
        matches!(self, Activation::SiluGated | Activation::GeluTanhGated)
    }
}
