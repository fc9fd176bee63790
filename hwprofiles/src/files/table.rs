//! Tables of points inside a document: a block of CSV with a header line and a line per point.
//!
//! ```yaml
//! points: |
//!   m,n,k,time_us
//!   1,4096,4096,12.5
//! ```
//! A table reads well, is one value for the YAML reader, and can be pasted into a spreadsheet.

use crate::units::Checked;
use serde::de::{DeserializeOwned, Error};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// Writes rows as a block of CSV; for `#[serde(with)]`.
pub(crate) fn serialize<T: Serialize, S: Serializer>(rows: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(S::Error::custom)?;
    }
    let bytes = writer.into_inner().map_err(S::Error::custom)?;
    serializer.serialize_str(&String::from_utf8(bytes).map_err(S::Error::custom)?)
}

/// Reads rows from a block of CSV; for `#[serde(with)]`.
///
/// Columns may be in any order. An error names the table's line (the header is line 1) and the
/// column.
pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let text = Cow::<'de, str>::deserialize(deserializer)?;
    rows(&text).map_err(D::Error::custom)
}

fn rows<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| error.to_string())?.clone();
    reader.deserialize().map(|row| row.map_err(|error| explain(&error, &header))).collect()
}

/// A CSV error in the words of the person who wrote the table.
fn explain(error: &csv::Error, header: &csv::StringRecord) -> String {
    let line = error.position().map_or(1, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|field| header.get(usize::try_from(field).ok()?));
            let column = column.map_or_else(String::new, |name| format!(", column '{name}'"));
            format!("line {line} of the table{column}: {}", err.kind())
        }
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!(
                "line {line} of the table has {len} values, its header {expected_len}: give one value per column"
            )
        }
        _ => format!("line {line} of the table: {error}"),
    }
}

/// A time as a plain number of microseconds, under a column whose name says so.
pub(crate) mod microseconds {
    use super::{Cow, Deserialize, Deserializer, Serializer};
    use crate::units::Seconds;
    use serde::de::Error as _;

    /// The shortest digits that [`deserialize`] reads back as the same time: seconds with the
    /// decimal point six places to the right. A multiplication would round.
    pub(crate) fn serialize<S: Serializer>(time: &Seconds, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = format!("{:e}", time.get());
        let (digits, exponent) = seconds.split_once('e').unwrap_or((&seconds, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0) + 6;
        let (digits, point) = (digits.replace('.', ""), exponent + 1);
        let text = match usize::try_from(point) {
            Ok(point) if point >= digits.len() => format!("{digits:0<point$}"),
            Ok(point) if point > 0 => format!("{}.{}", &digits[..point], &digits[point..]),
            _ => format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize)),
        };
        serializer.serialize_str(&text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number =
            if plain { format!("{text}e-6").parse().ok() } else { text.parse().ok().map(|n: f64| n / 1e6) };
        match number {
            Some(seconds) if f64::is_finite(seconds) && seconds > 0.0 => Ok(Seconds::new(seconds)),
            _ => Err(D::Error::custom(format!(
                "'{text}' is not a time: write microseconds above zero, as 12.5"
            ))),
        }
    }
}

/// The same for a table, as a block of CSV.
pub(crate) fn checked_table<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: serde::de::DeserializeOwned,
    Vec<T>: Checked,
    D: Deserializer<'de>,
{
    let rows: Vec<T> = crate::files::table::deserialize(deserializer)?;
    rows.check().map_err(D::Error::custom)?;
    Ok(rows)
}
