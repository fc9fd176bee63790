//! `--set key=value`: sets a key of a scenario from the command line.

use crate::input::error::ScenarioError;
use crate::input::section::setting_text;
use hwprofiles::yaml;
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// A key and one or more values for it; several values form an axis of a sweep.
///
/// Values are YAML, separated by commas. A comma inside quotes, brackets or braces is part of a
/// value: `workload.batch=1,8,32`, `dtype={weights: int4, kv: bf16}`, `model="folder, with comma"`.
/// A range of whole numbers is a list that includes both ends: `workload.batch=1..256*2`,
/// `0..100+10`, `1..8`.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The key, as a dotted path.
    pub key: String,
    /// The values; at least one.
    pub values: Vec<Value>,
}

impl FromStr for Setting {
    type Err = ScenarioError;

    /// # Errors
    /// There is no `=`, a part of the path or a value is empty, or a value is not YAML.
    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let error = |reason: String| ScenarioError::Setting { text: text.to_owned(), reason };
        let (key, values) = text
            .split_once('=')
            .ok_or_else(|| error("key=value is wanted, like workload.batch=1,8".to_owned()))?;
        let key = key.trim();
        if key.split('.').any(str::is_empty) {
            return Err(error("the key is a dotted path, like workload.batch".to_owned()));
        }
        let mut all = Vec::new();
        for piece in split(values) {
            if piece.trim().is_empty() {
                return Err(error("a value is missing (write null to take a key away)".to_owned()));
            }
            match range(piece.trim()) {
                Some(range) => all.extend(range.map_err(error)?),
                None => {
                    all.push(yaml::read(piece, "value").map_err(|wrong| {
                        error(format!("'{}' is not YAML: {}", piece.trim(), wrong.message))
                    })?)
                }
            }
        }
        if let Some(other) = all.iter().find(|value| !same_kind(value, &all[0])) {
            let (one, other) = (setting_text(&all[0]), setting_text(other));
            return Err(error(format!(
                "{one} and {other} are not of one kind: a list has numbers, or texts, or truth values"
            )));
        }
        Ok(Self { key: key.to_owned(), values: all })
    }
}

/// Whether both may be in one list. A machine is a text or a mapping, so these two count as one
/// kind; null removes a key and goes with every kind.
fn same_kind(one: &Value, other: &Value) -> bool {
    let kind = |value: &Value| match value {
        Value::Null => None,
        Value::Bool(_) => Some(0),
        Value::Number(_) => Some(1),
        Value::String(_) | Value::Object(_) | Value::Array(_) => Some(2),
    };
    kind(one).is_none() || kind(other).is_none() || kind(one) == kind(other)
}

/// The largest number of values of a range.
const MAX_RANGE: u64 = 1_000_000;

/// Reads a range: `1..8` in steps of 1, `0..100+10` in steps of 10, `1..256*2` doubling each time.
/// `None` if the text is not a range, an error if the range has no end.
pub(crate) fn range(text: &str) -> Option<Result<Vec<Value>, String>> {
    let (from, rest) = text.split_once("..")?;
    let from: u64 = from.parse().ok()?;
    let (to, by) = match rest.find(['+', '*']) {
        Some(at) => (&rest[..at], Some((rest.as_bytes()[at], rest[at + 1..].parse::<u64>().ok()?))),
        None => (rest, None),
    };
    let to: u64 = to.parse().ok()?;
    let next = move |at: u64| match by {
        None => at.checked_add(1),
        Some((b'+', step)) => at.checked_add(step),
        Some((_, factor)) => at.checked_mul(factor),
    };
    if from > to
        || next(from.max(1)).is_none_or(|next| next <= from.max(1))
        || (from == 0 && next(0) == Some(0))
    {
        return Some(Err(format!("{text} goes nowhere: a range is like 1..8, 0..100+10 or 1..256*2")));
    }
    let values = std::iter::successors(Some(from), |&at| next(at).filter(|&next| next <= to));
    let values: Vec<Value> = values.take(MAX_RANGE as usize + 1).map(Value::from).collect();
    match values.len() as u64 {
        0..=MAX_RANGE => Some(Ok(values)),
        _ => Some(Err(format!("{text} has more than {MAX_RANGE} values: take larger steps"))),
    }
}

impl fmt::Display for Setting {
    /// As the user would write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<_> = self.values.iter().map(setting_text).collect();
        write!(f, "{}={}", self.key, values.join(","))
    }
}

/// Splits at the commas that are outside of quotes, brackets and braces.
fn split(text: &str) -> Vec<&str> {
    let (mut pieces, mut start, mut depth, mut quote) = (Vec::new(), 0, 0_u32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) => quote = if c == open { None } else { quote },
            // A quote inside a word (it's) does not open a quoted text.
            (None, '"' | '\'') if depth > 0 || text[start..at].trim().is_empty() => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    pieces
}
