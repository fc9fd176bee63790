//! Where a sublayer can live, and which devices can then compute it.

use crate::placement::identical_gpus::IdenticalGpus;
use crate::placement::slices::{Slice, Slices, split_row, whole_slice};
use hwprofiles::{DeviceId, Machine, MemoryId, MemoryKind};
use scenarios::{Model, Phase, Sublayer};

/// Shares, in sixteenths, by which a sublayer may be divided.
const SHARES: [u64; 5] = [1, 2, 4, 8, 12];

/// Where a sublayer's matrix or KV cache lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Home {
    /// In one memory. Any device that can read it may compute it, a different one in each phase.
    Whole(MemoryId),
    /// Divided between the memories of two devices. Each computes its part from its own memory at
    /// the same time.
    Split {
        /// The device of the first part, which also runs the operators without a matrix.
        lead: DeviceId,
        /// The device of the second part.
        other: DeviceId,
        /// Share of the first part, in sixteenths.
        sixteenths: u64,
        /// Whether the lead computes both parts in prefill, and streams the second one: many
        /// rows are worth the way over the link.
        gathered: bool,
    },
}

impl Home {
    /// Every home of a sublayer of `model` on the machine. Of identical GPUs only the first one
    /// counts.
    pub fn all(machine: &Machine, model: &Model, identical_gpus: &IdenticalGpus) -> Vec<Home> {
        let of_experts = model.experts.is_some();
        let shares = || SHARES.into_iter().filter(move |share| of_experts || share.is_multiple_of(4));
        let kept = |memory: &MemoryId| !identical_gpus.is_represented_memory(*memory);
        let devices = || machine.device_ids().filter(|&device| !identical_gpus.is_represented(device));
        let mut homes: Vec<_> = machine.memory_ids().filter(kept).map(Home::Whole).collect();
        for lead in devices() {
            for other in devices() {
                let [own, far] = [lead, other].map(|device| machine.device(device).memory);
                if own == far {
                    continue;
                }
                let gathers = of_experts
                    && is_accelerator_memory(machine, own)
                    && !is_accelerator_memory(machine, far)
                    && machine.link_between(far, own).is_some();
                for gathered in [false, true].into_iter().filter(|gathered| gathers || !gathered) {
                    let split = |sixteenths| Home::Split { lead, other, sixteenths, gathered };
                    homes.extend(shares().map(split));
                }
            }
        }
        homes
    }

    /// Whether the matrix is divided between two devices.
    pub fn is_split(self) -> bool {
        matches!(self, Home::Split { .. })
    }

    /// Its slices if `prefill` and `decode` compute it. `None` if the sublayer cannot be divided
    /// this way.
    pub fn slices(
        self,
        machine: &Machine,
        model: &Model,
        sublayer: Sublayer,
        prefill: DeviceId,
        decode: DeviceId,
    ) -> Option<Slices> {
        match self {
            Home::Whole(memory) => Some(vec![whole_slice(model, sublayer, memory, prefill, decode)]),
            Home::Split { lead, other, sixteenths, gathered } => {
                // Some experts are much more popular than others, so small shares of experts
                // matter. Other matrices are divided in quarters.
                let of_experts = sublayer == Sublayer::Experts;
                if !(of_experts || sixteenths.is_multiple_of(4) && !gathered) {
                    return None;
                }
                let (rows, _) = sublayer.matrix(model).filter(|_| sublayer.is_divisible(model))?;
                let cut = split_row(rows, sixteenths as f64 / 16.0, sublayer.panel());
                let part = |rows, device| {
                    let home = machine.device(device).memory;
                    Slice { rows, home, prefill: if gathered { lead } else { device }, decode: device }
                };
                (cut > 0 && cut < rows).then(|| vec![part(0..cut, lead), part(cut..rows, other)])
            }
        }
    }

    /// Whether `device`, which computes the sublayer in `phase`, must fetch a part of it.
    pub fn is_streamed(self, machine: &Machine, device: DeviceId, phase: Phase) -> bool {
        match self {
            Home::Whole(memory) => !machine.reads_in_place(device, memory),
            Home::Split { gathered, .. } => gathered && phase == Phase::Prefill,
        }
    }

    /// Whether `device` can compute the sublayer: as the lead of a divided one, or from a memory
    /// that it owns or has a link to (for KV, links in both directions). The token table is never
    /// streamed. Nothing is streamed out of an accelerator's memory: weights that other devices
    /// read belong in a larger memory.
    pub fn admits(self, machine: &Machine, sublayer: Sublayer, device: DeviceId) -> bool {
        let own = machine.device(device).memory;
        match self {
            Home::Whole(memory) if memory == own => true,
            Home::Whole(memory) if is_accelerator_memory(machine, memory) => false,
            Home::Whole(memory) if machine.reads_in_place(device, memory) => sublayer != Sublayer::Embed,
            Home::Whole(memory) => match sublayer {
                Sublayer::Embed => false,
                Sublayer::Attention => {
                    machine.link_between(memory, own).is_some() && machine.link_between(own, memory).is_some()
                }
                _ => machine.link_between(memory, own).is_some(),
            },
            Home::Split { lead, .. } => {
                device == lead && !matches!(sublayer, Sublayer::Embed | Sublayer::Attention)
            }
        }
    }
}

/// Whether the homes of a layer mix a striped memory with a single one in a way that the search
/// leaves out to keep its choices few: striped weights with anything in a slower single memory, or
/// a striped KV cache with weights in the first memory below it.
pub(crate) fn mixes_stripes(
    machine: &Machine,
    weights: impl Iterator<Item = Home> + Clone,
    kv: Home,
) -> bool {
    let under = |home: Home| match home {
        Home::Whole(memory) => machine.memory(memory).stripes.first().map(|first| Home::Whole(first.memory)),
        Home::Split { .. } => None,
    };
    let alone = |home: Home| {
        under(home).is_none()
            && matches!(home, Home::Whole(memory) if !is_accelerator_memory(machine, memory))
    };
    let mut striped = weights.clone().filter(|&home| under(home).is_some());
    match under(kv) {
        _ if striped.next().is_some() => weights.chain([kv]).any(alone),
        Some(first) => {
            let mut weights = weights;
            weights.any(|home| home == first)
        }
        None => false,
    }
}

fn is_accelerator_memory(machine: &Machine, memory: MemoryId) -> bool {
    matches!(machine.memory(memory).kind, MemoryKind::Hbm | MemoryKind::Loopback)
}
