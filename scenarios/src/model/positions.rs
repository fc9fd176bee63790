//! How a model encodes the position of a token.

use serde::{Deserialize, Serialize};

/// Llama 3's scaling of low rotary frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Llama3Scaling {
    /// Divisor of the low frequencies.
    pub factor: f64,
    /// Frequencies with wavelengths above `original_max_positions` / this are divided.
    pub low_freq_factor: f64,
    /// Frequencies with wavelengths below `original_max_positions` / this are kept.
    pub high_freq_factor: f64,
    /// Context length of the first training stage, in tokens.
    pub original_max_positions: u64,
}

/// YaRN's scaling of rotary frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct YarnScaling {
    /// The new context length ÷ the original one.
    pub factor: f64,
    /// Context length of the first training stage, in tokens.
    pub original_max_positions: u64,
    /// Frequencies with more turns than this over the original context are kept.
    pub beta_fast: f64,
    /// Frequencies with fewer turns than this over the original context are divided.
    pub beta_slow: f64,
    /// Whether the bounds between kept and divided pairs are rounded to whole pairs.
    pub truncate: bool,
    /// Cosines and sines are multiplied by this.
    pub attention: f64,
    /// With latent attention, scores are multiplied by (1 + 0.1 · this · ln factor)²; otherwise 0.
    pub mscale_all_dim: f64,
}

impl YarnScaling {
    /// The factor of attention scores.
    pub fn score_factor(&self) -> f64 {
        match self.factor <= 1.0 {
            true => 1.0,
            false => (0.1 * self.mscale_all_dim * self.factor.ln() + 1.0).powi(2),
        }
    }
}

/// LongRoPE's divisors of rotary frequencies: one for each pair of columns, found by search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LongRopeScaling {
    /// Divisors for contexts up to `original_max_positions`.
    pub short: Vec<f64>,
    /// Divisors for longer contexts.
    pub long: Vec<f64>,
    /// Context length of the first training stage, in tokens.
    pub original_max_positions: u64,
    /// Cosines and sines are multiplied by this.
    pub attention: f64,
}

/// How the position of a token enters the computation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// Rotation of q and k.
    Rotary {
        /// Base of the frequencies.
        theta: f64,
        /// Scaling, if any.
        scaling: Option<Llama3Scaling>,
    },
    /// Rotation of q and k; all frequencies are divided by one number.
    Linear {
        /// Base of the frequencies.
        theta: f64,
        /// Divisor.
        factor: f64,
    },
    /// Rotation of q and k, scaled by YaRN.
    Yarn {
        /// Base of the frequencies.
        theta: f64,
        /// Scaling.
        scaling: YarnScaling,
    },
    /// Rotation of q and k, scaled by LongRoPE.
    LongRope {
        /// Base of the frequencies.
        theta: f64,
        /// Scaling.
        scaling: LongRopeScaling,
    },
    /// A learned table is added to the embeddings.
    Learned {
        /// Rows of the table before the row of position 0.
        offset: u64,
    },
}
