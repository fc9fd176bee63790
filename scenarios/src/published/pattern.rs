//! Patterns for cells of a published table, and the numbers that they read from a cell.

use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;

/// A text in which `*` matches anything and `{name}` matches a number, which is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Anything,
    Number(String),
}

impl NamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A brace is not closed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['*', '{']) {
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].to_owned()));
            }
            if let Some(star) = rest[at..].strip_prefix('*') {
                pieces.push(Piece::Anything);
                rest = star;
            } else {
                let end = rest[at..].find('}').ok_or_else(|| format!("'{text}': a brace is not closed"))?;
                pieces.push(Piece::Number(rest[at + 1..at + end].to_owned()));
                rest = &rest[at + end + 1..];
            }
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// Reads the numbers from `text`; `None` if the pattern does not match the whole text.
    pub fn read(&self, text: &str) -> Option<BTreeMap<String, f64>> {
        let mut numbers = BTreeMap::new();
        matches(&self.0, text, &mut numbers).then_some(numbers)
    }
}

/// Whether `pieces` match the whole of `text`. Each `*` takes as few characters as possible, each
/// number as many as possible.
fn matches(pieces: &[Piece], text: &str, numbers: &mut BTreeMap<String, f64>) -> bool {
    match pieces {
        [] => text.is_empty(),
        [Piece::Text(wanted), rest @ ..] => {
            text.strip_prefix(wanted.as_str()).is_some_and(|text| matches(rest, text, numbers))
        }
        [Piece::Anything] => true,
        [Piece::Anything, rest @ ..] => {
            let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            starts.into_iter().any(|at| matches(rest, &text[at..], numbers))
        }
        [Piece::Number(name), rest @ ..] => {
            let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
            let number =
                text[..digits].parse::<f64>().ok().filter(|_| matches(rest, &text[digits..], numbers));
            number.map(|number| numbers.insert(name.clone(), number)).is_some()
        }
    }
}

/// Patterns for some columns. A column may have several patterns; one of them must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Filter(BTreeMap<String, Patterns>);

impl Filter {
    /// The columns that have patterns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Reads the numbers from the cells; `None` if a cell does not match.
    pub fn read(&self, cells: &BTreeMap<String, String>) -> Option<BTreeMap<String, f64>> {
        let mut numbers = BTreeMap::new();
        for (column, patterns) in &self.0 {
            let cell = cells.get(column).map_or("", String::as_str);
            numbers.extend(patterns.0.iter().find_map(|pattern| pattern.read(cell))?);
        }
        Some(numbers)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Patterns(Vec<NamePattern>);

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(serde_json::Number),
            One(String),
            Several(Vec<String>),
        }
        let written = match Written::deserialize(deserializer)? {
            Written::Number(number) => vec![number.to_string()],
            Written::One(text) => vec![text],
            Written::Several(texts) => texts,
        };
        let patterns = written.iter().map(|text| NamePattern::parse(text)).collect::<Result<_, _>>();
        patterns.map(Self).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &str, text: &str) -> Option<Vec<f64>> {
        Some(NamePattern::parse(pattern).expect("a pattern").read(text)?.into_values().collect())
    }

    #[test]
    fn numbers_are_read_from_where_they_stand() {
        assert_eq!(read("*; {cores} cores", "1 socket; 256GB; 32 cores"), Some(vec![32.0]));
        assert_eq!(read("*={a}x{b},{c}*", "policy(x)=48x3,0.5,100 (disk)"), Some(vec![48.0, 3.0, 0.5]));
        assert_eq!(read("plain", "plain"), Some(vec![]));
        assert_eq!(read("", ""), Some(vec![]));
    }

    #[test]
    fn a_pattern_matches_the_whole_text() {
        let cases =
            [("plain", "plains"), ("{n} cores", "many cores"), ("*b", "abc"), ("", "a"), ("{n}", "1.2.3")];
        for (pattern, text) in cases {
            assert_eq!(read(pattern, text), None, "{pattern} {text}");
        }
        assert!(NamePattern::parse("{n").is_err());
    }
}
