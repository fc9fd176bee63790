//! The blocks that one sequence takes from the pool of the KV cache.
//!
//! A block is what `block_size` tokens add to the cache without end. Windows and states take blocks
//! of the same pool beside those, as in vLLM's hybrid KV cache manager, whose groups of layers have
//! pages of one size: a window takes blocks until it is full, then those that leave it come back; a
//! state takes its blocks when the sequence is admitted.
//!
//! A prefix can be found again only where these were kept too. Such a *snapshot* takes free blocks
//! of the pool, which are overwritten as all free blocks are, the longest unused first.

use hwprofiles::Bytes;
use planner::SequenceBytes;
use serde::{Deserialize, Serialize};

/// What one sequence takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SequenceBlocks {
    /// Whether each `block_size` tokens take a block without end. If not, nothing but windows and
    /// states is kept.
    grows: bool,
    /// What a sequence keeps beside that, in each memory in which it keeps anything.
    beside: Vec<BesideBlocks>,
}

/// What a sequence keeps in one memory beside what grows without end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct BesideBlocks {
    /// The bytes of a block in this memory.
    block: Bytes,
    /// What it keeps.
    kept: SequenceBytes,
    /// The part of it that takes blocks. The rest has room of its own.
    pooled: SequenceBytes,
}

impl Default for SequenceBlocks {
    /// A model without windows and states.
    fn default() -> Self {
        Self { grows: true, beside: Vec::new() }
    }
}

impl SequenceBlocks {
    /// The blocks of sequences. `all` has for each memory the bytes of a block, what a sequence
    /// keeps, and the part of it that takes blocks. The memory in which they take the most blocks
    /// counts, because a block is a block of all memories.
    pub(crate) fn new(
        grows: bool,
        all: impl IntoIterator<Item = (Bytes, SequenceBytes, SequenceBytes)>,
    ) -> Self {
        let beside = all.into_iter().map(|(block, kept, pooled)| BesideBlocks { block, kept, pooled });
        Self { grows, beside: beside.filter(|one| one.kept.constant() > Bytes::ZERO).collect() }
    }

    /// Whether a sequence takes nothing but a block for each `block_size` tokens.
    pub fn is_plain(&self) -> bool {
        self.grows && self.beside.is_empty()
    }

    /// Whether each `block_size` tokens take a block without end.
    pub fn grows(&self) -> bool {
        self.grows
    }

    /// Whether a sequence has a state.
    pub fn has_state(&self) -> bool {
        self.beside.iter().any(|one| one.kept.state > Bytes::ZERO)
    }

    /// The tokens of the longest window; 0 without one.
    pub fn longest_window(&self) -> u64 {
        self.longest(|one| &one.kept)
    }

    /// The tokens of the longest window that takes blocks; 0 without one.
    pub(crate) fn longest_pooled_window(&self) -> u64 {
        self.longest(|one| &one.pooled)
    }

    fn longest(&self, part: impl Fn(&BesideBlocks) -> &SequenceBytes) -> u64 {
        let windows = self.beside.iter().filter_map(|one| part(one).windows.keys().next_back().copied());
        windows.max().unwrap_or(0)
    }

    /// Blocks of a sequence of `tokens` tokens, in blocks of `block_size` tokens.
    pub fn blocks(&self, tokens: u64, block_size: u64) -> u64 {
        let growing = if self.grows { tokens.div_ceil(block_size) } else { 0 };
        growing + self.beside(tokens, block_size)
    }

    /// The blocks among them that do not grow without end.
    pub fn beside(&self, tokens: u64, block_size: u64) -> u64 {
        let whole = tokens.div_ceil(block_size).saturating_mul(block_size);
        if tokens == 0 { 0 } else { self.most(|one| one.pooled.beside(whole, true)) }
    }

    /// Blocks that hold a copy of all that a sequence of `tokens` tokens keeps.
    pub fn copied(&self, tokens: u64, block_size: u64) -> u64 {
        let growing = tokens.div_ceil(block_size);
        let whole = growing.saturating_mul(block_size);
        let growing = if self.grows { growing } else { 0 };
        growing + if tokens == 0 { 0 } else { self.most(|one| one.kept.beside(whole, true)) }
    }

    /// Blocks of the snapshot of a prefix that was kept `tokens` tokens after the snapshot before
    /// it: as many tokens of each window, and the state if it `has_state`.
    pub fn snapshot(&self, tokens: u64, has_state: bool) -> u64 {
        self.most(|one| one.kept.beside(tokens, has_state))
    }

    /// The same, or more in any respect where `other` takes more.
    pub fn join(&mut self, other: &Self) {
        self.grows |= other.grows;
        let new = other.beside.iter().filter(|one| !self.beside.contains(one)).cloned().collect::<Vec<_>>();
        self.beside.extend(new);
    }

    fn most(&self, bytes: impl Fn(&BesideBlocks) -> Bytes) -> u64 {
        let blocks = |one: &BesideBlocks| bytes(one).get().div_ceil(one.block.get().max(1));
        self.beside.iter().map(blocks).max().unwrap_or(0)
    }
}
