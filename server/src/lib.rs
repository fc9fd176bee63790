//! An OpenAI-compatible HTTP server around a session of the library `fulcrum`.
//!
//! [`serve`] answers completions and conversations, whole or streamed, with the session's
//! continuous batching: connections live on one thread, send requests through a channel, and get
//! tokens as they are made. A client that goes cancels its requests.
//!
//! [`serve_page`] shows the page of `web/` with this machine's planner behind it.
//!
//! [`measure_endpoint`] sends a load to any such server and measures it.
//!
//! Rooms, each using only those before it: prompt, protocol, http, endpoint.
#![forbid(unsafe_code)]

mod endpoint;
mod http;
mod prompt;
mod protocol;

pub use endpoint::http_endpoint::Endpoint;
pub use endpoint::load::{MeasuredLoad, measure_endpoint};
pub use prompt::chat_template::ChatTemplate;
pub use prompt::served_model::ServedModel;
pub use prompt::template_process::{TemplateProgram, render_conversations};

use fulcrum::{LiveSession, OrError, Result};
use http::app::App;
use http::listener::serve_connections;
use http::page::page_router;
use http::service_metrics::ServiceMetrics;
use protocol::generation::{Generation, RequestKind};
use protocol::request_body::RequestBody;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How a server is run.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// What clients must show as `Authorization: Bearer`; anybody may ask where there is none.
    pub token: Option<String>,
    /// Requests that may wait beside those that run. More are turned away with 429.
    pub queue: usize,
    /// How long a connection may take for the head of a request, or idle between two.
    pub silence: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { token: None, queue: 256, silence: Duration::from_secs(20) }
    }
}

/// Serves `model` with `live` on `listener` until `stop` is set. Requests that were begun are
/// answered before it returns.
///
/// # Errors
/// A device fails: the requests of that moment are answered with an error. Or connections cannot be
/// served at all.
pub fn serve(
    live: &mut LiveSession<'_>,
    model: ServedModel,
    listener: TcpListener,
    options: ServerOptions,
    stop: &AtomicBool,
) -> Result {
    let (sender, requests) = mpsc::channel();
    let metrics = Arc::new(ServiceMetrics::new(model.slots * (model.most_tokens - 1)));
    let tokenizer = Arc::clone(&model.tokenizer);
    let ServerOptions { token, queue, silence } = options;
    let router = Arc::new(App::new(model, sender, Arc::clone(&metrics), token, queue)).router();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let connections = scope.spawn(|| serve_connections(listener, router, silence, [stop, &ended]));
        // It returns when the last connection, and with it the last sender, is gone.
        let answered = live.answer_online(requests, Some(&tokenizer), |event| metrics.observe(event));
        ended.store(true, Ordering::Release);
        let served = connections.join().expect("the thread of connections does not panic").or_failed();
        answered.and(served)
    })
}

/// Checks the body of a request, a conversation's or a completion's, without answering it.
///
/// # Errors
/// The JSON that a client would get instead of an answer.
pub fn check_body(model: &ServedModel, conversation: bool, body: &[u8]) -> Result<(), String> {
    let kind = if conversation { RequestKind::Chat } else { RequestKind::Completion };
    let generation = RequestBody::parse(body).and_then(|body| Generation::new(kind, body, model));
    generation.map(drop).map_err(|error| error.to_json().to_string())
}

/// Serves the page on `listener` until `stop` is set.
///
/// # Errors
/// Connections cannot be served at all.
pub fn serve_page(listener: TcpListener, stop: &AtomicBool) -> Result {
    serve_connections(listener, page_router(), ServerOptions::default().silence, [stop, stop]).or_failed()
}
