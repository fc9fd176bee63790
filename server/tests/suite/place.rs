//! A small model in a folder of its own, a server for it, and a client that knows HTTP/1.1.

use fulcrum::{Checkpoint, LiveOptions, LiveSession, ResolvedPlan, no_progress};
use serde_json::Value;
use server::{ServedModel, ServerOptions, serve};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The folder, with the plan of its model.
pub struct Place {
    folder: tempfile::TempDir,
    pub planned: ResolvedPlan,
}

/// A running server.
#[derive(Clone, Copy)]
pub struct Running<'s> {
    pub address: SocketAddr,
    pub stop: &'s AtomicBool,
}

/// What a server replied.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Place {
    /// A plan for `batch` sequences of so many tokens each.
    pub fn new(batch: u64, prompt_tokens: u64, output_tokens: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (small, model) = (folder.path().join("small"), folder.path().join("fulcrum-tiny"));
        fulcrum::init_model(&fulcrum::model("fulcrum-tiny").expect("a preset"), &small, 1).expect("written");
        // The same model with room for long answers.
        let config = std::fs::read_to_string(small.join("config.json")).expect("a config");
        let long = config.replace("\"max_position_embeddings\": 512", "\"max_position_embeddings\": 60000");
        assert_ne!(long, config);
        let file = folder.path().join("fulcrum-tiny.json");
        std::fs::write(&file, long).expect("written");
        let long = fulcrum::model(file.to_str().expect("a path")).expect("a model");
        fulcrum::init_model(&long, &model, 1).expect("written");
        let scenario = format!(
            "{{machine: example-loopback, model: {}, workload: {{batch: {batch}, \
             prompt_tokens: {prompt_tokens}, output_tokens: {output_tokens}}}}}",
            model.display()
        );
        let scenario = fulcrum::parse_scenario(&scenario).expect("valid");
        Self { planned: fulcrum::plan(&scenario).expect("a plan"), folder }
    }

    pub fn model(&self) -> PathBuf {
        self.folder.path().join("fulcrum-tiny")
    }

    pub fn session<R>(&self, use_it: impl FnOnce(&mut LiveSession<'_>) -> R) -> R {
        let checkpoint = Checkpoint::open(&self.model()).expect("a model");
        let interrupted = AtomicBool::new(false);
        let options = LiveOptions { replan: false, interrupted: &interrupted, progress: &no_progress };
        use_it(&mut LiveSession::new(&self.planned, &checkpoint, options).expect("it fits"))
    }

    /// Runs `client` beside a server, then stops the server, which must end well.
    pub fn served(&self, options: ServerOptions, client: impl FnOnce(Running<'_>) + Send) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (address, stop) = (listener.local_addr().expect("an address"), AtomicBool::new(false));
        let checkpoint = Checkpoint::open(&self.model()).expect("a model");
        let model =
            ServedModel::new(&self.planned, &checkpoint, &self.model(), None, None).expect("a tokenizer");
        std::thread::scope(|scope| {
            let stop = &stop;
            let client = scope.spawn(move || {
                // A client that fails must not leave the server running.
                let _stop = StopOnDrop(stop);
                client(Running { address, stop });
            });
            self.session(|live| serve(live, model, listener, options, stop).expect("it ends well"));
            client.join().expect("the client is content");
        });
    }
}

struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Running<'_> {
    /// Sends a request, whose reply is still to be read.
    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        // The server may refuse a body before it is sent to its end.
        let _ = stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice());
        stream
    }

    pub fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        Reply::read(self.send(method, path, headers, body))
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &str) -> Reply {
        self.ask("POST", path, "Content-Type: application/json\r\n", body)
    }

    /// The metrics, once no request runs or waits.
    pub fn metrics_when_idle(&self) -> String {
        for _ in 0..400 {
            let text = self.get("/metrics").body;
            let busy = ["fulcrum_requests_running", "fulcrum_requests_waiting"];
            if busy.iter().all(|gauge| value(&text, gauge) == 0.0) {
                return text;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("requests are left: {}", self.get("/metrics").body);
    }
}

impl Reply {
    pub fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a head") > 0, "cut short: {head}");
        }
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let mut body = String::new();
        if head.to_lowercase().contains("transfer-encoding: chunked") {
            loop {
                let mut size = String::new();
                reader.read_line(&mut size).expect("a size");
                let size = usize::from_str_radix(size.trim(), 16).expect("a size");
                let mut chunk = vec![0; size + 2];
                reader.read_exact(&mut chunk).expect("a chunk");
                body += std::str::from_utf8(&chunk[..size]).expect("text");
                if size == 0 {
                    break;
                }
            }
        } else {
            reader.read_to_string(&mut body).expect("a body");
        }
        Self { status, head, body }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The events of a stream, without the last one, which must be the end.
    pub fn events(&self) -> Vec<Value> {
        let mut events: Vec<&str> =
            self.body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{}", self.body);
        events.into_iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
    }
}

/// The value of a metric; 0 where it was never counted.
pub fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |number| number.parse().expect("a number"))
}
