//! The reference engine's second level of the prefix cache: a list of names.

use super::{ReferenceEngine, ReferenceSequence};
use sim::serving::{Batch, EngineSettings, KvOffload, PrefillChunk, StepPrices};

/// Names with the end of their writes, the one used longest ago first; and the end of the last
/// write.
#[derive(Default)]
pub struct NameList {
    names: Vec<(u64, u64)>,
    written: u64,
}

/// The space, if there is one that has an effect.
fn space(engine: &EngineSettings) -> Option<KvOffload> {
    engine.second_level.filter(|space| engine.prefix_caching && space.blocks > 0)
}

impl NameList {
    fn touch(&mut self, names: &[u64]) {
        for name in names.iter().rev() {
            if let Some(index) = self.names.iter().position(|(there, _)| there == name) {
                let entry = self.names.remove(index);
                self.names.push(entry);
            }
        }
    }

    /// `sequence` has computed the names `named`.
    pub fn store(
        &mut self,
        engine: &EngineSettings,
        sequence: &ReferenceSequence,
        named: Vec<u64>,
        now: u64,
    ) {
        let Some(space) = space(engine) else { return };
        for &name in &named {
            if self.names.iter().any(|(there, _)| *there == name) {
                self.touch(&[name]);
                continue;
            }
            if self.names.len() as u64 == space.blocks {
                self.names.remove(0);
            }
            self.written = self.written.max(now) + space.out.time(1).picos();
            self.names.push((name, self.written));
        }
        if !named.is_empty() {
            let all = sequence.computed.min(sequence.request.prompt_tokens) / engine.block_size;
            self.touch(&sequence.request.prefix[..sequence.request.prefix.len().min(all as usize)]);
        }
    }
}

impl<P: StepPrices> ReferenceEngine<'_, P> {
    /// The number of first tokens of `sequence` that need not be computed. `hits` blocks hold
    /// `computed` of them. Fetches that pay are included.
    pub fn reach(&mut self, sequence: &ReferenceSequence, hits: usize, computed: u64) -> u64 {
        let engine = self.cache.engine;
        let Some(space) = space(engine).filter(|_| sequence.swapped == 0) else { return computed };
        let (size, known) = (engine.block_size, sequence.known());
        let mut blocks = hits as u64;
        while let Some(name) = sequence.request.prefix.get(blocks as usize)
            && (blocks + 1) * size <= sequence.request.prompt_tokens
            && self.second.names.iter().any(|(there, ready)| there == name && *ready <= self.now)
        {
            blocks += 1;
        }
        while blocks * size >= known {
            blocks -= 1;
        }
        let reach = blocks * size;
        if reach <= computed {
            return computed;
        }
        let mut rest = |past: u64| {
            let chunks = [PrefillChunk { new: known - past, past }];
            let batch = Batch { chunks: &chunks, decodes: 0, decode_tokens: 0, sampled: 1 };
            self.prices.step(&batch).unwrap().picos()
        };
        let with = space.back.time((reach - computed) / size).picos() + rest(reach);
        if space.only_if_faster && with >= rest(computed) { computed } else { reach }
    }

    /// Fetches `tokens` tokens of the admitted `sequence`.
    pub fn fetch(&mut self, sequence: &mut ReferenceSequence, tokens: u64) {
        let engine = self.cache.engine;
        let Some(space) = space(engine) else { return };
        let all = (sequence.request.prompt_tokens / engine.block_size) as usize;
        self.second.touch(&sequence.request.prefix[..sequence.request.prefix.len().min(all)]);
        if tokens > 0 {
            sequence.fetched += tokens;
            self.moving += space.back.time(tokens / engine.block_size).picos();
        }
    }
}
