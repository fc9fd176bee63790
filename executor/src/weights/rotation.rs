//! The rotary position embedding of a model.

use scenarios::{Llama3Scaling, Model, Positions, YarnScaling};
use std::f32::consts::TAU;

/// How the pairs of a head's rotated columns rotate.
#[derive(Debug)]
pub(crate) struct RotaryEmbedding {
    /// Radians per position, by pair. In f32, with the order of operations of Hugging Face
    /// transformers.
    pub frequencies: Vec<f32>,
    /// The factor of cosines and sines.
    pub scale: f32,
}

impl RotaryEmbedding {
    /// The rotation in a run of sequences of up to `context` tokens; `None` where positions are
    /// learned, or there are none.
    ///
    /// A context beyond that of the first training stage uses LongRoPE's long factors from its
    /// first token on, as engines do that keep keys. Transformers changes the rotation of a
    /// sequence once it becomes long.
    pub fn new(model: &Model, context: u64) -> Option<Self> {
        if model.rotation_widths().is_empty() {
            return None;
        }
        let model = model.rotated_shape(false);
        let (mut frequencies, scale): (Vec<f32>, f64) = match &model.positions {
            Positions::Rotary { theta, scaling: None } => (plain(model, *theta).collect(), 1.0),
            Positions::Rotary { theta, scaling: Some(scaling) } => {
                (plain(model, *theta).map(|frequency| llama3_frequency(scaling, frequency)).collect(), 1.0)
            }
            Positions::Linear { theta, factor } => {
                (plain(model, *theta).map(|frequency| frequency / *factor as f32).collect(), 1.0)
            }
            Positions::Yarn { theta, scaling } => {
                (yarn_frequencies(model, *theta, scaling), scaling.attention)
            }
            Positions::LongRope { theta, scaling } => {
                let long = context > scaling.original_max_positions;
                let divisors = if long { &scaling.long } else { &scaling.short };
                let pairs = powers(model, *theta).zip(divisors);
                (pairs.map(|(power, divisor)| 1.0 / (*divisor as f32 * power)).collect(), scaling.attention)
            }
            Positions::Learned { .. } => return None,
        };
        if model.rotates_whole_heads() {
            frequencies.resize(model.head_dim as usize / 2, 0.0);
        }
        Some(Self { frequencies, scale: scale as f32 })
    }

    /// The rotation of layers with a window; `None` where it is the same as in other layers.
    pub fn for_windows(model: &Model) -> Option<Self> {
        let theta = model.window_theta()?;
        Some(Self { frequencies: plain(model.rotated_shape(true), theta).collect(), scale: 1.0 })
    }
}

/// The powers of the base `theta`, by pair.
fn powers(model: &Model, theta: f64) -> impl Iterator<Item = f32> + use<> {
    let width = model.rotated_width();
    let over = if model.rotates_whole_heads() { model.head_dim } else { width };
    (0..width / 2).map(move |pair| (theta as f32).powf((2 * pair) as f32 / over as f32))
}

/// Frequencies without any stretch.
fn plain(model: &Model, theta: f64) -> impl Iterator<Item = f32> + use<> {
    powers(model, theta).map(|power| 1.0 / power)
}

/// Llama 3's scaling: wavelengths beyond the context of the first training stage are stretched by
/// `factor`, short ones are kept, those in between are blended (transformers,
/// `_compute_llama3_parameters`).
fn llama3_frequency(scaling: &Llama3Scaling, frequency: f32) -> f32 {
    let (factor, original) = (scaling.factor as f32, scaling.original_max_positions as f32);
    let (low, high) = (scaling.low_freq_factor as f32, scaling.high_freq_factor as f32);
    let wavelength = TAU / frequency;
    if wavelength > original / low {
        return frequency / factor;
    }
    if wavelength < original / high {
        return frequency;
    }
    let smooth = (original / wavelength - low) / (high - low);
    (1.0 - smooth) * frequency / factor + smooth * frequency
}

/// YaRN's scaling: pairs that rotate often within the context of the first training stage are kept,
/// those that rotate rarely are stretched by `factor`, those in between are blended by their index
/// (transformers, `_compute_yarn_parameters`; Peng et al., arXiv 2309.00071).
fn yarn_frequencies(model: &Model, theta: f64, scaling: &YarnScaling) -> Vec<f32> {
    let width = model.rotated_width() as f64;
    // The pair that makes this many turns.
    let pair = |turns: f64| {
        let positions = scaling.original_max_positions as f64;
        width * (positions / (turns * std::f64::consts::TAU)).ln() / (2.0 * theta.ln())
    };
    let (mut first, mut last) = (pair(scaling.beta_fast), pair(scaling.beta_slow));
    if scaling.truncate {
        (first, last) = (first.floor(), last.ceil());
    }
    (first, last) = (first.max(0.0), last.min(width - 1.0));
    let span = if first == last { 0.001 } else { last - first };
    let blended = |(pair, power): (usize, f32)| {
        let stretched = ((pair as f32 - first as f32) / span as f32).clamp(0.0, 1.0);
        let kept = 1.0 - stretched;
        1.0 / (scaling.factor as f32 * power) * (1.0 - kept) + 1.0 / power * kept
    };
    powers(model, theta).enumerate().map(blended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scenarios::LongRopeScaling;

    fn model(positions: Positions) -> Model {
        Model { positions, ..Model::preset("llama-2-7b").expect("a preset") }
    }

    #[test]
    fn a_run_that_may_become_long_turns_by_the_long_numbers_from_the_start() {
        let pairs = model(Positions::Learned { offset: 0 }).rotated_width() as usize / 2;
        let (short, long) = (vec![1.0; pairs], vec![4.0; pairs]);
        let scaling = LongRopeScaling { short, long, original_max_positions: 4096, attention: 1.25 };
        let model = model(Positions::LongRope { theta: 1e4, scaling });
        let [short, long] =
            [4096, 4097].map(|context| RotaryEmbedding::new(&model, context).expect("it turns"));
        assert_eq!((short.scale, long.scale), (1.25, 1.25));
        assert_eq!(short.frequencies, plain(&model, 1e4).collect::<Vec<_>>());
        assert!(short.frequencies.iter().zip(&long.frequencies).all(|(short, long)| *short == 4.0 * long));
    }

    #[test]
    fn yarn_keeps_fast_pairs_divides_slow_ones_and_slows_none_more_than_the_next() {
        let scaling = YarnScaling {
            factor: 4.0,
            original_max_positions: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            attention: 1.0,
            mscale_all_dim: 0.0,
        };
        let model = model(Positions::Yarn { theta: 1e4, scaling });
        let stretched = RotaryEmbedding::new(&model, 16384).expect("it turns").frequencies;
        let by: Vec<f32> =
            plain(&model, 1e4).zip(stretched).map(|(plain, stretched)| plain / stretched).collect();
        assert!((by[0] - 1.0).abs() < 1e-6 && (by[by.len() - 1] - 4.0).abs() < 1e-5, "{by:?}");
        assert!(by.is_sorted() && by.iter().any(|by| (1.5..3.5).contains(by)), "{by:?}");
    }
}
