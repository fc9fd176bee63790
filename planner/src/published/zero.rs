//! ZeRO-Inference (DeepSpeed, 2022): should the GPU keep some layers, or stream all of them and spend its memory on
//! a larger batch?
//!
//! A step takes Σ max(streamed bytes ÷ link, compute): layers are fetched one ahead.

use hwprofiles::{Bytes, BytesPerSec, Flop, FlopPerSec, Seconds};
use scenarios::{Formats, Model, Sublayer};

/// What its cost form depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// From the host to the GPU.
    pub link: BytesPerSec,
    /// Matrix products.
    pub matrix: FlopPerSec,
    /// Reading the GPU's memory.
    pub memory: BytesPerSec,
}

/// A share of the layers kept in the GPU's memory, and the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Of the layers' weights.
    pub kept: f64,
    /// Sequences.
    pub batch: u64,
}

/// Bytes of all layers' matrices.
pub fn layer_weights(model: &Model, formats: &Formats) -> Bytes {
    let of = |sublayer: Sublayer| {
        let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
        sublayer.matrix_bytes(model, formats.weights, &(0..rows))
    };
    Sublayer::LAYER.into_iter().map(of).sum::<Bytes>() * model.layers
}

impl Policy {
    /// A decode step: each layer's weights are read and multiplied, those not kept are fetched meanwhile.
    pub fn step(&self, model: &Model, formats: &Formats, rates: &Rates) -> Seconds {
        let weights = layer_weights(model, formats);
        let matrices = Sublayer::LAYER.into_iter().filter_map(|sublayer| sublayer.matrix(model));
        let products: u128 = matrices.map(|(n, k)| u128::from(n) * u128::from(k)).sum();
        let flop = Flop::new(2 * products * u128::from(model.layers) * u128::from(self.batch));
        let compute = (weights / rates.memory).max(flop / rates.matrix);
        let streamed = weights / rates.link;
        compute * self.kept + compute.max(streamed) * (1.0 - self.kept)
    }

    /// The step shared by its tokens, one for each sequence: the inverse of the throughput.
    pub fn time_per_token(&self, model: &Model, formats: &Formats, rates: &Rates) -> Seconds {
        self.step(model, formats, rates) / self.batch as f64
    }

    /// The policy that keeps `kept` of the layers and fills what `capacity` then has left with sequences that take
    /// `sequence` each.
    pub fn with_largest_batch(kept: f64, weights: Bytes, capacity: Bytes, sequence: Bytes) -> Self {
        let left = capacity.as_f64() - weights.as_f64() * kept;
        Self { kept, batch: (left.max(0.0) / sequence.as_f64()) as u64 }
    }
}
