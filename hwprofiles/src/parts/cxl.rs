//! Memory behind CXL.

use crate::files::Refusal;
use crate::machine::{Interleave, Machine, Memory, MemoryDetails, MemoryId, MemoryKind};
use crate::parts::attach::{add_direct_links, add_links};
use crate::parts::link::LinkPart;
use crate::rates::LoadCurve;
use crate::units::{Bytes, BytesPerSec, Dollars, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// Memory behind CXL, which the host's cores read in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CxlPart {
    /// Its name, the first key of the file.
    pub cxl: String,
    /// A note for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How much it holds.
    #[serde(deserialize_with = "crate::units::checked")]
    pub capacity: Sourced<Bytes>,
    /// Read bandwidth.
    #[serde(deserialize_with = "crate::units::checked")]
    pub read: Sourced<BytesPerSec>,
    /// Write bandwidth. Where it is absent, links use the read bandwidth and say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub write: Option<Sourced<BytesPerSec>>,
    /// Load-to-use latency without other traffic.
    #[serde(deserialize_with = "crate::units::checked")]
    pub latency: Sourced<Seconds>,
    /// Latency under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<LoadCurve>,
    /// Price per GB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub price_per_gb: Option<Sourced<Dollars>>,
}

/// The latency where none is stated: the middle of the 140 to 410 ns of four devices,
/// Melody, ASPLOS 2025.
const USUAL_LATENCY: Seconds = Seconds::new(275e-9);

impl CxlPart {
    /// Memory that is said by its size, its bandwidth, and its latency where that is known:
    /// `1 TB, 200 GB/s` or `1 TB, 200 GB/s, 300 ns`. `None` for a name.
    pub(crate) fn stated(text: &str) -> Option<Self> {
        let said = "as stated by the person asking";
        let mut words = text.split(',').map(str::trim);
        let capacity: Bytes = words.next()?.parse().ok().filter(|size| *size > Bytes::ZERO)?;
        let read: BytesPerSec = words.next()?.parse().ok().filter(|rate| *rate > BytesPerSec::new(0.0))?;
        let latency = match words.next() {
            Some(latency) => Sourced::estimated(latency.parse().ok()?, said),
            None => Sourced::estimated(USUAL_LATENCY, "the middle of four devices, Melody, ASPLOS 2025"),
        };
        let (capacity, read) = (Sourced::estimated(capacity, said), Sourced::estimated(read, said));
        let part = Self {
            cxl: text.to_owned(),
            note: None,
            capacity,
            read,
            write: None,
            latency,
            loaded: None,
            price_per_gb: None,
        };
        words.next().is_none().then_some(part)
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.loaded
            .as_ref()
            .map_or(Ok(()), |loaded| loaded.check().map_err(|refusal| refusal.under("loaded")))
    }
}

/// CXL expanders of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct CxlExpanders {
    /// One of them.
    pub part: CxlPart,
    /// How many. Their pages are interleaved.
    pub count: u64,
    /// How pages alternate between DRAM and theirs in stripes over both; as suits both rates where
    /// absent.
    pub interleave: Option<Interleave>,
}

impl CxlExpanders {
    pub(crate) fn add_to(&self, machine: &mut Machine) {
        let (part, count) = (&self.part, self.count);
        let all = |rate: &Sourced<BytesPerSec>| match count {
            1 => rate.clone(),
            _ => {
                let reason = format!("{count} × {} interleaved ({})", rate.value, rate.source);
                Sourced::estimated(rate.value * count as f64, &reason)
            }
        };
        let capacity = match count {
            1 => part.capacity.clone(),
            _ => {
                let reason = format!("{count} × {} ({})", part.capacity.value, part.capacity.source);
                Sourced::estimated(part.capacity.value * count, &reason)
            }
        };
        let (read, write) = (all(&part.read), part.write.as_ref().map(all));
        let id = MemoryId(machine.memories.len());
        machine.memories.push(Memory {
            name: "cxl".to_owned(),
            kind: MemoryKind::Cxl,
            capacity,
            bandwidth: read.clone(),
            latency: Some(part.latency.clone()),
            within: None,
            stripes: vec![],
            price_per_gb: part.price_per_gb.clone(),
            details: MemoryDetails {
                peak: None,
                reached: None,
                write: write.clone(),
                loaded: part.loaded.clone(),
                interleave: self.interleave,
            },
        });
        let unknown = || {
            let reason = format!("as its reads, {}: its writes are not known", read.value);
            Sourced::estimated(read.value, &reason)
        };
        let link = LinkPart::new("cxl", part.latency.clone(), write.unwrap_or_else(unknown), read.clone());
        add_links("cxl", id, &link, machine);
    }
}

impl Machine {
    /// The machine with one more CXL expander. Its pages are interleaved with those of the
    /// expanders that are there. `None` where the first memory is not DRAM.
    pub fn with_expander(&self, part: &CxlPart) -> Option<Self> {
        let mut machine = self.clone();
        machine.memories.first().filter(|memory| memory.kind == MemoryKind::Dram)?;
        let Some(cxl) = machine.memories.iter().position(|memory| memory.kind == MemoryKind::Cxl) else {
            let name = "cxl";
            if machine.memory_named(name).is_some() {
                return None;
            }
            CxlExpanders { part: part.clone(), count: 1, interleave: None }.add_to(&mut machine);
            add_direct_links(name, &mut machine);
            machine.stripe_over_cxl(None).ok()?;
            return Some(machine);
        };
        let memory = &mut machine.memories[cxl];
        let cxl = MemoryId(cxl);
        memory.capacity.value += part.capacity.value;
        memory.bandwidth.value += part.read.value;
        let written = part.write.as_ref().unwrap_or(&part.read).value;
        // Links to the host carry more. Links over another link's wire carry as much more as that
        // wire lets through.
        let wires: Vec<_> =
            machine.links.iter().map(|l| l.wire.map(|w| machine.link(w).bandwidth.value)).collect();
        for (link, wire) in machine.links.iter_mut().zip(wires) {
            let added = match (link.from == cxl, link.to == cxl) {
                (true, _) => part.read.value,
                (_, true) => written,
                _ => continue,
            };
            let rate = link.bandwidth.value + added;
            link.bandwidth.value = wire.map_or(rate, |wire| rate.min(wire).max(link.bandwidth.value));
        }
        machine.stripe_over_cxl(machine.memory(cxl).details.interleave).ok()?;
        Some(machine)
    }
}
