//! Numbers with units: from text and to text.
//!
//! A decimal unit moves the decimal point, so the point is moved in the text: `"2.5 us"` is read as
//! `2.5e-6`, the nearest float, and written back as `2.5 us`. A multiplication by `1e-6` would lose
//! the last bit both ways.

use std::fmt::Write;

/// A text that is not a quantity of the wanted kind. The message says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {kind}: {reason}; write a number and a unit, one of {units}")]
pub struct UnitError {
    /// What was written.
    pub text: String,
    /// What was wanted: "a bandwidth", "a duration", …
    pub kind: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
    /// The accepted units, comma-separated.
    pub units: String,
}

/// A unit's name and its size in base units.
pub(crate) type UnitTable = &'static [(&'static str, f64)];

/// A text split into its number and its unit's size.
struct SplitQuantity {
    /// The number without underscores.
    number: String,
    factor: f64,
}

fn error(text: &str, kind: &'static str, table: UnitTable, reason: &'static str) -> UnitError {
    let units = table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    UnitError { text: text.to_owned(), kind, reason, units }
}

/// Splits `"4.8 TB/s"`. The number is decimal and not negative.
fn split(text: &str, table: UnitTable) -> Result<SplitQuantity, &'static str> {
    let trimmed = text.trim();
    let end = trimmed
        .char_indices()
        .find(|&(i, c)| c.is_alphabetic() && !is_exponent(trimmed, i))
        .map_or(trimmed.len(), |(i, _)| i);
    let (number, unit) = (trimmed[..end].trim().replace('_', ""), trimmed[end..].trim());
    let value: f64 = number.parse().map_err(|_| "there is no number in it")?;
    if unit.is_empty() {
        return Err("the unit is missing");
    }
    let factor = table.iter().find(|(name, _)| *name == unit).ok_or("the unit is unknown")?.1;
    if value < 0.0 {
        return Err("it is negative");
    }
    Ok(SplitQuantity { number, factor })
}

/// Whether the letter at `i` is the `e` of `1e9`.
fn is_exponent(text: &str, i: usize) -> bool {
    let Some(after) = text[i..].strip_prefix(['e', 'E']) else { return false };
    text[..i].ends_with(|c: char| c.is_ascii_digit() || c == '.')
        && after.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit())
}

impl SplitQuantity {
    fn value(&self) -> Result<f64, &'static str> {
        let value = match decimal_exponent(self.factor) {
            Some(shift) => {
                let (mantissa, exponent) = self.number.split_once(['e', 'E']).unwrap_or((&self.number, "0"));
                let exponent = exponent.parse::<i32>().unwrap_or(i32::MAX).saturating_add(shift);
                format!("{mantissa}e{exponent}").parse().unwrap_or(f64::INFINITY)
            }
            None => self.number.parse::<f64>().unwrap_or(f64::INFINITY) * self.factor,
        };
        // Adding zero turns −0 into 0.
        if value.is_finite() { Ok(value + 0.0) } else { Err("it is not finite") }
    }

    fn count(&self) -> Result<u128, &'static str> {
        if let Ok(whole) = self.number.parse::<u128>() {
            return whole.checked_mul(self.factor as u128).ok_or("it is too large");
        }
        let value = self.value()?;
        // "1.1 GB" is a whole number of bytes, although 1.1 × 10⁹ as a float is off in the last
        // bit.
        if (value - value.round()).abs() > value * 1e-9 {
            return Err("it is not a whole number of the base unit");
        }
        if value < u128::MAX as f64 { Ok(value.round() as u128) } else { Err("it is too large") }
    }
}

/// The range of quantities in base units, zero aside. Nothing that anybody measures lies outside,
/// and quotients of numbers within it are finite.
const RANGE: std::ops::RangeInclusive<f64> = 1e-18..=1e24;

/// The range of what a machine does in a second. Slower ones would outlast any clock.
const RATE_RANGE: std::ops::RangeInclusive<f64> = 1.0..=1e24;

/// Reads a measured quantity, in base units.
pub(crate) fn parse_measured(text: &str, kind: &'static str, table: UnitTable) -> Result<f64, UnitError> {
    let is_rate = ["a bandwidth", "a compute rate", "a rate of values"].contains(&kind);
    let range = if is_rate { RATE_RANGE } else { RANGE };
    let in_range = |value: f64| match value == 0.0 || range.contains(&value.abs()) {
        true => Ok(value),
        false => Err("it is too small or too large"),
    };
    split(text, table)
        .and_then(|parts| parts.value())
        .and_then(in_range)
        .map_err(|reason| error(text, kind, table, reason))
}

/// Reads a counted quantity, in base units, exactly.
pub(crate) fn parse_counted<T: TryFrom<u128>>(
    text: &str,
    kind: &'static str,
    table: UnitTable,
) -> Result<T, UnitError> {
    split(text, table)
        .and_then(|parts| parts.count())
        .and_then(|count| T::try_from(count).map_err(|_| "it is too large"))
        .map_err(|reason| error(text, kind, table, reason))
}

/// For people: in the largest decimal unit that leaves at least 1 before the point, with at most
/// four significant digits.
pub(crate) fn short(value: f64, table: UnitTable) -> String {
    let (name, factor) = unit_for(value, table);
    let scaled = value / factor;
    let digits =
        if scaled == 0.0 { 0 } else { (3 - scaled.abs().log10().floor() as i32).clamp(0, 9) as usize };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {name}")
}

/// For files: in the same unit, with every digit that the float needs.
pub(crate) fn exact(value: f64, table: UnitTable) -> String {
    let (name, factor) = unit_for(value, table);
    match decimal_exponent(factor) {
        Some(shift) => format!("{} {name}", decimal(value, -shift)),
        // Never reached: every measured quantity has a decimal base unit.
        None => format!("{} {name}", value / factor),
    }
}

/// The shortest decimal number that is `value`, times 10^`shift`, written without an exponent.
fn decimal(value: f64, shift: i32) -> String {
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let point = exponent.parse::<i32>().unwrap_or(0) + shift + 1;
    let mut text = String::new();
    if value == 0.0 {
        text.push('0');
    } else if point <= 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, "0.{}{digits}", "0".repeat(-point as usize));
    } else if digits.len() <= point as usize {
        let _ = write!(text, "{digits}{}", "0".repeat(point as usize - digits.len()));
    } else {
        let _ = write!(text, "{}.{}", &digits[..point as usize], &digits[point as usize..]);
    }
    text
}

/// The unit a value is written in: the largest decimal one not above it, else the smallest.
fn unit_for(value: f64, table: UnitTable) -> (&'static str, f64) {
    let units = || table.iter().copied().filter(|(name, _)| is_written(name));
    let smallest = units().min_by(|a, b| a.1.total_cmp(&b.1));
    let largest_below = units().filter(|&(_, f)| f <= value).max_by(|a, b| a.1.total_cmp(&b.1));
    largest_below.or(smallest).unwrap_or(("", 1.0))
}

/// Units that are read but not written: binary ones, those whose numbers are hard to compare, and
/// other spellings.
fn is_written(name: &str) -> bool {
    const READ_ONLY: [&str; 10] =
        ["µs", "min", "h", "Wh", "kWh", "req/min", "req/h", "requests/s", "rps", "qps"];
    let binary = name.starts_with(|c: char| "KMGT".contains(c)) && name[1..].starts_with("iB");
    !binary && !READ_ONLY.contains(&name)
}

/// The exponent e where `factor` is 10^e.
fn decimal_exponent(factor: f64) -> Option<i32> {
    let exponent = factor.log10().round() as i32;
    (format!("1e{exponent}").parse() == Ok(factor)).then_some(exponent)
}
