//! The section of a sweep: its keys, its results, and a table to explore.

use crate::numbers::format::{counted, duration, plain, whole_percent};
use crate::page::block::{NumberTile, PageBlock, Plot, Table, TableCell, TableColumn};
use crate::page::explorer::Explorer;
use crate::page::section::PageSection;
use crate::plots::chart::{AxisScale, Chart, PlotPoint, PlotSeries, TickFormat};
use crate::plots::legend::tick_label;
use crate::results::data_table::{ColumnValues, DataTable};
use hwprofiles::Seconds;
use std::cmp::Ordering;

/// A chart has at most this many lines. The explorer shows the rest.
const MOST_LINES: usize = 6;
/// At most this many messages of failed points are listed.
const MOST_MESSAGES: usize = 20;

/// Measures that are drawn: their columns, and their titles.
type DrawnMeasures = &'static [(&'static str, &'static str)];

/// Against the load in a sweep of serving.
const AGAINST_LOAD: DrawnMeasures = &[
    ("slo_attainment", "Requests within the limits"),
    ("goodput_per_s", "Goodput, requests per second"),
    ("ttft_s_p95", "TTFT, 95th percentile"),
    ("tpot_s_p95", "TPOT, 95th percentile"),
];

/// Against a number in a sweep of batches.
const AGAINST_NUMBER: DrawnMeasures =
    &[("output_tokens_per_s", "Output tokens per second"), ("ttft_s_mean", "TTFT, time to first token")];

/// What the best rows have, and whether most of it is best.
const BEST: [(&str, &str, bool); 7] = [
    ("output_tokens_per_s", "most output tokens/s", true),
    ("goodput_per_s", "most goodput, requests/s", true),
    ("ttft_s_mean", "least TTFT", false),
    ("tpot_s_mean", "least TPOT", false),
    ("ttft_s_p95", "least TTFT, 95th percentile", false),
    ("energy_j", "least energy", false),
    ("cost", "least cost", false),
];

/// What is said of a table that was copied without its stamp, or is somebody's own.
const UNSTAMPED: &str = "There is no stamp beside this table: whether it is whole and as it was written, \
                         nobody can tell. Copy the file that ends in .stamp with it.";

/// The section of a table; `unstamped` where nothing beside it says how it was written.
pub(crate) fn section(table: &DataTable, unstamped: bool) -> PageSection {
    let keys = keys(table);
    let mut blocks = Vec::new();
    if unstamped {
        blocks.push(PageBlock::Note(UNSTAMPED.to_owned()));
    }
    if table.rows == 0 {
        blocks.push(PageBlock::Note("There is no point in this sweep.".to_owned()));
    }
    blocks.push(PageBlock::Tiles(
        statuses(table)
            .into_iter()
            .map(|(status, count)| NumberTile::new(&status, count.to_string()))
            .collect(),
    ));
    if table.rows > 1 {
        blocks.extend(best_rows(table, &keys).map(PageBlock::Table));
    }
    let drawn = match loads(table, &keys) {
        Some((load, values)) => Some((load, curves(table, &keys, (load, &values), AGAINST_LOAD))),
        None => varied_number(table, &keys)
            .map(|(key, values)| (key, curves(table, &keys, (key, values), AGAINST_NUMBER))),
    };
    if let Some((key, curves)) = drawn.filter(|(_, curves)| !curves.is_empty()) {
        blocks.push(PageBlock::Heading(format!("Against {key}")));
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

/// The first key with several numbers.
fn varied_number<'t>(table: &'t DataTable, keys: &[&'t str]) -> Option<(&'t str, &'t [Option<f64>])> {
    let numbers = keys.iter().filter_map(|key| Some((*key, table.numbers(key)?)));
    numbers.into_iter().find(|(_, values)| values.iter().any(|it| *it != values[0]))
}

/// A table of the best row by each measure: its keys, its placement, and the measure.
fn best_rows(table: &DataTable, keys: &[&str]) -> Option<Table> {
    let shown: Vec<_> = keys.iter().copied().chain(["plan"]).filter_map(|it| table.index(it)).collect();
    let best = |&(column, title, most): &(&str, &str, bool)| {
        let values = table.numbers(column)?;
        let known = (0..table.rows).filter_map(|row| Some((row, values[row]?)));
        let better =
            |a: &(usize, f64), b: &(usize, f64)| if most { b.1.total_cmp(&a.1) } else { a.1.total_cmp(&b.1) };
        let (row, value) = known.min_by(better)?;
        let cells = shown.iter().map(|column| shortened(&table.text(*column, row)));
        let shown = match column {
            "ttft_s_mean" | "tpot_s_mean" | "ttft_s_p95" => duration(Seconds::new(value)),
            "energy_j" => format!("{} J", plain(value)),
            _ => plain(value),
        };
        let cells = [title.to_owned()].into_iter().chain(cells).chain([shown]);
        Some(cells.map(TableCell::from).collect::<Vec<_>>())
    };
    let rows: Vec<_> = BEST.iter().filter_map(best).collect();
    let columns = shown.iter().map(|column| TableColumn::text(&table.columns[*column].name));
    (!rows.is_empty()).then(|| Table {
        label: "The best points".to_owned(),
        caption: "The best point by each measure.".to_owned(),
        columns: [TableColumn::name("best by")]
            .into_iter()
            .chain(columns)
            .chain([TableColumn::number("value")])
            .collect(),
        rows,
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
fn curves(
    table: &DataTable,
    keys: &[&str],
    (load, loads): (&str, &[Option<f64>]),
    measures: DrawnMeasures,
) -> Vec<Plot> {
    let others: Vec<_> = keys.iter().filter(|key| **key != load).filter_map(|key| table.index(key)).collect();
    // In the order of the table, which is that of the lists.
    let mut groups: Vec<(Vec<String>, Vec<usize>)> = Vec::new();
    for row in (0..table.rows).filter(|row| loads[*row].is_some()) {
        let names: Vec<_> = others.iter().map(|column| table.text(*column, row)).collect();
        match groups.iter_mut().find(|(known, _)| *known == names) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((names, vec![row])),
        }
        if groups.len() > MOST_LINES {
            return vec![];
        }
    }
    let charts = measures.iter().filter_map(|&(measure, title)| {
        let values = table.numbers(measure)?;
        let (scale, write): (_, TickFormat) = match measure {
            "slo_attainment" => (AxisScale::linear("", whole_percent), whole_percent),
            "goodput_per_s" | "output_tokens_per_s" => (AxisScale::linear("", plain), plain),
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
        Some(Plot::fitting(format!("curve-{measure}"), chart.draw()))
    });
    charts.collect()
}

/// The initial view: the first key with several numbers, the output rate, and the next key.
fn explorer(table: &DataTable, keys: &[&str]) -> Explorer {
    let several = |key: &&&str| match table.index(key).map(|it| &table.columns[it].values) {
        Some(ColumnValues::Numbers(numbers)) => numbers.iter().any(|it| *it != numbers[0]),
        Some(ColumnValues::Words { words, .. }) => words.len() > 1,
        None => false,
    };
    let varied: Vec<_> = keys.iter().filter(several).copied().collect();
    let measure = ["output_tokens_per_s", "tpot_s_mean", "ttft_s_mean", "duration_s"]
        .into_iter()
        .find(|it| table.numbers(it).is_some());
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
    use super::{best_rows, per_second};
    use crate::results::data_table::DataTable;
    use std::path::Path;

    #[test]
    fn the_best_point_of_each_measure_is_named_by_its_keys() {
        let text = "point,batch,status,output_tokens_per_s,ttft_s_mean\n0,1,ok,5,0.25\n1,8,ok,40,2\n2,64,infeasible,,\n";
        let table = DataTable::from_csv(text, Path::new("sweep.csv")).expect("a table");
        let best = best_rows(&table, &["batch"]).expect("two measures");
        let words: Vec<Vec<_>> =
            best.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect()).collect();
        assert_eq!(words, [["most output tokens/s", "8", "40"], ["least TTFT", "1", "250 ms"]]);
    }

    #[test]
    fn rates_are_found_in_what_was_set() {
        assert_eq!(per_second("{\"poisson\":\"0.05 req/s\"}"), Some(0.05));
        assert_eq!(per_second("12 req/s"), Some(12.0));
        assert_eq!(per_second("steady"), None);
    }
}
