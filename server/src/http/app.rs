//! The routes of the server.

use super::answer_body::{AnswerBody, AnswerEvents};
use super::service_metrics::ServiceMetrics;
use crate::prompt::served_model::ServedModel;
use crate::protocol::answer::ApiAnswer;
use crate::protocol::api_error::ApiError;
use crate::protocol::choice::ChoiceDelta;
use crate::protocol::generation::{Generation, RequestKind};
use crate::protocol::request_body::RequestBody;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fulcrum::{AnswerEvent, AnswerSink, OnlineRequest};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// The most bytes of a request.
const MOST_BYTES: usize = 8 << 20;
/// How long the body of a request may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// What all connections share.
pub(crate) struct App {
    model: ServedModel,
    requests: Sender<OnlineRequest>,
    metrics: Arc<ServiceMetrics>,
    token: Option<String>,
    /// Requests that may run or wait at once.
    places: Arc<Semaphore>,
    most: usize,
    answers: AtomicU64,
    created: u64,
}

impl App {
    pub(crate) fn new(
        model: ServedModel,
        requests: Sender<OnlineRequest>,
        metrics: Arc<ServiceMetrics>,
        token: Option<String>,
        queue: usize,
    ) -> Self {
        let most = (model.slots as usize).saturating_add(queue).min(Semaphore::MAX_PERMITS);
        let (places, answers, created) = (Arc::new(Semaphore::new(most)), AtomicU64::new(0), unix_time());
        Self { model, requests, metrics, token, places, most, answers, created }
    }

    /// The routes.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let not_found = || async { ApiError::new(StatusCode::NOT_FOUND, "there is no such path") };
        let no_method =
            || async { ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method") };
        Router::new()
            .route("/v1/completions", post(completions))
            .route("/v1/chat/completions", post(chat_completions))
            .route("/v1/models", get(models))
            .route("/metrics", get(metrics))
            .fallback(not_found)
            .method_not_allowed_fallback(no_method)
            .layer(from_fn_with_state(Arc::clone(&self), check_token))
            // Health checks need no token.
            .route("/health", get(|| async { json_response(&json!({"status": "ok"})) }))
            .with_state(self)
    }

    /// Answers a request.
    async fn answer(self: Arc<Self>, kind: RequestKind, request: Request) -> Result<Response, ApiError> {
        let arrived = Instant::now();
        let (body, app) = (read_body(request).await?, Arc::clone(&self));
        let is_quick = kind == RequestKind::Completion && body.len() <= QUICK_BODY;
        let read = move || Generation::new(kind, RequestBody::parse(&body)?, &app.model);
        // Meanwhile the other connections go on.
        let generation = match is_quick {
            true => read()?,
            false => spawn_blocking(read).await.map_err(|_| ApiError::failed())??,
        };
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let answer = ApiAnswer::new(&generation, &self.model, number, unix_time());
        let stream = generation.stream;
        let events = self.send(generation, arrived)?;
        if !stream {
            return whole_answer(events, answer).await.map(|whole| json_response(&whole));
        }
        let mut response = Response::new(Body::new(AnswerBody::new(events, answer)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Ok(response)
    }

    /// Hands a request to the session.
    fn send(&self, generation: Generation, arrived: Instant) -> Result<AnswerEvents, ApiError> {
        let count = generation.requests.len();
        if count > self.most {
            let message = format!("{count} answers to one request: there are places for {}", self.most);
            return Err(ApiError::value("n", message));
        }
        let places = Arc::clone(&self.places).try_acquire_many_owned(count as u32).map_err(|_| {
            self.metrics.count("turned_away");
            let message = format!("{} requests run or wait already: try again later", self.most);
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
        })?;
        let (places, (sender, events)) = (Arc::new(places), unbounded_channel());
        let Generation { requests, ends, logprobs, .. } = generation;
        for (index, request) in requests.into_iter().enumerate() {
            let (places, sender) = (Arc::clone(&places), sender.clone());
            let sink = Arc::new(ChannelSink { index, sender, _places: places });
            let online = OnlineRequest { request, ends: ends.clone(), logprobs, arrived, sink };
            self.requests.send(online).map_err(|_| ApiError::failed())?;
        }
        Ok(events)
    }
}

/// A completion's body of at most so many bytes is read on the connections' thread. Longer texts
/// take longer to tokenise, up to seconds at 8 MiB, and so may the template of a conversation.
const QUICK_BODY: usize = 16 << 10;

/// Sends the events of a choice to its connection. The place is free when the session drops this.
struct ChannelSink {
    index: usize,
    sender: UnboundedSender<(usize, AnswerEvent)>,
    _places: Arc<OwnedSemaphorePermit>,
}

impl AnswerSink for ChannelSink {
    fn send(&self, event: AnswerEvent) {
        // Nobody listens to a request that is cancelled.
        let _ = self.sender.send((self.index, event));
    }

    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

async fn completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    app.answer(RequestKind::Completion, request).await
}

async fn chat_completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    app.answer(RequestKind::Chat, request).await
}

async fn models(State(app): State<Arc<App>>) -> Response {
    let ServedModel { name, most_tokens, .. } = &app.model;
    let model = json!({
        "id": name, "object": "model", "created": app.created, "owned_by": "fulcrum", "max_model_len": most_tokens,
    });
    json_response(&json!({"object": "list", "data": [model]}))
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = app.metrics.to_text(app.most - app.places.available_permits());
    let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, form)], text).into_response()
}

/// Refuses a request without the token, where there is one.
async fn check_token(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
    match &app.token {
        Some(token) if !is_same(token.as_bytes(), given) => {
            let message = "the token is missing or wrong: Authorization: Bearer TOKEN is wanted";
            ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key").into_response()
        }
        _ => next.run(request).await,
    }
}

/// Whether two tokens are the same, in a time that does not say where they differ.
fn is_same(token: &[u8], given: &[u8]) -> bool {
    let differences = token.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
    token.len() == given.len() && differences == 0
}

/// The body of a request.
async fn read_body(request: Request) -> Result<Bytes, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    // A page in a browser cannot send this type to another site without asking first.
    if !kind.to_ascii_lowercase().starts_with(b"application/json") {
        let message = "Content-Type: application/json is wanted";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    read_limited(request, MOST_BYTES).await
}

/// The body of a request of at most so many bytes.
pub(crate) async fn read_limited(request: Request, most: usize) -> Result<Bytes, ApiError> {
    let body = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(BODY_TIME, body).await {
        Err(_) => Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body has more than {most} bytes");
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Ok(Err(error)) => {
            Err(ApiError::new(StatusCode::BAD_REQUEST, format!("the body is cut short: {error}")))
        }
    }
}

/// Waits for all choices of an answer.
async fn whole_answer(mut events: AnswerEvents, mut answer: ApiAnswer) -> Result<Value, ApiError> {
    let mut deltas: Vec<ChoiceDelta> = answer.empty_deltas();
    while !answer.is_finished() {
        let (index, event) = events.recv().await.ok_or_else(ApiError::failed)?;
        deltas[index].join(answer.add(index, event)?);
    }
    Ok(answer.whole(&deltas))
}

fn json_response(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Seconds since 1970.
fn unix_time() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}
