//! Serving, as a scenario writes it.
//!
//! ```yaml
//! workload: {concurrency: 32, requests: 640, prompt_tokens: 1024, output_tokens: 512}      # a closed loop
//! workload: {concurrency: 900, think_time: {mean: 20 s, cv: 1}, prompt_tokens: 1024, output_tokens: 512}  # of users who think
//! workload: {arrivals: {poisson: 5 req/s}, requests: 1000, prompt_tokens: {mean: 900, cv: 1}, output_tokens: {from: 16, to: 512}}
//! workload: {trace: azure_llm_2023_conv.csv, requests: 10000}
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::Section;
use crate::load::arrivals::{Arrivals, Length, Requests, ThinkTime};
use crate::load::request_trace::RequestTrace;
use crate::load::routing::Routing;
use crate::load::shift::{Change, Shift, read_shifts};
use crate::load::workload::Workload;
use crate::model::transformer::Model;
use hwprofiles::Seconds;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

const MOST_REQUESTS: u64 = 1 << 32;
const MOST_TOKENS: u64 = 1 << 32;

/// Serving: requests, and the engine that they go to.
#[derive(Debug, Clone, PartialEq)]
pub struct Serving {
    /// The requests.
    pub requests: Requests,
    /// Chooses arrivals and lengths that are random.
    pub seed: u64,
    /// Engines that share them, each on a machine of its own.
    pub replicas: u64,
    /// Which of them a request goes to.
    pub routing: Routing,
    /// What changes meanwhile.
    pub shifts: Vec<Shift>,
    /// Whether the engines go over to other plans when that helps.
    pub rebalance: bool,
}

impl Serving {
    /// A static batch like those that an engine will run: as many sequences as users, or [`BATCH`], of the mean lengths.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub(crate) fn alike(&self, model: &Model) -> Result<Workload, ScenarioError> {
        let (prompt, output) = match &self.requests {
            Requests::Trace { path, .. } => trace_means(path)?,
            Requests::Closed { prompt, output, .. } | Requests::Open { prompt, output, .. } => {
                (prompt.mean(), output.mean())
            }
        };
        let batch = match self.requests {
            // Of users who think, few wait for an answer.
            Requests::Closed { concurrency, think, .. } => {
                let most = if think == ThinkTime::NONE { u64::MAX } else { BATCH };
                concurrency.div_ceil(self.replicas).min(most)
            }
            _ => BATCH,
        };
        let whole = |tokens: f64| (tokens.ceil() as u64).clamp(1, model.max_positions / 2);
        Ok(Workload { batch, prompt_tokens: whole(prompt), output_tokens: whole(output), speculation: None })
    }
}

/// Of requests that come whenever they come.
const BATCH: u64 = 64;

/// Requests of a trace whose mean stands for all.
const LOOKED_AT: usize = 10_000;

fn trace_means(path: &Path) -> Result<(f64, f64), ScenarioError> {
    let unreadable = |reason| ScenarioError::Unreadable { path: path.to_owned(), reason };
    let file = BufReader::new(File::open(path).map_err(unreadable)?);
    let (mut sums, mut count) = ((0.0, 0.0), 0.0);
    for request in
        RequestTrace::new(file, &path.display().to_string()).map_err(ScenarioError::Trace)?.take(LOOKED_AT)
    {
        let request = request.map_err(ScenarioError::Trace)?;
        sums = (sums.0 + request.prompt_tokens as f64, sums.1 + request.output_tokens as f64);
        count += 1.0;
    }
    Ok((sums.0 / count, sums.1 / count))
}

const KEYS: [&str; 12] = [
    "concurrency",
    "think_time",
    "ramp",
    "arrivals",
    "trace",
    "requests",
    "prompt_tokens",
    "output_tokens",
    "speedup",
    "seed",
    "replicas",
    "router",
];

/// The serving workload of a section, where it is one, with what `root` says of its day; `folder` is where a trace's
/// relative path starts.
pub(crate) fn read_serving(
    root: &Section<'_>,
    section: &Section<'_>,
    folder: &Path,
) -> Result<Option<Serving>, ScenarioError> {
    let kinds = ["concurrency", "arrivals", "trace"];
    let (shifts, rebalance) = (read_shifts(root)?, root.flag("rebalance")?);
    let Some(kind) = kinds.into_iter().find(|kind| section.has(kind)) else {
        return match ["shifts", "rebalance"].into_iter().find(|key| root.has(key)) {
            Some(key) => Err(root.wrong(key, "only requests that come and go have a day: leave it out")),
            None => Ok(None),
        };
    };
    if kind == "concurrency" && shifts.iter().any(|shift| matches!(shift.change, Change::Busier(_))) {
        return Err(root.wrong(
            "shifts",
            "a closed loop has as many users as it has: busier goes with arrivals or a trace",
        ));
    }
    section.only(&KEYS)?;
    if let Some(other) = kinds.into_iter().find(|other| *other != kind && section.has(other)) {
        return Err(section.wrong(other, &format!("it goes not with {kind}: a workload is one or the other")));
    }
    let requests = section.count("requests", MOST_REQUESTS)?;
    let wanted = || requests.ok_or_else(|| section.missing("requests", "how many, all together"));
    let lengths =
        || Ok::<_, ScenarioError>((length(section, "prompt_tokens")?, length(section, "output_tokens")?));
    let source = match kind {
        "concurrency" => {
            let concurrency = section.count("concurrency", 1 << 20)?;
            let concurrency = concurrency.ok_or_else(|| section.missing("concurrency", "how many users"))?;
            let think = think_time(section)?;
            let ramp = section.quantity("ramp", ["a time", "30 s"], |time: &Seconds| time.get())?;
            let ramp = ramp.unwrap_or(think.mean());
            let (prompt, output) = lengths()?;
            let requests = requests.unwrap_or(20 * concurrency);
            Requests::Closed { concurrency, think, ramp, requests, prompt, output }
        }
        "arrivals" => {
            let arrivals = arrivals(section)?;
            let (prompt, output) = lengths()?;
            Requests::Open { arrivals, requests: wanted()?, prompt, output }
        }
        _ => {
            let path = section.text("trace")?.filter(|text| !text.is_empty());
            let path =
                path.ok_or_else(|| section.wrong("trace", "the path of a table of requests is wanted"))?;
            for key in ["prompt_tokens", "output_tokens"] {
                if section.has(key) {
                    return Err(section.wrong(key, "a trace says how long its requests are: leave it out"));
                }
            }
            let speedup = section.positive("speedup")?.unwrap_or(1.0);
            Requests::Trace { path: folder.join(path), requests, speedup }
        }
    };
    if kind != "concurrency"
        && let Some(key) = ["think_time", "ramp"].into_iter().find(|key| section.has(key))
    {
        return Err(section.wrong(key, "only users who wait for answers think: it goes with concurrency"));
    }
    if kind != "trace" && section.has("speedup") {
        return Err(section.wrong("speedup", "only a trace is sped up"));
    }
    let seed = section.count("seed", u64::MAX)?.unwrap_or(1);
    let replicas = section.count("replicas", 1 << 12)?.unwrap_or(1);
    let routing = routing(section)?;
    let rebalance = rebalance.unwrap_or(false);
    Ok(Some(Serving { requests: source, seed, replicas, routing, shifts, rebalance }))
}

fn routing(section: &Section<'_>) -> Result<Routing, ScenarioError> {
    let Some(text) = section.text("router")? else { return Ok(Routing::default()) };
    let known = Routing::ALL.map(Routing::name).join(", ");
    let named = Routing::ALL.into_iter().find(|routing| routing.name() == text);
    named.ok_or_else(|| section.wrong("router", &format!("one of {known} is wanted")))
}

/// `512`, `{from: 16, to: 512}` or `{mean: 900, cv: 1.2}`.
fn length(section: &Section<'_>, key: &str) -> Result<Length, ScenarioError> {
    const WANTED: &str =
        "tokens are wanted: a whole number above 0, {from: 16, to: 512}, or {mean: 900, cv: 1}";
    let wrong = || section.wrong(key, WANTED);
    let tokens = |value: &Value| value.as_u64().filter(|tokens| (1..=MOST_TOKENS).contains(tokens));
    match section.get(key) {
        None => Err(section.missing(key, WANTED)),
        Some(Value::Object(entries)) => {
            let only =
                |keys: [&str; 2]| entries.len() == 2 && keys.iter().all(|key| entries.contains_key(*key));
            let number = |key: &str| entries[key].as_f64().filter(|number| *number > 0.0);
            if only(["from", "to"]) {
                let ends = (tokens(&entries["from"]), tokens(&entries["to"]));
                let (Some(from), Some(to)) = ends else { return Err(wrong()) };
                return if from <= to { Ok(Length::Uniform { from, to }) } else { Err(wrong()) };
            }
            if only(["mean", "cv"]) {
                let (Some(mean), Some(cv)) = (number("mean"), number("cv")) else { return Err(wrong()) };
                let possible = (1.0..=MOST_TOKENS as f64).contains(&mean) && cv <= 10.0;
                return if possible { Ok(Length::LogNormal { mean, cv }) } else { Err(wrong()) };
            }
            Err(wrong())
        }
        Some(value) => tokens(value).map(Length::Fixed).ok_or_else(wrong),
    }
}

/// `20 s`, `{from: 5 s, to: 40 s}` or `{mean: 20 s, cv: 1}`; nobody thinks where nothing is said.
fn think_time(section: &Section<'_>) -> Result<ThinkTime, ScenarioError> {
    const WANTED: &str = "a time is wanted: 20 s, {from: 5 s, to: 40 s}, or {mean: 20 s, cv: 1}";
    const LONGEST: Seconds = Seconds::new(1e5);
    let time = |value: &Value| -> Option<Seconds> {
        let time: Seconds = value.as_str()?.parse().ok()?;
        (time >= Seconds::ZERO && time <= LONGEST).then_some(time)
    };
    let read = |value: &Value| -> Option<ThinkTime> {
        let Some(entries) = value.as_object() else { return time(value).map(ThinkTime::Fixed) };
        let of = |key: &str| entries.get(key).filter(|_| entries.len() == 2);
        if let (Some(from), Some(to)) = (of("from"), of("to")) {
            let (from, to) = (time(from)?, time(to)?);
            return (from <= to).then_some(ThinkTime::Uniform { from, to });
        }
        let (mean, cv) = (time(of("mean")?)?, of("cv")?.as_f64()?);
        let possible = mean > Seconds::ZERO && cv > 0.0 && cv <= 10.0;
        possible.then_some(ThinkTime::LogNormal { mean, cv })
    };
    match section.get("think_time") {
        None => Ok(ThinkTime::NONE),
        Some(value) => read(value).ok_or_else(|| section.wrong("think_time", WANTED)),
    }
}

/// `{poisson: 5 req/s}`, `{uniform: …}`, `{gamma: …, cv: 2}`, `{bursts: …, size: 8}`.
fn arrivals(section: &Section<'_>) -> Result<Arrivals, ScenarioError> {
    const WANTED: &str = "one of {poisson: 5 req/s}, {uniform: 5 req/s}, {gamma: 5 req/s, cv: 2} and \
                          {bursts: 5 req/s, size: 8} is wanted";
    let read = |entries: &Map<String, Value>| -> Option<Arrivals> {
        let rate = |key: &str| entries.get(key).and_then(rate);
        let number = |key: &str| entries.get(key)?.as_f64().filter(|number| (1e-3..=1e3).contains(number));
        let size = || entries.get("size")?.as_u64().filter(|size| (1..=1 << 20).contains(size));
        let (kind, keys) = entries.keys().next().map(|kind| (kind.as_str(), entries.len()))?;
        match (kind, keys) {
            ("poisson", 1) => Some(Arrivals::Poisson { rate: rate("poisson")? }),
            ("uniform", 1) => Some(Arrivals::Uniform { rate: rate("uniform")? }),
            (_, 2) if entries.contains_key("gamma") => {
                Some(Arrivals::Gamma { rate: rate("gamma")?, cv: number("cv")? })
            }
            (_, 2) if entries.contains_key("bursts") => {
                Some(Arrivals::Bursts { rate: rate("bursts")?, size: size()? })
            }
            _ => None,
        }
    };
    let entries = section.get("arrivals").and_then(Value::as_object);
    entries.and_then(read).ok_or_else(|| section.wrong("arrivals", WANTED))
}

/// `5 req/s`, or the number alone.
fn rate(value: &Value) -> Option<f64> {
    let number = match value {
        Value::String(text) => text.strip_suffix("req/s").or(text.strip_suffix("/s"))?.trim().parse().ok(),
        value => value.as_f64(),
    };
    number.filter(|rate: &f64| (1e-6..=1e8).contains(rate))
}
