//! The formats in which a model's files hold its matrices.

use crate::model::formats::weight_format::WeightFormat;
use serde::Serialize;

/// The format of each class of matrices in a model's own files; some are quantised.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PublishedFormats {
    /// Projections around the mixers.
    pub attention: WeightFormat,
    /// Feed-forward networks, shared experts and routers.
    pub ffn: WeightFormat,
    /// Routed experts.
    pub experts: WeightFormat,
    /// The output head.
    pub head: WeightFormat,
    /// The token table.
    pub embed: WeightFormat,
}
