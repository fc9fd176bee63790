//! Short patterns for numbers of layers, for engines that take regular expressions of tensors.

use std::collections::BTreeMap;

/// A pattern that matches the decimal forms of `numbers` (ascending) and no other number, between
/// characters that are no digits: `([4-9]|1[0-7])`.
pub(crate) fn layer_pattern(numbers: &[usize]) -> String {
    match &alternatives(numbers)[..] {
        [one] => one.clone(),
        several => format!("({})", several.join("|")),
    }
}

/// Alternatives in the order of their smallest numbers: numbers that have the same last digits
/// behind several first parts are one.
fn alternatives(numbers: &[usize]) -> Vec<String> {
    let mut digits_behind: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for number in numbers {
        digits_behind.entry(number / 10).or_default().push(number % 10);
    }
    let mut done = Vec::new();
    let mut patterns = Vec::new();
    for (first, digits) in &digits_behind {
        if done.contains(first) {
            continue;
        }
        // A number below ten has nothing in front of its digit.
        let same = |other: &usize| other == first || (*first * *other > 0 && digits_behind[other] == *digits);
        let firsts: Vec<usize> = digits_behind.keys().copied().filter(same).collect();
        let class = digit_class(digits);
        match first {
            0 => patterns.push(class),
            _ => patterns.extend(alternatives(&firsts).iter().map(|front| format!("{front}{class}"))),
        }
        done.extend(firsts);
    }
    patterns
}

/// A pattern for one of `digits`, which ascend.
fn digit_class(digits: &[usize]) -> String {
    let runs = digits.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [one, two] => format!("{one}{two}"),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    let runs: String = runs.collect();
    if digits.len() == 1 { runs } else { format!("[{runs}]") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(crate::cases::cases(64)) })]

        #[test]
        fn a_pattern_matches_its_numbers_and_no_other(
            numbers in proptest::collection::btree_set(0..320_usize, 1..40),
            run in (0..200_usize, 0..120_usize),
        ) {
            let run: BTreeSet<usize> = (run.0..=run.0 + run.1).collect();
            for wanted in [&numbers, &run, &(&numbers | &run)] {
                let pattern = layer_pattern(&wanted.iter().copied().collect::<Vec<_>>());
                let names = Regex::new(&format!(r"blk\.{pattern}\.ffn")).unwrap();
                for number in 0..400 {
                    prop_assert_eq!(names.is_match(&format!("blk.{number}.ffn_up")), wanted.contains(&number), "{}", pattern);
                }
            }
        }
    }

    #[test]
    fn runs_of_layers_are_short() {
        let of = |numbers: std::ops::RangeInclusive<usize>| layer_pattern(&numbers.collect::<Vec<_>>());
        assert_eq!(of(3..=3), "3");
        assert_eq!(of(0..=9), "[0-9]");
        assert_eq!(of(11..=35), "(1[1-9]|2[0-9]|3[0-5])");
        assert_eq!(of(8..=59), "([89]|[1-5][0-9])");
        assert_eq!(of(95..=125), "(9[5-9]|1[01][0-9]|12[0-5])");
    }
}
