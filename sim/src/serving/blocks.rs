//! The paged KV cache: how many blocks are free, and what still stands in them.
//!
//! Blocks are alike, so nobody asks which is which. What matters is the order in which free ones are overwritten, the
//! longest free first, since a sequence that comes back, or another that begins alike, finds again what is not yet
//! overwritten. A sequence's blocks become free together, its last block first: they are a run, which is eaten from
//! its end. Freeing, taking and finding again are O(1), however many blocks they are about.

use std::collections::{HashMap, VecDeque};

/// Names a run of blocks that were freed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u64);

/// The blocks of one KV cache.
#[derive(Debug, Clone)]
pub struct Blocks {
    free: u64,
    /// The free blocks in the order in which they are taken.
    runs: VecDeque<Run>,
    /// The first run's number.
    first: u64,
    /// Of prefixes that several sequences may hold, by name.
    shared: HashMap<u64, Shared>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    /// Those not yet taken: the first ones of the run.
    blocks: u64,
    /// The prefix that stands in them.
    name: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Shared {
    holders: u64,
    /// Those that still hold it.
    blocks: u64,
    /// Where its blocks are while nobody holds it.
    run: RunId,
}

impl Blocks {
    /// So many, all free.
    pub fn new(count: u64) -> Self {
        let all = Run { blocks: count, name: None };
        Self { free: count, runs: VecDeque::from([all]), first: 0, shared: HashMap::new() }
    }

    /// Free ones.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Takes so many of the free ones, and forgets what stood in them.
    ///
    /// # Panics
    /// Where there are not as many.
    pub fn take(&mut self, count: u64) {
        assert!(count <= self.free, "{count} blocks of {} free ones", self.free);
        self.free -= count;
        let mut left = count;
        while left > 0 {
            let run = self.runs.front_mut().expect("free blocks are in runs");
            let taken = run.blocks.min(left);
            run.blocks -= taken;
            left -= taken;
            let Run { blocks, name } = *run;
            if let Some(name) = name.filter(|_| taken > 0) {
                if blocks == 0 {
                    self.shared.remove(&name);
                } else if let Some(shared) = self.shared.get_mut(&name) {
                    shared.blocks = blocks;
                }
            }
            if blocks == 0 {
                self.runs.pop_front();
                self.first += 1;
            }
        }
    }

    /// So many more, all free.
    pub fn add(&mut self, count: u64) {
        if count > 0 {
            self.release(count);
        }
    }

    /// Frees so many that one sequence held.
    pub fn release(&mut self, count: u64) -> RunId {
        self.push(Run { blocks: count, name: None })
    }

    /// How many of a run's first blocks are free and not overwritten.
    pub fn remaining(&self, run: RunId) -> u64 {
        self.index(run).map_or(0, |index| self.runs[index].blocks)
    }

    /// Takes back the first `count` of a run's remaining blocks, with what stands in them.
    pub fn reclaim(&mut self, run: RunId, count: u64) {
        let index = self.index(run).expect("what remains is in the list");
        self.runs[index].blocks -= count;
        self.free -= count;
    }

    /// Blocks of the prefix `name` that can be found.
    pub fn found(&self, name: u64) -> u64 {
        self.shared.get(&name).map_or(0, |shared| shared.blocks)
    }

    /// Those of them that are free.
    pub fn idle(&self, name: u64) -> u64 {
        self.shared.get(&name).filter(|shared| shared.holders == 0).map_or(0, |shared| shared.blocks)
    }

    /// One more sequence holds a prefix that was found.
    pub fn hold(&mut self, name: u64) {
        let shared = self.shared.get_mut(&name).expect("only what was found is held");
        shared.holders += 1;
        let (run, blocks, first) = (shared.run, shared.blocks, shared.holders == 1);
        if first {
            self.reclaim(run, blocks);
        }
    }

    /// A sequence has computed a prefix into so many of its blocks: from now on it holds them under this name. `false`
    /// where another was first, and the blocks stay its own.
    pub fn publish(&mut self, name: u64, blocks: u64) -> bool {
        let new = !self.shared.contains_key(&name);
        if new {
            self.shared.insert(name, Shared { holders: 1, blocks, run: RunId(0) });
        }
        new
    }

    /// A sequence holds it no longer.
    pub fn leave(&mut self, name: u64) {
        let shared = self.shared.get_mut(&name).expect("who leaves has held");
        shared.holders -= 1;
        if shared.holders == 0 {
            let blocks = shared.blocks;
            let run = self.push(Run { blocks, name: Some(name) });
            self.shared.entry(name).and_modify(|shared| shared.run = run);
        }
    }

    fn push(&mut self, run: Run) -> RunId {
        self.free += run.blocks;
        self.runs.push_back(run);
        RunId(self.first + self.runs.len() as u64 - 1)
    }

    fn index(&self, run: RunId) -> Option<usize> {
        run.0.checked_sub(self.first).map(|index| index as usize)
    }
}
