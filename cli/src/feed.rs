//! Where a serving scenario's requests come from: random numbers, or a recorded trace.

use crate::exit::{Failure, Outcome, Sort};
use anyhow::anyhow;
use scenarios::{RequestTrace, Requests, Serving, TraceError};
use sim::serving::{Generated, Picos, Request, Source};
use std::fs::File;
use std::io::BufReader;

/// The requests of one of several groups of engines: every so-manieth that comes, or the requests of its share of the users.
pub struct Feed {
    requests: Generator,
    share: u64,
    of: u64,
    /// Whether they are its users' own, numbered from zero.
    own: bool,
    /// What was wrong with the table.
    pub wrong: Option<TraceError>,
}

enum Generator {
    Made(Generated),
    Read { trace: RequestTrace<BufReader<File>>, left: u64, speedup: f64, next: u64 },
}

impl Feed {
    /// The requests of group `share` of `of`.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub fn of(serving: &Serving, share: u64, of: u64) -> Outcome<Self> {
        let seed = serving.seed;
        let part = |whole: u64| whole / of + u64::from(share < whole % of);
        let requests = match &serving.requests {
            &Requests::Closed { concurrency, think, ramp, requests, prompt, output } => {
                let made = Generated::closed(part(concurrency), part(requests), prompt, output, seed + share);
                let made = Generator::Made(made.thinking(think, ramp));
                return Ok(Self { requests: made, share, of, own: true, wrong: None });
            }
            &Requests::Open { arrivals, requests, prompt, output } => {
                Generator::Made(Generated::open(arrivals, requests, prompt, output, seed))
            }
            Requests::Trace { path, requests, speedup } => {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|error| Failure::Input(anyhow!("{name}: {error}")))?;
                let trace = RequestTrace::new(BufReader::new(file), &name).or_input()?;
                Generator::Read { trace, left: requests.unwrap_or(u64::MAX), speedup: *speedup, next: 0 }
            }
        };
        Ok(Self { requests, share, of, own: false, wrong: None })
    }

    fn any(&mut self) -> Option<Request> {
        let (trace, left, speedup, next) = match &mut self.requests {
            Generator::Made(made) => return made.next(),
            Generator::Read { trace, left, speedup, next } => (trace, left, *speedup, next),
        };
        *left = left.checked_sub(1)?;
        let id = *next;
        *next += 1;
        match trace.next()? {
            Ok(row) => Some(Request {
                id,
                arrival: Picos::rounding_up(row.at / speedup),
                prompt_tokens: row.prompt_tokens,
                output_tokens: row.output_tokens,
                prefix: row.prefix,
            }),
            Err(wrong) => {
                self.wrong = Some(wrong);
                None
            }
        }
    }
}

impl Source for Feed {
    fn next(&mut self) -> Option<Request> {
        loop {
            let request = self.any()?;
            if self.own {
                return Some(Request { id: request.id * self.of + self.share, ..request });
            }
            if request.id % self.of == self.share {
                return Some(request);
            }
        }
    }

    fn sooner(&mut self, held: &mut Request) {
        if let Generator::Made(made) = &mut self.requests {
            made.sooner(held);
        }
    }

    fn done(&mut self, at: Picos) {
        if let Generator::Made(made) = &mut self.requests {
            made.done(at);
        }
    }

    fn listens(&self) -> bool {
        matches!(&self.requests, Generator::Made(made) if made.listens())
    }
}
