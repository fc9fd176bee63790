//! The largest value with which something holds that ceases to hold when there is too much.

/// The finest that is looked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fineness {
    /// A share of the value.
    Share(f64),
    /// Whole numbers.
    Whole,
    /// Whole numbers, and a share of them where there are many.
    WholeShare(f64),
}

/// What was found. With both ends it was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Largest {
    /// It holds with the first and does not with the second.
    Between(f64, f64),
    /// It holds even with the most.
    Most(f64),
    /// It does not hold even with the least.
    None(f64),
}

/// The largest value from `least` to `most` with which `holds`, looked for from `start` on: doubled or halved until it lies
/// between two, then halved by ratio until they are as close as `fineness` wants. Where it holds here and there, one of the
/// borders is found.
///
/// # Errors
/// Those of `holds`.
pub fn largest<E>(
    [least, most]: [f64; 2],
    start: f64,
    fineness: Fineness,
    mut holds: impl FnMut(f64) -> Result<bool, E>,
) -> Result<Largest, E> {
    let unit = if matches!(fineness, Fineness::Share(_)) { 0.0 } else { 1.0 };
    let rounded = |value: f64| if unit > 0.0 { value.floor() } else { value };
    let start = rounded(start.clamp(least, most));
    let (mut keeps, mut breaks) = (start, start);
    if holds(start)? {
        while keeps == breaks {
            if keeps >= most {
                return Ok(Largest::Most(keeps));
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
                return Ok(Largest::None(breaks));
            }
            let next = rounded(breaks / 2.0).max(least);
            keeps = next;
            if !holds(next)? {
                breaks = next;
            }
        }
    }
    loop {
        let close = match fineness {
            Fineness::Share(share) => breaks <= keeps * (1.0 + share),
            Fineness::Whole => breaks - keeps <= unit,
            Fineness::WholeShare(share) => breaks - keeps <= unit.max(keeps * share),
        };
        if close {
            return Ok(Largest::Between(keeps, breaks));
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

    fn found(range: [f64; 2], start: f64, fineness: Fineness, limit: f64) -> (Largest, u32) {
        let mut tries = 0;
        let found = largest(range, start, fineness, |value| {
            tries += 1;
            assert!((range[0]..=range[1]).contains(&value), "{value} in {range:?}");
            Ok::<_, Infallible>(value <= limit)
        });
        (found.unwrap_or_else(|never| match never {}), tries)
    }

    proptest! {
        #[test]
        fn whole_numbers_a_share_apart_are_tried_and_near_the_border(limit in 1_u32..100_000, start in 0.1_f64..2e5) {
            let (border, tries) = found([1.0, 1e6], start, Fineness::WholeShare(0.02), f64::from(limit));
            let Largest::Between(keeps, breaks) = border else { panic!("{border:?}") };
            let limit = f64::from(limit);
            prop_assert!(keeps <= limit && limit < breaks && keeps.fract() == 0.0 && breaks.fract() == 0.0);
            prop_assert!(breaks - keeps <= f64::max(1.0, keeps * 0.02));
            prop_assert!(tries <= 30, "{} tries", tries);
        }

        #[test]
        fn the_border_lies_between_two_that_were_tried(limit in 0.02_f64..900.0, start in 0.001_f64..2000.0) {
            let (border, tries) = found([0.01, 1000.0], start, Fineness::Share(0.02), limit);
            let Largest::Between(keeps, breaks) = border else { panic!("{border:?}") };
            prop_assert!(keeps <= limit && limit < breaks && breaks <= keeps * 1.02);
            prop_assert!(tries <= 30, "{} tries", tries);
        }

        #[test]
        fn whole_numbers_agree_with_trying_every_one(limit in 0_u32..200, start in 1_u32..200) {
            let (border, _) = found([1.0, 128.0], f64::from(start), Fineness::Whole, f64::from(limit));
            let every = (1..=128_u32).filter(|&value| value <= limit).max();
            let wanted = match every {
                None => Largest::None(1.0),
                Some(128) => Largest::Most(128.0),
                Some(most) => Largest::Between(f64::from(most), f64::from(most + 1)),
            };
            prop_assert_eq!(border, wanted);
        }
    }

    #[test]
    fn an_error_ends_the_search() {
        let ends = largest(
            [1.0, 9.0],
            3.0,
            Fineness::Whole,
            |value| if value > 5.0 { Err(value) } else { Ok(true) },
        );
        assert_eq!(ends, Err(6.0));
    }
}
