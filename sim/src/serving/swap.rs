//! The swap space: a memory beyond the devices' own for the KV cache of who is sent back.

use super::capacity::kv_of_a_block;
use super::picos::Picos;
use hwprofiles::{Bytes, BytesPerSec, MemoryId, Seconds};
use planner::{LowerError, Placement, PlannerError, Pricing};
use scenarios::SwapChoice;
use serde::{Deserialize, Serialize};

/// What it takes to move blocks one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transfer {
    /// However many.
    pub start: Picos,
    /// Of each.
    pub per_block: Picos,
}

impl Transfer {
    /// So many blocks at once: α + bytes ÷ β, as for every transfer over a link.
    pub fn of(&self, blocks: u64) -> Picos {
        self.start + self.per_block.times(blocks)
    }
}

/// A swap space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Swap {
    /// Blocks that have room there.
    pub blocks: u64,
    /// From the KV cache to there.
    pub out: Transfer,
    /// From there to the KV cache.
    pub back: Transfer,
    /// Whether only what takes longer to compute than to move both ways is moved, otherwise all for which there is room.
    pub only_if_faster: bool,
}

/// A swap space that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    /// There is no such memory.
    #[error("engine.swap_to is \"{name}\": the machine has no such memory, it has {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// It is as much as nothing, or more than there is.
    #[error(
        "engine.swap_space is {space}: from {least} (one block) to {most} (what is left of memory '{memory}') is wanted"
    )]
    Size {
        /// What was asked for.
        space: Bytes,
        /// One block.
        least: Bytes,
        /// What the memory has beside weights and buffers.
        most: Bytes,
        /// Its name.
        memory: String,
    },
    /// Bytes that must move where no link goes.
    #[error(transparent)]
    Planner(#[from] PlannerError),
}

impl Swap {
    /// The swap space that a scenario asks for, for an engine with blocks of `block_size` tokens on `placement`.
    ///
    /// # Errors
    /// A memory that is not there, has not as much room, or to which no link (or one without bandwidth) goes.
    pub fn of(
        choice: &SwapChoice,
        pricing: Pricing<'_>,
        placement: &Placement,
        block_size: u64,
        step_tokens: u64,
    ) -> Result<Self, SwapError> {
        let machine = pricing.machine;
        let place = machine.memory_named(&choice.to).ok_or_else(|| SwapError::Unknown {
            name: choice.to.clone(),
            known: machine.memories.iter().map(|memory| &*memory.name).collect::<Vec<_>>().join(", "),
        })?;
        let used = kv_of_a_block(pricing, placement, block_size, step_tokens)?;
        let memory = machine.memory(place);
        let taken = used[place.0].weights + used[place.0].activations + used[place.0].staging;
        let most = Bytes::new(memory.capacity.value.get().saturating_sub(taken.get()));
        let least: Bytes = used.iter().map(|used| used.kv).sum();
        if choice.space < least || choice.space > most {
            let (space, memory) = (choice.space, memory.name.clone());
            return Err(SwapError::Size { space, least, most, memory });
        }
        let (mut out, mut back) = ([Seconds::ZERO; 2], [Seconds::ZERO; 2]);
        for (from, bytes) in machine.memory_ids().zip(used.iter().map(|used| used.kv)) {
            if bytes == Bytes::ZERO {
                continue;
            }
            for (sum, from, to) in [(&mut out, from, place), (&mut back, place, from)] {
                let [start, each] = over(pricing, from, to, bytes)?;
                *sum = [sum[0] + start, sum[1] + each];
            }
        }
        let transfer = |[start, each]: [Seconds; 2]| Transfer {
            start: Picos::rounding_up(start),
            per_block: Picos::rounding_up(each),
        };
        Ok(Self {
            blocks: choice.space.get() / least.get(),
            out: transfer(out),
            back: transfer(back),
            only_if_faster: choice.only_if_faster,
        })
    }
}

/// α, and bytes ÷ β, between two memories.
fn over(
    pricing: Pricing<'_>,
    from: MemoryId,
    to: MemoryId,
    bytes: Bytes,
) -> Result<[Seconds; 2], PlannerError> {
    let machine = pricing.machine;
    let link = machine.link_between(from, to).map(|link| machine.link(link));
    match link.filter(|link| link.bandwidth.value > BytesPerSec::ZERO) {
        Some(link) => Ok([link.latency.value, bytes / link.bandwidth.value]),
        None => Err(PlannerError::Lower(LowerError::NoLink {
            from: machine.memory(from).name.clone(),
            to: machine.memory(to).name.clone(),
            what: "swapping the KV cache".to_owned(),
        })),
    }
}
