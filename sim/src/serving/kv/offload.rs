//! Room for KV blocks in a memory beyond the devices' own: the swap space for the KV cache of
//! preempted sequences, and the second level of the prefix cache.

use crate::clock::{SimTime, Tick};
use crate::serving::kv::capacity::{block_bytes, usage_with_one_block};
use hwprofiles::{Bytes, BytesPerSec, Machine, MemoryId, Seconds};
use planner::{CostModel, LowerError, Placement, PlannerError, sequence_bytes};
use scenarios::SwapChoice;
use serde::{Deserialize, Serialize};

/// The time to move blocks one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KvTransfer {
    /// Time of a transfer with any number of blocks.
    pub start: SimTime,
    /// Time of each block.
    pub per_block: SimTime,
}

impl KvTransfer {
    /// The time to move `blocks` at once: α + bytes ÷ β, as for every transfer over a link.
    pub fn time(&self, blocks: u64) -> SimTime {
        self.start + self.per_block.times(blocks)
    }
}

/// A swap space, or the second level of the prefix cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KvOffload {
    /// Blocks that fit there.
    pub blocks: u64,
    /// From the KV cache to there.
    pub out: KvTransfer,
    /// From there to the KV cache.
    pub back: KvTransfer,
    /// Whether blocks move only if computing them again takes longer. For swapping, moving means
    /// both ways. For a prefix, it means the way back. Otherwise all blocks move that fit.
    pub only_if_faster: bool,
}

/// A swap space or a second level that is impossible.
#[derive(Debug, thiserror::Error)]
pub enum KvOffloadError {
    /// The machine has no such memory.
    #[error("{key} is \"{name}\": the machine has no such memory, it has {known}")]
    Unknown {
        /// The key in the scenario.
        key: &'static str,
        /// The name in the scenario.
        name: String,
        /// The names of the machine's memories.
        known: String,
    },
    /// The size is too small to hold anything, or larger than the memory.
    #[error(
        "{key} is {space}: from {least} ({first}) to {most} (what is left of memory '{memory}') is wanted"
    )]
    Size {
        /// The key in the scenario.
        key: &'static str,
        /// The size in the scenario.
        space: Bytes,
        /// The smallest size.
        least: Bytes,
        /// What the smallest size holds.
        first: String,
        /// The bytes that weights, buffers and the swap space leave of the memory.
        most: Bytes,
        /// The memory's name.
        memory: String,
    },
    /// Bytes must move between memories without a link.
    #[error(transparent)]
    Planner(#[from] PlannerError),
}

/// What a room for KV blocks is for.
pub(crate) struct OffloadPurpose {
    /// The scenario's keys for the memory and for the size.
    pub keys: [&'static str; 2],
    /// What moves, for error messages.
    pub what: &'static str,
    /// The number of blocks that must fit, and what they are.
    pub least: (u64, String),
    /// Bytes of the memory that are promised already.
    pub taken: Bytes,
}

impl KvOffload {
    /// The swap space that a scenario asks for, for an engine with blocks of `block_size` tokens on
    /// `placement`.
    ///
    /// # Errors
    /// A memory that does not exist, has too little room, or has no link with bandwidth.
    pub fn new_swap_space(
        choice: &SwapChoice,
        cost_model: CostModel<'_>,
        placement: &Placement,
        block_size: u64,
        step_tokens: u64,
    ) -> Result<Self, KvOffloadError> {
        let purpose = OffloadPurpose {
            keys: ["engine.swap_to", "engine.swap_space"],
            what: "swapping the KV cache",
            least: (1, "one block".to_owned()),
            taken: Bytes::ZERO,
        };
        Self::new(choice, cost_model, placement, [block_size, step_tokens], &purpose)
    }

    /// Room in a memory beside what `placement` has there in steps of `step_tokens` tokens, for
    /// blocks of `block_size` tokens.
    pub(crate) fn new(
        choice: &SwapChoice,
        cost_model: CostModel<'_>,
        placement: &Placement,
        [block_size, step_tokens]: [u64; 2],
        purpose: &OffloadPurpose,
    ) -> Result<Self, KvOffloadError> {
        let machine = cost_model.machine;
        let used = usage_with_one_block(cost_model, placement, block_size, step_tokens)?;
        let blocks_by_memory = block_bytes(&sequence_bytes(cost_model, placement, block_size), block_size);
        let place = machine.memory_named(&choice.to).ok_or_else(|| KvOffloadError::Unknown {
            key: purpose.keys[0],
            name: choice.to.clone(),
            known: machine.memories.iter().map(|memory| &*memory.name).collect::<Vec<_>>().join(", "),
        })?;
        let memory = machine.memory(place);
        let taken = used[place.0].weights + used[place.0].activations + used[place.0].staging + purpose.taken;
        let most = Bytes::new(memory.capacity.value.get().saturating_sub(taken.get()));
        let block: Bytes = blocks_by_memory.iter().copied().sum();
        let (blocks, first) = &purpose.least;
        let least = block * *blocks;
        if choice.space < least || choice.space > most {
            let (key, space, first) = (purpose.keys[1], choice.space, first.clone());
            return Err(KvOffloadError::Size { key, space, least, first, most, memory: memory.name.clone() });
        }
        let (mut out, mut back) = ([Seconds::ZERO; 2], [Seconds::ZERO; 2]);
        for (from, bytes) in machine.memory_ids().zip(blocks_by_memory) {
            if bytes == Bytes::ZERO {
                continue;
            }
            for (sum, from, to) in [(&mut out, from, place), (&mut back, place, from)] {
                let [start, each] = latency_and_time(machine, from, to, bytes, purpose.what)?;
                *sum = [sum[0] + start, sum[1] + each];
            }
        }
        let time = |seconds| SimTime::rounding_up(seconds, Tick::Picosecond);
        let transfer = |[start, each]: [Seconds; 2]| KvTransfer { start: time(start), per_block: time(each) };
        Ok(Self {
            blocks: choice.space.get() / block.get(),
            out: transfer(out),
            back: transfer(back),
            only_if_faster: choice.only_if_faster,
        })
    }
}

/// The latency α, and bytes ÷ bandwidth β, of the link between two memories.
fn latency_and_time(
    machine: &Machine,
    from: MemoryId,
    to: MemoryId,
    bytes: Bytes,
    what: &str,
) -> Result<[Seconds; 2], PlannerError> {
    let link = machine.link_between(from, to).map(|link| machine.link(link));
    match link.filter(|link| link.bandwidth.value > BytesPerSec::ZERO) {
        Some(link) => Ok([link.latency.value, bytes / link.bandwidth.value]),
        None => Err(PlannerError::Lower(LowerError::NoLink {
            from: machine.memory(from).name.clone(),
            to: machine.memory(to).name.clone(),
            what: what.to_owned(),
        })),
    }
}
