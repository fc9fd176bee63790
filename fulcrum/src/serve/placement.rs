//! Where the engines of a serving scenario have everything, and how many engines a machine holds.

use crate::error::{Error, OrError, Result};
use crate::pipeline::{PreparedScenario, ResolvedPlan, planner_error};
use hwprofiles::{Bytes, Device, DeviceId, DeviceKind, GroupDivision, Machine, Ratio, Sourced};
use planner::{CostModel, Placement, Plan};
use scenarios::{EngineChoice, Formats, Serving, StatePool, Workload};
use serde_json::{Value, json};
use sim::serving::{
    EngineMemory, KvCapacity, KvCapacityError, KvOffload, MemoryShare, NoKvRoom, ServingEngine,
    StateAllocation,
};

/// An engine whose KV blocks are not counted yet.
pub(crate) struct EngineSizing<'q> {
    choice: &'q EngineChoice,
    draft: ServingEngine,
    /// The share of a memory that the engine uses.
    pub(crate) utilization: f64,
}

/// An engine on a placement, or why there is none.
pub(crate) enum SizedEngine {
    /// The engine with its KV blocks.
    Fits(Box<ServingEngine>, KvResidency),
    /// Not one block fits.
    NoRoom(NoKvRoom),
}

impl<'q> EngineSizing<'q> {
    /// The engine that `scenario` chooses.
    pub(crate) fn new(scenario: &'q PreparedScenario) -> Self {
        let choice = scenario.engine();
        let utilization = choice.gpu_memory_utilization;
        Self {
            choice,
            draft: ServingEngine::from_choice(choice, 1, scenario.model().max_positions),
            utilization: utilization.unwrap_or(choice.profile.serving.gpu_memory_utilization.value.get()),
        }
    }

    /// The engine on `placement`.
    pub(crate) fn engine(&self, cost_model: CostModel<'_>, placement: &Placement) -> Result<SizedEngine> {
        let ServingEngine { block_size, max_num_batched_tokens, .. } = self.draft;
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
        let mut engine = ServingEngine { swap, ..self.draft.clone() }.with_capacity(&capacity);
        if capacity.sequence.has_state() && !self.choice.profile.serving.prefix_caching_of_states {
            engine.prefix_caching = self.choice.prefix_caching.unwrap_or(false);
        }
        let prefixes = self.choice.prefix_cache.as_ref();
        let second_level =
            prefixes.map(|prefixes| engine.prefix_level(prefixes, choice, cost_model, placement));
        engine.second_level = second_level.transpose().or_input()?;
        let residency = KvResidency::new(&capacity, &engine);
        Ok(SizedEngine::Fits(Box::new(engine), residency))
    }

    fn capacity(
        &self,
        cost_model: CostModel<'_>,
        placement: &Placement,
        share: f64,
    ) -> Result<KvCapacity, KvCapacityError> {
        let ServingEngine { block_size, max_num_batched_tokens, max_num_seqs, .. } = self.draft;
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
    fn has_room_for(
        &self,
        [sequences, tokens]: [u64; 2],
        cost_model: CostModel<'_>,
        placement: &Placement,
    ) -> Result<bool> {
        match self.capacity(cost_model, placement, self.utilization) {
            Ok(capacity) => {
                let each = capacity.sequence.blocks(tokens, self.draft.block_size);
                let wanted = sequences.saturating_mul(each);
                Ok(capacity.blocks >= wanted && capacity.most_sequences >= sequences)
            }
            Err(KvCapacityError::NoKvRoom(_)) => Ok(false),
            Err(KvCapacityError::Planner(error)) => Err(planner_error(error)),
        }
    }
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

/// The bytes that an engine has for what it keeps of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvResidency {
    /// Bytes of all blocks of the pool.
    pub pool: Bytes,
    /// Bytes of the states of one sequence.
    pub state: Bytes,
    /// Bytes of the full windows of one sequence.
    pub windows: Bytes,
    /// The most sequences that run at once.
    pub sequences: u64,
}

impl KvResidency {
    fn new(capacity: &KvCapacity, engine: &ServingEngine) -> Self {
        Self {
            pool: Bytes::new(capacity.block_bytes.get().saturating_mul(engine.num_blocks)),
            state: capacity.state_bytes,
            windows: capacity.window_bytes,
            sequences: engine.max_num_seqs,
        }
    }

    /// The same as JSON; `None` for models without windows and states.
    pub fn to_json(&self) -> Option<Value> {
        let Self { pool, state, windows, sequences } = *self;
        (state + windows > Bytes::ZERO).then(|| {
            json!({
                "pool_bytes": pool.get(), "state_bytes_per_sequence": state.get(),
                "window_bytes_per_sequence": windows.get(), "most_sequences": sequences,
            })
        })
    }

    /// The same in words; empty for models without windows and states.
    pub fn to_text(&self) -> String {
        let Self { pool, state, windows, sequences } = *self;
        let parts = [("state", state), ("windows up to", windows)];
        let parts = parts.iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
        let parts: Vec<_> = parts.map(|(name, bytes)| format!("{name} {bytes}")).collect();
        match &parts[..] {
            [] => String::new(),
            parts => format!(
                "KV cache {pool}, {} per sequence × {sequences} sequences at most\n",
                parts.join(", ")
            ),
        }
    }
}

/// What the engines run.
#[derive(Debug, Clone)]
pub(crate) struct ServingPlacement {
    /// The machine.
    pub(crate) machine: Machine,
    /// The number formats.
    pub(crate) formats: Formats,
    /// Where everything is.
    pub(crate) placement: Placement,
    /// What was chosen, in a few words.
    pub(crate) chosen: String,
    /// Engines that are alike side by side on the machine, each on a GPU or group of GPUs of its
    /// own; in a pipeline an engine stands for each micro-batch in flight, and engines that share
    /// experts are on one group.
    pub(crate) engines: u64,
    /// How many of all engines compute prompts only.
    pub(crate) prefill: Option<u64>,
}

/// How many engines there are on a group of GPUs.
pub(super) fn engines_of(division: &GroupDivision) -> u64 {
    division.stages * division.data
}

/// What the group of GPUs is that computes as `device`; `None` for one.
fn grouped(device: &Device) -> Option<String> {
    let GroupDivision { stages, data, .. } = device.division();
    let in_stages = if stages > 1 { format!(" in {stages} stages") } else { String::new() };
    let engines = if data > 1 { format!(", its experts shared by {data} engines") } else { String::new() };
    (device.ranks() > 1).then(|| format!("{} GPUs as one{in_stages}{engines}", device.ranks()))
}

/// How many plans are made until an engine has room on each memory.
const MOST_PLANS: u64 = 8;

/// The least share of a memory that the next plan leaves free.
const LEAST_CUT: f64 = 0.02;

/// Sequences whose KV cache must fit on a GPU if everything is to be there.
const FEWEST_SEQUENCES: u64 = 8;

impl ServingPlacement {
    /// Everything on a GPU, or on the smallest group of GPUs, that has room for it and a few
    /// sequences, in the formats of most bits. Where none has, what the planner chooses for the
    /// largest batch of such requests that has a plan. That plan need not keep the limits: they are
    /// on requests, queueing included.
    pub(crate) fn new(scenario: &PreparedScenario) -> Result<Self> {
        let prefill = scenario.serving().and_then(|serving| serving.prefill_engines.first().copied());
        Ok(Self { prefill, ..Self::of_all_engines(scenario)? })
    }

    /// The same for all engines of `serving`, and how many machines hold them: as many side by side
    /// as there are groups of like GPUs, and as fill machines evenly. Engines that may use the host
    /// have a machine each.
    pub(crate) fn side_by_side(self, serving: &Serving) -> (Self, u64) {
        let replicas = serving.replicas;
        let groups = self.machine.identical_gpus();
        let is_alone = |gpu: DeviceId| {
            let mut slices = self.placement.sublayers().flat_map(|(.., slices)| slices);
            let home = self.machine.device(gpu).memory;
            slices.all(|slice| slice.home == home && slice.prefill == gpu && slice.decode == gpu)
        };
        let stays_alone = !serving.rebalance && groups.iter().any(|&gpu| is_alone(gpu));
        let most = if stays_alone { groups.len() as u64 } else { 1 };
        let together = (1..=most).rev().find(|count| replicas.is_multiple_of(*count)).unwrap_or(1);
        (self.on_groups(together), replicas / together)
    }

    /// The same with an engine on each of several groups of GPUs.
    fn on_groups(mut self, count: u64) -> Self {
        if count > 1 {
            let gpu = self.machine.device(self.machine.identical_gpus()[0]);
            let gpus = grouped(gpu).unwrap_or_else(|| "a GPU".to_owned());
            self.engines *= count;
            self.chosen = format!("{count} side by side, each on {gpus}");
        }
        self
    }

    fn of_all_engines(scenario: &PreparedScenario) -> Result<Self> {
        if scenario.is_forced() {
            return Self::planned(scenario);
        }
        for machine in scenario.machines() {
            if let Some(placed) = Self::on_a_gpu(scenario, machine)? {
                return Ok(placed);
            }
        }
        Self::planned(scenario)
    }

    /// Every way to use all GPUs of the machine: groups of each size that has room for everything,
    /// with an engine on each group. Where no size has room, the only one is that of
    /// [`ServingPlacement::new`].
    pub(crate) fn alternatives(scenario: &PreparedScenario) -> Result<Vec<Self>> {
        if scenario.is_forced() {
            return Ok(vec![Self::planned(scenario)?]);
        }
        let mut all = Vec::new();
        for machine in scenario.machines() {
            let Some(mut placed) = Self::on_a_gpu(scenario, machine)? else { continue };
            let groups = machine.identical_gpus();
            // An engine on a GPU of another kind is alone.
            if groups.iter().any(|&id| machine.device(id).memory == placed.placement.head[0].home) {
                placed = placed.on_groups(groups.len() as u64);
            }
            let pools = scenario.serving().map_or(&[][..], |serving| &serving.prefill_engines);
            let divided = |&engines: &u64| {
                let chosen = format!("{}, {engines} for prompts", placed.chosen);
                Self { prefill: Some(engines), chosen, ..placed.clone() }
            };
            let divided: Vec<_> = pools.iter().filter(|&&pool| pool < placed.engines).map(divided).collect();
            all.push(placed);
            all.extend(divided);
        }
        Ok(if all.is_empty() { vec![Self::planned(scenario)?] } else { all })
    }

    /// Everything on the first GPU, or group of GPUs, of `machine` that has room.
    fn on_a_gpu(scenario: &PreparedScenario, machine: &Machine) -> Result<Option<Self>> {
        let sizing = EngineSizing::new(scenario);
        let (model, load) = (scenario.model(), scenario.workload());
        let sequences = load.batch.min(FEWEST_SEQUENCES);
        let wanted = [sequences, load.context()];
        for id in machine.device_ids().filter(|&id| machine.device(id).kind == DeviceKind::Gpu) {
            let device = machine.device(id);
            if model.check_division(device.division()).is_err() {
                continue;
            }
            let placement = Placement::uniform(model, id, device.memory);
            let cost_model = CostModel { machine, ..scenario.cost_model() };
            if sizing.has_room_for(wanted, cost_model, &placement)? {
                let chosen = format!("all on {}", grouped(device).unwrap_or_else(|| device.name.clone()));
                let (machine, formats) = (machine.with_one_engine(), *cost_model.formats);
                let engines = engines_of(&device.division());
                return Ok(Some(Self { machine, formats, placement, chosen, engines, prefill: None }));
            }
        }
        Ok(None)
    }

    /// What the planner chooses. A plan may fill a memory; an engine keeps some of it free and
    /// takes more for its steps, so the next plan leaves free what it lacks for a few sequences.
    fn planned(scenario: &PreparedScenario) -> Result<Self> {
        let sizing = EngineSizing::new(scenario);
        let (mut plan, mut placed) = Self::planned_once(scenario)?;
        let (machine, sequences) = (placed.machine.clone(), plan.workload.batch.min(FEWEST_SEQUENCES));
        // What was said of the engine's memory stands.
        if scenario.is_forced() || sizing.choice.gpu_memory_utilization.is_some() {
            return Ok(placed);
        }
        let wanted = [sequences, scenario.workload().context()];
        let mut smaller = machine.clone();
        for _ in 0..MOST_PLANS {
            let cost_model =
                CostModel { machine: &machine, model: scenario.model(), formats: &placed.formats };
            let with_most_kv =
                || plan.memory.iter().max_by_key(|(_, used)| used.kv).map(|(name, _)| name.clone());
            let (name, missing) = match sizing.engine(cost_model, &placed.placement)? {
                SizedEngine::NoRoom(full) => (Some(full.memory), full.taken - full.usable),
                SizedEngine::Fits(..) if sizing.has_room_for(wanted, cost_model, &placed.placement)? => break,
                SizedEngine::Fits(..) => (with_most_kv(), Bytes::ZERO),
            };
            let Some((id, used)) =
                name.and_then(|name| Some((machine.memory_named(&name)?, plan.memory.get(&name)?)))
            else {
                break;
            };
            let kv_of_few = used.kv.as_f64() * sequences as f64 / plan.workload.batch as f64;
            let capacity = &mut smaller.memories[id.0].capacity;
            // A plan moves whole matrices, so a little less changes nothing.
            let least = capacity.value.as_f64() * LEAST_CUT;
            let lacking = missing + Bytes::new(kv_of_few.max(least).ceil() as u64);
            if lacking >= capacity.value {
                break;
            }
            *capacity = Sourced::estimated(capacity.value - lacking, "what an engine leaves of it");
            let on_smaller = scenario.clone().on(smaller.clone(), placed.formats);
            match Self::planned_once(&on_smaller) {
                Ok((next, found)) => (plan, placed) = (next, Self { machine: machine.clone(), ..found }),
                Err(_) => break,
            }
        }
        Ok(placed)
    }

    /// The plan for the largest batch that has one.
    fn planned_once(scenario: &PreparedScenario) -> Result<(Plan, Self)> {
        let mut batch = scenario.workload().batch;
        loop {
            let alike = scenario.with_workload(Workload { batch, ..*scenario.workload() });
            match alike.plan() {
                Ok(ResolvedPlan { plan, machine, placement, .. }) => {
                    let (chosen, formats) = (plan.predicted.chosen.clone(), plan.formats);
                    let placed = Self { machine, formats, placement, chosen, engines: 1, prefill: None };
                    return Ok((plan, placed));
                }
                Err(Error::Infeasible(_)) if batch > 1 => batch /= 2,
                Err(error) => return Err(error),
            }
        }
    }
}
