//! Requests that clients send and cancel while others are computed, in thousands of orders.

use crate::batch::sampling::Sampling;
use crate::run::engine::RunEngine;
use crate::run::schedules::{engine, explore, play};
use crate::run::shared::{SharedRun, TaskTimes};
use crate::serve::request::{Batching, Client, FinishReason, GenerationEvent, GenerationRequest};
use crate::serve::service::Service;
use hwprofiles::{DeviceId, MemoryId};
use planner::{LayerPlacement, Placement, whole_slice};
use scenarios::{Model, Scheduler};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::mpsc::{Receiver, channel};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Requests of the clients, and whether each was sent and cancelled.
const CLIENTS: u64 = 4;

/// The sublayers of a layer on two devices in turn, weights streamed to the second.
fn placement(model: &Model) -> Placement {
    let devices = std::cell::Cell::new(0);
    let slices = |sublayer| {
        devices.set(1 - devices.get());
        let device = DeviceId(devices.get());
        vec![whole_slice(model, sublayer, MemoryId(0), device, device)]
    };
    let layers = vec![LayerPlacement::from_slices(model.kind(0), slices); model.layers as usize];
    Placement { layers, ..Placement::uniform(model, DeviceId(0), MemoryId(0)) }
}

fn request(id: u64) -> GenerationRequest {
    let prompt = (0..1 + id as u32 % 3 * 2).map(|index| 11 + 40 * id as u32 + 3 * index).collect();
    GenerationRequest {
        id,
        arrival: Duration::ZERO,
        prompt,
        output_tokens: 1 + id % 2,
        sampling: Sampling::Greedy,
        stop: vec![],
        logprobs: None,
    }
}

/// Requests from a channel, as a server's.
struct Inbox {
    requests: Receiver<GenerationRequest>,
    held: Option<GenerationRequest>,
    cancelled: Arc<[AtomicBool; CLIENTS as usize]>,
}

impl Client for Inbox {
    fn next(&mut self) -> Option<GenerationRequest> {
        self.held.take().or_else(|| self.requests.try_recv().ok())
    }

    fn wait(&mut self, _most: Duration) -> bool {
        self.held = self.requests.recv().ok();
        self.held.is_some()
    }

    fn is_cancelled(&mut self, id: u64) -> bool {
        self.cancelled[id as usize].load(Ordering::Acquire)
    }
}

/// What came of the requests.
#[derive(Default)]
struct Ends {
    tokens: BTreeMap<u64, Vec<u32>>,
    finished: BTreeMap<u64, Vec<u32>>,
    cancelled: Vec<u64>,
}

impl Ends {
    fn add(&mut self, event: GenerationEvent) {
        let is_over = |ends: &Self, id| ends.finished.contains_key(&id) || ends.cancelled.contains(&id);
        match event {
            GenerationEvent::Token { id, token, .. } => {
                assert!(!is_over(self, id), "nothing follows the end of request {id}");
                self.tokens.entry(id).or_default().push(token);
            }
            GenerationEvent::Finished(result) => {
                assert!(!is_over(self, result.id), "request {} ends once", result.id);
                assert_eq!(result.finish, FinishReason::Length);
                self.finished.insert(result.id, result.tokens);
            }
            GenerationEvent::Cancelled { id } => {
                assert!(!is_over(self, id), "request {id} ends once");
                self.cancelled.push(id);
            }
            GenerationEvent::Refused { id, reason } => panic!("{id}: {reason}"),
            GenerationEvent::PassDone(_) => {}
        }
    }
}

/// A service for `client` that pauses wherever `pauses` is set, until no request is left.
fn serve(engine: &RunEngine, client: impl Client, pauses: &AtomicBool) -> Ends {
    let batching = Batching {
        max_num_seqs: 2,
        max_num_batched_tokens: 6,
        prefill_first: false,
        scheduler: Scheduler::Fcfs,
    };
    let origin = Instant::now();
    let mut service = Service::new(&engine.setup, batching, client).expect("valid").counting_from(origin);
    let (ends, ended) = (Mutex::new(Ends::default()), AtomicBool::new(false));
    while !ended.load(Ordering::Relaxed) {
        let run = SharedRun::new(engine, std::mem::take(&mut service.sequences), origin, TaskTimes::Busy);
        play(&run, |state| {
            let paused = std::cell::Cell::new(false);
            let pause = || {
                paused.set(pauses.swap(false, Ordering::AcqRel));
                paused.get()
            };
            let send = |event| ends.lock().expect("no test panics with it").add(event);
            let pass = service.next_pass(state, engine, &pause, &send);
            ended.store(pass.is_none() && !paused.get(), Ordering::Relaxed);
            pass
        });
        assert!(run.take_failure().is_none());
        service.sequences = run.sequences.into_inner().expect("no lane has panicked");
    }
    assert!(service.interrupt().is_empty(), "every request has ended");
    assert!(service.sequences.iter().all(|sequence| sequence.tokens.is_empty()), "every slot is free");
    ends.into_inner().expect("no test panics with it")
}

/// The answer to each request when it is the only one.
fn alone(engine: &'static RunEngine) -> BTreeMap<u64, Vec<u32>> {
    let answers = std::sync::Arc::new(std::sync::Mutex::new(BTreeMap::new()));
    let all = std::sync::Arc::clone(&answers);
    explore(2, move || {
        for id in 0..CLIENTS {
            let one = VecDeque::from([request(id)]).into_iter();
            let ends = serve(engine, one, &AtomicBool::new(false));
            all.lock().expect("no test panics with it").extend(ends.finished);
        }
    });
    let answers = answers.lock().expect("no test panics with it");
    answers.clone()
}

#[test]
fn each_request_ends_once_and_with_its_own_tokens_in_any_order() {
    let engine = engine(placement);
    assert!(engine.lanes.len() >= 3, "{:?}", engine.lanes);
    let expected = alone(engine);
    assert_eq!(expected.len() as u64, CLIENTS);
    explore(400, move || {
        let (sender, requests) = channel();
        let cancelled = Arc::new([const { AtomicBool::new(false) }; CLIENTS as usize]);
        let pauses = Arc::new(AtomicBool::new(false));
        let clients = (0..CLIENTS).map(|id| {
            let (sender, cancelled) = (sender.clone(), Arc::clone(&cancelled));
            thread::spawn(move || {
                sender.send(request(id)).expect("the service listens");
                // Every second client goes, wherever the service is by then.
                if id % 2 == 1 {
                    thread::yield_now();
                    cancelled[id as usize].store(true, Ordering::Release);
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        drop(sender);
        let pausing = Arc::clone(&pauses);
        let pauser = thread::spawn(move || pausing.store(true, Ordering::Release));
        let inbox = Inbox { requests, held: None, cancelled };
        let ends = serve(engine, inbox, &pauses);
        clients.into_iter().chain([pauser]).for_each(|thread| thread.join().expect("it does not panic"));
        for id in 0..CLIENTS {
            let tokens = ends.tokens.get(&id).map_or(&[][..], |tokens| tokens);
            match ends.finished.get(&id) {
                Some(finished) => {
                    let wanted = &expected[&id][..];
                    assert_eq!((&finished[..], tokens), (wanted, wanted), "request {id}");
                }
                None => {
                    assert!(id % 2 == 1 && ends.cancelled.contains(&id), "request {id} is lost");
                    assert!(expected[&id].starts_with(tokens), "request {id}");
                }
            }
        }
    });
}
