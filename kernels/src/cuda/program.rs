//! The programs of a GPU: texts of kernels that are compiled together.

use crate::cpu::Weights;
use hwprofiles::DType;

/// A program: one file of `kernels/src/cuda/device` behind the common prelude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuProgram {
    /// Norms.
    Norm,
    /// Rotary embedding.
    Rope,
    /// Activation functions.
    Activation,
    /// Sums of vectors.
    Residual,
    /// Rows of a packed matrix.
    Embedding {
        /// The format of the matrix: the compiled text has the kernels of this one only.
        format: DType,
    },
    /// Writes to a KV cache.
    Cache,
    /// Attention of one token per sequence.
    Decode {
        /// The number of values of one head, a constant of the compiled text.
        head_dim: usize,
    },
    /// Attention of a prompt.
    Prefill {
        /// As in [`GpuProgram::Decode`].
        head_dim: usize,
    },
    /// Gated delta nets.
    Delta {
        /// The number of values of a key, a constant of the compiled text.
        key_dim: usize,
    },
    /// Products of few rows, or of each row with its expert's matrix.
    Gemv {
        /// As in [`GpuProgram::Embedding`].
        format: DType,
    },
    /// Products of many rows with their experts' matrices.
    Grouped {
        /// As in [`GpuProgram::Embedding`].
        format: DType,
    },
    /// The routing of tokens to experts.
    Experts,
    /// Rows of queries, keys and contexts before and behind attention.
    Heads,
    /// Routers that are not plain, and shared experts.
    Mixture,
    /// Conversions between the host's formats and the GPU's.
    Hop,
    /// From packed weights to plain rows.
    Unpack {
        /// As in [`GpuProgram::Embedding`].
        format: DType,
    },
    /// Sampling of tokens from logits.
    Sampling,
}

const PRELUDE: &str = include_str!("device/prelude.cu");
const PACKED: &str = include_str!("device/packed.cu");
const BLOCKS: &str = include_str!("device/blocks.cu");
const TILE: &str = include_str!("device/tile.cu");

impl GpuProgram {
    /// Every program, with each of these sizes of heads and of keys, and each of these formats, for
    /// those that depend on one.
    pub fn all(head_dims: &[usize], key_dims: &[usize], formats: &[DType]) -> Vec<Self> {
        let others = [
            Self::Norm,
            Self::Rope,
            Self::Activation,
            Self::Residual,
            Self::Cache,
            Self::Experts,
            Self::Heads,
            Self::Mixture,
            Self::Hop,
            Self::Sampling,
        ];
        let attention = |&head_dim: &usize| [Self::Decode { head_dim }, Self::Prefill { head_dim }];
        let recurrence = |&key_dim: &usize| Self::Delta { key_dim };
        let by_format = |&format: &DType| {
            [
                Self::Embedding { format },
                Self::Gemv { format },
                Self::Grouped { format },
                Self::Unpack { format },
            ]
        };
        let sized = head_dims.iter().flat_map(attention).chain(key_dims.iter().map(recurrence));
        others.into_iter().chain(sized).chain(formats.iter().flat_map(by_format)).collect()
    }

    /// The name of its file.
    pub fn name(self) -> &'static str {
        self.file().0
    }

    /// The size or the format for which it is compiled; nothing where it depends on neither.
    pub fn constant(self) -> String {
        match self {
            Self::Decode { head_dim } | Self::Prefill { head_dim } => head_dim.to_string(),
            Self::Delta { key_dim } => key_dim.to_string(),
            Self::Embedding { format }
            | Self::Gemv { format }
            | Self::Grouped { format }
            | Self::Unpack { format } => format.to_string(),
            _ => String::new(),
        }
    }

    fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Norm => ("norm", include_str!("device/norm.cu")),
            Self::Rope => ("rope", include_str!("device/rope.cu")),
            Self::Activation => ("activation", include_str!("device/activation.cu")),
            Self::Residual => ("residual", include_str!("device/residual.cu")),
            Self::Embedding { .. } => ("embedding", include_str!("device/embedding.cu")),
            Self::Cache => ("cache", include_str!("device/cache.cu")),
            Self::Decode { .. } => ("decode", include_str!("device/decode.cu")),
            Self::Prefill { .. } => ("prefill", include_str!("device/prefill.cu")),
            Self::Delta { .. } => ("delta", include_str!("device/delta.cu")),
            Self::Gemv { .. } => ("gemv", include_str!("device/gemv.cu")),
            Self::Grouped { .. } => ("grouped", include_str!("device/grouped.cu")),
            Self::Experts => ("experts", include_str!("device/experts.cu")),
            Self::Heads => ("heads", include_str!("device/heads.cu")),
            Self::Mixture => ("mixture", include_str!("device/mixture.cu")),
            Self::Hop => ("hop", include_str!("device/hop.cu")),
            Self::Unpack { .. } => ("unpack", include_str!("device/unpack.cu")),
            Self::Sampling => ("sampling", include_str!("device/sampling.cu")),
        }
    }

    /// The whole text that NVRTC gets.
    pub fn text(self) -> String {
        let constant = self.constant();
        let define = match self {
            Self::Decode { .. } | Self::Prefill { .. } | Self::Delta { .. } => {
                format!("#define HEAD_DIM {constant}\n")
            }
            Self::Embedding { format }
            | Self::Gemv { format }
            | Self::Grouped { format }
            | Self::Unpack { format } => {
                let kinds = if Weights::has_blocks(format) { ["BLOCK", "PLAIN"] } else { ["PLAIN", "BLOCK"] };
                let [own, other] = kinds;
                format!("#define {own}_FORMATS(M) M({constant})\n#define {other}_FORMATS(M)\n")
            }
            _ => String::new(),
        };
        [&define, PRELUDE, PACKED, BLOCKS, TILE, self.file().1].concat()
    }
}
