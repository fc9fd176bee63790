//! The scenarios that lists of settings span.

use crate::document::Document;
use crate::error::ScenarioError;
use crate::scenario::Scenario;
use crate::setting::Setting;
use serde_json::Value;
use std::ops::Range;

/// Scenarios that a grid may have unless somebody says otherwise.
pub const GRID_LIMIT: u64 = 1_000_000;

/// A document, and settings with their lists of values: the cartesian product, in the order of an odometer
/// (the last key turns fastest). Nothing is expanded before it is asked for.
#[derive(Debug, Clone)]
pub struct Grid {
    document: Document,
    axes: Vec<Setting>,
    count: u64,
}

/// One scenario of a grid.
#[derive(Debug, Clone)]
pub struct Point {
    /// What was set, in the order of the command line.
    pub settings: Vec<(String, Value)>,
    /// The scenario.
    pub scenario: Scenario,
}

impl Grid {
    /// The grid of at most `limit` scenarios.
    ///
    /// # Errors
    /// A key is set twice, or there are more scenarios than `limit`.
    pub fn new(document: Document, settings: Vec<Setting>, limit: u64) -> Result<Self, ScenarioError> {
        for (index, setting) in settings.iter().enumerate() {
            if settings[..index].iter().any(|earlier| earlier.key == setting.key) {
                let reason = format!("{} is set twice: give its values as a list, like 1,2,4", setting.key);
                return Err(ScenarioError::Setting { text: setting.to_string(), reason });
            }
        }
        let count =
            settings.iter().fold(1_u128, |count, setting| count.saturating_mul(setting.values.len() as u128));
        match u64::try_from(count) {
            Ok(count) if count <= limit => Ok(Self { document, axes: settings, count }),
            _ => {
                let axes: Vec<_> =
                    settings.iter().map(|s| format!("{}: {}", s.key, s.values.len())).collect();
                Err(ScenarioError::GridTooLarge { count, axes: axes.join(", "), limit })
            }
        }
    }

    /// How many scenarios it has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The scenario at `index`.
    ///
    /// # Errors
    /// A setting has no place in the document, or the scenario is wrong.
    ///
    /// # Panics
    /// `index` is not below [`Grid::count`].
    pub fn point(&self, index: u64) -> Result<Point, ScenarioError> {
        assert!(index < self.count, "point {index} of a grid of {}", self.count);
        let mut rest = index;
        let mut digits: Vec<usize> = vec![0; self.axes.len()];
        for (digit, axis) in digits.iter_mut().zip(&self.axes).rev() {
            let radix = axis.values.len() as u64;
            // Below the length of a list: it fits.
            *digit = (rest % radix) as usize;
            rest /= radix;
        }
        let mut document = self.document.clone();
        for (axis, digit) in self.axes.iter().zip(&digits) {
            document.set(axis, *digit)?;
        }
        let settings = self
            .axes
            .iter()
            .zip(digits)
            .map(|(axis, digit)| (axis.key.clone(), axis.values[digit].clone()))
            .collect();
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
