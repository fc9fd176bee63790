//! The page on this machine: its files, and the planner behind it.

use super::app::read_limited;
use crate::protocol::api_error::ApiError;
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use fulcrum::PageSession;
use serde::Deserialize;
use std::sync::Arc;

/// The most bytes of a question or a `config.json`.
const MOST_TEXT: usize = 8 << 20;
/// The most bytes of a GGUF file's header.
const MOST_HEADER: usize = 160 << 20;

const INDEX: &str = include_str!("../../page/index.html");
const SCRIPT: &str = include_str!("../../page/page.js");
const STYLE: &str = include_str!("../../page/page.css");
const LICENCES: &str = include_str!("../../page/licences.txt");

/// What a model that the visitor brings is called.
#[derive(Debug, Deserialize)]
struct OwnModel {
    name: String,
    #[serde(default)]
    length: u64,
}

/// The routes of the page: its files, and `POST api/ask`, `api/config`, `api/gguf`.
pub(crate) fn page_router() -> Router {
    // The page asks this server where its root says so, and a worker with WebAssembly otherwise.
    let index = INDEX.replacen("<html ", "<html data-planner=\"native\" ", 1);
    let typed = |kind: &'static str, text: &'static str| {
        move || async move { ([(header::CONTENT_TYPE, kind)], text) }
    };
    Router::new()
        .route("/", get(move || async { Html(index) }))
        .route("/page.js", get(typed("text/javascript", SCRIPT)))
        .route("/page.css", get(typed("text/css", STYLE)))
        .route("/licences.txt", get(typed("text/plain; charset=utf-8", LICENCES)))
        .route("/api/ask", post(ask))
        .route("/api/config", post(add_config))
        .route("/api/gguf", post(add_gguf))
        .layer(from_fn(check_host))
        .with_state(Arc::new(PageSession::default()))
}

/// Refuses a request that another site's name led here: it could read what this machine answers.
async fn check_host(headers: HeaderMap, request: Request, next: Next) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    match name {
        "localhost" | "127.0.0.1" | "[::1]" => next.run(request).await,
        _ => ApiError::new(StatusCode::FORBIDDEN, "the page is for this machine alone: use 127.0.0.1")
            .into_response(),
    }
}

async fn ask(State(session): State<Arc<PageSession>>, request: Request) -> Result<Response, ApiError> {
    let question = text(request).await?;
    answered(move || session.answer(&question)).await
}

async fn add_config(
    State(session): State<Arc<PageSession>>,
    Query(model): Query<OwnModel>,
    request: Request,
) -> Result<Response, ApiError> {
    let config = text(request).await?;
    answered(move || session.add_config(&model.name, &config)).await
}

async fn add_gguf(
    State(session): State<Arc<PageSession>>,
    Query(model): Query<OwnModel>,
    request: Request,
) -> Result<Response, ApiError> {
    let header = read_limited(request, MOST_HEADER).await?;
    answered(move || session.add_gguf(&model.name, &header, model.length)).await
}

async fn text(request: Request) -> Result<String, ApiError> {
    let body = read_limited(request, MOST_TEXT).await?;
    String::from_utf8(body.into())
        .map_err(|_| ApiError::new(StatusCode::BAD_REQUEST, "the body is not UTF-8"))
}

/// Plans on a thread of its own, so that other requests are heard meanwhile.
async fn answered(plan: impl FnOnce() -> String + Send + 'static) -> Result<Response, ApiError> {
    let json = tokio::task::spawn_blocking(plan)
        .await
        .map_err(|_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the planner ended: this is a bug"))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
