//! GPUs as parts of machines.

use crate::files::{Refusal, refuse_if};
use crate::parts::composition::PartNames;
use crate::rates::{AttentionRates, Dequantisation, GemmRates};
use crate::units::{Bytes, BytesPerSec, DType, Dollars, FlopPerSec, Ratio, Seconds, Sourced, Watts, Years};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A GPU or another accelerator with its own memory: its datasheet, and what was measured of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuPart {
    /// Its name, the first key of the file.
    pub gpu: String,
    /// A note for readers: conflicting sources, and unknown numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The maker's name of its generation: `hopper`, `cdna3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// CUDA's compute capability, as `9.0` in quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
    /// Streaming multiprocessors, or what the maker calls them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub multiprocessors: Option<Sourced<u64>>,
    /// The last cache that all multiprocessors share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub l2: Option<Sourced<Bytes>>,
    /// The rate at which its multiprocessors together read that cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub l2_bandwidth: Option<Sourced<BytesPerSec>>,
    /// Whether it has no memory of its own and computes on the host's, without a link. `capacity`
    /// is then the most that the host can have, and `bandwidth` that of the host's memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unified: bool,
    /// Of a unified GPU: other CPUs than the server's that contain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_in: Vec<String>,
    /// The part that each of the two dies of its card is, where drivers show dies as GPUs of their
    /// own: a name. Who says this card in words has two of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dies: Option<String>,
    /// The memory on its card or package. Programs get [`GpuPart::allocatable`] of it.
    #[serde(deserialize_with = "crate::units::checked")]
    pub capacity: Sourced<Bytes>,
    /// Whether error-correcting codes lie among the data and take a sixteenth of `capacity`, as
    /// drivers set up most data-centre cards with GDDR memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inline_ecc: bool,
    /// The bandwidth of that memory: its peak, or the measured rate of reads.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: Sourced<BytesPerSec>,
    /// Peak dense rate by weight format.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(deserialize_with = "crate::units::checked")]
    pub peak: BTreeMap<DType, Sourced<FlopPerSec>>,
    /// The shares of the peaks that long products and long streams reach, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub achieved: Option<AchievedShares>,
    /// Cost of one kernel launch, on the GPU.
    pub launch: Sourced<Seconds>,
    /// The shortest time of a kernel that computes no product, its launch included. Measured, it is
    /// the mean over the small kernels of a layer for one token. A documented time where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub kernel: Option<Sourced<Seconds>>,
    /// The time that the host takes to launch the kernels of one operator, where it launches
    /// kernels one by one ahead of the GPU. The GPU waits only where it is faster than the host.
    /// Absent where graphs are replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<Sourced<Seconds>>,
    /// What Fulcrum's executor needs on it besides products and attention, where measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ExecutorCosts>,
    /// The time from the host's signal until the stream runs, and back.
    pub sync: Sourced<Seconds>,
    /// The rate to the other GPUs of its server, each way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub nvlink: Option<Sourced<BytesPerSec>>,
    /// The link between GPUs of its kind in one server: a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Measured matrix products. Formats without any use `peak` × a documented efficiency.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gemm: BTreeMap<DType, GemmRates>,
    /// Measured attention. Formats without any use `peak` and `bandwidth` × documented
    /// efficiencies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attention: BTreeMap<DType, AttentionRates>,
    /// The cost of dequantisation; that of its architecture where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dequantisation: Option<Dequantisation>,
    /// Power when busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub power: Option<Sourced<Watts>>,
    /// Power of a GPU that waits with a model loaded; a documented share of `power` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub idle_power: Option<Sourced<Watts>>,
    /// Price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub price: Option<Sourced<Dollars>>,
    /// The time in service over which its price is written off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub lifetime: Option<Sourced<Years>>,
    /// The other parts of its default server. The GPU's own name stands for that machine where a
    /// machine is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<PartNames>,
}

/// What Fulcrum's executor needs on a GPU besides products and attention. It replays a decode that
/// the GPU computes alone as a graph; the host launches the kernels of other steps one by one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutorCosts {
    /// The share of the fastest dense product that products of several experts in one kernel reach.
    pub grouped_product: Sourced<Ratio>,
    /// The choice of a token's experts, their activation and the sum of their results.
    #[serde(deserialize_with = "crate::units::checked")]
    pub mixture: Sourced<Seconds>,
}

/// The shares of its peaks that a device reaches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AchievedShares {
    /// The share of the peak rate that long products reach, by format.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gemm: BTreeMap<DType, Sourced<Ratio>>,
    /// The share of the peak bandwidth that long streams reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Sourced<Ratio>>,
}

/// Makers of GPUs, with how the names of their architectures begin.
const MAKERS: [(&str, &[&str]); 3] = [
    ("NVIDIA", &["maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"]),
    ("AMD", &["polaris", "vega", "rdna", "cdna"]),
    ("Intel", &["alchemist", "battlemage", "xe"]),
];

impl GpuPart {
    /// Who makes it, by its architecture, among the makers of cards for anybody's desktop.
    pub fn maker(&self) -> Option<&'static str> {
        let architecture = self.architecture.as_deref()?;
        let is_of = |begins: &[&str]| begins.iter().any(|name| architecture.starts_with(name));
        MAKERS.iter().find(|(_, begins)| is_of(begins)).map(|(maker, _)| *maker)
    }

    /// A GPU of which only these values are known.
    pub fn new(
        gpu: &str,
        capacity: Sourced<Bytes>,
        bandwidth: Sourced<BytesPerSec>,
        launch: Sourced<Seconds>,
        sync: Sourced<Seconds>,
    ) -> Self {
        Self {
            gpu: gpu.to_owned(),
            note: None,
            architecture: None,
            compute_capability: None,
            multiprocessors: None,
            l2: None,
            l2_bandwidth: None,
            unified: false,
            also_in: vec![],
            dies: None,
            capacity,
            inline_ecc: false,
            bandwidth,
            peak: BTreeMap::new(),
            achieved: None,
            launch,
            kernel: None,
            issue: None,
            executor: None,
            sync,
            nvlink: None,
            peer: None,
            gemm: BTreeMap::new(),
            attention: BTreeMap::new(),
            dequantisation: None,
            power: None,
            idle_power: None,
            price: None,
            lifetime: None,
            server: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        for (dtype, share) in self.achieved.iter().flat_map(|achieved| &achieved.gemm) {
            check_share(share, "the peak", &["achieved", "gemm", dtype.name(), "value"])?;
        }
        if let Some(share) = self.achieved.as_ref().and_then(|achieved| achieved.bandwidth.as_ref()) {
            check_share(share, "the peak", &["achieved", "bandwidth", "value"])?;
        }
        if let Some(executor) = &self.executor {
            let place = ["executor", "grouped_product", "value"];
            check_share(&executor.grouped_product, "the fastest dense product", &place)?;
        }
        check_idle(self.power.as_ref(), self.idle_power.as_ref())?;
        let message = "only a GPU on the host's memory is a part of CPUs: leave it out".to_owned();
        refuse_if(!self.also_in.is_empty() && !self.unified, &["also_in"], message)?;
        let Some(server) = &self.server else { return Ok(()) };
        let message = "the server's GPU is this one: leave `gpu` out".to_owned();
        refuse_if(!server.gpus.is_empty(), &["server", "gpu"], message)?;
        let message = "the server's GPU needs a link: name one, as `link: pcie5-x16`".to_owned();
        refuse_if(server.link.is_none() && !self.unified, &["server"], message)?;
        let message = "a GPU on the host's memory has no link: leave it out".to_owned();
        refuse_if(server.link.is_some() && self.unified, &["server", "link"], message)
    }
}

/// Refuses a share of more than the whole.
fn check_share(share: &Sourced<Ratio>, whole: &str, place: &[&str]) -> Result<(), Refusal> {
    let message = format!("{} of {whole} is more than {whole}: a share is at most 1", share.value);
    refuse_if(share.value > Ratio::ONE, place, message)
}

/// Refuses an idle power above the busy power.
pub(crate) fn check_idle(
    busy: Option<&Sourced<Watts>>,
    idle: Option<&Sourced<Watts>>,
) -> Result<(), Refusal> {
    let (Some(busy), Some(idle)) = (busy, idle) else { return Ok(()) };
    let message = format!("{} idle is more than {} busy", idle.value, busy.value);
    refuse_if(idle.value > busy.value, &["idle_power", "value"], message)
}
