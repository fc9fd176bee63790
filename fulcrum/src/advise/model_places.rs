//! Where a model lies, in the words of people: on GPUs, on the CPU, experts or layers apart.

use hwprofiles::{DeviceKind, Machine};
use planner::{Placement, Slice};
use scenarios::Sublayer;
use serde::Serialize;

/// Where an engine puts a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct ModelPlaces {
    /// GPUs that are used.
    pub gpus: u64,
    /// GPUs that are there.
    pub of_gpus: u64,
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
        let Self { gpus, of_gpus, layers, gpu_layers, cpu_expert_layers, .. } = self;
        match self.class() {
            PlacementClass::Cpu if gpus > 0 => "CPU, prompts on GPU".to_owned(),
            PlacementClass::Cpu => "all on the CPU".to_owned(),
            PlacementClass::Unified => "all in shared memory".to_owned(),
            PlacementClass::Gpu if gpus > 1 => format!("all on {gpus} GPUs"),
            PlacementClass::Gpu if of_gpus > 1 => "all on one GPU".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use scenarios::Model;

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
        let one = ModelPlaces {
            gpus: 1,
            of_gpus: 1,
            layers: 48,
            gpu_layers: 49,
            cpu_expert_layers: 0,
            unified: false,
        };
        for (places, words) in [
            (one, "all on the GPU"),
            (ModelPlaces { of_gpus: 2, ..one }, "all on one GPU"),
            (ModelPlaces { gpus: 2, ..one }, "all on 2 GPUs"),
            (ModelPlaces { cpu_expert_layers: 23, ..one }, "23/48 experts in RAM"),
            (ModelPlaces { cpu_expert_layers: 48, ..one }, "experts in RAM"),
            (ModelPlaces { gpu_layers: 31, ..one }, "18/48 layers on CPU"),
            (ModelPlaces { gpu_layers: 0, ..one }, "CPU, prompts on GPU"),
            (ModelPlaces { gpus: 0, gpu_layers: 0, ..one }, "all on the CPU"),
            (ModelPlaces { unified: true, ..one }, "all in shared memory"),
        ] {
            assert_eq!(places.words(), words);
            assert!(words.split_whitespace().count() <= 5 && words.len() <= 20);
        }
    }
}
