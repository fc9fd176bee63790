//! Columns with predictions, appended to the rows of a table.

use hwprofiles::{Estimate, Seconds};
use std::io::Write;

/// The columns that [`append_prediction`] writes, in order. Times are in microseconds. The band
/// from `low_us` to `high_us` holds 80 % of such times.
pub const PREDICTED_COLUMNS: [&str; 5] = ["predicted_us", "bound", "source", "low_us", "high_us"];

/// Appends `,time,bound,source,low,high` to the text of a row.
pub fn append_prediction(row: &mut Vec<u8>, estimate: &Estimate) {
    append_time(row, estimate.time);
    for word in [estimate.bound.name(), estimate.basis.name()] {
        row.push(b',');
        row.extend_from_slice(word.as_bytes());
    }
    append_time(row, estimate.low);
    append_time(row, estimate.high);
}

/// Digits behind the decimal point: a tenth of a nanosecond.
const DIGITS: usize = 4;

/// Appends `,12.3456`. The standard formatter would take a third of the time of a whole row.
fn append_time(row: &mut Vec<u8>, time: Seconds) {
    /// Above this value, floats no longer hold every integer.
    const MOST: f64 = 9e15;
    row.push(b',');
    let us = time.get() * 1e6;
    let scaled = (us * 1e4).round();
    if !(0.0..MOST).contains(&scaled) {
        // Writing to a Vec cannot fail.
        let _ = write!(row, "{us:.DIGITS$}");
        return;
    }
    let mut digits = [b'0'; 20];
    let mut rest = scaled as u64;
    let mut start = digits.len();
    while rest > 0 || start + DIGITS >= digits.len() {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let (whole, fraction) = digits[start..].split_at(digits.len() - start - DIGITS);
    row.extend_from_slice(whole);
    row.push(b'.');
    row.extend_from_slice(fraction);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(us: f64) -> String {
        let mut row = Vec::new();
        append_time(&mut row, Seconds::new(us / 1e6));
        String::from_utf8(row).unwrap()
    }

    #[test]
    fn times_are_written_with_a_digit_before_the_point_and_four_behind() {
        let written = [0.0, 0.00004, 0.0001, 1.0, 12.34567, 99.99996, 1e10, 1e20].map(text);
        let expected =
            [",0.0000", ",0.0000", ",0.0001", ",1.0000", ",12.3457", ",100.0000", ",10000000000.0000"];
        assert_eq!(written[..7], expected);
        assert_eq!(written[7], ",100000000000000000000.0000");
    }

    proptest! {
        #![proptest_config(crate::test_cases::config())]

        #[test]
        fn a_time_is_read_back_within_half_of_its_last_digit(us in 0.0..1e9_f64) {
            let back: f64 = text(us)[1..].parse().unwrap();
            prop_assert!((back - us).abs() <= 0.5e-4 + us * 1e-12, "{us} {back}");
        }
    }
}
