//! Kinds of layers, and the sublayers of each.

use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use crate::model::wiring::BlockOrder;

/// Which sublayers a layer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LayerBlocks {
    /// Attention, then a feed-forward network.
    Dense,
    /// Attention beside a feed-forward network; both read the same residual.
    Parallel,
    /// Attention, then a mixture of experts.
    Experts,
    /// Attention, then a mixture of experts beside a shared expert that every token goes to.
    SharedExperts,
    /// Attention alone.
    Mixer,
    /// A feed-forward network alone.
    Network,
    /// A mixture of experts alone.
    ExpertsAlone,
    /// A mixture of experts and a shared expert alone.
    SharedExpertsAlone,
}

/// A kind of layer: its sublayers, and its shape among [`Model::shapes`]. Layers of a kind do the
/// same work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerKind {
    /// Its sublayers.
    pub blocks: LayerBlocks,
    /// Index of its shape.
    shape: u16,
}

impl LayerKind {
    /// Its sublayers, in the order in which they are issued.
    pub fn sublayers(self) -> &'static [Sublayer] {
        use Sublayer::{Attention, Experts, FfnDown, FfnUp, Out, Qkv, Router, SharedExpert};
        match self.blocks {
            LayerBlocks::Dense => &Sublayer::DENSE,
            // The network reads the residual before attention is added to it, so it comes before
            // that addition. On two devices, attention and network then run at the same time.
            LayerBlocks::Parallel => &[Qkv, Attention, FfnUp, FfnDown, Out],
            LayerBlocks::Experts => &[Qkv, Attention, Out, Router, Experts],
            // While the shared expert runs, another device can begin with the routed experts.
            LayerBlocks::SharedExperts => &[Qkv, Attention, Out, Router, SharedExpert, Experts],
            LayerBlocks::Mixer => &[Qkv, Attention, Out],
            LayerBlocks::Network => &[FfnUp, FfnDown],
            LayerBlocks::ExpertsAlone => &[Router, Experts],
            LayerBlocks::SharedExpertsAlone => &[Router, SharedExpert, Experts],
        }
    }

    /// Whether it has a mixer, and with it a cache.
    pub fn has_mixer(self) -> bool {
        self.sublayers().contains(&Sublayer::Attention)
    }
}

impl Model {
    /// Whether a layer of this shape has a mixer.
    pub fn has_mixer(&self) -> bool {
        self.wiring.block != BlockOrder::NetworkOnly
    }

    /// The sublayers of a layer of this shape.
    pub fn blocks(&self) -> LayerBlocks {
        let shared = self.experts.as_ref().map(|experts| experts.shared > 0);
        match (self.wiring.block, shared) {
            (BlockOrder::MixerOnly, _) => LayerBlocks::Mixer,
            (BlockOrder::NetworkOnly, None) => LayerBlocks::Network,
            (BlockOrder::NetworkOnly, Some(false)) => LayerBlocks::ExpertsAlone,
            (BlockOrder::NetworkOnly, Some(true)) => LayerBlocks::SharedExpertsAlone,
            (_, Some(false)) => LayerBlocks::Experts,
            (_, Some(true)) => LayerBlocks::SharedExperts,
            (BlockOrder::Sequential, None) => LayerBlocks::Dense,
            (BlockOrder::Parallel | BlockOrder::ParallelOneNorm, None) => LayerBlocks::Parallel,
        }
    }

    /// The kind of layer `layer`.
    pub fn kind(&self, layer: u64) -> LayerKind {
        LayerKind { blocks: self.layer(layer).blocks(), shape: self.shape_index(layer) }
    }

    /// The shape of layers of `kind`; of a shape, the shape itself.
    pub fn shape(&self, kind: LayerKind) -> &Model {
        self.shapes().get(usize::from(kind.shape)).unwrap_or(self)
    }

    /// The shape of layers of `kind`; without one, for the embedding and the head, the model
    /// itself.
    pub fn shape_or_ends(&self, kind: Option<LayerKind>) -> &Model {
        kind.map_or(self, |kind| self.shape(kind))
    }

    /// The layers of `kind`, ascending.
    pub fn layers_of(&self, kind: LayerKind) -> impl Iterator<Item = u64> + '_ {
        (0..self.layers).filter(move |&layer| self.shape_index(layer) == kind.shape)
    }

    /// The kinds of its layers in the order of first appearance, each with its number of layers.
    pub fn kinds(&self) -> impl Iterator<Item = (LayerKind, u64)> + '_ {
        self.shapes().iter().enumerate().map(|(index, shape)| {
            // A model has at most 2¹⁶ layers.
            let kind = LayerKind { blocks: shape.blocks(), shape: index as u16 };
            (kind, self.layers_of(kind).count() as u64)
        })
    }

    /// Its sublayers, each once: embed, those of its layers, head.
    pub fn sublayers(&self) -> Vec<Sublayer> {
        let mut sublayers = vec![Sublayer::Embed];
        for (kind, _) in self.kinds() {
            let new = kind.sublayers().iter().filter(|sublayer| !sublayers.contains(sublayer));
            let new: Vec<_> = new.copied().collect();
            sublayers.extend(new);
        }
        sublayers.push(Sublayer::Head);
        sublayers
    }
}
