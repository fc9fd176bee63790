//! A CPU from its datasheet and publications, in contrast to a measured [`crate::Host`].

use crate::files::{Refusal, refuse_if};
use crate::parts::gpu::check_idle;
use crate::rates::Dequantisation;
use crate::units::{
    Bytes, BytesPerSec, DType, Dollars, FlopPerSec, Hertz, Provenance, Ratio, Seconds, Sourced, Watts, Years,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One socket of a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuPart {
    /// Its name, the first key of the file.
    pub cpu: String,
    /// A note for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The maker's name of its generation: `sapphire-rapids`, `zen4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Physical cores.
    #[serde(deserialize_with = "crate::units::checked")]
    pub cores: Sourced<u64>,
    /// Guaranteed clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub base_clock: Option<Sourced<Hertz>>,
    /// Highest clock of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub turbo_clock: Option<Sourced<Hertz>>,
    /// Clock with all cores at their widest instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub busy_clock: Option<Sourced<Hertz>>,
    /// Second-level cache of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub l2: Option<Sourced<Bytes>>,
    /// Last-level cache of all cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub llc: Option<Sourced<Bytes>>,
    /// The ceilings of matrix products, all cores together, by instruction set and number format.
    pub rates: BTreeMap<InstructionSet, BTreeMap<DType, SheetRates>>,
    /// The number of rows from which tile instructions are faster than vector ones; where absent,
    /// the faster one is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub crossover: Option<Sourced<u64>>,
    /// The cost of dequantisation on one socket; that of its instruction sets where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dequantisation: Option<Dequantisation>,
    /// Its memory channels.
    pub dram: SocketDram,
    /// One fork-join of all cores; 1 us and 0.3 us for each core, at most 10 us, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub launch: Option<Sourced<Seconds>>,
    /// The time from another device's completion until the cores run.
    pub sync: Sourced<Seconds>,
    /// Thermal design power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub power: Option<Sourced<Watts>>,
    /// Power of a socket whose cores wait for work; a documented share of `power` where absent.
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
}

/// An instruction set that computes matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstructionSet {
    /// 256-bit vectors.
    Avx2,
    /// 512-bit vectors, with bf16 and int8 dot products where a rate is given for them.
    Avx512,
    /// Tiles.
    Amx,
    /// Arm's scalable vectors.
    Sve2,
    /// Arm's 128-bit vectors.
    Neon,
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx512 => "avx512",
            InstructionSet::Amx => "amx",
            InstructionSet::Sve2 => "sve2",
            InstructionSet::Neon => "neon",
        })
    }
}

/// Three ceilings of matrix products. They differ up to sixfold, so one number is not enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SheetRates {
    /// With operands in tiles or registers: cores × FLOP per cycle × clock.
    #[serde(deserialize_with = "crate::units::checked")]
    pub resident: Sourced<FlopPerSec>,
    /// With operands in caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub cached: Option<Sourced<FlopPerSec>>,
    /// With weights streamed from memory, and so many rows that reading them no longer matters; a
    /// documented share of `resident` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub streamed: Option<Sourced<FlopPerSec>>,
    /// How the streamed rate rises with rows; constant where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_rows: Option<RowShares>,
}

/// The rate of products of m rows as a share of the rate with many rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowShares {
    /// Where the points came from.
    pub source: Provenance,
    /// The points, by rising rows; at least one.
    pub points: Vec<RowShare>,
}

/// One point of [`RowShares`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowShare {
    /// Rows of the activations.
    #[serde(deserialize_with = "crate::units::checked")]
    pub m: u64,
    /// The share of the rate with many rows.
    pub share: Ratio,
}

/// The memory of one socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketDram {
    /// What it is: `8x DDR5-4800`.
    pub kind: String,
    /// Channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub channels: Option<Sourced<u64>>,
    /// Peak: channels × transfers per second × 8 bytes.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: Sourced<BytesPerSec>,
    /// The rate of long reads by all cores; a documented share of `bandwidth` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub reached: Option<Sourced<BytesPerSec>>,
    /// The rate of long reads by fewer cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_cores: Option<CoreCurve>,
    /// Its size, where it is soldered on; otherwise the composition gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub capacity: Option<Sourced<Bytes>>,
    /// Load-to-use latency without other traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub latency: Option<Sourced<Seconds>>,
}

/// Bandwidth against the cores that read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreCurve {
    /// Where the points came from.
    pub source: Provenance,
    /// The points, by rising cores; at least one.
    pub points: Vec<CorePoint>,
}

/// One point of a [`CoreCurve`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePoint {
    /// Cores that read.
    #[serde(deserialize_with = "crate::units::checked")]
    pub cores: u64,
    /// The rate that they reach together. It may fall with more cores, which disturb each other.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: BytesPerSec,
}

/// The generation of PCIe of CPUs' slots where it is not the newest, by architecture (Intel ARK,
/// AMD's product pages).
const OLDER_SLOTS: [(u8, &[&str]); 2] = [
    (
        3,
        &[
            "haswell",
            "broadwell",
            "skylake",
            "kaby-lake",
            "coffee-lake",
            "comet-lake",
            "cascade-lake",
            "zen",
            "zen+",
        ],
    ),
    (4, &["ice-lake", "tiger-lake", "rocket-lake", "meteor-lake", "zen2", "zen3", "neoverse-n1"]),
];

impl CpuPart {
    /// What the link `pcieG-xN` of a card becomes in a slot of this CPU: of the CPU's generation
    /// where that is older, and with 8 or 4 lanes where several such `cards` share a desktop's 16.
    /// Other links stay as they are.
    pub(crate) fn slot_link(&self, link: &str, cards: u64) -> String {
        let is_desktop = self.dram.channels.as_ref().is_some_and(|channels| channels.value <= 2);
        let shared = match cards {
            2 if is_desktop => 8,
            3.. if is_desktop => 4,
            _ => 16,
        };
        let architecture = self.architecture.as_deref();
        let own = OLDER_SLOTS.iter().find(|(_, all)| all.iter().any(|it| Some(*it) == architecture));
        let card = link.strip_prefix("pcie").and_then(|rest| rest.split_once("-x"));
        let card =
            card.and_then(|(card, lanes)| Some((card.parse::<u8>().ok()?, lanes.parse::<u64>().ok()?)));
        let Some((card, lanes)) = card else { return link.to_owned() };
        let (generation, lanes) = (own.map_or(card, |(own, _)| card.min(*own)), lanes.min(shared));
        format!("pcie{generation}-x{lanes}")
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let message =
            "there is no rate: give at least one, as `rates: {avx2: {f32: {resident: …}}}`".to_owned();
        refuse_if(self.rates.values().all(BTreeMap::is_empty), &["rates"], message)?;
        for (instructions, by_format) in &self.rates {
            for (dtype, ceilings) in by_format {
                let (set, format) = (instructions.to_string(), dtype.name());
                ceilings.check().map_err(|r| r.under(format).under(&set).under("rates"))?;
            }
        }
        check_idle(self.power.as_ref(), self.idle_power.as_ref())?;
        let dram = &self.dram;
        if let Some(reached) = dram.reached.as_ref().map(|reached| reached.value) {
            let message = format!("{reached} is more than the peak of {}", dram.bandwidth.value);
            refuse_if(reached > dram.bandwidth.value, &["dram", "reached", "value"], message)?;
        }
        let Some(curve) = &dram.by_cores else { return Ok(()) };
        curve.check(self.cores.value).map_err(|refusal| refusal.under("by_cores").under("dram"))
    }
}

impl SheetRates {
    fn check(&self) -> Result<(), Refusal> {
        let peak = self.resident.value;
        let cached = self.cached.as_ref().map_or(peak, |cached| cached.value);
        let streamed = self.streamed.as_ref().map_or(FlopPerSec::ZERO, |streamed| streamed.value);
        let message = format!("{cached} is more than the peak of {peak}");
        refuse_if(cached > peak, &["cached", "value"], message)?;
        let message = format!("{streamed} is more than the {cached} of operands nearer by");
        refuse_if(streamed > cached, &["streamed", "value"], message)?;
        self.by_rows.as_ref().map_or(Ok(()), |rows| rows.check().map_err(|refusal| refusal.under("by_rows")))
    }
}

impl RowShares {
    fn check(&self) -> Result<(), Refusal> {
        let empty = "the list is empty: give at least one point".to_owned();
        refuse_if(self.points.is_empty(), &["points"], empty)?;
        for (index, point) in self.points.iter().enumerate() {
            let index = index.to_string();
            let message = format!("{} of the rate of many rows: a share is at most 1", point.share);
            refuse_if(point.share > Ratio::ONE, &["points", &index, "share"], message)?;
        }
        for (index, pair) in self.points.windows(2).enumerate() {
            let (index, a, b) = ((index + 1).to_string(), pair[0], pair[1]);
            let message = format!("m = {} follows m = {}: list rising ones", b.m, a.m);
            refuse_if(b.m <= a.m, &["points", &index, "m"], message)?;
            // Time ∝ m / share. Published points are rounded.
            let falls = b.m as f64 / b.share.get() < a.m as f64 / a.share.get() * ROUNDING;
            let message =
                format!("m = {} would take less time than m = {}: more rows never take less", b.m, a.m);
            refuse_if(falls, &["points", &index, "share"], message)?;
        }
        Ok(())
    }

    /// The share at `m` rows. The time per product is interpolated between points. Below the first
    /// point it is that point's time; beyond the last, the share is that point's.
    pub fn at(&self, m: u64) -> f64 {
        let time = |p: RowShare| p.m as f64 / p.share.get();
        let above = self.points.partition_point(|p| p.m < m);
        let below = above.checked_sub(1).map(|below| self.points[below]);
        let rows = m as f64;
        match (below, self.points.get(above).copied()) {
            (Some(a), Some(b)) => {
                let weight = (rows - a.m as f64) / (b.m - a.m) as f64;
                rows / (time(a) * (1.0 - weight) + time(b) * weight)
            }
            (Some(last), None) => last.share.get(),
            (None, Some(first)) => rows / time(first),
            (None, None) => 1.0,
        }
    }
}

/// Published points are rounded, so times may fall by this factor.
const ROUNDING: f64 = 0.9;

impl CoreCurve {
    fn check(&self, most: u64) -> Result<(), Refusal> {
        let empty = "the list is empty: give at least one point".to_owned();
        refuse_if(self.points.is_empty(), &["points"], empty)?;
        for (index, point) in self.points.iter().enumerate() {
            let earlier = index.checked_sub(1).map_or(0, |before| self.points[before].cores);
            let path = ["points", &index.to_string(), "cores"].map(str::to_owned);
            let path = path.each_ref().map(String::as_str);
            let message = format!("{} cores follow {earlier}: list rising ones", point.cores);
            refuse_if(point.cores <= earlier, &path, message)?;
            let message = format!("{} cores of {most}: there are not so many", point.cores);
            refuse_if(point.cores > most, &path, message)?;
        }
        Ok(())
    }

    /// The rate of `cores`: linear between points, from zero below the first one, and constant
    /// beyond the last.
    pub fn at(&self, cores: u64) -> BytesPerSec {
        let above = self.points.partition_point(|p| p.cores < cores);
        let below = above.checked_sub(1).map(|below| self.points[below]);
        let start = below.map_or((0, BytesPerSec::ZERO), |p| (p.cores, p.bandwidth));
        match self.points.get(above) {
            Some(p) => {
                let weight = (cores - start.0) as f64 / (p.cores - start.0) as f64;
                start.1 * (1.0 - weight) + p.bandwidth * weight
            }
            None => start.1,
        }
    }
}
