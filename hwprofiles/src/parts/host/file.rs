//! A measured host: what `fulcrum bench` writes, before it is composed into a [`crate::Machine`].
//!
//! Cores are measured in *teams* of 1, 2, … up to all threads. If a composition lends one core to a
//! loopback device, the cpu device has the rates of the team of the remaining cores, and the
//! loopback device those of the team of one.

use crate::files::{FileError, Presence, Refusal, yaml};
use crate::parts::cxl::CxlPart;
use crate::parts::host::ceilings::{Crossover, MeasuredCeilings};
use crate::parts::host::dram::{Dram, StreamCurve};
use crate::parts::host::measured_gpu::MeasuredGpu;
use crate::parts::host::numa::Numa;
use crate::rates::{AttentionRates, GemmRates};
use crate::units::{BytesPerSec, DType, Hertz, Seconds, Sourced};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A host as it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name, the first key of the file: it tells a host file from the other kinds.
    pub host: String,
    /// Its processor.
    pub cpu: Processor,
    /// Its main memory.
    pub dram: Dram,
    /// The memory by nodes, where the system tells them.
    #[serde(default)]
    pub numa: Presence<Numa>,
    /// The rates of teams of its cores, by ascending size.
    pub teams: Vec<CoreTeam>,
    /// A second device that one core plays, where there are two cores.
    #[serde(default)]
    pub loopback: Presence<Loopback>,
    /// The GPU and the link to it, where there is one that was measured.
    #[serde(default)]
    pub gpu: Presence<MeasuredGpu>,
    /// Memory behind CXL.
    #[serde(default)]
    pub cxl: Presence<CxlPart>,
}

/// Which processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// As it calls itself.
    pub model: String,
    /// Operating-system numbers of the cores that the process may use, ascending, one per physical
    /// core.
    pub cores: Vec<usize>,
    /// The instruction sets that kernels may use here: `avx2`, `avx512f`, `avx512_bf16`,
    /// `amx_bf16`, …
    #[serde(default)]
    pub features: Vec<String>,
}

/// The rates of `threads` pinned cores together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreTeam {
    /// How many.
    #[serde(deserialize_with = "crate::units::checked")]
    pub threads: usize,
    /// Clock of the cores while all of them are busy with scalar arithmetic; vector units may lower
    /// it.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub frequency: Presence<Sourced<Hertz>>,
    /// The kernels that its rates were measured with: `avx2`, `avx512`, `avx512-bf16`, `amx`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// One fork-join of the team (one call of an empty operator).
    pub launch: Sourced<Seconds>,
    /// Matrix products by weight format, weights streamed from DRAM, launch not included.
    #[serde(default)]
    pub gemm: BTreeMap<DType, GemmRates>,
    /// The ceilings of matrix products by weight format and instruction set (`avx2`, `avx512`,
    /// `amx`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ceilings: BTreeMap<DType, BTreeMap<String, MeasuredCeilings>>,
    /// The number of rows from which another instruction set is faster, by weight format, where
    /// there are two.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub crossover: BTreeMap<DType, Crossover>,
    /// Attention by KV format, launch not included.
    #[serde(default)]
    pub attention: BTreeMap<DType, AttentionRates>,
    /// Activation bytes read and written per second by norms, activations and additions.
    #[serde(deserialize_with = "crate::units::checked")]
    pub elementwise: Sourced<BytesPerSec>,
}

/// The loopback device's link and wake-up, as measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loopback {
    /// The time from one device's completion until the other one, which waits, runs.
    pub sync: Sourced<Seconds>,
    /// α of a copy between the two memories.
    pub latency: Sourced<Seconds>,
    /// The highest rate of the copy without a limit.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: Sourced<BytesPerSec>,
}

impl Host {
    /// Reads a host file. `file` is its name in messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let host: Self = yaml::read(text, file)?;
        let refuse = |path: &[&str], message: &str| Err(yaml::refuse(text, file, path, message.to_owned()));
        if host.cpu.cores.is_empty() {
            return refuse(&["cpu", "cores"], "the list is empty: name at least one core, as [0]");
        }
        for (i, core) in host.cpu.cores.iter().enumerate() {
            if host.cpu.cores[..i].contains(core) {
                return refuse(&["cpu", "cores"], &format!("core {core} is named twice: keep one"));
            }
        }
        if host.teams.is_empty() {
            return refuse(&["teams"], "the list is empty: at least a team of one thread is needed");
        }
        for (i, team) in host.teams.iter().enumerate() {
            if host.teams[..i].iter().any(|other| other.threads == team.threads) {
                let message = format!("there are two teams of {} threads: keep one", team.threads);
                return refuse(&["teams", &i.to_string(), "threads"], &message);
            }
        }
        for (i, curve) in host.dram.bandwidth.iter().enumerate() {
            let same = |other: &StreamCurve| (other.stream, other.threads) == (curve.stream, curve.threads);
            if host.dram.bandwidth[..i].iter().any(same) {
                let message = format!("this stream by {} threads was given before: keep one", curve.threads);
                return refuse(&["dram", "bandwidth", &i.to_string()], &message);
            }
        }
        if host.dram.read_bandwidth().is_none() {
            return refuse(
                &["dram", "bandwidth"],
                "there is no `stream: read`: measure it with `fulcrum bench`",
            );
        }
        if let Some((keys, message)) = host.numa.as_option().and_then(Numa::first_fault) {
            let keys: Vec<&str> = ["numa"].into_iter().chain(keys.iter().map(String::as_str)).collect();
            return refuse(&keys, &message);
        }
        host.check_parts().map_err(|refusal| refusal.located(text, file))?;
        Ok(host)
    }

    /// Checks the rules between the keys of its parts, as those of parts in files of their own.
    fn check_parts(&self) -> Result<(), Refusal> {
        if let Some(gpu) = self.gpu.as_option() {
            gpu.part.check().map_err(|refusal| refusal.under("part").under("gpu"))?;
            gpu.link.check().map_err(|refusal| refusal.under("link").under("gpu"))?;
        }
        self.cxl.as_option().map_or(Ok(()), |cxl| cxl.check().map_err(|refusal| refusal.under("cxl")))
    }

    /// Writes a host file: [`Host::from_yaml`] reads the same host back.
    pub fn to_yaml(&self) -> String {
        yaml::write(self)
    }

    /// The team of exactly this many threads.
    pub fn team(&self, threads: usize) -> Option<&CoreTeam> {
        self.teams.iter().find(|t| t.threads == threads)
    }

    /// The most bandwidth that products of one row use when all cores take part, over the measured
    /// formats and shapes. A stream that only reads uses more.
    pub fn product_bandwidth(&self) -> Option<Sourced<BytesPerSec>> {
        let team = self.team(self.cpu.cores.len())?;
        let drawn = team.gemm.iter().flat_map(|(&dtype, rates)| {
            let rows = rates.points().iter().filter(|point| point.m == 1);
            rows.map(move |p| (dtype.matrix_bytes(p.n, p.k) / p.time, &rates.source))
        });
        let (value, source) = drawn.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        Some(Sourced { value, source: source.clone() })
    }
}
