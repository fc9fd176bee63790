//! A stretch of a serving day as a picture, for `ui.perfetto.dev` and `chrome://tracing`.

use super::batch::Batch;
use super::picos::Picos;
use super::request::Served;
use super::source::End;
use super::watch::{Steps, Watch};
use crate::perfetto::{complete, metadata};
use serde_json::{Value, json};
use std::ops::Range;

/// What one engine did within a window of time.
#[derive(Debug, Clone)]
pub struct Picture {
    window: Range<Picos>,
    slices: Vec<Slice>,
    served: Vec<Served>,
    /// Steps and requests that were not kept.
    left_out: u64,
}

/// A step, or a series of steps of the same sequences.
#[derive(Debug, Clone, Copy)]
struct Slice {
    begin: Picos,
    end: Picos,
    count: u64,
    chunks: u64,
    chunk_tokens: u64,
    decodes: u64,
    decode_tokens: u64,
    sampled: u64,
    free_blocks: u64,
    waiting: u64,
}

/// More steps and requests of an engine are more than a browser shows well.
const MOST: usize = 100_000;

/// A window in which more happened than a picture has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} steps and requests more than the {most} of an engine that a picture has room for: choose a shorter window",
    most = MOST
)]
pub struct Crowded(u64);

impl Picture {
    /// Nothing yet.
    pub fn new(window: Range<Picos>) -> Self {
        Self { window, slices: Vec::new(), served: Vec::new(), left_out: 0 }
    }

    /// Whether something from `begin` to `end` is to be seen, and there is room for it.
    fn takes(&mut self, begin: Picos, end: Picos) -> bool {
        let seen = begin < self.window.end && self.window.start < end;
        let room = self.slices.len() + self.served.len() < MOST;
        self.left_out += u64::from(seen && !room);
        seen && room
    }

    /// The text of a Chrome trace-event file: a process for each of `engines`, in it a track of its steps, its sequences and
    /// free KV blocks as counters, and its requests as they wait, enter and decode. Times are microseconds.
    ///
    /// Format: "Trace Event Format", complete (`X`), counter (`C`), nestable async (`b`, `e`) and metadata (`M`) events.
    ///
    /// # Errors
    /// [`Crowded`] where an engine did more within the window than there is room for.
    pub fn perfetto(engines: &[Self], name: &str) -> Result<String, Crowded> {
        let (mut tracks, mut events) = (Vec::new(), Vec::new());
        for (process, engine) in (1..).zip(engines) {
            if engine.left_out > 0 {
                return Err(Crowded(engine.left_out));
            }
            let name = format!("engine {}: {name}", process - 1);
            tracks.push(metadata(process, 0, "process_name", &name));
            tracks.push(metadata(process, 0, "thread_name", "steps"));
            engine.slices.iter().for_each(|slice| slice.draw(process, &mut events));
            engine.served.iter().for_each(|served| draw_request(process, served, &mut events));
        }
        // At one time, what ends comes before what begins.
        events.sort_by_key(|(at, rank, _)| (*at, *rank));
        tracks.extend(events.into_iter().map(|(_, _, event)| event));
        Ok(json!({ "displayTimeUnit": "ms", "traceEvents": tracks }).to_string())
    }
}

impl Watch for Picture {
    fn steps(&mut self, steps: &Steps<'_>) {
        if !self.takes(steps.begin, steps.end) {
            return;
        }
        let Batch { pieces, decodes, decode_tokens, sampled } = steps.batch;
        self.slices.push(Slice {
            begin: steps.begin,
            end: steps.end,
            count: steps.count,
            chunks: pieces.len() as u64,
            chunk_tokens: pieces.iter().map(|piece| piece.new).sum(),
            decodes,
            decode_tokens,
            sampled,
            free_blocks: steps.free_blocks,
            waiting: steps.waiting as u64,
        });
    }

    fn end(&mut self, end: &End) {
        if let End::Served(served) = end
            && self.takes(served.arrival, served.last_token)
        {
            self.served.push(*served);
        }
    }
}

/// When it happens, its place among what happens then (a part ends, the whole ends, a number, a beginning), and the event.
type Event = (Picos, u8, Value);

impl Slice {
    fn draw(&self, process: u32, events: &mut Vec<Event>) {
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
            complete(process, 0, &format!("{kind}{times}"), (nanos(self.begin), nanos(self.end)), args);
        events.push((self.begin, 3, span));
        let counter = |at: Picos, name: &str, value: u64| {
            (
                at,
                2,
                json!({ "ph": "C", "pid": process, "name": name, "ts": micros(at), "args": { name: value } }),
            )
        };
        events.push(counter(self.begin, "running", self.chunks + self.decodes));
        events.push(counter(self.begin, "waiting", self.waiting));
        events.push(counter(self.end, "free KV blocks", self.free_blocks));
        events.push(counter(self.end, "running", 0));
    }
}

/// A request as a slice over its life, and in it what it did.
fn draw_request(process: u32, served: &Served, events: &mut Vec<Event>) {
    let Served { id, arrival, scheduled, first_token, last_token, .. } = *served;
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
        let event = |phase: &str, at: Picos, args: &Value| {
            json!({
                "ph": phase, "cat": "request", "id": id, "pid": process, "tid": 0, "name": name,
                "ts": micros(at), "args": args,
            })
        };
        events.push((begin, 3, event("b", begin, &args)));
        events.push((end, u8::from(index == 0), event("e", end, &json!({}))));
    }
}

/// Whole nanoseconds, as [`complete`] wants them.
fn nanos(at: Picos) -> u64 {
    at.0 / 1000
}

fn micros(at: Picos) -> f64 {
    nanos(at) as f64 / 1000.0
}
