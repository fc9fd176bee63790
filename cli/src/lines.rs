//! The requests of a file, all there from the beginning, on their way through a session, and their answers.

use crate::asked::Asked;
use crate::exit::Outcome;
use crate::live::Live;
use crate::pipeline::Planned;
use crate::speech::Speech;
use executor::{Answer, Client, Event, Finish, Made, Request, Service, Tokenizer};
use hwprofiles::Seconds;
use planner::{Recorder, StepSpan, Trace};
use scenarios::{Phase, Step};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// The requests.
pub struct Lines<'a> {
    asked: &'a [Asked],
    ends: &'a [u32],
    next: usize,
    /// Of the requests that texts may stop.
    speeches: BTreeMap<u64, Speech<'a>>,
    tokenizer: Option<&'a Tokenizer>,
}

impl<'a> Lines<'a> {
    /// Those of `asked`, ended by the tokens `ends` and by their own texts.
    pub fn new(asked: &'a [Asked], ends: &'a [u32], tokenizer: Option<&'a Tokenizer>) -> Self {
        Self { asked, ends, next: 0, speeches: BTreeMap::new(), tokenizer }
    }

    /// A request as the executor takes it.
    pub fn request(id: u64, asked: &Asked, ends: &[u32]) -> Request {
        let Asked { prompt, output_tokens, sampling, .. } = asked.clone();
        Request { id, arrival: Duration::ZERO, prompt, output_tokens, sampling, stop: ends.to_vec() }
    }

    /// Answers all of them; `on_token` hears every token. Where the run fails there are the answers until then.
    pub fn run(
        live: &mut Live<'_>,
        service: &mut Service<Self>,
        mut on_token: impl FnMut(u32),
    ) -> (Answered, Outcome) {
        let (mut answers, mut passes) = (Vec::new(), Vec::new());
        let outcome = live.serve(service, |event| match event {
            Event::Token { token, .. } => on_token(token),
            Event::Answered(answer) => answers.push(answer),
            Event::Made(made) => passes.push(Pass::of(&made)),
            Event::Refused { reason, .. } => crate::terminal::errln!("note: {reason}"),
        });
        answers.extend(service.interrupt());
        answers.sort_by_key(|answer| answer.id);
        (Answered { answers, passes }, outcome)
    }
}

impl Client for Lines<'_> {
    fn next(&mut self) -> Option<Request> {
        let asked = self.asked.get(self.next)?;
        self.next += 1;
        Some(Self::request(self.next as u64 - 1, asked, self.ends))
    }

    fn ends(&mut self, id: u64, tokens: &[u32]) -> bool {
        let asked = &self.asked[id as usize];
        let (Some(tokenizer), [.., token], false) = (self.tokenizer, tokens, asked.stops.is_empty()) else {
            return false;
        };
        let speech = self.speeches.entry(id).or_insert_with(|| Speech::new(tokenizer, &asked.stops));
        speech.add(*token);
        speech.is_stopped()
    }

    fn done(&mut self, id: u64, _at: Duration) {
        self.speeches.remove(&id);
    }
}

/// What is kept of a pass.
#[derive(Debug, Clone, Copy)]
struct Pass {
    phase: Phase,
    begin: u64,
    end: u64,
    /// Of the first sequence.
    past: u64,
    new: u64,
}

impl Pass {
    fn of(made: &Made) -> Self {
        let [past, new] = made.entered.first().copied().unwrap_or([made.decode_tokens.saturating_sub(1), 1]);
        let nanos = |time: Duration| time.as_nanos() as u64;
        Self { phase: made.phase, begin: nanos(made.begin), end: nanos(made.end), past, new }
    }
}

/// What came of them.
pub struct Answered {
    /// In the order of the requests; those that were never begun are missing.
    pub answers: Vec<Answer>,
    passes: Vec<Pass>,
}

impl Answered {
    /// Answers that came to their own end.
    pub fn whole(&self) -> u64 {
        let is_whole = |answer: &&Answer| matches!(answer.finish, Finish::Length | Finish::Stop);
        self.answers.iter().filter(is_whole).count() as u64
    }

    /// The steps of the only request.
    pub fn trace(&self, planned: &Planned) -> Trace {
        let zero = self.passes.first().map_or(0, |pass| pass.begin);
        let span = |&Pass { phase, begin, end, past, new }: &Pass| {
            let step = Step { phase, batch: 1, new_tokens: new, past_tokens: past };
            StepSpan::new(step, begin - zero, end - zero)
        };
        Trace {
            recorder: Recorder::Measured,
            machine: planned.machine.name.clone(),
            model: planned.model.name.clone(),
            plan: planned.plan.fingerprint(),
            steps: self.passes.iter().map(span).collect(),
            events: vec![],
        }
    }

    /// A line for each request, in their order: its text, where there is a tokenizer, its tokens, and why it ended.
    pub fn to_jsonl(&self, asked: &[Asked], tokenizer: Option<&Tokenizer>) -> String {
        let mut answers = self.answers.iter().peekable();
        let line = |(id, asked): (u64, &Asked)| {
            let answer = answers.next_if(|answer| answer.id == id);
            let tokens = answer.map_or(&[][..], |answer| &answer.tokens);
            let text = tokenizer.map(|tokenizer| {
                let mut speech = Speech::new(tokenizer, &asked.stops);
                tokens.iter().for_each(|&token| speech.add(token));
                speech.whole()
            });
            let finish = match answer.map(|answer| answer.finish) {
                Some(Finish::Length) => "length",
                Some(Finish::Stop) => "stop",
                Some(Finish::Failed) => "failed",
                Some(Finish::Interrupted) | None => "interrupted",
            };
            let prompt_tokens = asked.prompt.len();
            let line = json!({"text": text, "tokens": tokens, "finish_reason": finish, "prompt_tokens": prompt_tokens});
            format!("{line}\n")
        };
        (0..).zip(asked).map(line).collect()
    }

    /// How much was answered, and how fast.
    pub fn summary(&self) -> String {
        let tokens: usize = self.answers.iter().map(|answer| answer.tokens.len()).sum();
        let end = self.passes.last().map_or(0, |pass| pass.end);
        let time = Seconds::from_nanos(end);
        let rate = if end > 0 { tokens as f64 / time.get() } else { 0.0 };
        format!("{} answers, {tokens} output tokens in {time}: {rate:.1} tokens/s", self.whole())
    }
}
