//! The engines that advice is given for, and what each can do.

use crate::error::{Error, Result};
use hwprofiles::{DType, DeviceKind, Machine, nearest};
use scenarios::{EngineProfile, Formats, GgufFileType, Model};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// An engine that people run at home.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum AdvisedEngine {
    /// `llama-server`.
    #[default]
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// The fork with kernels of its own for CPUs.
    #[serde(rename = "ik_llama.cpp")]
    IkLlamaCpp,
    /// llama.cpp under Ollama.
    #[serde(rename = "ollama")]
    Ollama,
    /// llama.cpp under LM Studio.
    #[serde(rename = "lmstudio")]
    LmStudio,
    /// Attention on the GPU, experts on the CPU.
    #[serde(rename = "ktransformers")]
    KTransformers,
    /// All on GPUs.
    #[serde(rename = "vllm")]
    Vllm,
    /// All on GPUs.
    #[serde(rename = "sglang")]
    Sglang,
}

/// How an engine places a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnginePlacing {
    /// Layers or experts with the CPU, the rest on the GPUs.
    Divided,
    /// Whole layers with the CPU, the rest on the GPUs.
    Layers,
    /// All experts with the CPU, the rest on the GPU.
    ExpertsApart,
    /// All on the GPUs, each matrix divided among them.
    OnGpus,
}

/// How an engine divides layers among several GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerSplitting {
    /// As an option says (`-ts`), and as their memories are without it.
    ByOption,
    /// As their memories are, or all to the first one where it has room.
    OneIfItFits,
    /// As their memories are.
    AsMemories,
}

/// Kinds of GGUF files that are offered for most models, those of most bits first.
const GGUF: [&str; 6] = ["q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq3_m", "iq2_m"];

/// Formats of safetensors files, those of most bits first.
const SAFETENSORS: [&str; 3] = ["bf16", "fp8", "int4_g128"];

impl AdvisedEngine {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::LlamaCpp,
        Self::IkLlamaCpp,
        Self::Ollama,
        Self::LmStudio,
        Self::KTransformers,
        Self::Vllm,
        Self::Sglang,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llama.cpp",
            Self::IkLlamaCpp => "ik_llama.cpp",
            Self::Ollama => "ollama",
            Self::LmStudio => "lmstudio",
            Self::KTransformers => "ktransformers",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
        }
    }

    /// What it does by default and costs.
    pub(super) fn profile(self) -> EngineProfile {
        let name = match self {
            Self::Ollama | Self::LmStudio => "llama.cpp",
            other => other.name(),
        };
        EngineProfile::shipped(name).expect("a test reads the profile of every engine")
    }

    pub(super) fn placing(self) -> EnginePlacing {
        match self {
            Self::Vllm | Self::Sglang => EnginePlacing::OnGpus,
            Self::KTransformers => EnginePlacing::ExpertsApart,
            Self::Ollama => EnginePlacing::Layers,
            _ => EnginePlacing::Divided,
        }
    }

    pub(super) fn splitting(self) -> LayerSplitting {
        match self {
            _ if self.runs_llama_server() => LayerSplitting::ByOption,
            Self::Ollama => LayerSplitting::OneIfItFits,
            _ => LayerSplitting::AsMemories,
        }
    }

    /// Whether its command is that of `llama-server`, which takes each GPU's part of the layers
    /// (`-ts`) and the tokens of a prefill step (`-ub`).
    pub(super) fn runs_llama_server(self) -> bool {
        matches!(self, Self::LlamaCpp | Self::IkLlamaCpp)
    }

    /// Whether it runs GGUF files.
    pub(super) fn reads_gguf(self) -> bool {
        self.placing() != EnginePlacing::OnGpus
    }

    /// The words of its usual formats; `own` is the one that a model was trained in.
    pub(super) fn formats(self, own: Option<&str>) -> Vec<String> {
        let usual = match (self.placing(), own) {
            (EnginePlacing::OnGpus, Some(_)) => vec!["mxfp4"],
            (EnginePlacing::OnGpus, None) => SAFETENSORS.to_vec(),
            (_, Some(own)) => vec![own],
            (EnginePlacing::ExpertsApart, None) => vec!["q8_0", "q4_k_m"],
            (_, None) => GGUF.to_vec(),
        };
        usual.into_iter().map(str::to_owned).collect()
    }

    /// Refuses a word that names no format that it runs, whatever the model is.
    ///
    /// # Errors
    /// The nearest formats that it runs.
    pub(super) fn check_format(self, word: &str) -> Result<()> {
        let is_number = word.parse::<DType>().is_ok_and(DType::holds_weights);
        match word.parse::<GgufFileType>() {
            Ok(_) if self.reads_gguf() => Ok(()),
            Ok(_) => Err(Error::input(format!(
                "--format {word}: {self} reads no GGUF files: one of {} is wanted",
                SAFETENSORS.join(", ")
            ))),
            Err(_) if is_number => Ok(()),
            Err(_) => {
                let near = self.near_formats(word);
                Err(Error::input(format!(
                    "--format '{word}' is not a format; did you mean {}? A kind of GGUF file (q4_k_m) or a number \
                     format (fp8, int4) is wanted",
                    near.join(", ")
                )))
            }
        }
    }

    /// At most three formats that it runs: those that begin with `word`, or the nearest.
    fn near_formats(self, word: &str) -> Vec<&'static str> {
        let others = GgufFileType::ALL.map(|entry| entry.1).into_iter().filter(|kind| !GGUF.contains(kind));
        let files = GGUF.into_iter().chain(others).filter(|_| self.reads_gguf());
        let numbers = DType::ALL.into_iter().filter(|dtype| dtype.holds_weights()).map(DType::name);
        let is_new = |name: &&str| !SAFETENSORS.contains(name) && name.parse::<GgufFileType>().is_err();
        let known: Vec<_> = files.chain(SAFETENSORS).chain(numbers.filter(is_new)).collect();
        let plain = word.to_lowercase().replace('-', "_");
        let begun = known.iter().copied().filter(|format| format.starts_with(&plain));
        match begun.take(3).collect::<Vec<_>>() {
            begun if begun.is_empty() => nearest(word, known),
            begun => begun,
        }
    }

    /// The formats that `word` means for `model` with this engine: those of a GGUF file, or of a
    /// published checkpoint ([`Model::usual_checkpoint`]).
    ///
    /// # Errors
    /// The word names none.
    pub(super) fn formats_named(self, word: &str, model: &Model) -> Result<Formats, String> {
        let activations = self.profile().serving.activations;
        let weights = match word.parse::<GgufFileType>() {
            Ok(file) if self.reads_gguf() => file.formats(model)?.for_model(model),
            Ok(_) => return Err(format!("{self} reads no GGUF files: one of {}", SAFETENSORS.join(", "))),
            Err(unknown) => match word.parse::<DType>() {
                Ok(dtype) if dtype.holds_weights() => model.usual_checkpoint(dtype)?,
                _ => return Err(unknown),
            },
        };
        let kv = if self.reads_gguf() { DType::F16 } else { DType::Bf16 };
        Ok(Formats { weights, kv, activations })
    }

    /// Refuses a machine that it cannot run on.
    ///
    /// # Errors
    /// The machine lacks what the engine needs, and the error says which engine does without.
    pub(super) fn check(self, machine: &Machine, unified: bool) -> Result<()> {
        let has_gpu = machine.devices.iter().any(|device| device.kind == DeviceKind::Gpu);
        let needs_gpu = matches!(self.placing(), EnginePlacing::OnGpus | EnginePlacing::ExpertsApart);
        let apple = unified && machine.name.contains("apple");
        match needs_gpu && (!has_gpu || apple || (unified && self == Self::KTransformers)) {
            true => Err(Error::input(format!(
                "--engine {self}: it needs a GPU with memory of its own, and this machine has none; \
                 --engine llama.cpp runs here"
            ))),
            false => Ok(()),
        }
    }
}

impl fmt::Display for AdvisedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for AdvisedEngine {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' ', '.'], "");
        let found = Self::ALL.into_iter().find(|engine| plain(engine.name()) == plain(word));
        found.ok_or_else(|| {
            let near = nearest(word, Self::ALL.map(Self::name));
            format!("'{word}' is no engine that advice is given for; the nearest are {}", near.join(", "))
        })
    }
}
