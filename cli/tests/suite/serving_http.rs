//! `fulcrum serve`, and `fulcrum validate --endpoint` beside it.

use crate::place::Place;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

const SCENARIO: &str = "\
machine: example-loopback
model: fulcrum-tiny
workload: {batch: 3, prompt_tokens: 24, output_tokens: 12}
";

fn planned() -> Place {
    let place = Place::with(&[("scenario.yaml", SCENARIO.as_bytes())]);
    place.stdout("model init fulcrum-tiny -o model");
    place.stdout("plan scenario.yaml -o plan.yaml");
    place
}

/// A server that is killed when the test is over.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(place: &Place, more: &str) -> Self {
        let mut child = place
            .command(&format!("--json serve plan.yaml --model-dir model --port 0 {more}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let told: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(told["model"], "fulcrum-tiny");
        let url = told["url"].as_str().expect("a URL");
        let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/v1")).expect(url);
        Self { address: address.to_owned(), child }
    }

    fn complete(&self, body: &Value) -> Value {
        let (status, answer) = self.post("completions", body);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The status and the body of an answer.
    fn post(&self, what: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = format!(
            "POST /v1/{what} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect(head);
        (status.parse().expect(head), serde_json::from_str(body).expect("JSON"))
    }

    /// Asks it to end: its exit status and what it told.
    fn stop(mut self) -> (Option<i32>, String) {
        let killed =
            Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill");
        assert!(killed.success());
        let status = self.child.wait().expect("it ends").code();
        let mut told = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut told).expect("text");
        (status, told)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_has_the_tokens_of_a_batch_and_ends_well_when_it_is_asked_to() {
    let place = planned();
    let requests = [
        json!({"prompt": "A lever", "max_tokens": 9, "temperature": 0.0}),
        json!({"prompt": "and a place to stand", "max_tokens": 12, "temperature": 1.5, "seed": 4}),
        json!({"prompt": "x", "max_tokens": 20, "temperature": 0.7, "top_k": 9, "seed": 5}),
    ];
    let lines = requests.iter().map(|request| {
        let mut line = request.clone();
        if line["temperature"] == 0.0 {
            line.as_object_mut().expect("an object").remove("temperature");
        }
        format!("{line}\n")
    });
    fs::write(place.path("asked.jsonl"), lines.collect::<String>()).expect("written");
    let out = place.stdout("run plan.yaml --model-dir model --batch asked.jsonl --ignore-eos");
    let server = Server::start(&place, "");
    for (request, line) in requests.iter().zip(out.lines()) {
        let wanted: Value = serde_json::from_str(line).expect("JSON");
        let mut body = request.clone();
        body["return_token_ids"] = json!(true);
        body["ignore_eos"] = json!(true);
        let answer = server.complete(&body);
        let choice = &answer["choices"][0];
        assert_eq!(
            (&choice["token_ids"], &choice["text"]),
            (&wanted["tokens"], &wanted["text"]),
            "{request}"
        );
        assert_eq!(answer["usage"]["prompt_tokens"], wanted["prompt_tokens"]);
    }
    let (status, told) = server.stop();
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("every request that was begun is answered"), "{told}");
}

/// One value of a template may have any size or shape, and the engine has no limit for that.
#[test]
fn a_template_that_fills_the_memory_or_takes_for_ever_fails_one_conversation() {
    let place = planned();
    let rounds = |round: &str| format!("{{% for a in range(99) %}}{round}{{% endfor %}}");
    let nested = "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}";
    let template = format!(
        "{{% set ns = namespace(s='lever', x=[1], y=[1]) %}}{{% set asked = messages[0]['content'] %}}\
         {{% if asked == 'double' %}}{}{{% elif asked == 'compare' %}}{}{{{{ ns.x == ns.y }}}}{{% endif %}}{{{{ asked }}}}",
        rounds("{% set ns.s = ns.s ~ ns.s %}"),
        rounds(nested),
    );
    fs::write(place.path("chat.jinja"), template).expect("written");
    let server = Server::start(&place, "--chat-template chat.jinja");
    let ask = |content: &str| {
        let messages = json!([{"role": "user", "content": content}]);
        server.post("chat/completions", &json!({"messages": messages, "max_tokens": 2}))
    };
    for (content, words) in [("double", "more than 2 GiB of memory"), ("compare", "more than 5 seconds")] {
        let (status, answer) = ask(content);
        assert!(status == 400 && answer["error"]["message"].to_string().contains(words), "{answer}");
        assert_eq!(ask("hello").0, 200, "the next conversation is answered");
    }
    let large = vec!["'x' * 99999999"; 40].join(" ~ ");
    fs::write(place.path("chat.jinja"), format!("{{{{ {large} }}}}")).expect("written");
    place.refused(
        "serve plan.yaml --model-dir model --port 0 --chat-template chat.jinja",
        2,
        &["chat.jinja", "more than 2 GiB of memory"],
    );
}

#[test]
fn a_load_is_measured_at_an_endpoint_beside_its_forecast() {
    let place = planned();
    let closed = "{concurrency: 3, requests: 12, prompt_tokens: 5, output_tokens: {from: 1, to: 6}}";
    let load = SCENARIO.replace("{batch: 3, prompt_tokens: 24, output_tokens: 12}", closed);
    fs::write(place.path("closed.yaml"), load).expect("written");
    fs::write(place.path("day.csv"), "arrival_s,prompt_tokens,output_tokens\n0,5,3\n0.05,9,1\n")
        .expect("written");
    let server = Server::start(&place, "--token sesame");
    let endpoint = format!("--endpoint http://{} --token sesame", server.address);
    for (plan, load, count) in
        [("", "closed.yaml", 12), ("plan.yaml", "closed.yaml", 12), ("plan.yaml", "day.csv", 2)]
    {
        let command = format!(
            "--json validate {plan} {endpoint} --load {load} --requests real.csv --forecast simulated.csv"
        );
        let json: Value = serde_json::from_str(&place.stdout(&command)).expect("JSON");
        assert_eq!(json["requests"], count, "{command}");
        for side in ["measured", "forecast"] {
            for key in ["ttft_p50_s", "e2el_p50_s", "e2el_p99_s", "duration_s"] {
                assert!(json[side][key].as_f64().is_some_and(|value| value > 0.0), "{side} {key}: {json}");
            }
        }
        let table = |name: &str| -> Vec<Vec<String>> {
            let text = fs::read_to_string(place.path(name)).expect("a table");
            text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
        };
        let (real, simulated) = (table("real.csv"), table("simulated.csv"));
        assert_eq!(real.len(), count + 1);
        for (real, simulated) in real.iter().zip(&simulated) {
            assert_eq!((&real[0], &real[2..4]), (&simulated[0], &simulated[2..4]), "the same requests");
        }
    }
    let text = place.stdout(&format!("validate plan.yaml {endpoint} --load closed.yaml"));
    assert!(text.contains("12 requests answered") && text.contains("TTFT p50"), "{text}");
    let address = &server.address;
    let without = format!("validate --endpoint http://{address} --load closed.yaml");
    place.refused(&without, 1, &["401", "token"]);
    let other = format!("validate {endpoint} --load closed.yaml --model gpt-5");
    place.refused(&other, 1, &["request", "404", "gpt-5"]);
    place.refused(&format!("validate {endpoint} --load scenario.yaml"), 2, &["workload"]);
    place.refused("validate --endpoint https://x/v1 --load closed.yaml", 2, &["https"]);
    place.refused(
        "validate --endpoint http://127.0.0.1:1/v1 --load closed.yaml",
        1,
        &["127.0.0.1:1", "refused"],
    );
}

#[test]
fn a_server_that_cannot_be_is_refused_before_anything_is_loaded() {
    let place = planned();
    let serve = "serve plan.yaml --model-dir model";
    place.refused(&format!("{serve} --host 0.0.0.0"), 2, &["--host 0.0.0.0", "--token"]);
    place.refused(&format!("{serve} --chat-template none.jinja"), 2, &["none.jinja"]);
    fs::write(place.path("bad.jinja"), "{% if").expect("written");
    place.refused(&format!("{serve} --chat-template bad.jinja"), 2, &["bad.jinja"]);
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("an address").port();
    place.refused(&format!("{serve} --port {port}"), 2, &[&port.to_string(), "in use"]);
    fs::remove_file(place.path("model/tokenizer.json")).expect("it is there");
    place.refused(serve, 2, &["tokenizer.json"]);
}
