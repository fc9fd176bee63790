//! Requests that get no answer, and why: always OpenAI's error object.

use crate::place::{Place, Reply};
use serde_json::{Value, json};
use server::ServerOptions;

/// Checks that a reply is an error object with this status and these words.
fn assert_refused(reply: &Reply, status: u16, param: Value, words: &[&str]) {
    assert_eq!(reply.status, status, "{}", reply.body);
    let json = reply.json();
    let error = json["error"].as_object().expect("an error object");
    assert_eq!(error.keys().collect::<Vec<_>>(), ["message", "type", "param", "code"]);
    assert_eq!(error["param"], param, "{}", reply.body);
    let message = error["message"].as_str().expect("a message");
    assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
    assert!(reply.head.to_lowercase().contains("content-type: application/json"), "{}", reply.head);
}

#[test]
fn a_body_that_is_wrong_is_refused_with_the_key_and_what_is_wanted() {
    let place = Place::new(2, 24, 12);
    place.served(ServerOptions::default(), |server| {
        let complete = |body: &str| server.post("/v1/completions", body);
        for (body, param, words) in [
            ("", Value::Null, &["no JSON"][..]),
            ("{\"prompt\": ", Value::Null, &["no JSON", "EOF"]),
            ("{\"prompt\": \"x\"} more", Value::Null, &["no JSON", "trailing"]),
            ("[1]", Value::Null, &["an object is wanted"]),
            ("{}", json!("prompt"), &["missing"]),
            ("{\"promt\": \"x\"}", json!("promt"), &["unknown field", "prompt"]),
            ("{\"prompt\": {\"a\": 1}}", json!("prompt"), &["a text, a list of tokens"]),
            ("{\"prompt\": []}", json!("prompt"), &["at least one"]),
            ("{\"prompt\": \"\"}", json!("prompt"), &["at least one token"]),
            ("{\"prompt\": [1, 99999999]}", json!("prompt"), &["99999999", "below"]),
            ("{\"prompt\": [-1]}", json!("prompt"), &["a list of tokens"]),
            ("{\"prompt\": \"x\", \"max_tokens\": \"many\"}", json!("max_tokens"), &["many", "u64"]),
            ("{\"prompt\": \"x\", \"max_tokens\": -3}", json!("max_tokens"), &["-3"]),
            ("{\"prompt\": \"x\", \"max_tokens\": 0}", json!("max_tokens"), &["at least 1"]),
            (
                "{\"prompt\": \"x\", \"max_tokens\": 37}",
                json!("prompt"),
                &["37 of the answer", "37 together"],
            ),
            (
                "{\"prompt\": \"x\", \"max_completion_tokens\": 3}",
                json!("max_completion_tokens"),
                &["max_tokens"],
            ),
            ("{\"prompt\": \"x\", \"temperature\": 3}", json!("temperature"), &["from 0 to 2"]),
            ("{\"prompt\": \"x\", \"temperature\": \"hot\"}", json!("temperature"), &["hot"]),
            ("{\"prompt\": \"x\", \"top_p\": 0}", json!("top_p"), &["above 0"]),
            ("{\"prompt\": \"x\", \"top_k\": -7}", json!("top_k"), &["-7"]),
            ("{\"prompt\": \"x\", \"n\": 0}", json!("n"), &["from 1"]),
            ("{\"prompt\": \"x\", \"n\": 100000}", json!("n"), &["128"]),
            ("{\"prompt\": \"x\", \"stop\": [\"\"]}", json!("stop"), &["empty"]),
            ("{\"prompt\": \"x\", \"stop\": 7}", json!("stop"), &["a text or a list of texts"]),
            ("{\"prompt\": \"x\", \"stream\": \"yes\"}", json!("stream"), &["boolean"]),
            ("{\"prompt\": \"x\", \"stream_options\": {}}", json!("stream_options"), &["stream is not true"]),
            ("{\"prompt\": \"x\", \"logprobs\": true}", json!("logprobs"), &["count"]),
            ("{\"prompt\": \"x\", \"logprobs\": 500}", json!("logprobs"), &["at most 20"]),
            ("{\"prompt\": \"x\", \"echo\": true}", json!("echo"), &["does not do that"]),
            ("{\"prompt\": \"x\", \"presence_penalty\": 0.5}", json!("presence_penalty"), &["0.5"]),
            ("{\"prompt\": \"x\", \"messages\": []}", json!("messages"), &["/v1/chat/completions"]),
        ] {
            assert_refused(&complete(body), 400, param, words);
        }
        let deep = "[".repeat(100_000);
        assert_refused(&complete(&deep), 400, Value::Null, &["an object"]);
    });
}

#[test]
fn a_conversation_another_model_and_a_long_prompt_are_refused_likewise() {
    let place = Place::new(2, 24, 12);
    place.served(ServerOptions::default(), |server| {
        let complete = |body: &str| server.post("/v1/completions", body);
        let chat = |body: &str| server.post("/v1/chat/completions", body);
        for (body, param, words) in [
            ("{\"messages\": []}", json!("messages"), &["at least one"][..]),
            (
                "{\"messages\": [{\"role\": \"user\"}], \"prompt\": \"x\"}",
                json!("prompt"),
                &["/v1/completions"],
            ),
            ("{\"messages\": [{\"content\": \"x\"}]}", json!("messages[0]"), &["role"]),
            (
                "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
                json!("messages[0].content"),
                &["a text"],
            ),
            (
                "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}",
                json!("messages"),
                &["fulcrum-tiny", "no chat template", "--chat-template"],
            ),
        ] {
            assert_refused(&chat(body), 400, param, words);
        }
        let other = complete("{\"model\": \"gpt-5\", \"prompt\": \"x\"}");
        assert_refused(&other, 404, json!("model"), &["gpt-5", "fulcrum-tiny"]);
        let long = complete("{\"prompt\": \"a prompt that is longer than what the plan has room for\"}");
        assert_eq!(long.json()["error"]["code"], "context_length_exceeded");
        // What asks for nothing is no reason to refuse.
        let neutral = json!({"prompt": "x", "max_tokens": 1, "echo": false, "best_of": 1, "suffix": null,
            "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "user": "me", "top_k": -1});
        assert_eq!(complete(&neutral.to_string()).status, 200);
    });
}

#[test]
fn a_request_that_is_none_is_refused_before_its_body_is_read() {
    let place = Place::new(2, 24, 12);
    place.served(ServerOptions::default(), |server| {
        assert_refused(&server.get("/v1/elsewhere"), 404, Value::Null, &["no such path"]);
        assert_refused(&server.get("/v1/completions"), 405, Value::Null, &["method"]);
        let plain =
            server.ask("POST", "/v1/completions", "Content-Type: text/plain\r\n", "{\"prompt\": \"x\"}");
        assert_refused(&plain, 415, Value::Null, &["application/json"]);
        let large = format!("{{\"prompt\": \"{}\"}}", "x".repeat(9 << 20));
        assert_refused(&server.post("/v1/completions", &large), 413, Value::Null, &["bytes"]);
        assert_eq!(server.get("/health").status, 200, "the others are served on");
    });
}

#[test]
fn without_the_token_nothing_is_told_but_that_the_server_lives() {
    let place = Place::new(2, 24, 12);
    let options = ServerOptions { token: Some("open sesame".to_owned()), ..ServerOptions::default() };
    place.served(options, |server| {
        let body = "{\"prompt\": \"x\", \"max_tokens\": 1}";
        for token in [
            "",
            "Authorization: Bearer open\r\n",
            "Authorization: Bearer open sesamf\r\n",
            "Authorization: open sesame\r\n",
        ] {
            let headers = format!("Content-Type: application/json\r\n{token}");
            for path in ["/v1/models", "/metrics", "/v1/elsewhere"] {
                assert_refused(&server.ask("GET", path, &headers, ""), 401, Value::Null, &["Bearer"]);
            }
            let reply = server.ask("POST", "/v1/completions", &headers, body);
            assert_refused(&reply, 401, Value::Null, &["Bearer"]);
            assert_eq!(reply.json()["error"]["code"], "invalid_api_key");
        }
        assert_eq!(server.get("/health").status, 200);
        let headers = "Content-Type: application/json\r\nAuthorization: Bearer open sesame\r\n";
        assert_eq!(server.ask("POST", "/v1/completions", headers, body).status, 200);
    });
}

#[test]
fn more_requests_than_there_are_places_are_turned_away() {
    let place = Place::new(2, 24, 4000);
    let options = ServerOptions { queue: 1, ..ServerOptions::default() };
    place.served(options, |server| {
        let long =
            json!({"prompt": "abc", "max_tokens": 4000, "ignore_eos": true, "stream": true}).to_string();
        let headers = "Content-Type: application/json\r\n";
        let streams: Vec<_> = (0..3)
            .map(|_| {
                use std::io::Read;
                let mut stream = server.send("POST", "/v1/completions", headers, &long);
                // Its place is taken when the head of its reply has come.
                stream.read_exact(&mut [0; 12]).expect("a reply");
                stream
            })
            .collect();
        let short = "{\"prompt\": \"x\", \"max_tokens\": 1}";
        let reply = server.post("/v1/completions", short);
        assert_refused(&reply, 429, Value::Null, &["3 requests"]);
        assert!(reply.head.to_lowercase().contains("retry-after: 1"), "{}", reply.head);
        drop(streams);
        // Their places are free again as soon as the session has seen that they are gone.
        server.metrics_when_idle();
        assert_eq!(server.post("/v1/completions", short).status, 200);
        assert!(server.get("/metrics").body.contains("result=\"turned_away\"} 1\n"));
        // More choices than places can never be answered together.
        let many = server.post("/v1/completions", "{\"prompt\": \"x\", \"n\": 4}");
        assert_refused(&many, 400, json!("n"), &["4 answers", "places for 3"]);
    });
}
