//! A document as a tree: values with the places where they stand.

use serde_json::Value;
use std::borrow::Cow;

/// Line and column, both from 1; 0 where unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub line: u64,
    pub column: u64,
}

impl Place {
    /// Of values that no text holds.
    pub const UNKNOWN: Self = Self { line: 0, column: 0 };
    /// Where a document begins.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node<'t> {
    pub place: Place,
    pub kind: NodeKind<'t>,
}

/// The three shapes of values, and an empty document.
#[derive(Debug, Clone)]
pub(super) enum NodeKind<'t> {
    /// Keys, which are scalars, and their values, in the order of the file.
    Map(Vec<(Node<'t>, Node<'t>)>),
    List(Vec<Node<'t>>),
    Scalar(Scalar<'t>),
    /// The document has no value at all.
    Empty,
}

/// A text, and whether it may stand for a number, a truth value or null.
#[derive(Debug, Clone)]
pub(super) struct Scalar<'t> {
    pub text: Cow<'t, str>,
    pub tag: ScalarTag,
}

/// What a scalar may be read as where the type that is read does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarTag {
    /// Written without quotes or tag: whatever its text looks like.
    Plain,
    /// Quoted, a block of text, or tagged `!!str`.
    Text,
    /// Tagged `!!null`.
    Null,
    /// Tagged `!!bool`.
    Bool,
    /// Tagged `!!int` or `!!float`.
    Number,
}

impl Scalar<'_> {
    /// Whether it stands for no value: tagged so, or a plain `null`, `~` or nothing at all.
    pub fn is_null(&self) -> bool {
        match self.tag {
            ScalarTag::Null => true,
            ScalarTag::Plain => {
                let text = self.text.trim_matches(BLANKS);
                text.is_empty() || text == "~" || text.eq_ignore_ascii_case("null")
            }
            _ => false,
        }
    }
}

/// Blanks and line ends around a number, a truth value or null are no part of it.
pub(super) const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

impl<'t> Node<'t> {
    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// How many values it holds, itself and its keys included.
    pub fn size(&self) -> usize {
        match &self.kind {
            NodeKind::Map(entries) => 1 + entries.iter().map(|(_, value)| 1 + value.size()).sum::<usize>(),
            NodeKind::List(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
            NodeKind::Scalar(_) | NodeKind::Empty => 1,
        }
    }

    /// The value at `path`, or at its longest part that exists.
    pub fn nearest(&self, path: &[&str]) -> &Self {
        let mut here = self;
        for step in path {
            let next = match &here.kind {
                NodeKind::Map(entries) => {
                    entries.iter().find(|(key, _)| key.text() == Some(step)).map(|(_, value)| value)
                }
                NodeKind::List(items) => step.parse().ok().and_then(|index: usize| items.get(index)),
                NodeKind::Scalar(_) | NodeKind::Empty => None,
            };
            match next {
                Some(node) => here = node,
                None => break,
            }
        }
        here
    }

    /// The same value as a JSON document holds it; places are unknown.
    pub fn from_json(value: &'t Value) -> Self {
        let scalar = |text: Cow<'t, str>, tag| NodeKind::Scalar(Scalar { text, tag });
        let kind = match value {
            Value::Null => scalar(Cow::Borrowed("null"), ScalarTag::Null),
            Value::Bool(truth) => {
                scalar(Cow::Borrowed(if *truth { "true" } else { "false" }), ScalarTag::Bool)
            }
            Value::Number(number) => scalar(Cow::Owned(number.to_string()), ScalarTag::Plain),
            Value::String(text) => scalar(Cow::Borrowed(text), ScalarTag::Text),
            Value::Array(items) => NodeKind::List(items.iter().map(Self::from_json).collect()),
            Value::Object(entries) => {
                let key = |text: &'t str| Self {
                    place: Place::UNKNOWN,
                    kind: scalar(Cow::Borrowed(text), ScalarTag::Text),
                };
                NodeKind::Map(
                    entries.iter().map(|(name, value)| (key(name), Self::from_json(value))).collect(),
                )
            }
        };
        Self { place: Place::UNKNOWN, kind }
    }
}
