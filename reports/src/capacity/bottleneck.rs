//! What a machine has least left of when its load is the largest.

use hwprofiles::{Machine, MemoryId, Seconds};
use serde::Serialize;
use sim::serving::{Account, Engine, Summary};

/// A resource, and how much of it is taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bottleneck {
    /// What.
    #[serde(rename = "what")]
    pub resource: String,
    /// The share of it that is in use.
    pub share: f64,
}

impl Bottleneck {
    /// What one machine's day took of each resource, the most taken first: bandwidths and arithmetic in the mean, room for KV blocks
    /// when most of it was taken, sequences of a batch in the mean. Equal shares stay in this order. Of `engines` side by side each
    /// has a GPU's memory and links of its own.
    pub fn ranked(
        machine: &Machine,
        engine: &Engine,
        engines: u64,
        day: &Summary,
        account: &Account,
    ) -> Vec<Self> {
        let time = Seconds::new(day.duration_s);
        let own = machine.twins().first().map(|&gpu| machine.device(gpu).memory);
        let alike = |memories: [MemoryId; 2]| match own {
            Some(own) if memories.contains(&own) => engines as f64,
            _ => 1.0,
        };
        let mut all: Vec<Self> = Vec::new();
        let mut add = |resource: String, share: f64| {
            if share > 0.0 {
                all.push(Self { resource, share });
            }
        };
        if let Some(mfu) = account.mfu {
            add("matrix products".to_owned(), mfu);
        }
        for id in machine.memory_ids() {
            let memory = machine.memory(id);
            let bytes = account.memory_bytes.get(&memory.name).copied().unwrap_or(0.0);
            add(
                format!("bandwidth of {}", memory.name),
                bytes / memory.bandwidth.value.get() / time.get() / alike([id, id]),
            );
        }
        for link in &machine.links {
            let bytes = account.bytes.get(&link.name).copied().unwrap_or(0.0);
            let each = bytes / alike([link.from, link.to]);
            add(format!("link {}", link.name), each / link.bandwidth.value.get() / time.get());
        }
        let free = day.least_free_blocks as f64 / engine.num_blocks as f64;
        add("room for KV".to_owned(), 1.0 - free);
        add("max_num_seqs".to_owned(), day.mean_batch / engine.max_num_seqs as f64);
        all.sort_by(|one, other| other.share.total_cmp(&one.share));
        all
    }
}
