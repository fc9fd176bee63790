//! The trace as a file: JSON with one step or event per line, so that two runs can be compared by
//! diff.

use crate::trace::schema::{StepSpan, Trace, TraceEvent};
use hwprofiles::{WriteError, write_atomically};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The errors of reading a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not JSON, has a key or value that a trace does not have, or has contradictory
    /// times.
    #[error("{}:{line}:{column}: not a trace: {reason}; traces are what `fulcrum sim` and `fulcrum run` write", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The reason.
        reason: String,
    },
}

impl Trace {
    /// The text of the file. Equal traces have equal texts.
    pub fn to_json(&self) -> String {
        let header = [("machine", &self.machine), ("model", &self.model), ("plan", &self.plan)];
        let header: String =
            header.iter().map(|(key, value)| format!("  \"{key}\": {},\n", json(value))).collect();
        let recorder = json(&self.recorder);
        let (steps, events) = (lines(&self.steps), lines(&self.events));
        format!(
            "{{\n  \"recorder\": {recorder},\n{header}  \"steps\": [{steps}],\n  \"events\": [{events}]\n}}\n"
        )
    }

    /// Reads the text of a file. Errors call the file `path`.
    ///
    /// # Errors
    /// [`TraceFileError::Malformed`] with the line and column of the first fault.
    pub fn from_json(path: &Path, text: &str) -> Result<Self, TraceFileError> {
        let malformed =
            |line, column, reason| TraceFileError::Malformed { path: path.to_owned(), line, column, reason };
        let trace: Trace = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            // serde_json's message repeats the position.
            let place = format!(" at line {line} column {column}");
            malformed(line, column, error.to_string().replace(&place, ""))
        })?;
        let Some((list, index, reason)) = trace.fault() else { return Ok(trace) };
        let (line, column) = position(text, list, index);
        Err(malformed(line, column, reason))
    }

    /// The first step or event that contradicts the ones before it: its list, its index there, and
    /// the reason.
    fn fault(&self) -> Option<(&'static str, usize, String)> {
        let steps = first_fault(&self.steps).map(|(index, reason)| ("steps", index, reason));
        let events = || first_fault(&self.events).map(|(index, reason)| ("events", index, reason));
        let stray = || {
            let stray = self.events.iter().position(|event| event.step as usize >= self.steps.len())?;
            let reason = format!("there is no step {}, only {}", self.events[stray].step, self.steps.len());
            Some(("events", stray, reason))
        };
        steps.or_else(events).or_else(stray)
    }

    /// Writes the file atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        write_atomically(path, self.to_json())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or is not a trace.
    pub fn read(path: &Path) -> Result<Self, TraceFileError> {
        let text = hwprofiles::read_text(path);
        let text = text.map_err(|source| TraceFileError::Read { path: path.to_owned(), source })?;
        Self::from_json(path, &text)
    }
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("a trace's keys are text and its numbers are integers")
}

fn lines<T: Serialize>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(|item| format!("\n    {}", json(item))).collect();
    if items.is_empty() { String::new() } else { items.join(",") + "\n  " }
}

/// An item of an ordered list.
trait Follows: Sized {
    /// Why it must not follow `previous`, if so.
    fn fault(&self, previous: Option<&Self>) -> Option<String>;
}

impl Follows for StepSpan {
    fn fault(&self, previous: Option<&Self>) -> Option<String> {
        if self.end_ns < self.start_ns {
            return Some(format!(
                "a step ends at {} ns, before its start at {} ns",
                self.end_ns, self.start_ns
            ));
        }
        let previous = previous.filter(|previous| previous.end_ns > self.start_ns)?;
        Some(format!(
            "a step starts at {} ns, before the last one's end at {} ns",
            self.start_ns, previous.end_ns
        ))
    }
}

impl Follows for TraceEvent {
    fn fault(&self, previous: Option<&Self>) -> Option<String> {
        if self.end_ns < self.start_ns {
            return Some(format!(
                "'{}' ends at {} ns, before its start at {} ns",
                self.name, self.end_ns, self.start_ns
            ));
        }
        let previous =
            previous.filter(|previous| (previous.step, previous.task) >= (self.step, self.task))?;
        Some(format!(
            "'{}' is task {} of step {} but stands behind task {} of step {}; events are ordered by step, then task",
            self.name, self.task, self.step, previous.task, previous.step
        ))
    }
}

fn first_fault<T: Follows>(items: &[T]) -> Option<(usize, String)> {
    let previous = |index: usize| index.checked_sub(1).map(|before| &items[before]);
    (0..items.len()).find_map(|index| Some((index, items[index].fault(previous(index))?)))
}

/// Line and column of an item of a list in the file. Parses the text again, because only errors
/// need the position.
fn position(text: &str, list: &str, index: usize) -> (usize, usize) {
    let lists: Result<BTreeMap<&str, &RawValue>, _> = serde_json::from_str(text);
    let items = lists.and_then(|lists| serde_json::from_str::<Vec<&RawValue>>(lists[list].get()));
    let start = items.map_or(0, |items| items[index].get().as_ptr().addr() - text.as_ptr().addr());
    let before = &text[..start];
    (before.matches('\n').count() + 1, start - before.rfind('\n').map_or(0, |newline| newline + 1) + 1)
}
