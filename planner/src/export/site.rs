//! The plan's placement and the parts of a machine that engines distinguish: where every export
//! starts.

use super::engine::ExportTarget;
use super::export_error::ExportError;
use super::shell::quoted;
use crate::error::PlannerError;
use crate::memory::overfilled;
use crate::memory::{MemoryUsage, usage};
use crate::placement::{LayerPlacement, Placement, Slice, Slices, whole_slice};
use crate::plan::Plan;
use crate::program::PhasePrograms;
use hwprofiles::{Bytes, DType, DeviceId, DeviceKind, Machine, MemoryId, MemoryKind};
use scenarios::{Model, Sublayer, WeightClass, WeightFormats};

/// A plan with its machine as an engine sees it: a host, at most one GPU, their memories and a
/// disk.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub engine: ExportTarget,
    pub plan: &'a Plan,
    pub machine: &'a Machine,
    pub model: &'a Model,
    /// The plan's placement.
    pub placement: Placement,
    /// The host CPU, and its memory.
    pub host: DeviceId,
    pub dram: MemoryId,
    /// The first GPU.
    pub gpu: Option<Gpu>,
}

/// A GPU with its memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gpu {
    pub device: DeviceId,
    pub memory: MemoryId,
}

impl<'a> Site<'a> {
    /// The site of `plan`, which places the model by `placement`. `machine` has the memory that the
    /// plan's draft leaves.
    pub fn new(
        plan: &'a Plan,
        machine: &'a Machine,
        model: &'a Model,
        placement: Placement,
        engine: ExportTarget,
    ) -> Result<Self, ExportError> {
        let first = |kind| machine.device_ids().find(|&id| machine.device(id).kind == kind);
        let Some(host) = first(DeviceKind::Cpu) else {
            return Err(ExportError::Unsupported {
                engine,
                what: format!("on '{}'", machine.name),
                wanted: "it needs a host CPU".to_owned(),
            });
        };
        let dram = machine.device(host).memory;
        let gpu = first(DeviceKind::Gpu).map(|device| Gpu { device, memory: machine.device(device).memory });
        Ok(Self { engine, plan, machine, model, placement, host, dram, gpu })
    }

    /// All GPUs, in the order of the numbers by which engines call them.
    pub fn gpus(&self) -> Vec<Gpu> {
        let is_gpu = |&id: &DeviceId| self.machine.device(id).kind == DeviceKind::Gpu;
        let gpu = |device| Gpu { device, memory: self.machine.device(device).memory };
        self.machine.device_ids().filter(is_gpu).map(gpu).collect()
    }

    /// The GPU, for engines that do nothing without one.
    pub fn gpu(&self) -> Result<Gpu, ExportError> {
        self.gpu.ok_or_else(|| self.unsupported(format!("on '{}'", self.machine.name), "it needs a GPU"))
    }

    pub fn unsupported(&self, what: String, wanted: &str) -> ExportError {
        ExportError::Unsupported { engine: self.engine, what, wanted: wanted.to_owned() }
    }

    pub fn unfit(&self, reason: PlannerError) -> ExportError {
        ExportError::Unfit { engine: self.engine, reason }
    }

    /// The disk, where the GPU can read it.
    pub fn disk(&self) -> Option<MemoryId> {
        let is_disk = |&id: &MemoryId| self.machine.memory(id).kind == MemoryKind::Nvme;
        self.machine
            .memory_ids()
            .find(is_disk)
            .filter(|&disk| self.gpu.is_some_and(|gpu| self.machine.link_between(disk, gpu.memory).is_some()))
    }

    /// The sublayers of layer `index`, in order.
    pub fn sublayers(&self, index: usize) -> &'static [Sublayer] {
        self.model.kind(index as u64).sublayers()
    }

    /// Layer `index` with each sublayer where `place` says. An undivided sublayer gets all rows
    /// that it has in this layer.
    pub fn layer(&self, index: usize, mut place: impl FnMut(Sublayer) -> Slices) -> LayerPlacement {
        let kind = self.model.kind(index as u64);
        let shape = self.model.shape(kind);
        LayerPlacement::from_slices(kind, |sublayer| {
            let mut slices = place(sublayer);
            if let [whole] = &mut slices[..] {
                whole.rows = 0..sublayer.matrix(shape).map_or(0, |(rows, _)| rows);
            }
            slices
        })
    }

    /// The largest slice of a sublayer: an engine that cannot divide it puts all of it there.
    pub fn main(slices: &Slices) -> &Slice {
        let rows = |slice: &&Slice| slice.rows.end - slice.rows.start;
        // Of equal slices the first, which also computes the operators without a matrix.
        slices.iter().rev().max_by_key(rows).expect("a sublayer has a part")
    }

    /// Undivided, in one memory, on one device.
    pub fn on(&self, sublayer: Sublayer, home: MemoryId, device: DeviceId) -> Slices {
        vec![whole_slice(self.model, sublayer, home, device, device)]
    }

    /// The plan's home of a sublayer of layer `index`.
    pub fn home(&self, index: usize, sublayer: Sublayer) -> MemoryId {
        Self::main(self.placement.layers[index].slices(sublayer)).home
    }

    /// Whether the plan keeps most of the KV caches out of the GPU's memory.
    pub fn kv_away(&self, gpu: Gpu) -> bool {
        let homes: Vec<_> = self.placement.layers.iter().filter_map(LayerPlacement::kv_home).collect();
        let away = homes.iter().filter(|&&home| home != gpu.memory).count();
        2 * away > homes.len()
    }

    /// Bytes of a sublayer's matrix.
    pub fn bytes(&self, sublayer: Sublayer) -> Bytes {
        let rows = sublayer.matrix(self.model).map_or(0, |(rows, _)| rows);
        sublayer.matrix_bytes(self.model, self.plan.formats.weights, &(0..rows))
    }

    /// The bytes that `placement` takes of each memory, if it fits.
    pub fn fit(&self, placement: &Placement) -> Result<Vec<MemoryUsage>, PlannerError> {
        let (machine, model) = (self.machine, self.model);
        let programs = PhasePrograms::lower(machine, model, placement)?;
        let used = usage(machine, model, &self.plan.formats, placement, &programs, &self.plan.extent());
        match overfilled(machine, &used) {
            None => Ok(used),
            Some((memory, needed)) => Err(PlannerError::TooLarge {
                memory: memory.name.clone(),
                needed,
                capacity: memory.capacity.value,
            }),
        }
    }

    /// The first of `candidates` that fits, with its placement and the bytes it takes of each
    /// memory.
    pub fn first_fit<T>(
        &self,
        candidates: impl IntoIterator<Item = T>,
        placement: impl Fn(&T) -> Placement,
    ) -> Result<(T, Placement, Vec<MemoryUsage>), ExportError> {
        let mut last = None;
        for candidate in candidates {
            let placement = placement(&candidate);
            match self.fit(&placement) {
                Ok(used) => return Ok((candidate, placement, used)),
                Err(error) => last = Some(error),
            }
        }
        let none = PlannerError::NoPlacement { change: "there is no candidate".to_owned() };
        Err(self.unfit(last.unwrap_or(none)))
    }

    /// The checkpoint that servers load ([`Model::checkpoint`]): by the format of all weights, or
    /// that of the experts where the plan's formats are those of the maker's checkpoint.
    pub fn checkpoint(&self) -> String {
        let from = self.plan.from.as_ref().map(|from| from.model.as_str());
        let preset = from.filter(|name| Model::checkpoint_repository(name).is_some());
        let weights = self.plan.formats.weights;
        let published = self.model.published.as_deref().map(|published| WeightFormats::from(*published));
        let experts = weights.for_class(WeightClass::Experts).one();
        let format = weights.one().or(experts.filter(|_| published == Some(weights)));
        let checkpoint = preset.zip(format).map(|(preset, format)| Model::checkpoint(preset, format));
        quoted(checkpoint.as_ref().unwrap_or(&self.plan.model.name))
    }

    /// The value of `--dtype` of servers that read checkpoints: for quantised weights the
    /// checkpoint decides.
    pub fn checkpoint_dtype(&self) -> &'static str {
        match self.plan.formats.weights.one() {
            Some(DType::F32) => "float32",
            Some(DType::F16) => "float16",
            Some(DType::Bf16) => "bfloat16",
            Some(_) | None => "auto",
        }
    }

    /// A sentence about a KV cache of fewer than 16 bits, unless `known` holds its format.
    pub fn kv_note(&self, known: &[DType], instead: &str) -> Option<String> {
        let kv = self.plan.formats.kv;
        let wide = matches!(kv, DType::F32 | DType::F16 | DType::Bf16);
        (!wide && !known.contains(&kv)).then(|| format!("KV in {kv}: {instead}"))
    }

    /// Sentences about formats that the engine takes from the checkpoint: formats that `known` does
    /// not hold, and formats of classes of matrices.
    pub fn format_notes(&self, known: &[DType], how: &str) -> Vec<String> {
        let weights = self.plan.formats.weights;
        match weights.one() {
            Some(dtype) if known.contains(&dtype) => Vec::new(),
            _ => vec![format!("weights in {weights}: {how}")],
        }
    }
}
