//! A validation: several configurations predicted and measured on one machine, and how far apart the two were.
//! Its file is described in `results.md`.

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

/// The word under `kind` in a validation's file.
pub const VALIDATION_KIND: &str = "validation";

/// Version of the file's form.
pub const VALIDATION_VERSION: u32 = 1;

/// The band that plots draw around perfect predictions: a prediction is meant to be within ±12 %.
pub const ERROR_BAND: f64 = 0.12;

/// Several configurations, predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validation {
    /// The machine's name.
    pub machine: String,
    /// What is known about the machine, and from where.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub facts: Vec<Fact>,
    /// The model's name.
    pub model: String,
    /// The commands that make these results again, one per line.
    pub commands: Vec<String>,
    /// What was asked, predicted and measured, in the order of the runs.
    pub configurations: Vec<Configuration>,
}

/// How far predictions of one metric were off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSummary {
    /// Configurations that have the metric.
    pub count: usize,
    /// Median of |error|.
    pub median: f64,
    /// 90th percentile of |error|, by nearest rank.
    pub p90: f64,
    /// The largest |error|.
    pub worst: f64,
    /// The configuration that has it.
    pub worst_name: String,
    /// How many are within ±[`ERROR_BAND`].
    pub within_band: usize,
    /// Geometric mean of predicted ÷ measured: above 1 where predictions are too long on the whole.
    pub ratio: Option<f64>,
    /// Spearman's rank correlation: 1 where the prediction orders the configurations as the measurement does.
    pub rank_correlation: Option<f64>,
}

/// How far predictions were off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationSummary {
    /// Time to first token; absent where nothing was measured.
    pub ttft: Option<ErrorSummary>,
    /// Time per output token; absent where nothing was measured.
    pub tpot: Option<ErrorSummary>,
}

/// A validation in a file. The summary is written for readers and computed anew when read.
#[derive(Serialize)]
struct WrittenValidation<'a> {
    kind: &'static str,
    version: u32,
    summary: ValidationSummary,
    #[serde(flatten)]
    validation: &'a Validation,
}

/// The part of a result file that says what the rest is.
#[derive(Deserialize)]
struct FileHeader {
    kind: String,
    version: u32,
}

/// A validation's file. (Flattening would lose the line in messages.)
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
    /// How far predictions were off.
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

    /// The configuration whose details a report shows first: the first planned one, else the first.
    pub fn shown_configuration(&self) -> Option<&Configuration> {
        let planned = self.configurations.iter().find(|it| it.label.placement == "planned");
        planned.or(self.configurations.first())
    }

    /// The placement kinds, in order of first appearance.
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
        text.expect("its maps have text keys and its fields cannot fail") + "\n"
    }

    /// Reads the text of a `results.json`; `path` is for messages.
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
    /// Of named pairs; those of which nothing was measured do not count.
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
