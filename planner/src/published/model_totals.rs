//! Bytes and FLOP of all layers of a model.

use hwprofiles::{Bytes, Flop};
use scenarios::{Formats, LayerKind, Model, Operator, Step, Sublayer, Work};

/// Bytes of all layers' matrices.
pub(super) fn layer_weights(model: &Model, formats: &Formats) -> Bytes {
    let of_kind = |kind: LayerKind| -> Bytes {
        let of = |&sublayer: &Sublayer| whole_matrix(model.shape(kind), formats, sublayer);
        kind.sublayers().iter().map(of).sum()
    };
    model.kinds().map(|(kind, count)| of_kind(kind) * count).sum()
}

/// Bytes of a sublayer's matrix; attention has none.
pub(super) fn whole_matrix(model: &Model, formats: &Formats, sublayer: Sublayer) -> Bytes {
    let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
    sublayer.matrix_bytes(model, formats.weights, &(0..rows))
}

/// The work of a sublayer's matrix.
pub(super) fn product(model: &Model, formats: &Formats, step: &Step, sublayer: Sublayer) -> Option<Work> {
    let rows = sublayer.matrix(model).map(|(rows, _)| rows)?;
    let operator = sublayer.operators(model).iter().find(|operator: &&Operator| operator.is_matmul())?;
    Some(Work::count(*operator, model, formats, step, &(0..rows)))
}

/// FLOP of all layers' matrices.
pub(super) fn product_flop(model: &Model, formats: &Formats, step: &Step) -> Flop {
    let of_kind = |kind: LayerKind| -> Flop {
        let works = kind.sublayers().iter().filter_map(|&s| product(model.shape(kind), formats, step, s));
        works.map(|work| work.flop).sum()
    };
    model.kinds().map(|(kind, count)| of_kind(kind) * count).sum()
}
