//! Rules that hold for a value by itself, checked while it is read so that the message has its line.

use crate::curve::CurvePoint;
use crate::dram::{LoadedPoint, Mix, PageMode, Stores};
use crate::gemm::GemmPoint;
use crate::host::Presence;
use crate::provenance::Sourced;
use crate::units::{Bytes, BytesPerSec, Dollars, FlopPerSec, Hertz, Seconds, Watts, Years};
use serde::{Deserialize, Deserializer, de::Error};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// A value that not every value of its type may be.
pub(crate) trait Checked {
    /// What is wrong with it and what would be right.
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

/// The same for a value that may be left out.
pub(crate) fn checked_option<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Checked + Deserialize<'de>,
    D: Deserializer<'de>,
{
    checked(deserializer).map(Some)
}

/// The same for a table.
pub(crate) fn checked_table<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: serde::de::DeserializeOwned,
    Vec<T>: Checked,
    D: Deserializer<'de>,
{
    let rows: Vec<T> = crate::table::deserialize(deserializer)?;
    rows.check().map_err(D::Error::custom)?;
    Ok(rows)
}

fn positive<T: PartialOrd + Default + Display>(value: &T) -> Result<(), String> {
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
positive!(u64 usize Bytes BytesPerSec FlopPerSec Seconds Hertz Watts Dollars Years);

impl<T: Checked> Checked for Sourced<T> {
    fn check(&self) -> Result<(), String> {
        self.value.check()
    }
}

impl<T: Checked> Checked for Presence<T> {
    fn check(&self) -> Result<(), String> {
        self.as_option().map_or(Ok(()), T::check)
    }
}

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

fn distinct<K: Ord>(keys: impl Iterator<Item = K>, what: &str) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (index, key) in keys.enumerate() {
        if !seen.insert(key) {
            return Err(format!("point {index} has the same {what} as an earlier one: keep one"));
        }
    }
    if seen.is_empty() { Err("the list is empty: give at least one point".to_owned()) } else { Ok(()) }
}

impl Checked for Vec<GemmPoint> {
    fn check(&self) -> Result<(), String> {
        distinct(self.iter().map(|p| (p.m, p.n, p.k)), "m, n and k")
    }
}

impl<Y: PartialOrd + Default + Display> Checked for Vec<CurvePoint<Y>> {
    fn check(&self) -> Result<(), String> {
        self.iter().try_for_each(|p| positive(&p.value))?;
        distinct(self.iter().map(|p| p.size), "size")
    }
}

impl Checked for Vec<LoadedPoint> {
    fn check(&self) -> Result<(), String> {
        for point in self {
            positive(&point.latency)?;
            if point.percent > 100 {
                return Err(format!("percent is {}, but at most 100 of 100 can be asked for", point.percent));
            }
            if point.percent > 0 {
                positive(&point.bandwidth)?;
            }
        }
        distinct(self.iter().map(|p| p.percent), "percent")
    }
}

impl Checked for Vec<Mix> {
    fn check(&self) -> Result<(), String> {
        for point in self {
            positive(&point.rate)?;
            if (point.reads, point.writes) == (0, 0) {
                return Err("reads and writes are both 0: one must be above".to_owned());
            }
            if (point.writes == 0) != (point.stores == Stores::None) {
                return Err("`stores: none` is right where writes are 0, and only there".to_owned());
            }
        }
        distinct(self.iter().map(|p| (p.reads, p.writes, p.stores)), "reads, writes and stores")
    }
}

impl Checked for Vec<PageMode> {
    fn check(&self) -> Result<(), String> {
        if let Some(mode) = self.iter().find(|mode| mode.huge.value > mode.size) {
            return Err(format!(
                "{} of {} are in huge pages: at most all can be",
                mode.huge.value, mode.size
            ));
        }
        distinct(self.iter().map(|mode| mode.asked), "asked")
    }
}
