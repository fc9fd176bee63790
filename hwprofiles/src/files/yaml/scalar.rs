//! What the text of a scalar stands for: numbers and truth values, as YAML 1.2 writes them.

use super::node::BLANKS;

/// `true` or `false`, in any case. YAML 1.1's `yes` and `off` are texts.
pub(super) fn truth(text: &str) -> Option<bool> {
    let text = text.trim_matches(BLANKS);
    match text {
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// A whole number: decimal, or with `0x`, `0o` or `0b` in front; single underscores may part
/// digits.
pub(super) fn whole(text: &str) -> Option<i128> {
    let text = text.trim_matches(BLANKS);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let prefixed =
        |lower: &str, upper: &str| digits.strip_prefix(lower).or_else(|| digits.strip_prefix(upper));
    let (radix, digits) = if let Some(digits) = prefixed("0x", "0X") {
        (16, digits)
    } else if let Some(digits) = prefixed("0o", "0O") {
        (8, digits)
    } else if let Some(digits) = prefixed("0b", "0B") {
        (2, digits)
    } else {
        // YAML 1.2 has no decimal numbers that begin with a zero.
        if digits.len() > 1 && digits.starts_with('0') {
            return None;
        }
        (10, digits)
    };
    let parted = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    if parted || digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    Some(if negative { -magnitude } else { magnitude })
}

/// A number; `.inf` and `.nan` are numbers too, too large ones are not.
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim_matches(BLANKS);
    match text.to_ascii_lowercase().as_str() {
        ".nan" | "+.nan" | "-.nan" => Some(f64::NAN),
        ".inf" | "+.inf" => Some(f64::INFINITY),
        "-.inf" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

/// Whether the text is written like a number that is too large for one.
pub(super) fn overflows(text: &str) -> bool {
    let text = text.trim_matches(BLANKS);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit()) && text.parse().is_ok_and(f64::is_infinite)
}
