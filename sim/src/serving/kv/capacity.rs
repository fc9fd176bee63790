//! The size of the KV cache: the blocks that fit into the memory that a placement leaves free.

use hwprofiles::Bytes;
use planner::{CostModel, MemoryUsage, PhasePrograms, Placement, PlannerError, RunExtent, usage};

/// A memory in which weights and activations leave no room for a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "memory '{memory}' has no room for the KV cache: weights and activations take {taken} of the {usable} that the \
     engine may use"
)]
pub struct NoKvRoom {
    /// The memory's name.
    pub memory: String,
    /// Bytes of weights, activations and staging.
    pub taken: Bytes,
    /// The bytes that the engine may use.
    pub usable: Bytes,
}

/// Why the size of a KV cache is not known.
#[derive(Debug, thiserror::Error)]
pub enum KvCapacityError {
    /// Not one block fits.
    #[error(transparent)]
    NoKvRoom(#[from] NoKvRoom),
    /// Bytes must move between memories without a link.
    #[error(transparent)]
    Planner(#[from] PlannerError),
}

/// Whole blocks of `block_size` tokens that fit beside the weights of `placement` and the
/// activations of a step of `tokens` tokens, in every memory that holds some layer's KV cache. The
/// engine uses the share `utilization` of each memory. A placement without a KV cache has room for
/// [`u64::MAX`] blocks.
///
/// # Errors
/// A memory without room for one block; bytes that must move without a link.
pub fn kv_blocks(
    cost_model: CostModel<'_>,
    placement: &Placement,
    block_size: u64,
    tokens: u64,
    utilization: f64,
) -> Result<u64, KvCapacityError> {
    let used = usage_with_one_block(cost_model, placement, block_size, tokens)?;
    let mut least = u64::MAX;
    for (memory, used) in
        cost_model.machine.memories.iter().zip(&used).filter(|(_, used)| used.kv > Bytes::ZERO)
    {
        let usable = Bytes::new((memory.capacity.value.as_f64() * utilization) as u64);
        let taken = used.weights + used.activations + used.staging;
        let blocks = usable.get().saturating_sub(taken.get()) / used.kv.get();
        if blocks == 0 {
            return Err(NoKvRoom { memory: memory.name.clone(), taken, usable }.into());
        }
        least = least.min(blocks);
    }
    Ok(least)
}

/// The use of each memory by `placement` with one block of KV cache. The block includes the KV of
/// all layers, and of all ranks that share or repeat their heads.
pub(crate) fn usage_with_one_block(
    cost_model: CostModel<'_>,
    placement: &Placement,
    block_size: u64,
    tokens: u64,
) -> Result<Vec<MemoryUsage>, PlannerError> {
    let CostModel { machine, model, formats } = cost_model;
    let programs = PhasePrograms::lower(machine, model, placement)?;
    let extent = RunExtent { batch: 1, context: block_size, chunk: tokens, step_tokens: 1 };
    Ok(usage(machine, model, formats, placement, &programs, &extent))
}
