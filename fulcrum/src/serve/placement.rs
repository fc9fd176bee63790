//! Where the engines of a serving scenario have everything, and how many engines a machine holds.

use crate::error::{Error, Result};
use crate::pipeline::{PreparedScenario, ResolvedPlan};
use crate::serve::engine_sizing::{EngineSizing, SizedEngine, engines_of};
use hwprofiles::{Bytes, Device, DeviceId, DeviceKind, GroupDivision, Machine, Sourced};
use planner::{CostModel, Placement, Plan};
use scenarios::{Formats, Serving, Workload};

/// What the engines run.
#[derive(Debug, Clone)]
pub(crate) struct ServingPlacement {
    /// The machine.
    pub(crate) machine: Machine,
    /// The number formats.
    pub(crate) formats: Formats,
    /// Where everything is.
    pub(crate) placement: Placement,
    /// The most tokens that a device computes at once; `None` where that is a step.
    pub(crate) micro_batch: Option<u64>,
    /// What was chosen, in a few words.
    pub(crate) chosen: String,
    /// Engines that are alike side by side on the machine, each on a GPU or group of GPUs of its
    /// own; in a pipeline an engine stands for each micro-batch in flight, and engines that share
    /// experts are on one group.
    pub(crate) engines: u64,
    /// How many of all engines compute prompts only.
    pub(crate) prefill: Option<u64>,
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
        // Where the host computes nothing, one sequence at once is better than weights that each
        // step fetches.
        let alone = (!scenario.engine().profile.host_computes).then_some(1);
        for sequences in std::iter::once(FEWEST_SEQUENCES).chain(alone) {
            for machine in scenario.machines() {
                if let Some(placed) = Self::on_a_gpu(scenario, machine, sequences)? {
                    return Ok(placed);
                }
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
            let Some(mut placed) = Self::on_a_gpu(scenario, machine, FEWEST_SEQUENCES)? else {
                continue;
            };
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
        Ok(if all.is_empty() { vec![Self::of_all_engines(scenario)?] } else { all })
    }

    /// Everything on the first GPU, or group of GPUs, of `machine` that has room for it and for
    /// `sequences`, or for all where the load has fewer at once.
    fn on_a_gpu(scenario: &PreparedScenario, machine: &Machine, sequences: u64) -> Result<Option<Self>> {
        let micro_batch = scenario.micro_batch();
        let sizing = EngineSizing::new(scenario, micro_batch);
        let (model, load) = (scenario.model(), scenario.workload());
        let wanted = [load.batch.min(sequences), load.context()];
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
                let prefill = None;
                return Ok(Some(Self { machine, formats, placement, micro_batch, chosen, engines, prefill }));
            }
        }
        Ok(None)
    }

    /// What the planner chooses of what the engine can run. A plan may fill a memory; an engine
    /// keeps some of it free and takes more for its steps, so the next plan leaves free what it
    /// lacks for a few sequences.
    fn planned(scenario: &PreparedScenario) -> Result<Self> {
        let (mut plan, mut placed) = Self::planned_once(scenario)?;
        let (machine, sequences) = (placed.machine.clone(), plan.workload.batch.min(FEWEST_SEQUENCES));
        // What was said of the engine's memory stands.
        if scenario.is_forced() || scenario.engine().gpu_memory_utilization.is_some() {
            return Ok(placed);
        }
        let wanted = [sequences, scenario.workload().context()];
        let mut smaller = machine.clone();
        for _ in 0..MOST_PLANS {
            let sizing = EngineSizing::new(scenario, placed.micro_batch);
            let cost_model =
                CostModel { machine: &machine, model: scenario.model(), formats: &placed.formats };
            let with_most_kv =
                || plan.memory.iter().max_by_key(|(_, used)| used.kv).map(|(name, _)| name.clone());
            let (name, missing) = match sizing.engine(cost_model, &placed.placement)? {
                SizedEngine::NoRoom(full) => (Some(full.memory), full.taken.saturating_sub(full.usable)),
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
            match alike.plan_of_engine() {
                Ok(ResolvedPlan { plan, machine, placement, .. }) => {
                    let (chosen, formats) = (plan.predicted.chosen.clone(), plan.formats);
                    let micro_batch = scenario.micro_batch_of(&plan);
                    let (engines, prefill) = (1, None);
                    let placed = Self { machine, formats, placement, micro_batch, chosen, engines, prefill };
                    return Ok((plan, placed));
                }
                Err(Error::Infeasible(_)) if batch > 1 => batch /= 2,
                Err(error) => return Err(error),
            }
        }
    }
}
