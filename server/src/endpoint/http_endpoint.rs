//! A client of OpenAI's protocol over plain HTTP.

use axum::body::Bytes;
use fulcrum::{Error, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::Instant;
use tokio::net::TcpStream;

/// A server of OpenAI's protocol.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `host:port`
    authority: String,
    /// The path before `/completions`: `/v1`.
    base: String,
    /// What is shown as `Authorization: Bearer`.
    token: Option<String>,
}

/// When the tokens of an answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamTimes {
    pub(crate) first: Instant,
    pub(crate) last: Instant,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) output_tokens: u64,
}

/// Why there is no answer.
type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Endpoint {
    /// The server at `url`, like `http://127.0.0.1:8000/v1`; a URL without a path means `/v1`.
    ///
    /// # Errors
    /// The URL is malformed, or is not plain HTTP.
    pub fn new(url: &str, token: Option<String>) -> Result<Self> {
        let wrong = |reason: &str| Error::input(format!("{url}: {reason}"));
        if url.starts_with("https://") {
            return Err(wrong(
                "https is not supported: forward a local port to the server and give http://127.0.0.1:PORT/v1",
            ));
        }
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| wrong("a URL like http://127.0.0.1:8000/v1 is wanted"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.contains(['@', '?', '#', ' ']) {
            return Err(wrong("a URL like http://127.0.0.1:8000/v1 is wanted"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
        let path = path.trim_end_matches('/');
        let base = if path.is_empty() { "/v1".to_owned() } else { format!("/{path}") };
        Ok(Self { authority, base, token })
    }

    /// `host:port`
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The name of the first model that the server tells.
    pub(crate) async fn first_model(&self) -> Result<String, Failure> {
        let response = self.send(Method::GET, "/models", None).await?;
        let (status, body) = (response.status(), response.into_body().collect().await?.to_bytes());
        check_status(status, &body)?;
        let models: Value = serde_json::from_slice(&body)?;
        let name = models["data"][0]["id"].as_str().ok_or("the server tells no model at /models")?;
        Ok(name.to_owned())
    }

    /// Streams the answer to a prompt, which is greedy and goes on behind an end of text.
    pub(crate) async fn stream(
        &self,
        model: &str,
        prompt: &[u32],
        output_tokens: u64,
    ) -> Result<StreamTimes, Failure> {
        let body = json!({
            "model": model, "prompt": prompt, "max_tokens": output_tokens, "temperature": 0, "ignore_eos": true,
            "stream": true, "stream_options": {"include_usage": true},
        });
        let response = self.send(Method::POST, "/completions", Some(&body)).await?;
        let status = response.status();
        if status != StatusCode::OK {
            let body = response.into_body().collect().await?.to_bytes();
            check_status(status, &body)?;
            return Err(format!("{status}").into());
        }
        let mut stream = EventStream::default();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            if let Some(data) = frame?.data_ref() {
                stream.add(data, Instant::now())?;
            }
        }
        stream.finish()
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, Failure> {
        let stream = TcpStream::connect(&self.authority).await?;
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        Ok(sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?)
    }
}

/// Fails with the message of an error object, where the status is an error.
fn check_status(status: StatusCode, body: &[u8]) -> Result<(), Failure> {
    if status.is_success() {
        return Ok(());
    }
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = json["error"]["message"].as_str().map(str::to_owned);
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).chars().take(200).collect());
    Err(format!("{status}: {message}").into())
}

/// The events of a stream, as they come in pieces.
#[derive(Debug, Default)]
struct EventStream {
    /// The beginning of a line.
    rest: Vec<u8>,
    times: Option<(Instant, Instant)>,
    chunks: u64,
    usage: Value,
}

impl EventStream {
    fn add(&mut self, data: &[u8], now: Instant) -> Result<(), Failure> {
        self.rest.extend_from_slice(data);
        while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let Some(event) = line.strip_prefix(b"data:") else { continue };
            if event.trim_ascii() == b"[DONE]" {
                continue;
            }
            let event: Value = serde_json::from_slice(event)?;
            if !event["error"].is_null() {
                return Err(event["error"]["message"].to_string().into());
            }
            if !event["usage"].is_null() {
                self.usage = event["usage"].clone();
            }
            // The end of a choice may come in an event of its own, without a token.
            let choice = &event["choices"][0];
            if choice.is_null() || (choice["text"] == "" && !choice["finish_reason"].is_null()) {
                continue;
            }
            self.chunks += 1;
            let first = self.times.map_or(now, |(first, _)| first);
            self.times = Some((first, now));
        }
        Ok(())
    }

    fn finish(self) -> Result<StreamTimes, Failure> {
        let (first, last) = self.times.ok_or("the stream had no token")?;
        let output_tokens = self.usage["completion_tokens"].as_u64().unwrap_or(self.chunks);
        Ok(StreamTimes { first, last, prompt_tokens: self.usage["prompt_tokens"].as_u64(), output_tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_apart() {
        let parts = |url: &str| Endpoint::new(url, None).map(|it| (it.authority, it.base));
        let wanted = |authority: &str, base: &str| (authority.to_owned(), base.to_owned());
        assert_eq!(parts("http://localhost:8000").expect("valid"), wanted("localhost:8000", "/v1"));
        assert_eq!(parts("http://10.0.0.1/v1/").expect("valid"), wanted("10.0.0.1:80", "/v1"));
        assert_eq!(parts("http://[::1]:80/a/v2").expect("valid"), wanted("[::1]:80", "/a/v2"));
        for (url, word) in [
            ("https://x/v1", "https"),
            ("x:80", "http://"),
            ("http:///v1", "http://"),
            ("http://a@b/", "http://"),
        ] {
            let error = parts(url).expect_err(url).to_string();
            assert!(error.contains(word) && error.starts_with(url), "{error}");
        }
    }

    #[test]
    fn events_may_come_in_any_pieces() {
        let text = ": ping\n\ndata: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\ndata: {\"choices\":\
            [{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\ndata: {\"choices\":[{\"text\":\"\",\"finish_reason\":\
            \"length\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"completion_tokens\":7}}\n\ndata: [DONE]\n\n";
        for size in [1, 2, 7, 1000] {
            let mut stream = EventStream::default();
            for piece in text.as_bytes().chunks(size) {
                stream.add(piece, Instant::now()).expect("valid");
            }
            assert_eq!(stream.chunks, 2);
            assert_eq!(stream.finish().expect("tokens").output_tokens, 7);
        }
        let mut stream = EventStream::default();
        let error = stream.add(b"data: {\"error\": {\"message\": \"gone\"}}\n", Instant::now());
        assert!(error.expect_err("it failed").to_string().contains("gone"));
        assert!(EventStream::default().finish().is_err());
    }
}
