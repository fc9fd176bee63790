//! The paged KV cache: how many blocks are free, and what they still contain.
//!
//! Blocks have no identity here. Only the order matters in which free blocks are overwritten, the
//! longest free first. A sequence that is resumed, or another with the same prefix, finds the
//! contents that are not overwritten yet. A sequence's blocks become free together, its last block
//! first. They form a run, which is overwritten from its end. Freeing, taking and finding are O(1)
//! for any number of blocks.

use std::collections::{HashMap, VecDeque};

/// The id of a run of blocks that were freed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u64);

/// The blocks of one KV cache.
#[derive(Debug, Clone)]
pub struct Blocks {
    free: u64,
    /// The free blocks in the order in which they are taken.
    runs: VecDeque<FreeRun>,
    /// The first run's number.
    first: u64,
    /// Prefixes that several sequences may hold, by name.
    shared: HashMap<u64, SharedPrefix>,
    /// Snapshots of states and windows at the ends of prefixes, by name.
    snapshots: HashMap<u64, Snapshot>,
}

#[derive(Debug, Clone, Copy)]
struct FreeRun {
    /// The blocks that are not taken yet: the first ones of the run.
    blocks: u64,
    /// What can be found in them.
    content: Option<Content>,
}

/// What a run contains.
#[derive(Debug, Clone, Copy)]
enum Content {
    /// The prefix of this name.
    Prefix(u64),
    /// The snapshot at the end of that prefix.
    Snapshot(u64),
}

#[derive(Debug, Clone, Copy)]
struct Snapshot {
    run: RunId,
    blocks: u64,
}

#[derive(Debug, Clone, Copy)]
struct SharedPrefix {
    holders: u64,
    /// The blocks that still contain it.
    blocks: u64,
    /// The run of its blocks while it has no holder.
    run: Option<RunId>,
}

impl Blocks {
    /// A cache of `count` blocks, all free.
    pub fn new(count: u64) -> Self {
        let all = FreeRun { blocks: count, content: None };
        let (shared, snapshots) = Default::default();
        Self { free: count, runs: VecDeque::from([all]), first: 0, shared, snapshots }
    }

    /// Free blocks.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Takes `count` free blocks and forgets their contents.
    ///
    /// # Panics
    /// If fewer are free.
    #[inline]
    pub fn take(&mut self, count: u64) {
        assert!(count <= self.free, "{count} blocks of {} free ones", self.free);
        self.free -= count;
        // Most are taken from within a run in which nothing can be found by name.
        match self.runs.front_mut() {
            Some(FreeRun { blocks, content: None }) if count < *blocks => *blocks -= count,
            _ => self.take_runs(count),
        }
    }

    /// Takes the first `count` blocks of the runs.
    fn take_runs(&mut self, count: u64) {
        let mut left = count;
        while left > 0 {
            let run = self.runs.front_mut().expect("free blocks are in runs");
            let taken = run.blocks.min(left);
            run.blocks -= taken;
            left -= taken;
            let FreeRun { blocks, content } = *run;
            if let Some(Content::Snapshot(_)) = content {
                run.content = None;
            }
            match content.filter(|_| taken > 0) {
                None => {}
                Some(Content::Prefix(name)) if blocks == 0 => drop(self.shared.remove(&name)),
                Some(Content::Prefix(name)) => {
                    self.shared.entry(name).and_modify(|shared| shared.blocks = blocks);
                }
                // A part of a snapshot is of no use.
                Some(Content::Snapshot(name)) => drop(self.snapshots.remove(&name)),
            }
            if blocks == 0 {
                self.runs.pop_front();
                self.first += 1;
            }
        }
    }

    /// Adds `count` free blocks.
    pub fn add(&mut self, count: u64) {
        if count > 0 {
            self.release(count);
        }
    }

    /// Frees `count` blocks that one sequence held.
    pub fn release(&mut self, count: u64) -> RunId {
        self.push(FreeRun { blocks: count, content: None })
    }

    /// How many of a run's first blocks are free and not overwritten.
    pub fn remaining(&self, run: RunId) -> u64 {
        self.index(run).map_or(0, |index| self.runs[index].blocks)
    }

    /// Takes back the first `count` of a run's remaining blocks with their contents.
    pub fn reclaim(&mut self, run: RunId, count: u64) {
        let index = self.index(run).expect("a run with blocks is in the list");
        self.runs[index].blocks -= count;
        self.free -= count;
    }

    /// Blocks of the prefix `name` that can be found.
    pub fn found(&self, name: u64) -> u64 {
        self.shared.get(&name).map_or(0, |shared| shared.blocks)
    }

    /// The blocks among them that are free.
    pub fn idle(&self, name: u64) -> u64 {
        self.shared.get(&name).filter(|shared| shared.holders == 0).map_or(0, |shared| shared.blocks)
    }

    /// Adds a holder to a prefix that was found.
    pub fn hold(&mut self, name: u64) {
        let shared = self.shared.get_mut(&name).expect("a held prefix was found");
        shared.holders += 1;
        let blocks = shared.blocks;
        if let Some(run) = shared.run.take() {
            self.reclaim(run, blocks);
        }
    }

    /// A sequence has computed a prefix into `blocks` of its blocks and holds them under this name
    /// from now on. Returns `false` if another sequence was first. Then the blocks stay the
    /// sequence's own.
    pub fn publish(&mut self, name: u64, blocks: u64) -> bool {
        let new = !self.shared.contains_key(&name);
        if new {
            self.shared.insert(name, SharedPrefix { holders: 1, blocks, run: None });
        }
        new
    }

    /// Removes a holder of the prefix `name`.
    pub fn leave(&mut self, name: u64) {
        let shared = self.shared.get_mut(&name).expect("a holder leaves a held prefix");
        shared.holders -= 1;
        if shared.holders == 0 {
            let blocks = shared.blocks;
            let run = self.push(FreeRun { blocks, content: Some(Content::Prefix(name)) });
            self.shared.entry(name).and_modify(|shared| shared.run = Some(run));
        }
    }

    /// Blocks of the snapshot at the end of the prefix `name`; 0 if there is none.
    pub fn snapshot(&self, name: u64) -> u64 {
        self.snapshots.get(&name).map_or(0, |snapshot| snapshot.blocks)
    }

    /// Copies a snapshot into `count` free blocks, which stay free: it can be found until they are
    /// overwritten. A snapshot of this name that is no smaller is used instead. Nothing is kept if
    /// fewer blocks are free.
    pub fn keep_snapshot(&mut self, name: u64, count: u64) {
        let present = self.snapshot(name);
        if present >= count {
            return self.touch_snapshot(name);
        }
        if count > self.free {
            return;
        }
        if let Some(smaller) = self.snapshots.remove(&name)
            && let Some(index) = self.index(smaller.run)
        {
            self.runs[index].content = None;
        }
        self.take(count);
        self.push_snapshot(name, count);
    }

    /// Notes a use of the snapshot `name`, if it is there: it is overwritten later.
    pub fn touch_snapshot(&mut self, name: u64) {
        if let Some(Snapshot { run, blocks }) = self.snapshots.remove(&name) {
            self.reclaim(run, blocks);
            self.push_snapshot(name, blocks);
        }
    }

    fn push_snapshot(&mut self, name: u64, blocks: u64) {
        let run = self.push(FreeRun { blocks, content: Some(Content::Snapshot(name)) });
        self.snapshots.insert(name, Snapshot { run, blocks });
    }

    fn push(&mut self, run: FreeRun) -> RunId {
        self.free += run.blocks;
        self.runs.push_back(run);
        RunId(self.first + self.runs.len() as u64 - 1)
    }

    fn index(&self, run: RunId) -> Option<usize> {
        run.0.checked_sub(self.first).map(|index| index as usize)
    }
}
