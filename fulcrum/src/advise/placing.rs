//! The placement that an engine's few options give a model on a machine, and its times.
//!
//! Nothing is searched: an engine of llama.cpp's kind has one parameter, the layers (or the layers'
//! experts) that stay with the host. More with the GPU is better, so it is the least number that
//! fits, found by bisection over bytes.

use super::advised_engine::{AdvisedEngine, EnginePlacing};
use super::advised_machine::left_by_system;
use super::question::AdviceQuestion;
use crate::error::{Error, OrError};
use hwprofiles::{Bytes, DeviceKind, Machine, MemoryId};
use planner::{
    CostModel, MemoryUsage, PhaseTimes, Placement, PlannerError, RunExtent, Slice, footprint, offloaded,
};
use scenarios::{CpuMoe, EngineProfile, Formats, Model, OffloadOptions, Sublayer, Workload};
use serde::Serialize;

/// Rows of a step in which engines that hold all on GPUs take a prompt in.
const GPU_STEP: u64 = 2048;

/// Where an engine puts a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct ModelPlaces {
    /// GPUs that are used.
    pub gpus: u64,
    /// Layers of the model.
    pub layers: u64,
    /// The last layers that are with the GPUs; with all of them, also the output projection.
    pub gpu_layers: u64,
    /// The first layers whose experts are with the CPU.
    pub cpu_expert_layers: u64,
    /// Whether CPU and GPU share one memory.
    pub unified: bool,
}

impl ModelPlaces {
    /// Whether nothing but the token table is with the CPU.
    pub fn all_on_gpu(self) -> bool {
        self.gpus > 0 && self.gpu_layers > self.layers && self.cpu_expert_layers == 0
    }

    /// What people compare it with: placements of one kind are predicted about as well.
    pub fn class(self) -> PlacementClass {
        match self {
            _ if self.gpus == 0 || self.gpu_layers == 0 => PlacementClass::Cpu,
            _ if self.unified => PlacementClass::Unified,
            _ if self.all_on_gpu() => PlacementClass::Gpu,
            _ if self.cpu_expert_layers > 0 => PlacementClass::ExpertsApart,
            _ => PlacementClass::LayersApart,
        }
    }

    /// Where things are, in about five words and at most 20 letters.
    pub fn words(self) -> String {
        let Self { gpus, layers, gpu_layers, cpu_expert_layers, .. } = self;
        match self.class() {
            PlacementClass::Cpu if gpus > 0 => "CPU, prompts on GPU".to_owned(),
            PlacementClass::Cpu => "all on the CPU".to_owned(),
            PlacementClass::Unified => "all in shared memory".to_owned(),
            PlacementClass::Gpu if gpus > 1 => format!("all on {gpus} GPUs"),
            PlacementClass::Gpu => "all on the GPU".to_owned(),
            PlacementClass::ExpertsApart if cpu_expert_layers == layers => "experts in RAM".to_owned(),
            PlacementClass::ExpertsApart => format!("{cpu_expert_layers}/{layers} experts in RAM"),
            PlacementClass::LayersApart => format!("{}/{layers} layers on CPU", layers + 1 - gpu_layers),
        }
    }
}

/// Kinds of placements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementClass {
    /// All on GPUs.
    Gpu,
    /// On a GPU that shares the CPU's memory.
    Unified,
    /// Routed experts of some layers with the CPU.
    ExpertsApart,
    /// Whole layers with the CPU.
    LayersApart,
    /// All with the CPU.
    Cpu,
}

impl PlacementClass {
    /// The kind of a placement in decode. `None` where weights are fetched for each token, or on
    /// other devices than CPUs and GPUs: no such runs are public.
    pub(super) fn from_placement(machine: &Machine, placement: &Placement) -> Option<Self> {
        let all: Vec<_> = layer_slices(placement).collect();
        let device = |slice: &Slice| machine.device(slice.decode);
        let usual = |slice: &Slice| match device(slice).kind {
            DeviceKind::Cpu => true,
            DeviceKind::Gpu => slice.home == device(slice).memory,
            DeviceKind::Loopback => false,
        };
        if !all.iter().all(|(_, slice)| usual(slice)) {
            return None;
        }
        let on = |wanted: DeviceKind| all.iter().filter(move |(_, slice)| device(slice).kind == wanted);
        let memory = |kind| on(kind).next().map(|(_, slice)| device(slice).memory);
        let host = machine.devices.iter().find(|device| device.kind == DeviceKind::Cpu);
        Some(match (memory(DeviceKind::Gpu), memory(DeviceKind::Cpu)) {
            (None, _) => Self::Cpu,
            (gpu, _) if gpu == host.map(|host| host.memory) => Self::Unified,
            (_, None) => Self::Gpu,
            _ if on(DeviceKind::Cpu).all(|(sublayer, _)| *sublayer == Sublayer::Experts) => {
                Self::ExpertsApart
            }
            _ => Self::LayersApart,
        })
    }

    /// What runs of this kind are called.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Gpu => "with all on GPUs",
            Self::Unified => "in memory that CPU and GPU share",
            Self::ExpertsApart => "with experts on the CPU",
            Self::LayersApart => "with layers on the CPU",
            Self::Cpu => "with all on the CPU",
        }
    }
}

/// The slices of all layers, each with its sublayer.
pub(super) fn layer_slices(placement: &Placement) -> impl Iterator<Item = (Sublayer, &Slice)> {
    let layers = placement.sublayers().filter(|(layer, ..)| layer.is_some());
    layers.flat_map(|(_, sublayer, slices)| slices.iter().map(move |slice| (sublayer, slice)))
}

/// A model on a machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedModel {
    pub places: ModelPlaces,
    pub times: PhaseTimes,
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

/// An engine on a machine, ready to place models.
#[derive(Debug)]
pub(super) struct EngineSite {
    engine: AdvisedEngine,
    profile: EngineProfile,
    /// The machine as the engine runs it.
    machine: Machine,
    /// The same where all layers are with GPUs.
    on_gpus: Machine,
    gpus: u64,
    unified: bool,
    load: Workload,
    room: Workload,
}

impl EngineSite {
    /// The engine of `question` on `machine`.
    ///
    /// # Errors
    /// The engine cannot run there.
    pub fn new(machine: &Machine, question: &AdviceQuestion) -> Result<Self, Error> {
        let mut profile = question.engine.profile();
        profile.serving.adapt_to(machine);
        let gpu_devices = machine.devices.iter().filter(|device| device.kind == DeviceKind::Gpu);
        let host = machine.devices.iter().find(|device| device.kind == DeviceKind::Cpu);
        let gpus = gpu_devices.clone().count() as u64;
        let unified = gpu_devices.clone().any(|gpu| host.is_some_and(|host| host.memory == gpu.memory));
        question.engine.check(machine, unified)?;
        let divided = question.engine.placing() == EnginePlacing::OnGpus && gpus > 1;
        let grouped = if divided { machine.with_tensor_parallel(gpus).or_input()? } else { machine.clone() };
        let machine = grouped.run_by(&profile.execution);
        let on_gpus = grouped.run_by(&profile.execution.with_all_on_gpus());
        let (load, room) = (question.load(), question.room());
        Ok(Self { engine: question.engine, profile, machine, on_gpus, gpus, unified, load, room })
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
        let places = self.places(cost_model)?;
        let options = self.options(&places, model);
        let (placement, chunk) = self.placement(model, &options, &self.load)?;
        let machine = if options.is_whole_on_gpus(model) { &self.on_gpus } else { &self.machine };
        let cost_model = CostModel { machine, ..cost_model };
        let times = sim::estimate(cost_model, &placement, &self.load, chunk).map_err(impossible)?;
        Ok(PlacedModel { places, times })
    }

    /// The places with most on the GPUs that fit.
    fn places(&self, cost_model: CostModel<'_>) -> Result<ModelPlaces, NotPlaced> {
        let layers = cost_model.model.layers;
        let all = ModelPlaces {
            gpus: self.gpus,
            layers,
            gpu_layers: layers + 1,
            cpu_expert_layers: 0,
            unified: self.unified,
        };
        let has_experts = cost_model.model.experts.is_some();
        if self.gpus == 0 {
            let none = ModelPlaces { gpu_layers: 0, ..all };
            return self.fitting(cost_model, none).map(|()| none);
        }
        let apart = ModelPlaces { cpu_expert_layers: layers, ..all };
        match self.engine.placing() {
            EnginePlacing::ExpertsApart if !has_experts => {
                let why = format!("{} divides models of experts, and this one has none", self.engine);
                return Err(NotPlaced::Impossible(why));
            }
            EnginePlacing::ExpertsApart => return self.fitting(cost_model, apart).map(|()| apart),
            EnginePlacing::OnGpus => return self.fitting(cost_model, all).map(|()| all),
            EnginePlacing::Divided | EnginePlacing::Layers => {}
        }
        if self.unified || self.short_of_gpu(cost_model, all).is_none() {
            return self.fitting(cost_model, all).map(|()| all);
        }
        let fits_gpu = |places: ModelPlaces| self.short_of_gpu(cost_model, places).is_none();
        let moves_experts = has_experts && self.engine.placing() == EnginePlacing::Divided;
        let places = if moves_experts && fits_gpu(apart) {
            let with = |kept: u64| ModelPlaces { cpu_expert_layers: kept, ..all };
            with(least(0, layers, |kept| fits_gpu(with(kept))))
        } else {
            let kept = if moves_experts { layers } else { 0 };
            let with =
                |left: u64| ModelPlaces { gpu_layers: layers + 1 - left, cpu_expert_layers: kept, ..all };
            with(least(0, layers + 1, |left| fits_gpu(with(left))))
        };
        self.fitting(cost_model, places).map(|()| places)
    }

    /// Whether all memories hold a placement; an error is the one that is short.
    fn fitting(&self, cost_model: CostModel<'_>, places: ModelPlaces) -> Result<(), NotPlaced> {
        let used = self.used(cost_model, places)?;
        for id in self.machine.memory_ids() {
            let (needed, has) = (used[id.0].total(), self.capacity(id));
            if needed > has {
                let memory = if self.is_of_gpu(id) { "GPU memory" } else { "RAM" };
                return Err(NotPlaced::Short { memory, needed, has });
            }
        }
        Ok(())
    }

    /// What a GPU lacks; `None` where the GPUs hold their part.
    fn short_of_gpu(&self, cost_model: CostModel<'_>, places: ModelPlaces) -> Option<Bytes> {
        let used = self.used(cost_model, places).ok()?;
        let short = |id: MemoryId| used[id.0].total().saturating_sub(self.capacity(id));
        let of_gpus = self.machine.memory_ids().filter(|&id| self.is_of_gpu(id));
        of_gpus.map(short).filter(|short| *short > Bytes::ZERO).max()
    }

    /// Whether all memories hold a placement.
    #[cfg(test)]
    pub fn holds(&self, model: &Model, formats: &Formats, places: ModelPlaces) -> bool {
        self.fitting(CostModel { machine: &self.machine, model, formats }, places).is_ok()
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

    fn used(&self, cost_model: CostModel<'_>, places: ModelPlaces) -> Result<Vec<MemoryUsage>, NotPlaced> {
        let options = self.options(&places, cost_model.model);
        let (placement, chunk) = self.placement(cost_model.model, &options, &self.room)?;
        let extent = RunExtent::from_workload(&self.room, chunk);
        let used = footprint(cost_model, &extent, &placement);
        let mut used = used.map_err(|error| impossible(PlannerError::from(error)))?;
        // Activations lie in what the engine keeps free.
        for id in self.machine.memory_ids().filter(|&id| self.is_of_gpu(id)) {
            let kept_free = self.profile.serving.kept_free.value * self.machine.ranks_of(id);
            used[id.0].activations = used[id.0].activations.max(kept_free);
        }
        Ok(used)
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

    fn options(&self, places: &ModelPlaces, model: &Model) -> OffloadOptions {
        let cpu_moe = match places.cpu_expert_layers {
            0 => CpuMoe::None,
            layers if layers == places.layers => CpuMoe::All,
            layers => CpuMoe::First(layers),
        };
        let offload = self.profile.execution.op_offload.as_ref();
        let micro_batch = offload.map_or(GPU_STEP, |offload| offload.micro_batch.value);
        let options = OffloadOptions {
            gpu_layers: Some(places.gpu_layers).filter(|_| self.gpus > 0),
            cpu_moe,
            override_tensor: vec![],
            op_offload: None,
            experts_op_offload: None,
            micro_batch,
        };
        options.completed_by(&self.profile, model)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn impossible(error: impl ToString) -> NotPlaced {
    NotPlaced::Impossible(error.to_string())
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

    #[test]
    fn a_placement_is_of_the_kind_that_its_decoding_is() {
        let machine = hwprofiles::Library::default().machine("rtx4090-desktop").unwrap();
        let model = Model::preset("qwen3-30b-a3b").unwrap();
        let device = |name| machine.device_named(name).unwrap();
        let all_on = |device| Placement::uniform(&model, device, machine.device(device).memory);
        let (cpu, gpu) = (all_on(device("cpu")), all_on(device("gpu")));
        let class = |placement: &Placement| PlacementClass::from_placement(&machine, placement);
        // Where `layers` of the GPU's placement are the CPU's, as far as `moves` says.
        let mixed = |layers: std::ops::Range<usize>, moves: fn(Sublayer) -> bool| {
            let mut placement = gpu.clone();
            for at in layers {
                let layer = &mut placement.layers[at];
                let sublayers = layer.kind.sublayers().iter().zip(layer.sublayers.iter_mut());
                for ((&sublayer, slices), (_, with_cpu)) in sublayers.zip(cpu.layers[at].iter()) {
                    if moves(sublayer) {
                        slices.clone_from(with_cpu);
                    }
                }
            }
            placement
        };
        assert_eq!(class(&cpu), Some(PlacementClass::Cpu));
        assert_eq!(class(&gpu), Some(PlacementClass::Gpu));
        let experts = mixed(0..3, |sublayer| sublayer == Sublayer::Experts);
        assert_eq!(class(&experts), Some(PlacementClass::ExpertsApart));
        assert_eq!(class(&mixed(0..1, |_| true)), Some(PlacementClass::LayersApart));
        let fetched = Placement::uniform(&model, device("gpu"), machine.device(device("cpu")).memory);
        assert_eq!(class(&fetched), None);
    }

    #[test]
    fn places_are_told_in_at_most_five_words() {
        let all = ModelPlaces { gpus: 1, layers: 48, gpu_layers: 49, cpu_expert_layers: 0, unified: false };
        for (places, words) in [
            (all, "all on the GPU"),
            (ModelPlaces { gpus: 2, ..all }, "all on 2 GPUs"),
            (ModelPlaces { cpu_expert_layers: 23, ..all }, "23/48 experts in RAM"),
            (ModelPlaces { cpu_expert_layers: 48, ..all }, "experts in RAM"),
            (ModelPlaces { gpu_layers: 31, ..all }, "18/48 layers on CPU"),
            (ModelPlaces { gpu_layers: 0, ..all }, "CPU, prompts on GPU"),
            (ModelPlaces { gpus: 0, gpu_layers: 0, ..all }, "all on the CPU"),
            (ModelPlaces { unified: true, ..all }, "all in shared memory"),
        ] {
            assert_eq!(places.words(), words);
            assert!(words.split_whitespace().count() <= 5 && words.len() <= 20);
        }
    }
}
