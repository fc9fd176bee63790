//! Requests that are all there from the beginning, and their answers.

use super::answer_file::is_whole;
use super::batch_file::BatchRequest;
use super::text_stream::TextStream;
use crate::error::{Error, Result};
use crate::pipeline::ResolvedPlan;
use executor::{
    Client, FinishReason, GenerationRequest, GenerationResult, PassReport, PromptChunk, Tokenizer,
};
use hwprofiles::Seconds;
use planner::{Recorder, StepSpan, Trace};
use scenarios::{Phase, Step};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// A client of the executor that asks for the requests in their order.
pub(crate) struct BatchClient<'a> {
    requests: &'a [BatchRequest],
    ends: &'a [u32],
    next: usize,
    /// The texts of the answers that a text may stop.
    streams: BTreeMap<u64, TextStream<&'a Tokenizer>>,
    tokenizer: Option<&'a Tokenizer>,
}

impl<'a> BatchClient<'a> {
    /// The client of `requests`, whose answers the tokens `ends` and their own texts end.
    pub(crate) fn new(
        requests: &'a [BatchRequest],
        ends: &'a [u32],
        tokenizer: Option<&'a Tokenizer>,
    ) -> Self {
        Self { requests, ends, next: 0, streams: BTreeMap::new(), tokenizer }
    }
}

/// A request as the executor takes it.
pub(crate) fn executor_request(id: u64, request: &BatchRequest, ends: &[u32]) -> GenerationRequest {
    let BatchRequest { prompt, output_tokens, sampling, .. } = request.clone();
    let (arrival, stop) = (Duration::ZERO, ends.to_vec());
    GenerationRequest { id, arrival, prompt, output_tokens, sampling, stop, logprobs: None }
}

impl Client for BatchClient<'_> {
    fn next(&mut self) -> Option<GenerationRequest> {
        let request = self.requests.get(self.next)?;
        self.next += 1;
        Some(executor_request(self.next as u64 - 1, request, self.ends))
    }

    fn stops_after(&mut self, id: u64, tokens: &[u32]) -> bool {
        let stops = &self.requests[id as usize].stops;
        let (Some(tokenizer), [.., token], false) = (self.tokenizer, tokens, stops.is_empty()) else {
            return false;
        };
        let stream = self.streams.entry(id).or_insert_with(|| TextStream::new(tokenizer, stops));
        stream.add(*token);
        stream.is_stopped()
    }

    fn finished(&mut self, id: u64, _at: Duration) {
        self.streams.remove(&id);
    }
}

/// A forward pass, in nanoseconds of the run's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassSpan {
    phase: Phase,
    begin: u64,
    end: u64,
    /// Tokens of the first sequence that were there before, and that were new.
    past: u64,
    new: u64,
}

impl PassSpan {
    /// The span of a pass that the executor made.
    pub(crate) fn new(made: &PassReport) -> Self {
        let decode = PromptChunk { past_tokens: made.decode_tokens.saturating_sub(1), new_tokens: 1 };
        let PromptChunk { past_tokens: past, new_tokens: new } =
            made.entered.first().copied().unwrap_or(decode);
        let nanos = |time: Duration| time.as_nanos() as u64;
        Self { phase: made.phase, begin: nanos(made.begin), end: nanos(made.end), past, new }
    }
}

/// What came of the requests.
pub struct BatchAnswers {
    /// The answers, in the order of the requests; requests that were never begun have none.
    pub answers: Vec<GenerationResult>,
    pub(crate) passes: Vec<PassSpan>,
    /// Why the run ended early, where it failed.
    pub(crate) failure: Option<Error>,
}

impl BatchAnswers {
    /// The failure that ended the run early.
    ///
    /// # Errors
    /// The run failed.
    pub fn check(&mut self) -> Result {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// How many answers came to their own end.
    pub fn whole(&self) -> u64 {
        self.answers.iter().filter(|answer| is_whole(answer)).count() as u64
    }

    /// The trace of a run with a single request: its steps, without their tasks.
    pub fn trace(&self, planned: &ResolvedPlan) -> Trace {
        let zero = self.passes.first().map_or(0, |pass| pass.begin);
        let span = |&PassSpan { phase, begin, end, past, new }: &PassSpan| {
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

    /// How much was answered, and how fast, in one line.
    pub fn summary(&self) -> String {
        let tokens: usize = self.answers.iter().map(|answer| answer.tokens.len()).sum();
        let end = self.passes.last().map_or(0, |pass| pass.end);
        let time = Seconds::from_nanos(end);
        let rate = if end > 0 { tokens as f64 / time.get() } else { 0.0 };
        format!("{} answers, {tokens} output tokens in {time}: {rate:.1} tokens/s", self.whole())
    }
}

/// An answer as a line of JSON: its text where there is a tokenizer, its tokens, and why it ended.
/// `None` is the answer of a request that was never begun.
pub fn answer_line(
    answer: Option<&GenerationResult>,
    request: &BatchRequest,
    tokenizer: Option<&Tokenizer>,
) -> String {
    let tokens = answer.map_or(&[][..], |answer| &answer.tokens);
    let text = tokenizer.map(|tokenizer| {
        let mut stream = TextStream::new(tokenizer, &request.stops);
        tokens.iter().for_each(|&token| stream.add(token));
        stream.whole()
    });
    let finish = match answer.map(|answer| answer.finish) {
        Some(FinishReason::Length) => "length",
        Some(FinishReason::Stop) => "stop",
        Some(FinishReason::Failed) => "failed",
        Some(FinishReason::Interrupted) | None => "interrupted",
    };
    let prompt_tokens = request.prompt.len();
    json!({"text": text, "tokens": tokens, "finish_reason": finish, "prompt_tokens": prompt_tokens})
        .to_string()
}
