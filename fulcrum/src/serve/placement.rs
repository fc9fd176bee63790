//! Where the engines of a serving scenario have everything, and how many engines a machine holds.

use crate::error::{Error, OrError, Result};
use crate::pipeline::{PreparedScenario, ResolvedPlan, planner_error};
use hwprofiles::{DeviceKind, Machine};
use planner::{Placement, CostModel};
use scenarios::{EngineChoice, Formats, Workload};
use sim::serving::{ServingEngine, NoKvRoom, KvOffload, kv_blocks};

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
    Fits(Box<ServingEngine>),
    /// Not one block fits.
    NoKvRoom(NoKvRoom),
}

impl<'q> EngineSizing<'q> {
    /// The engine that `scenario` chooses.
    pub(crate) fn new(scenario: &'q PreparedScenario) -> Self {
        let choice = scenario.engine();
        let utilization = choice.gpu_memory_utilization;
        Self {
            choice,
            draft: ServingEngine::of(choice, 1, scenario.model().max_positions),
            utilization: utilization.unwrap_or(sim::serving::GPU_MEMORY_UTILIZATION),
        }
    }

    /// The engine on `placement`.
    pub(crate) fn engine(&self, cost_model: CostModel<'_>, placement: &Placement) -> Result<SizedEngine> {
        let ServingEngine { block_size, max_num_batched_tokens, .. } = self.draft;
        let num_blocks = match (self.choice.num_blocks, self.blocks(cost_model, placement)?) {
            (Some(blocks), _) | (None, Ok(blocks)) => blocks,
            (None, Err(full)) => return Ok(SizedEngine::NoKvRoom(full)),
        };
        let choice = self.choice.swap.as_ref();
        let swap = choice.map(|swap| KvOffload::of(swap, cost_model, placement, block_size, max_num_batched_tokens));
        let prefixes = self.choice.prefix_cache.as_ref();
        let second_level =
            prefixes.map(|prefixes| KvOffload::of_prefixes(prefixes, choice, cost_model, placement, &self.draft));
        let swap = swap.transpose().or_input()?;
        let second_level = second_level.transpose().or_input()?;
        let engine = ServingEngine { num_blocks, swap, second_level, ..self.draft.clone() };
        Ok(SizedEngine::Fits(Box::new(engine)))
    }

    fn blocks(&self, cost_model: CostModel<'_>, placement: &Placement) -> Result<Result<u64, NoKvRoom>> {
        let ServingEngine { block_size, max_num_batched_tokens, .. } = self.draft;
        let blocks = kv_blocks(cost_model, placement, block_size, max_num_batched_tokens, self.utilization);
        blocks.map_err(planner_error)
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
    /// own.
    pub(crate) engines: u64,
}

/// Sequences whose KV cache must fit on a GPU if everything is to be there.
const FEWEST_SEQUENCES: u64 = 8;

impl ServingPlacement {
    /// Everything on a GPU, or on the smallest group of GPUs, that has room for it and a few
    /// sequences, in the formats of most bits. Where none has, what the planner chooses for the
    /// largest batch of such requests that has a plan. That plan need not keep the limits: they are
    /// on requests, queueing included.
    pub(crate) fn new(scenario: &PreparedScenario) -> Result<Self> {
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
        let mut all = Vec::new();
        for machine in scenario.machines() {
            let Some(mut placed) = Self::on_a_gpu(scenario, machine)? else { continue };
            let groups = machine.identical_gpus();
            // An engine on a GPU of another kind is alone.
            if groups.iter().any(|&id| machine.device(id).memory == placed.placement.head[0].home) {
                placed.engines = groups.len() as u64;
            }
            if placed.engines > 1 {
                let gpus = match machine.tensor_parallel() {
                    1 => "a GPU".to_owned(),
                    ranks => format!("{ranks} GPUs as one"),
                };
                placed.chosen = format!("{} side by side, each on {gpus}", placed.engines);
            }
            all.push(placed);
        }
        Ok(if all.is_empty() { vec![Self::planned(scenario)?] } else { all })
    }

    /// Everything on the first GPU, or group of GPUs, of `machine` that has room.
    fn on_a_gpu(scenario: &PreparedScenario, machine: &Machine) -> Result<Option<Self>> {
        let sizing = EngineSizing::new(scenario);
        let (model, load) = (scenario.model(), scenario.workload());
        let sequences = load.batch.min(FEWEST_SEQUENCES);
        let wanted = sequences * load.context().div_ceil(sizing.draft.block_size);
        for id in machine.device_ids().filter(|&id| machine.device(id).kind == DeviceKind::Gpu) {
            let device = machine.device(id);
            let placement = Placement::uniform(model, id, device.memory);
            let cost_model = CostModel { machine, ..scenario.cost_model() };
            if sizing.blocks(cost_model, &placement)?.is_ok_and(|blocks| blocks >= wanted) {
                let chosen = format!("all on {}", device.name);
                let (machine, formats) = (machine.clone(), *cost_model.formats);
                return Ok(Some(Self { machine, formats, placement, chosen, engines: 1 }));
            }
        }
        Ok(None)
    }

    fn planned(scenario: &PreparedScenario) -> Result<Self> {
        let mut batch = scenario.workload().batch;
        loop {
            let alike = scenario.with_workload(Workload { batch, ..*scenario.workload() });
            match alike.plan() {
                Ok(ResolvedPlan { plan, machine, placement, .. }) => {
                    let chosen = plan.predicted.chosen;
                    return Ok(Self { machine, formats: plan.formats, placement, chosen, engines: 1 });
                }
                Err(Error::Infeasible(_)) if batch > 1 => batch /= 2,
                Err(error) => return Err(error),
            }
        }
    }
}
