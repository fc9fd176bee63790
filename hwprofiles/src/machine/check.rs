//! What is suspicious about a machine whose file reads without errors.
//!
//! The reader refuses what is impossible. This lists what is unlikely, and what a plan will miss.

use crate::files::hexadecimal;
use crate::machine::device::Device;
use crate::machine::graph::Machine;
use crate::machine::link::Link;
use crate::machine::memory::MemoryId;
use crate::rates::{GemmPoint, GemmRates};
use crate::units::{BytesPerSec, Provenance, Ratio, Seconds};
use sha2::{Digest, Sha256};
use std::fmt;

/// Spread of samples above which a measurement is called noisy.
const NOISY: f64 = 0.10;

/// A rate may exceed its limit by this factor before it is called impossible, because measurements
/// scatter.
const TOLERANCE: f64 = 1.10;

/// Something suspicious.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The path of the key in the machine's file.
    pub key: String,
    /// What is suspicious and what to do about it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl Machine {
    /// The first 16 hexadecimal digits of the SHA-256 of the machine's file as [`Machine::to_yaml`]
    /// writes it. A plan records which machine it was made for by this.
    pub fn fingerprint(&self) -> String {
        let digest = Sha256::digest(self.to_yaml().as_bytes());
        hexadecimal(&digest[..8])
    }

    /// Everything suspicious, in the order of the file; empty for a sound machine.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = Findings(Vec::new());
        for device in &self.devices {
            self.check_device(device, &mut findings);
        }
        for id in self.memory_ids() {
            self.check_memory(id, &mut findings);
        }
        for link in &self.links {
            let key = format!("links.{}", link.name);
            check_details(link, &key, &mut findings);
            findings.noise(&format!("{key}.latency"), &link.latency.source);
            findings.noise(&format!("{key}.bandwidth"), &link.bandwidth.source);
            if self.link_between(link.to, link.from).is_none() {
                findings.add(&key, "there is no link back: add the other direction".to_owned());
            }
            if let Some(wire) = link.wire.map(|wire| self.link(wire))
                && link.bandwidth.value > wire.bandwidth.value
            {
                let (rate, limit) = (link.bandwidth.value, wire.bandwidth.value);
                let message =
                    format!("{rate} is more than the {limit} of '{}', whose wire it shares", wire.name);
                findings.add(&format!("{key}.bandwidth"), message);
            }
            for end in [link.from, link.to] {
                let memory = self.memory(end);
                if link.bandwidth.value > memory.bandwidth.value * TOLERANCE {
                    let (rate, limit) = (link.bandwidth.value, memory.bandwidth.value);
                    let message = format!("{rate} is more than the {limit} of '{}' at its end", memory.name);
                    findings.add(&format!("{key}.bandwidth"), message);
                }
            }
        }
        findings.0
    }

    fn check_device(&self, device: &Device, findings: &mut Findings) {
        let key = format!("devices.{}", device.name);
        let limit = self.memory(device.memory).bandwidth.value;
        findings.noise(&format!("{key}.launch"), &device.launch.source);
        findings.noise(&format!("{key}.sync"), &device.sync.source);
        findings.noise(&format!("{key}.elementwise"), &device.elementwise.source);
        if device.gemm.is_empty() {
            findings.add(&format!("{key}.gemm"), "there is no rate: no plan can use this device".to_owned());
        }
        if device.attention.is_empty() {
            let message = "there is no rate: no plan can put attention on this device".to_owned();
            findings.add(&format!("{key}.attention"), message);
        }
        check_ceilings(device, &key, findings);
        for (dtype, rates) in &device.gemm {
            let key = format!("{key}.gemm.{dtype}");
            findings.noise(&key, &rates.source);
            // A fit smooths disturbed points, and it knows the cache that small operands lie in.
            if rates.surface().is_some() {
                continue;
            }
            if let Some((a, b)) = falling(rates) {
                let message = format!(
                    "n = {}, k = {}: m = {} takes {}, but m = {} only {}: measure again on a quiet machine",
                    a.n, a.k, a.m, a.time, b.m, b.time
                );
                findings.add(&key, message);
            }
            findings.too_fast(&key, rates.best_read(*dtype), limit);
        }
        for (dtype, rates) in &device.attention {
            let key = format!("{key}.attention.{dtype}");
            findings.noise(&key, &rates.source);
            if rates.surface().is_none() {
                findings.too_fast(&key, rates.best_read(*dtype), limit);
            }
        }
    }

    fn check_memory(&self, id: MemoryId, findings: &mut Findings) {
        let memory = self.memory(id);
        let key = format!("memories.{}", memory.name);
        findings.noise(&format!("{key}.bandwidth"), &memory.bandwidth.source);
        let used = self.devices.iter().any(|d| d.memory == id || d.reads.contains(&id))
            || self.links.iter().any(|link| link.from == id || link.to == id);
        if !used {
            findings.add(&key, "no device owns it and no link reaches it: add a link".to_owned());
        }
        if let Some(outer) = memory.within.map(|outer| self.memory(outer))
            && memory.bandwidth.value > outer.bandwidth.value * TOLERANCE
        {
            let (rate, limit) = (memory.bandwidth.value, outer.bandwidth.value);
            let message = format!("{rate} is more than the {limit} of '{}', in which it lies", outer.name);
            findings.add(&format!("{key}.bandwidth"), message);
        }
    }
}

/// Operands from farther away are not multiplied faster.
fn check_ceilings(device: &Device, key: &str, findings: &mut Findings) {
    for (dtype, by_instructions) in &device.details.ceilings {
        for (instructions, rates) in by_instructions {
            let named =
                [("resident", &rates.resident), ("cached", &rates.cached), ("streamed", &rates.streamed)];
            let known: Vec<_> = named.iter().filter_map(|(n, r)| Some((n, r.as_ref()?.value))).collect();
            for pair in known.windows(2) {
                let ((nearer, near), (farther, far)) = (pair[0], pair[1]);
                if far > near * TOLERANCE {
                    let key = format!("{key}.details.ceilings.{dtype}.{instructions}.{farther}");
                    findings.add(&key, format!("{far} is more than the {near} of {nearer} operands"));
                }
            }
        }
    }
}

/// The details of a link agree with its bandwidth β.
fn check_details(link: &Link, key: &str, findings: &mut Findings) {
    let (near, details) = (link.bandwidth.value, &link.details);
    for (name, rate) in [("far", &details.far), ("pageable", &details.pageable)] {
        if let Some(rate) = rate.as_ref().map(|rate| rate.value).filter(|&rate| rate > near * TOLERANCE) {
            let message = format!("{rate} is more than the {near} of page-locked memory on the near socket");
            findings.add(&format!("{key}.details.{name}"), message);
        }
    }
    if let Some(raw) = details.raw.as_ref().map(|raw| raw.value).filter(|&raw| near > raw) {
        findings.add(&format!("{key}.bandwidth"), format!("{near} is more than the {raw} on the wire"));
    }
    if let Some(share) = details.duplex.as_ref().map(|share| share.value).filter(|&s| s > Ratio::ONE) {
        let message = format!("{share} is above 1: opposing traffic never makes a link faster");
        findings.add(&format!("{key}.details.duplex"), message);
    }
    let mut points: Vec<_> = details.times.iter().flat_map(|times| &times.points).collect();
    points.sort_by_key(|point| point.size);
    if let Some(pair) = points.windows(2).find(|pair| pair[0].value > pair[1].value * TOLERANCE) {
        let (a, b) = (pair[0], pair[1]);
        let message = format!(
            "{} takes {}, but {} only {}: measure again on a quiet machine",
            a.size, a.value, b.size, b.value
        );
        findings.add(&format!("{key}.details.times"), message);
    }
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, key: &str, message: String) {
        self.0.push(Finding { key: key.to_owned(), message });
    }

    fn noise(&mut self, key: &str, source: &Provenance) {
        if let Provenance::Measured { spread, .. } = source
            && *spread > NOISY
        {
            let message =
                format!("the samples spread by {:.0} %: measure again on a quiet machine", spread * 100.0);
            self.add(key, message);
        }
    }

    fn too_fast(&mut self, key: &str, fastest: Option<BytesPerSec>, limit: BytesPerSec) {
        let fastest = fastest.unwrap_or(BytesPerSec::ZERO);
        if fastest > limit * TOLERANCE {
            let message =
                format!("reads {fastest}, more than its memory's {limit}: some of it lay in a cache");
            self.add(key, message);
        }
    }
}

/// Two points of one shape where the one with more rows is faster by more than measurements
/// scatter.
fn falling(rates: &GemmRates) -> Option<(&GemmPoint, &GemmPoint)> {
    let slower = |a: &GemmPoint, b: &GemmPoint| {
        (a.n, a.k) == (b.n, b.k) && a.m < b.m && a.time > b.time * TOLERANCE && b.time > Seconds::ZERO
    };
    rates.points().iter().find_map(|a| rates.points().iter().find(|b| slower(a, b)).map(|b| (a, b)))
}
