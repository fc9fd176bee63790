//! What a machine has least left of when its load is the largest.

use hwprofiles::{Machine, Seconds};
use serde::Serialize;
use sim::serving::{Account, Engine, Summary};

/// A resource, and how much of it is taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bottleneck {
    /// What.
    pub what: String,
    /// The share of it that is in use.
    pub share: f64,
}

impl Bottleneck {
    /// What one machine's day took of each resource, the most taken first: bandwidths and arithmetic in the mean, room for KV blocks
    /// when most of it was taken, sequences of a batch in the mean. Equal shares stay in this order.
    pub fn all(machine: &Machine, engine: &Engine, day: &Summary, account: &Account) -> Vec<Self> {
        let time = Seconds::new(day.duration_s);
        let mut all: Vec<Self> = Vec::new();
        let mut add = |what: String, share: f64| {
            if share > 0.0 {
                all.push(Self { what, share });
            }
        };
        if let Some(mfu) = account.mfu {
            add("matrix products".to_owned(), mfu);
        }
        for memory in &machine.memories {
            let bytes = account.memory_bytes.get(&memory.name).copied().unwrap_or(0.0);
            add(format!("bandwidth of {}", memory.name), bytes / memory.bandwidth.value.get() / time.get());
        }
        for link in &machine.links {
            let bytes = account.bytes.get(&link.name).copied().unwrap_or(0.0);
            add(format!("link {}", link.name), bytes / link.bandwidth.value.get() / time.get());
        }
        let free = day.least_free_blocks as f64 / engine.num_blocks as f64;
        add("room for KV".to_owned(), 1.0 - free);
        add("max_num_seqs".to_owned(), day.mean_batch / engine.max_num_seqs as f64);
        all.sort_by(|one, other| other.share.total_cmp(&one.share));
        all
    }
}
