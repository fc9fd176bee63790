//! YAML in and out: the only module that knows the YAML crate.
//!
//! Reading is strict (unknown and duplicate keys, non-finite numbers and loose booleans are refused)
//! and an error names file, line, column and key. A rule that a type cannot express is checked after
//! reading and reported with [`refuse`], which finds the line of a key path by reading the text again:
//! documents stay plain types, and positions cost nothing until something is wrong.
//!
//! Writing puts on one line whatever fits on one, so that a table of points reads like a table.

use serde::de::{self, DeserializeOwned, MapAccess, SeqAccess};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_path_to_error::Segment;
use std::fmt;

/// Nodes that a document may have: about 100,000 measured points. Beyond it the reader refuses.
const MAX_NODES: usize = 1_000_000;

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
    let mut path = Vec::new();
    let result = serde_saphyr::with_deserializer_from_str_with_options(text, options(), |yaml| {
        serde_path_to_error::deserialize(yaml).map_err(|error| {
            path = error.path().iter().filter_map(step).collect();
            error.into_inner()
        })
    });
    result.map_err(|error| {
        let error = error.without_snippet();
        let place = error.location().map_or((0, 0), |l| (l.line(), l.column()));
        // A type's own error is placed where the parser stood, which may be a line too far.
        let found =
            matches!(error, serde_saphyr::Error::Message { .. }).then(|| locate(text, &path)).flatten();
        let (line, column) = found.unwrap_or(place);
        let message = explain(error, &token(text, line, column));
        FileError { file: file.to_owned(), line, column, key: key(&path), message: one_line(&message) }
    })
}

/// The error for the key at `path` of a document that [`read`] accepted: a rule about its meaning is broken.
/// A step of the path is a key, or the index of a list's item.
pub fn refuse(text: &str, file: &str, path: &[&str], message: String) -> FileError {
    let path: Vec<_> = path.iter().map(|&step| step.to_owned()).collect();
    let (line, column) = locate(text, &path).unwrap_or((0, 0));
    FileError { file: file.to_owned(), line, column, key: key(&path), message: one_line(&message) }
}

/// The keys of the document's top level, which tell the kinds of files apart.
pub fn top_keys(text: &str, file: &str) -> Result<Vec<String>, FileError> {
    let entries: Entries<de::IgnoredAny> = read(text, file)?;
    Ok(entries.0.into_iter().map(|(key, _)| key).collect())
}

/// Writes a document: block style, but one line for whatever fits on one.
///
/// # Panics
/// When the value holds a map whose keys are not texts: our mistake, not the user's.
pub fn write<T: Serialize>(value: &T) -> String {
    let value = serde_json::to_value(value).expect("documents have text keys");
    let mut text = String::new();
    emit(&value, 0, &mut text);
    text
}

/// A map that keeps the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Entries<T>(pub Vec<(String, T)>);

impl<T> Entries<T> {
    /// Whether there are none: for `skip_serializing_if`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Serialize> Serialize for Entries<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = Entries<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Visitor(std::marker::PhantomData))
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: MAX_NODES, max_events: 4 * MAX_NODES },
        strict_booleans: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::Reject,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// The parser's message in the words of the person who wrote the file; `token` is what stands there.
fn explain(error: &serde_saphyr::Error, token: &str) -> String {
    use serde_saphyr::{Error, MessageFormatter};
    match error {
        Error::InvalidScalar { ty, .. } => match *ty {
            "u64" | "u32" | "usize" => format!("'{token}' is not a whole number of 0 or more"),
            "f64" | "f32" | "floating point" => format!("'{token}' is not a number"),
            other => format!("'{token}' is not a valid {other}"),
        },
        Error::Eof { .. } => "the file is empty".to_owned(),
        Error::Unexpected { expected: "mapping start", .. } => {
            format!("'{token}' stands where keys are expected: write `key: value` lines or {{key: value}}")
        }
        Error::Unexpected { expected: "sequence start", .. } => {
            format!("'{token}' stands where a list is expected: write `- item` lines or [item, item]")
        }
        Error::DuplicateMappingKey { key, .. } => {
            format!("the key '{}' is given twice: keep one", key.as_deref().unwrap_or(token))
        }
        Error::SerdeMissingField { field, .. } => format!("the key `{field}` is missing"),
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("`{field}` is not a key here: use one of {}", expected.join(", "))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("'{variant}' is not known here: use one of {}", expected.join(", "))
        }
        other => serde_saphyr::UserMessageFormatter.format_message(other).into_owned(),
    }
}

fn step(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Unknown => None,
    }
}

fn key(path: &[String]) -> String {
    one_line(&path.join("."))
}

/// A value or key may span lines; a message does not.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What the file says at a place, for a message: up to the end of the value, shortened.
fn token(text: &str, line: u64, column: u64) -> String {
    let skip = |n: u64| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
    let rest: String = text.lines().nth(skip(line)).unwrap_or("").chars().skip(skip(column)).collect();
    let end = rest.find([',', '}', ']', '#']).unwrap_or(rest.len());
    rest[..end].trim().chars().take(40).collect()
}

/// Line and column of the value at `path`, or of the deepest key of it that exists.
fn locate(text: &str, path: &[String]) -> Option<(u64, u64)> {
    let tree: serde_saphyr::Spanned<Node> = serde_saphyr::from_str_with_options(text, options()).ok()?;
    let mut here = &tree;
    for step in path {
        let next = match &here.value {
            Node::Map(entries) => entries.iter().find(|(key, _)| key == step).map(|(_, node)| node),
            Node::List(items) => step.parse().ok().and_then(|i: usize| items.get(i)),
            Node::Scalar => None,
        };
        match next {
            Some(node) => here = node,
            None => break,
        }
    }
    Some((here.referenced.line(), here.referenced.column()))
}

/// The shape of any document, with positions.
enum Node {
    Map(Vec<(String, serde_saphyr::Spanned<Node>)>),
    List(Vec<serde_saphyr::Spanned<Node>>),
    Scalar,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        macro_rules! scalar {
            ($($visit:ident($type:ty))*) => {$(
                fn $visit<E: de::Error>(self, _: $type) -> Result<Node, E> {
                    Ok(Node::Scalar)
                }
            )*};
        }
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Node::Map(entries))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Scalar)
            }
            fn visit_none<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Scalar)
            }
            scalar!(visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_i128(i128) visit_u128(u128)
                visit_f64(f64) visit_str(&str));
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Columns of a written line.
const WIDTH: usize = 108;

/// Writes the members of a map or list as lines at `indent`; a scalar as one line.
fn emit(value: &Value, indent: usize, text: &mut String) {
    let lead = " ".repeat(indent);
    let mut member = |head: String, value: &Value, deeper: usize| {
        if let Some(table) = table(value) {
            *text += &format!("{lead}{head} |\n");
            table.lines().for_each(|line| *text += &format!("{}{line}\n", " ".repeat(deeper)));
            return;
        }
        let block = matches!(value, Value::Array(_) | Value::Object(_));
        let room = if block { WIDTH.saturating_sub(indent + head.len() + 1) } else { usize::MAX };
        let line = if block && holds_table(value) { None } else { inline(value, room) };
        if let Some(line) = line {
            *text += &format!("{lead}{head} {line}\n");
        } else if head == "-" {
            // A list's item starts on the line of its dash.
            let mut item = String::new();
            emit(value, deeper, &mut item);
            *text += &format!("{lead}- {}", item.trim_start());
        } else {
            *text += &format!("{lead}{head}\n");
            emit(value, deeper, text);
        }
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| member(format!("{}:", scalar(k)), v, indent + 2)),
        Value::Array(list) => list.iter().for_each(|v| member("-".to_owned(), v, indent + 2)),
        other => *text += &format!("{lead}{}\n", inline(other, usize::MAX).unwrap_or_default()),
    }
}

/// The text of a table ([`crate::table`]), which is written as a block: plain lines, each ended.
fn table(value: &Value) -> Option<&str> {
    let text = value.as_str()?;
    let plain = |line: &str| {
        line.starts_with(|c: char| c.is_ascii_graphic()) && line.chars().all(|c| (' '..='~').contains(&c))
    };
    // Not `lines`, which would take a carriage return for a part of the line's end.
    let mut lines = text.strip_suffix('\n')?.split('\n');
    (text.matches('\n').count() > 1 && lines.all(plain)).then_some(text)
}

fn holds_table(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().any(holds_table),
        Value::Array(list) => list.iter().any(holds_table),
        other => table(other).is_some(),
    }
}

/// The value on one line of at most `room` bytes; what is longer is given up as soon as that is seen.
fn inline(value: &Value, room: usize) -> Option<String> {
    let (mut line, close) = match value {
        Value::Object(_) => (String::from("{"), '}'),
        Value::Array(_) => (String::from("["), ']'),
        Value::String(text) => return Some(scalar(text)).filter(|text| text.len() <= room),
        other => return Some(other.to_string()).filter(|text| text.len() <= room),
    };
    let mut member = |key: Option<&String>, value: &Value| {
        line += if line.len() > 1 { ", " } else { "" };
        if let Some(key) = key {
            line += &format!("{}: ", scalar(key));
        }
        line += &inline(value, room.checked_sub(line.len() + 1)?)?;
        Some(())
    };
    match value {
        Value::Object(map) => map.iter().try_for_each(|(key, value)| member(Some(key), value))?,
        Value::Array(list) => list.iter().try_for_each(|value| member(None, value))?,
        _ => {}
    }
    line.push(close);
    Some(line).filter(|line| line.len() <= room)
}

/// A text as a scalar: bare where no YAML reader could take it for anything else, quoted elsewhere.
fn scalar(text: &str) -> String {
    if is_bare(text) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            c if c.is_alphanumeric() => quoted.push(c),
            c => quoted += &format!("\\U{:08X}", u32::from(c)),
        }
    }
    quoted + "\""
}

fn is_bare(text: &str) -> bool {
    const WORDS: [&str; 11] =
        ["", "null", "true", "false", "yes", "no", "on", "off", "nan", "inf", "infinity"];
    let quantity = text.split_once(' ').is_some_and(|(number, unit)| {
        number.chars().all(|c| c.is_ascii_digit() || c == '.')
            && number.starts_with(|c: char| c.is_ascii_digit())
            && unit.starts_with(|c: char| c.is_ascii_alphabetic())
            && unit.chars().all(|c| c.is_ascii_alphabetic() || c == '/')
    });
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " _-./>".contains(c))
        && !text.ends_with(' ')
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    quantity || word
}
