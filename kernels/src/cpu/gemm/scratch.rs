//! How much working memory a product needs.

use super::blocking::{BUFFER, padded_stride};
use super::{amx, bf16_input, int16_input};
use crate::cpu::blocks::row_floats;
use crate::cpu::weights::PANEL;

/// Bytes of scratch that [`gemm()`](super::gemm()) needs for `m` rows of `k` columns on a pool of
/// `members`, whatever the format of the weights.
pub fn scratch_bytes(members: usize, m: usize, k: usize) -> usize {
    let integers = int16_input::int16_floats(m, k).max(m * row_floats(k));
    let halves = bf16_input::floats(m, k).max(bf16_input::block_floats(m, k));
    let floats = (m * padded_stride(k)).max(integers).max(halves);
    let per_member = (BUFFER * PANEL).max(amx::MEMBER_FLOATS);
    size_of::<f32>() * (floats + members * per_member)
}
