//! What can go wrong with a model's files, a placement, or a prompt.

use hwprofiles::{Bytes, DeviceKind, Machine};
use std::path::PathBuf;

/// Each variant names the file or key, what was found there, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// `config.json` is missing, or does not describe a model that we run.
    #[error(transparent)]
    Config(#[from] scenarios::ScenarioError),
    /// The header of a file of tensors, or an index, is invalid.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file ends before its tensors do.
    #[error("{}: the file has {found}, its header promises {expected}: it is cut short; fetch it again", path.display())]
    Truncated {
        /// Which file.
        path: PathBuf,
        /// Bytes it should have.
        expected: Bytes,
        /// Bytes it has.
        found: Bytes,
    },
    /// A tensor that the model needs is in no file.
    #[error("{}: tensor '{tensor}' is missing; {model} needs it with shape {expected:?}", path.display())]
    MissingTensor {
        /// The file or folder that should have it.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The model.
        model: String,
        /// The shape that the model gives it.
        expected: Vec<u64>,
    },
    /// A tensor of the MTP module that is to draft is in no file.
    #[error(
        "{}: tensor '{tensor}' is missing; the MTP module {module} needs it with shape {expected:?}: fetch the files that \
         have it (conversions often leave the module out), or name a draft model in speculative.draft",
        path.display()
    )]
    MissingModule {
        /// The file or folder that should have it.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The module.
        module: String,
        /// The shape that the module gives it.
        expected: Vec<u64>,
    },
    /// A tensor has another shape than the model gives it.
    #[error("{}: tensor '{tensor}' has shape {found:?}, config.json makes it {expected:?}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What the model says.
        expected: Vec<u64>,
        /// What the file says.
        found: Vec<u64>,
    },
    /// A tensor has a number format that is not read.
    #[error("{}: tensor '{tensor}' is {found}; F32, F16, BF16 and F8_E4M3 are read, of GGUF files also Q2_K to Q8_0, IQ4_NL, IQ4_XS, MXFP4 and NVFP4", path.display())]
    DType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What the file says.
        found: String,
    },
    /// A placement, a format or a size that cannot run.
    #[error("{key} is {value}: {wanted}")]
    Refused {
        /// What is wrong.
        key: String,
        /// What it is.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// A tokenizer could not be read, or refused a text.
    #[error("{}: {reason}", path.display())]
    Tokenizer {
        /// Its file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A memory is full, a core is not available to this process, or the system has no more memory.
    #[error(transparent)]
    Device(#[from] kernels::KernelError),
    /// There is no GPU, or what it needs is missing.
    #[error("device '{device}' cannot run: {reason}")]
    NoGpu {
        /// The machine's name for the GPU.
        device: String,
        /// What is missing, and what to do about it.
        reason: String,
    },
    /// A GPU refused a call, or failed to finish its work.
    #[error("device '{device}': {source}. {}", advice(source))]
    Gpu {
        /// The machine's name for the GPU.
        device: String,
        /// The call that failed, and the reason in CUDA's words.
        source: kernels::KernelError,
    },
    /// The placement needs a link that the machine does not have.
    #[error(transparent)]
    Lower(#[from] planner::LowerError),
    /// The plan was made for another machine or model, or is inconsistent.
    #[error("plan: {0}")]
    Plan(#[from] planner::PlanError),
    /// A rate that a modelled run needs has not been measured.
    #[error(transparent)]
    Unmeasured(#[from] hwprofiles::MissingRate),
}

/// What to do where a GPU has failed.
fn advice(refused: &kernels::KernelError) -> &'static str {
    match refused {
        kernels::KernelError::Gpu { reason, .. } if reason.contains("OUT_OF_MEMORY") => {
            "End what else uses its memory (`nvidia-smi` lists it), or plan for a GPU with less"
        }
        _ => {
            "`nvidia-smi` and `dmesg` tell whether it still works, `fulcrum bench --gpu-kernels` which of its kernels \
             do; a plan without it runs"
        }
    }
}

impl ExecutorError {
    /// Names the GPU of `machine` in an error that a call of the GPU returned.
    pub(crate) fn naming_gpu(self, machine: &Machine) -> Self {
        let gpu = machine.devices.iter().find(|device| device.kind == DeviceKind::Gpu);
        match (self, gpu) {
            (Self::Device(source @ kernels::KernelError::Gpu { .. }), Some(gpu)) => {
                Self::Gpu { device: gpu.name.clone(), source }
            }
            (error, _) => error,
        }
    }

    pub(crate) fn refused(key: impl Into<String>, value: impl ToString, wanted: impl Into<String>) -> Self {
        Self::Refused { key: key.into(), value: value.to_string(), wanted: wanted.into() }
    }
}
