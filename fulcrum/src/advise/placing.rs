//! The placement that an engine's few options give a model on a machine, and its times.
//!
//! An engine of llama.cpp's kind has one parameter, the layers (or the layers' experts) that stay
//! with the host. More with the GPU is better, so it is the least number that fits, found by
//! bisection over bytes. Of several GPUs it is the least by any of a few splits, and where
//! something stays with the host, sizes of prefill steps are tried: a larger one fetches the host's
//! weights less often and leaves less of the GPU's memory.

use super::advised_engine::{AdvisedEngine, EnginePlacing, LayerSplitting};
use super::advised_machine::left_by_system;
use super::model_places::ModelPlaces;
use super::question::AdviceQuestion;
use crate::error::{Error, OrError};
use hwprofiles::{Bytes, DeviceKind, Machine, MemoryId};
use planner::{
    CostModel, MemoryRoom, MemoryUsage, PhaseTimes, Placement, PlannerError, RunExtent, filled_splits,
    footprint, offloaded,
};
use scenarios::{CpuMoe, EngineProfile, Formats, Model, OffloadOptions, Workload};

/// Rows of a step in which engines that hold all on GPUs take a prompt in.
const GPU_STEP: u64 = 2048;

/// Tokens of a prefill step that are tried beside those that the engine takes by itself.
const LARGER_STEPS: [u64; 3] = [1024, 2048, 4096];

/// An option that one has to set is suggested only where the answer then takes less than this share
/// of the time.
const OPTION_MUST_CUT_TO: f64 = 0.97;

/// A model on a machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedModel {
    pub places: ModelPlaces,
    /// By GPU, its part of the layers, where it is not what the engine does by itself.
    pub tensor_split: Vec<u64>,
    /// Tokens of a prefill step, where they are not what the engine takes by itself.
    pub micro_batch: Option<u64>,
    pub times: PhaseTimes,
}

impl PlacedModel {
    /// The time of `load`.
    fn answer(&self, load: &Workload) -> f64 {
        let decoding = self.times.tpot.map_or(0.0, |tpot| tpot.get() * load.decode_steps() as f64);
        self.times.ttft.get() + decoding
    }
}

/// Why a model is not placed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NotPlaced {
    /// Memory is short.
    Short { memory: &'static str, needed: Bytes, has: Bytes },
    /// Something else.
    Impossible(String),
}

impl std::fmt::Display for NotPlaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotPlaced::Short { memory, needed, has } => {
                write!(
                    f,
                    "needs {:.0} GB of {memory}, and there are {:.0}",
                    needed.gigabytes().ceil(),
                    has.gigabytes()
                )
            }
            NotPlaced::Impossible(why) => f.write_str(why),
        }
    }
}

/// A memory that is too small for a placement.
struct ShortMemory {
    id: MemoryId,
    needed: Bytes,
    has: Bytes,
}

/// An engine on a machine, ready to place models.
#[derive(Debug)]
pub(super) struct EngineOnMachine {
    engine: AdvisedEngine,
    profile: EngineProfile,
    /// The machine as the engine runs it.
    machine: Machine,
    /// The same where all layers are with GPUs.
    on_gpus: Machine,
    /// GPUs that the engine uses, of those that are there.
    gpus: u64,
    of_gpus: u64,
    /// Whether all are of one kind.
    alike: bool,
    unified: bool,
    load: Workload,
    room: Workload,
    /// Tokens of a prefill step that were asked for.
    micro_batch: Option<u64>,
}

impl EngineOnMachine {
    /// The engine of `question` on `machine`.
    ///
    /// # Errors
    /// The engine cannot run there.
    pub fn new(machine: &Machine, question: &AdviceQuestion) -> Result<Self, Error> {
        let mut profile = question.engine.profile();
        profile.serving.adapt_to(machine);
        let gpu_devices = machine.devices.iter().filter(|device| device.kind == DeviceKind::Gpu);
        let host = machine.devices.iter().find(|device| device.kind == DeviceKind::Cpu);
        let (of_gpus, alike) = (gpu_devices.clone().count() as u64, machine.identical_gpus().len() as u64);
        // Parallel GPUs are alike: others are left idle.
        let gpus = if question.engine.placing() == EnginePlacing::OnGpus { alike } else { of_gpus };
        let unified = gpu_devices.clone().any(|gpu| host.is_some_and(|host| host.memory == gpu.memory));
        question.engine.check(machine, unified)?;
        let divided = question.engine.placing() == EnginePlacing::OnGpus && gpus > 1;
        let grouped = if divided { machine.with_tensor_parallel(gpus).or_input()? } else { machine.clone() };
        let machine = grouped.run_by(&profile.execution);
        let on_gpus = grouped.run_by(&profile.execution.with_all_on_gpus());
        let (load, room, micro_batch) = (question.load(), question.room(), question.micro_batch);
        Ok(Self {
            engine: question.engine,
            profile,
            machine,
            on_gpus,
            gpus,
            of_gpus,
            alike: alike == of_gpus,
            unified,
            load,
            room,
            micro_batch,
        })
    }

    /// The best placement of `model` in `formats`, with its times.
    pub fn place(&self, model: &Model, formats: &Formats) -> Result<PlacedModel, NotPlaced> {
        if self.room.context() > model.max_positions {
            let why = format!("its context ends at {} tokens", model.max_positions);
            return Err(NotPlaced::Impossible(why));
        }
        let cost_model = CostModel { machine: &self.machine, model, formats };
        let capacity: Bytes = self.machine.memory_ids().map(|id| self.capacity(id)).sum();
        let weights = model.weight_bytes(formats);
        if weights > capacity {
            return Err(NotPlaced::Short { memory: "memory", needed: weights, has: capacity });
        }
        let usual = self.placed(cost_model, self.micro_batch.unwrap_or_else(|| self.usual_step()))?;
        if self.micro_batch.is_some() || !self.fetches_in_prefill(usual.places) {
            return Ok(usual);
        }
        let rows = self.load.batch * self.load.prompt_tokens;
        let larger = LARGER_STEPS.into_iter().take_while(|&size| size / 2 < rows);
        let others = larger.filter_map(|size| self.placed(cost_model, size).ok());
        let faster = |best: PlacedModel, next: PlacedModel| {
            if next.answer(&self.load) < OPTION_MUST_CUT_TO * best.answer(&self.load) { next } else { best }
        };
        Ok(others.fold(usual, faster))
    }

    /// Whether the engine fetches weights for prompts that lie with the host.
    fn fetches_in_prefill(&self, places: ModelPlaces) -> bool {
        self.engine.runs_llama_server() && self.gpus > 0 && !self.unified && !places.all_on_gpu()
    }

    /// The best placement where `step` tokens enter in a prefill step.
    fn placed(&self, cost_model: CostModel<'_>, step: u64) -> Result<PlacedModel, NotPlaced> {
        let model = cost_model.model;
        let places = self.places(cost_model, step)?;
        let timed = |options: OffloadOptions| {
            let (placement, chunk) = self.placement(model, &options, &self.load)?;
            let machine = if options.is_whole_on_gpus(model) { &self.on_gpus } else { &self.machine };
            let cost_model = CostModel { machine, ..cost_model };
            let times = sim::estimate(cost_model, &placement, &self.load, chunk).map_err(impossible)?;
            let micro_batch = Some(step).filter(|step| *step != self.usual_step());
            let tensor_split = options.tensor_split;
            let divides_layers = self.engine.placing() != EnginePlacing::OnGpus && !tensor_split.is_empty();
            let gpus = if divides_layers { gpus_of(&tensor_split) } else { places.gpus };
            Ok(PlacedModel { places: ModelPlaces { gpus, ..places }, tensor_split, micro_batch, times })
        };
        let mut best: Option<PlacedModel> = None;
        for next in self.fitting(cost_model, places, step)?.into_iter().map(timed) {
            let next: PlacedModel = next?;
            if best.as_ref().is_none_or(|best| next.answer(&self.load) < best.answer(&self.load)) {
                best = Some(next);
            }
        }
        best.ok_or_else(|| NotPlaced::Impossible("nothing fits".to_owned()))
    }

    /// Tokens of a prefill step unless an option says otherwise.
    fn usual_step(&self) -> u64 {
        self.profile.execution.op_offload.as_ref().map_or(GPU_STEP, |offload| offload.micro_batch.value)
    }

    /// The places with most on the GPUs that fit, where `step` tokens enter in a prefill step.
    fn places(&self, cost_model: CostModel<'_>, step: u64) -> Result<ModelPlaces, NotPlaced> {
        let layers = cost_model.model.layers;
        let all = ModelPlaces {
            gpus: self.gpus,
            of_gpus: self.of_gpus,
            layers,
            gpu_layers: layers + 1,
            cpu_expert_layers: 0,
            unified: self.unified,
        };
        let has_experts = cost_model.model.experts.is_some();
        if self.gpus == 0 {
            return Ok(ModelPlaces { gpu_layers: 0, ..all });
        }
        let apart = ModelPlaces { cpu_expert_layers: layers, ..all };
        match self.engine.placing() {
            EnginePlacing::ExpertsApart if !has_experts => {
                let why = format!("{} divides models of experts, and this one has none", self.engine);
                return Err(NotPlaced::Impossible(why));
            }
            EnginePlacing::ExpertsApart => return Ok(apart),
            EnginePlacing::OnGpus => return Ok(all),
            EnginePlacing::Divided | EnginePlacing::Layers => {}
        }
        let on_gpus = |places: ModelPlaces| {
            let tried = self.tried(cost_model, places, step);
            tried.is_ok_and(|tried| tried.iter().any(|(_, short)| !self.is_short_of_gpu(short.as_ref())))
        };
        if self.unified || on_gpus(all) {
            return Ok(all);
        }
        let moves_experts = has_experts && self.engine.placing() == EnginePlacing::Divided;
        if moves_experts && on_gpus(apart) {
            let with = |kept: u64| ModelPlaces { cpu_expert_layers: kept, ..all };
            return Ok(with(least(0, layers, |kept| on_gpus(with(kept)))));
        }
        let kept = if moves_experts { layers } else { 0 };
        let with = |left: u64| ModelPlaces { gpu_layers: layers + 1 - left, cpu_expert_layers: kept, ..all };
        Ok(with(least(0, layers + 1, |left| on_gpus(with(left)))))
    }

    /// The options of `places` that all memories hold: what the engine does by itself or, where
    /// that does not fit, other splits between GPUs. An error is the memory that is short.
    fn fitting(
        &self,
        cost_model: CostModel<'_>,
        places: ModelPlaces,
        step: u64,
    ) -> Result<Vec<OffloadOptions>, NotPlaced> {
        let tried = self.tried(cost_model, places, step)?;
        let fit: Vec<_> =
            tried.iter().filter(|(_, short)| short.is_none()).map(|(options, _)| options.clone()).collect();
        match tried.into_iter().find_map(|(_, short)| short) {
            Some(ShortMemory { id, needed, has }) if fit.is_empty() => {
                let memory = if self.is_of_gpu(id) { "GPU memory" } else { "RAM" };
                Err(NotPlaced::Short { memory, needed, has })
            }
            _ => Ok(fit),
        }
    }

    /// The options of `places`, each with the memory that is short: what the engine does by itself
    /// and, where a GPU's memory is too short for that or GPUs differ, other splits between them.
    fn tried(
        &self,
        cost_model: CostModel<'_>,
        places: ModelPlaces,
        step: u64,
    ) -> Result<Vec<(OffloadOptions, Option<ShortMemory>)>, NotPlaced> {
        let options = self.options(&places, cost_model.model, step);
        let short = self.short(cost_model, &options)?;
        let room = |id| MemoryRoom { capacity: self.capacity(id), kept_free: self.kept_free(id) };
        let filled = || filled_splits(cost_model, &options, &self.room, &room);
        let others = match self.engine.splitting() {
            _ if self.gpus < 2 => vec![],
            LayerSplitting::ByOption if self.alike && !self.is_short_of_gpu(short.as_ref()) => vec![],
            LayerSplitting::ByOption if self.alike => filled(),
            LayerSplitting::ByOption => [filled(), self.first_gpus(&options)].concat(),
            LayerSplitting::OneIfItFits => {
                let one = filled().into_iter().find(|options| gpus_of(&options.tensor_split) == 1);
                if let Some(options) = one {
                    let short = self.short(cost_model, &options)?;
                    return Ok(vec![(options, short)]);
                }
                vec![]
            }
            LayerSplitting::AsMemories => vec![],
        };
        let mut tried = vec![(options, short)];
        for options in others {
            let short = self.short(cost_model, &options)?;
            tried.push((options, short));
        }
        Ok(tried)
    }

    fn is_short_of_gpu(&self, short: Option<&ShortMemory>) -> bool {
        short.is_some_and(|short| self.is_of_gpu(short.id))
    }

    /// The first memory that is short, those of GPUs before others.
    fn short(
        &self,
        cost_model: CostModel<'_>,
        options: &OffloadOptions,
    ) -> Result<Option<ShortMemory>, NotPlaced> {
        let used = self.used(cost_model, options)?;
        let short = self.machine.memory_ids().filter_map(|id| {
            let (needed, has) = (used[id.0].total(), self.capacity(id));
            (needed > has).then_some(ShortMemory { id, needed, has })
        });
        Ok(short.min_by_key(|short| !self.is_of_gpu(short.id)))
    }

    /// Whether all memories hold a placement.
    #[cfg(test)]
    pub fn holds(&self, model: &Model, formats: &Formats, places: ModelPlaces) -> bool {
        let cost_model = CostModel { machine: &self.machine, model, formats };
        self.fitting(cost_model, places, self.usual_step()).is_ok()
    }

    fn is_of_gpu(&self, id: MemoryId) -> bool {
        let owners = self.machine.devices.iter().filter(|device| device.memory == id);
        owners.clone().count() > 0 && owners.clone().all(|device| device.kind == DeviceKind::Gpu)
    }

    /// The bytes that an engine uses of a memory.
    fn capacity(&self, id: MemoryId) -> Bytes {
        let all = self.machine.memory(id).capacity.value;
        let serving = &self.profile.serving;
        let share = serving.gpu_memory_utilization.value.get();
        let own = serving.own_memory.value * self.machine.ranks_of(id);
        match self.engine.placing() == EnginePlacing::OnGpus && self.is_of_gpu(id) {
            true => Bytes::new((all.as_f64() * share) as u64).saturating_sub(own),
            false => left_by_system(&self.machine, id),
        }
    }

    fn used(
        &self,
        cost_model: CostModel<'_>,
        options: &OffloadOptions,
    ) -> Result<Vec<MemoryUsage>, NotPlaced> {
        let (placement, chunk) = self.placement(cost_model.model, options, &self.room)?;
        let extent = RunExtent::from_workload(&self.room, chunk);
        let used = footprint(cost_model, &extent, &placement);
        let mut used = used.map_err(|error| impossible(PlannerError::from(error)))?;
        // Activations lie in what the engine keeps free.
        for id in self.machine.memory_ids().filter(|&id| self.is_of_gpu(id)) {
            used[id.0].activations = used[id.0].activations.max(self.kept_free(id));
        }
        Ok(used)
    }

    /// What the engine keeps free of a GPU's memory.
    fn kept_free(&self, id: MemoryId) -> Bytes {
        self.profile.serving.kept_free.value * self.machine.ranks_of(id)
    }

    /// `options` with the first GPUs alone, as their memories are: the fastest one, two and so on.
    fn first_gpus(&self, options: &OffloadOptions) -> Vec<OffloadOptions> {
        let gpus = self.machine.devices.iter().filter(|device| device.kind == DeviceKind::Gpu);
        let sizes = gpus.map(|gpu| self.machine.memory(gpu.memory).capacity.value.gigabytes().round() as u64);
        let sizes: Vec<u64> = sizes.collect();
        let first = |count: usize| {
            let part = |(index, &size): (usize, &u64)| if index < count { size } else { 0 };
            let tensor_split = sizes.iter().enumerate().map(part).collect();
            OffloadOptions { tensor_split, ..options.clone() }
        };
        (1..sizes.len()).map(first).collect()
    }

    /// The placement of the options, and the tokens of each sequence in a step of prefill.
    fn placement(
        &self,
        model: &Model,
        options: &OffloadOptions,
        load: &Workload,
    ) -> Result<(Placement, u64), NotPlaced> {
        offloaded(&self.machine, model, options, load).map_err(impossible)
    }

    fn options(&self, places: &ModelPlaces, model: &Model, micro_batch: u64) -> OffloadOptions {
        let cpu_moe = match places.cpu_expert_layers {
            0 => CpuMoe::None,
            layers if layers == places.layers => CpuMoe::All,
            layers => CpuMoe::First(layers),
        };
        let mut tensor_split = vec![];
        if self.engine.placing() == EnginePlacing::OnGpus && !self.alike {
            // The like ones are one device, which is the first.
            tensor_split = vec![0; 1 + (self.of_gpus - self.gpus) as usize];
            tensor_split[0] = 1;
        }
        let options = OffloadOptions {
            gpu_layers: Some(places.gpu_layers).filter(|_| self.gpus > 0),
            tensor_split,
            cpu_moe,
            micro_batch,
            ..OffloadOptions::DEFAULT
        };
        options.completed_by(&self.profile, model)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn impossible(error: impl ToString) -> NotPlaced {
    NotPlaced::Impossible(error.to_string())
}

/// How many GPUs get layers of a split.
fn gpus_of(tensor_split: &[u64]) -> u64 {
    tensor_split.iter().filter(|part| **part > 0).count() as u64
}

/// The least number of `from..=to` for which `holds`, or `to`; if it holds for a number, it holds
/// for all larger ones.
fn least(from: u64, to: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (from, to);
    while low < high {
        let middle = low.midpoint(high);
        match holds(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_number_is_found() {
        for wanted in 0..=9 {
            assert_eq!(least(0, 8, |n| n >= wanted), wanted.min(8));
        }
    }
}
