//! The defaults of the first configuration classes that were read, for keys that a `config.json`
//! leaves out.

use crate::model::architecture::Architecture;
use crate::model::config::families::family::{FamilyDefaults, FamilyKeys, FamilyReader};

pub(super) const LLAMA_KEYS: FamilyKeys = FamilyKeys {
    hidden: "hidden_size",
    layers: "num_hidden_layers",
    heads: "num_attention_heads",
    kv_heads: Some("num_key_value_heads"),
    head_dim: Some("head_dim"),
    intermediate: "intermediate_size",
    max_positions: "max_position_embeddings",
    norm_eps: "rms_norm_eps",
    activation: "hidden_act",
};

pub(super) const LLAMA: FamilyDefaults = FamilyDefaults {
    model_type: "llama",
    architecture: Architecture::Llama,
    keys: LLAMA_KEYS,
    vocab: 32000,
    hidden: 4096,
    intermediate: Some(11008),
    layers: 32,
    heads: 32,
    kv_heads: None,
    head_dim: None,
    max_positions: 2048,
    norm_eps: 1e-6,
    theta: 1e4,
    activation: "silu",
    rotated: None,
    tied: false,
    reader: FamilyReader::Llama,
};
const MISTRAL: FamilyDefaults = FamilyDefaults {
    model_type: "mistral",
    intermediate: Some(14336),
    kv_heads: Some(8),
    max_positions: 131072,
    ..LLAMA
};
const QWEN2: FamilyDefaults = FamilyDefaults {
    model_type: "qwen2",
    architecture: Architecture::Qwen2,
    vocab: 151936,
    intermediate: Some(22016),
    kv_heads: Some(32),
    max_positions: 32768,
    ..LLAMA
};
const QWEN3: FamilyDefaults =
    FamilyDefaults { model_type: "qwen3", architecture: Architecture::Qwen3, head_dim: Some(128), ..QWEN2 };
const OPT: FamilyDefaults = FamilyDefaults {
    model_type: "opt",
    architecture: Architecture::Opt,
    keys: FamilyKeys {
        kv_heads: None,
        head_dim: None,
        intermediate: "ffn_dim",
        activation: "activation_function",
        ..LLAMA_KEYS
    },
    vocab: 50272,
    hidden: 768,
    intermediate: Some(3072),
    layers: 12,
    heads: 12,
    activation: "relu",
    tied: true,
    reader: FamilyReader::Opt,
    ..LLAMA
};
const MIXTRAL: FamilyDefaults =
    FamilyDefaults { model_type: "mixtral", architecture: Architecture::Mixtral, ..MISTRAL };
const QWEN3_MOE: FamilyDefaults = FamilyDefaults {
    model_type: "qwen3_moe",
    architecture: Architecture::Qwen3Moe,
    hidden: 2048,
    intermediate: Some(6144),
    layers: 24,
    kv_heads: Some(4),
    ..QWEN2
};
const GPT_OSS: FamilyDefaults = FamilyDefaults {
    model_type: "gpt_oss",
    architecture: Architecture::GptOss,
    vocab: 201088,
    hidden: 2880,
    intermediate: Some(2880),
    layers: 36,
    heads: 64,
    kv_heads: Some(8),
    head_dim: Some(64),
    max_positions: 131072,
    ..LLAMA
};
const DEEPSEEK_V2: FamilyDefaults = FamilyDefaults {
    model_type: "deepseek_v2",
    architecture: Architecture::DeepSeekV2,
    vocab: 32000,
    max_positions: 2048,
    reader: FamilyReader::Latent,
    ..LLAMA
};
const DEEPSEEK_V3: FamilyDefaults = FamilyDefaults {
    model_type: "deepseek_v3",
    architecture: Architecture::DeepSeekV3,
    vocab: 129280,
    hidden: 7168,
    intermediate: Some(18432),
    layers: 61,
    heads: 128,
    max_positions: 4096,
    reader: FamilyReader::Latent,
    ..LLAMA
};
const GEMMA: FamilyDefaults = FamilyDefaults {
    model_type: "gemma",
    architecture: Architecture::Gemma,
    vocab: 256000,
    hidden: 3072,
    intermediate: Some(24576),
    layers: 28,
    heads: 16,
    kv_heads: Some(16),
    head_dim: Some(256),
    max_positions: 8192,
    activation: "gelu_pytorch_tanh",
    tied: true,
    ..LLAMA
};
const GEMMA2: FamilyDefaults = FamilyDefaults {
    model_type: "gemma2",
    architecture: Architecture::Gemma2,
    hidden: 2304,
    intermediate: Some(9216),
    layers: 26,
    heads: 8,
    kv_heads: Some(4),
    ..GEMMA
};
const GEMMA3: FamilyDefaults = FamilyDefaults {
    model_type: "gemma3_text",
    architecture: Architecture::Gemma3,
    vocab: 262208,
    max_positions: 131072,
    theta: 1_000_000.0,
    ..GEMMA2
};
const PHI: FamilyDefaults = FamilyDefaults {
    model_type: "phi",
    architecture: Architecture::Phi,
    keys: FamilyKeys { head_dim: None, norm_eps: "layer_norm_eps", ..LLAMA_KEYS },
    vocab: 51200,
    hidden: 2048,
    intermediate: Some(8192),
    layers: 24,
    norm_eps: 1e-5,
    activation: "gelu_new",
    rotated: Some(0.5),
    reader: FamilyReader::Gpt,
    ..LLAMA
};
const PHI3: FamilyDefaults = FamilyDefaults {
    model_type: "phi3",
    architecture: Architecture::Phi3,
    keys: FamilyKeys { head_dim: None, ..LLAMA_KEYS },
    vocab: 32064,
    hidden: 3072,
    intermediate: Some(8192),
    max_positions: 4096,
    norm_eps: 1e-5,
    rotated: Some(1.0),
    ..LLAMA
};
const GPT_NEOX: FamilyDefaults = FamilyDefaults {
    model_type: "gpt_neox",
    architecture: Architecture::GptNeoX,
    keys: FamilyKeys { kv_heads: None, head_dim: None, norm_eps: "layer_norm_eps", ..LLAMA_KEYS },
    vocab: 50432,
    hidden: 6144,
    intermediate: Some(24576),
    layers: 44,
    heads: 64,
    norm_eps: 1e-5,
    activation: "gelu",
    rotated: Some(0.25),
    reader: FamilyReader::Gpt,
    ..LLAMA
};
const GPT_J: FamilyDefaults = FamilyDefaults {
    model_type: "gptj",
    architecture: Architecture::GptJ,
    keys: FamilyKeys {
        hidden: "n_embd",
        layers: "n_layer",
        heads: "n_head",
        kv_heads: None,
        head_dim: None,
        intermediate: "n_inner",
        max_positions: "n_positions",
        norm_eps: "layer_norm_epsilon",
        activation: "activation_function",
    },
    vocab: 50400,
    intermediate: None,
    layers: 28,
    heads: 16,
    norm_eps: 1e-5,
    activation: "gelu_new",
    reader: FamilyReader::Gpt,
    ..LLAMA
};
const FALCON: FamilyDefaults = FamilyDefaults {
    model_type: "falcon",
    architecture: Architecture::Falcon,
    keys: FamilyKeys {
        kv_heads: Some("num_kv_heads"),
        head_dim: None,
        intermediate: "ffn_hidden_size",
        norm_eps: "layer_norm_epsilon",
        activation: "activation",
        ..LLAMA_KEYS
    },
    vocab: 65024,
    hidden: 4544,
    intermediate: None,
    heads: 71,
    norm_eps: 1e-5,
    activation: "gelu",
    tied: true,
    reader: FamilyReader::Gpt,
    ..LLAMA
};

/// These classes.
pub(super) const FIRST_FAMILIES: [&FamilyDefaults; 18] = [
    &LLAMA,
    &MISTRAL,
    &QWEN2,
    &QWEN3,
    &OPT,
    &MIXTRAL,
    &QWEN3_MOE,
    &GPT_OSS,
    &DEEPSEEK_V2,
    &DEEPSEEK_V3,
    &GEMMA,
    &GEMMA2,
    &GEMMA3,
    &PHI,
    &PHI3,
    &GPT_NEOX,
    &GPT_J,
    &FALCON,
];
