//! A table that readers can explore: its columns, packed for the page's script, and the initial
//! view.
//!
//! A number takes three bytes: a 32-bit float without the last eight bits of its fraction, which
//! leaves five digits. A choice among a few words or numbers takes one or two bytes. Bytes are
//! written in base 64. Constant columns and copies of other columns are written once.

use crate::results::data_table::{ColumnValues, DataColumn, DataTable};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The limit for the packed columns of a page. The page names the columns that are left out.
const MOST_BYTES: usize = 12 << 20;
/// A column with more different words holds free text, which the page leaves out.
const MOST_WORDS: usize = 4096;
/// Up to this many different numbers are packed as a choice.
const LEVELS: usize = 256;

/// A table and its initial view.
#[derive(Debug, Clone)]
pub(crate) struct Explorer {
    /// The label of the table.
    pub label: String,
    /// The number of rows.
    rows: usize,
    columns: Vec<Value>,
    filters: Vec<String>,
    shown: [Option<String>; 3],
    left_out: Vec<String>,
}

impl Explorer {
    /// Packs `table`. `keys` are the columns to filter by; `shown` are those of the x axis, the y
    /// axis and the colour.
    pub(crate) fn new(label: &str, table: &DataTable, keys: &[&str], shown: [Option<&str>; 3]) -> Self {
        let (mut columns, mut left_out) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for (index, column) in table.columns.iter().enumerate() {
            let copied = table.columns[..index]
                .iter()
                .find(|it| same_values(&it.values, &column.values) && !is_empty(it));
            let packed = match copied {
                Some(other) if !left_out.contains(&other.name) => json!({"kind": "twin", "of": other.name}),
                _ => match packed(column) {
                    Some(packed) => packed,
                    None => {
                        left_out.push(column.name.clone());
                        continue;
                    }
                },
            };
            let size = packed.to_string().len();
            if bytes + size > MOST_BYTES {
                left_out.push(column.name.clone());
                continue;
            }
            bytes += size;
            let mut packed = packed;
            packed["name"] = json!(column.name);
            columns.push(packed);
        }
        let known = |name: &&str| !left_out.iter().any(|it| it == name) && table.index(name).is_some();
        let filters = keys.iter().filter(|name| known(name)).map(|name| (*name).to_owned()).collect();
        let shown = shown.map(|name| name.filter(known).map(str::to_owned));
        left_out.retain(|name| !table.index(name).is_some_and(|it| is_empty(&table.columns[it])));
        Self { label: label.to_owned(), rows: table.rows, columns, filters, shown, left_out }
    }

    /// The data as JSON without characters that could end a script.
    pub(crate) fn data(&self) -> minijinja::Value {
        let [x, y, colour] = &self.shown;
        let data = json!({
            "rows": self.rows, "columns": self.columns, "filters": self.filters, "x": x, "y": y, "colour": colour,
        });
        let text = data.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
        minijinja::Value::from_safe_string(text)
    }

    /// Notes for the reader: the columns that are left out.
    pub(crate) fn notes(&self) -> Vec<String> {
        match &self.left_out[..] {
            [] => vec![],
            names => vec![format!(
                "These columns are left out, because they hold free text or would make the page too large: {}.",
                names.join(", ")
            )],
        }
    }
}

/// Whether two columns hold the same values. Missing values are equal to each other.
fn same_values(left: &ColumnValues, right: &ColumnValues) -> bool {
    left == right
}

fn is_empty(column: &DataColumn) -> bool {
    match &column.values {
        ColumnValues::Numbers(numbers) => numbers.iter().all(Option::is_none),
        ColumnValues::Words { words, .. } => words.iter().all(String::is_empty),
    }
}

/// A packed column; `None` for an empty one and for free text.
fn packed(column: &DataColumn) -> Option<Value> {
    if is_empty(column) {
        return None;
    }
    match &column.values {
        ColumnValues::Words { words, rows } if words.len() <= MOST_WORDS => {
            Some(choice("words", json!(words), words.len(), rows.iter().copied()))
        }
        ColumnValues::Words { .. } => None,
        ColumnValues::Numbers(numbers) => {
            if let Some(first) = numbers[0]
                && numbers.iter().zip(0..).all(|(it, row)| *it == Some(first + f64::from(row)))
            {
                return Some(json!({"kind": "count", "first": first}));
            }
            let mut levels = BTreeSet::new();
            for it in numbers {
                levels.insert(it.map(f64::to_bits));
                if levels.len() > LEVELS {
                    let bytes: Vec<u8> = numbers.iter().flat_map(|it| three_bytes(*it)).collect();
                    return Some(json!({"kind": "numbers", "data": base64(&bytes)}));
                }
            }
            let mut levels: Vec<_> = levels.into_iter().map(|it| it.map(f64::from_bits)).collect();
            levels.sort_by(missing_last);
            let level =
                |it: &Option<f64>| levels.partition_point(|level| missing_last(level, it).is_lt()) as u32;
            // In JSON, null stands for a missing value.
            Some(choice("levels", json!(levels), levels.len(), numbers.iter().map(level)))
        }
    }
}

/// Packs an index into `names` for each row: no bytes for one name, one byte for up to 256, else
/// two.
fn choice(kind: &str, names: Value, count: usize, rows: impl Iterator<Item = u32>) -> Value {
    let (width, data) = match count {
        0..=1 => (0, Vec::new()),
        2..=256 => (1, rows.map(|it| it as u8).collect::<Vec<_>>()),
        _ => (2, rows.flat_map(|it| (it as u16).to_le_bytes()).collect()),
    };
    json!({"kind": kind, "names": names, "width": width, "data": base64(&data)})
}

/// The upper three bytes of a 32-bit float, rounded, lowest byte first. NaN stands for a missing
/// number, and for one beyond the range of such floats.
fn three_bytes(value: Option<f64>) -> [u8; 3] {
    let value = value.map_or(f32::NAN, |value| value as f32);
    let bits = value.to_bits();
    let upper = match value.is_finite() {
        true => bits.saturating_add(0x80) >> 8,
        false => f32::NAN.to_bits() >> 8,
    };
    let [a, b, c, _] = upper.to_le_bytes();
    [a, b, c]
}

/// The order of levels: ascending, a missing value last.
fn missing_last(left: &Option<f64>, right: &Option<f64>) -> Ordering {
    match (left, right) {
        (Some(left), Some(right)) => left.total_cmp(right),
        _ => left.is_none().cmp(&right.is_none()),
    }
}

/// Base 64 with the alphabet of RFC 4648, padded.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let index = (bits >> (18 - 6 * at)) & 63;
            text.push(if at <= chunk.len() { ALPHABET[index as usize] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::test_cases::config())]

        #[test]
        fn numbers_keep_five_digits_and_their_order(a in -1e30..1e30_f64, b in -1e30..1e30_f64) {
            let back = |value: f64| {
                let [x, y, z] = three_bytes(Some(value));
                f64::from(f32::from_le_bytes([0, x, y, z]))
            };
            prop_assert!((back(a) - a).abs() <= 1.6e-5 * a.abs(), "{a} became {}", back(a));
            prop_assert!(a <= b || back(a) >= back(b));
        }
    }

    #[test]
    fn bytes_in_base_64_are_those_of_the_standard() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|it| base64(it.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }

    #[test]
    fn columns_are_packed_by_what_they_hold() {
        let column = |name: &str, value: &dyn Fn(u32) -> Option<f64>| DataColumn {
            name: name.to_owned(),
            values: ColumnValues::Numbers((0..1000).map(value).collect()),
        };
        let words = (0..1000).map(|it| if it % 2 == 0 { "</script>" } else { "b" });
        let table = DataTable::from_columns(vec![
            column("point", &|it| Some(f64::from(it) + 5.0)),
            column("level", &|it| Some(f64::from(it % 3))),
            column("time", &|it| Some(f64::from(it).sqrt())),
            column("again", &|it| Some(f64::from(it).sqrt())),
            column("none", &|_| None),
            DataColumn { name: "word".to_owned(), values: ColumnValues::from_words(words) },
        ]);
        let explorer = Explorer::new("t", &table, &["word", "missing"], [Some("level"), Some("none"), None]);
        let kinds: Vec<_> = explorer.columns.iter().map(|it| it["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["count", "levels", "numbers", "twin", "words"]);
        assert_eq!(explorer.filters, ["word"]);
        assert_eq!(explorer.shown, [Some("level".to_owned()), None, None]);
        assert_eq!(explorer.notes(), [""; 0]);
        let text = explorer.data().to_string();
        assert!(!text.contains('<'), "{text}");
        let again: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(again["columns"][4]["names"][0], "</script>");
    }
}
