//! The search for the largest value that still meets a condition.

/// How fine the search is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchPrecision {
    /// Within this share of the value.
    Share(f64),
    /// Whole numbers.
    Whole,
    /// Whole numbers, or this share of them for large ones.
    WholeShare(f64),
}

/// What the search found. The condition was tried with every value that is named here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CapacityBracket {
    /// The first value meets the condition and the second does not.
    Between(f64, f64),
    /// Even the largest allowed value meets the condition.
    Most(f64),
    /// Not even the smallest allowed value meets the condition.
    None(f64),
}

/// The largest value from `least` to `most` that meets the condition `holds`.
///
/// The search begins at `start` and doubles or halves the value until the border lies between two
/// values. Then it divides that range at the geometric mean until the two are as close as
/// `precision` asks. If the condition changes more than once over the range, the search finds one
/// of the borders.
///
/// # Errors
/// Those of `holds`.
pub fn search_capacity<E>(
    [least, most]: [f64; 2],
    start: f64,
    precision: SearchPrecision,
    mut holds: impl FnMut(f64) -> Result<bool, E>,
) -> Result<CapacityBracket, E> {
    let unit = if matches!(precision, SearchPrecision::Share(_)) { 0.0 } else { 1.0 };
    let rounded = |value: f64| if unit > 0.0 { value.floor() } else { value };
    let start = rounded(start.clamp(least, most));
    let (mut keeps, mut breaks) = (start, start);
    if holds(start)? {
        while keeps == breaks {
            if keeps >= most {
                return Ok(CapacityBracket::Most(keeps));
            }
            let next = (keeps * 2.0).max(keeps + unit).min(most);
            breaks = next;
            if holds(next)? {
                keeps = next;
            }
        }
    } else {
        while keeps == breaks {
            if breaks <= least {
                return Ok(CapacityBracket::None(breaks));
            }
            let next = rounded(breaks / 2.0).max(least);
            keeps = next;
            if !holds(next)? {
                breaks = next;
            }
        }
    }
    loop {
        let close = match precision {
            SearchPrecision::Share(share) => breaks <= keeps * (1.0 + share),
            SearchPrecision::Whole => breaks - keeps <= unit,
            SearchPrecision::WholeShare(share) => breaks - keeps <= unit.max(keeps * share),
        };
        if close {
            return Ok(CapacityBracket::Between(keeps, breaks));
        }
        let middle = rounded((keeps * breaks).sqrt()).clamp(keeps + unit, breaks - unit);
        if holds(middle)? { keeps = middle } else { breaks = middle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn search(range: [f64; 2], start: f64, precision: SearchPrecision, limit: f64) -> (CapacityBracket, u32) {
        let mut tries = 0;
        let found = search_capacity(range, start, precision, |value| {
            tries += 1;
            assert!((range[0]..=range[1]).contains(&value), "{value} in {range:?}");
            Ok::<_, Infallible>(value <= limit)
        });
        (found.unwrap_or_else(|never| match never {}), tries)
    }

    proptest! {
        #[test]
        fn large_whole_numbers_are_found_within_the_share(limit in 1_u32..100_000, start in 0.1_f64..2e5) {
            let (border, tries) = search([1.0, 1e6], start, SearchPrecision::WholeShare(0.02), f64::from(limit));
            let CapacityBracket::Between(keeps, breaks) = border else { panic!("{border:?}") };
            let limit = f64::from(limit);
            prop_assert!(keeps <= limit && limit < breaks && keeps.fract() == 0.0 && breaks.fract() == 0.0);
            prop_assert!(breaks - keeps <= f64::max(1.0, keeps * 0.02));
            prop_assert!(tries <= 30, "{} tries", tries);
        }

        #[test]
        fn the_border_lies_between_two_tried_values(limit in 0.02_f64..900.0, start in 0.001_f64..2000.0) {
            let (border, tries) = search([0.01, 1000.0], start, SearchPrecision::Share(0.02), limit);
            let CapacityBracket::Between(keeps, breaks) = border else { panic!("{border:?}") };
            prop_assert!(keeps <= limit && limit < breaks && breaks <= keeps * 1.02);
            prop_assert!(tries <= 30, "{} tries", tries);
        }

        #[test]
        fn whole_numbers_agree_with_trying_every_one(limit in 0_u32..200, start in 1_u32..200) {
            let (border, _) = search([1.0, 128.0], f64::from(start), SearchPrecision::Whole, f64::from(limit));
            let every = (1..=128_u32).filter(|&value| value <= limit).max();
            let wanted = match every {
                None => CapacityBracket::None(1.0),
                Some(128) => CapacityBracket::Most(128.0),
                Some(most) => CapacityBracket::Between(f64::from(most), f64::from(most + 1)),
            };
            prop_assert_eq!(border, wanted);
        }
    }

    #[test]
    fn an_error_ends_the_search() {
        let ends = search_capacity([1.0, 9.0], 3.0, SearchPrecision::Whole, |value| {
            if value > 5.0 { Err(value) } else { Ok(true) }
        });
        assert_eq!(ends, Err(6.0));
    }
}
