//! Groups of GPUs that compute as one device, and how these divide a model.

use crate::files::ProfileError;
use crate::machine::device::{Device, DeviceId, DeviceKind, Ranks};
use crate::machine::graph::Machine;
use crate::machine::link::{Link, LinkId};
use crate::machine::memory::{Memory, MemoryId, MemoryKind, Stripe};
use crate::rates::{AllReduce, Curve};
use crate::units::{Bytes, Seconds, Sourced};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Mul;

/// How the GPUs of a group divide a model: into stages of consecutive layers, and within a stage
/// into parts of every matrix or into whole experts. Where experts are whole, the rest of a layer
/// may be there several times, each for sequences of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupDivision {
    /// GPUs that divide every matrix of a layer (tensor parallelism).
    pub tensor: u64,
    /// Stages of consecutive layers (pipeline parallelism).
    pub stages: u64,
    /// Whether each routed expert is whole on one of the GPUs of a stage (expert parallelism). All
    /// other matrices are divided.
    pub whole_experts: bool,
    /// Engines with sequences of their own that share whole experts (data parallelism of
    /// attention). Each has `tensor` GPUs of a stage.
    pub data: u64,
}

impl GroupDivision {
    /// One GPU.
    pub const NONE: Self = Self { tensor: 1, stages: 1, whole_experts: false, data: 1 };

    /// The GPUs of a group.
    pub fn gpus(&self) -> u64 {
        self.tensor * self.data * self.stages
    }
}

impl Default for GroupDivision {
    fn default() -> Self {
        Self::NONE
    }
}

/// The words of a scenario, with what is not usual: `tensor_parallel 2, pipeline_parallel 4`.
impl fmt::Display for GroupDivision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, stages, whole_experts, data } = *self;
        write!(f, "tensor_parallel {tensor}")?;
        if stages > 1 {
            write!(f, ", pipeline_parallel {stages}")?;
        }
        if whole_experts {
            write!(f, ", expert_parallel")?;
        }
        if data > 1 {
            write!(f, ", data_parallel {data}")?;
        }
        Ok(())
    }
}

impl Ranks {
    /// The GPUs of one stage.
    pub fn per_stage(&self) -> u64 {
        self.count / self.stages.max(1)
    }

    /// The GPUs that divide the matrices of a layer, whole experts aside.
    pub fn per_engine(&self) -> u64 {
        self.per_stage() / self.data.max(1)
    }

    /// The tokens of one engine and those of all that share experts, of the `tokens` of a step.
    pub fn engine_tokens(&self, tokens: u64) -> [u64; 2] {
        if self.one_engine {
            [tokens, tokens * self.data]
        } else {
            [tokens.div_ceil(self.data.max(1)), tokens]
        }
    }

    /// In how many micro-batches a step of `batch` sequences goes through the stages.
    pub fn micro_batches(&self, batch: u64) -> u64 {
        if self.one_engine { 1 } else { self.stages.min(batch).max(1) }
    }

    /// The time in which a stage sends `bytes` to the next one: a step of the collectives and the
    /// bytes at their rate.
    pub fn send_time(&self, bytes: Bytes) -> Seconds {
        self.all_reduce.step.value + bytes / self.all_reduce.bandwidth.value
    }

    fn division(&self) -> GroupDivision {
        GroupDivision {
            tensor: self.per_engine(),
            stages: self.stages,
            whole_experts: self.whole_experts && self.per_stage() > 1,
            data: self.data,
        }
    }
}

impl Device {
    /// How many GPUs compute as this device; 1 for a single one.
    pub fn ranks(&self) -> u64 {
        self.ranks.as_ref().map_or(1, |ranks| ranks.count)
    }

    /// How its GPUs divide a model.
    pub fn division(&self) -> GroupDivision {
        self.ranks.as_ref().map_or(GroupDivision::NONE, Ranks::division)
    }
}

impl Machine {
    /// How many GPUs share what is in a memory: the ranks of the device that owns it, else 1.
    pub fn ranks_of(&self, memory: MemoryId) -> u64 {
        self.devices.iter().filter(|d| d.memory == memory).map(Device::ranks).max().unwrap_or(1)
    }

    /// The first GPU and those that are identical to it: only their names differ, their own
    /// memories are alike, and they are linked with it both ways. Empty without a GPU.
    pub fn identical_gpus(&self) -> Vec<DeviceId> {
        let gpu = |id: &DeviceId| self.device(*id).kind == DeviceKind::Gpu;
        let Some(first) = self.device_ids().find(gpu) else { return vec![] };
        let one = self.device(first);
        let like = |id: &DeviceId| {
            let other = self.device(*id);
            // Links are compared first: they are cheap, and most devices have none.
            (other.memory != one.memory
                && self.link_between(one.memory, other.memory).is_some()
                && self.link_between(other.memory, one.memory).is_some()
                && self.memory(one.memory).is_like(self.memory(other.memory))
                && one.is_like(other))
                || *id == first
        };
        self.device_ids().filter(gpu).filter(like).collect()
    }

    fn gpus(&self) -> u64 {
        self.devices.iter().filter(|device| device.kind == DeviceKind::Gpu).map(Device::ranks).sum()
    }

    /// The ranks of the first GPU; 1 without a GPU.
    pub fn tensor_parallel(&self) -> u64 {
        self.identical_gpus().first().map_or(1, |&gpu| self.device(gpu).ranks())
    }

    /// The degrees of tensor parallelism into which its GPUs can be grouped, ascending.
    pub fn tensor_parallel_degrees(&self) -> Vec<u64> {
        let (groups, ranks) = (self.identical_gpus().len().max(1) as u64, self.tensor_parallel());
        (1..=groups).filter(|ranks| groups.is_multiple_of(*ranks)).map(|more| more * ranks).collect()
    }

    /// The machine in which `degree` neighbouring GPUs are one device each. Such a device has the
    /// memory and the host links of all of them, and its all-reduces take what the links between
    /// them allow.
    ///
    /// # Errors
    /// The degree does not divide the number of identical GPUs.
    pub fn with_tensor_parallel(&self, degree: u64) -> Result<Self, ProfileError> {
        let degrees = self.tensor_parallel_degrees();
        if !degrees.contains(&degree) {
            let known = degrees.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ");
            let gpus = match (self.identical_gpus().len() as u64 * self.tensor_parallel(), self.gpus()) {
                (1, 1) => "one GPU".to_owned(),
                (alike, all) if alike == all => format!("{all} GPUs"),
                (1, _) => "one GPU of the first kind".to_owned(),
                (alike, _) => format!("{alike} GPUs of the first kind"),
            };
            let message = format!("{degree} does not divide the {gpus} of '{}': use {known}", self.name);
            return Err(ProfileError::Unfit { part: "tensor_parallel".to_owned(), message });
        }
        match degree / self.tensor_parallel() {
            1 => Ok(self.clone()),
            together => Ok(Grouping::new(self, together).machine()),
        }
    }

    /// How the first GPU's group divides a model.
    pub fn division(&self) -> GroupDivision {
        self.identical_gpus().first().map_or(GroupDivision::NONE, |&gpu| self.device(gpu).division())
    }

    /// The machine in which neighbouring GPUs are one device each and divide models like
    /// `division`.
    ///
    /// # Errors
    /// The number of GPUs of a group does not divide that of identical GPUs.
    pub fn with_division(&self, division: GroupDivision) -> Result<Self, ProfileError> {
        let mut machine = self.with_tensor_parallel(division.gpus())?;
        for ranks in machine.devices.iter_mut().filter_map(|device| device.ranks.as_mut()) {
            ranks.stages = division.stages;
            ranks.whole_experts = division.whole_experts && division.tensor * division.data > 1;
            ranks.data = division.data;
        }
        Ok(machine)
    }

    /// The machine as one of several engines on a group of GPUs sees it: a micro-batch in a
    /// pipeline of several stages, or one of the engines that share whole experts. A step is that
    /// engine's alone. The others use the rest of the group, so it draws its share of the power.
    #[must_use]
    pub fn with_one_engine(&self) -> Self {
        let mut machine = self.clone();
        for device in &mut machine.devices {
            let several = |ranks: &&mut Ranks| ranks.stages * ranks.data > 1;
            let Some(ranks) = device.ranks.as_mut().filter(several) else { continue };
            ranks.one_engine = true;
            let idle = device.idle_power.as_ref().map(|idle| idle.value).unwrap_or_default();
            if let Some(power) = device.power.as_mut().filter(|power| power.value > idle) {
                let reason = format!("an engine's share of {} ({})", power.value, power.source);
                *power = Sourced::estimated(
                    idle + (power.value - idle) / (ranks.stages * ranks.data) as f64,
                    &reason,
                );
            }
        }
        machine
    }
}

impl Device {
    /// Whether the two differ only in name and memory.
    fn is_like(&self, other: &Self) -> bool {
        let rest = |d: &Self| (d.kind, d.cores.clone(), d.launch.value, d.sync.value, d.elementwise.value);
        rest(self) == rest(other)
            && self.issue.as_ref().map(|issue| issue.value) == other.issue.as_ref().map(|issue| issue.value)
            && self.ranks == other.ranks
            && (&self.power, &self.idle_power, &self.price) == (&other.power, &other.idle_power, &other.price)
            && self.gemm == other.gemm
            && self.attention == other.attention
    }
}

impl Memory {
    fn is_like(&self, other: &Self) -> bool {
        let rest = |m: &Self| (m.kind, m.capacity.value, m.bandwidth.value, m.within, m.stripes.clone());
        rest(self) == rest(other)
    }
}

/// Identical GPUs in groups of `together`.
struct Grouping<'m> {
    machine: &'m Machine,
    together: u64,
    groups: Vec<Vec<DeviceId>>,
}

impl<'m> Grouping<'m> {
    fn new(machine: &'m Machine, together: u64) -> Self {
        let groups = machine.identical_gpus().chunks(together as usize).map(<[_]>::to_vec).collect();
        Self { machine, together, groups }
    }

    fn machine(&self) -> Machine {
        let machine = self.machine;
        let heads: BTreeSet<DeviceId> = self.groups.iter().map(|group| group[0]).collect();
        let members: BTreeSet<DeviceId> = self.groups.iter().flatten().copied().collect();
        let gone = |id: DeviceId| members.contains(&id) && !heads.contains(&id);
        let is_gone =
            |memory: MemoryId| machine.device_ids().any(|d| gone(d) && machine.device(d).memory == memory);
        let kept: Vec<MemoryId> = machine.memory_ids().filter(|&memory| !is_gone(memory)).collect();
        let new = |memory: MemoryId| {
            let group = self.groups.iter().find(|g| g.iter().any(|&d| machine.device(d).memory == memory));
            let memory = group.map_or(memory, |group| machine.device(group[0]).memory);
            MemoryId(kept.iter().position(|&id| id == memory).expect("a group's first memory is kept"))
        };
        let device = |id: DeviceId| match heads.contains(&id) {
            true => self.device(id, new(machine.device(id).memory)),
            false => {
                let device = machine.device(id);
                let reads = device.reads.iter().map(|&memory| new(memory)).collect();
                Device { memory: new(device.memory), reads, ..device.clone() }
            }
        };
        let memory = |&id: &MemoryId| {
            let owner = self.groups.iter().position(|g| machine.device(g[0]).memory == id);
            let memory = machine.memory(id);
            let within = memory.within.map(new);
            let stripe = |stripe: &Stripe| Stripe { memory: new(stripe.memory), ..*stripe };
            let stripes = memory.stripes.iter().map(stripe).collect();
            match owner {
                Some(group) => Memory { within, stripes, ..self.memory(memory, group) },
                None => Memory { within, stripes, ..memory.clone() },
            }
        };
        let mut links: Vec<Link> = Vec::new();
        // A wire is found by its ends, because links of a group's members become one link.
        let mut wires = Vec::new();
        for link in &machine.links {
            let (from, to) = (new(link.from), new(link.to));
            if from == to || links.iter().any(|known| (known.from, known.to) == (from, to)) {
                continue;
            }
            let joins = [link.from, link.to].into_iter().any(|end| self.owns(end));
            let name = link.name.split("->").map(|side| self.renamed(side)).collect::<Vec<_>>().join("->");
            let link = Link { name, from, to, ..if joins { self.link(link) } else { link.clone() } };
            wires.push(link.wire.map(|wire| (new(machine.link(wire).from), new(machine.link(wire).to))));
            links.push(link);
        }
        let at = |wire: &(MemoryId, MemoryId)| links.iter().position(|l| (l.from, l.to) == *wire).map(LinkId);
        let wires: Vec<_> = wires.iter().map(|wire| wire.as_ref().and_then(at)).collect();
        links.iter_mut().zip(wires).for_each(|(link, wire)| link.wire = wire);
        Machine {
            name: machine.name.clone(),
            note: machine.note.clone(),
            assumed: machine.assumed.clone(),
            devices: machine.device_ids().filter(|&id| !gone(id)).map(device).collect(),
            memories: kept.iter().map(memory).collect(),
            links,
        }
    }

    fn owns(&self, memory: MemoryId) -> bool {
        self.groups.iter().flatten().any(|&device| self.machine.device(device).memory == memory)
    }

    /// A device's or memory's name with its group's number in place of its own, and without a
    /// number where there is one group.
    fn renamed(&self, name: &str) -> String {
        let group = self.groups.iter().position(|group| {
            group
                .iter()
                .map(|&id| self.machine.device(id))
                .any(|device| device.name == name || self.machine.memory(device.memory).name == name)
        });
        match group {
            None => name.to_owned(),
            Some(_) if self.groups.len() == 1 => stem(name).to_owned(),
            Some(group) => format!("{}{group}", stem(name)),
        }
    }

    fn device(&self, id: DeviceId, memory: MemoryId) -> Device {
        let one = self.machine.device(id);
        let (all_reduce, link) = match &one.ranks {
            Some(ranks) => (ranks.all_reduce.clone(), ranks.link.clone()),
            None => self.all_reduce(),
        };
        Device {
            name: self.renamed(&one.name),
            memory,
            power: one.power.as_ref().map(|power| self.times(power)),
            idle_power: one.idle_power.as_ref().map(|power| self.times(power)),
            price: one.price.as_ref().map(|price| self.times(price)),
            ranks: Some(Ranks {
                count: one.ranks() * self.together,
                all_reduce,
                link,
                stages: 1,
                whole_experts: false,
                data: 1,
                one_engine: false,
            }),
            ..one.clone()
        }
    }

    /// The all-reduce over the link between the first two GPUs of a group, and that link's part.
    fn all_reduce(&self) -> (AllReduce, Option<String>) {
        let ends = [0, 1].map(|member| self.machine.device(self.groups[0][member]).memory);
        let link = self.machine.link_between(ends[0], ends[1]).expect("twins are linked");
        let link = self.machine.link(link);
        let plain = || AllReduce {
            step: link.latency.clone(),
            bandwidth: link.bandwidth.clone(),
            by_pair: false,
            measured: None,
        };
        (link.details.all_reduce.clone().unwrap_or_else(plain), link.details.part.clone())
    }

    fn memory(&self, one: &Memory, group: usize) -> Memory {
        debug_assert!(group < self.groups.len());
        let mut details = one.details.clone();
        details.write = details.write.as_ref().map(|write| self.times(write));
        Memory {
            name: self.renamed(&one.name),
            capacity: {
                let reason = format!("{} × {} ({})", self.together, one.capacity.value, one.capacity.source);
                Sourced::estimated(one.capacity.value * self.together, &reason)
            },
            bandwidth: self.times(&one.bandwidth),
            details,
            ..one.clone()
        }
    }

    /// The links of all members of a group as one link, which brings no more than the host's memory
    /// gives.
    fn link(&self, one: &Link) -> Link {
        let mut details = one.details.clone();
        details.raw = details.raw.as_ref().map(|rate| self.times(rate));
        details.pageable = details.pageable.as_ref().map(|rate| self.times(rate));
        details.far = details.far.as_ref().map(|rate| self.times(rate));
        details.times = details.times.as_ref().map(|times| self.spread(times));
        let ends = [one.from, one.to].map(|end| self.machine.memory(end));
        let link = Link { bandwidth: self.times(&one.bandwidth), details, ..one.clone() };
        link.within(ends.into_iter().filter(|memory| memory.kind != MemoryKind::Hbm))
    }

    /// The times of bytes that are spread over the members' links.
    fn spread(&self, times: &Curve<Seconds>) -> Curve<Seconds> {
        let mut times = times.clone();
        times.points.iter_mut().for_each(|point| point.size = point.size * self.together);
        times
    }

    fn times<T: Copy + Mul<f64, Output = T> + std::fmt::Display>(&self, one: &Sourced<T>) -> Sourced<T> {
        let reason = format!("{} × {} ({})", self.together, one.value, one.source);
        Sourced::estimated(one.value * self.together as f64, &reason)
    }
}

/// A name without the number at its end.
fn stem(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.is_empty() { name } else { stem }
}
