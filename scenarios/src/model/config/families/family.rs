//! One family: its keys, its defaults, and what reads the rest of it.

use crate::model::architecture::Architecture;
use crate::model::config::families::decoders::Decoder;
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

/// Values of the keys of configuration classes where a `config.json` leaves them out, by model
/// type.
static CLASS_DEFAULTS: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("class_defaults.json")).unwrap_or_default());

impl FamilyDefaults {
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
