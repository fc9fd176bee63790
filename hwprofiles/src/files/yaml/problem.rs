//! What is wrong with a document, before its file and line are known, and the words for it.

use super::node::{Node, NodeKind, Place};
use crate::units::{nearest_key, nearest_name};
use serde::de;
use std::fmt;

/// Something wrong with a value: what, where, and the keys that lead there.
///
/// The reader adds keys and place from the inside out, while the error passes through it.
#[derive(Debug)]
pub(super) struct Problem(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    place: Option<Place>,
    /// The innermost key comes first.
    path: Vec<String>,
    /// The scalar that stands there.
    found: String,
}

/// Maps of no more keys are shown whole.
const FEW_KEYS: usize = 4;

/// What can be wrong.
#[derive(Debug)]
pub(super) enum Kind {
    /// In the words of a type that was being read.
    Custom(String),
    /// The text is not YAML, in the words of the parser.
    Syntax(String),
    Empty,
    SecondDocument,
    /// Not a map; its keys, where they are known.
    NotMap(&'static [&'static str]),
    NotList,
    NotText,
    NotNumber,
    NotFinite,
    /// Not a whole number; true where it may not be below zero either.
    NotWhole(bool),
    NotBool,
    NullText,
    DuplicateKey(String),
    MissingField(&'static str),
    UnknownField(String, &'static [&'static str]),
    UnknownVariant(String, &'static [&'static str]),
}

impl Problem {
    /// A problem of a value that the reader has not placed yet.
    pub fn new(kind: Kind) -> Self {
        Self(Box::new(Inner { kind, place: None, path: Vec::new(), found: String::new() }))
    }

    /// A problem of a known place, whose keys are `path`, the outermost first.
    pub fn at(kind: Kind, place: Place, path: &[String]) -> Self {
        let path = path.iter().rev().cloned().collect();
        Self(Box::new(Inner { kind, place: Some(place), path, found: String::new() }))
    }

    /// A problem of the kind of value that `node` is.
    pub fn of_node(kind: Kind, node: &Node<'_>) -> Self {
        let found = match &node.kind {
            NodeKind::Scalar(scalar) => scalar.text.to_string(),
            NodeKind::Map(_) => "{…}".to_owned(),
            NodeKind::List(_) => "[…]".to_owned(),
            NodeKind::Empty => String::new(),
        };
        Self(Box::new(Inner { kind, place: Some(node.place), path: Vec::new(), found }))
    }

    /// The same, of a value that stands at `place` unless something inside it was placed already.
    pub fn placed(mut self, place: Place) -> Self {
        self.0.place.get_or_insert(place);
        self
    }

    /// The same, under `key`.
    pub fn under(mut self, key: &str) -> Self {
        self.0.path.push(key.to_owned());
        self
    }

    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    pub fn place(&self) -> Place {
        self.0.place.unwrap_or(Place::UNKNOWN)
    }

    /// The keys that lead to it, joined.
    pub fn key(&self) -> String {
        let steps: Vec<&str> = self.0.path.iter().rev().map(String::as_str).collect();
        one_line(&steps.join("."))
    }

    /// What is wrong and what would be right; `token` is what the file says there, where there is a
    /// file.
    pub fn message(&self, token: Option<&str>) -> String {
        // Of a list or map on one line the file's own words would be a bracket alone.
        let token = token.filter(|token| token.len() > 1 || self.0.found.len() <= 1).unwrap_or(&self.0.found);
        one_line(&match self.kind() {
            Kind::Custom(message) | Kind::Syntax(message) => message.clone(),
            Kind::Empty => "the file is empty".to_owned(),
            Kind::SecondDocument => "a second document begins here: keep one".to_owned(),
            Kind::NotMap(keys) if (1..=FEW_KEYS).contains(&keys.len()) => {
                let keys: Vec<String> = keys.iter().map(|key| format!("{key}: …")).collect();
                format!("'{token}' stands where keys are expected: write {{{}}}", keys.join(", "))
            }
            Kind::NotMap(_) => format!(
                "'{token}' stands where keys are expected: write `key: value` lines or {{key: value}}"
            ),
            Kind::NotList => {
                format!("'{token}' stands where a list is expected: write `- item` lines or [item, item]")
            }
            Kind::NotText => format!("'{token}' stands where a text is expected: write a word or \"a text\""),
            Kind::NotNumber => format!("'{token}' is not a number"),
            Kind::NotFinite => format!("value `{token}` is not a finite number"),
            Kind::NotWhole(true) => format!("'{token}' is not a whole number of 0 or more"),
            Kind::NotWhole(false) => format!("'{token}' is not a whole number"),
            Kind::NotBool => format!("'{token}' is neither true nor false"),
            Kind::NullText => "there is no value: write a text, in quotes where it is empty".to_owned(),
            Kind::DuplicateKey(key) => format!("the key '{key}' is given twice: keep one"),
            Kind::MissingField(key) => format!("the key `{key}` is missing"),
            Kind::UnknownField(key, known) => unknown_key(key, known),
            Kind::UnknownVariant(word, known) => {
                let near = nearest_name(word, known.iter().copied());
                format!("'{word}' is not known here: {}", known_words(near, known))
            }
        })
    }
}

/// The words for the unknown `key` of a document in which `known` keys may stand.
pub fn unknown_key(key: &str, known: &[&str]) -> String {
    format!("`{key}` is not a key here: {}", known_words(nearest_key(key, known), known))
}

/// The word that is probably meant, and all that are known.
fn known_words(near: Option<&str>, known: &[&str]) -> String {
    let all = known.join(", ");
    match near {
        Some(near) => format!("did you mean `{near}`? Known are {all}"),
        None => format!("use one of {all}"),
    }
}

/// A value or key may span lines; a message does not.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(None))
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Kind::Custom(message.to_string()))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Kind::MissingField(field))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Kind::UnknownField(field.to_owned(), expected))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Kind::UnknownVariant(variant.to_owned(), expected))
    }
}
