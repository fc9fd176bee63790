//! What engines do without a cost model: rules that the planner has to beat, or else follows.

use crate::cost::Pricing;
use crate::error::PlannerError;
use crate::memory::{Extent, Programs, usage};
use crate::placement::{LayerPlacement, Placement, whole};
use crate::plan::overfilled;
use hwprofiles::{DeviceId, DeviceKind, MemoryId};
use scenarios::Sublayer;

/// A rule that does not look at speeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The host computes everything.
    AllCpu,
    /// As many whole layers as fit, from the back, with their KV and after the head, on the accelerator; the rest
    /// on the host (llama.cpp's `-ngl`).
    FillMemory,
    /// The accelerator computes everything, its weights streamed from the host's memory; KV with the accelerator
    /// where it fits there (Accelerate, FlexGen).
    AllStreamed,
}

/// Why a rule cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum NoRule {
    /// The machine lacks a device of a kind.
    #[error("the machine has no {0}")]
    NoDevice(&'static str),
    /// What the rule wants does not fit or cannot move.
    #[error(transparent)]
    Impossible(#[from] PlannerError),
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 3] = [Rule::AllCpu, Rule::FillMemory, Rule::AllStreamed];

    /// The word used in plans.
    pub fn name(self) -> &'static str {
        match self {
            Rule::AllCpu => "all-cpu",
            Rule::FillMemory => "fill-memory",
            Rule::AllStreamed => "all-streamed",
        }
    }

    /// Whether it streams weights: then prefill enters in steps as large as fit, so that they are streamed few times.
    pub fn streams(self) -> bool {
        self == Rule::AllStreamed
    }

    /// The placement that follows the rule, which fits.
    pub fn placement(self, pricing: Pricing<'_>, extent: &Extent) -> Result<Placement, NoRule> {
        let machine = pricing.machine;
        let of_kind = |cpu: bool| {
            let kind = |&id: &DeviceId| (machine.device(id).kind == DeviceKind::Cpu) == cpu;
            machine.device_ids().find(kind)
        };
        let host = of_kind(true).ok_or(NoRule::NoDevice("host CPU"))?;
        let model = pricing.model;
        let all_cpu = Placement::uniform(model, host, machine.device(host).memory);
        if self == Rule::AllCpu {
            return Ok(fitting(pricing, extent, all_cpu)?);
        }
        let accelerator = of_kind(false).ok_or(NoRule::NoDevice("accelerator"))?;
        match self {
            Rule::AllCpu | Rule::FillMemory => fill_memory(pricing, extent, &all_cpu, accelerator),
            Rule::AllStreamed => {
                let dram = machine.device(host).memory;
                let own = machine.device(accelerator).memory;
                let streamed = |kv: MemoryId| all_streamed(pricing, &all_cpu, accelerator, dram, kv);
                let resident_kv = fitting(pricing, extent, streamed(own));
                Ok(resident_kv.or_else(|_| fitting(pricing, extent, streamed(dram)))?)
            }
        }
    }
}

/// `placement` where it fits.
fn fitting(pricing: Pricing<'_>, extent: &Extent, placement: Placement) -> Result<Placement, PlannerError> {
    let Pricing { machine, model, formats } = pricing;
    let programs = Programs::outline(machine, model, &placement)?;
    match overfilled(machine, &usage(machine, model, formats, &placement, &programs, extent)) {
        None => Ok(placement),
        Some((memory, needed)) => Err(PlannerError::TooLarge {
            memory: memory.name.clone(),
            needed,
            capacity: memory.capacity.value,
        }),
    }
}

fn fill_memory(
    pricing: Pricing<'_>,
    extent: &Extent,
    all_cpu: &Placement,
    accelerator: DeviceId,
) -> Result<Placement, NoRule> {
    let own = pricing.machine.device(accelerator).memory;
    let all_there = Placement::uniform(pricing.model, accelerator, own);
    let layers = all_cpu.layers.len();
    let offloaded = |count: usize| {
        let mut placement = all_cpu.clone();
        let first = layers - count.min(layers);
        placement.layers[first..].clone_from_slice(&all_there.layers[first..]);
        if count > layers {
            placement.head.clone_from(&all_there.head);
        }
        fitting(pricing, extent, placement)
    };
    // More takes more: halve the interval between what fits and what does not.
    let (mut fits, mut too_many) = (0, layers + 2);
    let mut best = None;
    let mut reason = PlannerError::Solver { reason: "there is no layer".into() };
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        match offloaded(middle) {
            Ok(placement) => (fits, best) = (middle, Some(placement)),
            Err(error) => (too_many, reason) = (middle, error),
        }
    }
    best.ok_or(NoRule::Impossible(reason))
}

/// The token table and the head stay with the host: a slot for the head would take more than a layer.
fn all_streamed(
    pricing: Pricing<'_>,
    all_cpu: &Placement,
    accelerator: DeviceId,
    dram: MemoryId,
    kv: MemoryId,
) -> Placement {
    let slices = |sublayer: Sublayer| {
        let home = if sublayer == Sublayer::Attention { kv } else { dram };
        vec![whole(pricing.model, sublayer, home, accelerator, accelerator)]
    };
    let layers = all_cpu.layers.iter().map(|layer| LayerPlacement::of(layer.kind, slices));
    Placement { layers: layers.collect(), ..all_cpu.clone() }
}
