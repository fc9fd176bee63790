//! Clients that ask, stream, break off and are turned away, in hundreds of orders.
//!
//! The real routes answer real requests. Behind them stands a session of a few lines, and a
//! scheduler chooses who goes on after each of its events. A connection goes on only where it was
//! woken, so one that is forgotten stops everything, which the scheduler reports.

use super::app::App;
use super::service_metrics::ServiceMetrics;
use crate::prompt::served_model::ServedModel;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use fulcrum::{AnswerEvent, FinishReason, GenerationResult, OnlineRequest, Tokenizer};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, future, thread};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

/// Clients; the last two break off.
const CLIENTS: usize = 6;
const PATIENT: usize = 4;
/// Answers that may run or wait at once.
const PLACES: usize = 4;

/// The prompts of a client: one token each.
fn prompts(client: usize) -> Vec<u32> {
    (0..1 + client % 2).map(|choice| (40 + 20 * client + 10 * choice) as u32).collect()
}

/// The answer that belongs to a prompt.
fn tokens(prompt: u32) -> Vec<u32> {
    (1..=1 + prompt / 10 % 4).map(|made| prompt + made).collect()
}

/// What the clients and the session know of each other.
#[derive(Default)]
struct Ledger {
    /// Places that are held.
    held: AtomicUsize,
    /// By client: sinks that the session has not dropped.
    sinks: [AtomicUsize; CLIENTS],
    /// A bit for each client whose connection is closed.
    gone: AtomicU64,
}

/// Computes what was asked, an event at a time, until all senders are gone.
fn session(requests: &Receiver<OnlineRequest>, ledger: &Ledger) {
    let mut running: Vec<(OnlineRequest, usize)> = Vec::new();
    loop {
        match requests.try_recv() {
            Ok(request) => running.push((request, 0)),
            Err(TryRecvError::Disconnected) if running.is_empty() => return,
            Err(_) => {}
        }
        assert!(running.len() <= PLACES, "{} run or wait", running.len());
        if !running.is_empty() {
            let at = shuttle::rand::thread_rng().gen_range(0..running.len());
            let (request, made) = &mut running[at];
            let (prompt, answer) = (request.request.prompt[0], tokens(request.request.prompt[0]));
            let client = (prompt as usize - 40) / 20;
            let closed = request.sink.is_closed();
            assert!(closed || ledger.gone.load(Ordering::Relaxed) >> client & 1 == 0, "it is for nobody");
            match answer.get(*made) {
                _ if closed => {}
                Some(&token) => request.sink.send(AnswerEvent::Token { token, logprobs: None }),
                None => request.sink.send(AnswerEvent::Finished(finished(answer.clone()))),
            }
            *made += 1;
            if closed || *made > answer.len() {
                drop(running.swap_remove(at));
                if ledger.sinks[client].fetch_sub(1, Ordering::Relaxed) == 1 {
                    ledger.held.fetch_sub(prompts(client).len(), Ordering::Relaxed);
                }
            }
        }
        thread::yield_now();
    }
}

fn finished(tokens: Vec<u32>) -> GenerationResult {
    let [arrival, scheduled, first_token, last_token] = [Duration::ZERO; 4];
    let finish = FinishReason::Length;
    GenerationResult { id: 0, arrival, scheduled, first_token, last_token, prompt_tokens: 1, tokens, finish }
}

/// What a client got: nothing where it was turned away, otherwise its tokens by choice.
async fn ask(router: Router, client: usize, ledger: Arc<Ledger>) -> Option<Vec<Vec<u32>>> {
    let prompts = prompts(client);
    let is_streamed = !client.is_multiple_of(3);
    let prompt: Vec<_> = prompts.iter().map(|token| [token]).collect();
    let body = json!({"prompt": prompt, "max_tokens": 8, "stream": is_streamed, "return_token_ids": true});
    let request = Request::post("/v1/completions").header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body.to_string())).expect("a request");
    let mut answer = pin!(TowerToHyperService::new(router).call(request));
    let mut is_sent = false;
    let response = std::future::poll_fn(|context| {
        let held = ledger.held.load(Ordering::Relaxed);
        let polled = answer.as_mut().poll(context);
        if !std::mem::replace(&mut is_sent, true) {
            let turned_away =
                matches!(&polled, Poll::Ready(Ok(response)) if response.status() != StatusCode::OK);
            assert_eq!(turned_away, held + prompts.len() > PLACES, "{held} places are held");
            if !turned_away {
                ledger.held.fetch_add(prompts.len(), Ordering::Relaxed);
                ledger.sinks[client].fetch_add(prompts.len(), Ordering::Relaxed);
            }
        }
        polled
    });
    let response = response.await.expect("the routes answer everything");
    let status = response.status();
    let body = response.into_body().collect().await.expect("it is not cut short").to_bytes();
    if status == StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    assert_eq!(status, StatusCode::OK, "{body:?}");
    Some(token_ids(&body, is_streamed, prompts.len()))
}

/// The tokens of an answer, whole or streamed, by choice.
fn token_ids(body: &Bytes, is_streamed: bool, choices: usize) -> Vec<Vec<u32>> {
    let text = std::str::from_utf8(body).expect("text");
    let mut events: Vec<_> = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    match is_streamed {
        true => assert_eq!(events.pop(), Some("[DONE]"), "{text}"),
        false => events = vec![text],
    }
    let mut all = vec![vec![]; choices];
    for event in events {
        let event: Value = serde_json::from_str(event).expect("JSON");
        for choice in event["choices"].as_array().expect("choices") {
            let tokens = choice["token_ids"].as_array().expect("tokens").iter();
            let index = choice["index"].as_u64().expect("a number") as usize;
            all[index].extend(tokens.map(|token| token.as_u64().expect("a number") as u32));
        }
    }
    all
}

fn play() {
    static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
        let json = include_bytes!("../../../fuzz/seeds/tokenizer/bytes.json");
        Arc::new(Tokenizer::from_json("tokenizer.json".as_ref(), json).expect("a tokenizer"))
    });
    let model = ServedModel {
        name: "tiny".to_owned(),
        tokenizer: Arc::clone(&TOKENIZER),
        template: None,
        ends: vec![],
        most_tokens: 100,
        vocab: 512,
        slots: 1,
    };
    let (sender, requests) = channel();
    let app = App::new(model, sender, Arc::new(ServiceMetrics::new(100)), None, PLACES - 1);
    let (router, ledger) = (Arc::new(app).router(), Arc::new(Ledger::default()));
    let session = {
        let ledger = Arc::clone(&ledger);
        thread::spawn(move || session(&requests, &ledger))
    };
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| future::spawn(ask(router.clone(), client, Arc::clone(&ledger)))).collect();
    let mut turned_away = 0;
    for (client, asked) in clients.into_iter().enumerate() {
        if client >= PATIENT {
            asked.abort();
        }
        match future::block_on(asked) {
            Ok(Some(got)) => assert_eq!(got, prompts(client).into_iter().map(tokens).collect::<Vec<_>>()),
            Ok(None) => turned_away += 1,
            Err(_) => assert!(client >= PATIENT, "client {client} got no answer"),
        }
        ledger.gone.fetch_or(1 << client, Ordering::Relaxed);
    }
    while ledger.held.load(Ordering::Relaxed) > 0 {
        thread::yield_now();
    }
    let metrics = future::block_on(metrics(router));
    assert_eq!(metrics["fulcrum_requests_waiting"], "0", "every place is free again");
    let counted = metrics.get("fulcrum_requests_total{result=\"turned_away\"}");
    assert_eq!(counted.map_or(0, |count| count.parse().expect("a number")), turned_away);
    session.join().expect("it ends with the last sender");
}

async fn metrics(router: Router) -> BTreeMap<String, String> {
    let request = Request::get("/metrics").body(Body::empty()).expect("a request");
    let response = TowerToHyperService::new(router).call(request).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let lines = std::str::from_utf8(&body).expect("text").lines();
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn in_any_order_each_client_gets_its_own_answer_or_its_place_is_free_again() {
    // Time limits of requests are made in a runtime; none runs out here.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let percent = std::env::var("FULCRUM_CASES").map_or(100, |text| text.parse().expect("a number"));
    let half = (400_usize * percent).div_ceil(200);
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        Runner::new(scheduler, config).run(play)
    };
    let runs = run(Box::new(RandomScheduler::new_from_seed(1, half)))
        + run(Box::new(PctScheduler::new_from_seed(2, 3, half)));
    assert_eq!(runs, 2 * half, "every order was played");
}
