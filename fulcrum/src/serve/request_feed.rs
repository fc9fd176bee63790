//! The requests of a serving scenario, from random numbers or from a recorded trace.

use crate::error::{Error, OrError, Result};
use scenarios::{RequestTrace, RequestTraceError, Requests, Serving};
use sim::serving::{GeneratedRequests, Request, RequestSource};
use sim::{SimTime, Tick};
use std::fs::File;
use std::io::BufReader;

/// The requests of one of several groups of engines: every n-th request that comes, or the requests
/// of the group's share of the users.
pub(crate) struct RequestFeed {
    requests: RequestOrigin,
    /// The group, from 0.
    share: u64,
    /// How many groups there are.
    groups: u64,
    /// Whether the requests are those of the group's own users, numbered from zero.
    own: bool,
    /// The names of prompts that come again, if any do.
    names: Option<PromptNames>,
    /// What was wrong with the table.
    pub(crate) wrong: Option<RequestTraceError>,
}

enum RequestOrigin {
    Generated(GeneratedRequests),
    Recorded {
        trace: RequestTrace<BufReader<File>>,
        /// How many requests are still to be taken; all that follow where there is no limit.
        left: Option<u64>,
        speedup: f64,
        next: u64,
    },
}

impl RequestFeed {
    /// The requests of group `share` of `groups`, whose prefixes have a name for each
    /// `prefix_tokens` tokens.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub(crate) fn new(serving: &Serving, share: u64, groups: u64, prefix_tokens: u64) -> Result<Self> {
        let names = PromptNames::new(serving, prefix_tokens);
        let seed = serving.seed;
        let part = |whole: u64| whole / groups + u64::from(share < whole % groups);
        let requests = match &serving.requests {
            &Requests::Closed { concurrency, think, ramp, requests, prompt, output } => {
                let made = GeneratedRequests::closed(
                    part(concurrency),
                    part(requests),
                    prompt,
                    output,
                    seed + share,
                );
                let requests = RequestOrigin::Generated(made.thinking(think, ramp));
                return Ok(Self { requests, share, groups, own: true, names, wrong: None });
            }
            &Requests::Open { arrivals, requests, prompt, output } => {
                RequestOrigin::Generated(GeneratedRequests::open(arrivals, requests, prompt, output, seed))
            }
            Requests::Trace { path, requests, speedup } => {
                let name = path.display().to_string();
                let file =
                    hwprofiles::open_input(path).map_err(|error| Error::input(format!("{name}: {error}")))?;
                let trace = RequestTrace::new(BufReader::new(file), &name).or_input()?;
                RequestOrigin::Recorded { trace, left: *requests, speedup: *speedup, next: 0 }
            }
        };
        Ok(Self { requests, share, groups, own: false, names, wrong: None })
    }

    /// The next request, whichever group it is for.
    fn next_of_all(&mut self) -> Option<Request> {
        let (trace, left, speedup, next) = match &mut self.requests {
            RequestOrigin::Generated(made) => {
                let request = made.next()?;
                return Some(match self.names {
                    Some(names) => names.named(request),
                    None => request,
                });
            }
            RequestOrigin::Recorded { trace, left, speedup, next } => (trace, left, *speedup, next),
        };
        if let Some(left) = left {
            *left = left.checked_sub(1)?;
        }
        let id = *next;
        *next += 1;
        match trace.next()? {
            Ok(row) => Some(Request {
                id,
                arrival: SimTime::rounding_up(row.at / speedup, Tick::Picosecond),
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

/// The names of prompts that come again.
#[derive(Debug, Clone, Copy)]
struct PromptNames {
    /// How many different prompts the requests have in turn.
    distinct: u64,
    /// How many there are with those that were asked before.
    prompts: u64,
    /// The tokens of each name.
    prefix_tokens: u64,
}

impl PromptNames {
    /// Those of `serving`; `None` where no prompt comes again.
    fn new(serving: &Serving, prefix_tokens: u64) -> Option<Self> {
        if !repeats_prompts(serving) {
            return None;
        }
        let requests = match serving.requests {
            Requests::Closed { requests, .. } | Requests::Open { requests, .. } => requests,
            Requests::Trace { .. } => u64::MAX,
        };
        let distinct = serving.distinct_prompts.unwrap_or(requests).max(1);
        let earlier = serving.asked_before.iter().map(|load| load.prompts).max().unwrap_or(0);
        Some(Self { distinct, prompts: distinct.max(earlier), prefix_tokens })
    }

    /// The request with the names of its prefixes.
    fn named(self, request: Request) -> Request {
        let prompt = request.id % self.distinct;
        self.of_prompt(prompt, request)
    }

    /// `request` with the names of a prompt: each is the prompt's number and the place in it.
    fn of_prompt(self, prompt: u64, request: Request) -> Request {
        let names = request.prompt_tokens / self.prefix_tokens;
        Request { prefix: (0..names).map(|place| place * self.prompts + prompt).collect(), ..request }
    }
}

/// Whether requests have prompts that come again or were asked before.
pub(crate) fn repeats_prompts(serving: &Serving) -> bool {
    serving.distinct_prompts.is_some() || !serving.asked_before.is_empty()
}

/// The prompts that were asked before the first request, the oldest first, of one of `groups`
/// groups of engines.
pub(crate) fn asked_before(
    serving: &Serving,
    groups: u64,
    prefix_tokens: u64,
) -> impl Iterator<Item = Request> + '_ {
    let names = PromptNames::new(serving, prefix_tokens);
    let prompts = serving
        .asked_before
        .iter()
        .flat_map(move |load| (0..load.prompts.div_ceil(groups)).map(move |prompt| (prompt, load.tokens)));
    prompts.filter_map(move |(prompt, prompt_tokens)| {
        let plain = Request { prompt_tokens, output_tokens: 1, ..Request::default() };
        Some(names?.of_prompt(prompt, plain))
    })
}

impl RequestSource for RequestFeed {
    fn next(&mut self) -> Option<Request> {
        loop {
            let request = self.next_of_all()?;
            if self.own {
                return Some(Request { id: request.id * self.groups + self.share, ..request });
            }
            if request.id % self.groups == self.share {
                return Some(request);
            }
        }
    }

    fn replace_if_sooner(&mut self, held: &mut Request) {
        if let RequestOrigin::Generated(made) = &mut self.requests {
            made.replace_if_sooner(held);
        }
    }

    fn done(&mut self, at: SimTime) {
        if let RequestOrigin::Generated(made) = &mut self.requests {
            made.done(at);
        }
    }

    fn depends_on_answers(&self) -> bool {
        matches!(&self.requests, RequestOrigin::Generated(made) if made.depends_on_answers())
    }
}
