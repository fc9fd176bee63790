//! Parameters of a model, their bytes, and the model's fingerprint.

use crate::model::operators::formats::{Formats, WeightClass};
use crate::model::operators::layer::LayerKind;
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use hwprofiles::{Bytes, DType, Elements};
use sha2::{Digest, Sha256};

impl Model {
    /// Parameters as model cards print them: tied embeddings count once.
    pub fn parameters(&self) -> Elements {
        let layers: u64 = self.kinds().map(|(kind, layers)| layers * self.parameters_of_layer(kind)).sum();
        Elements::new(
            layers + self.parameters_of(Sublayer::Embed) + self.parameters_of(Sublayer::Head)
                - if self.tied_embeddings { self.vocab * self.hidden } else { 0 },
        )
    }

    /// Parameters that one token uses: all but those of the experts that it does not go to.
    pub fn active_parameters(&self) -> Elements {
        let Some(experts) = &self.experts else { return self.parameters() };
        let layers = self.layers - self.layers_of(self.dense_kind()).end;
        let one = self.parameters_of(Sublayer::Experts) / experts.count;
        Elements::new(self.parameters().get() - layers * one * (experts.count - experts.per_token))
    }

    /// Bytes of all weights: matrices in their formats, vectors in f32, tied embeddings once.
    pub fn weight_bytes(&self, formats: &Formats) -> Bytes {
        let ends =
            self.sublayer_bytes(Sublayer::Embed, formats) + self.sublayer_bytes(Sublayer::Head, formats);
        let shared = match self.tied_embeddings {
            true => formats.weights.for_sublayer(Sublayer::Embed).matrix_bytes(self.vocab, self.hidden),
            false => Bytes::ZERO,
        };
        self.layers_bytes(formats) + ends.saturating_sub(shared)
    }

    /// Bytes of all layers' weights.
    pub fn layers_bytes(&self, formats: &Formats) -> Bytes {
        self.kinds().map(|(kind, layers)| self.layer_bytes(kind, formats) * layers).sum()
    }

    /// Bytes of the weights of one layer of `kind`.
    pub fn layer_bytes(&self, kind: LayerKind, formats: &Formats) -> Bytes {
        kind.sublayers().iter().map(|sublayer| self.sublayer_bytes(*sublayer, formats)).sum()
    }

    /// Bytes of one sublayer's matrix and vectors.
    pub fn sublayer_bytes(&self, sublayer: Sublayer, formats: &Formats) -> Bytes {
        let rows = sublayer.matrix(self).map_or(0, |(rows, _)| rows);
        sublayer.matrix_bytes(self, formats.weights, &(0..rows)) + sublayer.vector_bytes(self)
    }

    /// 16 hexadecimal digits that differ if two models compute differently: the start of the
    /// SHA-256 of everything but the name and the published weights' format.
    pub fn fingerprint(&self) -> String {
        let shape = Self { name: String::new(), dtype: DType::F32, ..self.clone() };
        // A struct of numbers and enums can always be written as JSON.
        let text = serde_json::to_string(&shape).unwrap_or_default();
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The share of all matrix elements that belong to matrices of `class`; tied embeddings count
    /// once.
    pub fn share_of(&self, class: WeightClass) -> f64 {
        let numbers = |sublayer: Sublayer| sublayer.matrix(self).map_or(0, |(rows, columns)| rows * columns);
        let mut by_class = [0_u64; WeightClass::ALL.len()];
        for (kind, layers) in self.kinds() {
            for &sublayer in kind.sublayers() {
                by_class[WeightClass::from_sublayer(sublayer) as usize] += layers * numbers(sublayer);
            }
        }
        let tables = if self.tied_embeddings { 1 } else { 2 };
        by_class[WeightClass::Ends as usize] += tables * numbers(Sublayer::Embed);
        by_class[class as usize] as f64 / by_class.iter().sum::<u64>().max(1) as f64
    }

    fn parameters_of_layer(&self, kind: LayerKind) -> u64 {
        kind.sublayers().iter().map(|sublayer| self.parameters_of(*sublayer)).sum()
    }

    fn parameters_of(&self, sublayer: Sublayer) -> u64 {
        let matrix = sublayer.matrix(self).map_or(0, |(rows, columns)| rows * columns);
        let float = DType::F32.bytes(Elements::new(1)).get();
        matrix + sublayer.vector_bytes(self).get() / float
    }
}
