//! How much working memory a product needs.

use super::blocking::{BUFFER, padded_stride};
use super::{amx, bf16_input, int16_input};
use crate::cpu::weights::PANEL;

/// Bytes of scratch that [`gemm()`](super::gemm()) needs for `m` rows of `k` columns on a pool of
/// `members`, whatever the format of the weights.
pub fn scratch_bytes(members: usize, m: usize, k: usize) -> usize {
    let floats = (m * padded_stride(k)).max(int16_input::int16_floats(m, k)).max(bf16_input::floats(m, k));
    let per_member = (BUFFER * PANEL).max(amx::MEMBER_FLOATS);
    size_of::<f32>() * (floats + members * per_member)
}
