//! The answers to one request, whole or as a stream of events.

use super::api_error::ApiError;
use super::choice::{ApiChoice, ChoiceDelta};
use super::generation::{Generation, RequestKind};
use crate::prompt::served_model::ServedModel;
use axum::http::StatusCode;
use fulcrum::{AnswerEvent, FinishReason};
use serde_json::{Value, json};

/// The answers to one request.
pub(crate) struct ApiAnswer {
    kind: RequestKind,
    id: String,
    created: u64,
    model: String,
    prompt_tokens: u64,
    wants_logprobs: bool,
    wants_token_ids: bool,
    include_usage: bool,
    choices: Vec<ApiChoice>,
    /// How many choices are not finished.
    open: usize,
}

impl ApiAnswer {
    /// The answer number `number`, begun at `created`, in seconds since 1970.
    pub(crate) fn new(generation: &Generation, model: &ServedModel, number: u64, created: u64) -> Self {
        let prefix = match generation.kind {
            RequestKind::Completion => "cmpl",
            RequestKind::Chat => "chatcmpl",
        };
        let choice = |request: &fulcrum::BatchRequest| {
            ApiChoice::new(&model.tokenizer, &request.stops, &generation.ends)
        };
        Self {
            kind: generation.kind,
            id: format!("{prefix}-{created:x}-{number}"),
            created,
            model: model.name.clone(),
            prompt_tokens: generation.prompt_tokens,
            wants_logprobs: generation.logprobs.is_some(),
            wants_token_ids: generation.return_token_ids,
            include_usage: generation.include_usage,
            choices: generation.requests.iter().map(choice).collect(),
            open: generation.requests.len(),
        }
    }

    /// Whether all choices are finished.
    pub(crate) fn is_finished(&self) -> bool {
        self.open == 0
    }

    /// For each choice, nothing new yet.
    pub(crate) fn empty_deltas(&self) -> Vec<ChoiceDelta> {
        self.choices.iter().map(|_| ChoiceDelta::default()).collect()
    }

    /// Adds an event of a choice: what is new of its text.
    ///
    /// # Errors
    /// The choice gets no answer.
    pub(crate) fn add(&mut self, index: usize, event: AnswerEvent) -> Result<ChoiceDelta, ApiError> {
        let choice = &mut self.choices[index];
        match event {
            AnswerEvent::Token { token, logprobs } => Ok(choice.add(token, logprobs)),
            AnswerEvent::Finished(result) => match result.finish {
                FinishReason::Length | FinishReason::Stop => {
                    self.open -= 1;
                    Ok(choice.end(result.finish))
                }
                FinishReason::Interrupted | FinishReason::Failed => Err(ApiError::failed()),
            },
            AnswerEvent::Refused(reason) => Err(ApiError::new(StatusCode::BAD_REQUEST, reason)),
        }
    }

    /// The event of a stream for what is new of a choice.
    pub(crate) fn chunk(&self, index: usize, delta: &ChoiceDelta) -> String {
        let mut entry = self.entry(index, delta);
        match self.kind {
            RequestKind::Completion => entry["text"] = json!(delta.text),
            RequestKind::Chat => {
                entry["delta"] = json!({"content": delta.text});
                if self.choices[index].output_tokens == 1 && !delta.tokens.is_empty() {
                    entry["delta"]["role"] = json!("assistant");
                }
            }
        }
        let mut chunk = self.heading(true);
        chunk["choices"] = json!([entry]);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        sse_event(&chunk)
    }

    /// The last events of a stream.
    pub(crate) fn stream_end(&self) -> String {
        let mut text = String::new();
        if self.include_usage {
            let mut chunk = self.heading(true);
            chunk["choices"] = json!([]);
            chunk["usage"] = self.usage();
            text += &sse_event(&chunk);
        }
        text + "data: [DONE]\n\n"
    }

    /// The whole answer, from all that was new of each choice.
    pub(crate) fn whole(&self, deltas: &[ChoiceDelta]) -> Value {
        let entry = |(index, delta): (usize, &ChoiceDelta)| {
            let mut entry = self.entry(index, delta);
            match self.kind {
                RequestKind::Completion => entry["text"] = json!(delta.text),
                RequestKind::Chat => entry["message"] = json!({"role": "assistant", "content": delta.text}),
            }
            entry
        };
        let mut whole = self.heading(false);
        whole["choices"] = deltas.iter().enumerate().map(entry).collect();
        whole["usage"] = self.usage();
        whole
    }

    fn heading(&self, streamed: bool) -> Value {
        let object = match (self.kind, streamed) {
            (RequestKind::Completion, _) => "text_completion",
            (RequestKind::Chat, false) => "chat.completion",
            (RequestKind::Chat, true) => "chat.completion.chunk",
        };
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model})
    }

    /// A choice without its text.
    fn entry(&self, index: usize, delta: &ChoiceDelta) -> Value {
        let choice = &self.choices[index];
        let logprobs = match self.wants_logprobs && !delta.tokens.is_empty() {
            true => choice.logprobs(self.kind, delta),
            false => Value::Null,
        };
        let mut entry =
            json!({"index": index, "logprobs": logprobs, "finish_reason": choice.finish_reason()});
        if self.wants_token_ids {
            entry["token_ids"] = delta.tokens.iter().map(|new| new.token).collect();
        }
        entry
    }

    fn usage(&self) -> Value {
        let output_tokens: u64 = self.choices.iter().map(|choice| choice.output_tokens).sum();
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": self.prompt_tokens + output_tokens,
        })
    }
}

/// An event of a stream (server-sent events, WHATWG).
pub(crate) fn sse_event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
