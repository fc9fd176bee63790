//! Predicted residual streams (AltUp, arXiv:2301.13310), as Gemma 3n has them: a layer computes the
//! first stream and predicts the others. A row holds all streams of a token, one after another.

use crate::cpu::vector::{each_row_in_place, each_row_in_place_indexed, sum};
use crate::runtime::Pool;

/// The least mean square of a stream whose magnitude is matched.
const LEAST_SQUARE: f32 = 1e-5;

/// Weighs a token's streams by its state x: m = tanh(R · (x / √(mean(x²) + ε) ⊙ γ) / width).
#[derive(Debug, Clone, Copy)]
pub struct StreamRouter<'a> {
    /// Weights γ of the norm: one for each of `width` columns.
    pub gamma: &'a [f32],
    /// R: a row of `width` values for each stream.
    pub matrix: &'a [f32],
    /// ε of the norm.
    pub epsilon: f32,
}

impl StreamRouter<'_> {
    fn streams(&self) -> usize {
        self.matrix.len() / self.gamma.len()
    }

    /// The weight of each stream for the state `x`.
    fn weigh(&self, x: &[f32]) -> Vec<f32> {
        let width = x.len() as f32;
        let scale = 1.0 / (sum(x, |x| x * x) / width + self.epsilon).sqrt() / width;
        let normed: Vec<f32> = x.iter().zip(self.gamma).map(|(x, gamma)| x * scale * gamma).collect();
        self.matrix.chunks_exact(x.len()).map(|row| dot(row, &normed).tanh()).collect()
    }
}

/// Replaces stream j of each row by hⱼ + Σᵢ c\[j, i\] · hᵢ, with the streams h and the numbers
/// c = C · m of the first stream's weights m. `coefficients` has a row of C for each pair \[j, i\].
///
/// # Panics
/// Where the lengths do not agree.
pub fn predict_streams(pool: &Pool, rows: &mut [f32], router: &StreamRouter<'_>, coefficients: &[f32]) {
    let (count, width) = (router.streams(), router.gamma.len());
    assert_eq!(coefficients.len(), count * count * count);
    each_row_in_place(pool, rows, count * width, |row| {
        let before = row.to_vec();
        let weights = router.weigh(&before[..width]);
        let factors: Vec<f32> = coefficients.chunks_exact(count).map(|row| dot(row, &weights)).collect();
        for (stream, factors) in row.chunks_exact_mut(width).zip(factors.chunks_exact(count)) {
            for (before, &factor) in before.chunks_exact(width).zip(factors) {
                add_scaled(stream, before, factor);
            }
        }
    });
}

/// Adds (1 + cⱼ) · (x − p₀) to each stream pⱼ of each row, with the computed first stream x, rows
/// of `computed`, and the numbers c = C · m of its weights m. `coefficients` is C, a row for each
/// stream.
///
/// # Panics
/// Where the lengths do not agree.
pub fn correct_streams(
    pool: &Pool,
    rows: &mut [f32],
    computed: &[f32],
    router: &StreamRouter<'_>,
    coefficients: &[f32],
) {
    let (count, width) = (router.streams(), router.gamma.len());
    assert_eq!((coefficients.len(), computed.len() * count), (count * count, rows.len()));
    each_row_in_place_indexed(pool, rows, count * width, |index, row| {
        let computed = &computed[index * width..][..width];
        let weights = router.weigh(computed);
        let missing: Vec<f32> = computed.iter().zip(&*row).map(|(x, predicted)| x - predicted).collect();
        let factors = coefficients.chunks_exact(count).map(|row| 1.0 + dot(row, &weights));
        row.chunks_exact_mut(width).zip(factors).for_each(|(stream, c)| add_scaled(stream, &missing, c));
    });
}

/// Scales all streams of each row but the first, so that their magnitude √mean(x²) is the first's.
///
/// # Panics
/// If `rows` are not rows of whole streams of `width` values.
pub fn match_streams(pool: &Pool, rows: &mut [f32], count: usize, width: usize) {
    each_row_in_place(pool, rows, count * width, |row| {
        let square = |x: &[f32]| sum(x, |x| x * x) / width as f32;
        let (first, others) = row.split_at_mut(width);
        let magnitude = square(first).sqrt();
        for stream in others.chunks_exact_mut(width) {
            let factor = magnitude / square(stream).max(LEAST_SQUARE).sqrt();
            stream.iter_mut().for_each(|x| *x *= factor);
        }
    });
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_scaled(y: &mut [f32], x: &[f32], factor: f32) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += factor * x);
}
