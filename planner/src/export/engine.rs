//! The engines that plans are exported to.

use hwprofiles::nearest;
use std::fmt;
use std::str::FromStr;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExportTarget {
    /// llama.cpp's server.
    LlamaCpp,
    /// The server of its fork ik_llama.cpp.
    IkLlamaCpp,
    /// Ollama.
    Ollama,
    /// LM Studio.
    LmStudio,
    /// KTransformers in SGLang.
    KTransformers,
    /// Hugging Face Transformers with Accelerate's device map.
    Accelerate,
    /// vLLM.
    Vllm,
    /// SGLang.
    SgLang,
    /// DeepSpeed ZeRO-Inference.
    DeepSpeed,
    /// FlexGen (FlexLLMGen).
    FlexGen,
}

impl ExportTarget {
    /// Every engine.
    pub const ALL: [ExportTarget; 10] = [
        ExportTarget::LlamaCpp,
        ExportTarget::IkLlamaCpp,
        ExportTarget::Ollama,
        ExportTarget::LmStudio,
        ExportTarget::KTransformers,
        ExportTarget::Accelerate,
        ExportTarget::Vllm,
        ExportTarget::SgLang,
        ExportTarget::DeepSpeed,
        ExportTarget::FlexGen,
    ];

    /// Whether it divides matrices between GPUs (tensor parallelism).
    pub fn divides_matrices(self) -> bool {
        matches!(self, Self::Vllm | Self::SgLang)
    }

    /// Whether it gives each of several GPUs some of the layers.
    pub fn divides_layers(self) -> bool {
        matches!(self, Self::LlamaCpp | Self::IkLlamaCpp | Self::Ollama | Self::LmStudio)
    }

    /// The word of the command line.
    pub fn name(self) -> &'static str {
        match self {
            ExportTarget::LlamaCpp => "llama.cpp",
            ExportTarget::IkLlamaCpp => "ik_llama.cpp",
            ExportTarget::Ollama => "ollama",
            ExportTarget::LmStudio => "lmstudio",
            ExportTarget::KTransformers => "ktransformers",
            ExportTarget::Accelerate => "accelerate",
            ExportTarget::Vllm => "vllm",
            ExportTarget::SgLang => "sglang",
            ExportTarget::DeepSpeed => "deepspeed",
            ExportTarget::FlexGen => "flexgen",
        }
    }

    /// The engine whose kernels it runs, and whose file says what they cost.
    pub fn kernels(self) -> &'static str {
        match self {
            ExportTarget::Ollama | ExportTarget::LmStudio => ExportTarget::LlamaCpp.name(),
            own => own.name(),
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
#[error("'{0}' is not an engine that plans are exported to; did you mean {near}? Known are {known}", near = nearest(.0, names())[0], known = names().collect::<Vec<_>>().join(", "))]
pub struct UnknownExportTarget(pub String);

fn names() -> impl Iterator<Item = &'static str> {
    ExportTarget::ALL.into_iter().map(ExportTarget::name)
}

impl FromStr for ExportTarget {
    type Err = UnknownExportTarget;

    fn from_str(word: &str) -> Result<Self, UnknownExportTarget> {
        let known = Self::ALL.into_iter().find(|engine| engine.name().eq_ignore_ascii_case(word));
        known.ok_or_else(|| UnknownExportTarget(word.to_owned()))
    }
}
