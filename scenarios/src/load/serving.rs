//! Serving workloads: requests that arrive over time, and the replicas that answer them.
//!
//! ```yaml
//! # A closed loop of users.
//! workload: {concurrency: 32, requests: 640, prompt_tokens: 1024, output_tokens: 512}
//! # A closed loop of users who think between an answer and the next request.
//! workload:
//!   {concurrency: 900, think_time: {mean: 20 s, cv: 1}, prompt_tokens: 1024, output_tokens: 512}
//! # An open loop.
//! workload:
//!   arrivals: {poisson: 5 req/s}
//!   requests: 1000
//!   prompt_tokens: {mean: 900, cv: 1}
//!   output_tokens: {from: 16, to: 512}
//! # A recorded trace.
//! workload: {trace: azure_llm_2023_conv.csv, requests: 10000}
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::load::arrivals::{Arrivals, Length, Requests, ThinkTime};
use crate::load::request_trace::RequestTrace;
use crate::load::routing::Routing;
use crate::load::shift::{Shift, ShiftChange, read_shifts};
use crate::load::token_count::{MAX_TOKENS, tokens_of};
use crate::load::workload::{Misfit, Workload};
use crate::model::transformer::Model;
use hwprofiles::{BytesPerSec, RequestsPerSec, Seconds};
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::BufReader;
use std::path::Path;

const MAX_REQUESTS: u64 = 1 << 32;
const MAX_BEAMS: u64 = 64;

/// A serving workload: requests, and the replicas that they go to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Serving {
    /// The requests.
    pub requests: Requests,
    /// How many different prompts the requests draw from, in turn. `None` if all are different,
    /// or a trace says which begin alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct_prompts: Option<u64>,
    /// Prompts that were asked before the first request, the oldest first. The KV cache has those
    /// of them that it has room for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked_before: Vec<EarlierPrompts>,
    /// Sequences that a beam search keeps of each answer; 1 without a search.
    #[serde(skip_serializing_if = "crate::model::experts::is_one")]
    pub beams: u64,
    /// How many of the engines compute prompts only and hand them over to the others; several
    /// numbers to choose from. Empty if all engines do both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefill_engines: Vec<u64>,
    /// The rate at which the KV cache goes from one engine to another. `None` for engines on GPUs
    /// of one machine, whose link is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_link: Option<BytesPerSec>,
    /// Seed of random arrivals and lengths.
    pub seed: u64,
    /// Replicas of the engine, each on its own machine.
    pub replicas: u64,
    /// How requests are distributed among the replicas.
    pub routing: Routing,
    /// Changes of machine or load during the run.
    pub shifts: Vec<Shift>,
    /// Whether engines may switch to another plan during the run.
    pub rebalance: bool,
}

impl Serving {
    /// A static batch that resembles the batches that an engine will run: one sequence for each
    /// user, or [`TYPICAL_BATCH`] sequences, with the mean lengths.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub(crate) fn representative_batch(&self, model: &Model) -> Result<Workload, ScenarioError> {
        let (prompt, output) = match &self.requests {
            Requests::Trace { path, .. } => trace_means(path)?,
            Requests::Closed { prompt, output, .. } | Requests::Open { prompt, output, .. } => {
                (prompt.mean(), output.mean())
            }
        };
        let batch = match self.requests {
            // Only a few of the users who think wait for an answer at any time.
            Requests::Closed { concurrency, think, .. } => {
                let users = concurrency.div_ceil(self.replicas);
                if think == ThinkTime::NONE { users } else { users.min(TYPICAL_BATCH) }
            }
            _ => TYPICAL_BATCH,
        };
        let whole = |tokens: f64| (tokens.ceil() as u64).clamp(1, model.max_positions / 2);
        Ok(Workload { batch, prompt_tokens: whole(prompt), output_tokens: whole(output), speculation: None })
    }

    /// The length of prompts with which no request fits into the positions of `model`.
    pub(crate) fn misfit(&self, model: &Model) -> Option<Misfit> {
        let (Requests::Closed { prompt, output, .. } | Requests::Open { prompt, output, .. }) =
            &self.requests
        else {
            return None;
        };
        let [prompt, output] = [prompt, output].map(Length::least);
        let tokens = prompt.saturating_add(output);
        let wanted = format!(
            "with output_tokens {output} every request has {tokens} tokens or more, and {} has {} positions",
            model.name, model.max_positions
        );
        (tokens > model.max_positions).then(|| Misfit::new("prompt_tokens", prompt, wanted))
    }
}

/// Prompts of an earlier load: the beginnings of as many of the requests' prompts, from the first
/// one on, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EarlierPrompts {
    /// How many.
    pub prompts: u64,
    /// Tokens of each.
    pub tokens: u64,
}

/// Sequences of the representative batch of requests that arrive over time.
const TYPICAL_BATCH: u64 = 64;

/// The means of a trace are those of its first requests, this many.
const TRACE_SAMPLE: usize = 10_000;

/// Mean prompt and output tokens of a trace.
fn trace_means(path: &Path) -> Result<(f64, f64), ScenarioError> {
    let unreadable = |reason| ScenarioError::Unreadable { path: path.to_owned(), reason };
    let file = BufReader::new(hwprofiles::open_input(path).map_err(unreadable)?);
    let (mut sums, mut count) = ((0.0, 0.0), 0.0);
    for request in
        RequestTrace::new(file, &path.display().to_string()).map_err(ScenarioError::Trace)?.take(TRACE_SAMPLE)
    {
        let request = request.map_err(ScenarioError::Trace)?;
        sums = (sums.0 + request.prompt_tokens as f64, sums.1 + request.output_tokens as f64);
        count += 1.0;
    }
    Ok((sums.0 / count, sums.1 / count))
}

const KEYS: [&str; 17] = [
    "concurrency",
    "think_time",
    "ramp",
    "arrivals",
    "trace",
    "requests",
    "distinct_prompts",
    "asked_before",
    "beams",
    "prefill_engines",
    "kv_link",
    "prompt_tokens",
    "output_tokens",
    "speedup",
    "seed",
    "replicas",
    "router",
];

/// Refuses a workload of requests that does not say how they come.
fn require_arrivals(section: &DocumentSection<'_>) -> Result<(), ScenarioError> {
    const HOW: &str = "write how requests come: `arrivals: {poisson: 12 req/s}` at a rate, `concurrency: 32` from users \
                       who wait for their answers, or `trace: FILE`";
    const OTHER_WORDS: [&str; 7] =
        ["rate", "request_rate", "qps", "rps", "users", "clients", "max_concurrency"];
    // A static batch has lengths too.
    let lengths = ["prompt_tokens", "output_tokens"];
    let mut of_requests = KEYS.into_iter().filter(|key| !lengths.contains(key)).chain(OTHER_WORDS);
    match of_requests.find(|key| !section.has("batch") && section.has(key)) {
        Some(key) => Err(section.wrong(key, HOW)),
        None => Ok(()),
    }
}

/// Reads a serving workload from `workload`, and its `shifts` and `rebalance` from the root; `None`
/// if the workload is of another kind. A trace's relative path starts at `folder`.
pub(crate) fn read_serving(
    root: &DocumentSection<'_>,
    section: &DocumentSection<'_>,
    folder: &Path,
) -> Result<Option<Serving>, ScenarioError> {
    let kinds = ["concurrency", "arrivals", "trace"];
    let (shifts, rebalance) = (read_shifts(root)?, root.flag("rebalance")?);
    let Some(kind) = kinds.into_iter().find(|kind| section.has(kind)) else {
        require_arrivals(section)?;
        return match ["shifts", "rebalance"].into_iter().find(|key| root.has(key)) {
            Some(key) => Err(root.wrong(key, "it goes with a serving workload only: leave it out")),
            None => Ok(None),
        };
    };
    if kind == "concurrency" && shifts.iter().any(|shift| matches!(shift.change, ShiftChange::Busier(_))) {
        return Err(root.wrong(
            "shifts",
            "the number of users in a closed loop is fixed: busier goes with arrivals or a trace",
        ));
    }
    if let Some(other) = kinds.into_iter().chain(["batch"]).find(|other| *other != kind && section.has(other))
    {
        return Err(
            section.wrong(other, &format!("it does not go with {kind}: a workload has one or the other"))
        );
    }
    section.only(&KEYS)?;
    let requests = read_requests(section, kind, folder)?;
    let distinct_prompts = section.count("distinct_prompts", MAX_REQUESTS)?;
    if kind == "trace" && distinct_prompts.is_some() {
        return Err(section.wrong("distinct_prompts", "a trace says which prompts begin alike: leave it out"));
    }
    let asked_before = read_asked_before(section)?;
    if !asked_before.is_empty()
        && let Some(other) = ["trace", "prefill_engines"].into_iter().find(|key| section.has(key))
    {
        return Err(section.wrong("asked_before", &format!("it does not go with {other}: leave one out")));
    }
    let beams = section.count("beams", MAX_BEAMS)?.unwrap_or(1);
    let prefill_engines = section.counts("prefill_engines", 1 << 12)?.unwrap_or_default();
    let kv_link = section.quantity("kv_link", ["a bandwidth", "50 GB/s"], |rate: &BytesPerSec| rate.get())?;
    let seed = section.count("seed", u64::MAX)?.unwrap_or(1);
    let replicas = section.count("replicas", 1 << 12)?.unwrap_or(1);
    let routing = routing(section)?;
    let rebalance = rebalance.unwrap_or(false);
    Ok(Some(Serving {
        requests,
        distinct_prompts,
        asked_before,
        beams,
        prefill_engines,
        kv_link,
        seed,
        replicas,
        routing,
        shifts,
        rebalance,
    }))
}

/// Reads `asked_before: {prompts: 320, prompt_tokens: 1024}`, or a list of such loads.
fn read_asked_before(section: &DocumentSection<'_>) -> Result<Vec<EarlierPrompts>, ScenarioError> {
    let loads = match section.get("asked_before") {
        None => return Ok(Vec::new()),
        Some(Value::Array(loads)) => loads.as_slice(),
        Some(load) => std::slice::from_ref(load),
    };
    let read = |load: &Value| {
        let load = load.as_object().filter(|load| load.len() == 2)?;
        let count = |key: &str, most: u64| load.get(key)?.as_u64().filter(|count| (1..=most).contains(count));
        Some(EarlierPrompts {
            prompts: count("prompts", MAX_EARLIER)?,
            tokens: count("prompt_tokens", MAX_TOKENS)?,
        })
    };
    let loads: Option<Vec<_>> = loads.iter().map(read).collect();
    loads.ok_or_else(|| {
        section.wrong("asked_before", "{prompts: 320, prompt_tokens: 1024} or a list of such loads is wanted")
    })
}

/// The most prompts of an earlier load.
const MAX_EARLIER: u64 = 1 << 20;

/// Reads the requests of a serving workload whose distinguishing key is `kind`.
fn read_requests(
    section: &DocumentSection<'_>,
    kind: &str,
    folder: &Path,
) -> Result<Requests, ScenarioError> {
    let count = section.count("requests", MAX_REQUESTS)?;
    let wanted = || count.ok_or_else(|| section.missing("requests", "how many, all together"));
    let lengths =
        || Ok::<_, ScenarioError>((length(section, "prompt_tokens")?, length(section, "output_tokens")?));
    let requests = match kind {
        "concurrency" => {
            let concurrency = section.count("concurrency", 1 << 20)?;
            let concurrency = concurrency.ok_or_else(|| section.missing("concurrency", "how many users"))?;
            let think = think_time(section)?;
            let ramp = section.quantity("ramp", ["a time", "30 s"], |time: &Seconds| time.get())?;
            let ramp = ramp.unwrap_or(think.mean());
            let (prompt, output) = lengths()?;
            let requests = count.unwrap_or(20 * concurrency);
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
            Requests::Trace { path: folder.join(path), requests: count, speedup }
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
    Ok(requests)
}

/// Reads `router`.
fn routing(section: &DocumentSection<'_>) -> Result<Routing, ScenarioError> {
    let Some(text) = section.text("router")? else { return Ok(Routing::default()) };
    let known = Routing::ALL.map(Routing::name).join(", ");
    let named = Routing::ALL.into_iter().find(|routing| routing.name() == text);
    named.ok_or_else(|| section.wrong("router", &format!("one of {known} is wanted")))
}

/// Reads `512`, `{from: 16, to: 512}` or `{mean: 900, cv: 1.2}`.
fn length(section: &DocumentSection<'_>, key: &str) -> Result<Length, ScenarioError> {
    const WANTED: &str =
        "tokens are wanted: a whole number above 0, 32k, {from: 16, to: 512}, or {mean: 900, cv: 1}";
    let wrong = || section.wrong(key, WANTED);
    match section.get(key) {
        None => Err(section.missing(key, WANTED)),
        Some(Value::Object(entries)) => {
            let only =
                |keys: [&str; 2]| entries.len() == 2 && keys.iter().all(|key| entries.contains_key(*key));
            let number = |key: &str| entries[key].as_f64().filter(|number| *number > 0.0);
            if only(["from", "to"]) {
                let ends = (tokens_of(&entries["from"]), tokens_of(&entries["to"]));
                let (Some(from), Some(to)) = ends else { return Err(wrong()) };
                return if from <= to { Ok(Length::Uniform { from, to }) } else { Err(wrong()) };
            }
            if only(["mean", "cv"]) {
                let (Some(mean), Some(cv)) = (number("mean"), number("cv")) else { return Err(wrong()) };
                let possible = (1.0..=MAX_TOKENS as f64).contains(&mean) && cv <= 10.0;
                return if possible { Ok(Length::LogNormal { mean, cv }) } else { Err(wrong()) };
            }
            Err(wrong())
        }
        Some(value) => tokens_of(value).map(Length::Fixed).ok_or_else(wrong),
    }
}

/// Reads `20 s`, `{from: 5 s, to: 40 s}` or `{mean: 20 s, cv: 1}`; an absent key means no time.
fn think_time(section: &DocumentSection<'_>) -> Result<ThinkTime, ScenarioError> {
    const WANTED: &str = "a time is wanted: 20 s, {from: 5 s, to: 40 s}, or {mean: 20 s, cv: 1}";
    const MAX_TIME: Seconds = Seconds::new(1e5);
    let time = |value: &Value| -> Option<Seconds> {
        let time: Seconds = value.as_str()?.parse().ok()?;
        (time >= Seconds::ZERO && time <= MAX_TIME).then_some(time)
    };
    let read = |value: &Value| -> Option<ThinkTime> {
        let Some(entries) = value.as_object() else { return time(value).map(ThinkTime::Fixed) };
        let value = |key: &str| entries.get(key).filter(|_| entries.len() == 2);
        if let (Some(from), Some(to)) = (value("from"), value("to")) {
            let (from, to) = (time(from)?, time(to)?);
            return (from <= to).then_some(ThinkTime::Uniform { from, to });
        }
        let (mean, cv) = (time(value("mean")?)?, value("cv")?.as_f64()?);
        let possible = mean > Seconds::ZERO && cv > 0.0 && cv <= 10.0;
        possible.then_some(ThinkTime::LogNormal { mean, cv })
    };
    match section.get("think_time") {
        None => Ok(ThinkTime::NONE),
        Some(value) => read(value).ok_or_else(|| section.wrong("think_time", WANTED)),
    }
}

/// Reads `{poisson: 5 req/s}`, `{uniform: …}`, `{gamma: …, cv: 2}` or `{bursts: …, size: 8}`.
fn arrivals(section: &DocumentSection<'_>) -> Result<Arrivals, ScenarioError> {
    const WANTED: &str = "one of {poisson: 5 req/s}, {uniform: 5 req/s}, {gamma: 5 req/s, cv: 2} and \
                          {bursts: 5 req/s, size: 8} is wanted";
    let read = |entries: &Map<String, Value>| -> Option<Arrivals> {
        let rate = |key: &str| entries.get(key).and_then(|value| rate(value).ok());
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
    for kind in ["poisson", "uniform", "gamma", "bursts"] {
        if let Some(Err(wanted)) = entries.and_then(|entries| entries.get(kind)).map(rate) {
            return Err(section.wrong(&format!("arrivals.{kind}"), &wanted));
        }
    }
    entries.and_then(read).ok_or_else(|| section.wrong("arrivals", WANTED))
}

/// Reads `5 req/s`, or the number alone.
fn rate(value: &Value) -> Result<f64, String> {
    const WANTED: &str = "a rate above 0 and up to 100 million a second is wanted, like \"5 req/s\"";
    let number = match value {
        Value::String(text) => match text.strip_suffix("/s").and_then(|text| text.trim().parse().ok()) {
            Some(number) => number,
            None => text.parse::<RequestsPerSec>().map_err(|error| error.to_string())?.get(),
        },
        value => value.as_f64().ok_or(WANTED)?,
    };
    Some(number).filter(|rate: &f64| (1e-6..=1e8).contains(rate)).ok_or_else(|| WANTED.to_owned())
}
