//! A machine as a file: maps keyed by name, and the rules about names.

use crate::files::{Entries, FileError, Refusal, refuse_if, yaml};
use crate::machine::device::{Device, DeviceDetails, DeviceKind, Ranks};
use crate::machine::graph::Machine;
use crate::machine::link::{Link, LinkDetails, LinkId};
use crate::machine::memory::{Memory, MemoryDetails, MemoryId, MemoryKind, Stripe};
use crate::machine::stripes::MOST_PAGES;
use crate::rates::{AttentionRates, GemmRates};
use crate::units::{Bytes, BytesPerSec, DType, Dollars, Seconds, Sourced, Watts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    machine: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    devices: Entries<DeviceFile>,
    memories: Entries<MemoryFile>,
    #[serde(default)]
    links: Entries<LinkFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile {
    kind: DeviceKind,
    memory: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reads: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cores: Vec<usize>,
    launch: Sourced<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issue: Option<Sourced<Seconds>>,
    sync: Sourced<Seconds>,
    #[serde(deserialize_with = "crate::units::checked")]
    elementwise: Sourced<BytesPerSec>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    gemm: BTreeMap<DType, GemmRates>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attention: BTreeMap<DType, AttentionRates>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    power: Option<Sourced<Watts>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle_power: Option<Sourced<Watts>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    price: Option<Sourced<Dollars>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranks: Option<Ranks>,
    #[serde(default, skip_serializing_if = "is_default")]
    details: DeviceDetails,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryFile {
    pub kind: MemoryKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub capacity: Option<Sourced<Bytes>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub bandwidth: Option<Sourced<BytesPerSec>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Sourced<Seconds>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    #[serde(default, skip_serializing_if = "Entries::is_empty")]
    pub stripes: Entries<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    price_per_gb: Option<Sourced<Dollars>>,
    #[serde(default, skip_serializing_if = "is_default")]
    details: MemoryDetails,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    from: String,
    to: String,
    latency: Sourced<Seconds>,
    #[serde(deserialize_with = "crate::units::checked")]
    bandwidth: Sourced<BytesPerSec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wire: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    details: LinkDetails,
}

/// Details that are all unknown are not written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Machine {
    /// Reads a machine file. `file` is its name in messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let document: MachineFile = yaml::read(text, file)?;
        match document.check() {
            Ok(()) => Ok(document.machine()),
            Err(refusal) => Err(refusal.located(text, file)),
        }
    }

    /// Writes a machine file: [`Machine::from_yaml`] reads the same machine back.
    pub fn to_yaml(&self) -> String {
        yaml::write(&MachineFile::from_machine(self))
    }
}

impl MachineFile {
    fn check(&self) -> Result<(), Refusal> {
        check_name(&["machine"], &self.machine)?;
        check_names("devices", &self.devices, "what computes, as `cpu`")?;
        check_names("memories", &self.memories, "what stores, as `dram`")?;
        self.links.0.iter().try_for_each(|(name, _)| check_name(&["links", name], name))?;
        self.check_devices()?;
        self.check_memories()?;
        self.check_links()
    }

    fn check_devices(&self) -> Result<(), Refusal> {
        let mut owners = BTreeMap::new();
        for (name, device) in &self.devices.0 {
            self.check_memory(&["devices", name, "memory"], &device.memory)?;
            self.check_reads(name, device)?;
            for core in &device.cores {
                if let Some(other) = owners.insert(core, name) {
                    let message =
                        format!("core {core} is already taken by '{other}': give each core to one device");
                    return refuse_if(true, &["devices", name, "cores"], message);
                }
            }
        }
        Ok(())
    }

    fn check_reads(&self, name: &str, device: &DeviceFile) -> Result<(), Refusal> {
        let path = ["devices", name, "memory"];
        let is_striped = |(known, m): &(String, MemoryFile)| *known == device.memory && !m.stripes.is_empty();
        let message = format!("'{}' is striped: a device's buffers are in a memory by itself", device.memory);
        refuse_if(self.memories.0.iter().any(is_striped), &path, message)?;
        for (index, read) in device.reads.iter().enumerate() {
            let index_text = index.to_string();
            let path = ["devices", name, "reads", &index_text];
            self.check_memory(&path, read)?;
            let twice = *read == device.memory || device.reads[..index].contains(read);
            refuse_if(twice, &path, format!("'{read}' is read in place already: name it once"))?;
        }
        Ok(())
    }

    fn check_memories(&self) -> Result<(), Refusal> {
        for (name, memory) in &self.memories.0 {
            check_stripes(&self.memories.0, name, memory)?;
            let path = ["memories", name, "within"];
            if let Some(within) = &memory.within {
                self.check_memory(&path, within)?;
                let striped = self.memories.0.iter().any(|(n, m)| n == within && !m.stripes.is_empty());
                let message = format!("'{within}' is striped: name a memory by itself");
                refuse_if(striped, &path, message)?;
            }
            let (mut outer, mut steps) = (memory.within.as_ref(), 0);
            while let Some(within) = outer {
                steps += 1;
                if within == name || steps > self.memories.0.len() {
                    return refuse_if(
                        true,
                        &path,
                        format!("'{name}' would lie within itself: break the circle"),
                    );
                }
                outer =
                    self.memories.0.iter().find(|(n, _)| n == within).and_then(|(_, m)| m.within.as_ref());
            }
        }
        Ok(())
    }

    fn check_links(&self) -> Result<(), Refusal> {
        let mut seen = BTreeMap::new();
        for (name, link) in &self.links.0 {
            self.check_memory(&["links", name, "from"], &link.from)?;
            self.check_memory(&["links", name, "to"], &link.to)?;
            if link.from == link.to {
                let message = format!("from and to are both '{}': a link joins two memories", link.to);
                return refuse_if(true, &["links", name, "to"], message);
            }
            let striped =
                |end: &String| self.memories.0.iter().any(|(n, m)| n == end && !m.stripes.is_empty());
            let message = "both ends are striped: a link joins a striped memory with another".to_owned();
            refuse_if(striped(&link.from) && striped(&link.to), &["links", name, "to"], message)?;
            if let Some(other) = seen.insert((&link.from, &link.to), name) {
                let message =
                    format!("'{other}' already leads from '{}' to '{}': keep one", link.from, link.to);
                return refuse_if(true, &["links", name], message);
            }
            self.check_wire(name, link)?;
        }
        Ok(())
    }

    fn check_wire(&self, name: &str, link: &LinkFile) -> Result<(), Refusal> {
        let Some(wire) = &link.wire else { return Ok(()) };
        let path = ["links", name, "wire"];
        let Some((_, other)) = self.links.0.iter().find(|(known, _)| known == wire) else {
            let known: Vec<_> = self.links.0.iter().map(|(known, _)| known.as_str()).collect();
            let message = format!("'{wire}' is not a link of this machine: use one of {}", known.join(", "));
            return refuse_if(true, &path, message);
        };
        // This refuses the link itself too, because a link with a wire has no wire of its own.
        let message = format!("'{wire}' has no wire of its own: name the link that it goes over");
        refuse_if(other.wire.is_some(), &path, message)?;
        let shares_no_end = link.from != other.from && link.to != other.to;
        let message = format!("'{wire}' neither begins at '{}' nor ends at '{}'", link.from, link.to);
        refuse_if(shares_no_end, &path, message)
    }

    fn check_memory(&self, path: &[&str], name: &str) -> Result<(), Refusal> {
        let known: Vec<_> = self.memories.0.iter().map(|(known, _)| known.as_str()).collect();
        if known.contains(&name) {
            return Ok(());
        }
        refuse_if(
            true,
            path,
            format!("'{name}' is not a memory of this machine: use one of {}", known.join(", ")),
        )
    }

    /// The machine. All names were checked before.
    fn machine(self) -> Machine {
        let names: Vec<String> = self.memories.0.iter().map(|(name, _)| name.clone()).collect();
        let links: Vec<String> = self.links.0.iter().map(|(name, _)| name.clone()).collect();
        let link_id = |name: &str| LinkId(links.iter().position(|n| n == name).expect("checked before"));
        let id = |name: &str| MemoryId(names.iter().position(|n| n == name).expect("checked before"));
        let device = |(name, d): (String, DeviceFile)| Device {
            name,
            kind: d.kind,
            memory: id(&d.memory),
            reads: d.reads.iter().map(|name| id(name)).collect(),
            cores: d.cores,
            launch: d.launch,
            issue: d.issue,
            sync: d.sync,
            gemm: d.gemm,
            attention: d.attention,
            elementwise: d.elementwise,
            power: d.power,
            idle_power: d.idle_power,
            price: d.price,
            ranks: d.ranks,
            details: d.details,
        };
        let memory = |(name, m): (String, MemoryFile)| Memory {
            name,
            kind: m.kind,
            capacity: m.capacity.unwrap_or_else(unknown),
            bandwidth: m.bandwidth.unwrap_or_else(unknown),
            latency: m.latency,
            within: m.within.as_deref().map(id),
            stripes: m
                .stripes
                .0
                .iter()
                .map(|(name, pages)| Stripe { memory: id(name), pages: *pages })
                .collect(),
            price_per_gb: m.price_per_gb,
            details: m.details,
        };
        let link = |(name, l): (String, LinkFile)| Link {
            name,
            from: id(&l.from),
            to: id(&l.to),
            latency: l.latency,
            bandwidth: l.bandwidth,
            wire: l.wire.as_deref().map(link_id),
            details: l.details,
        };
        let mut machine = Machine {
            name: self.machine,
            note: self.note,
            assumed: vec![],
            devices: self.devices.0.into_iter().map(device).collect(),
            memories: self.memories.0.into_iter().map(memory).collect(),
            links: self.links.0.into_iter().map(link).collect(),
        };
        machine.restripe();
        machine
    }

    fn from_machine(machine: &Machine) -> Self {
        let name = |id: MemoryId| machine.memory(id).name.clone();
        let device = |d: &Device| DeviceFile {
            kind: d.kind,
            memory: name(d.memory),
            reads: d.reads.iter().map(|&id| name(id)).collect(),
            cores: d.cores.clone(),
            launch: d.launch.clone(),
            issue: d.issue.clone(),
            sync: d.sync.clone(),
            elementwise: d.elementwise.clone(),
            gemm: d.gemm.clone(),
            attention: d.attention.clone(),
            power: d.power.clone(),
            idle_power: d.idle_power.clone(),
            price: d.price.clone(),
            ranks: d.ranks.clone(),
            details: d.details.clone(),
        };
        let memory = |m: &Memory| MemoryFile {
            kind: m.kind,
            // What follows from the stripes is not written.
            capacity: m.stripes.is_empty().then(|| m.capacity.clone()),
            bandwidth: m.stripes.is_empty().then(|| m.bandwidth.clone()),
            latency: m.latency.clone().filter(|_| m.stripes.is_empty()),
            within: m.within.map(name),
            stripes: Entries(m.stripes.iter().map(|s| (name(s.memory), s.pages)).collect()),
            price_per_gb: m.price_per_gb.clone(),
            details: m.details.clone(),
        };
        let link = |l: &Link| LinkFile {
            from: name(l.from),
            to: name(l.to),
            latency: l.latency.clone(),
            bandwidth: l.bandwidth.clone(),
            wire: l.wire.map(|id| machine.link(id).name.clone()),
            details: l.details.clone(),
        };
        Self {
            machine: machine.name.clone(),
            note: machine.note.clone(),
            devices: Entries(machine.devices.iter().map(|d| (d.name.clone(), device(d))).collect()),
            memories: Entries(machine.memories.iter().map(|m| (m.name.clone(), memory(m))).collect()),
            links: Entries(machine.links.iter().map(|l| (l.name.clone(), link(l))).collect()),
        }
    }
}

/// A value that [`Machine::restripe`] will replace.
fn unknown<T: Default>() -> Sourced<T> {
    Sourced::estimated(T::default(), "by its stripes")
}

fn check_names<T>(kind: &str, entries: &Entries<T>, wanted: &str) -> Result<(), Refusal> {
    if entries.0.is_empty() {
        return refuse_if(true, &[kind], format!("there is none: name at least one ({wanted})"));
    }
    entries.0.iter().try_for_each(|(name, _)| check_name(&[kind, name], name))
}

fn check_name(path: &[&str], name: &str) -> Result<(), Refusal> {
    if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.+>/".contains(c)) {
        return Ok(());
    }
    refuse_if(true, path, format!("'{name}' is not a name: use letters, digits and any of - _ . + > /"))
}

/// Refuses a memory that is neither plain nor striped over two plain ones.
pub(crate) fn check_stripes(
    memories: &[(String, MemoryFile)],
    name: &str,
    memory: &MemoryFile,
) -> Result<(), Refusal> {
    let at = |key: &str| vec!["memories".to_owned(), name.to_owned(), key.to_owned()];
    let refuse = |wrong: bool, path: Vec<String>, message: String| {
        refuse_if(wrong, &path.iter().map(String::as_str).collect::<Vec<_>>(), message)
    };
    let given = [("capacity", memory.capacity.is_some()), ("bandwidth", memory.bandwidth.is_some())];
    if memory.stripes.is_empty() {
        let example = "`stripes: {dram: 5, cxl: 2}`";
        let message = format!("a striped memory says over which others: add {example}");
        refuse(memory.kind == MemoryKind::Striped, at("kind"), message)?;
        let missing = |(key, given): (&str, bool)| {
            let message = format!("`{key}` is missing: add it, or {example} over others");
            refuse(!given, vec!["memories".to_owned(), name.to_owned()], message)
        };
        return given.into_iter().try_for_each(missing);
    }
    let message = "it lies in others: say `striped`".to_owned();
    refuse(memory.kind != MemoryKind::Striped, at("kind"), message)?;
    let derived = [("latency", memory.latency.is_some()), ("within", memory.within.is_some())];
    for (key, given) in given.into_iter().chain(derived) {
        refuse(given, at(key), "it follows from the stripes: leave it out".to_owned())?;
    }
    let stripes = &memory.stripes.0;
    let message = format!("stripes over {} memories: name two", stripes.len());
    refuse(stripes.len() != 2, at("stripes"), message)?;
    for (other, pages) in stripes {
        let path = [at("stripes"), vec![other.clone()]].concat();
        let plain = |(_, m): &&(String, MemoryFile)| m.stripes.is_empty();
        let known: Vec<_> = memories.iter().filter(plain).map(|(name, _)| name.as_str()).collect();
        let message = format!("'{other}' is not a memory by itself: use two of {}", known.join(", "));
        refuse(!known.contains(&other.as_str()), path.clone(), message)?;
        let message = format!("{pages} pages: use 1 to {MOST_PAGES}");
        refuse(!(1..=MOST_PAGES).contains(pages), path, message)?;
    }
    Ok(())
}
