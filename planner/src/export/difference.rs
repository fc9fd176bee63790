//! What of a plan an engine's placement is not, said by name.

use super::site::Site;
use crate::placement::{Placement, Slice, Slices};
use hwprofiles::{DeviceKind, Machine, MemoryKind};
use scenarios::{Phase, Sublayer};

/// What is lost of one sublayer in some layers, or of several in the same ones.
#[derive(PartialEq)]
struct Loss {
    why: &'static str,
    plan: String,
    nearest: String,
    sublayers: Vec<Sublayer>,
    layers: Vec<u64>,
}

/// One sentence for each way in which `nearest` is not the plan.
pub(super) fn differences(site: &Site<'_>, nearest: &Placement) -> Vec<String> {
    let machine = site.machine;
    let mut losses: Vec<Loss> = Vec::new();
    let pairs = site.placement.sublayers().zip(nearest.sublayers());
    for ((layer, sublayer, plan), (_, _, nearest)) in pairs.filter(|((.., plan), (.., near))| plan != near) {
        let why = reason(machine, sublayer, plan, nearest);
        let loss = Loss {
            why,
            plan: way(machine, plan),
            nearest: way(machine, nearest),
            sublayers: vec![sublayer],
            layers: layer.map(u64::from).into_iter().collect(),
        };
        let same = |other: &&mut Loss| other.sublayers == loss.sublayers && other.alike(&loss);
        match losses.iter_mut().find(same) {
            Some(other) => other.layers.extend(loss.layers),
            None => losses.push(loss),
        }
    }
    let mut merged: Vec<Loss> = Vec::new();
    for loss in losses {
        match merged.iter_mut().find(|other| other.layers == loss.layers && other.alike(&loss)) {
            Some(other) => other.sublayers.extend(loss.sublayers),
            None => merged.push(loss),
        }
    }
    merged.iter().map(Loss::sentence).collect()
}

impl Loss {
    fn alike(&self, other: &Self) -> bool {
        (self.why, &self.plan, &self.nearest) == (other.why, &other.plan, &other.nearest)
    }

    fn sentence(&self) -> String {
        let names: Vec<_> = self.sublayers.iter().map(|sublayer| sublayer.name()).collect();
        let layers = match &self.layers[..] {
            [] => String::new(),
            [one] => format!(" of layer {one}"),
            many => format!(" of layers {}", ranges(many)),
        };
        let (names, plan, nearest) = (names.join(", "), &self.plan, &self.nearest);
        format!("{}: {names}{layers}: {plan}; the nearest is {nearest}", self.why)
    }
}

/// The name of what is lost.
fn reason(machine: &Machine, sublayer: Sublayer, plan: &Slices, nearest: &Slices) -> &'static str {
    let away = |slice: &Slice, phase| !machine.reads_in_place(slice.device(phase), slice.home);
    let streams = |slices: &Slices, phase| slices.iter().any(|slice| away(slice, phase));
    let third = |slice: &Slice| {
        let kind = machine.memory(slice.home).kind;
        matches!(kind, MemoryKind::Cxl | MemoryKind::Nvme | MemoryKind::Loopback | MemoryKind::Striped)
            && nearest.iter().all(|near| near.home != slice.home)
    };
    let on_host =
        |slices: &Slices| slices.iter().all(|slice| machine.device(slice.decode).kind == DeviceKind::Cpu);
    let attention = sublayer == Sublayer::Attention;
    match () {
        () if plan.len() > 1 => "a divided matrix",
        () if plan.iter().any(third) && attention => "KV in a third memory",
        () if plan.iter().any(third) => "weights in a third memory",
        () if attention => "attention or its KV cache there",
        () if sublayer == Sublayer::Embed => "the token table there",
        () if streams(plan, Phase::Decode) && !streams(nearest, Phase::Decode) => {
            "weights streamed in decode"
        }
        () if streams(plan, Phase::Prefill) && !streams(nearest, Phase::Prefill) => {
            "weights streamed in prefill"
        }
        () if plan[0].prefill != plan[0].decode => "another device in each phase",
        () if on_host(plan) && !on_host(nearest) => "computing on the host",
        () => "weights there",
    }
}

/// A placement in words: `gpu, from dram`.
fn way(machine: &Machine, slices: &Slices) -> String {
    let part = |slice: &Slice| {
        let name = |phase| &machine.device(slice.device(phase)).name;
        let (prefill, decode) = (name(Phase::Prefill), name(Phase::Decode));
        let device = if prefill == decode { prefill.clone() } else { format!("{prefill} then {decode}") };
        format!("{device} from {}", machine.memory(slice.home).name)
    };
    slices.iter().map(part).collect::<Vec<_>>().join(" + ")
}

/// Ascending numbers as `0–3, 7`.
fn ranges(numbers: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |&(start, end): &(u64, u64)| match start == end {
        true => start.to_string(),
        false => format!("{start}–{end}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}
