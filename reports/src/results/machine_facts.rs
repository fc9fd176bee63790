//! The facts behind a prediction: every rate of a machine and its source.

use hwprofiles::{
    AttentionRates, DType, Device, Flop, GemmPoint, GemmRates, Link, Machine, Memory, Provenance, Sourced,
};
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// A number, or a summary of a table of numbers, of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// The name of the device, memory or link.
    pub part: String,
    /// What the number measures.
    pub quantity: String,
    /// The number with its unit, or a summary of the table.
    pub value: String,
    /// The source of the number.
    pub source: Provenance,
}

/// All facts about `machine`: devices, memories and links, in the order of its file.
pub fn machine_facts(machine: &Machine) -> Vec<Fact> {
    let name = |id: hwprofiles::MemoryId| machine.memory(id).name.as_str();
    let devices = machine.devices.iter().flat_map(|it| device(it, name(it.memory)));
    let memories = machine.memories.iter().flat_map(memory);
    let links = machine.links.iter().flat_map(|it| link(it, name(it.from), name(it.to)));
    devices.chain(memories).chain(links).collect()
}

/// The facts about one device, memory or link.
struct PartFacts(String, Vec<Fact>);

impl PartFacts {
    fn one<T: Display>(&mut self, quantity: &str, number: &Sourced<T>) {
        self.table(quantity, number.value.to_string(), &number.source);
    }

    fn table(&mut self, quantity: &str, value: String, source: &Provenance) {
        let (part, quantity) = (self.0.clone(), quantity.to_owned());
        self.1.push(Fact { part, quantity, value, source: source.clone() });
    }
}

fn device(device: &Device, memory: &str) -> Vec<Fact> {
    let mut facts = PartFacts(format!("device {} (reads {memory})", device.name), Vec::new());
    facts.one("start of an operator", &device.launch);
    device.issue.iter().for_each(|issue| facts.one("issue of a kernel by the host", issue));
    facts.one("hand-over from another device", &device.sync);
    for (dtype, rates) in &device.gemm {
        facts.table(&format!("matrix products, {dtype} weights"), gemm_summary(rates), &rates.source);
    }
    for (dtype, rates) in &device.attention {
        facts.table(&format!("attention, {dtype} KV"), attention_summary(*dtype, rates), &rates.source);
    }
    facts.one("norms and additions", &device.elementwise);
    device.power.iter().for_each(|power| facts.one("power when busy", power));
    facts.1
}

fn memory(memory: &Memory) -> Vec<Fact> {
    let mut facts = PartFacts(format!("memory {}", memory.name), Vec::new());
    facts.one("capacity", &memory.capacity);
    facts.one("bandwidth", &memory.bandwidth);
    memory.latency.iter().for_each(|latency| facts.one("latency", latency));
    facts.1
}

fn link(link: &Link, from: &str, to: &str) -> Vec<Fact> {
    let mut facts = PartFacts(format!("link {} ({from} to {to})", link.name), Vec::new());
    facts.one("latency α", &link.latency);
    facts.one("bandwidth β", &link.bandwidth);
    facts.1
}

fn gemm_summary(rates: &GemmRates) -> String {
    let rate = |p: &GemmPoint| Flop::new(2 * u128::from(p.m) * u128::from(p.n) * u128::from(p.k)) / p.time;
    let best = rates.points().iter().map(rate).max_by(|a, b| a.total_cmp(b));
    best.map_or("no points".to_owned(), |best| format!("{} shapes, up to {best}", rates.points().len()))
}

fn attention_summary(kv: DType, rates: &AttentionRates) -> String {
    let word = |rate: Option<String>| rate.unwrap_or("unknown".to_owned());
    let read = word(rates.best_read(kv).map(|rate| rate.to_string()));
    let computed = word(rates.best_rate().map(|rate| rate.to_string()));
    format!("decode reads up to {read}, prefill up to {computed}")
}
