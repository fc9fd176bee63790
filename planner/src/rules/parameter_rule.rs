//! Rules with one number, which people turn by hand: layers of the GPU, layers whose large matrices
//! stay with the host, a class of matrices that does.

use super::fit::largest;
use super::host_and_accelerator::{HostAndAccelerator, with_host};
use super::no_rule::NoRule;
use crate::cost::CostModel;
use crate::placement::{Placement, whole_slice};
use crate::program::RunExtent;
use hwprofiles::MemoryId;
use scenarios::Sublayer;

/// The sublayers that hold most of a model.
const LARGE: [Sublayer; 3] = [Sublayer::FfnUp, Sublayer::FfnDown, Sublayer::Experts];

/// A rule with one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterRule {
    /// The GPU has the last layers with their KV caches (`-ngl N`).
    GpuLayers,
    /// The host has the experts of the first layers, or their FFN (`--n-cpu-moe N`).
    HostFromFront,
    /// The host has the experts of the last layers, or their FFN (`-ot`).
    HostFromBack,
    /// The host has a class of matrices of every layer: the KV caches, or all weights (`-nkvo`,
    /// `-ot`).
    HostClass,
}

impl ParameterRule {
    /// Every rule.
    pub const ALL: [Self; 4] = [Self::GpuLayers, Self::HostFromFront, Self::HostFromBack, Self::HostClass];

    /// The rule with its number, as people write it, where the GPU has `held` units.
    pub fn name(self, layers: usize, held: usize) -> String {
        let host = layers - held.min(layers);
        match self {
            Self::GpuLayers => format!("n-gpu-layers {held}"),
            Self::HostFromFront => format!("n-cpu-moe {host}"),
            Self::HostFromBack => format!("n-cpu-moe {host} from the back"),
            Self::HostClass if held == 0 => "weights of layers with the host".to_owned(),
            Self::HostClass => "KV caches with the host".to_owned(),
        }
    }

    /// The largest number of units that the GPU can have.
    pub fn most(self, layers: usize) -> usize {
        match self {
            Self::GpuLayers => layers + 1,
            Self::HostFromFront | Self::HostFromBack => layers,
            Self::HostClass => 1,
        }
    }

    /// The numbers of units that fit the accelerator's memory, the largest first: those near the
    /// largest, and some of the others.
    pub fn counts(
        self,
        cost_model: CostModel<'_>,
        dram: MemoryId,
        extent: &RunExtent,
        offload: bool,
    ) -> Result<Vec<usize>, NoRule> {
        let pair = HostAndAccelerator::from_machine(cost_model.machine, dram)?;
        let layers = cost_model.model.layers as usize;
        let all = self.most(layers);
        if self == Self::HostClass {
            return Ok(vec![1, 0]);
        }
        let place = |held| self.place(cost_model, &pair, held, offload);
        let (_, held) = largest(cost_model, extent, &pair, all, place)?;
        let mut counts = vec![held];
        counts.extend([1, 2, 3].iter().filter_map(|less| held.checked_sub(*less)));
        counts.extend([held * 3 / 4, held / 2, held / 4, 0]);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.dedup();
        Ok(counts)
    }

    /// The placement in which the GPU has `held` units. With `offload` it computes prefill, and
    /// fetches what the host has.
    pub fn placement(
        self,
        cost_model: CostModel<'_>,
        dram: MemoryId,
        held: usize,
        offload: bool,
    ) -> Result<Placement, NoRule> {
        let pair = HostAndAccelerator::from_machine(cost_model.machine, dram)?;
        Ok(self.place(cost_model, &pair, held, offload))
    }

    fn place(
        self,
        cost_model: CostModel<'_>,
        pair: &HostAndAccelerator,
        held: usize,
        offload: bool,
    ) -> Placement {
        let model = cost_model.model;
        let layers = model.layers as usize;
        let there = Placement::uniform(model, pair.accelerator, pair.own);
        let mut placement = with_host(model, pair.host, pair.table, pair.dram);
        if self != Self::GpuLayers || held > layers {
            placement.head.clone_from(&there.head);
        }
        let host = layers - held.min(layers);
        for (index, layer) in placement.layers.iter_mut().enumerate() {
            let kind = layer.kind;
            for (at, &sublayer) in kind.sublayers().iter().enumerate() {
                let large = LARGE.contains(&sublayer);
                let with_host = match self {
                    Self::GpuLayers => index < host,
                    Self::HostFromFront => large && index < host,
                    Self::HostFromBack => large && index >= layers - host,
                    Self::HostClass => (sublayer == Sublayer::Attention) == (held > 0),
                };
                let fetched = offload && sublayer != Sublayer::Attention;
                let prefill = if !with_host || fetched { pair.accelerator } else { pair.host };
                let (home, decode) = match with_host {
                    true => (pair.dram, pair.host),
                    false => (pair.own, pair.accelerator),
                };
                layer.sublayers[at] = vec![whole_slice(model.shape(kind), sublayer, home, prefill, decode)];
            }
        }
        placement
    }
}
