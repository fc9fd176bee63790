//! A timeline of a part of a serving day, for `ui.perfetto.dev` and `chrome://tracing`.

use crate::clock::SimTime;
use crate::serving::engine::observer::{EngineObserver, ObservedSteps, RequestOutcome};
use crate::serving::engine::request::ServedRequest;
use crate::serving::prices::batch::Batch;
use crate::step::perfetto::{complete, metadata};
use serde_json::{Value, json};
use std::ops::Range;

/// The steps and requests of one engine within a window of time.
#[derive(Debug, Clone)]
pub struct ServingTimeline {
    window: Range<SimTime>,
    slices: Vec<StepSlice>,
    served: Vec<ServedRequest>,
    /// Steps and requests that were left out for want of room.
    left_out: u64,
}

/// A step, or a series of steps of the same sequences.
#[derive(Debug, Clone, Copy)]
struct StepSlice {
    begin: SimTime,
    end: SimTime,
    count: u64,
    chunks: u64,
    chunk_tokens: u64,
    decodes: u64,
    decode_tokens: u64,
    sampled: u64,
    free_blocks: u64,
    waiting: u64,
}

/// The most steps and requests of an engine that a browser shows well.
const MOST_EVENTS: usize = 100_000;

/// A window with more steps and requests than a timeline has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} steps and requests more than the {most} of an engine that a picture has room for: choose a shorter window",
    most = MOST_EVENTS
)]
pub struct TimelineTooLong(u64);

impl ServingTimeline {
    /// An empty timeline of `window`.
    pub fn new(window: Range<SimTime>) -> Self {
        Self { window, slices: Vec::new(), served: Vec::new(), left_out: 0 }
    }

    /// Whether an event from `begin` to `end` lies in the window and there is room for it.
    fn has_room(&mut self, begin: SimTime, end: SimTime) -> bool {
        let inside = begin < self.window.end && self.window.start < end;
        let room = self.slices.len() + self.served.len() < MOST_EVENTS;
        self.left_out += u64::from(inside && !room);
        inside && room
    }

    /// The text of a Chrome trace-event file. Each of `engines` is a process. It has a track of its
    /// steps, counters of its sequences and free KV blocks, and its requests as they wait, enter
    /// and decode. Times are microseconds.
    ///
    /// Format: "Trace Event Format", complete (`X`), counter (`C`), nestable async (`b`, `e`) and
    /// metadata (`M`) events.
    ///
    /// # Errors
    /// [`TimelineTooLong`] if an engine did more within the window than there is room for.
    pub fn perfetto(engines: &[Self], name: &str) -> Result<String, TimelineTooLong> {
        let (mut tracks, mut events) = (Vec::new(), Vec::new());
        for (process, engine) in (1..).zip(engines) {
            if engine.left_out > 0 {
                return Err(TimelineTooLong(engine.left_out));
            }
            let name = format!("engine {}: {name}", process - 1);
            tracks.push(metadata(process, 0, "process_name", &name));
            tracks.push(metadata(process, 0, "thread_name", "steps"));
            engine.slices.iter().for_each(|slice| slice.write(process, &mut events));
            engine.served.iter().for_each(|served| write_request(process, served, &mut events));
        }
        // At one time, ends come before beginnings.
        events.sort_by_key(|(at, rank, _)| (*at, *rank));
        tracks.extend(events.into_iter().map(|(_, _, event)| event));
        Ok(json!({ "displayTimeUnit": "ms", "traceEvents": tracks }).to_string())
    }
}

impl EngineObserver for ServingTimeline {
    fn steps(&mut self, steps: &ObservedSteps<'_>) {
        if !self.has_room(steps.begin, steps.end) {
            return;
        }
        let Batch { chunks, decodes, decode_tokens, sampled } = steps.batch;
        self.slices.push(StepSlice {
            begin: steps.begin,
            end: steps.end,
            count: steps.count,
            chunks: chunks.len() as u64,
            chunk_tokens: chunks.iter().map(|chunk| chunk.new).sum(),
            decodes,
            decode_tokens,
            sampled,
            free_blocks: steps.free_blocks,
            waiting: steps.waiting as u64,
        });
    }

    fn end(&mut self, end: &RequestOutcome) {
        if let RequestOutcome::Served(served) = end
            && self.has_room(served.arrival, served.last_token)
        {
            self.served.push(*served);
        }
    }
}

/// An event with its time, and its rank among the events of that time.
type RankedEvent = (SimTime, Rank, Value);

/// The order of events at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    PartEnd,
    WholeEnd,
    Counter,
    Begin,
}

impl StepSlice {
    fn write(&self, process: u32, events: &mut Vec<RankedEvent>) {
        let kind = match (self.chunks, self.decodes) {
            (0, _) => "decode",
            (_, 0) => "prefill",
            _ => "mixed",
        };
        let times = if self.count > 1 { format!(" × {}", self.count) } else { String::new() };
        let args = json!({
            "steps": self.count, "prompt chunks": self.chunks, "prompt tokens": self.chunk_tokens,
            "decodes": self.decodes, "tokens attended to": self.decode_tokens, "sampled": self.sampled,
        });
        let span =
            complete(process, 0, &format!("{kind}{times}"), (self.begin.nanos(), self.end.nanos()), args);
        events.push((self.begin, Rank::Begin, span));
        let counter = |at: SimTime, name: &str, value: u64| {
            (
                at,
                Rank::Counter,
                json!({ "ph": "C", "pid": process, "name": name, "ts": micros(at), "args": { name: value } }),
            )
        };
        events.push(counter(self.begin, "running", self.chunks + self.decodes));
        events.push(counter(self.begin, "waiting", self.waiting));
        events.push(counter(self.end, "free KV blocks", self.free_blocks));
        events.push(counter(self.end, "running", 0));
    }
}

/// Writes a request as a slice over its life, with slices of its parts inside.
fn write_request(process: u32, served: &ServedRequest, events: &mut Vec<RankedEvent>) {
    let ServedRequest { id, arrival, scheduled, first_token, last_token, .. } = *served;
    let name = format!("request {id}");
    let args = json!({
        "prompt tokens": served.prompt_tokens, "output tokens": served.output_tokens,
        "cached tokens": served.cached_tokens, "fetched tokens": served.fetched_tokens,
        "preemptions": served.preemptions,
    });
    let parts = [
        (name.as_str(), arrival, last_token, args),
        ("queued", arrival, scheduled, json!({})),
        ("prefill", scheduled, first_token, json!({})),
        ("decode", first_token, last_token, json!({})),
    ];
    for (index, (name, begin, end, args)) in parts.into_iter().enumerate() {
        if begin == end {
            continue;
        }
        let event = |phase: &str, at: SimTime, args: &Value| {
            json!({
                "ph": phase, "cat": "request", "id": id, "pid": process, "tid": 0, "name": name,
                "ts": micros(at), "args": args,
            })
        };
        events.push((begin, Rank::Begin, event("b", begin, &args)));
        let rank = if index == 0 { Rank::WholeEnd } else { Rank::PartEnd };
        events.push((end, rank, event("e", end, &json!({}))));
    }
}

fn micros(at: SimTime) -> f64 {
    at.nanos() as f64 / 1000.0
}
