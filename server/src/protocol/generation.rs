//! A request that can be answered: checked, with prompts as tokens.

use super::api_error::ApiError;
use super::request_body::{ChatMessage, Logprobs, MessageContent, Prompts, RequestBody, Stops, TextPart};
use crate::prompt::served_model::ServedModel;
use crate::prompt::template_engine::ConversationTurn;
use axum::http::StatusCode;
use fulcrum::{BatchRequest, Sampling};
use std::hash::{BuildHasher, RandomState};

/// The most answers to one request.
const MOST_CHOICES: usize = 128;
/// The most texts that end an answer: each is searched for after every token.
const MOST_STOPS: usize = 16;
/// The most log-probabilities beside that of a token.
const MOST_LOGPROBS: usize = 20;
/// Tokens of a completion where the request names no number, as OpenAI has it.
const COMPLETION_TOKENS: u64 = 16;

/// Which of the two kinds of requests it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// `/v1/completions`
    Completion,
    /// `/v1/chat/completions`
    Chat,
}

/// What is to be generated.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) kind: RequestKind,
    /// By choice: the prompts in their order, each as often as answers to it are wanted.
    pub(crate) requests: Vec<BatchRequest>,
    /// Tokens of the prompts, each counted once.
    pub(crate) prompt_tokens: u64,
    /// The tokens that end an answer.
    pub(crate) ends: Vec<u32>,
    pub(crate) logprobs: Option<usize>,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) return_token_ids: bool,
}

impl Generation {
    /// Checks a body against the model.
    ///
    /// # Errors
    /// The model is another one, a key is missing, belongs to the other kind of request or is out
    /// of range, or the prompt is too long.
    pub(crate) fn new(kind: RequestKind, body: RequestBody, model: &ServedModel) -> Result<Self, ApiError> {
        check_model(body.model.as_deref(), model)?;
        let sampling = sampling(&body)?;
        let logprobs = logprobs(kind, &body)?;
        let stops = stops(body.stop)?;
        let prompts = match kind {
            RequestKind::Completion => completion_prompts(&body.messages, body.prompt, model)?,
            RequestKind::Chat => vec![chat_prompt(body.messages, &body.prompt, model)?],
        };
        let each = body.n.unwrap_or(1);
        let each = usize::try_from(each).unwrap_or(usize::MAX);
        if each == 0 || prompts.len().saturating_mul(each) > MOST_CHOICES {
            let wanted = format!("from 1 to {MOST_CHOICES} answers to one request are possible");
            return Err(ApiError::value("n", wanted));
        }
        let limit = match (kind, body.max_completion_tokens) {
            (RequestKind::Completion, Some(_)) => {
                return Err(ApiError::value("max_completion_tokens", "a completion has max_tokens"));
            }
            (_, limit) => limit.or(body.max_tokens),
        };
        let mut requests = Vec::with_capacity(prompts.len() * each);
        for prompt in &prompts {
            let output_tokens = output_tokens(kind, prompt, limit, model)?;
            for index in 0..each {
                let sampling = match sampling {
                    Sampling::Random { temperature, top_k, top_p, seed } => {
                        Sampling::Random { temperature, top_k, top_p, seed: seed.wrapping_add(index as u64) }
                    }
                    Sampling::Greedy => Sampling::Greedy,
                };
                let (prompt, stops) = (prompt.clone(), stops.clone());
                requests.push(BatchRequest { prompt, output_tokens, stops, sampling });
            }
        }
        let stream = body.stream.unwrap_or(false);
        if body.stream_options.is_some() && !stream {
            return Err(ApiError::value("stream_options", "stream is not true"));
        }
        Ok(Self {
            kind,
            requests,
            prompt_tokens: prompts.iter().map(|prompt| prompt.len() as u64).sum(),
            ends: if body.ignore_eos == Some(true) { vec![] } else { model.ends.clone() },
            logprobs,
            stream,
            include_usage: body.stream_options.is_some_and(|options| options.include_usage),
            return_token_ids: body.return_token_ids.unwrap_or(false),
        })
    }
}

fn check_model(name: Option<&str>, model: &ServedModel) -> Result<(), ApiError> {
    match name {
        Some(name) if name != model.name => {
            let message = format!("the model '{name}' is not served here: '{}' is", model.name);
            let error = ApiError::new(StatusCode::NOT_FOUND, message).with_code("model_not_found");
            Err(ApiError { param: Some("model".to_owned()), ..error })
        }
        _ => Ok(()),
    }
}

/// The prompts of a completion.
fn completion_prompts(
    messages: &Option<Vec<ChatMessage>>,
    prompts: Option<Prompts>,
    model: &ServedModel,
) -> Result<Vec<Vec<u32>>, ApiError> {
    if messages.is_some() {
        return Err(ApiError::value(
            "messages",
            "a completion has a prompt: /v1/chat/completions takes messages",
        ));
    }
    let encode = |text: &String| {
        model.tokenizer.encode(text).map_err(|error| ApiError::value("prompt", error.to_string()))
    };
    let prompts = match prompts.ok_or_else(|| ApiError::value("prompt", "missing"))? {
        Prompts::Text(text) => vec![encode(&text)?],
        Prompts::Tokens(tokens) => vec![tokens],
        Prompts::Texts(texts) => texts.iter().map(encode).collect::<Result<_, _>>()?,
        Prompts::TokenLists(lists) => lists,
    };
    if let Some(token) = prompts.iter().flatten().find(|&&token| u64::from(token) >= model.vocab) {
        let message = format!("token {token}: the model has tokens below {}", model.vocab);
        return Err(ApiError::value("prompt", message));
    }
    Ok(prompts)
}

/// The prompt of a conversation.
fn chat_prompt(
    messages: Option<Vec<ChatMessage>>,
    prompt: &Option<Prompts>,
    model: &ServedModel,
) -> Result<Vec<u32>, ApiError> {
    if prompt.is_some() {
        return Err(ApiError::value("prompt", "a conversation has messages: /v1/completions takes a prompt"));
    }
    let wrong = |reason: String| ApiError::value("messages", reason);
    let messages = messages.filter(|messages| !messages.is_empty());
    let messages = messages.ok_or_else(|| wrong("at least one is wanted".to_owned()))?;
    let template = model.template.as_ref().ok_or_else(|| {
        wrong(format!(
            "'{}' has no chat template: use /v1/completions, or start with --chat-template",
            model.name
        ))
    })?;
    let messages: Vec<_> = messages.into_iter().map(turn).collect();
    let text = template.render(&messages).map_err(wrong)?;
    model.tokenizer.encode_formatted(&text).map_err(|error| wrong(error.to_string()))
}

/// A message as templates read it: the parts of its content are one text.
fn turn(ChatMessage { role, content, .. }: ChatMessage) -> ConversationTurn {
    let content = match content {
        None => String::new(),
        Some(MessageContent::Text(text)) => text,
        Some(MessageContent::Parts(parts)) => parts.into_iter().map(|TextPart::Text { text }| text).collect(),
    };
    ConversationTurn { role, content }
}

/// The most tokens of the answer to `prompt`.
fn output_tokens(
    kind: RequestKind,
    prompt: &[u32],
    limit: Option<u64>,
    model: &ServedModel,
) -> Result<u64, ApiError> {
    let (length, most) = (prompt.len() as u64, model.most_tokens);
    let param = match kind {
        RequestKind::Completion => "prompt",
        RequestKind::Chat => "messages",
    };
    if length == 0 {
        return Err(ApiError::value(param, "at least one token is wanted"));
    }
    let room = most.saturating_sub(length);
    let wanted = limit.unwrap_or(match kind {
        RequestKind::Completion => COMPLETION_TOKENS.min(room.max(1)),
        RequestKind::Chat => room.max(1),
    });
    if wanted == 0 {
        return Err(ApiError::value("max_tokens", "0: at least 1 is wanted"));
    }
    if wanted > room {
        let message = format!(
            "{length} tokens of the prompt and {wanted} of the answer: the plan has room for {most} together"
        );
        return Err(ApiError::value(param, message).with_code("context_length_exceeded"));
    }
    Ok(wanted)
}

/// How tokens are chosen. Without a temperature it is 1, as OpenAI has it; without a seed every
/// request draws its own numbers.
fn sampling(body: &RequestBody) -> Result<Sampling, ApiError> {
    let temperature = body.temperature.unwrap_or(1.0);
    if !(0.0..=2.0).contains(&temperature) {
        return Err(ApiError::value("temperature", format!("{temperature}: from 0 to 2 is wanted")));
    }
    let top_k = match body.top_k {
        None | Some(-1 | 0) => None,
        Some(count) => Some(usize::try_from(count).map_err(|_| {
            ApiError::value("top_k", format!("{count}: at least 1, or -1 for all tokens, is wanted"))
        })?),
    };
    let top_p = body.top_p;
    if let Some(share) = top_p.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
        return Err(ApiError::value("top_p", format!("{share}: above 0 and at most 1 is wanted")));
    }
    if temperature == 0.0 {
        return Ok(Sampling::Greedy);
    }
    let seed = body.seed.map_or_else(|| RandomState::new().hash_one(0), |seed| seed as u64);
    Ok(Sampling::Random { temperature, top_k, top_p, seed })
}

fn logprobs(kind: RequestKind, body: &RequestBody) -> Result<Option<usize>, ApiError> {
    let count = match (kind, body.logprobs, body.top_logprobs) {
        (_, None | Some(Logprobs::Wanted(false)), None) => None,
        (RequestKind::Completion, Some(Logprobs::Count(count)), None) => Some(count),
        (RequestKind::Chat, Some(Logprobs::Wanted(true)), count) => Some(count.unwrap_or(0)),
        (RequestKind::Completion, _, Some(_)) => {
            return Err(ApiError::value("top_logprobs", "a completion has logprobs, a count"));
        }
        (RequestKind::Completion, Some(Logprobs::Wanted(true)), None) => {
            return Err(ApiError::value("logprobs", "true: a completion wants a count"));
        }
        (RequestKind::Chat, Some(Logprobs::Count(_)), _) => {
            return Err(ApiError::value("logprobs", "true or false is wanted: top_logprobs is the count"));
        }
        (RequestKind::Chat, _, Some(_)) => {
            return Err(ApiError::value("top_logprobs", "logprobs is not true"));
        }
    };
    match count {
        Some(count) if count > MOST_LOGPROBS => {
            let key = if kind == RequestKind::Chat { "top_logprobs" } else { "logprobs" };
            Err(ApiError::value(key, format!("{count}: at most {MOST_LOGPROBS} is wanted")))
        }
        count => Ok(count),
    }
}

fn stops(stops: Option<Stops>) -> Result<Vec<String>, ApiError> {
    let stops = match stops {
        None => vec![],
        Some(Stops::One(stop)) => vec![stop],
        Some(Stops::Several(stops)) => stops,
    };
    if stops.len() > MOST_STOPS {
        return Err(ApiError::value(
            "stop",
            format!("{} texts: at most {MOST_STOPS} are wanted", stops.len()),
        ));
    }
    if stops.iter().any(String::is_empty) {
        return Err(ApiError::value("stop", "an empty text stops nothing: leave it out"));
    }
    Ok(stops)
}
