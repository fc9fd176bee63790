//! A machine as a table of at most 80 columns.

use crate::machine::device::{CeilingRates, Device};
use crate::machine::footnotes::{Footnotes, paragraph};
use crate::machine::graph::Machine;
use crate::machine::link::Link;
use crate::machine::memory::Memory;
use crate::rates::{AttentionRates, GemmRates};
use crate::units::{DType, FlopPerSec, Sourced};
use std::fmt::{self, Display};

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut notes = Footnotes::default();
        writeln!(f, "{}  [{}]", self.name, self.fingerprint())?;
        if let Some(note) = &self.note {
            writeln!(f, "{}", paragraph("", note, 0))?;
        }
        f.write_str(&self.assumptions())?;
        for device in &self.devices {
            self.fmt_device(device, &mut notes, f)?;
        }
        let heads = ["memory", "kind", "capacity", "bandwidth", "latency"];
        writeln!(
            f,
            "\n{:<16} {:<9} {:>10} {:>11} {:>9}  from",
            heads[0], heads[1], heads[2], heads[3], heads[4]
        )?;
        for memory in &self.memories {
            self.fmt_memory(memory, &mut notes, f)?;
        }
        if !self.links.is_empty() {
            writeln!(f, "\n{:<26} {:>11} {:>11}  from", "link", "latency", "bandwidth")?;
        }
        for link in &self.links {
            let wire = link.wire.map(|wire| self.link(wire).name.as_str());
            fmt_link(link, wire, &mut notes, f)?;
        }
        write!(f, "\n{notes}")
    }
}

impl Machine {
    /// What is assumed of the machine, in lines of at most 80 columns; empty where nothing is.
    pub fn assumptions(&self) -> String {
        match &self.assumed[..] {
            [] => String::new(),
            assumed => paragraph("assumed: ", &assumed.join("; "), 2) + "\n",
        }
    }

    fn fmt_device(&self, device: &Device, notes: &mut Footnotes, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = device.kind.name();
        let memory = shortened(&self.memory(device.memory).name, 20);
        writeln!(f, "\ndevice {} ({kind}, memory {memory}, {})", shortened(&device.name, 20), cores(device))?;
        let mut facts = vec![
            fact("launch", &device.launch, notes),
            fact("sync", &device.sync, notes),
            fact("elementwise", &device.elementwise, notes),
        ];
        facts.extend(device.issue.as_ref().map(|issue| fact("issue of a kernel", issue, notes)));
        if !device.reads.is_empty() {
            let names: Vec<_> = device.reads.iter().map(|&id| shortened(&self.memory(id).name, 20)).collect();
            facts.push(format!("reads {} in place", names.join(" and ")));
        }
        facts.extend(device.power.as_ref().map(|power| fact("power", power, notes)));
        facts.extend(device.idle_power.as_ref().map(|power| fact("idle power", power, notes)));
        facts.extend(device.price.as_ref().map(|price| fact("price", price, notes)));
        facts.extend(device.details.lifetime.as_ref().map(|years| fact("lifetime", years, notes)));
        writeln!(f, "{}", paragraph("  ", &facts.join(", "), 4))?;
        if !device.gemm.is_empty() {
            writeln!(f, "  {:<6} {:>22} {:>24} {:>7}  from", "gemm", "weights read", "rate", "points")?;
        }
        for (dtype, rates) in &device.gemm {
            fmt_gemm(*dtype, rates, notes, f)?;
        }
        if !device.attention.is_empty() {
            writeln!(f, "  {:<6} {:>22} {:>24} {:>7}  from", "kv", "decode reads", "prefill rate", "points")?;
        }
        for (dtype, rates) in &device.attention {
            fmt_attention(*dtype, rates, notes, f)?;
        }
        fmt_ceilings(device, notes, f)
    }

    fn fmt_memory(&self, memory: &Memory, notes: &mut Footnotes, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = memory.kind.name();
        let latency = memory.latency.as_ref().map_or("-".to_owned(), |l| l.value.to_string());
        let (capacity, bandwidth) = (memory.capacity.value, memory.bandwidth.value);
        let name = shortened(&memory.name, 16);
        let source = notes.cite(&memory.bandwidth.source);
        writeln!(f, "{name:<16} {kind:<9} {capacity:>10} {bandwidth:>11} {latency:>9}  {source}")?;
        let mut facts = Vec::new();
        if memory.capacity.source != memory.bandwidth.source {
            facts.push(fact("capacity", &memory.capacity, notes));
        }
        if let Some(latency) = &memory.latency
            && latency.source != memory.bandwidth.source
        {
            facts.push(fact("latency", latency, notes));
        }
        facts
            .extend(memory.within.map(|outer| format!("within {}", shortened(&self.memory(outer).name, 60))));
        facts.extend(memory.details.write.as_ref().map(|write| fact("writes", write, notes)));
        facts.extend(memory.price_per_gb.as_ref().map(|price| fact("price per GB", price, notes)));
        if let Some(loaded) = &memory.details.loaded
            && let Some(busiest) = loaded.points.last()
        {
            let (latency, utilisation) = (busiest.latency, busiest.utilisation);
            facts.push(format!(
                "latency {latency} at {utilisation} of the bandwidth {}",
                notes.mark(&loaded.source)
            ));
        }
        fmt_facts(&facts, f)
    }
}

/// The best rates of a table: reading weights with the fewest rows, and computing with the most.
fn fmt_gemm(
    dtype: DType,
    rates: &GemmRates,
    notes: &mut Footnotes,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let fewest = rates.points().iter().map(|p| p.m).min().unwrap_or(0);
    let most = rates.points().iter().map(|p| p.m).max().unwrap_or(0);
    let reads = rates.best_read(dtype).unwrap_or_default();
    let computes = rates.fastest().map(|rate| rate.value).unwrap_or_default();
    let (reads, computes) = (format!("{reads} (m = {fewest})"), format!("{computes} (m = {most})"));
    let (points, source) = (rates.points().len(), notes.cite(&rates.source));
    writeln!(f, "  {dtype:<6} {reads:>22} {computes:>24} {points:>7}  {source}")
}

fn fmt_attention(
    dtype: DType,
    rates: &AttentionRates,
    notes: &mut Footnotes,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let (decode, prefill) =
        (rates.best_read(dtype).unwrap_or_default(), rates.best_rate().unwrap_or_default());
    let (points, source) = (rates.points().len(), notes.cite(&rates.source));
    writeln!(f, "  {dtype:<6} {decode:>22} {prefill:>24} {points:>7}  {source}")
}

/// Three ceilings by instruction set and format.
fn fmt_ceilings(device: &Device, notes: &mut Footnotes, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if !device.details.ceilings.is_empty() {
        writeln!(f, "  {:<13} {:>19} {:>19} {:>19}", "ceiling", "in registers", "in caches", "streamed")?;
    }
    for (dtype, by_instructions) in &device.details.ceilings {
        for (instructions, CeilingRates { resident, cached, streamed }) in by_instructions {
            let mut rate = |rate: &Option<Sourced<FlopPerSec>>| {
                let cited =
                    |rate: &Sourced<FlopPerSec>| format!("{} {}", rate.value, notes.mark(&rate.source));
                rate.as_ref().map_or("-".to_owned(), cited)
            };
            let (resident, cached, streamed) = (rate(resident), rate(cached), rate(streamed));
            writeln!(f, "  {dtype:<6} {instructions:<6} {resident:>19} {cached:>19} {streamed:>19}")?;
        }
    }
    for (dtype, rows) in &device.details.crossover {
        let mark = notes.mark(&rows.source);
        writeln!(f, "  {dtype:<6} the wider instructions are faster from {} rows on {mark}", rows.value)?;
    }
    Ok(())
}

fn fmt_link(
    link: &Link,
    wire: Option<&str>,
    notes: &mut Footnotes,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let (name, source) = (shortened(&link.name, 26), notes.cite(&link.bandwidth.source));
    writeln!(f, "{name:<26} {:>11} {:>11}  {source}", link.latency.value, link.bandwidth.value)?;
    let mut facts = Vec::new();
    if link.latency.source != link.bandwidth.source {
        facts.push(fact("latency", &link.latency, notes));
    }
    facts.extend(wire.map(|wire| format!("over the wire of {}", shortened(wire, 26))));
    let details = &link.details;
    facts.extend(details.raw.as_ref().map(|raw| fact("on the wire", raw, notes)));
    facts.extend(
        details
            .times
            .as_ref()
            .map(|times| format!("{} measured times {}", times.points.len(), notes.mark(&times.source))),
    );
    facts.extend(details.pageable.as_ref().map(|rate| fact("pageable memory", rate, notes)));
    facts.extend(details.far.as_ref().map(|rate| fact("far socket", rate, notes)));
    facts.extend(details.duplex.as_ref().map(|share| fact("share against opposing traffic", share, notes)));
    facts.extend(details.dram_traffic.as_ref().map(|bytes| fact("bytes of dram per byte", bytes, notes)));
    fmt_facts(&facts, f)
}

fn fact<T: Display>(what: &str, number: &Sourced<T>, notes: &mut Footnotes) -> String {
    format!("{what} {} {}", number.value, notes.mark(&number.source))
}

fn fmt_facts(facts: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match facts {
        [] => Ok(()),
        facts => writeln!(f, "{}", paragraph("  ", &facts.join(", "), 4)),
    }
}

fn cores(device: &Device) -> String {
    match device.cores.as_slice() {
        [] => "no host core".to_owned(),
        [one] => format!("core {one}"),
        many => format!("{} cores", many.len()),
    }
}

/// A name, cut to its column.
pub(crate) fn shortened(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width - 1).chain(['…']).collect()
}
