//! Files with results. The content of a file decides its kind, not its name.

use crate::results::error::ReportError;
use hwprofiles::{hexadecimal, yaml};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The kind of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    /// `fulcrum validate`, `fulcrum quickstart`: predicted and measured.
    Validation,
    /// `fulcrum plan`: one plan.
    Plan,
    /// `fulcrum plan --grid`: a plan for each batch and prompt length.
    Grid,
    /// `fulcrum plan --front`, as CSV or JSON.
    Front,
    /// `fulcrum sim --trace`, `fulcrum run --trace`: a run, task by task.
    Trace,
    /// `fulcrum sim --json` of a static batch: its times and rates.
    Rates,
    /// `fulcrum sim --json` of arriving requests: the statistics of the day.
    Served,
    /// `fulcrum sim --requests`: a line for each request.
    Requests,
    /// `fulcrum sim --series`: a line for each interval of time.
    Series,
    /// `fulcrum sweep`: a line for each point.
    Sweep,
    /// `fulcrum capacity --json`.
    Capacity,
    /// A table in Parquet. Its columns decide the kind of result.
    Parquet,
}

impl ResultKind {
    /// The kind, in words.
    pub fn description(self) -> &'static str {
        match self {
            Self::Validation => "validation: predicted and measured",
            Self::Plan => "plan",
            Self::Grid => "grid of plans",
            Self::Front => "Pareto front",
            Self::Trace => "trace of a run",
            Self::Rates => "static batch, simulated",
            Self::Served => "served requests, summed up",
            Self::Requests => "served requests, one by one",
            Self::Series => "served requests, over time",
            Self::Sweep => "sweep",
            Self::Capacity => "capacity and cost",
            Self::Parquet => "table in Parquet",
        }
    }

    /// The kind of a table with these columns.
    pub(crate) fn from_columns<S: AsRef<str>>(names: &[S]) -> Option<Self> {
        let has = |wanted: &[&str]| wanted.iter().all(|it| names.iter().any(|name| name.as_ref() == *it));
        if has(&["point", "status", "message", "version", "inputs"]) {
            Some(Self::Sweep)
        } else if has(&["request", "arrival_s", "first_token_s"]) {
            Some(Self::Requests)
        } else if has(&["start_s", "steps", "mean_running"]) {
            Some(Self::Series)
        } else if has(&["prefill_chunk", "beaten", "placement"]) {
            Some(Self::Front)
        } else {
            None
        }
    }

    /// The kind of a JSON object with these keys.
    fn from_keys(keys: &BTreeMap<String, &RawValue>) -> Option<Self> {
        let has = |wanted: &[&str]| wanted.iter().all(|key| keys.contains_key(*key));
        let kind = keys.get("kind").and_then(|it| serde_json::from_str::<String>(it.get()).ok());
        if kind.as_deref() == Some("validation") {
            Some(Self::Validation)
        } else if has(&["capacity", "machines"]) {
            Some(Self::Capacity)
        } else if has(&["recorder", "events"]) {
            Some(Self::Trace)
        } else if has(&["criteria", "points"]) {
            Some(Self::Front)
        } else if has(&["plan", "layers", "predicted"]) {
            Some(Self::Plan)
        } else if has(&["table", "placements", "cells"]) {
            Some(Self::Grid)
        } else if has(&["requests", "ttft_s", "duration_s"]) {
            Some(Self::Served)
        } else if has(&["ttft_s", "output_tokens_per_s"]) {
            Some(Self::Rates)
        } else {
            None
        }
    }
}

/// A file with a result.
#[derive(Debug, Clone)]
pub struct ResultFile {
    /// Its path.
    pub path: PathBuf,
    /// Its kind.
    pub kind: ResultKind,
    /// Its text; empty for Parquet.
    pub text: String,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
}

impl ResultFile {
    /// Reads a file and detects the kind of its content.
    ///
    /// # Errors
    /// Names a file that cannot be read or is not a result, what it contains, and what would be
    /// right.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let bytes = hwprofiles::read_input(path)
            .map_err(|source| ReportError::Read { path: path.to_owned(), source })?;
        Self::from_bytes(path, bytes)
    }

    /// Detects the kind of content that is already in memory.
    ///
    /// # Errors
    /// As [`ResultFile::read`].
    pub fn from_bytes(path: &Path, content: Vec<u8>) -> Result<Self, ReportError> {
        let refused =
            |content: &str| ReportError::NoResult { path: path.to_owned(), content: content.to_owned() };
        let sha256 = hexadecimal(&Sha256::digest(&content));
        let (path, bytes) = (path.to_owned(), content.len() as u64);
        if content.starts_with(b"PAR1") {
            return Ok(Self { path, kind: ResultKind::Parquet, text: String::new(), sha256, bytes });
        }
        let text = String::from_utf8(content).map_err(|_| refused("neither text nor Parquet"))?;
        let kind = detect_kind(&path, &text)?;
        Ok(Self { path, kind, text, sha256, bytes })
    }
}

fn detect_kind(path: &Path, text: &str) -> Result<ResultKind, ReportError> {
    let refused = |content: String| ReportError::NoResult { path: path.to_owned(), content };
    let start = text.trim_start();
    if start.is_empty() {
        return Err(refused("empty".to_owned()));
    }
    if start.starts_with('{') {
        let keys: BTreeMap<String, &RawValue> = serde_json::from_str(text)
            .map_err(|source| ReportError::Parse { path: path.to_owned(), source })?;
        let list = || keys.keys().take(6).map(|key| format!("'{key}'")).collect::<Vec<_>>().join(", ");
        return ResultKind::from_keys(&keys).ok_or_else(|| match keys.contains_key("traceEvents") {
            true => refused("a trace for ui.perfetto.dev (`--trace` writes ours)".to_owned()),
            false => refused(format!("JSON with the keys {}", list())),
        });
    }
    if start.starts_with('[') {
        return Err(refused("a JSON list".to_owned()));
    }
    let columns: Vec<String> = csv::Reader::from_reader(text.as_bytes())
        .headers()
        .map(|header| header.iter().map(str::to_owned).collect())
        .unwrap_or_default();
    if let Some(kind) = ResultKind::from_columns(&columns) {
        return Ok(kind);
    }
    let Ok(keys) = yaml::top_keys(text, &path.display().to_string()) else {
        let columns = columns.iter().take(6).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        return Err(refused(format!("a text that begins with {columns}")));
    };
    let has = |wanted: &str| keys.iter().any(|key| key == wanted);
    if has("plan") {
        Ok(ResultKind::Plan)
    } else if has("table") && has("cells") {
        Ok(ResultKind::Grid)
    } else if has("model") && has("workload") {
        Err(refused("a scenario: plan, simulate or sweep it".to_owned()))
    } else {
        Err(refused(format!("a document with the keys {}", keys.join(", "))))
    }
}
