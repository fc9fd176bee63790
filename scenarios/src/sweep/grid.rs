//! The scenarios that lists of settings span.

use crate::input::document::Document;
use crate::input::error::ScenarioError;
use crate::question::scenario::Scenario;
use crate::sweep::axis::Axis;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// Scenarios that a grid may have unless somebody says otherwise.
pub const GRID_LIMIT: u64 = 1_000_000;

/// A document, and settings with their lists of values: the cartesian product, in the order of an odometer
/// (the last key turns fastest). Nothing is expanded before it is asked for.
#[derive(Debug, Clone)]
pub struct Grid {
    document: Document,
    axes: Vec<Axis>,
    count: u64,
}

/// One scenario of a grid.
#[derive(Debug, Clone)]
pub struct Point {
    /// What was set, in the order of the keys.
    pub settings: Vec<(String, Value)>,
    /// The scenario.
    pub scenario: Scenario,
}

impl Grid {
    /// The grid of at most `limit` scenarios.
    ///
    /// # Errors
    /// A key is set twice, or there are more scenarios than `limit`.
    pub fn new(document: Document, axes: Vec<Axis>, limit: u64) -> Result<Self, ScenarioError> {
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

    /// The keys that are set, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().flat_map(|axis| &axis.keys).map(String::as_str)
    }

    /// Of each key, whether all its values are numbers.
    pub fn numeric_keys(&self) -> impl Iterator<Item = bool> {
        let numeric = |axis: &Axis, at: usize| {
            axis.rows.iter().filter_map(|row| row[at].as_ref()).all(Value::is_number)
        };
        self.axes.iter().flat_map(move |axis| (0..axis.keys.len()).map(move |at| numeric(axis, at)))
    }

    /// Everything that its scenarios are made of: the document and every value that is set, each with the folder that relative
    /// paths in it start at.
    pub fn values(&self) -> impl Iterator<Item = (&Value, &Path)> {
        let rows = self.axes.iter().flat_map(|axis| axis.rows.iter().flatten().flatten());
        let set = rows.map(|value| (value, Path::new("")));
        std::iter::once((&self.document.root, &*self.document.folder)).chain(set)
    }

    /// How many scenarios it has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What the scenario at `index` sets, with its keys; `None` where a key stays as it is.
    ///
    /// # Panics
    /// `index` is not below [`Grid::count`].
    pub fn settings(&self, index: u64) -> impl Iterator<Item = (&str, Option<&Value>)> {
        assert!(index < self.count, "point {index} of a grid of {}", self.count);
        let mut rest = index;
        let mut rows: Vec<usize> = vec![0; self.axes.len()];
        for (row, axis) in rows.iter_mut().zip(&self.axes).rev() {
            let radix = axis.rows.len() as u64;
            // Below the length of a list: it fits.
            *row = (rest % radix) as usize;
            rest /= radix;
        }
        self.axes.iter().zip(rows).flat_map(|(axis, row)| {
            axis.keys.iter().map(String::as_str).zip(axis.rows[row].iter().map(Option::as_ref))
        })
    }

    /// The scenario at `index`.
    ///
    /// # Errors
    /// A setting has no place in the document, or the scenario is wrong.
    ///
    /// # Panics
    /// `index` is not below [`Grid::count`].
    pub fn point(&self, index: u64) -> Result<Point, ScenarioError> {
        self.point_with(index, None)
    }

    /// The same with one key more.
    ///
    /// # Errors
    /// Likewise.
    ///
    /// # Panics
    /// `index` is not below [`Grid::count`].
    pub fn point_with(&self, index: u64, more: Option<(&str, &Value)>) -> Result<Point, ScenarioError> {
        let (mut document, mut settings) = (self.document.clone(), Vec::new());
        let own = self.axes.iter().flat_map(|axis| axis.keys.iter().map(|_| axis.of_document));
        for ((key, value), own) in self.settings(index).zip(own) {
            let Some(value) = value else { continue };
            match own {
                true => document.put(key, value)?,
                false => document.set(key, value)?,
            }
            settings.push((key.to_owned(), value.clone()));
        }
        if let Some((key, value)) = more {
            document.set(key, value)?;
        }
        Ok(Point { settings, scenario: document.scenario()? })
    }

    /// All scenarios in order, each made when it is reached.
    pub fn points(&self) -> impl Iterator<Item = Result<Point, ScenarioError>> {
        self.part(0..self.count)
    }

    /// The scenarios of a range of indices, a shard of a sweep.
    pub fn part(&self, range: Range<u64>) -> impl Iterator<Item = Result<Point, ScenarioError>> {
        range.map(|index| self.point(index))
    }
}
