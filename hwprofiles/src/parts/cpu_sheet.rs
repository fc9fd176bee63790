//! The device and the memory of a datasheet CPU: rooflines at documented shares of its peaks.
//!
//! Where a part does not give the rates that it reaches, long products with weights streamed from
//! memory reach 20 % of the peak by tile instructions and 65 % by vector instructions. LIA's
//! Sapphire Rapids reaches 16.6 to 20 of 90 TFLOP/s by AMX and 3.7 of 5.6 by AVX-512. Decode
//! attention computes like products by 256-bit vectors, however wide they are: latent attention at
//! 28 FLOP per cycle of a core on a Threadripper PRO 7975WX, 17 on 88 cores of a Xeon 6980P.
//!
//! Reads of memory reach 80 % of the peak of two channels and 58 % of that of a socket with more.
//! Decoding on a Xeon 6454S, a Xeon 8480+ and an EPYC 9355 reads at 52 to 63 % of their peaks, well
//! below what a stream benchmark reaches there: each product is a fork-join over tens of cores, and
//! experts are small. A bandwidth that a composition states is such a peak, unless it was measured.
//! The answers say [`Basis::Estimated`](crate::Basis::Estimated).

use crate::files::ProfileError;
use crate::machine::{
    CeilingRates, Device, DeviceDetails, DeviceKind, MOST_OF_TWO_CHANNELS, Memory, MemoryDetails, MemoryId,
    MemoryKind,
};
use crate::parts::composition::DramChoice;
use crate::parts::cpu::{CpuPart, InstructionSet, SheetRates};
use crate::rates::{AttentionRates, GemmRates};
use crate::units::{BytesPerSec, DType, Flop, FlopPerSec, Provenance, Seconds, Sourced, Watts};
use std::collections::BTreeMap;

const OF_PEAK_TILES: f64 = 0.20;

const OF_PEAK_VECTORS: f64 = 0.65;

const OF_PEAK_TWO_CHANNELS: f64 = 0.80;

const OF_PEAK_MANY_CHANNELS: f64 = 0.58;

/// The share of its power that a socket uses while its cores wait for work.
const OF_POWER_WAITING: f64 = 0.30;

/// The side of the square weights that stand for all shapes.
const SIDE: u64 = 8192;

/// A datasheet CPU with what a composition says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuSheet {
    /// One socket.
    pub part: CpuPart,
    /// Sockets.
    pub sockets: u64,
    /// The cores in use, over all sockets; all where absent.
    pub cores: Option<u64>,
    /// The memory, where the part does not give it.
    pub dram: DramChoice,
}

impl CpuSheet {
    /// The memory `dram`. Refuses a CPU without the size of its memory.
    pub(crate) fn memory(&self) -> Result<Memory, ProfileError> {
        let own = self.part.dram.capacity.as_ref().map(|capacity| match self.sockets {
            1 => capacity.clone(),
            sockets => Sourced {
                value: capacity.value * sockets,
                source: times(sockets, &capacity.value.to_string(), &capacity.source),
            },
        });
        let capacity = self.dram.capacity.clone().or(own).ok_or_else(|| {
            let example = "`dram: {capacity: 512 GB}`";
            let message = format!(
                "the CPU '{}' does not say how much memory it has: say it, as {example}",
                self.part.cpu
            );
            ProfileError::Unfit { part: "dram".to_owned(), message }
        })?;
        Ok(Memory {
            name: "dram".to_owned(),
            kind: MemoryKind::Dram,
            capacity,
            bandwidth: self.bandwidth(),
            latency: self.part.dram.latency.clone(),
            within: None,
            stripes: vec![],
            price_per_gb: None,
            details: MemoryDetails { peak: self.peak_bandwidth(), ..MemoryDetails::default() },
        })
    }

    /// The peak rate of all channels; unknown where a composition gives a measured rate.
    fn peak_bandwidth(&self) -> Option<Sourced<BytesPerSec>> {
        if let Some(stated) = &self.dram.bandwidth {
            let measured = matches!(stated.source, Provenance::Measured { .. });
            return Some(stated.clone()).filter(|_| !measured);
        }
        let Sourced { value, source } = &self.part.dram.bandwidth;
        let source = times(self.sockets, &value.to_string(), source);
        Some(Sourced { value: *value * self.sockets as f64, source })
    }

    /// The device `cpu`. Refuses more cores than there are.
    pub(crate) fn device(&self, memory: MemoryId) -> Result<Device, ProfileError> {
        let all = self.part.cores.value * self.sockets;
        let cores = self.cores.unwrap_or(all);
        if cores == 0 || cores > all {
            let message = format!("{cores} cores of '{}', which has {all}: use 1 to {all}", self.part.cpu);
            return Err(ProfileError::Unfit { part: "cores".to_owned(), message });
        }
        let bandwidth = self.bandwidth();
        let (mut gemm, mut attention) = (BTreeMap::new(), BTreeMap::new());
        for dtype in DType::OWN {
            let paths = self.paths(dtype);
            let Some(fastest) = paths.iter().map(|path| path.rate).max_by(FlopPerSec::total_cmp) else {
                continue;
            };
            let source = self.source(&paths, &bandwidth);
            if dtype.holds_weights() {
                gemm.insert(dtype, self.gemm(dtype, &paths, bandwidth.value, source.clone()));
            }
            let attention_rate = self.attention_rate(&paths).unwrap_or(fastest);
            let rates = AttentionRates::roofline(dtype, attention_rate, bandwidth.value, source);
            let vectors = self.vector_peak().map(|peak| peak * OF_PEAK_VECTORS);
            attention.insert(dtype, vectors.into_iter().fold(rates, AttentionRates::with_decode_rate));
        }
        let per_socket = |name: &str, source: &Provenance| times(self.sockets, name, source);
        let part = &self.part;
        let all_sockets = |power: &Sourced<Watts>| Sourced {
            value: power.value * self.sockets as f64,
            source: per_socket(&power.value.to_string(), &power.source),
        };
        let power = part.power.as_ref().map(all_sockets);
        let idle_power = part.idle_power.as_ref().map(all_sockets).or_else(|| power.as_ref().map(waiting));
        let price = part.price.as_ref().map(|price| Sourced {
            value: price.value * self.sockets as f64,
            source: per_socket(&price.value.to_string(), &price.source),
        });
        Ok(Device {
            name: "cpu".to_owned(),
            kind: DeviceKind::Cpu,
            memory,
            reads: vec![],
            cores: (0..usize::try_from(cores).unwrap_or(usize::MAX)).collect(),
            launch: part.launch.clone().unwrap_or_else(|| fork_join(cores)),
            issue: None,
            sync: part.sync.clone(),
            gemm,
            attention,
            elementwise: bandwidth,
            power,
            idle_power,
            price,
            ranks: None,
            details: self.details(),
        })
    }

    fn details(&self) -> DeviceDetails {
        let cores = self.cores.unwrap_or(self.part.cores.value * self.sockets);
        let mut details = DeviceDetails {
            lifetime: self.part.lifetime.clone(),
            dequantisation: Some(self.part.dequantisation_cost(cores)),
            ..DeviceDetails::default()
        };
        for (instructions, by_format) in &self.part.rates {
            for (&dtype, rates) in by_format {
                let streamed = rates.streamed.clone().unwrap_or_else(|| {
                    let reason =
                        format!("a documented share of the {} of tiles or registers", rates.resident.value);
                    Sourced::estimated(rates.streamed_rate(*instructions), &reason)
                });
                let ceilings = CeilingRates {
                    resident: Some(self.scaled(&rates.resident)),
                    cached: rates.cached.as_ref().map(|cached| self.scaled(cached)),
                    streamed: Some(self.scaled(&streamed)),
                };
                details.ceilings.entry(dtype).or_default().insert(instructions.to_string(), ceilings);
                if let (InstructionSet::Amx, Some(rows)) = (instructions, &self.part.crossover) {
                    details.crossover.insert(dtype, rows.clone());
                }
            }
        }
        details
    }

    /// The cores in use divided by the cores of one socket.
    fn scale(&self) -> f64 {
        let cores = self.cores.unwrap_or(self.part.cores.value * self.sockets);
        cores as f64 / self.part.cores.value as f64
    }

    /// The rate of the cores in use, from that of one socket.
    fn scaled(&self, rate: &Sourced<FlopPerSec>) -> Sourced<FlopPerSec> {
        match self.scale() {
            1.0 => rate.clone(),
            scale => {
                let reason = format!("{scale} sockets of {} ({})", rate.value, rate.source);
                Sourced::estimated(rate.value * scale, &reason)
            }
        }
    }

    /// The rate of long reads by the cores in use.
    fn bandwidth(&self) -> Sourced<BytesPerSec> {
        let dram = &self.part.dram;
        if let Some(stated) = &self.dram.bandwidth {
            return match stated.source {
                Provenance::Measured { .. } => stated.clone(),
                Provenance::Datasheet { .. } | Provenance::Estimated { .. } => self.reached_of(stated),
            };
        }
        let one = match (&dram.reached, &dram.by_cores, self.cores) {
            (_, Some(curve), Some(cores)) => {
                let cores = cores.div_ceil(self.sockets);
                let reason = format!("by {cores} cores of a socket, between points {}", curve.source);
                Sourced::estimated(curve.at(cores), &reason)
            }
            (Some(reached), ..) => reached.clone(),
            (None, ..) => self.reached_of(&dram.bandwidth),
        };
        match self.sockets {
            1 => one,
            sockets => Sourced {
                value: one.value * sockets as f64,
                source: times(sockets, &one.value.to_string(), &one.source),
            },
        }
    }

    /// The part of a `peak` that long reads reach: the share that the part reaches of its own peak,
    /// or the documented one.
    fn reached_of(&self, peak: &Sourced<BytesPerSec>) -> Sourced<BytesPerSec> {
        let dram = &self.part.dram;
        let (share, why) = match &dram.reached {
            Some(reached) => {
                (reached.value.get() / dram.bandwidth.value.get(), format!("; the share: {}", reached.source))
            }
            None => (self.documented_share(), String::new()),
        };
        let reason = format!("{share:.2} of the peak of {} ({}){why}", peak.value, peak.source);
        Sourced::estimated(peak.value * share, &reason)
    }

    fn documented_share(&self) -> f64 {
        let dram = &self.part.dram;
        let few = match &dram.channels {
            Some(channels) => channels.value <= 2,
            None => dram.bandwidth.value <= MOST_OF_TWO_CHANNELS,
        };
        if few { OF_PEAK_TWO_CHANNELS } else { OF_PEAK_MANY_CHANNELS }
    }

    /// The instruction sets that compute with weights of `dtype`, each in the nearest format that
    /// it has.
    fn paths(&self, dtype: DType) -> Vec<ComputePath<'_>> {
        let widened: &[DType] = match dtype {
            DType::F32 => &[DType::F32],
            DType::F16 => &[DType::F16, DType::F32],
            DType::Bf16 => &[DType::Bf16, DType::F32],
            _ => &[dtype, DType::Bf16, DType::F32],
        };
        let mut paths = Vec::new();
        for (&instructions, by_format) in &self.part.rates {
            if let Some(ceilings) = widened.iter().find_map(|format| by_format.get(format)) {
                paths.push(ComputePath {
                    instructions,
                    ceilings,
                    rate: ceilings.streamed_rate(instructions) * self.scale(),
                });
            }
        }
        paths
    }

    /// The rate of a prompt's attention. Where wide vectors share two ports with conversions and
    /// shuffles, they compute it no faster than narrow ones: 21 FLOP per cycle of a core of a Xeon
    /// 6980P, 24 on a Threadripper PRO 7975WX, whose vectors are as wide as half of the Xeon's.
    fn attention_rate(&self, paths: &[ComputePath<'_>]) -> Option<FlopPerSec> {
        let shared = self.part.shares_wide_ports();
        let usable = paths.iter().filter(|path| !shared || path.instructions != InstructionSet::Avx512);
        usable.map(|path| path.rate).max_by(FlopPerSec::total_cmp)
    }

    /// The peak in 32 bits of the narrowest vectors that it has, by the cores in use.
    fn vector_peak(&self) -> Option<FlopPerSec> {
        let mut sets = self.part.rates.iter().filter(|(set, _)| **set != InstructionSet::Amx);
        let peak = sets.find_map(|(_, by_format)| by_format.get(&DType::F32))?;
        Some(peak.resident.value * self.scale())
    }

    fn source(&self, paths: &[ComputePath<'_>], bandwidth: &Sourced<BytesPerSec>) -> Provenance {
        let ways: Vec<_> = paths.iter().map(|p| format!("{} {}", p.instructions, p.rate)).collect();
        let reason = format!("roofline of {} and {} of DRAM", ways.join(", "), bandwidth.value);
        Provenance::Estimated { reason }
    }

    /// A table of times against rows: the slower of reading the weights and of computing.
    fn gemm(
        &self,
        dtype: DType,
        paths: &[ComputePath<'_>],
        bandwidth: BytesPerSec,
        source: Provenance,
    ) -> GemmRates {
        let read = dtype.matrix_bytes(SIDE, SIDE) / bandwidth;
        let row = Flop::new(2 * u128::from(SIDE) * u128::from(SIDE));
        let compute = |path: &ComputePath<'_>, m: u64| row / path.rate * (m as f64 / path.share(m));
        let is_tiled = |path: &ComputePath<'_>| path.instructions == InstructionSet::Amx;
        let choice = paths.iter().any(is_tiled) && !paths.iter().all(is_tiled);
        let crossover = self.part.crossover.as_ref().filter(|_| choice).map(|crossover| crossover.value);
        let time = |m: u64| {
            let usable =
                |path: &&ComputePath<'_>| crossover.is_none_or(|first| is_tiled(path) == (m >= first));
            let times = paths.iter().filter(usable).map(|path| compute(path, m).max(read));
            times.min_by(Seconds::total_cmp).unwrap_or(read)
        };
        let ridge = |path: &ComputePath<'_>| (read / (row / path.rate)).floor() as u64;
        let mut rows: Vec<u64> = paths.iter().flat_map(|path| [ridge(path), ridge(path) + 1]).collect();
        let shares = paths.iter().filter_map(|path| path.ceilings.by_rows.as_ref());
        rows.extend(shares.flat_map(|shares| shares.points.iter().map(|point| point.m)));
        rows.extend(crossover.into_iter().flat_map(|first| [first.saturating_sub(1), first]));
        rows.push(1);
        rows.retain(|&m| m > 0);
        rows.sort_unstable();
        rows.dedup();
        // More rows never take less time, even where slower instructions are said to take over
        // early.
        let mut slowest = Seconds::ZERO;
        let rising = rows.into_iter().map(|m| {
            slowest = slowest.max(time(m));
            (m, slowest)
        });
        GemmRates::by_rows(source, SIDE, rising)
    }
}

/// One instruction set with its rates.
struct ComputePath<'a> {
    instructions: InstructionSet,
    ceilings: &'a SheetRates,
    /// With many rows, for all cores in use.
    rate: FlopPerSec,
}

impl ComputePath<'_> {
    fn share(&self, m: u64) -> f64 {
        self.ceilings.by_rows.as_ref().map_or(1.0, |rows| rows.at(m))
    }
}

impl SheetRates {
    /// The rate of long products with streamed weights: as given, or a documented share of the
    /// peak.
    pub fn streamed_rate(&self, instructions: InstructionSet) -> FlopPerSec {
        let share = match instructions {
            InstructionSet::Amx => OF_PEAK_TILES,
            InstructionSet::Avx2 | InstructionSet::Avx512 | InstructionSet::Sve2 | InstructionSet::Neon => {
                OF_PEAK_VECTORS
            }
        };
        self.streamed.as_ref().map_or(self.resident.value * share, |streamed| streamed.value)
    }
}

/// One fork-join of `cores` cores: threads wait for each other at a counter, which moves from core
/// to core. The first two numbers are from small models that llama.cpp decodes with 8 cores. The
/// third is a prior; fits of two published systems with 32 cores and more (`int4-on-cpus`,
/// `sglang-cpu`) say 13 us.
fn fork_join(cores: u64) -> Sourced<Seconds> {
    const FIRST: f64 = 1e-6;
    const EACH: f64 = 0.3e-6;
    const MOST: f64 = 10e-6;
    let time = Seconds::new((FIRST + EACH * cores as f64).min(MOST));
    let reason = format!("a fork-join of {cores} cores; measure it with `fulcrum bench`");
    Sourced::estimated(time, &reason)
}

/// The power of a waiting CPU, where only its busy power is known.
fn waiting(power: &Sourced<Watts>) -> Sourced<Watts> {
    let reason = format!(
        "{:.0} % of {}: uncore, memory controllers and cores that spin for a while; measure it",
        OF_POWER_WAITING * 100.0,
        power.value
    );
    Sourced { value: power.value * OF_POWER_WAITING, source: Provenance::Estimated { reason } }
}

/// The source of a number that is `sockets` times another.
fn times(sockets: u64, value: &str, source: &Provenance) -> Provenance {
    if sockets == 1 {
        return source.clone();
    }
    Provenance::Estimated { reason: format!("{sockets} × {value} ({source})") }
}
