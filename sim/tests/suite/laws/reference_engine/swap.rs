//! The literal engine's swap space.

use super::{Naive, Work};
use sim::serving::{Batch, PromptChunk, StepPrices};

impl<P: StepPrices> Work<'_, P> {
    /// `sequence`, of which `tokens` were computed, goes to the swap space where that is wanted and there is room.
    pub fn swap_out(&mut self, sequence: &mut Naive, tokens: u64) {
        let Some(swap) = self.cache.engine.swap else { return };
        let blocks = tokens.div_ceil(self.cache.engine.block_size);
        let chunks = [PromptChunk { new: tokens, past: 0 }];
        let again = Batch { chunks: &chunks, decodes: 0, decode_tokens: 0, sampled: 0 };
        let again = self.prices.step(&again).unwrap();
        let both = swap.out.time(blocks) + swap.back.time(blocks);
        let wanted = !swap.only_if_faster || again > both;
        if tokens > 0 && wanted && self.swapped + blocks <= swap.blocks {
            sequence.swapped = tokens;
            self.swapped += blocks;
            self.moving += swap.out.time(blocks).picos();
        }
    }

    /// All of `sequence` that is there comes back, but for the blocks that were found.
    pub fn swap_back(&mut self, sequence: &mut Naive, found: usize) {
        let tokens = std::mem::take(&mut sequence.swapped);
        if tokens > 0 {
            let blocks = tokens.div_ceil(self.cache.engine.block_size);
            self.swapped -= blocks;
            let moved = blocks.saturating_sub(found as u64);
            if moved > 0 {
                self.moving += self.cache.engine.swap.unwrap().back.time(moved).picos();
            }
        }
    }
}
