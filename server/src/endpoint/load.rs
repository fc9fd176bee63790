//! A load of requests, sent to a server when each is due.

use super::http_endpoint::{Endpoint, StreamTimes};
use fulcrum::{
    Client, EndpointDay, Error, GenerationRequest, OrError, ProgressEvent, ProgressFn, Result, TaskStage,
};
use sim::SimTime;
use sim::serving::ServedRequest;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// What was measured of a load.
#[derive(Debug)]
pub struct MeasuredLoad {
    /// The requests, as they were answered.
    pub requests: Vec<ServedRequest>,
    /// Requests whose answers had fewer or more tokens than were wanted.
    pub other_lengths: u64,
    /// Requests whose prompts were counted otherwise by the server.
    pub other_prompts: u64,
}

/// A request that was sent.
struct SentRequest {
    id: u64,
    arrival: Duration,
    prompt_tokens: u64,
    output_tokens: u64,
}

/// A request that is over.
struct EndedRequest {
    sent: SentRequest,
    ended: Instant,
    times: Result<StreamTimes, String>,
}

/// Sends the requests of `day` to `endpoint`, each when it is due: at a time, or when a user was
/// answered. `model` is the name that they carry; that of the first model where there is none.
///
/// # Errors
/// The server cannot be reached or refuses a request, or the table of requests is wrong.
pub fn measure_endpoint(
    endpoint: &Endpoint,
    day: &EndpointDay,
    model: Option<String>,
    progress: &ProgressFn<'_>,
) -> Result<MeasuredLoad> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().or_failed()?;
    progress(ProgressEvent::Begin(TaskStage::Running));
    let measured = runtime.block_on(send_all(endpoint, day, model, progress));
    progress(ProgressEvent::End);
    measured
}

async fn send_all(
    endpoint: &Endpoint,
    day: &EndpointDay,
    model: Option<String>,
    progress: &ProgressFn<'_>,
) -> Result<MeasuredLoad> {
    let model = match model {
        Some(model) => model,
        None => {
            endpoint.first_model().await.map_err(|error| Error::failed(error).within(endpoint.authority()))?
        }
    };
    let (mut client, of) = (day.client()?, day.forecast.len() as u64);
    let (sender, mut ended) = unbounded_channel::<EndedRequest>();
    let mut load = MeasuredLoad { requests: vec![], other_lengths: 0, other_prompts: 0 };
    let (origin, mut held, mut in_flight) = (Instant::now(), None::<GenerationRequest>, 0u64);
    loop {
        match &mut held {
            Some(held) => client.exchange_for_earlier(held),
            None => held = client.next(),
        }
        let over = match &held {
            None if in_flight == 0 => break,
            None => ended.recv().await,
            Some(request) => {
                let left = request.arrival.saturating_sub(origin.elapsed());
                tokio::time::timeout(left, ended.recv()).await.unwrap_or(None)
            }
        };
        match over {
            Some(over) => {
                in_flight -= 1;
                client.finished(over.sent.id, over.ended - origin);
                load.add(over, origin)?;
                progress(ProgressEvent::Steps { done: load.requests.len() as u64, of });
            }
            None => {
                let request = held.take().expect("a time was waited for");
                in_flight += 1;
                spawn(endpoint.clone(), model.clone(), request, sender.clone());
            }
        }
    }
    client.check().map(|()| load)
}

fn spawn(endpoint: Endpoint, model: String, request: GenerationRequest, over: UnboundedSender<EndedRequest>) {
    tokio::spawn(async move {
        let GenerationRequest { id, arrival, prompt, output_tokens, .. } = request;
        let times = endpoint.stream(&model, &prompt, output_tokens).await.map_err(|error| error.to_string());
        let sent = SentRequest { id, arrival, prompt_tokens: prompt.len() as u64, output_tokens };
        // Nobody listens once a request has failed.
        let _ = over.send(EndedRequest { sent, ended: Instant::now(), times });
    });
}

impl MeasuredLoad {
    fn add(&mut self, EndedRequest { sent, times, .. }: EndedRequest, origin: Instant) -> Result {
        let SentRequest { id, arrival, prompt_tokens, output_tokens } = sent;
        let times = times.map_err(|reason| Error::failed(format!("request {id}: {reason}")))?;
        self.other_lengths += u64::from(times.output_tokens != output_tokens);
        self.other_prompts += u64::from(times.prompt_tokens.is_some_and(|count| count != prompt_tokens));
        let time = |at: Duration| SimTime::from_nanos(at.as_nanos() as u64);
        let arrival = time(arrival);
        self.requests.push(ServedRequest {
            id,
            arrival,
            prompt_tokens,
            output_tokens: times.output_tokens,
            // A server does not tell when it begins with a prompt.
            scheduled: arrival,
            first_token: time(times.first - origin).max(arrival),
            last_token: time(times.last - origin).max(arrival),
            cached_tokens: 0,
            fetched_tokens: 0,
            preemptions: 0,
        });
        Ok(())
    }
}
