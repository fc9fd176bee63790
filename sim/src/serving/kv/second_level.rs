//! The second level of the prefix cache: named prefixes in another memory, for when the KV cache
//! has overwritten them.
//!
//! A name is written there as soon as it was computed. Writing runs beside the steps, one name
//! after another over the way out, and a name can be found when its write is done. vLLM's
//! offloading connector and Mooncake do the same, because a block that is about to be overwritten
//! cannot be copied without waiting. (LMCache writes as early but waits for it.)
//!
//! The name that was used longest ago makes room. Among the names of one prompt that is the last
//! name, since nothing is found behind a gap. A fetched name stays here: both levels may hold the
//! same name.

use crate::clock::SimTime;
use crate::serving::kv::offload::KvOffload;
use std::collections::{BTreeMap, HashMap};

/// The second level of one engine.
#[derive(Debug, Clone)]
pub(crate) struct SecondLevelCache {
    /// Its memory.
    pub space: KvOffload,
    blocks_per_name: u64,
    names: HashMap<u64, StoredName>,
    /// The same names by the count of uses at their last use, the longest ago first.
    by_last_use: BTreeMap<u64, u64>,
    uses: u64,
    /// When the last write is done.
    written: SimTime,
}

#[derive(Debug, Clone, Copy)]
struct StoredName {
    last_use: u64,
    /// When its write is done.
    ready: SimTime,
}

impl SecondLevelCache {
    /// An empty one in `space`, or `None` if not one name fits.
    pub fn new(space: KvOffload, blocks_per_name: u64) -> Option<Self> {
        let (names, by_last_use) = Default::default();
        (space.blocks >= blocks_per_name).then_some(Self {
            space,
            blocks_per_name,
            names,
            by_last_use,
            uses: 0,
            written: SimTime::ZERO,
        })
    }

    /// How many of `names` can be fetched at `now`, up to the first one that cannot.
    pub fn fetchable(&self, names: &[u64], now: SimTime) -> usize {
        let is_ready = |name: &&u64| self.names.get(name).is_some_and(|stored| stored.ready <= now);
        names.iter().take_while(is_ready).count()
    }

    /// A prompt begins with `names`: notes a use of those that are stored.
    pub fn touch(&mut self, names: &[u64]) {
        for &name in names.iter().rev() {
            self.touch_one(name);
        }
    }

    /// Writes `name`, which was computed at `now`, unless it is stored. Returns the blocks written,
    /// and the blocks overwritten for them.
    pub fn store(&mut self, name: u64, now: SimTime) -> (u64, u64) {
        if self.touch_one(name) {
            return (0, 0);
        }
        let full = self.blocks() + self.blocks_per_name > self.space.blocks;
        if full && let Some((_, oldest)) = self.by_last_use.pop_first() {
            self.names.remove(&oldest);
        }
        self.written = self.written.max(now) + self.space.out.time(self.blocks_per_name);
        self.names.insert(name, StoredName { last_use: self.uses, ready: self.written });
        self.by_last_use.insert(self.uses, name);
        self.uses += 1;
        (self.blocks_per_name, if full { self.blocks_per_name } else { 0 })
    }

    /// Blocks that are stored or being written.
    pub fn blocks(&self) -> u64 {
        self.names.len() as u64 * self.blocks_per_name
    }

    /// Whether a write is not done at `now`.
    pub fn is_writing(&self, now: SimTime) -> bool {
        self.written > now
    }

    fn touch_one(&mut self, name: u64) -> bool {
        let Some(stored) = self.names.get_mut(&name) else { return false };
        self.by_last_use.remove(&stored.last_use);
        stored.last_use = self.uses;
        self.by_last_use.insert(self.uses, name);
        self.uses += 1;
        true
    }
}
