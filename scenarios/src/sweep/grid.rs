//! The grid of scenarios that the axes of a sweep span.

use crate::input::document::Document;
use crate::input::error::ScenarioError;
use crate::question::scenario::Scenario;
use crate::sweep::axis::SweepAxis;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// The default limit on the scenarios of a grid.
pub const GRID_LIMIT: u64 = 1_000_000;

/// The cartesian product of axes, applied to a document. Scenarios are in the order of an odometer:
/// the last axis changes fastest. Each scenario is made when it is requested.
#[derive(Debug, Clone)]
pub struct Grid {
    document: Document,
    axes: Vec<SweepAxis>,
    count: u64,
}

/// One scenario of a grid.
#[derive(Debug, Clone)]
pub struct GridPoint {
    /// The keys that are set, with their values, in the order of the axes.
    pub settings: Vec<(String, Value)>,
    /// The scenario.
    pub scenario: Scenario,
}

impl Grid {
    /// Makes a grid with at most `limit` scenarios.
    ///
    /// # Errors
    /// A key is set twice, or there are more scenarios than `limit`.
    pub fn new(document: Document, axes: Vec<SweepAxis>, limit: u64) -> Result<Self, ScenarioError> {
        let mut keys = BTreeSet::new();
        if let Some(key) = axes.iter().flat_map(|axis| &axis.keys).find(|key| !keys.insert(*key)) {
            let reason = format!("{key} is set twice: give its values as a list, like 1,2,4");
            return Err(ScenarioError::Setting { text: key.clone(), reason });
        }
        let count = axes.iter().fold(1_u128, |count, axis| count.saturating_mul(axis.rows.len() as u128));
        match u64::try_from(count) {
            Ok(count) if count <= limit => Ok(Self { document, axes, count }),
            _ => {
                let axes: Vec<_> = axes
                    .iter()
                    .map(|axis| format!("{}: {}", axis.keys.join(" with "), axis.rows.len()))
                    .collect();
                Err(ScenarioError::GridTooLarge { count, axes: axes.join(", "), limit })
            }
        }
    }

    /// The keys of all axes, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().flat_map(|axis| &axis.keys).map(String::as_str)
    }

    /// For each key, whether all its values are numbers.
    pub fn numeric_keys(&self) -> impl Iterator<Item = bool> {
        let numeric = |axis: &SweepAxis, at: usize| {
            axis.rows.iter().filter_map(|row| row[at].as_ref()).all(Value::is_number)
        };
        self.axes.iter().flat_map(move |axis| (0..axis.keys.len()).map(move |at| numeric(axis, at)))
    }

    /// Everything that its scenarios are made of: the document and every value of the axes, each
    /// with the folder where its relative paths start.
    pub fn values(&self) -> impl Iterator<Item = (&Value, &Path)> {
        let rows = self.axes.iter().flat_map(|axis| axis.rows.iter().flatten().flatten());
        let set = rows.map(|value| (value, Path::new("")));
        std::iter::once((&self.document.root, &*self.document.folder)).chain(set)
    }

    /// The number of scenarios.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The keys and values of the scenario at `index`; `None` leaves the document's own value.
    ///
    /// # Panics
    /// `index` is not below [`Grid::count`].
    pub fn settings(&self, index: u64) -> impl Iterator<Item = (&str, Option<&Value>)> {
        assert!(index < self.count, "point {index} of a grid of {}", self.count);
        let mut rest = index;
        let mut rows: Vec<usize> = vec![0; self.axes.len()];
        for (row, axis) in rows.iter_mut().zip(&self.axes).rev() {
            let radix = axis.rows.len() as u64;
            // The remainder is below the length of a list, so it fits into usize.
            *row = (rest % radix) as usize;
            rest /= radix;
        }
        self.axes.iter().zip(rows).flat_map(|(axis, row)| {
            axis.keys.iter().map(String::as_str).zip(axis.rows[row].iter().map(Option::as_ref))
        })
    }

    /// Makes the scenario at `index`.
    ///
    /// # Errors
    /// A setting has no place in the document, or the scenario is wrong.
    ///
    /// # Panics
    /// `index` is not below [`Grid::count`].
    pub fn point(&self, index: u64) -> Result<GridPoint, ScenarioError> {
        self.point_with(index, None)
    }

    /// Makes the scenario at `index` with one additional setting.
    ///
    /// # Errors
    /// The errors of [`Grid::point`].
    ///
    /// # Panics
    /// `index` is not below [`Grid::count`].
    pub fn point_with(&self, index: u64, extra: Option<(&str, &Value)>) -> Result<GridPoint, ScenarioError> {
        let (mut document, mut settings) = (self.document.clone(), Vec::new());
        let sources = self.axes.iter().flat_map(|axis| axis.keys.iter().map(|_| axis.from_document));
        for ((key, value), from_document) in self.settings(index).zip(sources) {
            let Some(value) = value else { continue };
            match from_document {
                true => document.set_from_document(key, value)?,
                false => document.set_from_command_line(key, value)?,
            }
            settings.push((key.to_owned(), value.clone()));
        }
        if let Some((key, value)) = extra {
            document.set_from_command_line(key, value)?;
        }
        Ok(GridPoint { settings, scenario: document.scenario()? })
    }

    /// All scenarios in order; each is made when the iterator reaches it.
    pub fn points(&self) -> impl Iterator<Item = Result<GridPoint, ScenarioError>> {
        self.points_in(0..self.count)
    }

    /// The scenarios in a range of indices, which is a shard of a sweep.
    pub fn points_in(&self, range: Range<u64>) -> impl Iterator<Item = Result<GridPoint, ScenarioError>> {
        range.map(|index| self.point(index))
    }
}
