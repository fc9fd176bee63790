//! A point's row: its settings, its status, and its numbers.

use crate::error::Error;
use crate::table::{ColumnType, cells, one_line, quoted};
use serde_json::Value;

/// What came of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointStatus {
    /// It has numbers.
    Ok,
    /// Nothing satisfies its constraints.
    Infeasible,
    /// Something is wrong with its settings.
    Invalid,
    /// Something went wrong.
    Failed,
}

impl PointStatus {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 4] = [Self::Ok, Self::Infeasible, Self::Invalid, Self::Failed];

    /// The status as tables write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Infeasible => "infeasible",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
        }
    }
}

/// The numbers of a row, each by its path in a served day's JSON. A static batch has some of them.
/// `reports/metrics.md` defines them.
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

/// The share of requests that keep the limits, among [`MEASURES`].
const ATTAINMENT: &str = "slo_attainment";

/// The columns of an answer in front of its numbers.
const WORDS: [&str; 3] = ["status", "message", "plan"];

/// What came of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PointAnswer {
    /// Its status.
    pub(crate) status: PointStatus,
    /// Its cells from the status to the last number, as CSV.
    pub(crate) cells: String,
}

impl PointAnswer {
    /// The answer of a point that has numbers.
    pub(crate) fn from_measures(plan: &str, measures: &Value) -> Self {
        let measure = |path: &&str| match measures.pointer(&format!("/{path}")) {
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let numbers = MEASURES.iter().map(measure).collect::<Vec<_>>().join(",");
        Self::new([PointStatus::Ok.name(), "", plan], PointStatus::Ok, &numbers)
    }

    /// The answer of a point that has none.
    pub(crate) fn from_error(error: &Error) -> Self {
        let status = match error {
            Error::Infeasible(_) => PointStatus::Infeasible,
            Error::Input(_) => PointStatus::Invalid,
            Error::Failed(_) => PointStatus::Failed,
        };
        let no_numbers = ",".repeat(MEASURES.len() - 1);
        Self::new([status.name(), &error.to_string(), ""], status, &no_numbers)
    }

    fn new(words: [&str; WORDS.len()], status: PointStatus, numbers: &str) -> Self {
        let words = words.map(|word| quoted(&one_line(word))).join(",");
        Self { status, cells: format!("{words},{numbers}") }
    }

    /// Says something of a point that has numbers, where messages of the others stand.
    pub(crate) fn note(&mut self, message: &str) {
        let begins = format!("{},,", PointStatus::Ok.name());
        if let Some(rest) = self.cells.strip_prefix(&begins) {
            self.cells = format!("{},{},{rest}", PointStatus::Ok.name(), quoted(&one_line(message)));
        }
    }

    /// Whether it has numbers, and this share of its requests keeps the limits where it has some.
    pub(crate) fn keeps(&self, share: f64) -> bool {
        let place = MEASURES.iter().position(|path| *path == ATTAINMENT);
        let place = WORDS.len() + place.expect("it is among the measures");
        let attainment = || cells(&self.cells).get(place).and_then(|cell| cell.parse::<f64>().ok());
        self.status == PointStatus::Ok && attainment().is_none_or(|kept| kept >= share)
    }
}

/// The columns of a sweep's table.
pub(crate) struct SweepColumns {
    /// The keys that are set, and whether all their values are numbers.
    keys: Vec<(String, bool)>,
}

impl SweepColumns {
    /// The columns of a sweep that sets these keys: their names, and whether all their values are
    /// numbers.
    pub(crate) fn new(keys: Vec<(String, bool)>) -> Self {
        Self { keys }
    }

    /// The keys that are set.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.keys.iter().map(|(key, _)| &**key)
    }

    /// The names of the columns, and what they hold.
    pub(crate) fn named(&self) -> Vec<(String, ColumnType)> {
        let of_key = |(key, numbers): &(String, bool)| {
            (key.clone(), if *numbers { ColumnType::Number } else { ColumnType::Text })
        };
        let texts = |names: &[&str]| {
            names.iter().map(|name| (name.to_string(), ColumnType::Text)).collect::<Vec<_>>()
        };
        let mut all = vec![("point".to_owned(), ColumnType::Count)];
        all.extend(self.keys.iter().map(of_key));
        all.extend(texts(&WORDS));
        all.extend(MEASURES.map(|path| (path.replace('/', "_"), ColumnType::Number)));
        all.extend(texts(&["version", "inputs"]));
        all
    }

    /// The table's first line.
    pub(crate) fn header(&self) -> String {
        self.named().iter().map(|(name, _)| quoted(name)).collect::<Vec<_>>().join(",")
    }

    /// The row of a point: its settings, its answer, and the digest of its inputs.
    pub(crate) fn row<'v>(
        &self,
        index: u64,
        settings: impl Iterator<Item = Option<&'v Value>>,
        answer: &PointAnswer,
        inputs: &str,
    ) -> String {
        let settings = settings.map(|value| match value {
            None => String::new(),
            Some(Value::String(text)) => quoted(&one_line(text)),
            Some(value) => quoted(&value.to_string()),
        });
        let first: Vec<_> = [index.to_string()].into_iter().chain(settings).collect();
        format!("{},{},{},{inputs}", first.join(","), answer.cells, env!("CARGO_PKG_VERSION"))
    }
}
