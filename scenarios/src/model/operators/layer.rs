//! Kinds of layers: which sublayers each is made of.

use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use std::ops::Range;

/// What a layer is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LayerKind {
    /// Attention and a feed-forward network.
    Dense,
    /// Attention beside a feed-forward network: both read the same residual.
    Parallel,
    /// Attention and a mixture of experts.
    Experts,
    /// Attention, and a mixture of experts beside one that every token goes to.
    SharedExperts,
}

impl LayerKind {
    /// Its sublayers, in the order in which they are issued.
    pub fn sublayers(self) -> &'static [Sublayer] {
        use Sublayer::{Attention, Experts, FfnDown, FfnUp, Out, Qkv, Router, SharedExpert};
        match self {
            LayerKind::Dense => &Sublayer::DENSE,
            // The network first: it reads the residual that attention is not yet added to, and the attention's sum does
            // not wait for it unless they share a device.
            LayerKind::Parallel => &[Qkv, Attention, FfnUp, FfnDown, Out],
            LayerKind::Experts => &[Qkv, Attention, Out, Router, Experts],
            // The shared expert first: whoever computes the others can begin while it is under way.
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

    /// The layers of `kind`, which are neighbours; an empty range where there is none.
    pub fn layers_of(&self, kind: LayerKind) -> Range<u64> {
        let dense =
            self.experts.as_ref().map_or(self.layers, |experts| experts.dense_layers.min(self.layers));
        match kind {
            _ if kind == self.dense_kind() => 0..dense,
            _ if dense < self.layers && self.kind(dense) == kind => dense..self.layers,
            _ => 0..0,
        }
    }

    /// The kinds that it has, in the order of its layers, each with how many layers are of it.
    pub fn kinds(&self) -> impl Iterator<Item = (LayerKind, u64)> {
        let all = [LayerKind::Dense, LayerKind::Parallel, LayerKind::Experts, LayerKind::SharedExperts];
        let counted = all.map(|kind| (kind, self.layers_of(kind)));
        counted
            .into_iter()
            .filter(|(_, layers)| !layers.is_empty())
            .map(|(kind, layers)| (kind, layers.end - layers.start))
    }

    /// The sublayers that it has, each once: embed, those of its layers, head.
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
