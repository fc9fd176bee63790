//! A validation: configurations that were predicted and measured on one machine, and their errors.
//! `results.md` describes its file.

use crate::numbers::pair::Pair;
use crate::numbers::serde_forms::line_by_line;
use crate::numbers::statistics::{geometric_mean_ratio, magnitudes, median, percentile, rank_correlation};
use crate::results::configuration::Configuration;
use crate::results::error::ReportError;
use crate::results::machine_facts::Fact;
use hwprofiles::write_atomically;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The value of `kind` in a validation's file.
pub const VALIDATION_KIND: &str = "validation";

/// The version of the file's form.
pub const VALIDATION_VERSION: u32 = 1;

/// The band around perfect predictions. The goal is an error within ±12 %.
pub const ERROR_BAND: f64 = 0.12;

/// Configurations that were predicted and measured on one machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validation {
    /// The machine's name.
    pub machine: String,
    /// The facts about the machine, with their sources.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub facts: Vec<Fact>,
    /// The model's name.
    pub model: String,
    /// The commands that reproduce these results, one per line.
    pub commands: Vec<String>,
    /// The configurations, in the order of the runs.
    pub configurations: Vec<Configuration>,
}

/// The errors of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSummary {
    /// The number of configurations with the metric.
    pub count: usize,
    /// Median of |error|.
    pub median: f64,
    /// 90th percentile of |error|, by nearest rank.
    pub p90: f64,
    /// The largest |error|.
    pub worst: f64,
    /// The name of the configuration with the largest |error|.
    pub worst_name: String,
    /// The number of configurations within ±[`ERROR_BAND`].
    pub within_band: usize,
    /// Geometric mean of predicted ÷ measured: above 1 where predictions are too long overall.
    pub ratio: Option<f64>,
    /// Spearman's rank correlation: 1 where predictions and measurements have the same order.
    pub rank_correlation: Option<f64>,
}

/// The errors of both metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationSummary {
    /// Time to first token; absent where it was not measured.
    pub ttft: Option<ErrorSummary>,
    /// Time per output token; absent where it was not measured.
    pub tpot: Option<ErrorSummary>,
}

/// The form in files. The summary is written for readers and ignored when read.
#[derive(Serialize)]
struct WrittenValidation<'a> {
    kind: &'static str,
    version: u32,
    summary: ValidationSummary,
    #[serde(flatten)]
    validation: &'a Validation,
}

/// The kind and the version of a result file.
#[derive(Deserialize)]
struct FileHeader {
    kind: String,
    version: u32,
}

/// The form that is read. It lists the fields, because flattening would lose the line in messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValidationRecord {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    #[serde(rename = "version")]
    _version: IgnoredAny,
    #[serde(rename = "summary")]
    _summary: Option<IgnoredAny>,
    machine: String,
    facts: Vec<Fact>,
    model: String,
    commands: Vec<String>,
    configurations: Vec<Configuration>,
}

impl Validation {
    /// The errors of both metrics.
    pub fn summary(&self) -> ValidationSummary {
        let pairs = |metric: fn(&Configuration) -> Option<Pair>| -> Vec<(&str, Pair)> {
            let named = self.configurations.iter().map(|it| (it.label.name.as_str(), metric(it)));
            named.filter_map(|(name, pair)| Some((name, pair?))).collect()
        };
        ValidationSummary {
            ttft: ErrorSummary::from_pairs(&pairs(|it| Some(it.ttft()))),
            tpot: ErrorSummary::from_pairs(&pairs(Configuration::tpot)),
        }
    }

    /// The configuration that a report shows in detail: the first planned one, else the first.
    pub fn shown_configuration(&self) -> Option<&Configuration> {
        let planned = self.configurations.iter().find(|it| it.label.placement == "planned");
        planned.or(self.configurations.first())
    }

    /// The kinds of placements, in order of first appearance.
    pub(crate) fn placement_kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for it in &self.configurations {
            if !kinds.contains(&it.label.placement.as_str()) {
                kinds.push(&it.label.placement);
            }
        }
        kinds
    }

    /// The text of `results.json`.
    pub fn to_json(&self) -> String {
        let (kind, version) = (VALIDATION_KIND, VALIDATION_VERSION);
        let written = WrittenValidation { kind, version, summary: self.summary(), validation: self };
        let text = serde_json::to_string_pretty(&written);
        text.expect("maps have text keys, and no field can fail") + "\n"
    }

    /// Parses the text of a `results.json`. `path` is named in messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ReportError> {
        let refused = |source| ReportError::Parse { path: path.to_owned(), source };
        let header: FileHeader = serde_json::from_str(text).map_err(refused)?;
        let unknown = |key, value, wanted| ReportError::Unknown { path: path.to_owned(), key, value, wanted };
        if header.kind != VALIDATION_KIND {
            return Err(unknown("kind", format!("'{}'", header.kind), format!("'{VALIDATION_KIND}'")));
        }
        if header.version != VALIDATION_VERSION {
            return Err(unknown("version", header.version.to_string(), VALIDATION_VERSION.to_string()));
        }
        let ValidationRecord { machine, facts, model, commands, configurations, .. } =
            serde_json::from_str(text).map_err(refused)?;
        Ok(Self { machine, facts, model, commands, configurations })
    }

    /// Reads a `results.json`.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ReportError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ReportError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Writes a `results.json`, whole or not at all.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        Ok(write_atomically(path, self.to_json())?)
    }
}

impl ErrorSummary {
    /// The errors of named pairs. Pairs without a measured time do not count.
    fn from_pairs(pairs: &[(&str, Pair)]) -> Option<Self> {
        let known: Vec<_> =
            pairs.iter().filter_map(|(name, pair)| Some((*name, pair, pair.error()?))).collect();
        let errors = magnitudes(&known.iter().map(|(_, _, error)| *error).collect::<Vec<_>>());
        let seconds: Vec<_> = known.iter().map(|(_, pair, _)| pair.seconds()).collect();
        let worst = percentile(&errors, 100.0)?;
        let worst_name = known.iter().zip(&errors).find(|(_, error)| **error == worst)?.0.0.to_owned();
        Some(Self {
            count: errors.len(),
            median: median(&errors)?,
            p90: percentile(&errors, 90.0)?,
            worst,
            worst_name,
            within_band: errors.iter().filter(|error| **error <= ERROR_BAND).count(),
            ratio: geometric_mean_ratio(&seconds),
            rank_correlation: rank_correlation(&seconds),
        })
    }
}
