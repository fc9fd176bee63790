//! The programs of a GPU: texts of kernels that are compiled together.

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
    Embedding,
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
    Gemv,
    /// Products of many rows with their experts' matrices.
    Grouped,
    /// The routing of tokens to experts.
    Experts,
    /// Rows of queries, keys and contexts before and behind attention.
    Heads,
    /// Routers that are not plain, and shared experts.
    Mixture,
    /// Conversions between the host's formats and the GPU's.
    Hop,
    /// From packed weights to plain rows.
    Unpack,
    /// Sampling of tokens from logits.
    Sampling,
}

const PRELUDE: &str = include_str!("device/prelude.cu");
const PACKED: &str = include_str!("device/packed.cu");
const TILE: &str = include_str!("device/tile.cu");

impl GpuProgram {
    /// Every program, with this size of heads and keys for those that depend on it.
    pub fn all(head_dim: usize) -> [Self; 17] {
        let attention = [Self::Decode { head_dim }, Self::Prefill { head_dim }];
        let [decode, prefill] = attention;
        [
            Self::Norm,
            Self::Rope,
            Self::Activation,
            Self::Residual,
            Self::Embedding,
            Self::Cache,
            decode,
            prefill,
            Self::Delta { key_dim: head_dim },
            Self::Gemv,
            Self::Grouped,
            Self::Experts,
            Self::Heads,
            Self::Mixture,
            Self::Hop,
            Self::Unpack,
            Self::Sampling,
        ]
    }

    /// The name of its file.
    pub fn name(self) -> &'static str {
        self.file().0
    }

    /// The head size for which it is compiled; 0 for programs that do not depend on it.
    pub fn head_dim(self) -> usize {
        match self {
            Self::Decode { head_dim } | Self::Prefill { head_dim } => head_dim,
            Self::Delta { key_dim } => key_dim,
            _ => 0,
        }
    }

    fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Norm => ("norm", include_str!("device/norm.cu")),
            Self::Rope => ("rope", include_str!("device/rope.cu")),
            Self::Activation => ("activation", include_str!("device/activation.cu")),
            Self::Residual => ("residual", include_str!("device/residual.cu")),
            Self::Embedding => ("embedding", include_str!("device/embedding.cu")),
            Self::Cache => ("cache", include_str!("device/cache.cu")),
            Self::Decode { .. } => ("decode", include_str!("device/decode.cu")),
            Self::Prefill { .. } => ("prefill", include_str!("device/prefill.cu")),
            Self::Delta { .. } => ("delta", include_str!("device/delta.cu")),
            Self::Gemv => ("gemv", include_str!("device/gemv.cu")),
            Self::Grouped => ("grouped", include_str!("device/grouped.cu")),
            Self::Experts => ("experts", include_str!("device/experts.cu")),
            Self::Heads => ("heads", include_str!("device/heads.cu")),
            Self::Mixture => ("mixture", include_str!("device/mixture.cu")),
            Self::Hop => ("hop", include_str!("device/hop.cu")),
            Self::Unpack => ("unpack", include_str!("device/unpack.cu")),
            Self::Sampling => ("sampling", include_str!("device/sampling.cu")),
        }
    }

    /// The whole text that NVRTC gets.
    pub fn text(self) -> String {
        let define = match self.head_dim() {
            0 => String::new(),
            head_dim => format!("#define HEAD_DIM {head_dim}\n"),
        };
        [&define, PRELUDE, PACKED, TILE, self.file().1].concat()
    }
}
