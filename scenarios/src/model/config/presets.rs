//! The models that Fulcrum knows by name: `models/*.json`, each a Hugging Face `config.json`.
//!
//! The presets of gpt-oss and DeepSeek-V3 are bf16 shapes. The formats of their published
//! checkpoints (mxfp4, fp8) are left out, because a scenario's `dtype` chooses the formats. Presets
//! have no multi-token prediction.

use crate::input::error::ScenarioError;
use crate::model::transformer::Model;

/// Names in ascending order, with their files. A test compares this table with the folder.
const PRESETS: [(&str, &str); 51] = [
    ("deepseek-v2-lite", include_str!("../../../models/deepseek-v2-lite.json")),
    ("deepseek-v3", include_str!("../../../models/deepseek-v3.json")),
    ("falcon-40b", include_str!("../../../models/falcon-40b.json")),
    ("falcon-7b", include_str!("../../../models/falcon-7b.json")),
    ("fulcrum-1b", include_str!("../../../models/fulcrum-1b.json")),
    ("fulcrum-250m", include_str!("../../../models/fulcrum-250m.json")),
    ("fulcrum-tiny", include_str!("../../../models/fulcrum-tiny.json")),
    ("gemma-2-27b", include_str!("../../../models/gemma-2-27b.json")),
    ("gemma-2-2b", include_str!("../../../models/gemma-2-2b.json")),
    ("gemma-2-9b", include_str!("../../../models/gemma-2-9b.json")),
    ("gemma-2b", include_str!("../../../models/gemma-2b.json")),
    ("gemma-3-12b", include_str!("../../../models/gemma-3-12b.json")),
    ("gemma-3-1b", include_str!("../../../models/gemma-3-1b.json")),
    ("gemma-3-27b", include_str!("../../../models/gemma-3-27b.json")),
    ("gemma-3-4b", include_str!("../../../models/gemma-3-4b.json")),
    ("gemma-7b", include_str!("../../../models/gemma-7b.json")),
    ("gpt-j-6b", include_str!("../../../models/gpt-j-6b.json")),
    ("gpt-neox-20b", include_str!("../../../models/gpt-neox-20b.json")),
    ("gpt-oss-120b", include_str!("../../../models/gpt-oss-120b.json")),
    ("gpt-oss-20b", include_str!("../../../models/gpt-oss-20b.json")),
    ("llama-2-13b", include_str!("../../../models/llama-2-13b.json")),
    ("llama-2-70b", include_str!("../../../models/llama-2-70b.json")),
    ("llama-2-7b", include_str!("../../../models/llama-2-7b.json")),
    ("llama-3.1-405b", include_str!("../../../models/llama-3.1-405b.json")),
    ("llama-3.1-70b", include_str!("../../../models/llama-3.1-70b.json")),
    ("llama-3.1-8b", include_str!("../../../models/llama-3.1-8b.json")),
    ("llama-3.2-1b", include_str!("../../../models/llama-3.2-1b.json")),
    ("mistral-7b", include_str!("../../../models/mistral-7b.json")),
    ("mixtral-8x22b", include_str!("../../../models/mixtral-8x22b.json")),
    ("mixtral-8x7b", include_str!("../../../models/mixtral-8x7b.json")),
    ("opt-1.3b", include_str!("../../../models/opt-1.3b.json")),
    ("opt-125m", include_str!("../../../models/opt-125m.json")),
    ("opt-13b", include_str!("../../../models/opt-13b.json")),
    ("opt-175b", include_str!("../../../models/opt-175b.json")),
    ("opt-30b", include_str!("../../../models/opt-30b.json")),
    ("opt-6.7b", include_str!("../../../models/opt-6.7b.json")),
    ("opt-66b", include_str!("../../../models/opt-66b.json")),
    ("phi-2", include_str!("../../../models/phi-2.json")),
    ("phi-3-mini-4k", include_str!("../../../models/phi-3-mini-4k.json")),
    ("phi-4", include_str!("../../../models/phi-4.json")),
    ("pythia-1.4b", include_str!("../../../models/pythia-1.4b.json")),
    ("pythia-6.9b", include_str!("../../../models/pythia-6.9b.json")),
    ("qwen2.5-0.5b", include_str!("../../../models/qwen2.5-0.5b.json")),
    ("qwen2.5-72b", include_str!("../../../models/qwen2.5-72b.json")),
    ("qwen2.5-7b", include_str!("../../../models/qwen2.5-7b.json")),
    ("qwen3-0.6b", include_str!("../../../models/qwen3-0.6b.json")),
    ("qwen3-235b-a22b", include_str!("../../../models/qwen3-235b-a22b.json")),
    ("qwen3-30b-a3b", include_str!("../../../models/qwen3-30b-a3b.json")),
    ("qwen3-32b", include_str!("../../../models/qwen3-32b.json")),
    ("qwen3-8b", include_str!("../../../models/qwen3-8b.json")),
    ("tinyllama-1.1b", include_str!("../../../models/tinyllama-1.1b.json")),
];

impl Model {
    /// The preset of that name.
    ///
    /// # Errors
    /// There is no such preset; the error names all presets.
    pub fn preset(name: &str) -> Result<Self, ScenarioError> {
        match PRESETS.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Self::from_config_json(name, &format!("models/{name}.json"), text),
            None => Err(ScenarioError::UnknownPreset {
                name: name.to_owned(),
                known: Self::preset_names().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// The names of all presets, ascending.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }
}
