//! The resources that limit a machine at its largest load.

use hwprofiles::{Machine, MemoryId, Seconds};
use serde::Serialize;
use sim::serving::{Account, EngineSettings, Summary};

/// A resource and the share of it that is in use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The name of the resource.
    #[serde(rename = "what")]
    pub resource: String,
    /// The share in use, 0 to 1.
    pub share: f64,
}

impl Bottleneck {
    /// The share of each resource that one machine used during `day`, the largest first. Bandwidth,
    /// arithmetic and batch slots are means over the day; KV room is what was taken when most of it
    /// was. Where `engines` run side by side, each has a GPU's memory and links of its own. Equal
    /// shares keep the order of this function.
    pub fn ranked(
        machine: &Machine,
        engine: &EngineSettings,
        engines: u64,
        day: &Summary,
        account: &Account,
    ) -> Vec<Self> {
        let time = Seconds::new(day.duration_s);
        let own = machine.identical_gpus().first().map(|&gpu| machine.device(gpu).memory);
        let copies = |memories: [MemoryId; 2]| match own {
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
                bytes / memory.bandwidth.value.get() / time.get() / copies([id, id]),
            );
        }
        for link in &machine.links {
            let bytes = account.bytes.get(&link.name).copied().unwrap_or(0.0);
            let per_link = bytes / copies([link.from, link.to]);
            add(format!("link {}", link.name), per_link / link.bandwidth.value.get() / time.get());
        }
        let free = day.least_free_blocks as f64 / engine.num_blocks as f64;
        add("room for KV".to_owned(), 1.0 - free);
        add("max_num_seqs".to_owned(), day.mean_batch / engine.max_num_seqs as f64);
        all.sort_by(|one, other| other.share.total_cmp(&one.share));
        all
    }
}
