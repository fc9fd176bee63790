//! The body of a request, as it is typed.

use super::api_error::ApiError;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

/// The keys of both kinds of requests: completions and conversations. Keys of one kind are refused
/// in the other by [`super::generation::Generation`].
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RequestBody {
    pub(crate) model: Option<String>,
    pub(crate) prompt: Option<Prompts>,
    pub(crate) messages: Option<Vec<ChatMessage>>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) max_completion_tokens: Option<u64>,
    pub(crate) temperature: Option<f32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) top_k: Option<i64>,
    pub(crate) seed: Option<i64>,
    pub(crate) n: Option<u64>,
    pub(crate) stop: Option<Stops>,
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    pub(crate) logprobs: Option<Logprobs>,
    pub(crate) top_logprobs: Option<usize>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) return_token_ids: Option<bool>,
    // Labels that change nothing.
    user: Value,
    metadata: Value,
    store: Value,
    service_tier: Value,
    // Keys that are accepted only where they ask for nothing.
    echo: Value,
    suffix: Value,
    best_of: Value,
    presence_penalty: Value,
    frequency_penalty: Value,
    logit_bias: Value,
    response_format: Value,
    tools: Value,
    tool_choice: Value,
    parallel_tool_calls: Value,
}

/// What to continue.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text, a list of tokens, or a list of either is wanted")]
pub(crate) enum Prompts {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<u32>>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts is wanted")]
pub(crate) enum Stops {
    One(String),
    Several(Vec<String>),
}

/// Completions ask for a count, conversations say whether.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "a count, or in a conversation true or false, is wanted")]
pub(crate) enum Logprobs {
    Wanted(bool),
    Count(usize),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StreamOptions {
    pub(crate) include_usage: bool,
    /// Padding against eavesdroppers: there is none on a loopback.
    #[serde(rename = "include_obfuscation")]
    _obfuscation: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatMessage {
    pub(crate) role: String,
    #[serde(default)]
    pub(crate) content: Option<MessageContent>,
    /// Of several who have one role; templates do not tell them apart.
    #[serde(default, rename = "name")]
    _name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a text, or a list of parts like {\"type\": \"text\", \"text\": \"...\"}, is wanted"
)]
pub(crate) enum MessageContent {
    Text(String),
    Parts(Vec<TextPart>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum TextPart {
    Text { text: String },
}

impl RequestBody {
    /// Reads a body.
    ///
    /// # Errors
    /// It is no JSON, a key is unknown, a value has the wrong type, or a key asks for something
    /// that this server does not do.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, ApiError> {
        let mut reader = serde_json::Deserializer::from_slice(text);
        let body: Self = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let (path, inner) = (error.path().to_string(), error.inner());
            match (inner.is_data(), path.as_str()) {
                (false, _) => malformed(inner),
                (true, path) if path.starts_with('[') => {
                    ApiError::new(StatusCode::BAD_REQUEST, "an object is wanted, not a list")
                }
                (true, ".") => ApiError::new(StatusCode::BAD_REQUEST, inner.to_string()),
                (true, path) => ApiError::value(path, inner.to_string()),
            }
        })?;
        reader.end().map_err(|error| malformed(&error))?;
        body.check_undone()?;
        Ok(body)
    }

    /// Refuses what would change an answer and is not done here.
    fn check_undone(&self) -> Result<(), ApiError> {
        let is_text =
            |value: &Value| value["type"] == "text" && value.as_object().is_some_and(|it| it.len() == 1);
        for (key, value, neutral) in [
            ("echo", &self.echo, self.echo == false),
            ("suffix", &self.suffix, self.suffix == ""),
            ("best_of", &self.best_of, self.best_of == self.n.unwrap_or(1)),
            ("presence_penalty", &self.presence_penalty, self.presence_penalty.as_f64() == Some(0.0)),
            ("frequency_penalty", &self.frequency_penalty, self.frequency_penalty.as_f64() == Some(0.0)),
            (
                "logit_bias",
                &self.logit_bias,
                self.logit_bias.as_object().is_some_and(serde_json::Map::is_empty),
            ),
            ("response_format", &self.response_format, is_text(&self.response_format)),
            ("tools", &self.tools, self.tools.as_array().is_some_and(Vec::is_empty)),
            ("tool_choice", &self.tool_choice, self.tool_choice == "none" || self.tool_choice == "auto"),
            ("parallel_tool_calls", &self.parallel_tool_calls, self.parallel_tool_calls.is_boolean()),
        ] {
            if !value.is_null() && !neutral {
                return Err(ApiError::value(
                    key,
                    format!("{value}: this server does not do that: leave it out"),
                ));
            }
        }
        Ok(())
    }
}

fn malformed(error: &serde_json::Error) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, format!("the body is no JSON: {error}"))
}
