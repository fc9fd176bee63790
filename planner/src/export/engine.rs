//! The engines that plans are exported to.

use std::fmt;
use std::str::FromStr;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExportTarget {
    /// llama.cpp's server.
    LlamaCpp,
    /// KTransformers in SGLang.
    KTransformers,
    /// Hugging Face Transformers with Accelerate's device map.
    Accelerate,
    /// vLLM.
    Vllm,
    /// DeepSpeed ZeRO-Inference.
    DeepSpeed,
    /// FlexGen (FlexLLMGen).
    FlexGen,
}

impl ExportTarget {
    /// Every engine.
    pub const ALL: [ExportTarget; 6] = [
        ExportTarget::LlamaCpp,
        ExportTarget::KTransformers,
        ExportTarget::Accelerate,
        ExportTarget::Vllm,
        ExportTarget::DeepSpeed,
        ExportTarget::FlexGen,
    ];

    /// The word of the command line.
    pub fn name(self) -> &'static str {
        match self {
            ExportTarget::LlamaCpp => "llama.cpp",
            ExportTarget::KTransformers => "ktransformers",
            ExportTarget::Accelerate => "accelerate",
            ExportTarget::Vllm => "vllm",
            ExportTarget::DeepSpeed => "deepspeed",
            ExportTarget::FlexGen => "flexgen",
        }
    }
}

impl fmt::Display for ExportTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no engine's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an engine that plans are exported to: use one of {known}", known = ExportTarget::ALL.map(ExportTarget::name).join(", "))]
pub struct UnknownExportTarget(pub String);

impl FromStr for ExportTarget {
    type Err = UnknownExportTarget;

    fn from_str(word: &str) -> Result<Self, UnknownExportTarget> {
        let known = Self::ALL.into_iter().find(|engine| engine.name().eq_ignore_ascii_case(word));
        known.ok_or_else(|| UnknownExportTarget(word.to_owned()))
    }
}
