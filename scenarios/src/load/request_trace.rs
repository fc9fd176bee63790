//! Recorded traces of requests, read line by line.
//!
//! There are three forms, which differ in their first line: the Azure LLM inference traces
//! (`TIMESTAMP,ContextTokens,GeneratedTokens`), Mooncake's JSON lines
//! (`{"timestamp": ms, "input_length": …, "output_length": …, "hash_ids": […]}`), and Fulcrum's own
//! (`arrival_s,prompt_tokens,output_tokens`).

use crate::input::error::RequestTraceError;
use hwprofiles::Seconds;
use serde::Deserialize;
use std::io::BufRead;

/// Prompt tokens of one hashed block in Mooncake's traces.
pub const MOONCAKE_TOKENS: u64 = 512;

/// The longest time from the first request to the last, in seconds; the simulator's clock counts
/// 213 days.
const MAX_DURATION: f64 = 180.0 * 86_400.0;

/// A request of a recorded trace.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    /// Arrival, since the first request.
    pub at: Seconds,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the output.
    pub output_tokens: u64,
    /// Hashes of the prompt's leading blocks of [`MOONCAKE_TOKENS`] tokens; requests with the same
    /// hash share that part of the prompt. Empty if the trace has no hashes.
    pub prefix: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TraceForm {
    Azure,
    Mooncake,
    Fulcrum,
}

/// A trace, as an iterator over its requests. The iterator ends after the first error.
#[derive(Debug)]
pub struct RequestTrace<R> {
    reader: R,
    file: String,
    form: TraceForm,
    line: u64,
    text: String,
    /// Time of the first request, in the file's seconds.
    first: Option<f64>,
    /// Time of the most recent request.
    last: Option<f64>,
    /// The most recent minute in Azure's form, and its time.
    minute: (String, f64),
    /// Whether `text` is a line that is read but not yet parsed.
    pending: bool,
    over: bool,
}

#[derive(Deserialize)]
struct MooncakeRow {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

impl<R: BufRead> RequestTrace<R> {
    /// Reads the first line of a trace; `file` is its name in messages.
    ///
    /// # Errors
    /// The trace cannot be read, or its first line belongs to none of the forms.
    pub fn new(reader: R, file: &str) -> Result<Self, RequestTraceError> {
        let mut trace = Self {
            reader,
            file: file.to_owned(),
            form: TraceForm::Fulcrum,
            line: 0,
            text: String::new(),
            first: None,
            last: None,
            minute: (String::new(), 0.0),
            pending: false,
            over: false,
        };
        if !trace.read_line()? {
            return Err(trace.wrong("it is empty: requests are wanted"));
        }
        trace.form = match trace.text.trim_start_matches('\u{feff}') {
            "TIMESTAMP,ContextTokens,GeneratedTokens" => TraceForm::Azure,
            "arrival_s,prompt_tokens,output_tokens" => TraceForm::Fulcrum,
            text if text.starts_with('{') => TraceForm::Mooncake,
            text => {
                let shown: String = text.chars().take(60).collect();
                return Err(trace.wrong(&format!(
                    "the first line is '{shown}'; 'arrival_s,prompt_tokens,output_tokens' is wanted, or Azure's \
                     'TIMESTAMP,ContextTokens,GeneratedTokens', or Mooncake's JSON lines"
                )));
            }
        };
        trace.pending = trace.form == TraceForm::Mooncake;
        Ok(trace)
    }

    /// Reads the next non-empty line into `text`; returns whether there was one.
    fn read_line(&mut self) -> Result<bool, RequestTraceError> {
        loop {
            self.text.clear();
            self.line += 1;
            match self.reader.read_line(&mut self.text) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) => return Err(self.wrong(&format!("it cannot be read: {error}"))),
            }
            self.text.truncate(self.text.trim_end().len());
            if !self.text.is_empty() {
                return Ok(true);
            }
        }
    }

    fn wrong(&self, reason: &str) -> RequestTraceError {
        RequestTraceError { file: self.file.clone(), line: self.line, reason: reason.to_owned() }
    }

    /// Parses the request in `text`.
    fn request(&mut self) -> Result<RecordedRequest, RequestTraceError> {
        let (at, prompt_tokens, output_tokens, prefix) = match self.form {
            TraceForm::Mooncake => {
                let row: MooncakeRow = serde_json::from_str(&self.text).map_err(|error| {
                    self.wrong(&format!("{error}: timestamp, input_length and output_length are wanted"))
                })?;
                (row.timestamp * 1e-3, row.input_length, row.output_length, row.hash_ids)
            }
            TraceForm::Azure | TraceForm::Fulcrum => {
                let mut fields = self.text.split(',').map(str::trim);
                let fields = (fields.next(), fields.next(), fields.next(), fields.next());
                let (Some(at), Some(prompt), Some(output), None) = fields else {
                    return Err(self.wrong("three fields are wanted: when, prompt tokens, output tokens"));
                };
                let time = match self.form {
                    TraceForm::Azure => timestamp(at, &mut self.minute),
                    TraceForm::Fulcrum | TraceForm::Mooncake => at.parse().ok(),
                };
                let time = time.ok_or_else(|| self.wrong(&format!("'{at}' is not a time")))?;
                let tokens = |text: &str| {
                    text.parse().map_err(|_| self.wrong(&format!("'{text}' is not a whole number of tokens")))
                };
                (time, tokens(prompt)?, tokens(output)?, Vec::new())
            }
        };
        let first = *self.first.get_or_insert(at);
        let since = at - first;
        if !(0.0..=MAX_DURATION).contains(&since) || self.last.is_some_and(|last| at < last) {
            return Err(
                self.wrong("requests must be in the order of their times, within 180 days: sort the table")
            );
        }
        self.last = Some(at);
        Ok(RecordedRequest { at: Seconds::new(since), prompt_tokens, output_tokens, prefix })
    }
}

impl<R: BufRead> Iterator for RequestTrace<R> {
    type Item = Result<RecordedRequest, RequestTraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let has_line = if std::mem::take(&mut self.pending) { Ok(true) } else { self.read_line() };
        let next = match has_line {
            Ok(false) if self.first.is_none() => Some(Err(self.wrong("it has no requests"))),
            Ok(false) => None,
            Ok(true) => Some(self.request()),
            Err(error) => Some(Err(error)),
        };
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Seconds since 1970 of a time like `2023-11-16 18:15:46.6805900` (proleptic Gregorian calendar).
/// `last` is the minute that was read last, and its time: many requests arrive within a minute.
fn timestamp(text: &str, last: &mut (String, f64)) -> Option<f64> {
    let (minute, second) = text.trim_end_matches('Z').rsplit_once(':')?;
    let second: f64 = second.parse().ok()?;
    if last.0 != minute {
        *last = (minute.to_owned(), minute_time(minute)?);
    }
    (0.0..61.0).contains(&second).then_some(last.1 + second)
}

/// Seconds since 1970 of a minute like `2023-11-16 18:15`.
fn minute_time(text: &str) -> Option<f64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (hour, minute) = time.split_once(':')?;
    let (hour, minute) = (hour.parse::<i64>().ok()?, minute.parse::<i64>().ok()?);
    let possible = (1970..3000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute);
    if !possible {
        return None;
    }
    // Years begin in March here, so that the leap day is the last day of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Some((days * 86_400 + hour * 3600 + minute * 60) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<RecordedRequest>, RequestTraceError> {
        RequestTrace::new(text.as_bytes(), "trace.csv")?.collect()
    }

    #[test]
    fn each_form_is_read() {
        let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-28 23:59:59.5000000,374,44\r\n2024-03-01 00:00:00.25,396,109\n";
        let read_azure = read(azure).unwrap();
        assert_eq!(read_azure[1].at, Seconds::new(86_400.75));
        assert_eq!((read_azure[1].prompt_tokens, read_azure[1].output_tokens), (396, 109));
        let mooncake =
            "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [3, 4]}\n";
        let read_mooncake = read(mooncake).unwrap();
        assert_eq!(read_mooncake[0].prefix, [3, 4]);
        assert_eq!(read_mooncake[0].at, Seconds::ZERO);
        let own = "arrival_s,prompt_tokens,output_tokens\n0.5,10,20\n0.5,1,2\n";
        assert_eq!(read(own).unwrap().len(), 2);
    }

    #[test]
    fn a_minute_that_was_read_before_gives_the_same_time() {
        let times =
            ["2024-02-28 23:59:59.5", "2024-02-28 23:59:60.25", "2024-02-29T00:00:01Z", "2024-02-28 23:59:1"];
        let mut last = (String::new(), 0.0);
        for time in times {
            assert_eq!(timestamp(time, &mut last), timestamp(time, &mut (String::new(), 0.0)), "{time}");
        }
        for wrong in [
            "2024-02-28 23:59",
            "23:59:1",
            "2024-02-28 23:60:1",
            "2024-02-28 23:59:61",
            ":1",
            "1:2:3:4",
            "4046-91100000000000003-16 18:15:50",
            "9223372036854775807-2-28 23:59:1",
            "2024-02-9223372036854775807 9223372036854775807:1:1",
        ] {
            assert_eq!(timestamp(wrong, &mut last), None, "{wrong}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        let cases = [
            ("", "trace.csv:1: it is empty: requests are wanted"),
            ("a,b\n", "trace.csv:1: the first line is 'a,b'"),
            ("arrival_s,prompt_tokens,output_tokens\n", "trace.csv:2: it has no requests"),
            (
                "arrival_s,prompt_tokens,output_tokens\n1,2,3\n0,2,3\n",
                "trace.csv:3: requests must be in the order",
            ),
            ("arrival_s,prompt_tokens,output_tokens\n1,2\n", "trace.csv:2: three fields"),
            (
                "arrival_s,prompt_tokens,output_tokens\nNaN,2,3\n",
                "trace.csv:2: requests must be in the order",
            ),
            ("arrival_s,prompt_tokens,output_tokens\n1,-2,3\n", "trace.csv:2: '-2' is not a whole number"),
            (
                "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:15:46,1,1\n",
                "trace.csv:2: '2023-13-16",
            ),
            ("{\"timestamp\": 1}\n", "trace.csv:1: missing field"),
        ];
        for (text, message) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text:?}: {error}");
        }
    }
}
