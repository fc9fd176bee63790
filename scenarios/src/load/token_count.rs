//! Numbers of tokens as people write them: `32768` or `32k`.

use serde_json::Value;

/// The most tokens of a sequence.
pub(crate) const MAX_TOKENS: u64 = 1 << 32;

/// What a number of tokens is.
pub(crate) const TOKENS_WANTED: &str = "a whole number from 1 to 4294967296 is wanted, such as 32768 or 32k";

/// A number of tokens as people write it: `32768`, or `32k` for 32 · 1024; from 1 to 2³².
///
/// # Errors
/// What would be right.
pub fn token_count(word: &str) -> Result<u64, String> {
    let (digits, unit) = match word.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (word, 1),
    };
    let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    count.filter(|count| (1..=MAX_TOKENS).contains(count)).ok_or_else(|| TOKENS_WANTED.to_owned())
}

/// The tokens that a document's value says, as a number or as a text.
pub(crate) fn tokens_of(value: &Value) -> Option<u64> {
    match value {
        Value::String(word) => token_count(word).ok(),
        value => value.as_u64().filter(|count| (1..=MAX_TOKENS).contains(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_in_ones_and_in_1024s() {
        assert_eq!(
            ["1", "32768", "32k", "128K"].map(|word| token_count(word).ok()),
            [1, 32_768, 32_768, 131_072].map(Some)
        );
        for word in ["", "k", "0", "-1", "1.5k", "32 k", "4294967297", "99999999999999999999k"] {
            assert!(token_count(word).unwrap_err().contains("32k"), "{word}");
        }
    }
}
