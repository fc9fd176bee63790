//! e to the x, inlined so that loops that use it become vector code.

/// e^x in f32 with a relative error below 2·10⁻⁷ for −87 < x < 88; 0 for smaller x, e^88 for larger
/// x.
///
/// The method is that of Cephes' `expf`: x = n·ln 2 + r with |r| ≤ ln 2 / 2, a polynomial of degree
/// 6 in r, and n added to the exponent. It is branch-free and inlined: a call of libm's `expf`
/// keeps a loop scalar, which is about 10 times slower.
#[inline(always)]
pub(crate) fn exponential(x: f32) -> f32 {
    /// 1.5·2²³: adding it rounds to an integer and leaves that integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-88.0, 88.0);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * LN2_HIGH - n * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + coefficient;
    }
    let p = p * r * r + r + 1.0;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32).wrapping_add(127);
    let power = f32::from_bits((exponent << 23) as u32);
    if x < -87.0 { 0.0 } else { p * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_agrees_with_the_library_over_the_whole_range() {
        for step in -86_900..88_000 {
            let x = step as f32 * 1e-3;
            let exact = f64::from(x).exp();
            let error = (f64::from(exponential(x)) - exact).abs() / exact;
            assert!(error < 2e-7, "e^{x}: relative error {error}");
        }
    }

    #[test]
    fn the_result_is_one_at_zero_and_zero_far_below() {
        assert_eq!(exponential(0.0), 1.0);
        assert_eq!(exponential(-1e4), 0.0);
        assert_eq!(exponential(f32::NEG_INFINITY), 0.0);
        assert!(exponential(1e4).is_finite());
    }
}
