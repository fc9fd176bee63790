//! Parameters of a model, their bytes, and the model's fingerprint.

use crate::model::mixer::{Mixer, SparseIndex};
use crate::model::operators::formats::{Formats, WeightClass};
use crate::model::operators::layer::LayerKind;
use crate::model::operators::products::Product;
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::LayerShapes;
use crate::model::transformer::Model;
use crate::model::wiring::{BlockOrder, Wiring};
use hwprofiles::{Bytes, DType, Elements, hexadecimal};
use sha2::{Digest, Sha256};

impl Model {
    /// Parameters as model cards print them: tied embeddings count once, modules that predict
    /// several tokens do not count.
    pub fn parameters(&self) -> Elements {
        let layers: u64 = self.kinds().map(|(kind, layers)| layers * self.parameters_of_layer(kind)).sum();
        Elements::new(
            layers + self.parameters_of(Sublayer::Embed) + self.parameters_of(Sublayer::Head)
                - if self.tied_embeddings { self.vocab * self.hidden } else { 0 },
        )
    }

    /// Parameters that one token uses: those of all layers but of the experts that it does not go
    /// to, and those of the head. The embedding is a look-up and does not count.
    pub fn active_parameters(&self) -> Elements {
        let unused = |shape: &Self| {
            let experts = shape.experts.as_ref().filter(|_| shape.has_network());
            experts.map_or(0, |experts| {
                let one = shape.parameters_of(Sublayer::Experts) / experts.count;
                one * (experts.count - experts.per_token)
            })
        };
        let layers = self
            .kinds()
            .map(|(kind, layers)| layers * (self.parameters_of_layer(kind) - unused(self.shape(kind))));
        Elements::new(layers.sum::<u64>() + self.parameters_of(Sublayer::Head))
    }

    /// Parameters of the modules that predict several tokens: for each a layer like the last one, a
    /// projection of two residuals to one, and three norms. Embedding and head are the model's own.
    pub fn mtp_parameters(&self) -> Elements {
        let shape = self.mtp_shape();
        let kind = shape.kind(0);
        let layer = shape.parameters_of_layer(kind);
        Elements::new(self.mtp * (layer + 2 * self.hidden * self.hidden + 3 * self.hidden))
    }

    /// The layer of such a module: like the last one, but with an indexer of its own, without
    /// n-grams, and with DeepSeek-V4's window without compressed keys.
    pub fn mtp_shape(&self) -> Self {
        if matches!(self.mixer, Mixer::Compressed(_)) {
            return Self { index: None, layers: 1, shapes: LayerShapes::default(), ..self.clone() };
        }
        let last = self.layer(self.layers.saturating_sub(1));
        let index = last.index.map(|index| SparseIndex { computes: true, ..index });
        Self { index, layers: 1, wiring: Wiring { ngrams: None, ..last.wiring }, ..last.clone() }
    }

    /// The first module that predicts several tokens, as a model of one layer which drafts for
    /// this one: its first residual is W·\[norm(e); norm(h)\], with the embedding e of a token and
    /// the hidden state h behind the final norm one token before (DeepSeek-V3, arXiv:2412.19437,
    /// section 2.2). For the token after the next it reads its own hidden state. It has its own
    /// copies of embedding and head. `None` for a model without such modules.
    pub fn mtp_module(&self) -> Option<Self> {
        let shape = (self.mtp > 0).then(|| self.mtp_shape())?;
        let wiring = Wiring { module_behind: Some(self.layers), ..shape.wiring };
        Some(Self {
            name: format!("{}-mtp", self.name),
            wiring,
            mtp: 0,
            tied_embeddings: false,
            dtype: self.dtype,
            published: self.published.clone(),
            ..shape
        })
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
        let shape = self.shape(kind);
        kind.sublayers().iter().map(|sublayer| shape.sublayer_bytes(*sublayer, formats)).sum()
    }

    /// Bytes of one sublayer's matrix and vectors, in a layer of this model's shape.
    pub fn sublayer_bytes(&self, sublayer: Sublayer, formats: &Formats) -> Bytes {
        let rows = sublayer.matrix(self).map_or(0, |(rows, _)| rows);
        sublayer.matrix_bytes(self, formats.weights, &(0..rows)) + sublayer.vector_bytes(self)
    }

    /// 16 hexadecimal digits that differ if two models compute differently: the start of the
    /// SHA-256 of everything but the name and the published weights' format.
    pub fn fingerprint(&self) -> String {
        let blank =
            |shape: &Self| Self { name: String::new(), dtype: DType::F32, published: None, ..shape.clone() };
        let shape = self.map_shapes(blank);
        // A struct of numbers and enums can always be written as JSON.
        let text = serde_json::to_string(&shape).unwrap_or_default();
        let digest = Sha256::digest(text.as_bytes());
        hexadecimal(&digest[..8])
    }

    /// The share of all matrix elements that belong to matrices of `class`; tied embeddings count
    /// once.
    pub fn share_of(&self, class: WeightClass) -> f64 {
        let mut by_class = [0_u64; WeightClass::ALL.len()];
        for (kind, layers) in self.kinds() {
            let shape = self.shape(kind);
            for &sublayer in kind.sublayers() {
                by_class[WeightClass::from_sublayer(sublayer) as usize] += layers * sublayer.numbers(shape);
            }
        }
        let tables = if self.tied_embeddings { 1 } else { 2 };
        let ngrams = self.wiring.ngrams.map_or(0, |ngrams| ngrams.rows * ngrams.width);
        by_class[WeightClass::Ends as usize] += tables * Sublayer::Head.numbers(self) + ngrams;
        by_class[class as usize] as f64 / by_class.iter().sum::<u64>().max(1) as f64
    }

    /// Whether a layer of this shape has a feed-forward network or experts.
    pub fn has_network(&self) -> bool {
        self.wiring.block != BlockOrder::MixerOnly
    }

    fn parameters_of_layer(&self, kind: LayerKind) -> u64 {
        let shape = self.shape(kind);
        kind.sublayers().iter().map(|sublayer| shape.parameters_of(*sublayer)).sum()
    }

    fn parameters_of(&self, sublayer: Sublayer) -> u64 {
        let float = DType::F32.bytes(Elements::new(1)).get();
        sublayer.numbers(self) + sublayer.vector_bytes(self).get() / float
    }
}

impl Sublayer {
    /// Numbers of its matrices, in a layer of `model`'s shape.
    pub fn numbers(self, model: &Model) -> u64 {
        match self {
            Sublayer::Experts => self.matrix(model).map_or(0, |(rows, columns)| rows * columns),
            _ => self.own_products(model).iter().map(Product::numbers).sum(),
        }
    }
}
