//! What one layer keeps for each sequence: a cache that grows with the context, and a state that
//! does not.

use crate::model::mixer::{CompressedAttention, Mixer};
use crate::model::operators::formats::Formats;
use crate::model::transformer::Model;
use hwprofiles::{Bytes, DType, Elements};

/// Numbers of the KV cache that one position takes in a layer, stored as rows of equal width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    rows: u64,
    width: u64,
}

impl Entry {
    fn bytes(self, formats: &Formats, positions: u64) -> Bytes {
        formats.kv.cache_bytes(Elements::product(&[positions, self.rows]).get(), self.width)
    }
}

/// Bytes of the cache of one layer of `model`'s shape: keys and values of `tokens` tokens of each
/// of `batch` sequences, in a layer with a window of no more tokens than that, the keys of an
/// indexer, and the state of a recurrence, which does not depend on `tokens`.
///
/// Formats with groups pad each row: a head's key or value, or latent attention's vector.
pub fn kv_bytes(model: &Model, formats: &Formats, batch: u64, tokens: u64) -> Bytes {
    if tokens == 0 || batch == 0 {
        return Bytes::ZERO;
    }
    let kept = model.kept_positions(tokens);
    let keys = model.entries().map(|entry| entry.bytes(formats, batch * kept)).sum::<Bytes>();
    keys + model.index_bytes(formats, batch, tokens) + model.state_bytes() * batch
}

impl Model {
    /// Numbers that one token adds to the KV cache of a layer of this shape, before any window or
    /// compression: K and V of each head, or latent attention's vector.
    pub fn kv_numbers(&self) -> u64 {
        self.entries().map(|entry| entry.rows * entry.width).sum()
    }

    /// Rows that these numbers are stored in: one for each head of keys and of values, or one
    /// latent vector.
    pub fn kv_rows(&self) -> u64 {
        self.entries().map(|entry| entry.rows).sum()
    }

    /// Whether a layer of this shape attends to the whole context, or reads what it keeps of it.
    pub fn keeps_everything(&self) -> bool {
        self.wiring.window.is_none() && !matches!(self.mixer, Mixer::Recurrent(_))
    }

    /// Bytes that `new_tokens` tokens of each of `batch` sequences append: keys and values, and
    /// keys of an indexer.
    pub fn appended_bytes(&self, formats: &Formats, batch: u64, new_tokens: u64) -> Bytes {
        let positions = batch * self.kept_positions(new_tokens);
        let keys: Bytes = self.entries().map(|entry| entry.bytes(formats, positions)).sum();
        keys + self.index_bytes(formats, batch, new_tokens)
    }

    /// Bytes of the keys and values at `positions` positions of each of `batch` sequences. A layer
    /// that shares an earlier layer's cache reads as many as that one.
    pub(crate) fn attended_bytes(&self, formats: &Formats, batch: u64, positions: u64) -> Bytes {
        self.attended().map(|entry| entry.bytes(formats, batch * positions)).sum()
    }

    /// Bytes of an indexer's keys at `positions` positions.
    pub(crate) fn index_key_bytes(&self, formats: &Formats, positions: u64) -> Bytes {
        self.index.map_or(Bytes::ZERO, |index| match index.fp8_keys {
            true => Bytes::new(positions * (index.dim + 4 * index.dim.div_ceil(128))),
            false => formats.kv.cache_bytes(positions, index.dim),
        })
    }

    /// What a position takes in the layer's own cache.
    fn entries(&self) -> impl Iterator<Item = Entry> {
        self.attended().filter(|_| !self.wiring.shares_kv)
    }

    /// What a position takes in the cache that the layer attends to: its own, or an earlier
    /// layer's.
    fn attended(&self) -> impl Iterator<Item = Entry> {
        let (first, second) = match self.mixer {
            _ if !self.has_mixer() => (None, None),
            Mixer::Attention => {
                let entry = |width| Some(Entry { rows: self.kv_heads, width });
                (entry(self.head_dim), entry(self.value_dim()))
            }
            Mixer::Latent(latent) => (Some(Entry { rows: 1, width: latent.kv_numbers() }), None),
            Mixer::Compressed(_) => (Some(Entry { rows: 1, width: self.head_dim }), None),
            Mixer::Recurrent(_) => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Positions that a layer keeps of a context of `tokens` tokens.
    pub fn kept_positions(&self, tokens: u64) -> u64 {
        match self.mixer {
            Mixer::Compressed(compressed) => {
                tokens.min(compressed.window) + compressed.ratio.map_or(0, |ratio| tokens / ratio)
            }
            _ => self.wiring.window.map_or(tokens, |window| tokens.min(window.tokens)),
        }
    }

    /// Bytes of an indexer's keys.
    fn index_bytes(&self, formats: &Formats, batch: u64, tokens: u64) -> Bytes {
        let Some(index) = self.index else { return Bytes::ZERO };
        let positions = if index.computes { tokens / self.tokens_of_index_key() } else { 0 };
        self.index_key_bytes(formats, batch * positions)
    }

    /// Tokens that one key of an indexer stands for.
    pub(crate) fn tokens_of_index_key(&self) -> u64 {
        match self.mixer {
            Mixer::Compressed(CompressedAttention { ratio: Some(ratio), .. }) => ratio,
            _ => self.index.and_then(|index| index.pooled).unwrap_or(1),
        }
    }

    /// Bytes that a layer of this shape keeps for a sequence so that tokens of a step of
    /// `step_tokens` tokens can be taken back: with a recurrence the rows of these tokens in f32,
    /// from which the state of those that stay is made, and one number. None in steps of one token.
    pub fn unverified_bytes(&self, step_tokens: u64) -> Bytes {
        match self.mixer {
            Mixer::Recurrent(recurrence) if step_tokens > 1 => {
                let row = recurrence.channels() + recurrence.projected();
                DType::F32.bytes(Elements::new(step_tokens * row + 1))
            }
            _ => Bytes::ZERO,
        }
    }

    /// Bytes that a layer of this shape keeps for a sequence whatever its length: a recurrence's
    /// state, or what a compressor has not yet compressed, in f32, and the last inputs of the
    /// convolution over n-grams' embeddings in bf16.
    pub fn state_bytes(&self) -> Bytes {
        let inputs = self
            .wiring
            .ngrams
            .map_or(0, |ngrams| self.streams_width() * ngrams.taps.saturating_sub(1) * ngrams.tokens);
        let pooled = self.index.filter(|index| index.computes);
        let pooled = pooled.map_or(0, |index| index.pooled.unwrap_or(0) * index.dim);
        let own = match self.mixer {
            Mixer::Recurrent(recurrence) => recurrence.state_bytes(),
            Mixer::Compressed(CompressedAttention { ratio: Some(ratio), sets, .. }) => {
                let index = self.index.filter(|index| index.computes).map_or(0, |index| index.dim);
                DType::F32.bytes(Elements::new(2 * ratio * sets * (self.head_dim + index)))
            }
            _ => DType::F32.bytes(Elements::new(pooled)),
        };
        own + DType::Bf16.bytes(Elements::new(inputs))
    }

    /// Numbers that a token adds to the KV caches of all layers once windows are full; the keys of
    /// indexers over all tokens are not counted. Compression makes it a fraction.
    pub fn growing_kv_numbers(&self) -> f64 {
        (0..self.layers).map(|layer| self.layer(layer).growing_kv_of_shape()).sum()
    }

    /// The same for one layer of this shape.
    pub fn growing_kv_of_shape(&self) -> f64 {
        match self.mixer {
            Mixer::Compressed(CompressedAttention { ratio: Some(ratio), .. }) => {
                let index = self.index.filter(|index| index.computes).map_or(0, |index| index.dim);
                (self.head_dim + index) as f64 / ratio as f64
            }
            Mixer::Compressed(_) => 0.0,
            _ if self.wiring.window.is_some() => 0.0,
            _ => {
                let pooled = self.index.filter(|index| index.computes && index.pooled.is_some());
                let pooled = pooled.map_or(0.0, |index| index.dim as f64 / self.tokens_of_index_key() as f64);
                self.kv_numbers() as f64 + pooled
            }
        }
    }

    /// Numbers that a token adds to the keys of indexers over all tokens, in all layers.
    pub fn growing_index_numbers(&self) -> u64 {
        let of = |shape: &Self| match (shape.mixer, shape.index) {
            (Mixer::Compressed(_), _) => 0,
            (_, Some(index)) if index.computes && index.pooled.is_none() => index.dim,
            _ => 0,
        };
        (0..self.layers).map(|layer| of(self.layer(layer))).sum()
    }

    /// Bytes that all layers keep for a sequence whatever its length: full windows in `kv`, and
    /// states.
    pub fn constant_bytes(&self, kv: DType) -> Bytes {
        (0..self.layers).map(|layer| self.layer(layer).constant_bytes_of_shape(kv)).sum()
    }

    /// The same for one layer of this shape.
    pub fn constant_bytes_of_shape(&self, kv: DType) -> Bytes {
        let window = match self.mixer {
            Mixer::Compressed(compressed) => Some(compressed.window),
            _ => self.wiring.window.map(|window| window.tokens),
        };
        let rows = |entry: Entry| kv.cache_bytes(entry.rows * window.unwrap_or(0), entry.width);
        self.entries().map(rows).sum::<Bytes>() + self.state_bytes()
    }
}
