//! How numbers are written for people, the same in tables, plots and pages.

use hwprofiles::{Bytes, FlopPerSec, Seconds};

/// A signed error in per cent with one digit: `+4.2 %`; from 100 % on without: `+144 %`. A dash
/// where there is none.
pub(crate) fn signed_percent(error: Option<f64>) -> String {
    match error {
        Some(error) if error.abs() >= 0.9995 => format!("{:+.0} %", error * 100.0),
        Some(error) => format!("{:+.1} %", error * 100.0),
        None => "–".to_owned(),
    }
}

/// A magnitude in per cent with one digit: `4.2 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A duration with three significant digits: `41.0 ms`. Columns of such texts line up.
pub(crate) fn duration(time: Seconds) -> String {
    three_digits(time.get(), &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)])
}

/// A size with three significant digits, in decimal units: `231 MB`.
pub(crate) fn size(bytes: Bytes) -> String {
    match bytes.get() {
        0..1000 => bytes.to_string(),
        _ => three_digits(bytes.as_f64(), &[("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)]),
    }
}

/// A rate of computing with three significant digits: `133 TFLOP/s`.
pub(crate) fn flop_rate(per_s: f64) -> String {
    three_digits(per_s, &[("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6), ("FLOP/s", 1.0)])
}

/// The same without trailing zeros: `200 GFLOP/s`.
pub(crate) fn flop_tick(per_s: f64) -> String {
    FlopPerSec::new(format!("{per_s:.3e}").parse().unwrap_or(per_s)).to_string()
}

/// A rate of moving bytes with three significant digits: `26.0 GB/s`.
pub(crate) fn byte_rate(per_s: f64) -> String {
    three_digits(per_s, &[("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("B/s", 1.0)])
}

/// A number without a unit, with at most four significant digits: `0.125`, `1500`, `2.5e9`.
pub(crate) fn plain(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    match rounded.abs() {
        0.0 => "0".to_owned(),
        1e-3..1e9 => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

/// A share as a whole number of per cent: `90 %`.
pub(crate) fn whole_percent(share: f64) -> String {
    format!("{} %", plain(share * 100.0))
}

/// A number with its noun: `3 points`, `1 point`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn three_digits(value: f64, units: &[(&str, f64)]) -> String {
    if value == 0.0 {
        return format!("0 {}", units[0].0);
    }
    // 0.9996 s is written 1.00 s, so the unit depends on the rounded number.
    let fits = |&&(_, factor): &&(&str, f64)| value.abs() >= 0.9995 * factor;
    let &(name, factor) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    let scaled = value / factor;
    let digits = match scaled.abs() {
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_in_the_unit_that_leaves_one_to_three_of_them_in_front() {
        let durations = [0.0, 1.5e-9, 0.9996e-3, 0.041, 0.09996, 0.1234, 12.34, 123.4, -0.002];
        let texts = durations.map(|it| duration(Seconds::new(it)));
        assert_eq!(
            texts,
            ["0 s", "1.50 ns", "1.00 ms", "41.0 ms", "100 ms", "123 ms", "12.3 s", "123 s", "-2.00 ms"]
        );
        let sizes = [0, 999, 1000, 230_783_232, 8_000_000_000];
        assert_eq!(sizes.map(|it| size(Bytes::new(it))), ["0 B", "999 B", "1.00 kB", "231 MB", "8.00 GB"]);
    }

    #[test]
    fn plain_numbers_have_no_needless_digits() {
        let texts = [0.0, 0.1 + 0.2, 1500.0, 2_500_000_000.0, 1.0 / 3.0, -4e-7, 12345.678].map(plain);
        assert_eq!(texts, ["0", "0.3", "1500", "2.5e9", "0.3333", "-4e-7", "12350"]);
        assert_eq!(flop_rate(1.3337e14) + &byte_rate(2.6e10), "133 TFLOP/s26.0 GB/s");
        assert_eq!([0.9, 0.055].map(whole_percent), ["90 %", "5.5 %"]);
    }

    #[test]
    fn errors_carry_their_sign_and_a_missing_one_is_a_dash() {
        assert_eq!([Some(0.0417), Some(-0.5), None].map(signed_percent), ["+4.2 %", "-50.0 %", "–"]);
        let large = [0.9994, 0.9996, 1.441, 99.99].map(|error| signed_percent(Some(error)));
        assert_eq!(large, ["+99.9 %", "+100 %", "+144 %", "+9999 %"]);
        assert!(large.iter().all(|text| text.len() <= "+99.9 %".len()), "columns stay in line");
        assert_eq!(percent(0.1249), "12.5 %");
    }
}
