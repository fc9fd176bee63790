//! The reference engine's swap space.

use super::{ReferenceEngine, ReferenceSequence, blocks_of};
use sim::serving::{Batch, PrefillChunk, StepPrices};

impl<P: StepPrices> ReferenceEngine<'_, P> {
    /// Moves `tokens` computed tokens of `sequence` to the swap space, if that pays and there is
    /// room.
    pub fn swap_out(&mut self, sequence: &mut ReferenceSequence, tokens: u64) {
        let Some(swap) = self.cache.engine.swap else { return };
        let blocks = blocks_of(self.cache.engine, tokens);
        let chunks = [PrefillChunk { new: tokens, past: 0 }];
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

    /// Brings back all swapped tokens of `sequence`, except for the blocks that were found.
    pub fn swap_back(&mut self, sequence: &mut ReferenceSequence, found: usize) {
        let tokens = std::mem::take(&mut sequence.swapped);
        if tokens > 0 {
            let blocks = blocks_of(self.cache.engine, tokens);
            self.swapped -= blocks;
            let moved = blocks.saturating_sub(found as u64);
            if moved > 0 {
                self.moving += self.cache.engine.swap.unwrap().back.time(moved).picos();
            }
        }
    }
}
