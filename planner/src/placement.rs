//! A placement: for every sublayer the memory that holds it and the device that computes it, by index.
//!
//! The plan document ([`crate::Plan`]) says the same with names; this form is what the cost model,
//! the solver, the simulator and the executor work on.

use hwprofiles::{DeviceId, MemoryId};
use scenarios::{Model, Phase, Sublayer};
use std::ops::Range;

/// Rows of a matrix are split at multiples of this, so that a part is a contiguous range of the packed weights.
pub const ROW_PANEL: u64 = 32;

/// One device's part of a sublayer; usually all of it.
///
/// For attention, which has no matrix, `rows` is empty and `home` is the memory of the layer's KV cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Output rows of the sublayer's matrix.
    pub rows: Range<u64>,
    /// The memory that holds them.
    pub home: MemoryId,
    /// The device that computes them in prefill. Where `home` is not its own memory they are streamed.
    pub prefill: DeviceId,
    /// The device that computes them in decode.
    pub decode: DeviceId,
}

impl Slice {
    /// The device that computes it in `phase`.
    pub fn device(&self, phase: Phase) -> DeviceId {
        match phase {
            Phase::Prefill => self.prefill,
            Phase::Decode => self.decode,
        }
    }
}

/// The slices of one sublayer: at least one; their rows partition the matrix in order. The first one's
/// device also computes the sublayer's operators that have no matrix.
pub type Slices = Vec<Slice>;

/// One layer: the slices of [`Sublayer::LAYER`], in that order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerPlacement(pub [Slices; Sublayer::LAYER.len()]);

impl LayerPlacement {
    /// The slices of `sublayer`, which must be one of a layer's.
    pub fn slices(&self, sublayer: Sublayer) -> &Slices {
        let index = Sublayer::LAYER.iter().position(|&s| s == sublayer);
        &self.0[index.expect("embed and head are not in a layer")]
    }

    /// The memory of its KV cache.
    pub fn kv_home(&self) -> MemoryId {
        self.slices(Sublayer::Attention)[0].home
    }
}

/// A whole model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The token table.
    pub embed: Slices,
    /// The layers, first to last.
    pub layers: Vec<LayerPlacement>,
    /// The final norm and the head.
    pub head: Slices,
}

impl Placement {
    /// Everything computed by `device` with weights and KV in `memory`.
    pub fn uniform(model: &Model, device: DeviceId, memory: MemoryId) -> Self {
        let whole = |sublayer: Sublayer| vec![whole(model, sublayer, memory, device, device)];
        let layer = LayerPlacement(Sublayer::LAYER.map(whole));
        Self {
            embed: whole(Sublayer::Embed),
            layers: vec![layer; model.layers as usize],
            head: whole(Sublayer::Head),
        }
    }

    /// Every sublayer with its layer (`None` for embed and head), in the order of computation.
    pub fn sublayers(&self) -> impl Iterator<Item = (Option<u32>, Sublayer, &Slices)> {
        let layers = self.layers.iter().enumerate().flat_map(|(i, layer)| {
            Sublayer::LAYER.iter().zip(&layer.0).map(move |(&s, slices)| (Some(i as u32), s, slices))
        });
        std::iter::once((None, Sublayer::Embed, &self.embed)).chain(layers).chain(std::iter::once((
            None,
            Sublayer::Head,
            &self.head,
        )))
    }
}

/// The single slice of an undivided sublayer.
pub fn whole(
    model: &Model,
    sublayer: Sublayer,
    home: MemoryId,
    prefill: DeviceId,
    decode: DeviceId,
) -> Slice {
    let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
    Slice { rows: 0..rows, home, prefill, decode }
}

/// The row at which a cumulative share ends: a multiple of [`ROW_PANEL`].
pub(crate) fn split_row(rows: u64, share: f64) -> u64 {
    ((rows as f64 * share / ROW_PANEL as f64).round() as u64).saturating_mul(ROW_PANEL).min(rows)
}
