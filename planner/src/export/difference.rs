//! The differences between a plan and the nearest placement that an engine can run, in words.

use super::site::Site;
use crate::placement::{Placement, Slice, Slices};
use hwprofiles::{DeviceKind, Machine, MemoryKind, number_ranges};
use scenarios::{Phase, Sublayer};

/// One difference: sublayers that are placed otherwise in the same layers for the same reason.
#[derive(PartialEq)]
struct Difference {
    why: &'static str,
    plan: String,
    nearest: String,
    sublayers: Vec<Sublayer>,
    layers: Vec<u64>,
}

/// One sentence for each difference between the plan and `nearest`.
pub(super) fn differences(site: &Site<'_>, nearest: &Placement) -> Vec<String> {
    let machine = site.machine;
    let mut differences_found: Vec<Difference> = Vec::new();
    let pairs = site.placement.sublayers().zip(nearest.sublayers());
    for ((layer, sublayer, plan), (_, _, nearest)) in pairs.filter(|((.., plan), (.., near))| plan != near) {
        let why = reason(machine, sublayer, plan, nearest);
        let found = Difference {
            why,
            plan: described(machine, plan),
            nearest: described(machine, nearest),
            sublayers: vec![sublayer],
            layers: layer.map(u64::from).into_iter().collect(),
        };
        let same = |other: &&mut Difference| other.sublayers == found.sublayers && other.alike(&found);
        match differences_found.iter_mut().find(same) {
            Some(other) => other.layers.extend(found.layers),
            None => differences_found.push(found),
        }
    }
    let mut merged: Vec<Difference> = Vec::new();
    for found in differences_found {
        match merged.iter_mut().find(|other| other.layers == found.layers && other.alike(&found)) {
            Some(other) => other.sublayers.extend(found.sublayers),
            None => merged.push(found),
        }
    }
    merged.iter().map(Difference::sentence).collect()
}

impl Difference {
    fn alike(&self, other: &Self) -> bool {
        (self.why, &self.plan, &self.nearest) == (other.why, &other.plan, &other.nearest)
    }

    fn sentence(&self) -> String {
        let names: Vec<_> = self.sublayers.iter().map(|sublayer| sublayer.name()).collect();
        let layers = match &self.layers[..] {
            [] => String::new(),
            [one] => format!(" of layer {one}"),
            many => format!(" of layers {}", number_ranges(many)),
        };
        let (names, plan, nearest) = (names.join(", "), &self.plan, &self.nearest);
        format!("{}: {names}{layers}: {plan}; the nearest is {nearest}", self.why)
    }
}

/// The kind of a difference, in words.
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
    if plan.len() > 1 {
        "a divided matrix"
    } else if plan.iter().any(third) && attention {
        "KV in a third memory"
    } else if plan.iter().any(third) {
        "weights in a third memory"
    } else if attention {
        "attention or its KV cache in that memory"
    } else if sublayer == Sublayer::Embed {
        "the token table in that memory"
    } else if streams(plan, Phase::Decode) && !streams(nearest, Phase::Decode) {
        "weights streamed in decode"
    } else if streams(plan, Phase::Prefill) && !streams(nearest, Phase::Prefill) {
        "weights streamed in prefill"
    } else if plan[0].prefill != plan[0].decode {
        "another device in each phase"
    } else if on_host(plan) && !on_host(nearest) {
        "computing on the host"
    } else {
        "these weights in that memory"
    }
}

/// A placement in words: `gpu, from dram`.
fn described(machine: &Machine, slices: &Slices) -> String {
    let part = |slice: &Slice| {
        let name = |phase| &machine.device(slice.device(phase)).name;
        let (prefill, decode) = (name(Phase::Prefill), name(Phase::Decode));
        let device = if prefill == decode { prefill.clone() } else { format!("{prefill} then {decode}") };
        format!("{device} from {}", machine.memory(slice.home).name)
    };
    slices.iter().map(part).collect::<Vec<_>>().join(" + ")
}
