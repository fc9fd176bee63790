//! Two measurements of a host compared: every number that both have, and what only one of them has.

use crate::machine::shortened;
use crate::parts::host::file::Host;
use crate::units::{Bytes, BytesPerSec, FlopPerSec, Hertz, Seconds};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// How two host files differ.
///
/// It compares documents and not types, so new keys of a host are compared without new code here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostChanges {
    /// The hosts' names.
    pub hosts: [String; 2],
    /// Every number that both have, the largest change first; ties by name.
    pub numbers: Vec<HostChange>,
    /// What only the first has.
    pub only_a: Vec<String>,
    /// What only the second has.
    pub only_b: Vec<String>,
}

/// One number in both files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostChange {
    /// Its name: `dram bandwidth read threads=2 512 MiB`.
    #[serde(rename = "what")]
    pub name: String,
    /// In the first file.
    pub a: String,
    /// In the second file.
    pub b: String,
    /// Second ÷ first; absent where only the first is zero.
    pub ratio: Option<f64>,
    /// The larger of the spreads that the two files give. For a table it is the median of its
    /// points' spreads.
    pub spread: f64,
}

impl HostChanges {
    /// From `a` to `b`.
    pub fn between(a: &Host, b: &Host) -> Self {
        let hosts = [a.host.clone(), b.host.clone()];
        let [a, mut b] = [a, b].map(HostValues::from_host);
        let (mut numbers, mut only_a) = (Vec::new(), Vec::new());
        for (name, a) in a.0 {
            match b.0.remove(&name) {
                Some(b) => numbers.extend(a.zip(b).map(|(a, b)| a.change(name, &b))),
                None => only_a.push(name),
            }
        }
        numbers.sort_by(|a, b| b.size().total_cmp(&a.size()).then_with(|| a.name.cmp(&b.name)));
        Self { hosts, numbers, only_a, only_b: b.0.into_keys().collect() }
    }
}

impl HostChange {
    /// The distance of the ratio from one, as a logarithm: halving is as far as doubling.
    fn size(&self) -> f64 {
        self.ratio.map_or(f64::INFINITY, |ratio| ratio.ln().abs())
    }
}

/// A measured quantity.
#[derive(Debug)]
struct Number {
    value: f64,
    text: String,
    spread: f64,
}

impl Number {
    fn change(self, name: String, b: &Self) -> HostChange {
        let ratio = match (self.value, b.value) {
            (a, b) if a == b => Some(1.0),
            (0.0, _) => None,
            (a, b) => Some(b / a),
        };
        HostChange { name, a: self.text, b: b.text.clone(), ratio, spread: self.spread.max(b.spread) }
    }
}

/// The values of a document by name: numbers, and facts without a number, whose value is a part of
/// the name.
#[derive(Debug, Default)]
struct HostValues(BTreeMap<String, Option<Number>>);

/// Keys that a name leaves out because they say nothing.
const SILENT: [&str; 5] = ["value", "curve", "points", "measured", "time"];

impl HostValues {
    fn from_host(host: &Host) -> Self {
        let mut entries = Self::default();
        // Files are made of such values too.
        if let Ok(Value::Object(mut document)) = serde_json::to_value(host) {
            document.remove("host");
            entries.object(&document, "", 0.0);
        }
        entries
    }

    fn add(&mut self, name: &str, number: Option<Number>) {
        // Two points of a list may differ in their numbers only.
        let again = (2..).map(|count| format!("{name} #{count}"));
        let mut names = std::iter::once(name.to_owned()).chain(again);
        if let Some(name) = names.find(|name| !self.0.contains_key(name)) {
            self.0.insert(name, number);
        }
    }

    fn object(&mut self, object: &Map<String, Value>, name: &str, spread: f64) {
        let told = object.get("source").and_then(|source| source.pointer("/measured/spread")?.as_f64());
        let spread = told.unwrap_or(spread);
        for (key, value) in object.iter().filter(|(key, _)| *key != "source") {
            let name = if SILENT.contains(&key.as_str()) { name.to_owned() } else { joined(name, key) };
            match value {
                Value::Object(inner) => self.object(inner, &name, spread),
                Value::Array(items) if items.iter().any(Value::is_object) => self.list(items, &name, spread),
                Value::String(table) if table.contains('\n') => self.table(table, &name, spread),
                _ => match quantity(key, value) {
                    Some((value, text)) => self.add(&name, Some(Number { value, text, spread })),
                    None => self.add(&format!("{name}: {}", plain(value)), None),
                },
            }
        }
    }

    /// Adds the rows of a block of CSV. Columns `…_us` are measured, and the others say what was
    /// measured.
    fn table(&mut self, table: &str, name: &str, spread: f64) {
        let mut lines = table.lines().map(|line| line.split(',').map(str::trim));
        let columns: Vec<&str> = lines.next().into_iter().flatten().collect();
        for line in lines {
            let cells: Vec<(&str, &str)> = columns.iter().copied().zip(line).collect();
            let (times, about): (Vec<_>, Vec<_>) =
                cells.iter().partition(|(column, _)| column.ends_with("_us"));
            let name = about.iter().fold(name.to_owned(), |name, (column, cell)| match cell.parse::<f64>() {
                Ok(_) => joined(&name, &format!("{column}={cell}")),
                Err(_) => joined(&name, cell),
            });
            for (column, cell) in times {
                let quantity = column.trim_end_matches("_us");
                let name = if SILENT.contains(&quantity) { name.clone() } else { joined(&name, quantity) };
                let Ok(time) = format!("{cell} us").parse::<Seconds>() else { continue };
                self.add(&name, Some(Number { value: time.get(), text: time.to_string(), spread }));
            }
        }
    }

    /// Adds the items of a list. An item's plain values name it: `threads: 2`, `stream: read`,
    /// `size: 64 KiB`.
    fn list(&mut self, items: &[Value], name: &str, spread: f64) {
        for item in items.iter().filter_map(Value::as_object) {
            let mut name = name.to_owned();
            let mut rest = item.clone();
            for (key, value) in item {
                let is_plain = !value.is_object() && !value.is_array() && quantity(key, value).is_none();
                if is_plain && value != "absent" {
                    let about =
                        if value.is_string() { plain(value) } else { format!("{key}={}", plain(value)) };
                    name = joined(&name, &about);
                    rest.remove(key);
                }
            }
            match rest.is_empty() {
                true => self.add(&name, None),
                false => self.object(&rest, &name, spread),
            }
        }
    }
}

fn joined(name: &str, word: &str) -> String {
    if name.is_empty() { word.to_owned() } else { format!("{name} {word}") }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A measured quantity in base units and as people write it. Bytes are measured only as a `value`;
/// elsewhere they say what was measured, like the size of a point.
fn quantity(key: &str, value: &Value) -> Option<(f64, String)> {
    let text = value.as_str()?;
    let bytes = || text.parse::<Bytes>().ok().filter(|_| key == "value").map(|q| (q.as_f64(), q.to_string()));
    let seconds = || text.parse::<Seconds>().ok().map(|q| (q.get(), q.to_string()));
    let bandwidth = || text.parse::<BytesPerSec>().ok().map(|q| (q.get(), q.to_string()));
    let rate = || text.parse::<FlopPerSec>().ok().map(|q| (q.get(), q.to_string()));
    let clock = || text.parse::<Hertz>().ok().map(|q| (q.get(), q.to_string()));
    seconds().or_else(bandwidth).or_else(rate).or_else(clock).or_else(bytes)
}

/// The columns of a name. A longer name has a line of its own.
const NAME: usize = 43;

/// A table of 80 columns.
impl fmt::Display for HostChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a: {}\nb: {}\n", shortened(&self.hosts[0], 77), shortened(&self.hosts[1], 77))?;
        writeln!(f, "{:<NAME$} {:>10} {:>10} {:>6} {:>6}", "measured", "a", "b", "b/a", "spread")?;
        for HostChange { name, a, b, ratio, spread } in &self.numbers {
            let name =
                if name.chars().count() > NAME { format!("{name}\n{:NAME$}", "") } else { name.clone() };
            let ratio = ratio.map_or("–".to_owned(), |ratio| match ratio {
                100.0.. => format!("{ratio:.0}"),
                _ => format!("{ratio:.3}"),
            });
            writeln!(f, "{name:<NAME$} {a:>10} {b:>10} {ratio:>6} {:>4.0} %", spread * 100.0)?;
        }
        for (file, names) in [("a", &self.only_a), ("b", &self.only_b)] {
            if !names.is_empty() {
                writeln!(f, "\nonly in {file}")?;
            }
            names.iter().try_for_each(|name| writeln!(f, "  {}", shortened(name, 78)))?;
        }
        Ok(())
    }
}
