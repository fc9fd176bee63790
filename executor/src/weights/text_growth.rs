//! How much longer a tokenizer may make a text before it looks for tokens, or after it has found
//! them. A file of a few kilobytes whose steps each replace a space by a hundred would fill any
//! memory.

use serde::Deserialize;
use serde_json::Value;

/// A text may become this many times as long. The steps of ALBERT's tokenizer, which are many,
/// reach half of it.
const MOST: f64 = 10_000.0;

/// The parts of a `tokenizer.json` that change texts.
#[derive(Deserialize)]
struct TextSteps {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    decoder: Value,
}

/// Checks that no part of the tokenizer in `json` can make a text too long.
///
/// # Errors
/// The part that can, and by how much; no JSON object, or a part twice.
pub(super) fn check(json: &[u8]) -> Result<(), String> {
    let TextSteps { normalizer, decoder } =
        serde_json::from_slice(json).map_err(|error| error.to_string())?;
    for (name, part) in [("normalizer", normalizer), ("decoder", decoder)] {
        let growth = growth(&part);
        if growth > MOST {
            return Err(format!(
                "its {name} can make a text {growth:.1e} times as long, at most {MOST} is allowed"
            ));
        }
    }
    Ok(())
}

/// The largest number of bytes that a step makes of one. Old files name no types, so what a step is
/// follows from its keys.
fn growth(step: &Value) -> f64 {
    let length = |value: &Value| value.as_str().map_or(0, str::len) as f64;
    let steps = ["normalizers", "decoders"].iter().filter_map(|key| step[key].as_array());
    let of_steps: f64 = steps.flatten().map(growth).product();
    let replaced = match step["pattern"]["String"].as_str() {
        Some(pattern) => (length(&step["content"]) / pattern.len().max(1) as f64).max(1.0),
        // It may stand before and behind every character.
        None => 1.0 + length(&step["content"]),
    };
    of_steps * replaced * (1.0 + length(&step["prepend"])) * own_growth(step["type"].as_str())
}

/// The same of a step that is known by its type.
fn own_growth(kind: Option<&str>) -> f64 {
    match kind {
        Some("Lowercase" | "ByteLevel" | "Metaspace") => 3.0,
        // The longest compatibility decomposition, that of U+FDFA, is eleven times as long.
        Some("NFC" | "NFD" | "NFKC" | "NFKD" | "BertNormalizer") => 12.0,
        // It has a table of its own, which is not read here: an assumption.
        Some("Precompiled") => 64.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use serde_json::json;

    fn checked(steps: &serde_json::Value) -> Result<(), String> {
        check(json!({"normalizer": {"type": "Sequence", "normalizers": steps}}).to_string().as_bytes())
    }

    #[test]
    fn steps_of_published_tokenizers_are_allowed() {
        let llama = json!([
            {"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"},
        ]);
        assert_eq!(checked(&llama), Ok(()));
        let albert = json!([
            {"type": "Replace", "pattern": {"String": "``"}, "content": "\""},
            {"type": "NFKD"},
            {"type": "StripAccents"},
            {"type": "Lowercase"},
            {"type": "Precompiled", "precompiled_charsmap": ""},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]);
        assert_eq!(checked(&albert), Ok(()));
        assert_eq!(check(b"{\"normalizer\": null}"), Ok(()));
    }

    #[test]
    fn steps_that_multiply_a_text_are_refused() {
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": " ".repeat(100)});
        assert_eq!(checked(&json!([replace])), Ok(()));
        let error = checked(&json!([replace, replace, replace])).expect_err("a million times");
        assert!(error.contains("normalizer") && error.contains("1.0e6"), "{error}");
    }
}
