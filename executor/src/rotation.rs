//! Frequencies of the rotary position embedding.

use scenarios::{Llama3Scaling, Model, Positions};
use std::f32::consts::TAU;

/// The frequencies, in radians per position, by which the pairs of a head's rotated columns turn; empty where positions
/// are learned. In f32, in the order of operations of Hugging Face transformers.
pub(crate) fn frequencies(model: &Model) -> Vec<f32> {
    match model.positions {
        Positions::Rotary { theta, scaling: None } => plain(model, theta).collect(),
        Positions::Rotary { theta, scaling: Some(scaling) } => {
            plain(model, theta).map(|frequency| stretch(&scaling, frequency)).collect()
        }
        Positions::Linear { theta, factor } => {
            plain(model, theta).map(|frequency| frequency / factor as f32).collect()
        }
        Positions::Learned { .. } | Positions::Yarn { .. } => Vec::new(),
    }
}

/// Those of layers with a window; `None` where they are the others'.
pub(crate) fn window_frequencies(model: &Model) -> Option<Vec<f32>> {
    Some(plain(model, model.window_theta()?).collect())
}

/// Frequencies on the base `theta` that nothing stretches.
fn plain(model: &Model, theta: f64) -> impl Iterator<Item = f32> + use<> {
    let width = model.rotated_width();
    (0..width / 2).map(move |pair| {
        let exponent = (2 * pair) as f32 / width as f32;
        1.0 / (theta as f32).powf(exponent)
    })
}

/// Llama 3's scaling: wavelengths beyond the first training stage's context are stretched by `factor`, short ones
/// kept, those between blended (transformers, `_compute_llama3_parameters`).
fn stretch(scaling: &Llama3Scaling, frequency: f32) -> f32 {
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
