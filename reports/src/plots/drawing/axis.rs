//! Axes: the mapping from numbers to pixels, and the positions of ticks.

/// A linear or logarithmic axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlotAxis {
    from: f64,
    to: f64,
    logarithmic: bool,
    /// The pixels at `from` and `to`.
    pixels: [f64; 2],
}

impl PlotAxis {
    pub(crate) fn linear(from: f64, to: f64, pixels: [f64; 2]) -> Self {
        Self { from, to: if to > from { to } else { from + 1.0 }, logarithmic: false, pixels }
    }

    /// An axis that holds all positive `values` with a margin and spans at least a factor of 4.
    /// Without values it spans 0.001 to 1.
    pub(crate) fn logarithmic(values: impl Iterator<Item = f64> + Clone, pixels: [f64; 2]) -> Self {
        let values = values.filter(|value| *value > 0.0).map(|value| value.clamp(1e-300, 1e300));
        let lowest = values.clone().fold(f64::INFINITY, f64::min);
        let highest = values.fold(0.0, f64::max);
        let (low, high) = if lowest <= highest { (lowest / 1.25, highest * 1.25) } else { (1e-3, 1.0) };
        let missing = (4.0 / (high / low)).max(1.0).sqrt();
        Self { from: low / missing, to: high * missing, logarithmic: true, pixels }
    }

    /// The same axis on other pixels.
    pub(crate) fn on(self, pixels: [f64; 2]) -> Self {
        Self { pixels, ..self }
    }

    pub(crate) fn ends(&self) -> [f64; 2] {
        [self.from, self.to]
    }

    pub(crate) fn pixels(&self) -> [f64; 2] {
        self.pixels
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.pixels[0] + share * (self.pixels[1] - self.pixels[0])
    }

    /// Round numbers along the axis, at most about `most` of them.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        if self.logarithmic { self.logarithmic_ticks(most) } else { self.linear_ticks(most) }
    }

    fn linear_ticks(&self, most: usize) -> Vec<f64> {
        let raw = (self.to - self.from) / most as f64;
        let magnitude = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * magnitude).into_iter().find(|it| *it >= raw * 0.999);
        let step = step.unwrap_or(10.0 * magnitude);
        let (first, last) = ((self.from / step - 1e-9).ceil(), (self.to / step + 1e-9).floor());
        // Numbers that differ by less than their last digit have no round numbers between them.
        if !step.is_normal() || first.abs().max(last.abs()) > 1e15 {
            return vec![self.from];
        }
        (first as i64..=last as i64).map(|index| index as f64 * step).collect()
    }

    /// 1, 2, 5 of each decade; where those are too many, 1 and 3; else 1 alone.
    fn logarithmic_ticks(&self, most: usize) -> Vec<f64> {
        let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        let ticks = |digits: &[f64]| -> Vec<f64> {
            let all = decades.clone().flat_map(|e| digits.iter().map(move |digit| digit * 10_f64.powi(e)));
            all.filter(|tick| (self.from..=self.to).contains(tick)).collect()
        };
        let choices: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
        choices
            .iter()
            .map(|digits| ticks(digits))
            .find(|it| it.len() <= most)
            .unwrap_or_else(|| ticks(choices[2]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::test_cases::config())]

        #[test]
        fn every_value_lies_between_the_ends_and_order_is_kept(values in proptest::collection::vec(1e-6..1e3_f64, 1..9)) {
            let axis = PlotAxis::logarithmic(values.iter().copied(), [0.0, 100.0]);
            for value in &values {
                prop_assert!((0.0..=100.0).contains(&axis.at(*value)));
            }
            let mut sorted = values;
            sorted.sort_by(f64::total_cmp);
            prop_assert!(sorted.is_sorted_by(|a, b| axis.at(*a) <= axis.at(*b)));
        }

        #[test]
        fn there_are_ticks_and_they_lie_on_the_axis(from in -1e3..1e3_f64, width in 1e-3..1e4_f64, low in 1e-6..1.0_f64) {
            let linear = PlotAxis::linear(from, from + width, [0.0, 1.0]);
            let logarithmic = PlotAxis::logarithmic([low, low * (1.0 + width)].into_iter(), [0.0, 1.0]);
            for axis in [linear, logarithmic] {
                let ticks = axis.ticks(8);
                prop_assert!((1..=12).contains(&ticks.len()), "{ticks:?}");
                prop_assert!(ticks.iter().all(|tick| (-1e-6..=1.0 + 1e-6).contains(&axis.at(*tick))));
            }
        }
    }

    #[test]
    fn extreme_numbers_have_few_ticks() {
        for (from, to) in
            [(0.0, 5e-324), (1e300, 1e300), (0.0, f64::MAX), (1e17, 1e17 + 16.0), (-1e-310, 1e-310)]
        {
            assert!(PlotAxis::linear(from, to, [0.0, 1.0]).ticks(8).len() <= 12, "{from} to {to}");
        }
        for ends in [[5e-324, 1.0], [1.0, f64::MAX], [f64::INFINITY, 1.0]] {
            assert!(PlotAxis::logarithmic(ends.into_iter(), [0.0, 1.0]).ticks(8).len() < 1000, "{ends:?}");
        }
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(PlotAxis::linear(0.0, 10.0, [0.0, 1.0]).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(
            PlotAxis::logarithmic([0.02, 0.4].into_iter(), [0.0, 1.0]).ticks(8),
            [0.02, 0.05, 0.1, 0.2, 0.5]
        );
        assert_eq!(PlotAxis::logarithmic([0.02, 40.0].into_iter(), [0.0, 1.0]).ticks(5), [0.1, 1.0, 10.0]);
    }
}
