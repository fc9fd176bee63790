//! A point's row: what was set, what became of it, and the numbers.

use crate::exit::Failure;
use crate::table_file::Kind;
use serde_json::Value;

/// What became of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It has numbers.
    Ok,
    /// Nothing satisfies its constraints.
    Infeasible,
    /// Something is wrong with what was set.
    Invalid,
    /// Something went wrong.
    Failed,
}

impl Status {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Infeasible, Self::Invalid, Self::Failed];

    /// As tables write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Infeasible => "infeasible",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
        }
    }
}

/// The numbers of a row, each where it stands in a served day's JSON; a static batch has those that it can have. `metrics.md`
/// defines them.
const MEASURES: [&str; 37] = [
    "requests/completed",
    "requests/rejected",
    "duration_s",
    "ttft_s/mean",
    "ttft_s/p50",
    "ttft_s/p90",
    "ttft_s/p95",
    "ttft_s/p99",
    "ttft_s/max",
    "tpot_s/mean",
    "tpot_s/p50",
    "tpot_s/p90",
    "tpot_s/p95",
    "tpot_s/p99",
    "tpot_s/max",
    "itl_s/mean",
    "itl_s/p50",
    "itl_s/p99",
    "itl_s/max",
    "e2el_s/mean",
    "e2el_s/p50",
    "e2el_s/p90",
    "e2el_s/p95",
    "e2el_s/p99",
    "e2el_s/max",
    "requests_per_s",
    "output_tokens_per_s",
    "goodput_per_s",
    "slo_attainment",
    "busy_share",
    "mean_batch",
    "preemptions",
    "cached_share",
    "mfu",
    "mbu",
    "energy_j",
    "cost",
];

/// What became of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// In a word.
    pub status: Status,
    /// Its cells from the status to the last number.
    pub tail: String,
}

impl Answer {
    /// That of a point that has numbers.
    pub fn of(plan: &str, measures: &Value) -> Self {
        let measure = |path: &&str| match measures.pointer(&format!("/{path}")) {
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let measures = MEASURES.iter().map(measure).collect::<Vec<_>>().join(",");
        Self::told([Status::Ok.name(), "", plan], Status::Ok, &measures)
    }

    /// That of a point that has none.
    pub fn failed(failure: &Failure) -> Self {
        let status = match failure {
            Failure::Infeasible(_) => Status::Infeasible,
            Failure::Input(_) => Status::Invalid,
            Failure::Failed(_) => Status::Failed,
        };
        let none = ",".repeat(MEASURES.len() - 1);
        Self::told([status.name(), &format!("{:#}", failure.error()), ""], status, &none)
    }

    /// Whether it has numbers, and that share of its requests keeps the limits where they have some.
    pub fn keeps(&self, share: f64) -> bool {
        let attainment = || cells(&self.tail).get(ATTAINMENT).and_then(|cell| cell.parse::<f64>().ok());
        self.status == Status::Ok && attainment().is_none_or(|kept| kept >= share)
    }

    fn told(words: [&str; 3], status: Status, measures: &str) -> Self {
        Self { status, tail: format!("{},{measures}", words.map(|word| quoted(&one_line(word))).join(",")) }
    }
}

/// Where the share of requests that keep the limits stands among an answer's cells, behind status, message and plan.
const ATTAINMENT: usize = 3 + 28;

/// The columns of a sweep's table.
pub struct Columns {
    /// The keys that are set, and whether all their values are numbers.
    keys: Vec<(String, bool)>,
}

impl Columns {
    /// Those of a sweep that sets these keys: their names, and whether all their values are numbers.
    pub fn of(keys: Vec<(String, bool)>) -> Self {
        Self { keys }
    }

    /// Their names, and what is in them.
    pub fn named(&self) -> Vec<(String, Kind)> {
        let key =
            |(key, numbers): &(String, bool)| (key.clone(), if *numbers { Kind::Number } else { Kind::Text });
        let texts =
            |names: &[&str]| names.iter().map(|name| (name.to_string(), Kind::Text)).collect::<Vec<_>>();
        let mut all = vec![("point".to_owned(), Kind::Count)];
        all.extend(self.keys.iter().map(key));
        all.extend(texts(&["status", "message", "plan"]));
        all.extend(MEASURES.map(|path| (path.replace('/', "_"), Kind::Number)));
        all.extend(texts(&["version", "inputs"]));
        all
    }

    /// The table's first line.
    pub fn header(&self) -> String {
        self.named().iter().map(|(name, _)| quoted(name)).collect::<Vec<_>>().join(",")
    }

    /// The row of a point: what was set, what became of it, and from which inputs.
    pub fn row<'v>(
        &self,
        index: u64,
        settings: impl Iterator<Item = Option<&'v Value>>,
        answer: &Answer,
        inputs: &str,
    ) -> String {
        let settings = settings.map(|value| match value {
            None => String::new(),
            Some(Value::String(text)) => quoted(&one_line(text)),
            Some(value) => quoted(&value.to_string()),
        });
        let first: Vec<_> = [index.to_string()].into_iter().chain(settings).collect();
        format!("{},{},{},{inputs}", first.join(","), answer.tail, env!("CARGO_PKG_VERSION"))
    }
}

/// A row is one line.
fn one_line(text: &str) -> String {
    match text.contains(['\n', '\r']) {
        true => text.split_whitespace().collect::<Vec<_>>().join(" "),
        false => text.to_owned(),
    }
}

/// A cell of CSV.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ') {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The cells of a row as [`Columns::row`] writes it.
pub fn cells(row: &str) -> Vec<String> {
    let (mut cells, mut within, mut rest) = (vec![String::new()], false, row.chars().peekable());
    while let Some(c) = rest.next() {
        match c {
            '"' if within && rest.peek() == Some(&'"') => {
                rest.next();
                cells.last_mut().expect("there is one").push('"');
            }
            '"' => within = !within,
            ',' if !within => cells.push(String::new()),
            c => cells.last_mut().expect("there is one").push(c),
        }
    }
    cells
}
