//! How many parameters a model has, how many bytes they take, and which model it is.

use crate::model::Model;
use crate::operator::Formats;
use crate::sublayer::Sublayer;
use hwprofiles::{Bytes, DType, Elements};
use sha2::{Digest, Sha256};

impl Model {
    /// Parameters, tied embeddings counted once: what model cards print.
    pub fn parameters(&self) -> Elements {
        let layer: u64 = Sublayer::LAYER.iter().map(|sublayer| self.parameters_of(*sublayer)).sum();
        Elements::new(
            self.layers * layer + self.parameters_of(Sublayer::Embed) + self.parameters_of(Sublayer::Head)
                - if self.tied_embeddings { self.vocab * self.hidden } else { 0 },
        )
    }

    /// Bytes of all weights where tied embeddings are stored once: matrices in `formats.weights`, vectors in f32.
    pub fn weight_bytes(&self, formats: &Formats) -> Bytes {
        let ends =
            self.sublayer_bytes(Sublayer::Embed, formats) + self.sublayer_bytes(Sublayer::Head, formats);
        let shared = match self.tied_embeddings {
            true => formats.weights.matrix_bytes(self.vocab, self.hidden),
            false => Bytes::ZERO,
        };
        self.layer_bytes(formats) * self.layers + ends.saturating_sub(shared)
    }

    /// Bytes of one layer's weights.
    pub fn layer_bytes(&self, formats: &Formats) -> Bytes {
        Sublayer::LAYER.iter().map(|sublayer| self.sublayer_bytes(*sublayer, formats)).sum()
    }

    /// Bytes of one sublayer's matrix and vectors.
    pub fn sublayer_bytes(&self, sublayer: Sublayer, formats: &Formats) -> Bytes {
        let rows = sublayer.matrix(self).map_or(0, |(rows, _)| rows);
        sublayer.matrix_bytes(self, formats.weights, &(0..rows)) + sublayer.vector_bytes(self)
    }

    /// 16 hexadecimal digits that differ wherever two models compute differently: the start of the SHA-256 of
    /// everything but the name and the format that the weights come in.
    pub fn fingerprint(&self) -> String {
        let shape = Self { name: String::new(), dtype: DType::F32, ..self.clone() };
        // A struct of numbers and enums always has a JSON text.
        let text = serde_json::to_string(&shape).unwrap_or_default();
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    fn parameters_of(&self, sublayer: Sublayer) -> u64 {
        let matrix = sublayer.matrix(self).map_or(0, |(rows, columns)| rows * columns);
        let float = DType::F32.bytes(Elements::new(1)).get();
        matrix + sublayer.vector_bytes(self).get() / float
    }
}
