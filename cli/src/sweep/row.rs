//! A point's row: what was set, what became of it, and the numbers.

use crate::exit::Failure;
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

/// The columns of a sweep's table.
pub struct Columns {
    keys: Vec<String>,
}

impl Columns {
    /// Those of a sweep that sets `keys`.
    pub fn of<'k>(keys: impl Iterator<Item = &'k str>) -> Self {
        Self { keys: keys.map(str::to_owned).collect() }
    }

    /// The table's first line.
    pub fn header(&self) -> String {
        let measures = MEASURES.map(|path| path.replace('/', "_"));
        let keys = self.keys.iter().map(|key| quoted(key));
        let first = ["point".to_owned()].into_iter().chain(keys);
        let middle = ["status", "message", "plan"].map(str::to_owned);
        let last = ["version", "inputs"].map(str::to_owned);
        first.chain(middle).chain(measures).chain(last).collect::<Vec<_>>().join(",")
    }

    /// The row of a point that has numbers.
    pub fn row<'v>(
        &self,
        index: u64,
        settings: impl Iterator<Item = Option<&'v Value>>,
        plan: &str,
        measures: &Value,
        inputs: &str,
    ) -> (Status, String) {
        let measure = |path: &&str| match measures.pointer(&format!("/{path}")) {
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let measures = MEASURES.iter().map(measure).collect::<Vec<_>>().join(",");
        let row = line(index, settings, [Status::Ok.name(), "", plan], &measures, inputs);
        (Status::Ok, row)
    }

    /// The row of a point that has none.
    pub fn failed<'v>(
        &self,
        index: u64,
        settings: impl Iterator<Item = Option<&'v Value>>,
        failure: &Failure,
        inputs: &str,
    ) -> (Status, String) {
        let status = match failure {
            Failure::Infeasible(_) => Status::Infeasible,
            Failure::Input(_) => Status::Invalid,
            Failure::Failed(_) => Status::Failed,
        };
        // One line: a row is one.
        let message = format!("{:#}", failure.error()).split_whitespace().collect::<Vec<_>>().join(" ");
        let none = ",".repeat(MEASURES.len() - 1);
        (status, line(index, settings, [status.name(), &message, ""], &none, inputs))
    }
}

fn line<'v>(
    index: u64,
    settings: impl Iterator<Item = Option<&'v Value>>,
    words: [&str; 3],
    measures: &str,
    inputs: &str,
) -> String {
    let settings = settings.map(|value| match value {
        None => String::new(),
        Some(Value::String(text)) => quoted(text),
        Some(value) => quoted(&value.to_string()),
    });
    let words = words.into_iter().map(quoted);
    let first: Vec<_> = [index.to_string()].into_iter().chain(settings).chain(words).collect();
    format!("{},{measures},{},{inputs}", first.join(","), env!("CARGO_PKG_VERSION"))
}

/// A cell of CSV.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ') {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
