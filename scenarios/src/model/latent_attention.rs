//! Multi-head latent attention (DeepSeek-V2): keys and values are cached as one short vector per
//! token.

use serde::{Deserialize, Serialize};

/// Widths of multi-head latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LatentAttention {
    /// Width of the vector that queries are expanded from; `None` means that they are projected
    /// from the residual directly.
    pub q_rank: Option<u64>,
    /// Width of the vector that keys and values are expanded from.
    pub kv_rank: u64,
    /// Rotated columns of a head's query and key; all heads share the key's rotated columns.
    pub rope_dim: u64,
    /// Columns of a head's query and key that are not rotated.
    pub nope_dim: u64,
    /// Columns of a head's value.
    pub v_dim: u64,
}

impl LatentAttention {
    /// Numbers that one token has in one layer's KV cache: the latent vector and the rotated key.
    pub fn kv_numbers(&self) -> u64 {
        self.kv_rank + self.rope_dim
    }
}
