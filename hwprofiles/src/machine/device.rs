//! What computes.

use crate::machine::memory::MemoryId;
use crate::rates::{AllReduce, AttentionRates, Dequantisation, GemmRates};
use crate::units::{Bytes, BytesPerSec, DType, Dollars, FlopPerSec, Ratio, Seconds, Sourced, Watts, Years};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Index of a device in its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub usize);

/// Kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// Cores of the host.
    Cpu,
    /// A GPU.
    Gpu,
    /// One pinned core of the host that acts as a second device, with limited memory behind a
    /// rate-limited copy.
    Loopback,
}

impl DeviceKind {
    /// The word used in files.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Gpu => "gpu",
            DeviceKind::Loopback => "loopback",
        }
    }
}

/// Something that computes.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Its name in files.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Its own memory, which it reads without a link and which holds its buffers.
    pub memory: MemoryId,
    /// Other memories that it reads and writes in place, without a link or a copy: memory behind
    /// CXL, and stripes over it.
    pub reads: Vec<MemoryId>,
    /// The host cores that it runs on; empty for a GPU.
    pub cores: Vec<usize>,
    /// Cost of starting one operator: a fork-join of the team, or a kernel launch.
    pub launch: Sourced<Seconds>,
    /// The time that the host takes to issue one kernel, where it issues kernels one by one ahead
    /// of the device. A kernel begins when it was issued and the one before it has ended. Absent
    /// where no kernel is issued, as in a replayed graph.
    pub issue: Option<Sourced<Seconds>>,
    /// The time from another device's completion until this one runs: a wake-up, or a stream's wait
    /// for an event.
    pub sync: Sourced<Seconds>,
    /// Matrix products by weight format.
    pub gemm: BTreeMap<DType, GemmRates>,
    /// Attention by KV format.
    pub attention: BTreeMap<DType, AttentionRates>,
    /// Rate of norms, activations, additions: activation bytes read and written per second.
    pub elementwise: Sourced<BytesPerSec>,
    /// Power when busy, where known.
    pub power: Option<Sourced<Watts>>,
    /// Power while it waits, where known.
    pub idle_power: Option<Sourced<Watts>>,
    /// Price, where known.
    pub price: Option<Sourced<Dollars>>,
    /// The ranks of a group of GPUs that compute as one device. The rates are those of one of them.
    pub ranks: Option<Ranks>,
    /// Further costs and facts.
    pub details: DeviceDetails,
}

/// What a device costs beside the rates of its products: an engine's own kernels, the ceilings that
/// a CPU's rates were made of, power, price and how long it serves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceDetails {
    /// The maker's name of a GPU's generation, where known: engines have kernels of their own for
    /// some of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The ceilings of its matrix products, by weight format and instruction set (`avx512`, `amx`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ceilings: BTreeMap<DType, BTreeMap<String, CeilingRates>>,
    /// Rows from which the wider instruction set is faster, by weight format.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub crossover: BTreeMap<DType, Sourced<u64>>,
    /// What runs on this machine reached of the rate at which it computes; it counts in that rate
    /// already, and not in what its power pays for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_compute: Option<Sourced<Ratio>>,
    /// The time in service over which its price is written off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Sourced<Years>>,
    /// What it costs to compute with quantised weights that have no measured table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dequantisation: Option<Dequantisation>,
    /// The kernels that its rates were measured with, where they are ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// The shortest time of a kernel, its launch included. Absent where only bytes and FLOP count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Sourced<Seconds>>,
    /// The rate at which an engine's kernels read quantised weights, dequantisation included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantised_read: Option<Sourced<BytesPerSec>>,
    /// The rate at which an engine's kernels read other weights, where products are slower than
    /// their tables say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub float_read: Option<Sourced<BytesPerSec>>,
    /// The most that an engine's kernels reach in products with quantised weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantised_product: Option<Sourced<FlopPerSec>>,
    /// What is left of that rate with weights of a format, where they differ.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quantised_formats: BTreeMap<DType, Sourced<Ratio>>,
    /// The rows of a product with which half of that rate is reached. Absent where any number of
    /// rows reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_rate_rows: Option<Sourced<u64>>,
    /// The most rows of a tile of those products, to which the tokens of an expert are filled up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tile_rows: Option<Sourced<u64>>,
    /// What an engine's kernel moves for each activation that it rounds before such a product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounding: Option<Sourced<Bytes>>,
    /// The rate at which an engine's kernels read and write the state of a recurrence for each
    /// token of a prompt. Absent where tokens are computed in chunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_rate: Option<Sourced<BytesPerSec>>,
    /// The rate at which an engine's decode attention reads a quantised cache, once for each query
    /// head. Absent where the heads of a group share what is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_by_head: Option<Sourced<BytesPerSec>>,
    /// Whether decode attention reads the cache once for all query heads of a group, as measured
    /// kernels do. False where an engine's kernel reads it for each of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouped_attention: Option<bool>,
    /// The multiple to which an engine's kernels of sparse latent attention, which score latent
    /// vectors, fill up the heads of a rank. Absent where prompts score expanded keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse_heads: Option<Sourced<u64>>,
    /// What each matrix of each expert of a prompt costs, where they are computed one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expert: Option<Sourced<Seconds>>,
    /// Where several GPUs compute the layers in turn: of the time that one waits for the others in
    /// a step of a prompt, the share in which it is at work on the steps before and after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_overlap: Option<Sourced<Ratio>>,
    /// The share of the fastest dense product that products of several experts in one kernel reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouped_product: Option<Sourced<Ratio>>,
    /// The same with weights that have a scale for each block of fp8 values, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouped_block_product: Option<Sourced<Ratio>>,
    /// Whether a rank with whole experts goes through the rows of all ranks' experts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_expert_rows: bool,
    /// What a layer of experts needs besides products, where its kernels were measured: the choice
    /// of experts, their activation and the sum of their results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixture: Option<Sourced<Seconds>>,
    /// Whether a decode step that it computes alone is replayed as a graph, so that the host issues
    /// none of its kernels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replays_alone: bool,
    /// The rate at which a GPU's multiprocessors together read the cache that they share (its L2).
    /// The beams of a search read the KV cache that they have in common from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_bandwidth: Option<Sourced<BytesPerSec>>,
    /// What choosing a token takes for each value of the logits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit: Option<Sourced<Seconds>>,
    /// Whether a kernel of its own rounds activations to fp8 before each fp8 product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantises_activations: Option<bool>,
    /// Products of many rows that a library computes in 16 bits, quantised weights widened first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widened: Option<WidenedProducts>,
    /// What a score of a prompt's attention moves through memory where scores, their softmax and
    /// both products are kernels of their own. Absent where they are one kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_traffic: Option<Sourced<Bytes>>,
}

/// Products that a library computes in 16 bits. Quantised weights are first written to memory in
/// that format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WidenedProducts {
    /// The rows from which products are computed so.
    pub from_rows: Sourced<u64>,
    /// The rate of the library's products.
    pub rate: Sourced<FlopPerSec>,
}

/// The most that matrix products reach, by where their operands come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CeilingRates {
    /// With operands from registers or tiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<Sourced<FlopPerSec>>,
    /// With operands from the cores' own caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Sourced<FlopPerSec>>,
    /// With weights from memory and many rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streamed: Option<Sourced<FlopPerSec>>,
}

/// A group of GPUs that compute as one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranks {
    /// How many GPUs. The device's rates are those of one of them; its memory is that of all.
    #[serde(deserialize_with = "crate::units::checked")]
    pub count: u64,
    /// How they sum what each has computed.
    pub all_reduce: AllReduce,
    /// The name of the link part that joins them, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Into how many stages of consecutive layers they divide a model. The GPUs of a stage divide
    /// every matrix.
    #[serde(default = "one_stage", skip_serializing_if = "is_one_stage")]
    pub stages: u64,
    /// Whether each routed expert is whole on one GPU of a stage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole_experts: bool,
    /// Into how many engines the GPUs of a stage divide all but whole experts (data parallelism).
    /// Each has sequences of its own.
    #[serde(default = "one_stage", skip_serializing_if = "is_one_stage")]
    pub data: u64,
    /// Whether a step is that of one engine of several on the group, in place of all of them: one
    /// of the micro-batches in flight, or the sequences of one of `data` engines.
    #[serde(skip)]
    pub one_engine: bool,
}

fn one_stage() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_one_stage(stages: &u64) -> bool {
    *stages == 1
}
