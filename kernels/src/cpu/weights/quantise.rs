//! Quantisation of one group of values to a scale and small integers.

use half::f16;

/// Quantises a group to integers of magnitude at most `limit`; returns the scale.
pub(crate) fn quantise(values: &[f32], limit: f32, out: &mut [i8]) -> f16 {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    // A scale beyond the largest f16 would be infinite. It is clamped, so the values clip.
    let scale = f16::from_f32((largest / limit).min(f16::MAX.to_f32()));
    let step = scale.to_f32();
    for (out, value) in out.iter_mut().zip(values) {
        *out = if step == 0.0 { 0 } else { (value / step).round().clamp(-limit, limit) as i8 };
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_at_most_half_a_step_and_the_largest_is_kept() {
        let values: Vec<f32> = (0..32).map(|i| ((i * 37 % 64) as f32 - 31.7) * 0.013).collect();
        for limit in [7.0, 127.0] {
            let mut q = [0; 32];
            let step = quantise(&values, limit, &mut q).to_f32();
            for (value, q) in values.iter().zip(q) {
                // f16 rounds the step by up to 2⁻¹¹, which the largest value multiplies by `limit`.
                let slack = step * (0.5 + limit / 2048.0);
                assert!((value - step * f32::from(q)).abs() <= slack, "{value} as {q} × {step}");
            }
            assert_eq!(q.iter().map(|q| q.unsigned_abs()).max(), Some(limit as u8));
        }
    }

    #[test]
    fn zeros_and_values_too_small_for_a_scale_become_zero() {
        for value in [0.0, 1e-12] {
            let mut q = [1; 3];
            assert_eq!(quantise(&[value; 3], 127.0, &mut q).to_f32(), 0.0);
            assert_eq!(q, [0; 3]);
        }
    }

    #[test]
    fn values_beyond_f16_clip() {
        let mut q = [0; 2];
        let scale = quantise(&[1e9, -1e9], 7.0, &mut q);
        assert_eq!((scale, q), (f16::MAX, [7, -7]));
    }
}
