//! A placement by index: for every sublayer the memory that holds it and the device that computes
//! it.
//!
//! The plan document ([`crate::Plan`]) has the same content with names. The cost model, the solver,
//! the simulator and the executor use this form.

use crate::placement::pipelining::Pipelining;
use hwprofiles::{DeviceId, MemoryId};
pub use scenarios::ROW_PANEL;
use scenarios::{LayerKind, Model, Phase, Sublayer};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// One device's part of a sublayer, usually all of it.
///
/// Attention has no matrix: its `rows` are empty, and `home` is the memory of the layer's KV cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Output rows of the sublayer's matrix; of experts, the indices of experts.
    pub rows: Range<u64>,
    /// The memory that holds them.
    pub home: MemoryId,
    /// The device that computes them in prefill. It streams them if `home` is not its own memory.
    pub prefill: DeviceId,
    /// The device that computes them in decode.
    pub decode: DeviceId,
}

impl Slice {
    /// The device that computes the slice in `phase`.
    pub fn device(&self, phase: Phase) -> DeviceId {
        match phase {
            Phase::Prefill => self.prefill,
            Phase::Decode => self.decode,
        }
    }
}

/// The slices of one sublayer, at least one. Their rows partition the matrix in order. The device
/// of the first slice also runs the sublayer's operators without a matrix.
pub type Slices = Vec<Slice>;

/// Placement of one layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerPlacement {
    /// Which sublayers the layer has.
    pub kind: LayerKind,
    /// The slices of each sublayer, in the order of [`LayerKind::sublayers`].
    pub sublayers: LayerSlices,
}

/// The slices of a layer's sublayers. Copies share them until one is changed: a search copies
/// thousands of placements and changes few of their layers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerSlices(Arc<Vec<Slices>>);

impl FromIterator<Slices> for LayerSlices {
    fn from_iter<I: IntoIterator<Item = Slices>>(slices: I) -> Self {
        Self(Arc::new(slices.into_iter().collect()))
    }
}

impl Deref for LayerSlices {
    type Target = [Slices];

    fn deref(&self) -> &[Slices] {
        &self.0
    }
}

impl DerefMut for LayerSlices {
    fn deref_mut(&mut self) -> &mut [Slices] {
        let slices: &mut Vec<Slices> = Arc::make_mut(&mut self.0);
        slices
    }
}

impl LayerPlacement {
    /// A layer of `kind` whose sublayers have the slices that `slices` returns.
    pub fn from_slices(kind: LayerKind, slices: impl FnMut(Sublayer) -> Slices) -> Self {
        Self { kind, sublayers: kind.sublayers().iter().copied().map(slices).collect() }
    }

    /// The slices of `sublayer`.
    ///
    /// # Panics
    /// If layers of this kind have no such sublayer.
    pub fn slices(&self, sublayer: Sublayer) -> &Slices {
        let index = self.kind.sublayers().iter().position(|&s| s == sublayer);
        &self.sublayers[index.expect("a sublayer of this kind of layer")]
    }

    /// Its sublayers with their slices, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Sublayer, &Slices)> {
        self.kind.sublayers().iter().copied().zip(self.sublayers.iter())
    }

    /// The sublayers that `other`, a layer of the same kind, places otherwise, with their slices
    /// here and there.
    pub(crate) fn differences(&self, other: &Self) -> Vec<(Sublayer, Slices, Slices)> {
        let both = self.iter().zip(other.sublayers.iter());
        let different = both.filter(|((_, here), there)| here != there);
        different.map(|((sublayer, here), there)| (sublayer, here.clone(), there.clone())).collect()
    }

    /// The memory of its cache; `None` in a layer without a mixer.
    pub fn kv_home(&self) -> Option<MemoryId> {
        self.kind.has_mixer().then(|| self.slices(Sublayer::Attention)[0].home)
    }
}

/// Placement of a whole model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The token table.
    pub embed: Slices,
    /// The layers, first to last.
    pub layers: Vec<LayerPlacement>,
    /// The final norm and the head.
    pub head: Slices,
    /// Overlap within a step.
    pub pipelining: Pipelining,
}

impl Placement {
    /// All layers computed by `device`, with weights and KV in `memory`.
    pub fn uniform(model: &Model, device: DeviceId, memory: MemoryId) -> Self {
        let whole = |shape: &Model, sublayer| vec![whole_slice(shape, sublayer, memory, device, device)];
        let layer = |kind| LayerPlacement::from_slices(kind, |sublayer| whole(model.shape(kind), sublayer));
        Self {
            embed: whole(model, Sublayer::Embed),
            layers: Self::layers_of_kinds(model, layer),
            head: whole(model, Sublayer::Head),
            pipelining: Pipelining::default(),
        }
    }

    /// The model's layers, each as `layer` places those of its kind.
    pub(crate) fn layers_of_kinds(
        model: &Model,
        layer: impl Fn(LayerKind) -> LayerPlacement,
    ) -> Vec<LayerPlacement> {
        let mut known: Vec<LayerPlacement> = Vec::new();
        let of_kind = |index| {
            let kind = model.kind(index);
            let at = known.iter().position(|layer| layer.kind == kind).unwrap_or_else(|| {
                known.push(layer(kind));
                known.len() - 1
            });
            known[at].clone()
        };
        (0..model.layers).map(of_kind).collect()
    }

    /// Every sublayer with its layer (`None` for embed and head), in the order of computation.
    pub fn sublayers(&self) -> impl Iterator<Item = (Option<u32>, Sublayer, &Slices)> {
        sublayers(&self.embed, self.layers.iter(), &self.head)
    }

    /// The same without a copy of its layers.
    pub(crate) fn view(&self) -> PlacementView<'_> {
        let Self { embed, layers, head, pipelining } = self;
        PlacementView { embed, layers: layers.iter().collect(), head, pipelining: *pipelining }
    }
}

/// A placement whose layers are elsewhere, some of them several times.
#[derive(Debug, Clone)]
pub(crate) struct PlacementView<'p> {
    pub embed: &'p Slices,
    pub layers: Vec<&'p LayerPlacement>,
    pub head: &'p Slices,
    pub pipelining: Pipelining,
}

impl<'p> PlacementView<'p> {
    /// See [`Placement::sublayers`].
    pub fn sublayers(&self) -> impl Iterator<Item = (Option<u32>, Sublayer, &'p Slices)> {
        sublayers(self.embed, self.layers.iter().copied(), self.head)
    }
}

fn sublayers<'p>(
    embed: &'p Slices,
    layers: impl Iterator<Item = &'p LayerPlacement>,
    head: &'p Slices,
) -> impl Iterator<Item = (Option<u32>, Sublayer, &'p Slices)> {
    let layers = layers.enumerate().flat_map(|(i, layer)| {
        layer.iter().map(move |(sublayer, slices)| (Some(i as u32), sublayer, slices))
    });
    let ends = [(None, Sublayer::Embed, embed), (None, Sublayer::Head, head)].map(std::iter::once);
    let [first, last] = ends;
    first.chain(layers).chain(last)
}

/// The single slice of an undivided sublayer of layers of `model`'s shape.
pub fn whole_slice(
    model: &Model,
    sublayer: Sublayer,
    home: MemoryId,
    prefill: DeviceId,
    decode: DeviceId,
) -> Slice {
    let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
    Slice { rows: 0..rows, home, prefill, decode }
}

/// The row at which a cumulative share of `rows` ends, rounded to a multiple of
/// [`Sublayer::panel`].
pub(crate) fn split_row(rows: u64, share: f64, panel: u64) -> u64 {
    ((rows as f64 * share / panel as f64).round() as u64).saturating_mul(panel).min(rows)
}
