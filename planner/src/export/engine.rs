//! The engines that plans are exported to.

use std::fmt;
use std::str::FromStr;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
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

impl Engine {
    /// Every engine.
    pub const ALL: [Engine; 6] = [
        Engine::LlamaCpp,
        Engine::KTransformers,
        Engine::Accelerate,
        Engine::Vllm,
        Engine::DeepSpeed,
        Engine::FlexGen,
    ];

    /// The word of the command line.
    pub fn name(self) -> &'static str {
        match self {
            Engine::LlamaCpp => "llama.cpp",
            Engine::KTransformers => "ktransformers",
            Engine::Accelerate => "accelerate",
            Engine::Vllm => "vllm",
            Engine::DeepSpeed => "deepspeed",
            Engine::FlexGen => "flexgen",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no engine's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an engine that plans are exported to: use one of {known}", known = Engine::ALL.map(Engine::name).join(", "))]
pub struct UnknownEngine(pub String);

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(word: &str) -> Result<Self, UnknownEngine> {
        let known = Self::ALL.into_iter().find(|engine| engine.name().eq_ignore_ascii_case(word));
        known.ok_or_else(|| UnknownEngine(word.to_owned()))
    }
}
