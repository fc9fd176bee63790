//! The section of a sweep: its keys, its results, and a table to explore.

use crate::numbers::format::counted;
use crate::numbers::format::{plain, whole_percent};
use crate::page::block::{NumberTile, PageBlock, Plot, Table, TableCell, TableColumn};
use crate::page::explorer::Explorer;
use crate::page::section::PageSection;
use crate::plots::chart::{AxisScale, Chart, PlotPoint, PlotSeries, TickFormat};
use crate::plots::legend::tick_label;
use crate::results::data_table::{ColumnValues, DataTable};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A chart has at most this many lines. The explorer shows the rest.
const MOST_LINES: usize = 6;
/// At most this many messages of failed points are listed.
const MOST_MESSAGES: usize = 20;

/// The measures that are drawn against the load in a sweep of serving.
const AGAINST_LOAD: [(&str, &str); 4] = [
    ("slo_attainment", "Requests within the limits"),
    ("goodput_per_s", "Goodput, requests per second"),
    ("ttft_s_p95", "TTFT, 95th percentile"),
    ("tpot_s_p95", "TPOT, 95th percentile"),
];

pub(crate) fn section(table: &DataTable) -> PageSection {
    let keys = keys(table);
    let mut blocks = Vec::new();
    if table.rows == 0 {
        blocks.push(PageBlock::Note("There is no point in this sweep.".to_owned()));
    }
    blocks.push(PageBlock::Tiles(
        statuses(table)
            .into_iter()
            .map(|(status, count)| NumberTile::new(&status, count.to_string()))
            .collect(),
    ));
    let loads = loads(table, &keys);
    let curves: Vec<_> = loads.iter().flat_map(|(load, values)| curves(table, &keys, load, values)).collect();
    if !curves.is_empty() {
        blocks.push(PageBlock::Heading("Against the load".to_owned()));
        blocks.push(PageBlock::Plots(curves));
    }
    if table.rows > 0 {
        blocks.push(PageBlock::Heading("Explore".to_owned()));
        blocks.push(PageBlock::Explorer(Box::new(explorer(table, &keys))));
    }
    blocks.push(PageBlock::Heading("Keys and results".to_owned()));
    blocks.push(PageBlock::Table(ranges(table)));
    blocks.extend(messages(table).map(PageBlock::Table));
    PageSection {
        title: format!("Sweep of {}", if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") }),
        lead: format!("{}, each planned and simulated.", counted(table.rows, "point")),
        blocks,
    }
}

/// The names of the keys: the columns between the point's number and its status.
fn keys(table: &DataTable) -> Vec<&str> {
    let names = table.columns.iter().map(|column| column.name.as_str());
    names.skip_while(|name| *name == "point").take_while(|name| *name != "status").collect()
}

fn statuses(table: &DataTable) -> Vec<(String, usize)> {
    let Some(ColumnValues::Words { words, rows }) = table.index("status").map(|it| &table.columns[it].values)
    else {
        return vec![];
    };
    let count = |index: usize| rows.iter().filter(|row| **row as usize == index).count();
    words.iter().enumerate().map(|(index, word)| (word.clone(), count(index))).collect()
}

/// The column that holds a load (a rate of arrivals, or a concurrency) with its numbers.
fn loads<'t>(table: &'t DataTable, keys: &[&'t str]) -> Option<(&'t str, Vec<Option<f64>>)> {
    keys.iter().find_map(|key| {
        let load = ["arrivals", "poisson", "gamma", "rate", "concurrency"]
            .iter()
            .any(|word| key.ends_with(word) || key.contains(&format!("{word}.")));
        let index = table.index(key).filter(|_| load)?;
        let values: Vec<_> = match &table.columns[index].values {
            ColumnValues::Numbers(numbers) => numbers.clone(),
            ColumnValues::Words { words, rows } => {
                let loads: Vec<_> = words.iter().map(|word| per_second(word)).collect();
                rows.iter().map(|row| loads[*row as usize]).collect()
            }
        };
        values.iter().any(Option::is_some).then_some((*key, values))
    })
}

/// The number before `req/s` in a text, if there is one.
fn per_second(text: &str) -> Option<f64> {
    let before =
        text.split("req/s").next().filter(|before| before.len() < text.len()).unwrap_or("").trim_end();
    let digits = |c: char| c.is_ascii_digit() || ".eE-+".contains(c);
    let start = before.rfind(|c| !digits(c)).map_or(0, |at| at + 1);
    before[start..].parse().ok()
}

/// A chart for each measure, with a line for each combination of the other keys. Empty where there
/// are too many lines.
fn curves(table: &DataTable, keys: &[&str], load: &str, loads: &[Option<f64>]) -> Vec<Plot> {
    let others: Vec<_> = keys.iter().filter(|key| **key != load).filter_map(|key| table.index(key)).collect();
    let mut groups: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
    for row in (0..table.rows).filter(|row| loads[*row].is_some()) {
        groups.entry(others.iter().map(|column| table.text(*column, row)).collect()).or_default().push(row);
        if groups.len() > MOST_LINES {
            return vec![];
        }
    }
    let charts = AGAINST_LOAD.into_iter().filter_map(|(measure, title)| {
        let values = table.numbers(measure)?;
        let (scale, write): (_, TickFormat) = match measure {
            "slo_attainment" => (AxisScale::linear("", whole_percent), whole_percent),
            "goodput_per_s" => (AxisScale::linear("", plain), plain),
            _ => (AxisScale::logarithmic("", tick_label), tick_label),
        };
        let mut chart = Chart::new(title, [AxisScale::linear(load, plain), scale]);
        for (names, rows) in &groups {
            let mut rows = rows.clone();
            rows.sort_by(|a, b| loads[*a].partial_cmp(&loads[*b]).unwrap_or(Ordering::Equal));
            let name = if names.is_empty() { title.to_owned() } else { names.join(", ") };
            let points = rows.iter().filter_map(|&row| {
                let (load, value) = (loads[row]?, values[row]?);
                let hover = format!("{name}: at {} {}", plain(load), write(value));
                Some(PlotPoint { at: [load, value], hover })
            });
            chart.series.push(PlotSeries {
                points: points.collect(),
                name: name.clone(),
                line: true,
                radius: 4.0,
            });
        }
        Some(Plot::fitting(format!("load-{measure}"), chart.draw()))
    });
    charts.collect()
}

/// The initial view: the first key with several numbers, the time per token, and the next key.
fn explorer(table: &DataTable, keys: &[&str]) -> Explorer {
    let several = |key: &&&str| match table.index(key).map(|it| &table.columns[it].values) {
        Some(ColumnValues::Numbers(numbers)) => numbers.iter().any(|it| *it != numbers[0]),
        Some(ColumnValues::Words { words, .. }) => words.len() > 1,
        None => false,
    };
    let varied: Vec<_> = keys.iter().filter(several).copied().collect();
    let measure =
        ["tpot_s_mean", "ttft_s_mean", "duration_s"].into_iter().find(|it| table.numbers(it).is_some());
    let x = varied.iter().find(|key| table.numbers(key).is_some()).or(varied.first()).copied();
    let colour = varied.iter().find(|key| Some(**key) != x).copied().or(Some("status"));
    let filters: Vec<_> = keys.iter().copied().chain(["status", "plan"]).collect();
    Explorer::new("Points of the sweep", table, &filters, [x, measure, colour])
}

/// The range of each column.
fn ranges(table: &DataTable) -> Table {
    let row = |column: &crate::results::data_table::DataColumn| {
        let (least, most, count) = match &column.values {
            ColumnValues::Numbers(numbers) => {
                let known = || numbers.iter().copied().flatten();
                let (least, most) =
                    (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
                (least <= most).then(|| (plain(least), plain(most), known().count()))?
            }
            ColumnValues::Words { words, rows } => {
                let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).collect();
                let (first, last) = (shortened(words.first()?), shortened(words.last()?));
                let count = rows.len();
                match words.len() {
                    0..=8 => (first, last, count),
                    many => (first, format!("{many} in all"), count),
                }
            }
        };
        Some([column.name.clone(), least, most, count.to_string()].map(TableCell::from).to_vec())
    };
    let numbers = ["least, or first", "most, or last", "rows"].map(TableColumn::number);
    Table {
        label: "Columns of the sweep".to_owned(),
        caption: "All columns that are not empty. Names that end in _s are in seconds.".to_owned(),
        columns: [TableColumn::name("column")].into_iter().chain(numbers).collect(),
        rows: table.columns.iter().filter_map(row).collect(),
    }
}

/// Shortens a text so that the columns fit on the page.
fn shortened(word: &str) -> String {
    const MOST: usize = 28;
    match word.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.to_owned(),
    }
}

/// The messages of points without numbers, the most frequent first.
fn messages(table: &DataTable) -> Option<Table> {
    let ColumnValues::Words { words, rows } = &table.columns[table.index("message")?].values else {
        return None;
    };
    let mut counts = vec![0; words.len()];
    rows.iter().for_each(|row| counts[*row as usize] += 1);
    let mut known: Vec<_> = words.iter().zip(counts).filter(|(word, _)| !word.is_empty()).collect();
    known.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let row = |(word, count): &(&String, u64)| {
        vec![TableCell::from(count.to_string()), TableCell::from(word.as_str())]
    };
    (!known.is_empty()).then(|| Table {
        label: "Messages of points without numbers".to_owned(),
        caption: format!("The {MOST_MESSAGES} most frequent messages."),
        columns: vec![TableColumn::number("points"), TableColumn::wide("message")],
        rows: known.iter().take(MOST_MESSAGES).map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::per_second;

    #[test]
    fn rates_are_found_in_what_was_set() {
        assert_eq!(per_second("{\"poisson\":\"0.05 req/s\"}"), Some(0.05));
        assert_eq!(per_second("12 req/s"), Some(12.0));
        assert_eq!(per_second("steady"), None);
    }
}
