//! What an engine adds to the times of a machine: its kernels, its hand-overs, its all-reduces.
//!
//! A part says what the hardware reaches with kernels that suit it. An engine's own kernels may
//! reach less. [`Machine::run_by`] puts the engine's values in the place of the part's, so nothing
//! that prices operators on a machine needs to know of engines.

mod architecture_kernels;

pub use architecture_kernels::{ArchitectureKernels, LibraryProducts};

use crate::machine::device::{CeilingRates, Device, DeviceKind, Ranks};
use crate::machine::graph::Machine;
use crate::machine::memory::{MemoryId, MemoryKind};
use crate::rates::{AllReduce, Bound};
use crate::units::{Bytes, BytesPerSec, DType, FlopPerSec, Ratio, Seconds, Sourced};
use architecture_kernels::{attend_within_power, change_products};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an engine adds to a step on any machine. What is absent stays as the machine's parts say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineExecution {
    /// The share of the peak rate of host memory that its CPU kernels reach in decoding. It changes
    /// memories whose peak is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_read: Option<Sourced<Ratio>>,
    /// The same for memory of more than two channels, in the place of `host_read`. Memory that a
    /// GPU shares stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_read: Option<Sourced<Ratio>>,
    /// The threads of its CPU kernels, at least 1; one for each core where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Sourced<u64>>,
    /// Those of prompts, where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_threads: Option<Sourced<u64>>,
    /// What each fork-join of its CPU kernels costs for each thread, beyond the part's own: all
    /// threads wait for the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_join: Option<Sourced<Seconds>>,
    /// Whether its CPU kernels use tile instructions (AMX).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_tiles: Option<bool>,
    /// The rate of CPU products with quantised weights, as multiply-adds for each value that the
    /// CPU could unpack in the same time: one kernel unpacks, scales and multiplies integers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_product: Option<Sourced<Ratio>>,
    /// What is left of that with weights of a format, where they differ: blocks of more scales, or
    /// whose values are looked up, take more instructions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub host_formats: BTreeMap<DType, Sourced<Ratio>>,
    /// The rows of a product with which half of `host_product` is reached: a block is unpacked
    /// once for all rows of a tile. Few rows are dot products, which unpack it for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_half_rate_rows: Option<Sourced<u64>>,
    /// The share of a CPU's attention rate that its kernels reach over a quantised cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_cache: Option<Sourced<Ratio>>,
    /// The same in prompts, where they differ: many queries share a block that was unpacked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_cache_prompts: Option<Sourced<Ratio>>,
    /// The share of its memory's bandwidth at which a CPU reads and writes a recurrence's state for
    /// each token of a prompt, where it computes them one after the other and not in chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_recurrence: Option<Sourced<Ratio>>,
    /// The same share for a GPU. More than 1 where caches or registers hold the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<Sourced<Ratio>>,
    /// The shortest time of a GPU kernel, its launch included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Sourced<Seconds>>,
    /// What each launch on a GPU costs beyond the part's own: the further kernels of operators that
    /// are not fused, the rounding of activations before a product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<Sourced<Seconds>>,
    /// What a kernel of its own moves on GPUs for each activation that it rounds before a product
    /// of many rows with quantised weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounding: Option<Sourced<Bytes>>,
    /// The share of a GPU's attention rate that its kernels reach where they compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<Sourced<Ratio>>,
    /// The share of a GPU's bandwidth that its attention reaches where it reads the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_read: Option<Sourced<Ratio>>,
    /// The share of a GPU's bandwidth at which decode attention reads a quantised cache once for
    /// each query head, where no kernel shares it among the heads of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_by_head: Option<Sourced<Ratio>>,
    /// Whether its decode attention on GPUs reads the cache once for all query heads of a group.
    /// Where it does not, it takes the time of a cache with as many KV heads as query heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grouped_attention: Option<bool>,
    /// The multiple to which its GPU kernels of sparse latent attention fill up a rank's heads.
    /// They score latent vectors, in prompts too: each token reads positions of its own, so no
    /// expanded keys can be shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sparse_heads: Option<Sourced<u64>>,
    /// What a GPU takes for each matrix of each expert of a prompt, where its experts are computed
    /// one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert: Option<Sourced<Seconds>>,
    /// The share of a GPU's fastest dense product that its products of several experts in one
    /// kernel reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grouped_product: Option<Sourced<Ratio>>,
    /// The same with weights that have a scale for each block of fp8 values, where it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grouped_block_product: Option<Sourced<Ratio>>,
    /// Whether each GPU with whole experts goes through the rows of all experts: its kernels are
    /// launched over every token's choices, whichever GPU has the expert.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_expert_rows: Option<bool>,
    /// What a GPU takes to choose a token, for each value of the logits: they become f32, are
    /// scaled, sorted or summed by kernels of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logit: Option<Sourced<Seconds>>,
    /// Whether the kernels of a step are replayed as a graph, so that none is issued by the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs: Option<bool>,
    /// The host's time to issue one kernel where they are no graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issue: Option<Sourced<Seconds>>,
    /// What each hand-over between CPU and GPU takes beyond the device's own wake-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<Sourced<Seconds>>,
    /// When the GPU computes with weights that lie in host memory. No time of a machine depends on
    /// it: it is for those who place operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op_offload: Option<OpOffload>,
    /// The share of a GPU's memory bandwidth at which its kernels read quantised weights,
    /// dequantisation included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_read: Option<Sourced<Ratio>>,
    /// The same of weights that are not quantised, where its kernels fall short of what is known of
    /// the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub float_read: Option<Sourced<Ratio>>,
    /// The share of a host link's bandwidth that is left where weights are not page-locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pageable_link: Option<Sourced<Ratio>>,
    /// Whether activations are rounded to fp8 by a kernel of its own before each fp8 product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantises_activations: Option<bool>,
    /// Of the time that a GPU waits for the others in a step of a prompt, the share in which it is
    /// at work on the steps before and after. Absent where each step waits for the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_overlap: Option<Sourced<Ratio>>,
    /// What differs where all layers are with GPUs: the kernels of a step are then one graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_gpus: Option<ExecutionOnGpus>,
    /// Whether the attention of prompts is one kernel on GPUs. Where it is not, scores are written
    /// to memory and read again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_attention: Option<bool>,
    /// What each of those scores moves through memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_traffic: Option<Sourced<Bytes>>,
    /// The interface that its GPU kernels are written for, where it has several: `vulkan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<Sourced<String>>,
    /// What differs on GPUs whose architecture begins with a name: `rdna`, `rdna3`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub architectures: BTreeMap<String, ArchitectureKernels>,
    /// Its all-reduces, by the beginning of the name of the link between GPUs: `nvlink`, `pcie4`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub all_reduce: BTreeMap<String, EngineAllReduce>,
}

/// The values of an engine that differ where all layers are with GPUs, in the words of
/// [`EngineExecution`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionOnGpus {
    /// What each launch costs beyond the part's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<Sourced<Seconds>>,
    /// The share of a GPU's attention rate where it computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<Sourced<Ratio>>,
    /// The share of its bandwidth where it reads the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_read: Option<Sourced<Ratio>>,
    /// How far several GPUs work on steps of a prompt that follow each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_overlap: Option<Sourced<Ratio>>,
}

/// When weights in host memory are copied to the GPU to be multiplied there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpOffload {
    /// From so many tokens of a step on.
    #[serde(deserialize_with = "crate::units::checked")]
    pub min_batch: Sourced<u64>,
    /// Tokens that are computed with one copy.
    #[serde(deserialize_with = "crate::units::checked")]
    pub micro_batch: Sourced<u64>,
    /// Whether experts are copied only from so many tokens on that `min_batch` of them go to each
    /// expert.
    #[serde(default)]
    pub by_expert: bool,
}

/// An engine's own all-reduce over one kind of link, in the terms of [`AllReduce`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineAllReduce {
    /// α of one step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Sourced<Seconds>>,
    /// β.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Sourced<BytesPerSec>>,
}

/// The peak above which a socket has more than two channels: that of two channels of DDR5-8000.
pub(crate) const MOST_OF_TWO_CHANNELS: BytesPerSec = BytesPerSec::new(128e9);

/// What is left of the rate at which a CPU with these ceilings computes attention over a cache in
/// `kv`, where no tile instructions are used but its narrowest vectors: wider ones share their
/// ports. `None` where it has none or nothing else.
fn without_tiles(ceilings: &BTreeMap<DType, BTreeMap<String, CeilingRates>>, kv: DType) -> Option<Ratio> {
    let formats = [kv, DType::Bf16, DType::F32];
    let rate = |set: &str| {
        let own = formats.iter().filter_map(|format| ceilings.get(format)?.get(set)?.streamed.as_ref());
        own.map(|rate| rate.value.get()).next()
    };
    let tiles = rate(TILES)?;
    let sets = ceilings.values().flat_map(BTreeMap::keys).filter(|set| *set != TILES);
    let vectors = sets.filter_map(|set| rate(set)).fold(f64::INFINITY, f64::min);
    Ratio::new(vectors / tiles).filter(|factor| *factor < Ratio::ONE)
}

/// The rate of `cores` with so many threads, as a share of that with one thread on each. Threads
/// have equal parts of a product, so the core with the most of them ends last. Where cores have no
/// thread the others clock higher, as the cube root of their number at the same power. Threads that
/// share a core share its caches.
fn busy_share(threads: u64, cores: u64) -> Option<Ratio> {
    if threads == 0 || cores == 0 {
        return None;
    }
    let of_cores = threads as f64 / cores as f64;
    Ratio::new(match threads > cores {
        true => SHARED_CORE * of_cores / threads.div_ceil(cores) as f64,
        false => of_cores * (1.0 / of_cores).cbrt().min(HIGHEST_CLOCK),
    })
}

/// The share of its rate that a core with several threads keeps. An assumption: llama.cpp's authors
/// advise one thread for each core, so that more must cost something.
const SHARED_CORE: f64 = 0.95;

/// The clock of a few cores ÷ that of all: 1.24 to 1.33 on the data sheets of EPYC 9355, Ryzen
/// 7950X and Threadripper PRO 7975WX.
const HIGHEST_CLOCK: f64 = 1.25;

/// The name of tile instructions among a CPU's ceilings.
const TILES: &str = "amx";

impl Machine {
    /// The machine as `engine` runs it: its devices, memories and links reach what the engine's
    /// kernels and copies reach. An empty description changes nothing.
    pub fn run_by(&self, engine: &EngineExecution) -> Self {
        let mut machine = self.clone();
        engine.slow_host_memory(&mut machine);
        engine.slow_links(&mut machine);
        let has_both = [DeviceKind::Cpu, DeviceKind::Gpu]
            .map(|kind| self.devices.iter().any(|device| device.kind == kind));
        let host: Vec<_> = machine.memories.iter().map(|memory| memory.bandwidth.value).collect();
        for device in &mut machine.devices {
            if let Some(hop) = engine.hop.as_ref().filter(|_| has_both == [true, true]) {
                let reason = format!("{} and {} of the engine's own", device.sync.value, hop.value);
                device.sync = Sourced::estimated(device.sync.value + hop.value, &reason);
            }
            match device.kind {
                DeviceKind::Gpu => {
                    let bandwidth = self.memories[device.memory.0].bandwidth.value / device.ranks() as f64;
                    engine.change_gpu(device, bandwidth);
                }
                _ => engine.change_host(device, host[device.memory.0]),
            }
        }
        machine
    }
}

impl EngineExecution {
    /// The values where all layers are with GPUs.
    #[must_use]
    pub fn with_all_on_gpus(&self) -> Self {
        let Some(ExecutionOnGpus { launch, attention, kv_read, step_overlap }) = self.on_gpus.clone() else {
            return self.clone();
        };
        Self {
            launch: launch.or_else(|| self.launch.clone()),
            attention: attention.or_else(|| self.attention.clone()),
            kv_read: kv_read.or_else(|| self.kv_read.clone()),
            step_overlap: step_overlap.or_else(|| self.step_overlap.clone()),
            on_gpus: None,
            ..self.clone()
        }
    }

    /// Reads at the engine's share of the peak, by the CPU's kernels and by whoever else reads.
    fn slow_host_memory(&self, machine: &mut Machine) {
        for id in machine.memory_ids().collect::<Vec<_>>() {
            let of_gpu = |device: &Device| device.memory == id && device.kind == DeviceKind::Gpu;
            let is_shared = machine.devices.iter().any(of_gpu);
            let memory = &mut machine.memories[id.0];
            let Some(peak) = memory.details.peak.clone() else { continue };
            let is_wide = peak.value > MOST_OF_TWO_CHANNELS && !is_shared;
            let wide = self.server_read.as_ref().filter(|_| is_wide);
            let Some(share) = wide.or(self.host_read.as_ref()) else { continue };
            let mut rate = peak.value * share.value.get();
            let mut reason = format!("{} of the peak of {} ({})", share.value, peak.value, share.source);
            if let Some(reached) = &memory.details.reached {
                rate = rate * reached.value.get();
                reason += &format!(", and {} of that ({})", reached.value, reached.source);
            }
            let factor = Ratio::new(rate / memory.bandwidth.value).unwrap_or(Ratio::ONE);
            memory.bandwidth = Sourced::estimated(rate, &reason);
            let reads = |device: &&mut Device| device.memory == id && device.kind != DeviceKind::Gpu;
            for device in machine.devices.iter_mut().filter(reads) {
                *device = device.faster(Bound::Memory, factor);
            }
        }
        machine.restripe();
    }

    /// Copies between host memory and GPUs at the rate of memory that is not page-locked.
    fn slow_links(&self, machine: &mut Machine) {
        let Some(share) = &self.pageable_link else { return };
        let kind = |memory: MemoryId| machine.memories[memory.0].kind;
        let joins = |ends: [MemoryKind; 2]| ends.contains(&MemoryKind::Hbm) && ends[0] != ends[1];
        let slowed: Vec<bool> =
            machine.links.iter().map(|link| joins([kind(link.from), kind(link.to)])).collect();
        for (link, _) in machine.links.iter_mut().zip(slowed).filter(|(_, slowed)| *slowed) {
            let reason = format!("{} of {} ({})", share.value, link.bandwidth.value, share.source);
            link.bandwidth = Sourced::estimated(link.bandwidth.value * share.value.get(), &reason);
        }
    }

    /// `bandwidth` is that of the host's memory.
    fn change_host(&self, device: &mut Device, bandwidth: BytesPerSec) {
        let cores = device.cores.len() as u64;
        if let Some(join) = &self.host_join {
            let threads = self.threads.as_ref().map_or(cores, |threads| threads.value);
            let reason = format!("{} and {} for each of {threads} threads", device.launch.value, join.value);
            device.launch = Sourced::estimated(device.launch.value + join.value * threads as f64, &reason);
        }
        let threads = self.prompt_threads.as_ref().or(self.threads.as_ref()).map_or(cores, |it| it.value);
        // What is read from memory takes as long.
        if let Some(share) = busy_share(threads, cores).filter(|share| *share != Ratio::ONE) {
            *device = device.faster(Bound::Compute, share);
        }
        if self.host_tiles == Some(false) {
            let ceilings = &device.details.ceilings;
            for (kv, rates) in &mut device.attention {
                if let Some(factor) = without_tiles(ceilings, *kv).filter(|_| rates.is_estimated()) {
                    *rates = rates.with_faster_prefill(factor);
                }
            }
        }
        if let Some(share) = &self.host_cache {
            let prompts = self.host_cache_prompts.as_ref().unwrap_or(share).value;
            let prompts = Ratio::new(prompts.get() / share.value.get()).unwrap_or(Ratio::ONE);
            let quantised = device.attention.iter_mut().filter(|(kv, _)| kv.is_quantised());
            quantised.for_each(|(_, rates)| {
                *rates = rates.faster(Bound::Compute, share.value).with_faster_prefill(prompts);
            });
        }
        if let Some(share) = &self.host_recurrence {
            let reason = format!("{} of {bandwidth} ({})", share.value, share.source);
            let rate = Sourced::estimated(bandwidth * share.value.get(), &reason);
            device.details.state_rate = Some(rate);
        }
        let details = &mut device.details;
        if let (Some(products), Some(cost)) = (&self.host_product, &details.dequantisation) {
            let unpacked = cost.rate.value.get();
            let reason = format!(
                "{} multiply-adds for each of {} ({})",
                products.value, cost.rate.value, products.source
            );
            let rate = FlopPerSec::new(2.0 * products.value.get() * unpacked);
            details.quantised_product = Some(Sourced::estimated(rate, &reason));
            details.quantised_formats.clone_from(&self.host_formats);
            details.half_rate_rows.clone_from(&self.host_half_rate_rows);
        }
    }

    /// Its kernels for GPUs of `architecture`: those of the longest name that it begins with, by
    /// the interface that it uses.
    fn kernels_for(&self, architecture: Option<&str>) -> ArchitectureKernels {
        let known = self.architectures.iter();
        let own = known.filter(|(name, _)| architecture.is_some_and(|it| it.starts_with(name.as_str())));
        let Some((_, kernels)) = own.max_by_key(|(name, _)| name.len()) else {
            return ArchitectureKernels::default();
        };
        let backend = self.backend.as_ref().and_then(|backend| kernels.backends.get(&backend.value));
        backend.unwrap_or(kernels).clone()
    }

    /// `bandwidth` is that of one GPU's memory.
    fn change_gpu(&self, device: &mut Device, bandwidth: BytesPerSec) {
        match self.graphs {
            Some(true) => device.issue = None,
            Some(false) if self.issue.is_some() => device.issue.clone_from(&self.issue),
            Some(false) | None => {}
        }
        let own = self.kernels_for(device.details.architecture.as_deref());
        if let Some(more) = own.launch.as_ref().or(self.launch.as_ref()) {
            let reason = format!("{} and {} of the engine's kernels", device.launch.value, more.value);
            device.launch = Sourced::estimated(device.launch.value + more.value, &reason);
        }
        let is_unfused = self.flash_attention == Some(false);
        let unfused = own.unfused_attention.as_ref().filter(|_| is_unfused);
        let attention = unfused.or(own.attention.as_ref()).or(self.attention.as_ref());
        for (bound, share) in [(Bound::Compute, attention), (Bound::Memory, self.kv_read.as_ref())] {
            let Some(share) = share else { continue };
            device.attention.values_mut().for_each(|rates| *rates = rates.faster(bound, share.value));
        }
        let is_whole = self.on_gpus.is_none() && !is_unfused;
        attend_within_power(device, own.attention_energy.as_ref().filter(|_| is_whole), attention);
        change_products(device, &own);
        let details = &mut device.details;
        // Those of the executor.
        (details.grouped_product, details.mixture, details.replays_alone) = (None, None, false);
        if is_unfused {
            details.score_traffic.clone_from(&self.score_traffic);
        }
        take(&mut details.kernel, self.kernel.as_ref());
        details.rounding.clone_from(&self.rounding);
        take(&mut details.quantises_activations, self.quantises_activations.as_ref());
        take(&mut details.grouped_attention, self.grouped_attention.as_ref());
        take(&mut details.sparse_heads, self.sparse_heads.as_ref());
        take(&mut details.expert, own.expert.as_ref().or(self.expert.as_ref()));
        take(&mut details.grouped_product, self.grouped_product.as_ref());
        details.grouped_block_product.clone_from(&self.grouped_block_product);
        details.all_expert_rows = self.all_expert_rows == Some(true);
        take(&mut details.logit, self.logit.as_ref());
        take(&mut details.step_overlap, self.step_overlap.as_ref());
        let read = |share: &Sourced<Ratio>| {
            let reason = format!("{} of {bandwidth} ({})", share.value, share.source);
            Sourced::estimated(bandwidth * share.value.get(), &reason)
        };
        if let Some(share) = own.gpu_read.as_ref().or(self.gpu_read.as_ref()) {
            details.quantised_read = Some(read(share));
        }
        if let Some(share) = own.float_read.as_ref().or(self.float_read.as_ref()) {
            details.float_read = Some(read(share));
        }
        if let Some(share) = own.recurrence.as_ref().or(self.recurrence.as_ref()) {
            details.state_rate = Some(read(share));
        }
        if let Some(share) = &self.kv_by_head {
            details.cache_read_by_head = Some(read(share));
        }
        if let Some(ranks) = &mut device.ranks {
            self.change_all_reduce(ranks);
        }
    }

    fn change_all_reduce(&self, ranks: &mut Ranks) {
        let Some(link) = &ranks.link else { return };
        let of_link = |(name, _): &(&String, &EngineAllReduce)| link.starts_with(name.as_str());
        let own = self.all_reduce.iter().filter(of_link).max_by_key(|(name, _)| name.len());
        let Some((_, EngineAllReduce { step, bandwidth })) = own else { return };
        let known = &ranks.all_reduce;
        ranks.all_reduce = AllReduce {
            step: step.clone().unwrap_or_else(|| known.step.clone()),
            bandwidth: bandwidth.clone().unwrap_or_else(|| known.bandwidth.clone()),
            by_pair: known.by_pair && bandwidth.is_none(),
            measured: None,
        };
    }
}

/// What the engine says takes the place of what is known of the device.
fn take<T: Clone>(known: &mut Option<T>, stated: Option<&T>) {
    if let Some(stated) = stated {
        *known = Some(stated.clone());
    }
}
