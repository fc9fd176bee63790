//! Quantities as types: a number never crosses a public signature without its unit.
//!
//! Counted things (bytes, elements, tokens, FLOP) are integers, measured things (seconds, rates)
//! are floats. There is no `From<f64>`: code that makes a quantity names its unit. Powers of ten
//! and of two live in this file alone: `GB` is 10⁹ bytes and `GiB` is 2³⁰, everywhere.
//!
//! In files a value carries its unit (`"4.8 TB/s"`); a bare number is refused, and the error lists
//! the accepted units.

use crate::units::text::{UnitError, UnitTable, exact, parse_counted, parse_measured, short};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;

const BYTES: UnitTable = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
];

const BYTES_PER_SEC: UnitTable = &[
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("TB/s", 1e12),
    ("KiB/s", 1024.0),
    ("MiB/s", 1048576.0),
    ("GiB/s", 1073741824.0),
    ("TiB/s", 1099511627776.0),
];

const SECONDS: UnitTable =
    &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("ns", 1e-9), ("min", 60.0), ("h", 3600.0)];

const FLOP: UnitTable =
    &[("FLOP", 1.0), ("kFLOP", 1e3), ("MFLOP", 1e6), ("GFLOP", 1e9), ("TFLOP", 1e12), ("PFLOP", 1e15)];

const FLOP_PER_SEC: UnitTable =
    &[("FLOP/s", 1.0), ("MFLOP/s", 1e6), ("GFLOP/s", 1e9), ("TFLOP/s", 1e12), ("PFLOP/s", 1e15)];

const ELEMENTS_PER_SEC: UnitTable =
    &[("values/s", 1.0), ("Mvalues/s", 1e6), ("Gvalues/s", 1e9), ("Tvalues/s", 1e12)];

const FLOP_PER_BYTE: UnitTable = &[("FLOP/B", 1.0)];

const WATTS: UnitTable = &[("W", 1.0), ("mW", 1e-3), ("kW", 1e3), ("MW", 1e6)];

const JOULES: UnitTable = &[
    ("J", 1.0),
    ("mJ", 1e-3),
    ("uJ", 1e-6),
    ("nJ", 1e-9),
    ("pJ", 1e-12),
    ("kJ", 1e3),
    ("MJ", 1e6),
    ("Wh", 3600.0),
    ("kWh", 3.6e6),
];

const YEARS: UnitTable = &[("y", 1.0)];

const DOLLARS: UnitTable = &[("USD", 1.0)];

const HERTZ: UnitTable = &[("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)];

/// Requests over time, each unit in its spellings; `req/s` is the one that is written.
const RATE: UnitTable = &[
    ("req/s", 1.0),
    ("req/min", 1.0 / 60.0),
    ("req/h", 1.0 / 3600.0),
    ("requests/s", 1.0),
    ("rps", 1.0),
    ("qps", 1.0),
];

macro_rules! in_files_as_text {
    ($name:ident, $kind:literal, $table:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.to_file_text())
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        let units: Vec<_> = $table.iter().map(|(name, _)| *name).collect();
                        write!(f, concat!($kind, " with its unit, one of {}"), units.join(", "))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    // A bare number gets the message for a text without a unit.
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$name, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident) => {
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, Add::add)
            }
        }
    };
}

/// A counted quantity: a newtype over an unsigned integer.
macro_rules! counted {
    ($(#[$doc:meta])* $name:ident($inner:ty), $kind:literal, $table:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);
        arithmetic!($name);
        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);
            /// A count of the base unit.
            pub const fn new(count: $inner) -> Self {
                Self(count)
            }
            /// The count in the base unit.
            pub const fn get(self) -> $inner {
                self.0
            }
            /// The count as a float, for a rate.
            pub fn as_f64(self) -> f64 {
                self.0 as f64
            }
            /// `self − other`, or zero where that would be negative.
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
            /// The sum, or `None` where it does not fit.
            pub fn checked_add(self, other: Self) -> Option<Self> {
                self.0.checked_add(other.0).map(Self)
            }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0 * <$inner>::from(times))
            }
        }
        counted!(@text $name, $inner, $kind, $table);
    };
    (@text $name:ident, $inner:ty, $kind:literal, none) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$inner>::deserialize(deserializer).map(Self)
            }
        }
    };
    (@text $name:ident, $inner:ty, $kind:literal, $table:ident) => {
        impl $name {
            /// The count as files hold it: exact, in the largest unit that divides it.
            pub fn to_file_text(self) -> String {
                let (name, factor) = $table
                    .iter()
                    .map(|&(name, factor)| (name, factor as $inner))
                    .filter(|&(_, factor)| self.0 >= factor && self.0 % factor == 0)
                    .max_by_key(|&(_, factor)| factor)
                    .unwrap_or(($table[0].0, 1));
                format!("{} {name}", self.0 / factor)
            }
        }
        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse_counted(text, $kind, $table).map(Self)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&short(self.0 as f64, $table))
            }
        }
        in_files_as_text!($name, $kind, $table);
    };
}

/// A measured quantity: a newtype over a float.
macro_rules! measured {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $table:ident, $from:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
        pub struct $name(f64);
        arithmetic!($name);
        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0.0);
            /// A value in the base unit.
            pub const fn $from(value: f64) -> Self {
                Self(value)
            }
            /// The value in the base unit.
            pub const fn get(self) -> f64 {
                self.0
            }
            /// The larger of two.
            pub fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }
            /// The smaller of two.
            pub fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }
            /// Total order, for sorting and for `max_by`.
            pub fn total_cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.0.total_cmp(&other.0)
            }
            /// The value as files hold it: it reads back as the same float.
            pub fn to_file_text(self) -> String {
                exact(self.0, $table)
            }
        }
        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }
        impl Div<f64> for $name {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }
        /// The plain ratio of two.
        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }
        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse_measured(text, $kind, $table).map(Self)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&short(self.0, $table))
            }
        }
        in_files_as_text!($name, $kind, $table);
    };
}

counted!(/** Bytes. */ Bytes(u64), "a size", BYTES);

counted!(/** Floating-point (or integer) operations; a multiply-add is 2. */ Flop(u128), "an amount of work", FLOP);

counted!(/** Numbers in a tensor. */ Elements(u64), "a count", none);

counted!(/** Tokens of one sequence, or of a batch where said so. */ Tokens(u64), "a count", none);

measured!(/** A duration in model time. Simulated time is another type (`sim::SimTime`). */ Seconds, "a duration", SECONDS, new);

measured!(/** A bandwidth. */ BytesPerSec, "a bandwidth", BYTES_PER_SEC, new);

measured!(/** A compute rate. */ FlopPerSec, "a compute rate", FLOP_PER_SEC, new);

measured!(/** A rate of values that are read, written or turned into another format. */ ElementsPerSec, "a rate of values", ELEMENTS_PER_SEC, new);

measured!(/** Arithmetic intensity. */ FlopPerByte, "an arithmetic intensity", FLOP_PER_BYTE, new);

measured!(/** A clock's frequency. */ Hertz, "a frequency", HERTZ, new);

measured!(/** Time in service. */ Years, "a lifetime", YEARS, new);

measured!(/** Power. */ Watts, "a power", WATTS, new);

measured!(/** Energy. */ Joules, "an energy", JOULES, new);

measured!(/** Money, in US dollars. */ Dollars, "a price", DOLLARS, new);

measured!(/** Requests per second. */ RequestsPerSec, "a request rate", RATE, new);

impl Elements {
    /// A shape as a count.
    pub fn product(dimensions: &[u64]) -> Self {
        Self(dimensions.iter().product())
    }

    /// A count as people say it: `8.03 B`, `250 M`.
    pub fn rounded(self) -> String {
        let count = self.as_f64();
        let (value, unit) = if count >= 1e9 { (count / 1e9, "B") } else { (count / 1e6, "M") };
        match value {
            v if v < 10.0 => format!("{v:.2} {unit}"),
            v if v < 100.0 => format!("{v:.1} {unit}"),
            v => format!("{v:.0} {unit}"),
        }
    }
}

impl Seconds {
    /// From nanoseconds, as clocks count them.
    pub fn from_nanos(nanos: u64) -> Self {
        // A division, because 1e-9 is not exact as a float: 3 ns become the float nearest to 3e-9.
        Self(nanos as f64 / 1e9)
    }

    /// Whole nanoseconds, rounded up, at least zero; a value beyond `u64` saturates.
    pub fn to_nanos_ceil(self) -> u64 {
        (self.0 * 1e9).ceil() as u64
    }

    /// Whole picoseconds, rounded up, at least zero; a value beyond `u64` saturates.
    pub fn to_picos_ceil(self) -> u64 {
        (self.0 * 1e12).ceil() as u64
    }
}

impl Years {
    /// In seconds; a year has 365.25 days.
    pub fn to_seconds(self) -> Seconds {
        Seconds::new(self.get() * 365.25 * 86_400.0)
    }
}

impl Joules {
    /// 1000 W for an hour.
    pub const KILOWATT_HOUR: Self = Self::new(3.6e6);
}

impl Bytes {
    /// In units of 2³⁰ bytes, which the options of other programs use.
    pub fn gibibytes(self) -> f64 {
        self.as_f64() / 1073741824.0
    }

    /// In units of 10⁹ bytes, which prices use.
    pub fn gigabytes(self) -> f64 {
        self.as_f64() / 1e9
    }
}

impl Div<BytesPerSec> for Bytes {
    type Output = Seconds;
    fn div(self, rate: BytesPerSec) -> Seconds {
        Seconds(self.as_f64() / rate.0)
    }
}

impl Div<ElementsPerSec> for Elements {
    type Output = Seconds;
    fn div(self, rate: ElementsPerSec) -> Seconds {
        Seconds(self.as_f64() / rate.0)
    }
}

impl Div<Seconds> for Bytes {
    type Output = BytesPerSec;
    fn div(self, time: Seconds) -> BytesPerSec {
        BytesPerSec(self.as_f64() / time.0)
    }
}

impl Div<FlopPerSec> for Flop {
    type Output = Seconds;
    fn div(self, rate: FlopPerSec) -> Seconds {
        Seconds(self.as_f64() / rate.0)
    }
}

impl Div<Seconds> for Flop {
    type Output = FlopPerSec;
    fn div(self, time: Seconds) -> FlopPerSec {
        FlopPerSec(self.as_f64() / time.0)
    }
}

impl Div<Bytes> for Flop {
    type Output = FlopPerByte;
    fn div(self, bytes: Bytes) -> FlopPerByte {
        FlopPerByte(self.as_f64() / bytes.as_f64())
    }
}

impl Watts {
    /// The rate at which operations that take `each` use this power.
    pub fn rate_of(self, each: Joules) -> FlopPerSec {
        FlopPerSec(self.0 / each.0)
    }
}

impl Mul<Seconds> for Watts {
    type Output = Joules;
    fn mul(self, time: Seconds) -> Joules {
        Joules(self.0 * time.0)
    }
}
