//! What the options of llama.cpp, and of the engines around it, mean: any matrix or whole layers in
//! either memory, computed where they lie; KV caches by layer.
//!
//! - `-ngl N` puts the output projection and then N − 1 layers, counted from the last one, with
//!   their KV caches into the GPUs' memories. The token table always stays with the host.
//! - `-ts A,B` says how many of them each GPU gets, in their order.
//! - `-ot PATTERN=BUFFER` overrides the memory of tensors by name.
//! - `--n-cpu-moe N` keeps the experts of the first N layers with the host.
//! - `-nkvo` keeps every KV cache, and with it attention, with the host.
//! - The first GPU computes a product of at least 32 rows, or of as many as
//!   `GGML_OP_OFFLOAD_MIN_BATCH` says, with a matrix of the host, to which the matrix is copied;
//!   `--no-op-offload` turns this off.
//!
//! What the engine makes of them is what the planner makes of `placement` in a scenario
//! ([`Offload`]).

use super::super::difference::differences;
use super::super::export_error::ExportError;
use super::super::site::{Gpu, Site};
use super::gguf::{kv_type, tensors};
use crate::placement::{LayerPlacement, Pipelining, Placement, Slice, Slices};
use crate::rules::{Offload, layer_pattern};
use hwprofiles::{DeviceId, DeviceKind};
use scenarios::{Architecture, CpuMoe, OffloadOptions, Sublayer, TensorOverride};
use std::collections::BTreeMap;

/// What the options say, before they are written as words. GPUs have numbers from 0 on; `None` is
/// the host.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    /// By layer, for each of its sublayers: the GPU that has its matrix.
    pub weights: Vec<Vec<Option<usize>>>,
    /// By layer, for each of its sublayers: whether it is of the experts or the FFN.
    large: Vec<Vec<bool>>,
    /// By layer, the GPU that has its KV cache, in ascending order.
    pub kv: Vec<Option<usize>>,
    /// The GPU that has the output projection.
    pub head: Option<usize>,
    /// The rows from which on the GPU computes products with the host's matrices; none does where
    /// it is `None`.
    pub offloaded_rows: Option<u64>,
}

/// Which options an engine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Any matrix in either memory, and op-offload; from any number of rows on, or from 32 on.
    Matrices { any_rows: bool },
    /// Whole layers; with experts of the first layers, and the KV cache, with the host, or without.
    Layers { experts_and_kv: bool },
}

/// The options closest to a plan that fit.
pub(super) struct Closest {
    pub options: Options,
    /// The placement that the engine makes of them.
    pub nearest: Placement,
    /// What the engine cannot express.
    pub cannot: Vec<String>,
}

impl Closest {
    /// The options of an engine with `reach` that are closest to the plan. `site` gets the plan
    /// with its layers in the engine's order.
    ///
    /// # Errors
    /// The engine does not know the model, or nothing fits.
    pub fn to_plan(site: &mut Site<'_>, reach: Reach) -> Result<Self, ExportError> {
        let unknown = match site.model.architecture {
            Architecture::GptJ => Some("it does not know GPT-J"),
            Architecture::Opt => Some("it does not know OPT"),
            _ => None,
        };
        if let Some(unknown) = unknown {
            return Err(site.unsupported(format!("'{}'", site.model.name), unknown));
        }
        let exchanged = put_kv_at_the_back(site);
        let site = &*site;
        let own = Options::closest(site);
        let mut rows = Options::thresholds(site, reach);
        rows.sort_by_key(|&rows| u128::MAX - agreed_bytes(site, rows));
        // Where prefill runs matters more than one more layer with the GPU: op-offload stays as
        // long as anything fits with it.
        let candidates = rows.into_iter().flat_map(|offloaded_rows| {
            let own = Options { offloaded_rows, ..own.clone() };
            match reach {
                Reach::Matrices { .. } => own.fewer_matrices(),
                Reach::Layers { experts_and_kv } => own.fewer_layers(site, experts_and_kv),
            }
        });
        let (options, nearest, _) = site.first_fit(candidates, |options| options.placement(site))?;
        let nearest = as_planned(site, nearest);
        let mut cannot = differences(site, &nearest);
        if exchanged {
            cannot.push(
                "the order of layers: GPUs hold the KV caches of the last layers, so layers are exchanged"
                    .to_owned(),
            );
        }
        if site.machine.devices.iter().any(|device| device.kind == DeviceKind::Loopback) {
            cannot.push("the loopback device, which is Fulcrum's own".to_owned());
        }
        if copies(site, &nearest) && site.placement.pipelining.slots > 1 {
            cannot.push(
                "copies beside computation: it copies a matrix of the host, then multiplies".to_owned(),
            );
        }
        cannot.extend(kv_type(site.plan.formats.kv).1);
        Ok(Self { options, nearest, cannot })
    }
}

/// `nearest` with the plan's slots and micro-batches where nothing else differs.
fn as_planned(site: &Site<'_>, nearest: Placement) -> Placement {
    let alike = Placement { pipelining: site.placement.pipelining, ..nearest.clone() };
    if alike == site.placement && !copies(site, &alike) { alike } else { nearest }
}

/// Reorders the plan's layers, and says whether that changed it: within a kind, layers whose KV
/// cache is with a GPU come last, those of the first GPU before those of the second, since `-ngl`
/// counts from the last layer.
fn put_kv_at_the_back(site: &mut Site<'_>) -> bool {
    let gpus = site.gpus();
    let before = site.placement.layers.clone();
    let mut kinds: BTreeMap<&[Sublayer], Vec<usize>> = BTreeMap::new();
    for index in 0..before.len() {
        kinds.entry(site.sublayers(index)).or_default().push(index);
    }
    for places in kinds.into_values() {
        let mut order = places.clone();
        order.sort_by_key(|&index| attending(&before[index], &gpus));
        for (place, from) in places.into_iter().zip(order) {
            site.placement.layers[place] = before[from].clone();
        }
    }
    site.placement.layers != before
}

/// Whether the GPU copies a matrix of the host before it multiplies, into one buffer.
fn copies(site: &Site<'_>, placement: &Placement) -> bool {
    let far = |slice: &Slice| {
        [slice.prefill, slice.decode].iter().any(|&device| !site.machine.reads_in_place(device, slice.home))
    };
    placement.sublayers().any(|(.., slices)| slices.iter().any(far))
}

/// The GPU that computes the layer's attention in decode: the engine keeps the KV cache where it is
/// read, and does not stream it.
fn attending(layer: &LayerPlacement, gpus: &[Gpu]) -> Option<usize> {
    layer.kv_home()?;
    let device = layer.slices(Sublayer::Attention)[0].decode;
    gpus.iter().position(|gpu| gpu.device == device)
}

/// The device that multiplies `rows` rows with a matrix in the host's memory.
fn device_of_host_matrices(site: &Site<'_>, offloaded_rows: Option<u64>, rows: u64) -> DeviceId {
    match site.gpu {
        Some(gpu) if offloaded_rows.is_some_and(|least| rows >= least) => gpu.device,
        _ => site.host,
    }
}

/// Bytes of what the plan keeps out of the GPU's memory that the engine would compute where the
/// plan does, over both phases.
fn agreed_bytes(site: &Site<'_>, offloaded_rows: Option<u64>) -> u128 {
    let batch = site.plan.workload.batch;
    let of_slice = |layer: Option<u32>, sublayer: Sublayer, slice: &Slice| {
        let prefill_rows = if layer.is_none() { batch } else { batch * site.plan.prefill_chunk };
        let phases = [(slice.prefill, prefill_rows), (slice.decode, batch)].into_iter();
        let agreed =
            phases.filter(|&(device, rows)| device == device_of_host_matrices(site, offloaded_rows, rows));
        let shape = site.model.layer_or_ends(layer);
        let bytes = sublayer.matrix_bytes(shape, site.plan.formats.weights, &slice.rows);
        u128::from(bytes.get()) * agreed.count() as u128
    };
    let mut bytes = 0;
    for (layer, sublayer, slices) in site.placement.sublayers() {
        // Rows of the token table are read, not multiplied.
        let is_multiplied = sublayer != Sublayer::Embed;
        let with_host = |slice: &&Slice| site.gpu.is_none_or(|gpu| slice.home != gpu.memory);
        let slices = slices.iter().filter(|_| is_multiplied).filter(with_host);
        bytes += slices.map(|slice| of_slice(layer, sublayer, slice)).sum::<u128>();
    }
    bytes
}

impl Options {
    /// Every matrix and KV cache where the plan has it.
    fn closest(site: &Site<'_>) -> Self {
        let gpus = site.gpus();
        let layers = &site.placement.layers;
        let home = |slices: &Slices| {
            let memory = Site::main(slices).home;
            gpus.iter().position(|gpu| gpu.memory == memory)
        };
        let weights = layers.iter().enumerate().map(|(index, layer)| {
            site.sublayers(index).iter().map(|&sublayer| home(layer.slices(sublayer))).collect()
        });
        let of_network = |&sublayer: &Sublayer| {
            matches!(sublayer, Sublayer::FfnUp | Sublayer::FfnDown | Sublayer::Experts)
        };
        let large = (0..layers.len()).map(|index| site.sublayers(index).iter().map(of_network).collect());
        let mut kv: Vec<_> = layers.iter().map(|layer| attending(layer, &gpus)).collect();
        // Layers of different kinds may not have been exchanged.
        kv.sort_unstable();
        Self {
            weights: weights.collect(),
            large: large.collect(),
            kv,
            head: home(&site.placement.head),
            offloaded_rows: Some(OffloadOptions::ROWS),
        }
    }

    /// The numbers of rows for op-offload that tell the plan's phases apart.
    fn thresholds(site: &Site<'_>, reach: Reach) -> Vec<Option<u64>> {
        let (usual, decode) = (OffloadOptions::ROWS, site.plan.workload.batch);
        match (site.gpu, reach) {
            (None, _) => vec![None],
            (Some(_), Reach::Layers { .. }) => vec![Some(usual)],
            (Some(_), Reach::Matrices { any_rows: false }) => vec![Some(usual), None],
            (Some(_), Reach::Matrices { any_rows: true }) => {
                let other = if decode < usual { decode } else { decode + 1 };
                vec![Some(usual), None, Some(other)]
            }
        }
    }

    /// These options, and then with less and less in the GPU's memory.
    fn fewer_matrices(self) -> Vec<Self> {
        (0..=2 * self.weights.len() + 1).map(|moved| self.without(moved)).collect()
    }

    /// Whole layers like these options, and then with less and less in the GPUs' memories.
    fn fewer_layers(self, site: &Site<'_>, experts_and_kv: bool) -> Vec<Self> {
        let layers = self.weights.len();
        let count = |layer: &dyn Fn(usize) -> bool| (0..layers).filter(|&index| layer(index)).count();
        let with_gpu = |index: usize, large: bool| {
            let mut pairs = self.weights[index].iter().zip(&self.large[index]);
            pairs.any(|(gpu, &is_large)| gpu.is_some() && is_large == large)
        };
        let mixture = experts_and_kv && site.model.experts.is_some();
        let sizes: Vec<(usize, usize)> = if mixture {
            let held = count(&|index| with_gpu(index, false));
            let with_host = count(&|index| !with_gpu(index, true));
            let whole = (0..held).rev().map(|held| (held, layers));
            (with_host..=layers).map(|with_host| (held, with_host)).chain(whole).collect()
        } else {
            (0..=self.held_whole(site)).rev().map(|held| (held, 0)).collect()
        };
        let kv_away = experts_and_kv && site.gpu.is_some_and(|gpu| site.kv_away(gpu));
        let last = [self.whole_layers(site, (0, layers), kv_away, false)];
        let with_head = site.gpu.is_some();
        let sizes = sizes.into_iter().map(|size| self.whole_layers(site, size, kv_away, with_head));
        sizes.chain(last).collect()
    }

    /// As many last layers as the bytes of the plan's matrices with GPUs make.
    fn held_whole(&self, site: &Site<'_>) -> usize {
        let layers = self.weights.len();
        let bytes = |index: usize, all: bool| -> u64 {
            let pairs = site.sublayers(index).iter().zip(&self.weights[index]);
            pairs.filter(|(_, gpu)| all || gpu.is_some()).map(|(&s, _)| site.bytes(s).get()).sum()
        };
        let mut left: u64 = (0..layers).map(|index| bytes(index, false)).sum();
        let held = (0..layers).rev().take_while(|&index| {
            let takes = bytes(index, true);
            let room = takes <= left;
            left = left.saturating_sub(takes);
            room
        });
        held.count()
    }

    /// The last `held` layers with the GPUs, but for the experts of the model's first `with_host`,
    /// dealt out as the engine does by itself.
    fn whole_layers(
        &self,
        site: &Site<'_>,
        (held, with_host): (usize, usize),
        kv_away: bool,
        with_head: bool,
    ) -> Self {
        let layers = self.weights.len();
        let gpu_layers = if with_head && held == layers { held + 1 } else { held };
        let options = OffloadOptions { gpu_layers: Some(gpu_layers as u64), ..OffloadOptions::DEFAULT };
        let dealt = Offload::new(site.machine, site.model, &options).ok();
        let gpu_of = |index: usize| match &dealt {
            Some(dealt) if held > 0 => dealt.gpu_of(index as u64),
            _ => None,
        };
        let last = site.gpus().len().checked_sub(1);
        let weights = self.large.iter().enumerate().map(|(index, large)| {
            let with = |&large: &bool| gpu_of(index).filter(|_| !(large && index < with_host));
            large.iter().map(with).collect()
        });
        let kv = (0..layers).map(|index| gpu_of(index).filter(|_| !kv_away));
        let head = last.filter(|_| with_head).map(|last| gpu_of(layers - 1).unwrap_or(last));
        Self { weights: weights.collect(), kv: kv.collect(), head, ..self.clone() }
    }

    /// The same with the experts, or the FFN, of the first `moved` layers kept by the host; beyond
    /// the number of layers also the rest of the first ones, and at last the output projection.
    fn without(&self, moved: usize) -> Self {
        let layers = self.weights.len();
        let whole = moved.saturating_sub(layers);
        let mut fewer = self.clone();
        for (weights, large) in fewer.weights.iter_mut().zip(&self.large).take(moved) {
            weights.iter_mut().zip(large).filter(|(_, large)| **large).for_each(|(gpu, _)| *gpu = None);
        }
        fewer.weights.iter_mut().take(whole).for_each(|layer| layer.fill(None));
        fewer.kv.iter_mut().take(whole).for_each(|gpu| *gpu = None);
        fewer.head = fewer.head.filter(|_| whole <= layers);
        fewer
    }

    /// The placement that llama.cpp makes of these options.
    pub fn placement(&self, site: &Site<'_>) -> Placement {
        let options = self.placing(site);
        let offload = Offload::new(site.machine, site.model, &options).expect("options of this model");
        let mut placement = offload.placement(&site.plan.workload);
        if !copies(site, &placement) {
            placement.pipelining = Pipelining::default();
        }
        placement
    }

    /// The same as a scenario's `placement`, whose `gpu_layers` counts the output projection last.
    fn placing(&self, site: &Site<'_>) -> OffloadOptions {
        let (counted, kv_on_host) = self.default_layers();
        let layers = self.weights.len();
        let is_whole = counted > layers;
        let mut override_tensor = self.overrides(site);
        if let Some(gpu) = self.default_head().filter(|_| !is_whole && self.head == self.default_head()) {
            override_tensor.push(head_override(Some(gpu)));
        }
        let cpu_moe = match self.host_experts(site) {
            0 => CpuMoe::None,
            first => CpuMoe::First(first as u64),
        };
        OffloadOptions {
            gpu_layers: Some(if is_whole { counted } else { counted.saturating_sub(1) } as u64),
            cpu_moe,
            override_tensor,
            op_offload: Some(self.offloaded_rows.unwrap_or(u64::MAX)),
            tensor_split: self.split(site),
            kv_on_host,
            micro_batch: site.plan.workload.batch * site.plan.prefill_chunk,
            ..OffloadOptions::DEFAULT
        }
    }

    /// By GPU, its part of what `-ngl` counts; empty where there are not several.
    pub fn split(&self, site: &Site<'_>) -> Vec<u64> {
        let gpus = site.gpus().len();
        let (counted, _) = self.default_layers();
        if gpus < 2 || counted == 0 {
            return vec![];
        }
        let mut split = vec![0; gpus];
        let owners = self.owners();
        owners.iter().flatten().for_each(|&gpu| split[gpu] += 1);
        split[self.default_head().unwrap_or(0)] += 1;
        split
    }

    /// By layer, the GPU that has what no other option moves: that of the KV cache or, where the
    /// host has all of these, of its first matrix with a GPU, in ascending order.
    pub fn owners(&self) -> Vec<Option<usize>> {
        let (counted, kv_on_host) = self.default_layers();
        if !kv_on_host {
            return self.kv.clone();
        }
        let first = (self.weights.len() + 1).saturating_sub(counted);
        let mut before = 0;
        let owner = |(index, layer): (usize, &Vec<Option<usize>>)| {
            before = layer.iter().flatten().next().copied().unwrap_or(before).max(before);
            (index >= first).then_some(before)
        };
        self.weights.iter().enumerate().map(owner).collect()
    }

    /// The GPU of the output projection unless another option moves it: that of the last layer.
    pub fn default_head(&self) -> Option<usize> {
        let (counted, _) = self.default_layers();
        let last = self.owners().last().copied().flatten();
        (counted > 0).then(|| last.or(self.head).unwrap_or(0))
    }

    /// The value of `-ngl`, and whether `-nkvo` is needed.
    pub fn default_layers(&self) -> (usize, bool) {
        let layers = self.weights.len();
        let any = self.weights.iter().flatten().any(Option::is_some);
        match self.kv.iter().filter(|gpu| gpu.is_some()).count() {
            0 if any => (layers + 1, true),
            0 => (usize::from(self.head.is_some()), false),
            held => (held + 1, false),
        }
    }

    /// The value of `--n-cpu-moe`: the number of first layers that keep all experts with the host,
    /// where no later layer does; 0 where the option cannot say it or `-ngl` already does.
    pub fn host_experts(&self, site: &Site<'_>) -> usize {
        let (counted, _) = self.default_layers();
        let layers = self.weights.len();
        let experts: Vec<_> = (0..layers)
            .filter_map(|index| {
                let at = site.sublayers(index).iter().position(|&s| s == Sublayer::Experts)?;
                Some((index, self.weights[index][at]))
            })
            .collect();
        let with_host = experts.iter().take_while(|(_, gpu)| gpu.is_none()).count();
        let in_front = experts[with_host..].iter().all(|(_, gpu)| gpu.is_some());
        let last = experts[..with_host].last().map_or(0, |(index, _)| index + 1);
        if in_front && last + counted > layers { last } else { 0 }
    }

    /// The `-ot` patterns for tensors that `-ngl`, `-ts` and `--n-cpu-moe` put elsewhere.
    pub fn overrides(&self, site: &Site<'_>) -> Vec<TensorOverride> {
        let host_experts = self.host_experts(site);
        let layers = self.weights.len();
        let mut by_tensor: BTreeMap<(&str, Option<usize>), Vec<usize>> = BTreeMap::new();
        for (index, (weights, owner)) in self.weights.iter().zip(self.owners()).enumerate() {
            let shape = site.model.layer(index as u64);
            for (&sublayer, &gpu) in site.sublayers(index).iter().zip(weights) {
                let default = owner.filter(|_| !(sublayer == Sublayer::Experts && index < host_experts));
                if let Some(tensors) = tensors(shape, sublayer).filter(|_| gpu != default) {
                    by_tensor.entry((tensors, gpu)).or_default().push(index);
                }
            }
        }
        let mut by_layers: BTreeMap<(Vec<usize>, Option<usize>), Vec<&str>> = BTreeMap::new();
        for ((tensors, gpu), layers) in by_tensor {
            by_layers.entry((layers, gpu)).or_default().push(tensors);
        }
        let pattern = |((numbers, gpu), tensors): ((Vec<usize>, Option<usize>), Vec<&str>)| {
            let numbers = match numbers.len() == layers {
                true => "[0-9]+".to_owned(),
                false => layer_pattern(&numbers),
            };
            let pattern = format!(r"blk\.{numbers}\.{}\.", alternatives(&tensors));
            TensorOverride { pattern, buffer: buffer(gpu) }
        };
        let mut patterns: Vec<_> = by_layers.into_iter().map(pattern).collect();
        if self.head != self.default_head() {
            patterns.push(head_override(self.head));
        }
        patterns
    }
}

/// The pattern of the output projection; a tied one is the token table.
fn head_override(gpu: Option<usize>) -> TensorOverride {
    TensorOverride { pattern: r"^(output|token_embd)\.weight$".to_owned(), buffer: buffer(gpu) }
}

fn buffer(gpu: Option<usize>) -> String {
    gpu.map_or_else(|| "CPU".to_owned(), |gpu| format!("CUDA{gpu}"))
}

fn alternatives(words: &[&str]) -> String {
    match words {
        [one] => (*one).to_owned(),
        many => format!("({})", many.join("|")),
    }
}
