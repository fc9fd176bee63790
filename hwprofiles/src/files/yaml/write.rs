//! Documents written: block style, but one line for whatever fits on one.

use serde::Serialize;
use serde_json::Value;

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

/// Columns of a written line.
const WIDTH: usize = 108;

/// The longest key that YAML takes before a colon without a mark of its own (1,024 characters).
const LONGEST_KEY: usize = 1000;

/// Writes the members of a map or list as lines at `indent`; a scalar as one line.
fn emit(value: &Value, indent: usize, text: &mut String) {
    let lead = " ".repeat(indent);
    let mut member = |head: String, value: &Value, deeper: usize| {
        if let Some(table) = table(value) {
            *text += &format!("{lead}{head} |\n");
            let lead = " ".repeat(deeper);
            table.lines().for_each(|line| text.extend([&lead, line, "\n"]));
            return;
        }
        let block = matches!(value, Value::Array(_) | Value::Object(_));
        // A scalar has one line, however long it is.
        let room = block.then(|| WIDTH.saturating_sub(indent + head.len() + 1));
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
    let key = |name: &String| match scalar(name) {
        long if long.len() > LONGEST_KEY => format!("? {long}\n{lead}:"),
        key => format!("{key}:"),
    };
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(name, value)| member(key(name), value, indent + 2));
        }
        Value::Array(list) if !list.is_empty() => {
            list.iter().for_each(|value| member("-".to_owned(), value, indent + 2));
        }
        other => *text += &format!("{lead}{}\n", inline(other, None).unwrap_or_default()),
    }
}

/// The text of a table ([`crate::files::table`]), which is written as a block: plain lines, each
/// ended.
fn table(value: &Value) -> Option<&str> {
    let text = value.as_str()?;
    let plain = |line: &str| {
        line.starts_with(|c: char| c.is_ascii_graphic())
            && line.bytes().all(|byte| (b' '..=b'~').contains(&byte))
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

/// The value on one line of at most `room` bytes; what is longer is given up as soon as that is
/// seen.
fn inline(value: &Value, room: Option<usize>) -> Option<String> {
    let fits = |text: &String| room.is_none_or(|room| text.len() <= room);
    let (mut line, close) = match value {
        Value::Object(_) => (String::from("{"), '}'),
        Value::Array(_) => (String::from("["), ']'),
        Value::String(text) => return Some(scalar(text)).filter(fits),
        other => return Some(other.to_string()).filter(fits),
    };
    let mut member = |key: Option<&String>, value: &Value| {
        line += if line.len() > 1 { ", " } else { "" };
        if let Some(key) = key {
            line += &format!("{}: ", scalar(key));
        }
        let left = match room {
            Some(room) => Some(room.checked_sub(line.len() + 1)?),
            None => None,
        };
        line += &inline(value, left)?;
        Some(())
    };
    match value {
        Value::Object(map) => map.iter().try_for_each(|(key, value)| member(Some(key), value))?,
        Value::Array(list) => list.iter().try_for_each(|value| member(None, value))?,
        _ => {}
    }
    line.push(close);
    Some(line).filter(fits)
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
