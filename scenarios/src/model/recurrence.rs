//! Mixers that keep a state of constant size for each sequence instead of a growing KV cache.

use hwprofiles::{Bytes, DType, Elements};
use serde::{Deserialize, Serialize};

/// A recurrent mixer: linear attention, a state-space model, or a short convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recurrence {
    /// Gated delta net (Yang et al. 2024), as in Qwen3-Next.
    GatedDelta {
        /// Heads of queries and of keys.
        key_heads: u64,
        /// Heads of values; a state for each.
        value_heads: u64,
        /// Width of a key.
        key_dim: u64,
        /// Width of a value.
        value_dim: u64,
        /// Taps of the convolution over q, k and v.
        taps: u64,
    },
    /// Kimi delta attention (Kimi Linear, 2025): a gated delta net with a decay for each channel.
    KimiDelta {
        /// Heads of q, k and v.
        heads: u64,
        /// Width of a head.
        head_dim: u64,
        /// Taps of the convolutions over q, k and v.
        taps: u64,
        /// Whether the output gate has a full matrix instead of two of rank `head_dim`.
        full_gate: bool,
        /// Whether the decay has such a full matrix too.
        full_decay: bool,
    },
    /// Mamba-2 (Dao and Gu 2024).
    Mamba2 {
        /// Heads.
        heads: u64,
        /// Width of a head.
        head_dim: u64,
        /// Groups of heads that share B and C.
        groups: u64,
        /// Width of the state.
        state: u64,
        /// Taps of the convolution over x, B and C.
        taps: u64,
    },
    /// Mamba (Gu and Dao 2023), as in Jamba.
    Mamba1 {
        /// Channels.
        channels: u64,
        /// Width of the state of a channel.
        state: u64,
        /// Rank of the step size's projection.
        step_rank: u64,
        /// Taps of the convolution over the channels.
        taps: u64,
    },
    /// A gated convolution over the last tokens (LFM2).
    ShortConvolution {
        /// Channels.
        channels: u64,
        /// Taps.
        taps: u64,
    },
}

/// Tokens that a prefill computes together before it updates the state.
const CHUNK: u64 = 64;

impl Recurrence {
    /// Rows of the projection of the residual: everything that is computed from it directly.
    pub fn projected(self) -> u64 {
        match self {
            Self::GatedDelta { key_heads, value_heads, key_dim, value_dim, .. } => {
                2 * key_heads * key_dim + 2 * value_heads * value_dim + 2 * value_heads
            }
            Self::KimiDelta { heads, head_dim, full_gate, full_decay, .. } => {
                let rows = |full: bool| if full { heads * head_dim } else { head_dim };
                3 * heads * head_dim + rows(full_gate) + rows(full_decay) + heads
            }
            Self::Mamba2 { heads, head_dim, groups, state, .. } => {
                2 * heads * head_dim + 2 * groups * state + heads
            }
            Self::Mamba1 { channels, .. } => 2 * channels,
            Self::ShortConvolution { channels, .. } => 3 * channels,
        }
    }

    /// The matrices behind that projection, as (rows, columns).
    pub(crate) fn inner_matrices(self) -> Vec<(u64, u64)> {
        match self {
            Self::KimiDelta { heads, head_dim, full_gate, full_decay, .. } => {
                let low_rank = [full_gate, full_decay].into_iter().filter(|full| !full).count();
                vec![(heads * head_dim, head_dim); low_rank]
            }
            Self::Mamba1 { channels, state, step_rank, .. } => {
                vec![(step_rank + 2 * state, channels), (channels, step_rank)]
            }
            _ => vec![],
        }
    }

    /// Columns of the result, which the output projection reads.
    pub fn context_width(self) -> u64 {
        match self {
            Self::GatedDelta { value_heads, value_dim, .. } => value_heads * value_dim,
            Self::KimiDelta { heads, head_dim, .. } | Self::Mamba2 { heads, head_dim, .. } => {
                heads * head_dim
            }
            Self::Mamba1 { channels, .. } | Self::ShortConvolution { channels, .. } => channels,
        }
    }

    /// Channels of the convolution, and its taps.
    fn convolution(self) -> (u64, u64) {
        match self {
            Self::GatedDelta { key_heads, value_heads, key_dim, value_dim, taps } => {
                (2 * key_heads * key_dim + value_heads * value_dim, taps)
            }
            Self::KimiDelta { heads, head_dim, taps, .. } => (3 * heads * head_dim, taps),
            Self::Mamba2 { heads, head_dim, groups, state, taps } => {
                (heads * head_dim + 2 * groups * state, taps)
            }
            Self::Mamba1 { channels, taps, .. } | Self::ShortConvolution { channels, taps } => {
                (channels, taps)
            }
        }
    }

    /// Channels of the convolution.
    pub(crate) fn channels(self) -> u64 {
        self.convolution().0
    }

    /// Numbers that are neither in a matrix nor in the layer's norm: convolutions, decays, step
    /// sizes, norms of heads.
    pub(crate) fn vectors(self) -> u64 {
        let (channels, taps) = self.convolution();
        channels * taps
            + match self {
                Self::GatedDelta { value_heads, value_dim, .. } => 2 * value_heads + value_dim,
                Self::KimiDelta { heads, head_dim, .. } => heads * head_dim + heads + head_dim,
                Self::Mamba2 { heads, head_dim, .. } => channels + 3 * heads + heads * head_dim,
                Self::Mamba1 { state, .. } => channels * (state + 3),
                Self::ShortConvolution { .. } => 0,
            }
    }

    /// Numbers of the recurrent state of one sequence, kept in f32.
    pub fn state_numbers(self) -> u64 {
        match self {
            Self::GatedDelta { value_heads, key_dim, value_dim, .. } => value_heads * key_dim * value_dim,
            Self::KimiDelta { heads, head_dim, .. } => heads * head_dim * head_dim,
            Self::Mamba2 { heads, head_dim, state, .. } => heads * head_dim * state,
            Self::Mamba1 { channels, state, .. } => channels * state,
            Self::ShortConvolution { .. } => 0,
        }
    }

    /// Bytes that one sequence keeps: the state in f32, and the convolution's last inputs, which
    /// gated delta nets and Mamba-2 keep in f32 and others in bf16.
    pub fn state_bytes(self) -> Bytes {
        let (channels, taps) = self.convolution();
        let wide = matches!(self, Self::GatedDelta { .. } | Self::Mamba2 { .. });
        let inputs = if wide { DType::F32 } else { DType::Bf16 };
        DType::F32.bytes(Elements::new(self.state_numbers()))
            + inputs.bytes(Elements::new(channels * taps.saturating_sub(1)))
    }

    /// FLOP of one token when tokens are computed one after the other: 7 for each number of a
    /// delta net's state (decay, read, difference, update, read), 6 for Mamba's.
    pub fn flop_in_turn(self) -> u64 {
        let (channels, taps) = self.convolution();
        let state = match self {
            Self::GatedDelta { .. } | Self::KimiDelta { .. } => 7 * self.state_numbers(),
            _ => 6 * self.state_numbers(),
        };
        state + 2 * channels * taps
    }

    /// How often a token that is computed alone goes through the state, to read and write it: a
    /// delta net three times (decay, and what the key reads; update; what the query reads), Mamba
    /// once.
    pub fn state_passes(self) -> u64 {
        match self {
            Self::GatedDelta { .. } | Self::KimiDelta { .. } => 3,
            Self::Mamba1 { .. } | Self::Mamba2 { .. } | Self::ShortConvolution { .. } => 1,
        }
    }

    /// FLOP of one token of a prefill, which computes chunks of 64 tokens with products of
    /// matrices. For a delta net with C tokens of a chunk, for each head:
    /// 6·dk·dv + C·(6·dk + 4·dv) + 2·C²/3; for Mamba-2: 6·d·s + C·(2·d + 2·s).
    pub fn flop_in_chunks(self) -> u64 {
        let (channels, taps) = self.convolution();
        let delta = |heads: u64, key: u64, value: u64| {
            heads * (6 * key * value + CHUNK * (6 * key + 4 * value) + 2 * CHUNK * CHUNK / 3)
        };
        let state = match self {
            Self::GatedDelta { value_heads, key_dim, value_dim, .. } => {
                delta(value_heads, key_dim, value_dim)
            }
            Self::KimiDelta { heads, head_dim, .. } => delta(heads, head_dim, head_dim),
            Self::Mamba2 { heads, head_dim, state, .. } => {
                heads * (6 * head_dim * state + CHUNK * 2 * (head_dim + state))
            }
            Self::Mamba1 { .. } | Self::ShortConvolution { .. } => return self.flop_in_turn(),
        };
        state + 2 * channels * taps
    }

    /// Depth of the products of a prefill's chunk.
    pub(crate) fn product_depth(self) -> u64 {
        match self {
            Self::GatedDelta { key_dim, .. } => key_dim,
            Self::KimiDelta { head_dim, .. } => head_dim,
            Self::Mamba2 { state, .. } | Self::Mamba1 { state, .. } => state,
            Self::ShortConvolution { taps, .. } => taps,
        }
    }

    /// The part that one of `ranks` ranks computes: heads or channels are divided, rounded up.
    #[must_use]
    pub(crate) fn share(self, ranks: u64) -> Self {
        let part = |count: u64| count.div_ceil(ranks);
        match self {
            Self::GatedDelta { key_heads, value_heads, key_dim, value_dim, taps } => Self::GatedDelta {
                key_heads: part(key_heads),
                value_heads: part(value_heads),
                key_dim,
                value_dim,
                taps,
            },
            Self::KimiDelta { heads, head_dim, taps, full_gate, full_decay } => {
                Self::KimiDelta { heads: part(heads), head_dim, taps, full_gate, full_decay }
            }
            Self::Mamba2 { heads, head_dim, groups, state, taps } => {
                Self::Mamba2 { heads: part(heads), head_dim, groups: part(groups), state, taps }
            }
            Self::Mamba1 { channels, state, step_rank, taps } => {
                Self::Mamba1 { channels: part(channels), state, step_rank, taps }
            }
            Self::ShortConvolution { channels, taps } => {
                Self::ShortConvolution { channels: part(channels), taps }
            }
        }
    }
}
