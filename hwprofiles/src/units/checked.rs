//! Rules for a single value. They are checked while it is read, so that the message names its line.

use crate::units::quantities::{
    Bytes, BytesPerSec, Dollars, ElementsPerSec, FlopPerSec, Hertz, Joules, Seconds, Watts, Years,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// A type whose values are checked when a file is read.
pub(crate) trait Checked {
    /// Says what is wrong with the value and what would be right.
    fn check(&self) -> Result<(), String>;
}

/// For `#[serde(deserialize_with)]`.
pub(crate) fn checked<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Checked + Deserialize<'de>,
    D: Deserializer<'de>,
{
    let value = T::deserialize(deserializer)?;
    value.check().map_err(D::Error::custom)?;
    Ok(value)
}

/// The same for a value that files may leave out.
pub(crate) fn checked_option<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Checked + Deserialize<'de>,
    D: Deserializer<'de>,
{
    checked(deserializer).map(Some)
}

pub(crate) fn positive<T: PartialOrd + Default + Display>(value: &T) -> Result<(), String> {
    if *value > T::default() { Ok(()) } else { Err(format!("it is {value}, but must be above zero")) }
}

macro_rules! positive {
    ($($type:ty)*) => {$(
        impl Checked for $type {
            fn check(&self) -> Result<(), String> {
                positive(self)
            }
        }
    )*};
}

positive!(u64 usize Bytes BytesPerSec ElementsPerSec FlopPerSec Seconds Hertz Watts Joules Dollars Years);

impl<K: Display, V: Checked> Checked for BTreeMap<K, V> {
    fn check(&self) -> Result<(), String> {
        self.iter().try_for_each(|(key, value)| value.check().map_err(|wrong| format!("{key}: {wrong}")))
    }
}

/// Of a spread.
impl Checked for f64 {
    fn check(&self) -> Result<(), String> {
        let fine = self.is_finite() && *self >= 0.0;
        if fine {
            Ok(())
        } else {
            Err(format!("'{self}' is not a spread: write a number of 0 or more, as 0.05"))
        }
    }
}

pub(crate) fn distinct<K: Ord>(keys: impl Iterator<Item = K>, what: &str) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (index, key) in keys.enumerate() {
        if !seen.insert(key) {
            return Err(format!("point {index} has the same {what} as an earlier one: keep one"));
        }
    }
    if seen.is_empty() { Err("the list is empty: give at least one point".to_owned()) } else { Ok(()) }
}
