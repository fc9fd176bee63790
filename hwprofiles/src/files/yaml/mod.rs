//! YAML in and out: the only module that knows the YAML crate.
//!
//! A text is read once into a tree of values with their places; any type is then read from that
//! tree by one deserializer, so that each type of document is compiled once. Reading is strict
//! (unknown and duplicate keys, non-finite numbers and loose booleans are refused) and an error
//! names file, line, column and key. A rule that a type cannot express is checked after reading and
//! reported with [`refuse`], which finds the line of a key path by parsing the text again:
//! documents stay plain types.
//!
//! JSON is YAML, so the same functions read it.
//!
//! Writing puts on one line whatever fits on one, so that a table of points reads like a table.

mod deserializer;
mod entries;
mod node;
mod parse;
mod problem;
mod scalar;
mod write;

pub use entries::Entries;
pub use problem::unknown_key;
pub use write::write;

use node::{Node, NodeKind, Place};
use problem::{Kind, Problem, one_line};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Something wrong in a file: where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {}{message}", prefix(key))]
pub struct FileError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, from 1; 0 where unknown.
    pub line: u64,
    /// The column, from 1; 0 where unknown.
    pub column: u64,
    /// The path of the key: `devices.cpu.launch.value`; empty for the whole document.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

fn prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}: ") }
}

/// Reads a document. `file` is its name in messages.
pub fn read<T: DeserializeOwned>(text: &str, file: &str) -> Result<T, FileError> {
    ParsedText::parse(text, file)?.read()
}

/// A text that was parsed once, for readers that look at its keys before they know its type.
pub(crate) struct ParsedText<'t> {
    pub text: &'t str,
    /// Its name in messages.
    pub file: &'t str,
    document: parse::Document<'t>,
}

impl<'t> ParsedText<'t> {
    /// Parses a text. `file` is its name in messages.
    pub fn parse(text: &'t str, file: &'t str) -> Result<Self, FileError> {
        let document = parse::parse(text).map_err(|problem| located(&problem, text, file))?;
        Ok(Self { text, file, document })
    }

    /// See [`read`].
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        let Self { text, file, document } = self;
        let root = &document.root;
        let value =
            T::deserialize(root).map_err(|problem| located(&problem.placed(root.place), text, file))?;
        match document.second {
            None => Ok(value),
            Some(place) => Err(located(&Problem::new(Kind::SecondDocument).placed(place), text, file)),
        }
    }

    /// See [`top_keys`].
    pub fn top_keys(&self) -> Result<Vec<String>, FileError> {
        let root = &self.document.root;
        let key = |(key, _): &(Node<'_>, Node<'_>)| key.text().unwrap_or_default().to_owned();
        let refused = |kind| Err(located(&Problem::of_node(kind, root), self.text, self.file));
        match &root.kind {
            NodeKind::Map(entries) => Ok(entries.iter().map(key).collect()),
            NodeKind::Empty => refused(Kind::Empty),
            _ => refused(Kind::NotMap(&[])),
        }
    }
}

/// Reads a value that JSON holds. `file` is the document's name in messages; lines are unknown.
pub fn read_value<T: DeserializeOwned>(value: &Value, file: &str) -> Result<T, FileError> {
    T::deserialize(&Node::from_json(value)).map_err(|problem| FileError {
        file: file.to_owned(),
        line: 0,
        column: 0,
        key: problem.key(),
        message: problem.message(None),
    })
}

/// The error for the key at `path` of a document that [`read`] accepted: a rule about its meaning
/// is broken. A step of the path is a key, or the index of a list's item.
pub fn refuse(text: &str, file: &str, path: &[&str], message: String) -> FileError {
    let place = parse::parse(text).map_or(Place::UNKNOWN, |document| document.root.nearest(path).place);
    let (key, message) = (one_line(&path.join(".")), one_line(&message));
    FileError { file: file.to_owned(), line: place.line, column: place.column, key, message }
}

/// The keys of the document's top level, which tell the kinds of files apart.
pub fn top_keys(text: &str, file: &str) -> Result<Vec<String>, FileError> {
    ParsedText::parse(text, file)?.top_keys()
}

/// A problem with the file's name and what the text says at its place.
fn located(problem: &Problem, text: &str, file: &str) -> FileError {
    let Place { line, column } = problem.place();
    let message = problem.message(Some(&token(text, line, column)));
    FileError { file: file.to_owned(), line, column, key: problem.key(), message }
}

/// What the file says at a place, for a message: up to the end of the value, shortened.
fn token(text: &str, line: u64, column: u64) -> String {
    let skip = |n: u64| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
    let rest: String = text.lines().nth(skip(line)).unwrap_or("").chars().skip(skip(column)).collect();
    let end = rest.find([',', '}', ']', '#']).unwrap_or(rest.len());
    rest[..end].trim().chars().take(40).collect()
}
