//! ZeRO-Inference (DeepSpeed, 2022): the GPU keeps some layers, or streams all of them and uses its
//! memory for a larger batch.
//!
//! A step takes Σ max(streamed bytes ÷ link, compute), since layers are fetched one ahead.

use super::model_totals::{layer_weights, product_flop};
use hwprofiles::{Bytes, BytesPerSec, FlopPerSec, Seconds};
use scenarios::{Formats, Model, Step};

/// The rates in ZeRO-Inference's cost form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// From the host to the GPU.
    pub link: BytesPerSec,
    /// Matrix products.
    pub matrix: FlopPerSec,
    /// Reading the GPU's memory.
    pub memory: BytesPerSec,
}

/// The share of the layers in the GPU's memory, and the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// The share of the layers' weights.
    pub kept: f64,
    /// Sequences.
    pub batch: u64,
}

impl Policy {
    /// A decode step: each layer's weights are read and multiplied while the next layer is fetched.
    pub fn step(&self, model: &Model, formats: &Formats, rates: &Rates) -> Seconds {
        let weights = layer_weights(model, formats);
        // Attention is left out, so the context does not matter.
        let flop = product_flop(model, formats, &Step::decode(self.batch, 0));
        let compute = (weights / rates.memory).max(flop / rates.matrix);
        let streamed = weights / rates.link;
        compute * self.kept + compute.max(streamed) * (1.0 - self.kept)
    }

    /// The time of a step per token, one token for each sequence: the inverse of the throughput.
    pub fn time_per_token(&self, model: &Model, formats: &Formats, rates: &Rates) -> Seconds {
        self.step(model, formats, rates) / self.batch as f64
    }

    /// The policy that keeps `kept` of the layers and fills the rest of `capacity` with sequences
    /// of `sequence` bytes each.
    pub fn with_largest_batch(
        kept: f64,
        model: &Model,
        formats: &Formats,
        capacity: Bytes,
        sequence: Bytes,
    ) -> Self {
        let left = capacity.as_f64() - layer_weights(model, formats).as_f64() * kept;
        Self { kept, batch: (left.max(0.0) / sequence.as_f64()) as u64 }
    }
}
