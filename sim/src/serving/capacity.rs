//! How many blocks the KV cache has: what a placement leaves free of each memory.

use hwprofiles::Bytes;
use planner::{Extent, Placement, PlannerError, Pricing, Programs, Usage, usage};

/// A memory in which weights and activations leave no room for a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "memory '{memory}' has no room for the KV cache: weights and activations take {taken} of the {usable} that the \
     engine may use"
)]
pub struct NoRoom {
    /// Which.
    pub memory: String,
    /// By weights, activations and staging.
    pub taken: Bytes,
    /// The share of its capacity that the engine uses.
    pub usable: Bytes,
}

/// Blocks of `block_size` tokens that fit beside the weights of `placement` and the activations of a step of `tokens` tokens:
/// as an engine counts them, whole blocks, in every memory in which some layer's KV cache lives. An engine uses the share
/// `utilization` of each memory.
///
/// # Errors
/// Bytes that must move where no link goes; the inner error where not one block fits.
pub fn kv_blocks(
    pricing: Pricing<'_>,
    placement: &Placement,
    block_size: u64,
    tokens: u64,
    utilization: f64,
) -> Result<Result<u64, NoRoom>, PlannerError> {
    let used = kv_of_a_block(pricing, placement, block_size, tokens)?;
    let mut least = u64::MAX;
    for (memory, used) in pricing.machine.memories.iter().zip(&used).filter(|(_, used)| used.kv > Bytes::ZERO)
    {
        let usable = Bytes::new((memory.capacity.value.as_f64() * utilization) as u64);
        let taken = used.weights + used.activations + used.staging;
        let blocks = usable.get().saturating_sub(taken.get()) / used.kv.get();
        if blocks == 0 {
            return Ok(Err(NoRoom { memory: memory.name.clone(), taken, usable }));
        }
        least = least.min(blocks);
    }
    Ok(Ok(least))
}

/// What `placement` takes of each memory with the KV cache of one block: that of its layers, and of the ranks that share or
/// repeat its heads.
pub(super) fn kv_of_a_block(
    pricing: Pricing<'_>,
    placement: &Placement,
    block_size: u64,
    tokens: u64,
) -> Result<Vec<Usage>, PlannerError> {
    let Pricing { machine, model, formats } = pricing;
    let programs = Programs::lower(machine, model, placement)?;
    let extent = Extent { batch: 1, context: block_size, chunk: tokens, step_tokens: 1 };
    Ok(usage(machine, model, formats, placement, &programs, &extent))
}
