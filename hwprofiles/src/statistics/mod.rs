//! The statistics behind every summarised number: of measurements, fits and reports.
//!
//! All functions take finite numbers of one unit and return that unit, or a ratio. They return
//! `None` where the result does not exist: for no values, or after a division by zero.

mod least_squares;

pub use least_squares::{Prior, least_squares};

/// The arithmetic mean, Σ x ÷ n.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Two measurements of the same thing contradict each other if they differ by more than this
/// factor.
pub(crate) const CONTRADICTION: f64 = 2.0;

/// The middle value; for an even number of values, the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(lower + (upper - lower) / 2.0)
}

/// The upper middle value: for an even number of values, the larger of the two in the middle. It is
/// always one of the values.
pub fn upper_median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    sorted.get(sorted.len() / 2).copied()
}

/// The quantile `q` from 0 to 1, interpolated linearly between neighbours.
///
/// # Panics
/// If `q` is not within 0 to 1.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    assert!((0.0..=1.0).contains(&q), "the quantile {q} is not within 0 to 1");
    let sorted = sorted(values);
    let at = q * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// The percentile by nearest rank: the ⌈percent ÷ 100 · n⌉-th smallest value, and the smallest for
/// 0. It is one of the values, and at least `percent` % of the values are not above it.
///
/// # Panics
/// If `percent` is not within 0 to 100.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    assert!((0.0..=100.0).contains(&percent), "the percentile {percent} is not within 0 to 100");
    let sorted = sorted(values);
    // Multiplies first: 0.07 · 100 is 7.000000000000001 in floats, whose ceiling is 8.
    let rank = (percent * sorted.len() as f64 / 100.0).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// (third quartile − first quartile) ÷ median, with quartiles by nearest rank. Machine profiles
/// define the spread of repeated measurements this way.
pub fn spread(values: &[f64]) -> Option<f64> {
    let range = percentile(values, 75.0)? - percentile(values, 25.0)?;
    ratio(range, median(values)?)
}

/// The share of a normal distribution that lies below `z` standard deviations above its mean.
pub fn normal_share(z: f64) -> f64 {
    // ½ + φ(z) · (z + z³/3 + z⁵/15 + …); beyond 8 deviations nothing is left in an f64.
    let z = z.clamp(-8.0, 8.0);
    let (mut term, mut sum, mut odd) = (z, z, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    0.5 + sum * (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt()
}

/// The number of standard deviations above its mean below which `share` of a normal distribution
/// lies: the inverse of [`normal_share`], at most 8 in either direction.
///
/// # Panics
/// If `share` is not within 0 to 1.
pub fn normal_quantile(share: f64) -> f64 {
    assert!((0.0..=1.0).contains(&share), "the share {share} is not within 0 to 1");
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if normal_share(middle) < share { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// Signed relative error, predicted ÷ measured − 1. +0.1 means that the prediction is 10 % too
/// long; the lowest value is −1.
pub fn relative_error(predicted: f64, measured: f64) -> Option<f64> {
    ratio(predicted, measured).map(|it| it - 1.0)
}

/// The median magnitude of relative errors.
pub fn median_absolute_error(errors: &[f64]) -> Option<f64> {
    median(&magnitudes(errors))
}

/// The magnitude of each value.
pub fn magnitudes(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.abs()).collect()
}

/// exp(mean of ln(predicted ÷ measured)) over `pairs` of (predicted, measured), all above zero.
/// Above 1 where predictions are too long overall; too long by 2 and too short by 2 cancel.
pub fn geometric_mean_ratio(pairs: &[(f64, f64)]) -> Option<f64> {
    let logarithms: Option<Vec<_>> = pairs
        .iter()
        .map(|&(predicted, measured)| {
            (predicted > 0.0 && measured > 0.0).then(|| (predicted / measured).ln())
        })
        .collect();
    mean(&logarithms?).map(f64::exp)
}

/// Spearman's rank correlation of `pairs`: Pearson's correlation of their ranks, where equal values
/// share their mean rank. 1 where both sides have the same order; `None` where one side is
/// constant.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let (left, right): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let (left, right) = (ranks(&left), ranks(&right));
    // The ranks of n values have the mean (n + 1) ÷ 2.
    let middle = (pairs.len() as f64 + 1.0) / 2.0;
    let product =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(x, y)| (x - middle) * (y - middle)).sum() };
    ratio(product(&left, &right), (product(&left, &left) * product(&right, &right)).sqrt())
}

fn ratio(above: f64, below: f64) -> Option<f64> {
    (below != 0.0).then(|| above / below)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The rank of each value, 1 for the smallest. Equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let sorted = sorted(values);
    let rank = |value: &f64| {
        let below = sorted.partition_point(|other| other < value);
        let not_above = sorted.partition_point(|other| other <= value);
        (below + 1 + not_above) as f64 / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = Vec<f64>> {
        vec(-1e6..1e6_f64, 1..40)
    }

    fn pairs() -> impl Strategy<Value = Vec<(f64, f64)>> {
        vec((1e-6..1e6_f64, 1e-6..1e6_f64), 2..30)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
    }

    #[test]
    fn shares_of_a_normal_distribution_are_those_of_its_tables() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_344_746_068_543), (-1.959_963_984_540_054, 0.025)] {
            assert!((normal_share(z) - share).abs() < 1e-12, "{z}");
            assert!((normal_quantile(share) - z).abs() < 1e-9, "{share}");
        }
        assert!(normal_share(-100.0) < 1e-14 && normal_share(100.0) > 1.0 - 1e-14);
    }

    proptest! {
        #[test]
        fn a_percentile_is_one_of_the_values_and_enough_of_them_are_not_above_it(
            values in values(), percent in 0.0..=100.0_f64,
        ) {
            let it = percentile(&values, percent).unwrap();
            prop_assert!(values.contains(&it));
            let not_above = values.iter().filter(|v| **v <= it).count() as f64;
            let below = values.iter().filter(|v| **v < it).count() as f64;
            let wanted = percent * values.len() as f64 / 100.0;
            prop_assert!(not_above >= wanted && (below < wanted || below == 0.0));
        }

        #[test]
        fn percentiles_grow_with_the_percentage_from_the_smallest_to_the_largest(
            values in values(), low in 0.0..=100.0_f64, high in 0.0..=100.0_f64,
        ) {
            let at = |percent| percentile(&values, percent).unwrap();
            prop_assert!(at(low.min(high)) <= at(low.max(high)));
            prop_assert_eq!(at(0.0), values.iter().copied().fold(f64::INFINITY, f64::min));
            prop_assert_eq!(at(100.0), values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }

        #[test]
        fn quantiles_agree_with_the_median_and_the_ends(values in values()) {
            let at = |q| quantile(&values, q).unwrap();
            prop_assert!(close(at(0.5), median(&values).unwrap()));
            prop_assert_eq!(Some(at(0.0)), percentile(&values, 0.0));
            prop_assert_eq!(Some(at(1.0)), percentile(&values, 100.0));
            prop_assert!(at(0.25) <= at(0.75));
            prop_assert!(values.contains(&upper_median(&values).unwrap()));
            prop_assert!(upper_median(&values) >= median(&values));
        }

        #[test]
        fn half_of_the_values_lie_on_each_side_of_the_median(values in values()) {
            let middle = median(&values).unwrap();
            let below = values.iter().filter(|v| **v < middle).count();
            let above = values.iter().filter(|v| **v > middle).count();
            prop_assert!(2 * below <= values.len() && 2 * above <= values.len());
        }

        #[test]
        fn order_does_not_matter_and_units_only_scale(values in values(), factor in 1e-3..1e3_f64) {
            let reversed: Vec<_> = values.iter().rev().copied().collect();
            let scaled: Vec<_> = values.iter().map(|v| v * factor).collect();
            for statistic in [mean, median, |v: &[f64]| percentile(v, 90.0)] {
                let it = statistic(&values).unwrap();
                prop_assert!(close(statistic(&reversed).unwrap(), it));
                prop_assert!(close(statistic(&scaled).unwrap(), it * factor));
            }
        }

        #[test]
        fn the_error_gives_the_prediction_back_and_knows_no_units(
            predicted in 0.0..1e6_f64, measured in 1e-6..1e6_f64, factor in 1e-3..1e3_f64,
        ) {
            let error = relative_error(predicted, measured).unwrap();
            prop_assert!(error >= -1.0);
            prop_assert!(close(measured * (1.0 + error), predicted));
            prop_assert!(close(relative_error(predicted * factor, measured * factor).unwrap(), error));
        }

        #[test]
        fn the_geometric_mean_turns_over_with_its_pairs(pairs in pairs()) {
            let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let product = geometric_mean_ratio(&pairs).unwrap() * geometric_mean_ratio(&swapped).unwrap();
            prop_assert!(close(product, 1.0));
        }

        #[test]
        fn rank_correlation_sees_only_the_order(pairs in pairs()) {
            let bent: Vec<_> = pairs.iter().map(|&(a, b)| (a.ln(), b * b)).collect();
            match (rank_correlation(&pairs), rank_correlation(&bent)) {
                (Some(straight), Some(bent)) => {
                    prop_assert!(close(straight, bent));
                    prop_assert!((-1.0 - 1e-9..=1.0 + 1e-9).contains(&straight));
                }
                (straight, bent) => prop_assert_eq!(straight, bent),
            }
            let same: Vec<_> = pairs.iter().map(|&(a, _)| (a, a)).collect();
            let turned: Vec<_> = pairs.iter().map(|&(a, _)| (a, -a)).collect();
            prop_assert!(rank_correlation(&same).is_none_or(|it| close(it, 1.0)));
            prop_assert!(rank_correlation(&turned).is_none_or(|it| close(it, -1.0)));
        }
    }

    #[test]
    fn nothing_has_no_statistics_and_nothing_is_divided_by_zero() {
        assert_eq!([mean(&[]), median(&[]), percentile(&[], 50.0), spread(&[])], [None; 4]);
        assert_eq!([median_absolute_error(&[]), geometric_mean_ratio(&[]), rank_correlation(&[])], [None; 3]);
        assert_eq!(
            [relative_error(1.0, 0.0), spread(&[0.0, 0.0]), geometric_mean_ratio(&[(0.0, 1.0)])],
            [None; 3]
        );
        assert_eq!(rank_correlation(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }

    #[test]
    fn textbook_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0, 10.0]), Some(2.5));
        // Wikipedia's example of the nearest-rank method.
        let scores = [15.0, 20.0, 35.0, 40.0, 50.0];
        assert_eq!(
            [5.0, 30.0, 40.0, 50.0, 100.0].map(|p| percentile(&scores, p).unwrap()),
            [15.0, 20.0, 20.0, 35.0, 50.0]
        );
        assert_eq!(percentile(&(1..=100).map(f64::from).collect::<Vec<_>>(), 7.0), Some(7.0));
        assert_eq!(spread(&[9.0, 10.0, 10.0, 11.0]), Some(0.1));
        assert_eq!(median_absolute_error(&[-0.3, 0.1, 0.2]), Some(0.2));
        assert!(close(geometric_mean_ratio(&[(2.0, 1.0), (1.0, 2.0), (8.0, 1.0)]).unwrap(), 2.0));
        // Wikipedia's example of Spearman's rho: hours of television against IQ.
        let hours = [7.0, 27.0, 2.0, 50.0, 28.0, 29.0, 20.0, 12.0, 6.0, 17.0];
        let scores = [106.0, 100.0, 86.0, 101.0, 99.0, 103.0, 97.0, 113.0, 112.0, 110.0];
        let pairs: Vec<_> = hours.into_iter().zip(scores).collect();
        assert!(close(rank_correlation(&pairs).unwrap(), -29.0 / 165.0));
    }
}
