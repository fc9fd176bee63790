//! Many clients at once, half of whom go before they have their answer. This test needs its own
//! process, because it reads the memory of the process.

#[path = "suite/place.rs"]
mod place;

use place::{Place, value};
use server::ServerOptions;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

const CLIENTS: u64 = 64;
const ROUNDS: u64 = 24;
/// Memory may grow in the first rounds: threads start, and buffers get their size.
const BEGIN: u64 = 8;
/// Growth that is allowed after that, in bytes.
const MOST_GROWTH: u64 = 6 << 20;

/// Bytes of this process that are in memory (Linux: pages of 4 KiB).
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
fn nothing_is_lost_and_memory_is_flat_when_half_of_the_clients_go() {
    let place = Place::new(8, 24, 24);
    place.served(ServerOptions::default(), |server| {
        let (answered, gone) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut memory = vec![];
        for round in 0..ROUNDS {
            std::thread::scope(|scope| {
                for client in 0..CLIENTS {
                    let (answered, gone) = (&answered, &gone);
                    scope.spawn(move || {
                        let seed = round * CLIENTS + client;
                        let tokens = 1 + seed % 20;
                        let body = format!(
                            "{{\"prompt\": [{}, 7, 9], \"max_tokens\": {tokens}, \"seed\": {seed}, \"stream\": {}, \
                             \"ignore_eos\": true}}",
                            seed % 200,
                            client % 4 < 2,
                        );
                        if client % 2 == 0 {
                            // Some go before anything was computed, some after the first token.
                            let headers = "Content-Type: application/json\r\n";
                            let mut stream = server.send("POST", "/v1/completions", headers, &body);
                            if client % 4 == 2 {
                                let _ = stream.read(&mut [0]);
                            }
                            gone.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                        let reply = server.post("/v1/completions", &body);
                        assert_eq!(reply.status, 200, "{} {}", reply.head, reply.body);
                        let whole = match client % 4 < 2 {
                            true => reply.events().len() as u64 == tokens + 1,
                            false => reply.json()["usage"]["completion_tokens"] == tokens,
                        };
                        assert!(whole, "{}", reply.body);
                        answered.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
            if round >= BEGIN {
                memory.push(resident());
            }
        }
        let (answered, gone) = (answered.into_inner(), gone.into_inner());
        assert_eq!((answered, gone), (CLIENTS * ROUNDS / 2, CLIENTS * ROUNDS / 2));
        // A client that goes before its request was read has sent none.
        let metrics = server.metrics_when_idle();
        let [finished, cancelled] = ["finished", "cancelled"]
            .map(|end| value(&metrics, &format!("fulcrum_requests_total{{result=\"{end}\"}}")) as u64);
        assert!(finished >= answered && cancelled > 0, "{metrics}");
        assert!(finished + cancelled <= answered + gone, "{metrics}");
        for gauge in ["fulcrum_requests_running", "fulcrum_requests_waiting", "fulcrum_kv_cache_usage_ratio"] {
            assert_eq!(value(&metrics, gauge), 0.0, "{metrics}");
        }
        let (least, most) = (memory.iter().min().expect("rounds"), memory.iter().max().expect("rounds"));
        // The server ends at once, because nothing is left to answer.
        server.stop.store(true, Ordering::Release);
        assert!(most - least <= MOST_GROWTH, "from {least} to {most} bytes: {memory:?}");
    });
}
