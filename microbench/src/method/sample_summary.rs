//! Summaries of samples.

use hwprofiles::statistics::quantile;

/// Median and spread of a set of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SampleSummary {
    /// How many samples.
    pub count: usize,
    /// The second quartile.
    pub median: f64,
    /// (Third quartile − first quartile) ÷ median.
    pub spread: f64,
}

/// The summary of parts that follow one another: medians add up, and so do quartiles at worst.
/// `None` where there are no parts, or one has no samples.
pub(crate) fn sum(parts: impl IntoIterator<Item = Option<SampleSummary>>) -> Option<SampleSummary> {
    let add = |a: SampleSummary, b: SampleSummary| {
        let median = a.median + b.median;
        let spread = (a.spread * a.median + b.spread * b.median) / median;
        SampleSummary { count: a.count.min(b.count), median, spread }
    };
    parts.into_iter().reduce(|a, b| Some(add(a?, b?))).flatten()
}

/// The summary of positive samples; `None` where there are none.
pub(crate) fn summary(samples: &[f64]) -> Option<SampleSummary> {
    let median = quantile(samples, 0.5)?;
    let spread = (quantile(samples, 0.75)? - quantile(samples, 0.25)?) / median;
    Some(SampleSummary { count: samples.len(), median, spread })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_neighbours() {
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[3.0]), Some(SampleSummary { count: 1, median: 3.0, spread: 0.0 }));
        assert_eq!(summary(&[4.0, 2.0]), Some(SampleSummary { count: 2, median: 3.0, spread: 1.0 / 3.0 }));
        let five = summary(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(five, Some(SampleSummary { count: 5, median: 3.0, spread: 2.0 / 3.0 }));
    }

    #[test]
    fn the_spread_of_a_sum_is_weighed_by_its_parts() {
        let part = |count, median, spread| SampleSummary { count, median, spread };
        let sum = sum([part(9, 1.0, 0.4), part(5, 3.0, 0.2)].map(Some)).expect("two parts");
        assert_eq!((sum.count, sum.median), (5, 4.0));
        assert!((sum.spread - 0.25).abs() < 1e-12);
    }

    #[test]
    fn one_outlier_among_many_moves_neither_median_nor_spread() {
        let quiet: Vec<f64> = (0..101).map(|i| 100.0 + f64::from(i) / 100.0).collect();
        let mut disturbed = quiet.clone();
        disturbed[100] = 1e9;
        assert_eq!(summary(&disturbed), summary(&quiet));
    }
}
