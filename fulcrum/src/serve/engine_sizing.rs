//! How many KV blocks an engine has where a model is placed, and what it keeps of sequences.

use crate::error::{OrError, Result};
use crate::pipeline::{PreparedScenario, planner_error};
use hwprofiles::{Bytes, GroupDivision, Ratio, TERMINAL_COLUMNS, wrapped};
use planner::{CostModel, Placement};
use scenarios::{EngineChoice, StatePool};
use serde_json::{Value, json};
use sim::serving::{
    EngineMemory, EngineSettings, KvCapacity, KvCapacityError, KvMemory, KvOffload, MemoryShare, NoKvRoom,
    StateAllocation,
};

/// An engine whose KV blocks are not counted yet.
pub(crate) struct EngineSizing<'q> {
    choice: &'q EngineChoice,
    unsized_engine: EngineSettings,
    /// The share of a memory that the engine uses.
    pub(crate) utilization: f64,
}

/// An engine on a placement, or why there is none.
pub(crate) enum SizedEngine {
    /// The engine with its KV blocks.
    Fits(Box<EngineSettings>, KvResidency),
    /// Not one block fits.
    NoRoom(NoKvRoom),
}

impl<'q> EngineSizing<'q> {
    /// The engine that `scenario` chooses, whose devices compute at most `micro_batch` tokens at
    /// once. Its steps have room for that many, unless the scenario says how long they are.
    pub(crate) fn new(scenario: &'q PreparedScenario, micro_batch: Option<u64>) -> Self {
        let choice = scenario.engine();
        let utilization = choice.gpu_memory_utilization;
        let mut unsized_engine = EngineSettings::from_choice(choice, 1, scenario.model().max_positions);
        if choice.max_num_batched_tokens.is_none() {
            unsized_engine.max_num_batched_tokens =
                unsized_engine.max_num_batched_tokens.max(micro_batch.unwrap_or(0));
        }
        Self {
            choice,
            unsized_engine,
            utilization: utilization.unwrap_or(choice.profile.serving.gpu_memory_utilization.value.get()),
        }
    }

    /// The engine on `placement`.
    pub(crate) fn engine(&self, cost_model: CostModel<'_>, placement: &Placement) -> Result<SizedEngine> {
        let EngineSettings { block_size, max_num_batched_tokens, .. } = self.unsized_engine;
        // A given number of blocks needs no room.
        let share = if self.choice.num_blocks.is_some() { f64::INFINITY } else { self.utilization };
        let mut capacity = match self.capacity(cost_model, placement, share) {
            Err(KvCapacityError::Planner(error)) => return Err(planner_error(error)),
            Err(KvCapacityError::NoKvRoom(full)) => return Ok(SizedEngine::NoRoom(full)),
            Ok(capacity) => capacity,
        };
        // Each micro-batch in flight has its own sequences, and so its part of the cache; likewise
        // each engine that shares experts.
        let engines = engines_of(&cost_model.machine.division());
        capacity.blocks = self.choice.num_blocks.unwrap_or(capacity.blocks) / engines;
        capacity.most_sequences = (capacity.most_sequences / engines).max(1);
        let choice = self.choice.swap.as_ref();
        let swap = choice.map(|swap| {
            KvOffload::new_swap_space(swap, cost_model, placement, block_size, max_num_batched_tokens)
        });
        let swap = swap.transpose().or_input()?;
        let mut engine = EngineSettings { swap, ..self.unsized_engine.clone() }.with_capacity(&capacity);
        if capacity.sequence.has_state() && !self.choice.profile.serving.prefix_caching_of_states {
            engine.prefix_caching = self.choice.prefix_caching.unwrap_or(false);
        }
        let prefixes = self.choice.prefix_cache.as_ref();
        let second_level =
            prefixes.map(|prefixes| engine.prefix_level(prefixes, choice, cost_model, placement));
        engine.second_level = second_level.transpose().or_input()?;
        let residency = KvResidency::new(&capacity, &engine, share.is_finite());
        Ok(SizedEngine::Fits(Box::new(engine), residency))
    }

    fn capacity(
        &self,
        cost_model: CostModel<'_>,
        placement: &Placement,
        share: f64,
    ) -> Result<KvCapacity, KvCapacityError> {
        let EngineSettings { block_size, max_num_batched_tokens, max_num_seqs, .. } = self.unsized_engine;
        let allocation = state_allocation(&self.choice.profile.serving.states, max_num_seqs);
        let sizes = [block_size, max_num_batched_tokens * cost_model.machine.division().data];
        let serving = &self.choice.profile.serving;
        let share = match serving.kv_of_free && share.is_finite() {
            true => MemoryShare::OfFree(share),
            false => MemoryShare::OfAll(share),
        };
        let kept_free = match self.choice.gpu_memory_utilization {
            Some(_) => Bytes::ZERO,
            None => serving.kept_free.value,
        };
        let memory = EngineMemory { share, own: serving.own_memory.value, kept_free };
        KvCapacity::new(cost_model, placement, sizes, memory, allocation)
    }

    /// Whether `placement` leaves room for so many sequences of so many tokens.
    pub(crate) fn has_room_for(
        &self,
        [sequences, tokens]: [u64; 2],
        cost_model: CostModel<'_>,
        placement: &Placement,
    ) -> Result<bool> {
        match self.capacity(cost_model, placement, self.utilization) {
            Ok(capacity) => {
                let each = capacity.sequence.blocks(tokens, self.unsized_engine.block_size);
                let wanted = sequences.saturating_mul(each);
                Ok(capacity.blocks >= wanted && capacity.most_sequences >= sequences)
            }
            Err(KvCapacityError::NoKvRoom(_)) => Ok(false),
            Err(KvCapacityError::Planner(error)) => Err(planner_error(error)),
        }
    }
}

/// How many engines there are on a group of GPUs.
pub(super) fn engines_of(division: &GroupDivision) -> u64 {
    division.stages * division.data
}

/// How an engine of at most `sequences` sequences gives memory to states and windows.
fn state_allocation(pool: &StatePool, sequences: u64) -> StateAllocation {
    match pool {
        StatePool::Shared => StateAllocation::Shared,
        StatePool::Split { ratio, slots } => {
            let ratio = ratio.value.get();
            let share = Ratio::new(ratio / (1.0 + ratio)).unwrap_or(Ratio::ONE);
            StateAllocation::Split { share, slots: slots.value }
        }
        StatePool::Reserved { step_tokens } => {
            StateAllocation::Reserved { sequences, step_tokens: step_tokens.value }
        }
    }
}

/// What an engine keeps of sequences, and what is beside it in the memories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvResidency {
    /// Bytes of all blocks of the pool.
    pub pool: Bytes,
    /// Bytes of the states of one sequence.
    pub state: Bytes,
    /// Bytes of the full windows of one sequence.
    pub windows: Bytes,
    /// The most sequences that run at once.
    pub sequences: u64,
    /// Every memory that holds some of the KV cache; empty where a scenario says how many blocks
    /// there are, which then need no room.
    pub memories: Vec<KvMemory>,
}

impl KvResidency {
    fn new(capacity: &KvCapacity, engine: &EngineSettings, are_blocks_counted: bool) -> Self {
        Self {
            pool: Bytes::new(capacity.block_bytes.get().saturating_mul(engine.num_blocks)),
            state: capacity.state_bytes,
            windows: capacity.window_bytes,
            sequences: engine.max_num_seqs,
            memories: if are_blocks_counted { capacity.memories.clone() } else { vec![] },
        }
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let memory = |it: &KvMemory| {
            json!({
                "memory": it.name, "bytes": it.capacity.get(), "kv_bytes": it.kv().get(),
                "weights_bytes": it.weights.get(), "activations_bytes": it.activations.get(),
                "staging_bytes": it.staging.get(), "engine_bytes": it.engine.get(), "unused_bytes": it.unused.get(),
            })
        };
        json!({
            "pool_bytes": self.pool.get(), "state_bytes_per_sequence": self.state.get(),
            "window_bytes_per_sequence": self.windows.get(), "most_sequences": self.sequences,
            "memories": self.memories.iter().map(memory).collect::<Vec<_>>(),
        })
    }

    /// The same in words: a line for each memory, and one for models with windows or states.
    pub fn to_text(&self) -> String {
        let named = |parts: &[(&str, Bytes)]| {
            let parts = parts.iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
            parts.map(|(name, bytes)| format!("{name} {bytes}")).collect::<Vec<_>>().join(", ")
        };
        let memory = |it: &KvMemory| {
            let parts = named(&[
                ("KV cache", it.kv()),
                ("weights", it.weights),
                ("activations", it.activations),
                ("fetched weights", it.staging),
                ("the engine's own", it.engine),
                ("not used", it.unused),
            ]);
            let text = format!("{} {}: {parts}", it.name, it.capacity);
            wrapped("", &text, 2, TERMINAL_COLUMNS)
        };
        let mut lines: Vec<_> = self.memories.iter().flat_map(memory).collect();
        let of_one = named(&[("state", self.state), ("windows up to", self.windows)]);
        if !of_one.is_empty() {
            let (pool, most) = (self.pool, self.sequences);
            lines.push(format!("KV blocks {pool}, {of_one} per sequence × {most} sequences at most"));
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }
}
