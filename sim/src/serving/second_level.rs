//! The second level of the prefix cache: named prefixes in another memory, for when the KV cache has overwritten them.
//!
//! A name is written there as soon as it was computed, beside the steps, one after another over the way out; it can be found
//! when that is done. So do vLLM's offloading connector and Mooncake (LMCache writes as early, and waits for it): when a block is
//! about to be overwritten, it is too late to copy it without waiting. What was used longest ago makes room, of one prompt the last name first, since nothing
//! is found behind a gap. What is fetched stays: both levels may have the same.

use super::engine::Engine;
use super::picos::Picos;
use super::swap::Swap;
use std::collections::{BTreeMap, HashMap};

/// The second level of one engine.
#[derive(Debug, Clone)]
pub(super) struct SecondLevel {
    /// Where it is.
    pub space: Swap,
    /// Blocks of a name.
    each: u64,
    names: HashMap<u64, Entry>,
    /// The same names by when they were used, in no unit; the longest ago first.
    order: BTreeMap<u64, u64>,
    uses: u64,
    /// When everything is written.
    written: Picos,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    used: u64,
    /// When it is written.
    ready: Picos,
}

impl SecondLevel {
    /// That of `engine`, with nothing in it; `None` where the engine has none, or where not one name has room.
    pub fn new(engine: &Engine) -> Option<Self> {
        let each = engine.prefix_tokens / engine.block_size;
        let space = engine.second_level.filter(|space| engine.prefix_caching && space.blocks >= each)?;
        let (names, order) = Default::default();
        Some(Self { space, each, names, order, uses: 0, written: Picos::ZERO })
    }

    /// How many of `names` can be fetched at `now`, up to the first that cannot.
    pub fn row(&self, names: &[u64], now: Picos) -> usize {
        let there = |name: &&u64| self.names.get(name).is_some_and(|entry| entry.ready <= now);
        names.iter().take_while(there).count()
    }

    /// A prompt begins with `names`: those that are there are used.
    pub fn touch(&mut self, names: &[u64]) {
        for &name in names.iter().rev() {
            self.touch_one(name);
        }
    }

    /// Writes `name`, which was computed at `now`, unless it is there. Blocks that were written and overwritten for that.
    pub fn store(&mut self, name: u64, now: Picos) -> (u64, u64) {
        if self.touch_one(name) {
            return (0, 0);
        }
        let full = self.blocks() + self.each > self.space.blocks;
        if full && let Some((_, oldest)) = self.order.pop_first() {
            self.names.remove(&oldest);
        }
        self.written = self.written.max(now) + self.space.out.of(self.each);
        self.names.insert(name, Entry { used: self.uses, ready: self.written });
        self.order.insert(self.uses, name);
        self.uses += 1;
        (self.each, if full { self.each } else { 0 })
    }

    /// Blocks that are there or being written.
    pub fn blocks(&self) -> u64 {
        self.names.len() as u64 * self.each
    }

    /// Whether something is not written yet at `now`.
    pub fn writes(&self, now: Picos) -> bool {
        self.written > now
    }

    fn touch_one(&mut self, name: u64) -> bool {
        let Some(entry) = self.names.get_mut(&name) else { return false };
        self.order.remove(&entry.used);
        entry.used = self.uses;
        self.order.insert(self.uses, name);
        self.uses += 1;
        true
    }
}
