//! One family: its keys, its defaults, and what reads the rest of it.

use crate::model::architecture::Architecture;
use crate::model::config::families::classes::CLASSES;
use crate::model::config::families::defaults::FIRST_FAMILIES;
use crate::model::config::readers::decoder::Decoder;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// The names of a class's keys for its sizes.
pub(crate) struct FamilyKeys {
    pub hidden: &'static str,
    pub layers: &'static str,
    pub heads: &'static str,
    /// None: one for each query head.
    pub kv_heads: Option<&'static str>,
    /// None: hidden / heads.
    pub head_dim: Option<&'static str>,
    pub intermediate: &'static str,
    pub max_positions: &'static str,
    pub norm_eps: &'static str,
    pub activation: &'static str,
}

/// What reads the keys of a family beside its sizes.
#[derive(Clone, Copy)]
pub(crate) enum FamilyReader {
    /// Llama and its close relatives.
    Llama,
    Opt,
    /// Layer norms, networks without a gate, parallel blocks.
    Gpt,
    /// Plain attention with a network or experts, in other wirings.
    Decoder(&'static Decoder),
    /// Latent attention, with or without an indexer.
    Latent,
    /// DeepSeek-V4.
    Compressed,
    /// Kimi delta attention and latent attention.
    KimiDelta,
    /// Gated delta nets and attention.
    GatedDelta,
    /// One sublayer per layer.
    OneSublayer,
    /// Mamba and attention.
    Mamba,
    /// Short convolutions and attention.
    ShortConvolution,
    Llama4,
    /// Gemma 3n and 4.
    LayeredGemma,
    MiMo,
    MiniMaxM3,
}

/// The defaults of one configuration class.
pub(crate) struct FamilyDefaults {
    pub model_type: &'static str,
    pub architecture: Architecture,
    pub keys: FamilyKeys,
    /// 0: the key must be present.
    pub vocab: u64,
    /// 0: the key must be present.
    pub hidden: u64,
    /// None: 4 · hidden.
    pub intermediate: Option<u64>,
    /// 0: the key must be present.
    pub layers: u64,
    /// 0: the key must be present.
    pub heads: u64,
    /// None: one for each query head.
    pub kv_heads: Option<u64>,
    /// None: hidden / heads.
    pub head_dim: Option<u64>,
    pub max_positions: u64,
    pub norm_eps: f64,
    /// Base of the rotary frequencies.
    pub theta: f64,
    pub activation: &'static str,
    /// The default share of each head that is rotated; `None` in classes that rotate whole heads.
    pub rotated: Option<f64>,
    pub tied: bool,
    pub reader: FamilyReader,
}

/// Values of the keys of configuration classes where a `config.json` leaves them out, by model type.
static CLASS_DEFAULTS: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("class_defaults.json")).unwrap_or_default());

impl FamilyDefaults {
    /// Every family.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        FIRST_FAMILIES.into_iter().chain(CLASSES)
    }

    /// The family of `model_type`, which may be another name of it.
    pub fn find(model_type: &str) -> Option<&'static Self> {
        let name =
            ALIASES.into_iter().find(|(alias, _)| *alias == model_type).map_or(model_type, |(_, of)| of);
        Self::all().find(|family| family.model_type == name)
    }

    /// Whether the fields of this struct, and not a table, hold the defaults of its keys.
    pub fn has_own_defaults(&self) -> bool {
        self.hidden > 0
    }

    /// The values of absent keys, if they are in the table.
    pub fn class_defaults(&self) -> Option<&'static Map<String, Value>> {
        CLASS_DEFAULTS.get(self.model_type).and_then(Value::as_object)
    }

    /// Whether heads have the widths of latent attention and not `head_dim`.
    pub fn is_latent(&self) -> bool {
        matches!(self.reader, FamilyReader::Latent | FamilyReader::KimiDelta)
    }
}

/// Model types with the keys and the wiring of another one.
const ALIASES: [(&str, &str); 24] = [
    ("kimi_k2", "deepseek_v3"),
    ("ministral3", "mistral"),
    ("iquestcoder", "llama"),
    ("internlm3", "llama"),
    ("mimo", "qwen2"),
    ("qwen2_vl", "qwen2"),
    ("qwen2_vl_text", "qwen2"),
    ("qwen2_5_vl", "qwen2"),
    ("qwen2_5_vl_text", "qwen2"),
    ("qwen2_5_omni_text", "qwen2"),
    ("qwen3_vl_text", "qwen3"),
    ("qwen3_vl_moe_text", "qwen3_moe"),
    ("qwen3_omni_moe_text", "qwen3_moe"),
    ("glm4v_text", "glm4"),
    ("glm4v_moe_text", "glm4_moe"),
    ("glm46v_text", "glm4_moe"),
    ("glm_ocr_text", "glm4"),
    ("ernie4_5_moe_vl", "ernie4_5_moe"),
    ("bailing_moe_v2", "bailing_moe"),
    ("bailing_moe_linear", "bailing_moe"),
    ("minimax_m3_vl_text", "minimax_m3"),
    ("minimax_m2_5", "minimax_m2"),
    ("dots_moe", "dots1"),
    ("lfm2_moe_text", "lfm2_moe"),
];
