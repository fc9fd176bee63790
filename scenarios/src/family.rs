//! What transformers' configuration classes say where a `config.json` says nothing.

use crate::model::Architecture;

/// What one class of transformers says where the file says nothing.
pub(crate) struct Defaults {
    pub model_type: &'static str,
    pub architecture: Architecture,
    pub vocab: u64,
    pub hidden: u64,
    pub intermediate: u64,
    pub layers: u64,
    pub heads: u64,
    /// None: as many as query heads.
    pub kv_heads: Option<u64>,
    /// None: hidden / heads.
    pub head_dim: Option<u64>,
    pub max_positions: u64,
}

const LLAMA: Defaults = Defaults {
    model_type: "llama",
    architecture: Architecture::Llama,
    vocab: 32000,
    hidden: 4096,
    intermediate: 11008,
    layers: 32,
    heads: 32,
    kv_heads: None,
    head_dim: None,
    max_positions: 2048,
};
const MISTRAL: Defaults = Defaults {
    model_type: "mistral",
    intermediate: 14336,
    kv_heads: Some(8),
    max_positions: 131072,
    ..LLAMA
};
const QWEN2: Defaults = Defaults {
    model_type: "qwen2",
    architecture: Architecture::Qwen2,
    vocab: 151936,
    intermediate: 22016,
    kv_heads: Some(32),
    max_positions: 32768,
    ..LLAMA
};
const QWEN3: Defaults =
    Defaults { model_type: "qwen3", architecture: Architecture::Qwen3, head_dim: Some(128), ..QWEN2 };
const OPT: Defaults = Defaults {
    model_type: "opt",
    architecture: Architecture::Opt,
    vocab: 50272,
    hidden: 768,
    intermediate: 3072,
    layers: 12,
    heads: 12,
    ..LLAMA
};
const MIXTRAL: Defaults = Defaults { model_type: "mixtral", architecture: Architecture::Mixtral, ..MISTRAL };
const QWEN3_MOE: Defaults = Defaults {
    model_type: "qwen3_moe",
    architecture: Architecture::Qwen3Moe,
    hidden: 2048,
    intermediate: 6144,
    layers: 24,
    kv_heads: Some(4),
    ..QWEN2
};
const GPT_OSS: Defaults = Defaults {
    model_type: "gpt_oss",
    architecture: Architecture::GptOss,
    vocab: 201088,
    hidden: 2880,
    intermediate: 2880,
    layers: 36,
    heads: 64,
    kv_heads: Some(8),
    head_dim: Some(64),
    max_positions: 131072,
};
const DEEPSEEK_V2: Defaults = Defaults {
    model_type: "deepseek_v2",
    architecture: Architecture::DeepSeekV2,
    vocab: 32000,
    max_positions: 2048,
    ..LLAMA
};
const DEEPSEEK_V3: Defaults = Defaults {
    model_type: "deepseek_v3",
    architecture: Architecture::DeepSeekV3,
    vocab: 129280,
    hidden: 7168,
    intermediate: 18432,
    layers: 61,
    heads: 128,
    max_positions: 4096,
    ..LLAMA
};
/// Every class that is read.
pub(crate) const FAMILIES: [&Defaults; 10] =
    [&LLAMA, &MISTRAL, &QWEN2, &QWEN3, &OPT, &MIXTRAL, &QWEN3_MOE, &GPT_OSS, &DEEPSEEK_V2, &DEEPSEEK_V3];
