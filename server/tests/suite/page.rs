//! The page with this machine's planner behind it.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

/// Sends a request and reads the whole response.
fn asked(address: SocketAddr, head: &str, host: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

#[test]
fn the_page_is_whole_plans_and_is_for_this_machine_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| server::serve_page(listener, &stop));
        let get = |path: &str| asked(address, &format!("GET {path}"), "127.0.0.1", "");
        assert!(get("/").contains("data-planner=\"native\""));
        for path in ["/page.js", "/page.css", "/licences.txt"] {
            assert!(get(path).starts_with("HTTP/1.1 200"), "{path}");
        }
        assert!(get("/etc/passwd").starts_with("HTTP/1.1 404"));
        let workload = json!({"batch": 1, "prompt_tokens": 64, "output_tokens": 8});
        let scenario = json!({"machine": "l4", "model": "opt-125m", "workload": workload});
        let question = json!({"ask": "plan", "scenario": scenario}).to_string();
        let response = asked(address, "POST /api/ask", "localhost:1234", &question);
        let body: Value =
            serde_json::from_str(response.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
        assert!(body["answer"]["numbers"]["ttft_s"].as_f64() > Some(0.0), "{response}");
        let wrong = asked(address, "POST /api/config?name=mine", "127.0.0.1", "{}");
        assert!(wrong.contains("model_type"), "{wrong}");
        let foreign = asked(address, "POST /api/ask", "attacker.example", &question);
        assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
        stop.store(true, Ordering::Release);
        served.join().expect("no panic").expect("it stops");
    });
}
