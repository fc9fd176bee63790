//! Room for KV blocks in a memory beyond the devices' own: the swap space, for the KV cache of who is sent back, and the second
//! level of the prefix cache, for prefixes that the KV cache overwrites.

use super::capacity::kv_of_a_block;
use super::engine::Engine;
use super::picos::Picos;
use hwprofiles::{Bytes, BytesPerSec, Machine, MemoryId, Seconds};
use planner::{LowerError, Placement, PlannerError, Pricing, Usage};
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

/// A swap space, or the second level of the prefix cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Swap {
    /// Blocks that have room there.
    pub blocks: u64,
    /// From the KV cache to there.
    pub out: Transfer,
    /// From there to the KV cache.
    pub back: Transfer,
    /// Whether only what takes longer to compute than to move is moved (to swap: both ways; to fetch a prefix: back),
    /// otherwise all for which there is room.
    pub only_if_faster: bool,
}

/// A swap space or a second level that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    /// There is no such memory.
    #[error("{key} is \"{name}\": the machine has no such memory, it has {known}")]
    Unknown {
        /// Where that was asked for.
        key: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// It is as much as nothing, or more than there is.
    #[error(
        "{key} is {space}: from {least} ({first}) to {most} (what is left of memory '{memory}') is wanted"
    )]
    Size {
        /// Where that was asked for.
        key: &'static str,
        /// What was asked for.
        space: Bytes,
        /// What must have room.
        least: Bytes,
        /// What that is.
        first: String,
        /// What the memory has beside weights, buffers and the swap space.
        most: Bytes,
        /// Its name.
        memory: String,
    },
    /// Bytes that must move where no link goes.
    #[error(transparent)]
    Planner(#[from] PlannerError),
}

/// What a room for KV blocks is for.
struct Purpose {
    /// Where a scenario names the memory, and says how much of it.
    keys: [&'static str; 2],
    /// What moves.
    what: &'static str,
    /// Blocks that must have room, and what they are.
    least: (u64, String),
    /// What of the memory is promised already.
    taken: Bytes,
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
        let purpose = Purpose {
            keys: ["engine.swap_to", "engine.swap_space"],
            what: "swapping the KV cache",
            least: (1, "one block".to_owned()),
            taken: Bytes::ZERO,
        };
        let used = kv_of_a_block(pricing, placement, block_size, step_tokens)?;
        Self::within(choice, pricing.machine, &used, &purpose)
    }

    /// The second level of the prefix cache that a scenario asks for, for `engine` on `placement`, beside the swap space
    /// `swap`.
    ///
    /// # Errors
    /// As [`Swap::of`]; the least room is that of one name.
    pub fn of_prefixes(
        choice: &SwapChoice,
        swap: Option<&SwapChoice>,
        pricing: Pricing<'_>,
        placement: &Placement,
        engine: &Engine,
    ) -> Result<Self, SwapError> {
        let tokens = engine.prefix_tokens;
        let purpose = Purpose {
            keys: ["engine.prefix_cache.to", "engine.prefix_cache.space"],
            what: "keeping prefixes",
            least: (engine.blocks(tokens), format!("the {tokens} tokens of one name")),
            taken: swap.filter(|swap| swap.to == choice.to).map_or(Bytes::ZERO, |swap| swap.space),
        };
        let used = kv_of_a_block(pricing, placement, engine.block_size, engine.max_num_batched_tokens)?;
        Self::within(choice, pricing.machine, &used, &purpose)
    }

    /// Room in `machine`, of whose memories weights, activations and one block take what `used` says.
    fn within(
        choice: &SwapChoice,
        machine: &Machine,
        used: &[Usage],
        purpose: &Purpose,
    ) -> Result<Self, SwapError> {
        let place = machine.memory_named(&choice.to).ok_or_else(|| SwapError::Unknown {
            key: purpose.keys[0],
            name: choice.to.clone(),
            known: machine.memories.iter().map(|memory| &*memory.name).collect::<Vec<_>>().join(", "),
        })?;
        let memory = machine.memory(place);
        let taken = used[place.0].weights + used[place.0].activations + used[place.0].staging + purpose.taken;
        let most = Bytes::new(memory.capacity.value.get().saturating_sub(taken.get()));
        let block: Bytes = used.iter().map(|used| used.kv).sum();
        let (blocks, first) = &purpose.least;
        let least = block * *blocks;
        if choice.space < least || choice.space > most {
            let (key, space, first) = (purpose.keys[1], choice.space, first.clone());
            return Err(SwapError::Size { key, space, least, first, most, memory: memory.name.clone() });
        }
        let (mut out, mut back) = ([Seconds::ZERO; 2], [Seconds::ZERO; 2]);
        for (from, bytes) in machine.memory_ids().zip(used.iter().map(|used| used.kv)) {
            if bytes == Bytes::ZERO {
                continue;
            }
            for (sum, from, to) in [(&mut out, from, place), (&mut back, place, from)] {
                let [start, each] = over(machine, from, to, bytes, purpose.what)?;
                *sum = [sum[0] + start, sum[1] + each];
            }
        }
        let transfer = |[start, each]: [Seconds; 2]| Transfer {
            start: Picos::rounding_up(start),
            per_block: Picos::rounding_up(each),
        };
        Ok(Self {
            blocks: choice.space.get() / block.get(),
            out: transfer(out),
            back: transfer(back),
            only_if_faster: choice.only_if_faster,
        })
    }
}

/// α, and bytes ÷ β, between two memories.
fn over(
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
