//! What the cache of a layer consists of, where it is not keys and values of heads.

use crate::setup::run_setup::RunSetup;
use hwprofiles::DType;
use kernels::{KvSpan, LatentCache};
use scenarios::{Mixer, Model};
use std::ops::Range;

/// The layout of one layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheLayout {
    /// All keys, then all values ([`kernels::KvShape`]).
    Heads,
    /// For each sequence, an entry for each position.
    Entries {
        /// Format of the values of an entry.
        dtype: DType,
        /// Positions of a sequence.
        capacity: usize,
        /// Bytes of an entry.
        entry: usize,
    },
    /// For each sequence, a state of this many bytes.
    State(usize),
}

impl CacheLayout {
    /// The layouts of all layers.
    pub fn of_layers(setup: &RunSetup) -> Vec<Self> {
        (0..setup.model.layers).map(|layer| Self::new(setup, setup.model.layer(layer))).collect()
    }

    fn new(setup: &RunSetup, shape: &Model) -> Self {
        match shape.mixer {
            Mixer::Latent(latent) => Self::Entries {
                dtype: setup.formats.kv,
                capacity: setup.extent.context as usize,
                entry: setup.formats.kv.matrix_bytes(1, latent.kv_numbers()).get() as usize,
            },
            Mixer::Recurrent(_) => {
                let unverified = shape.unverified_bytes(setup.extent.step_tokens);
                Self::State((shape.state_bytes() + unverified).get() as usize)
            }
            Mixer::Attention | Mixer::Compressed(_) => Self::Heads,
        }
    }

    /// The cache as latent entries.
    pub fn entries<'a>(&self, bytes: &'a [u8]) -> LatentCache<'a> {
        match *self {
            Self::Entries { dtype, capacity, .. } => LatentCache { dtype, capacity, bytes },
            _ => panic!("{self:?} has no entries"),
        }
    }

    /// The bytes that a span's sequence has before the pass: those of its past positions, or its
    /// state. `None` where the cache is of heads.
    pub fn before(&self, span: &KvSpan) -> Option<Range<usize>> {
        match *self {
            Self::Heads => None,
            Self::Entries { capacity, entry, .. } => {
                let first = span.sequence * capacity;
                Some(first * entry..(first + span.past) * entry)
            }
            Self::State(bytes) => Some(span.sequence * bytes..(span.sequence + 1) * bytes),
        }
    }

    /// The bytes that the pass writes: those of the new positions, or the state. `None` where the
    /// cache is of heads.
    pub fn written(&self, span: &KvSpan) -> Option<Range<usize>> {
        match *self {
            Self::Entries { capacity, entry, .. } => {
                let first = span.sequence * capacity + span.past;
                Some(first * entry..(first + span.new) * entry)
            }
            _ => self.before(span),
        }
    }
}
