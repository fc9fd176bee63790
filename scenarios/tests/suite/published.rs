//! Laws of the expressions and patterns in published results.

use proptest::prelude::*;
use scenarios::published::{Expression, NamePattern};

fn read(pattern: &str, text: &str) -> Option<Vec<f64>> {
    Some(NamePattern::parse(pattern).expect("a pattern").read(text)?.into_values().collect())
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn any_text_is_parsed_or_refused(text in "[-+*/()<>,. a-c0-9emin]{0,40}") {
        let _ = Expression::parse(&text);
    }

    #[test]
    fn sums_and_products_of_numbers_are_exact(a in 0.0..1e9_f64, b in 1e-3..1e9_f64) {
        let text = format!("{a} + {b} * ({a} - {b}) / {b}");
        let value = Expression::parse(&text).and_then(|expression| expression.value(&|_| None));
        prop_assert_eq!(value, Ok(a + b * (a - b) / b));
    }

    #[test]
    fn a_number_between_texts_is_read_back(
        before in "[a-z ]{0,9}", number in 0u32..100_000, after in "[a-z ]{0,9}",
    ) {
        let text = format!("{before}{number}{after}");
        let found = read(&format!("{before}{{n}}{after}"), &text);
        prop_assert_eq!(found, Some(vec![f64::from(number)]));
        // A star may end inside the number, but not after it.
        let within = read("*{n}*", &text);
        prop_assert!(within.is_some());
    }
}
