//! Placements of llama.cpp's options.
//!
//! - The GPUs hold the last layers with their KV caches, dealt out by their capacities; the token
//!   table stays with the host, in whose memory a GPU without its own reads it.
//! - A tensor lies in the buffer of the first pattern that its name matches, and is computed there.
//! - The first GPU computes a product of many rows with a matrix of the host: it fetches the matrix
//!   and then multiplies.

use super::host_and_accelerator::HostAndAccelerator;
use super::no_rule::NoRule;
use crate::placement::{LayerPlacement, Pipelining, Placement, PlanError, Slice, Slices, split_row};
use hwprofiles::{DeviceId, DeviceKind, Machine};
use regex::Regex;
use scenarios::{CpuMoe, Model, OffloadOptions, Sublayer, Workload};

/// Names of GPUs' buffers in front of the number.
const GPU_BUFFERS: [&str; 6] = ["CUDA", "ROCm", "Vulkan", "SYCL", "MUSA", "Metal"];
/// Names of the host's buffers; the second is pinned.
const HOST_BUFFERS: [&str; 2] = ["CPU", "CUDA_Host"];

/// The options for one machine and model, checked.
pub(crate) struct Offload<'a> {
    machine: &'a Machine,
    model: &'a Model,
    options: &'a OffloadOptions,
    host: DeviceId,
    gpus: Vec<DeviceId>,
    /// Patterns with the device whose memory is the buffer.
    overrides: Vec<(Regex, DeviceId)>,
}

/// The GPUs of a machine in the order of their numbers; without any, the loopback device.
pub(crate) fn gpus_in_order(machine: &Machine) -> Vec<DeviceId> {
    let of = |kind| machine.device_ids().filter(move |&id| machine.device(id).kind == kind);
    let gpus: Vec<_> = of(DeviceKind::Gpu).collect();
    if gpus.is_empty() { of(DeviceKind::Loopback).collect() } else { gpus }
}

impl<'a> Offload<'a> {
    /// Checks the options.
    ///
    /// # Errors
    /// More layers than there are, a GPU that is missing, a pattern that is wrong or matches no
    /// tensor, a buffer that the machine does not have.
    pub fn new(
        machine: &'a Machine,
        model: &'a Model,
        options: &'a OffloadOptions,
    ) -> Result<Self, PlanError> {
        let refuse = |key, value: String, wanted: String| PlanError::new(&["placement", key], value, wanted);
        let (host, _) = HostAndAccelerator::host(machine)
            .map_err(|error: NoRule| refuse("gpu_layers", "impossible".into(), error.to_string()))?;
        let gpus = gpus_in_order(machine);
        if let (Some(layers @ 1..), true) = (options.gpu_layers, gpus.is_empty()) {
            let wanted = format!("'{}' has no GPU: 0, or leave it out", machine.name);
            return Err(refuse("gpu_layers", layers.to_string(), wanted));
        }
        match options.cpu_moe {
            CpuMoe::First(_) | CpuMoe::All if model.experts.is_none() => {
                let wanted = format!("{} has no experts: leave it out", model.name);
                return Err(refuse("cpu_moe_layers", "wrong".to_owned(), wanted));
            }
            _ => {}
        }
        let parts = options.tensor_split.len();
        if parts > 0 && parts != gpus.len() {
            let value = format!("{:?}", options.tensor_split);
            let wanted = format!("'{}' has {} GPUs: a number for each", machine.name, gpus.len());
            return Err(refuse("tensor_split", value, wanted));
        }
        let mut offload = Self { machine, model, options, host, gpus, overrides: vec![] };
        offload.overrides = offload
            .read_overrides()
            .map_err(|(value, wanted)| refuse("override_tensor", format!("'{value}'"), wanted))?;
        Ok(offload)
    }

    /// The GPUs, in the order of their numbers.
    pub fn gpus(&self) -> &[DeviceId] {
        &self.gpus
    }

    /// The number of the GPU that holds layer `layer`, the output projection being the layer behind
    /// the last; `None` where the host does.
    pub fn gpu_of(&self, layer: u64) -> Option<usize> {
        let device = self.layer_device(layer);
        self.gpus.iter().position(|gpu| *gpu == device)
    }

    /// The patterns with their devices; an error is the wrong text and what is wanted.
    fn read_overrides(&self) -> Result<Vec<(Regex, DeviceId)>, (String, String)> {
        let names: Vec<String> = self.tensor_names().collect();
        let read = |one: &scenarios::TensorOverride| {
            let device = self.buffer(&one.buffer).map_err(|wanted| (one.buffer.clone(), wanted))?;
            let pattern = Regex::new(&one.pattern).map_err(|error| {
                let why = error.to_string();
                let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                (one.pattern.clone(), format!("a regular expression is wanted; {why}"))
            })?;
            match names.iter().any(|name| pattern.is_match(name)) {
                true => Ok((pattern, device)),
                false => Err((one.pattern.clone(), self.like_names())),
            }
        };
        self.options.override_tensor.iter().map(read).collect()
    }

    /// The names of the last layer's matrices, for a pattern that matches nothing.
    fn like_names(&self) -> String {
        let last = self.model.layers - 1;
        let tensors = self.model.kind(last).sublayers().iter();
        let tensors = tensors.flat_map(|&sublayer| self.model.tensor_names(last, sublayer));
        let names: Vec<_> = tensors.filter(|tensor| tensor.numbers > 0).map(|tensor| tensor.name).collect();
        let names = names.join(", ");
        format!("it matches no tensor of {}; those of its last layer are {names}", self.model.name)
    }

    /// The device whose memory is the buffer `name`.
    fn buffer(&self, name: &str) -> Result<DeviceId, String> {
        if HOST_BUFFERS.contains(&name) {
            return Ok(self.host);
        }
        let number = GPU_BUFFERS.iter().find_map(|prefix| name.strip_prefix(prefix)?.parse::<usize>().ok());
        match number {
            Some(number) if number < self.gpus.len() => Ok(self.gpus[number]),
            _ => {
                let known: Vec<_> = (0..self.gpus.len()).map(|gpu| format!(", CUDA{gpu}")).collect();
                Err(format!("the buffers of '{}' are CPU{}", self.machine.name, known.concat()))
            }
        }
    }

    /// The names of all tensors.
    fn tensor_names(&self) -> impl Iterator<Item = String> + '_ {
        let of_layer = |layer: u64| self.model.kind(layer).sublayers().iter().map(move |&s| (layer, s));
        let ends = [(0, Sublayer::Embed), (0, Sublayer::Head)].into_iter();
        let all = ends.chain((0..self.model.layers).flat_map(of_layer));
        all.flat_map(|(layer, sublayer)| self.model.tensor_names(layer, sublayer)).map(|tensor| tensor.name)
    }

    /// Tokens of each sequence in a step of prefill.
    pub fn chunk(&self, workload: &Workload) -> u64 {
        (self.options.micro_batch / workload.batch).clamp(1, workload.prompt_tokens)
    }

    /// The placement for `workload`.
    pub fn placement(&self, workload: &Workload) -> Placement {
        let rows = [workload.batch * self.chunk(workload), workload.batch];
        let layer = |layer: u64| {
            let kind = self.model.kind(layer);
            LayerPlacement::from_slices(kind, |sublayer| {
                self.slices(layer, sublayer, self.layer_device(layer), rows)
            })
        };
        let head = self.layer_device(self.model.layers);
        // A GPU that shares the host's memory reads the token table where it lies.
        let shares_memory = self.machine.device(head).memory == self.machine.device(self.host).memory;
        let embed = if shares_memory { head } else { self.host };
        Placement {
            embed: self.slices(0, Sublayer::Embed, embed, [0; 2]),
            layers: (0..self.model.layers).map(layer).collect(),
            // The head works on the last token of each sequence alone.
            head: self.slices(0, Sublayer::Head, head, [workload.batch; 2]),
            pipelining: Pipelining { slots: 1, ..Pipelining::default() },
        }
    }

    /// The device of layer `layer` by the number of layers that GPUs hold; the output projection
    /// counts as the layer behind the last.
    fn layer_device(&self, layer: u64) -> DeviceId {
        let all = self.model.layers + 1;
        let counted = self.options.gpu_layers.unwrap_or(all);
        let first = self.model.layers.saturating_sub(counted);
        let held = counted.min(all);
        if self.gpus.is_empty() || layer < first || layer - first >= held {
            return self.host;
        }
        let capacity =
            |&gpu: &DeviceId| self.machine.memory(self.machine.device(gpu).memory).capacity.value.as_f64();
        let parts: Vec<f64> = match &self.options.tensor_split[..] {
            [] => self.gpus.iter().map(capacity).collect(),
            split => split.iter().map(|&part| part as f64).collect(),
        };
        let total: f64 = parts.iter().sum();
        let share = (layer - first) as f64 / held as f64;
        let mut until = 0.0;
        let found = self.gpus.iter().zip(parts).find(|(_, part)| {
            until += part;
            share < until / total
        });
        found.map_or(self.gpus[self.gpus.len() - 1], |(gpu, _)| *gpu)
    }

    /// The slices of a sublayer whose layer's device is `default`, where a step has `rows` rows in
    /// prefill and in decode.
    fn slices(&self, layer: u64, sublayer: Sublayer, default: DeviceId, rows: [u64; 2]) -> Slices {
        let shape = match sublayer {
            Sublayer::Embed | Sublayer::Head => self.model,
            _ => self.model.layer(layer),
        };
        let kv_on_host = sublayer == Sublayer::Attention && self.options.kv_on_host;
        let default = if kv_on_host { self.host } else { default };
        let mut parts: Vec<(DeviceId, u64)> = Vec::new();
        for tensor in self.model.tensor_names(layer, sublayer).iter().filter(|tensor| tensor.numbers > 0) {
            let device = self.tensor_device(sublayer, layer, &tensor.name).unwrap_or(default);
            match parts.iter_mut().find(|(other, _)| *other == device) {
                Some((_, numbers)) => *numbers += tensor.numbers,
                None => parts.push((device, tensor.numbers)),
            }
        }
        if parts.is_empty() {
            parts.push((default, 1));
        }
        if !sublayer.is_divisible(shape) {
            // The first of equal parts.
            let most = parts.iter().rev().max_by_key(|(_, numbers)| *numbers).copied();
            parts = most.into_iter().collect();
        }
        let of = sublayer.matrix(shape).map_or(0, |(rows, _)| rows);
        let total: u64 = parts.iter().map(|(_, numbers)| numbers).sum();
        let (mut start, mut counted) = (0, 0);
        let mut slices = Slices::new();
        for (device, numbers) in parts {
            counted += numbers;
            let end = match counted == total {
                true => of,
                false => split_row(of, counted as f64 / total as f64, sublayer.panel()),
            };
            if end > start || of == 0 {
                let [prefill, decode] = rows.map(|rows| self.computing(sublayer, device, rows));
                let home = self.machine.device(device).memory;
                slices.push(Slice { rows: start..end, home, prefill, decode });
            }
            start = end;
        }
        slices
    }

    /// The device whose memory a pattern, or the option for experts, gives the tensor.
    fn tensor_device(&self, sublayer: Sublayer, layer: u64, name: &str) -> Option<DeviceId> {
        if sublayer == Sublayer::Embed {
            return None;
        }
        if let Some((_, device)) = self.overrides.iter().find(|(pattern, _)| pattern.is_match(name)) {
            return Some(*device);
        }
        let with_host = sublayer == Sublayer::Experts
            && match self.options.cpu_moe {
                CpuMoe::None => false,
                CpuMoe::First(layers) => layer < layers,
                CpuMoe::All => true,
            };
        with_host.then_some(self.host)
    }

    /// The device that computes a product of `rows` rows with a matrix of `owner`'s memory.
    fn computing(&self, sublayer: Sublayer, owner: DeviceId, rows: u64) -> DeviceId {
        let kept = matches!(sublayer, Sublayer::Embed | Sublayer::Attention);
        let of_experts = self.options.experts_op_offload.filter(|_| sublayer == Sublayer::Experts);
        let least = of_experts.or(self.options.op_offload).unwrap_or(u64::MAX);
        match self.gpus.first() {
            Some(&gpu) if owner == self.host && !kept && rows >= least => gpu,
            _ => owner,
        }
    }
}
