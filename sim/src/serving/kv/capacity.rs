//! The size of the KV cache: the blocks that fit into the memory that a placement leaves free, and
//! what a sequence takes of them.

use crate::serving::kv::sequence_blocks::SequenceBlocks;
use hwprofiles::{Bytes, DeviceKind, Ratio};
use planner::{
    CostModel, MemoryUsage, PhasePrograms, Placement, PlannerError, RunExtent, SequenceBytes, sequence_bytes,
    usage,
};
use std::collections::BTreeMap;

/// A memory in which weights, activations and the engine leave no room for a sequence of one block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "memory '{memory}' has no room for the KV cache: weights, activations and what the engine takes or keeps free are \
     {taken} of the {usable} that it may use"
)]
pub struct NoKvRoom {
    /// The memory's name.
    pub memory: String,
    /// Bytes of weights, activations and staging, and what the engine takes or keeps free.
    pub taken: Bytes,
    /// The bytes that the engine may use.
    pub usable: Bytes,
}

/// Why the size of a KV cache is not known.
#[derive(Debug, thiserror::Error)]
pub enum KvCapacityError {
    /// Not one sequence of one block fits.
    #[error(transparent)]
    NoKvRoom(#[from] NoKvRoom),
    /// Bytes must move between memories without a link.
    #[error(transparent)]
    Planner(#[from] PlannerError),
}

/// How an engine divides memory between what grows with a sequence and what does not.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum StateAllocation {
    /// One pool of equal blocks: what a sequence keeps takes blocks as it needs them (vLLM).
    #[default]
    Shared,
    /// Every one of so many sequences has its state and its windows from the beginning, and each
    /// window holds the tokens of a step beside its own (llama.cpp).
    Reserved {
        /// The most sequences.
        sequences: u64,
        /// Tokens of a step that a window holds beside its own.
        step_tokens: u64,
    },
    /// States have a pool of their own, of a fixed share of the memory, in which each sequence
    /// takes several slots (SGLang). Windows are in the pool of blocks.
    Split {
        /// The share of the states.
        share: Ratio,
        /// Slots of each sequence.
        slots: u64,
    },
}

/// The KV cache of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvCapacity {
    /// Whole blocks. A placement without a KV cache has room for [`u64::MAX`] blocks.
    pub blocks: u64,
    /// What a sequence takes of them.
    pub sequence: SequenceBlocks,
    /// The most sequences whose states fit into a memory beside the blocks, or into one that has no
    /// blocks.
    pub most_sequences: u64,
    /// Bytes of one block in all memories.
    pub block_bytes: Bytes,
    /// Bytes of the state of one sequence in all memories.
    pub state_bytes: Bytes,
    /// Bytes of the full windows of one sequence in all memories.
    pub window_bytes: Bytes,
    /// Every memory that holds some of the KV cache.
    pub memories: Vec<KvMemory>,
}

/// What is in a memory that holds some of the KV cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvMemory {
    /// Its name.
    pub name: String,
    /// Its size.
    pub capacity: Bytes,
    /// Bytes of weights.
    pub weights: Bytes,
    /// Bytes of activations, or what the engine keeps free for them where that is more.
    pub activations: Bytes,
    /// Bytes for weights that are fetched while others compute.
    pub staging: Bytes,
    /// Bytes of the engine itself: work areas of its libraries.
    pub engine: Bytes,
    /// Bytes that the engine leaves to others.
    pub unused: Bytes,
}

impl KvMemory {
    /// Bytes of the KV cache: what the rest leaves.
    pub fn kv(&self) -> Bytes {
        let Self { weights, activations, staging, engine, unused, .. } = *self;
        self.capacity.saturating_sub(weights + activations + staging + engine + unused)
    }
}

/// What an engine uses of the memories.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineMemory {
    /// How much of each.
    pub share: MemoryShare,
    /// What it takes of each GPU's memory for itself.
    pub own: Bytes,
    /// What it keeps free of each GPU's memory: activations lie in it.
    pub kept_free: Bytes,
}

impl EngineMemory {
    /// This share of every memory, and nothing beside.
    pub fn of_all(share: f64) -> Self {
        Self { share: MemoryShare::OfAll(share), own: Bytes::ZERO, kept_free: Bytes::ZERO }
    }
}

/// How much of a memory an engine uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemoryShare {
    /// A share of the whole memory, for weights and KV cache together, as vLLM.
    OfAll(f64),
    /// Weights and activations, and a share of what they leave for the KV cache, as TensorRT-LLM.
    OfFree(f64),
}

impl MemoryShare {
    /// The bytes of a memory of `capacity` that are used, where `taken` hold no KV cache.
    fn usable(self, capacity: Bytes, taken: Bytes) -> Bytes {
        match self {
            MemoryShare::OfAll(share) => Bytes::new((capacity.as_f64() * share) as u64),
            MemoryShare::OfFree(share) => {
                let free = capacity.saturating_sub(taken).as_f64() * share;
                taken + Bytes::new(free as u64)
            }
        }
    }
}

impl KvCapacity {
    /// The KV cache that fits beside the weights of `placement` and the activations of a step of
    /// `tokens` tokens, with blocks of `block_size` tokens, in every memory that holds some layer's
    /// cache.
    ///
    /// # Errors
    /// A memory without room for a sequence of one block; bytes that must move without a link.
    pub fn new(
        cost_model: CostModel<'_>,
        placement: &Placement,
        [block_size, tokens]: [u64; 2],
        memory: EngineMemory,
        allocation: StateAllocation,
    ) -> Result<Self, KvCapacityError> {
        let used = usage_with_one_block(cost_model, placement, block_size, tokens)?;
        let CostModel { machine, model, formats } = cost_model;
        let kept = sequence_bytes(machine, model, formats, placement, block_size);
        let sum = |part: &dyn Fn(&SequenceBytes) -> Bytes| kept.iter().map(part).sum::<Bytes>();
        let blocks = block_bytes(&kept, block_size);
        let mut capacity = Self {
            blocks: u64::MAX,
            sequence: SequenceBlocks::default(),
            most_sequences: u64::MAX,
            block_bytes: blocks.iter().copied().sum(),
            state_bytes: sum(&|one| one.state),
            window_bytes: sum(&|one| one.constant()) - sum(&|one| one.state),
            memories: vec![],
        };
        let grows = kept.iter().any(|one| one.block > Bytes::ZERO);
        let mut beside = Vec::new();
        let memories = machine.memories.iter().zip(&used).zip(&kept).zip(blocks);
        let EngineMemory { share, own, kept_free } = memory;
        let gpus = machine.devices.iter().filter(|device| device.kind == DeviceKind::Gpu);
        let of_gpus: BTreeMap<_, _> = gpus.map(|gpu| (gpu.memory, gpu.ranks())).collect();
        let memories = machine.memory_ids().zip(memories);
        for (id, (((memory, used), kept), block)) in memories.filter(|(_, ((_, kept), _))| !kept.is_empty()) {
            let gpus = of_gpus.get(&id).copied().unwrap_or(0);
            let activations = used.activations.max(kept_free * gpus);
            let taken = used.weights + activations + used.staging + own * gpus;
            let usable = share.usable(memory.capacity.value, taken);
            let mut free = usable.saturating_sub(taken);
            let one = kept.at(1, block_size);
            let mut pooled = kept.clone();
            let most = divide(&mut free, &mut pooled, allocation);
            capacity.most_sequences = capacity.most_sequences.min(most);
            let fits = usable.saturating_sub(taken) >= one && most > 0 && free >= block;
            if !fits {
                return Err(NoKvRoom { memory: memory.name.clone(), taken, usable }.into());
            }
            capacity.memories.push(KvMemory {
                name: memory.name.clone(),
                capacity: memory.capacity.value,
                weights: used.weights,
                activations,
                staging: used.staging,
                engine: own * gpus,
                unused: memory.capacity.value.saturating_sub(usable),
            });
            if block > Bytes::ZERO {
                capacity.blocks = capacity.blocks.min(free.get() / block.get());
                beside.push((block, kept.clone(), pooled));
            } else if kept.constant() > Bytes::ZERO {
                capacity.most_sequences = capacity.most_sequences.min(free.get() / kept.constant().get());
            }
        }
        capacity.sequence = SequenceBlocks::new(grows, beside);
        Ok(capacity)
    }
}

/// Takes from `free` what the engine gives to states in advance, and from `pooled` what then takes
/// no blocks. Returns the number of sequences that this suffices for.
fn divide(free: &mut Bytes, pooled: &mut SequenceBytes, allocation: StateAllocation) -> u64 {
    // Where nothing grows there is nothing to divide.
    if pooled.block == Bytes::ZERO {
        return u64::MAX;
    }
    match allocation {
        StateAllocation::Shared => u64::MAX,
        StateAllocation::Reserved { sequences, step_tokens } => {
            let wider = |(window, each): (&u64, &Bytes)| *each * (window + step_tokens);
            let each = pooled.windows.iter().map(wider).sum::<Bytes>() + pooled.state;
            (pooled.windows, pooled.state) = (BTreeMap::new(), Bytes::ZERO);
            if each == Bytes::ZERO {
                return u64::MAX;
            }
            let most = (free.saturating_sub(pooled.block).get() / each.get()).min(sequences);
            *free = free.saturating_sub(each * most);
            most
        }
        StateAllocation::Split { share, slots } => {
            let each = std::mem::take(&mut pooled.state) * slots;
            if each == Bytes::ZERO {
                return u64::MAX;
            }
            let states = Bytes::new((free.as_f64() * share.get()) as u64);
            *free = free.saturating_sub(states);
            states.get() / each.get()
        }
    }
}

/// The bytes of a block in each memory: what `block_size` tokens add without end. If nothing grows
/// without end, it is what they add to windows, or a state.
pub(crate) fn block_bytes(kept: &[SequenceBytes], block_size: u64) -> Vec<Bytes> {
    let grows = kept.iter().any(|one| one.block > Bytes::ZERO);
    let block = |one: &SequenceBytes| match one.beside(block_size, false) {
        _ if grows => one.block,
        Bytes::ZERO => one.state,
        windows => windows,
    };
    kept.iter().map(block).collect()
}

/// The blocks of [`KvCapacity::new`] in a pool that all that a sequence keeps shares.
///
/// # Errors
/// As [`KvCapacity::new`].
pub fn kv_blocks(
    cost_model: CostModel<'_>,
    placement: &Placement,
    block_size: u64,
    tokens: u64,
    utilization: f64,
) -> Result<u64, KvCapacityError> {
    let sizes = [block_size, tokens];
    let memory = EngineMemory::of_all(utilization);
    Ok(KvCapacity::new(cost_model, placement, sizes, memory, StateAllocation::Shared)?.blocks)
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
