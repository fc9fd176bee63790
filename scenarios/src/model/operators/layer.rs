//! Kinds of layers, and the sublayers of each.

use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use std::ops::Range;

/// What a layer consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LayerKind {
    /// Attention, then a feed-forward network.
    Dense,
    /// Attention beside a feed-forward network; both read the same residual.
    Parallel,
    /// Attention, then a mixture of experts.
    Experts,
    /// Attention, then a mixture of experts beside a shared expert that every token goes to.
    SharedExperts,
}

impl LayerKind {
    /// Its sublayers, in the order in which they are issued.
    pub fn sublayers(self) -> &'static [Sublayer] {
        use Sublayer::{Attention, Experts, FfnDown, FfnUp, Out, Qkv, Router, SharedExpert};
        match self {
            LayerKind::Dense => &Sublayer::DENSE,
            // The network reads the residual before attention is added to it, so it comes before
            // that addition. On two devices, attention and network then run at the same time.
            LayerKind::Parallel => &[Qkv, Attention, FfnUp, FfnDown, Out],
            LayerKind::Experts => &[Qkv, Attention, Out, Router, Experts],
            // While the shared expert runs, another device can begin with the routed experts.
            LayerKind::SharedExperts => &[Qkv, Attention, Out, Router, SharedExpert, Experts],
        }
    }
}

impl Model {
    /// The kind of layer `layer`.
    pub fn kind(&self, layer: u64) -> LayerKind {
        match &self.experts {
            Some(experts) if layer < experts.dense_layers => self.dense_kind(),
            Some(experts) if experts.shared > 0 => LayerKind::SharedExperts,
            Some(_) => LayerKind::Experts,
            None => self.dense_kind(),
        }
    }

    /// The kind of its layers without experts.
    pub fn dense_kind(&self) -> LayerKind {
        if self.is_parallel() { LayerKind::Parallel } else { LayerKind::Dense }
    }

    /// The layers of `kind`, which are adjacent; an empty range if there are none.
    pub fn layers_of(&self, kind: LayerKind) -> Range<u64> {
        let dense =
            self.experts.as_ref().map_or(self.layers, |experts| experts.dense_layers.min(self.layers));
        if kind == self.dense_kind() {
            0..dense
        } else if dense < self.layers && self.kind(dense) == kind {
            dense..self.layers
        } else {
            0..0
        }
    }

    /// The kinds of its layers in their order, each with its number of layers.
    pub fn kinds(&self) -> impl Iterator<Item = (LayerKind, u64)> {
        let all = [LayerKind::Dense, LayerKind::Parallel, LayerKind::Experts, LayerKind::SharedExperts];
        let counted = all.map(|kind| (kind, self.layers_of(kind)));
        counted
            .into_iter()
            .filter(|(_, layers)| !layers.is_empty())
            .map(|(kind, layers)| (kind, layers.end - layers.start))
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
