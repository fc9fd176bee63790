//! The products of matrices that a sublayer consists of.

use crate::model::mixer::{CompressedAttention, Mixer};
use crate::model::operators::step::Step;
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use hwprofiles::Phase;
use smallvec::{SmallVec, smallvec};

/// The products of one sublayer; most have one.
pub(crate) type Products = SmallVec<[Product; 4]>;

/// One product y = x · Wᵀ of a sublayer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Product {
    /// Rows of W: columns of y.
    pub rows: u64,
    /// Columns of W.
    pub columns: u64,
    /// Whether it is the expansion of latent attention: a prefill also computes it for the tokens
    /// that are already in the cache, and its matrix is among attention's vectors.
    pub is_expansion: bool,
}

impl Product {
    fn new(rows: u64, columns: u64) -> Self {
        Self { rows, columns, is_expansion: false }
    }

    /// Numbers of W.
    pub fn numbers(&self) -> u64 {
        self.rows * self.columns
    }

    /// Rows of x in `step`, of which `tokens` rows are new.
    pub fn tokens(&self, step: &Step, tokens: u64) -> u64 {
        match (self.is_expansion, step.phase) {
            (true, Phase::Prefill) => tokens + step.batch * step.past_tokens,
            _ => tokens,
        }
    }
}

impl Sublayer {
    /// The products of this sublayer in order; empty for attention, and for experts, which each
    /// token chooses. Usually there is one; if there are several, the sublayer is not divided
    /// between devices.
    pub(crate) fn products(self, model: &Model) -> Products {
        let mut products: Products = match self {
            Sublayer::Embed => {
                let table = Product::new(model.vocab, model.hidden + model.layer_embeddings());
                let ngrams = model.wiring.ngrams.map(|ngrams| Product::new(ngrams.rows, ngrams.width));
                std::iter::once(table).chain(model.embedding_product()).chain(ngrams).collect()
            }
            Sublayer::Head => smallvec![Product::new(model.vocab, model.hidden)],
            Sublayer::Qkv => model.front_products(),
            Sublayer::Out => model.out_products(),
            Sublayer::FfnUp => smallvec![Product::new(model.up_width(), model.hidden)],
            Sublayer::FfnDown => smallvec![Product::new(model.hidden, model.intermediate)],
            Sublayer::Router => model.router_products(),
            Sublayer::SharedExpert => {
                let shared = model.experts.as_ref().map_or(0, |experts| experts.shared);
                smallvec![Product::new(shared * (model.neuron_activations()), model.hidden)]
            }
            Sublayer::Attention | Sublayer::Experts => smallvec![],
        };
        if matches!(self, Sublayer::Qkv | Sublayer::FfnUp | Sublayer::Router) {
            products.extend(model.stream_products());
        }
        if matches!(self, Sublayer::FfnDown | Sublayer::Router) {
            products.extend(model.layer_embedding_products());
            products.extend(model.joining_products());
        }
        products
    }

    /// The products whose matrices it keeps: all but the expansion of latent attention, which every
    /// device that attends needs.
    pub(crate) fn own_products(self, model: &Model) -> Products {
        let mut products = self.products(model);
        products.retain(|product| !product.is_expansion);
        products
    }

    /// Whether it has at most one matrix, or the matrices of experts.
    pub(crate) fn is_single(self, model: &Model) -> bool {
        self.products(model).len() <= 1
    }

    /// Whether its matrix may be divided between devices: it is a single one.
    pub fn is_divisible(self, model: &Model) -> bool {
        match self {
            Sublayer::Embed | Sublayer::Attention | Sublayer::Router => false,
            Sublayer::SharedExpert | Sublayer::Experts => true,
            _ => self.is_single(model),
        }
    }
}

impl Model {
    /// Columns of the token table beside the embeddings: a vector for each layer.
    pub(crate) fn layer_embeddings(&self) -> u64 {
        self.wiring.layer_embedding.unwrap_or(0) * self.layers
    }

    /// The projection of embeddings: that of an MTP module, which also reads a hidden state, or
    /// those to the predicted streams.
    pub(crate) fn embedding_product(&self) -> Option<Product> {
        match self.wiring.module_behind {
            Some(_) => Some(Product::new(self.hidden, 2 * self.hidden)),
            None => self.stream_rows().map(|rows| Product::new(rows, self.hidden)),
        }
    }

    /// Columns of the projection of embeddings, in models that have one.
    pub fn embedding_inputs(&self) -> Option<u64> {
        self.embedding_product().map(|product| product.columns)
    }

    /// Rows of the projections to, or from, all predicted streams but the first.
    fn stream_rows(&self) -> Option<u64> {
        self.wiring.predicted_streams.map(|streams| streams.saturating_sub(1) * self.hidden)
    }

    /// The products in front of the mixer.
    fn front_products(&self) -> Products {
        let queries = self.heads * self.head_dim;
        let mut products: Products = match self.mixer {
            Mixer::Attention => smallvec![Product::new(self.qkv_width(), self.hidden)],
            Mixer::Latent(latent) => {
                let queries: Products = match latent.q_rank {
                    Some(rank) => smallvec![Product::new(rank, self.hidden), Product::new(queries, rank)],
                    None => smallvec![Product::new(queries, self.hidden)],
                };
                let expanded = self.heads * (latent.nope_dim + latent.v_dim);
                // In decode these are absorbed into queries and outputs: the same FLOP for each
                // new token, and nothing for cached ones.
                let expansion = Product { is_expansion: true, ..Product::new(expanded, latent.kv_rank) };
                let down = Product::new(latent.kv_numbers(), self.hidden);
                let gate = self.wiring.output_gate.then(|| Product::new(self.gate_width(), self.hidden));
                queries.into_iter().chain([down, expansion]).chain(gate).collect()
            }
            Mixer::Compressed(compressed) => {
                let mut products: Products = smallvec![
                    Product::new(compressed.q_rank, self.hidden),
                    Product::new(queries, compressed.q_rank),
                    Product::new(self.head_dim, self.hidden),
                ];
                if compressed.ratio.is_some() {
                    products.push(Product::new(2 * compressed.sets * self.head_dim, self.hidden));
                }
                products
            }
            Mixer::Recurrent(recurrence) => {
                let inner = recurrence.inner_matrices();
                let inner = inner.into_iter().map(|(rows, columns)| Product::new(rows, columns));
                std::iter::once(Product::new(recurrence.projected(), self.hidden)).chain(inner).collect()
            }
        };
        products.extend(self.index_products());
        if let Some(rank) = self.wiring.low_rank_residual {
            products.extend([Product::new(rank, self.hidden), Product::new(self.hidden, rank)]);
        }
        products.extend(self.ngram_product());
        products
    }

    /// The projection of n-grams' embeddings to one key for each residual stream, and one value.
    fn ngram_product(&self) -> Option<Product> {
        let ngrams = self.wiring.ngrams?;
        Some(Product::new(self.streams_width() + self.hidden, ngrams.looked_up()))
    }

    /// The projections of the indexer. Those of MiniMax-M3 and Qwen 4 are part of q, k, v.
    fn index_products(&self) -> Products {
        let Some(index) = self.index.filter(|index| index.computes) else { return smallvec![] };
        let queries = index.heads * index.dim;
        match self.mixer {
            Mixer::Latent(latent) => smallvec![
                Product::new(queries, latent.q_rank.unwrap_or(self.hidden)),
                Product::new(index.dim + index.heads, self.hidden),
            ],
            Mixer::Compressed(compressed) => smallvec![
                Product::new(queries, compressed.q_rank),
                Product::new(index.heads + 2 * compressed.sets * index.dim, self.hidden),
            ],
            _ => smallvec![],
        }
    }

    /// The products behind the mixer.
    fn out_products(&self) -> Products {
        match self.mixer {
            Mixer::Compressed(CompressedAttention { out_rank, out_groups, .. }) => smallvec![
                Product::new(out_groups * out_rank, self.context_width() / out_groups),
                Product::new(self.hidden, out_groups * out_rank),
            ],
            _ => smallvec![Product::new(self.hidden, self.context_width())],
        }
    }

    /// The router's scores, and the projections of experts that work at a width of their own.
    fn router_products(&self) -> Products {
        let Some(experts) = &self.experts else { return smallvec![] };
        let mut products: Products = smallvec![Product::new(experts.count, self.hidden)];
        if let Some(latent) = experts.latent {
            products.extend([Product::new(latent, self.hidden), Product::new(self.hidden, latent)]);
        }
        products
    }

    /// The weights with which a half of a layer reads and writes its m copies of the residual, from
    /// all copies together: (2 + m) · m numbers, or with mixers of low rank one number for each
    /// column that it reads, and m for what it writes.
    fn stream_products(&self) -> Products {
        let Some(streams) = self.wiring.residual_streams else { return smallvec![] };
        let width = self.streams_width();
        match self.low_rank_mixer() {
            Some([down, up]) => smallvec![down, up, Product::new(streams, width)],
            None => smallvec![Product::new((2 + streams) * streams, width)],
        }
    }

    /// The mixer of low rank that makes one residual of all streams behind the last layer.
    fn joining_products(&self) -> Products {
        let mixer = self.low_rank_mixer().filter(|_| self.wiring.joins_streams);
        mixer.into_iter().flatten().collect()
    }

    /// The two matrices of a mixer of low rank.
    fn low_rank_mixer(&self) -> Option<[Product; 2]> {
        let (rank, width) = (self.wiring.stream_rank?, self.streams_width());
        Some([Product::new(rank, width), Product::new(width, rank)])
    }

    /// Columns of all copies of the residual.
    pub(crate) fn streams_width(&self) -> u64 {
        self.hidden * self.wiring.residual_streams.unwrap_or(1)
    }

    /// The gate and the projection of the embedding that a layer looks up for itself, and its share
    /// of the projection that all layers' embeddings come from. Behind the last layer the
    /// projections that bring predicted streams together.
    fn layer_embedding_products(&self) -> Products {
        let Some(width) = self.wiring.layer_embedding else { return smallvec![] };
        let mut products = smallvec![Product::new(2 * width, self.hidden), Product::new(self.hidden, width)];
        let joined = self.stream_rows().filter(|_| self.wiring.joins_streams);
        products.extend(joined.map(|rows| Product::new(rows, self.hidden)));
        products
    }
}
