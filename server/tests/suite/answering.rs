//! Answers: whole and streamed, completions and conversations.

use crate::place::{Place, Reply, value};
use fulcrum::{BatchRequest, Sampling, Tokenizer};
use serde_json::{Value, json};
use server::ServerOptions;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TEMPLATE: &str = "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}\
    {% if add_generation_prompt %}<assistant>{% endif %}";

/// The parts of each choice of a stream, joined: text, tokens, why it ended.
fn joined(events: &[Value], text_of: impl Fn(&Value) -> Value) -> BTreeMap<u64, (String, Vec<u64>, Value)> {
    let mut choices: BTreeMap<u64, (String, Vec<u64>, Value)> = BTreeMap::new();
    for choice in events.iter().flat_map(|event| event["choices"].as_array().expect("choices")) {
        let joined = choices.entry(choice["index"].as_u64().expect("an index")).or_default();
        joined.0 += text_of(choice).as_str().unwrap_or_default();
        joined.1.extend(choice["token_ids"].as_array().into_iter().flatten().filter_map(Value::as_u64));
        assert!(joined.2.is_null(), "nothing follows the end");
        joined.2 = choice["finish_reason"].clone();
    }
    choices
}

#[test]
fn streams_whole_answers_and_batches_have_the_same_tokens() {
    let place = Place::new(3, 24, 12);
    let tokenizer = Tokenizer::open(&place.model()).expect("a tokenizer");
    let bodies = [
        json!({"prompt": "A lever", "max_tokens": 9, "temperature": 0}),
        json!({"prompt": [9, 8, 7], "max_tokens": 2, "temperature": 0}),
        json!({"prompt": "and a place to stand", "max_tokens": 12, "temperature": 1.5, "top_k": 40, "seed": 4}),
        json!({"prompt": "x", "max_tokens": 30, "top_p": 0.9, "seed": 11}),
    ];
    let requests: Vec<BatchRequest> = bodies
        .iter()
        .map(|body| BatchRequest {
            prompt: match body["prompt"].as_str() {
                Some(text) => tokenizer.encode(text).expect("tokens"),
                None => vec![9, 8, 7],
            },
            output_tokens: body["max_tokens"].as_u64().expect("a count"),
            stops: vec![],
            sampling: match body["seed"].as_u64() {
                None => Sampling::Greedy,
                Some(seed) => Sampling::Random {
                    temperature: body["temperature"].as_f64().unwrap_or(1.0) as f32,
                    top_k: body["top_k"].as_u64().map(|count| count as usize),
                    top_p: body["top_p"].as_f64().map(|share| share as f32),
                    seed,
                },
            },
        })
        .collect();
    let batch =
        place.session(|live| live.answer(&requests, &[], Some(&tokenizer), |_| (), |_| ()).expect("answers"));
    place.served(ServerOptions::default(), |server| {
        for ((body, request), wanted) in bodies.iter().zip(&requests).zip(&batch.answers) {
            let mut body = body.clone();
            body["ignore_eos"] = json!(true);
            body["return_token_ids"] = json!(true);
            let whole = server.post("/v1/completions", &body.to_string()).json();
            let choice = &whole["choices"][0];
            assert_eq!(choice["token_ids"], json!(wanted.tokens), "{body}");
            assert_eq!(choice["finish_reason"], "length");
            let (prompt, output) = (request.prompt.len() as u64, wanted.tokens.len() as u64);
            let usage =
                json!({"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output});
            assert_eq!(whole["usage"], usage);
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
            let events = server.post("/v1/completions", &body.to_string()).events();
            assert_eq!(events.len() as u64, output + 2, "one for each token, the end and the usage");
            assert_eq!(events.last().expect("events")["usage"], usage);
            let (text, tokens, finish) = &joined(&events, |choice| choice["text"].clone())[&0];
            assert_eq!((json!(text), json!(tokens), finish), (choice["text"].clone(), json!(wanted.tokens), &json!("length")));
        }
    });
}

#[test]
fn several_prompts_and_answers_come_in_order_each_with_its_own_seed() {
    let place = Place::new(3, 24, 12);
    place.served(ServerOptions::default(), |server| {
        let ask = |body: Value| server.post("/v1/completions", &body.to_string()).json();
        let all =
            ask(json!({"prompt": ["one", "two"], "n": 3, "max_tokens": 6, "seed": 5, "ignore_eos": true,
            "return_token_ids": true}));
        assert_eq!(all["usage"], json!({"prompt_tokens": 6, "completion_tokens": 36, "total_tokens": 42}));
        let choices = all["choices"].as_array().expect("choices");
        assert_eq!(choices.len(), 6);
        for (index, choice) in choices.iter().enumerate() {
            assert_eq!(choice["index"], index);
            let prompt = ["one", "two"][index / 3];
            let one = ask(json!({"prompt": prompt, "max_tokens": 6, "seed": 5 + index % 3,
                "ignore_eos": true, "return_token_ids": true}));
            assert_eq!(one["choices"][0]["token_ids"], choice["token_ids"], "{index}");
        }
        assert_ne!(choices[0]["token_ids"], choices[1]["token_ids"]);
        // Without a seed two requests differ, and at temperature 0 they do not.
        let unseeded = || ask(json!({"prompt": "one", "max_tokens": 12, "return_token_ids": true}));
        assert_ne!(unseeded()["choices"][0]["token_ids"], unseeded()["choices"][0]["token_ids"]);
    });
}

#[test]
fn a_stop_ends_the_text_before_it_and_frees_the_rest() {
    let place = Place::new(2, 24, 64);
    place.served(ServerOptions::default(), |server| {
        let ask = |stop: Value, stream: bool| {
            let body = json!({"prompt": "A lever", "max_tokens": 60, "temperature": 0.0, "ignore_eos": true,
                "stop": stop, "stream": stream, "return_token_ids": true});
            server.post("/v1/completions", &body.to_string())
        };
        let whole = ask(Value::Null, false).json();
        let text = whole["choices"][0]["text"].as_str().expect("a text").to_owned();
        // Any two characters of the text that are seen there first.
        let at = text.char_indices().map(|(at, _)| at).nth(text.chars().count() / 2).expect("a long text");
        let stop: String = text[at..].chars().take(2).collect();
        let wanted = &text[..text.find(&stop).expect("it is there")];
        let stopped = ask(json!([stop, "never this"]), false).json();
        let choice = &stopped["choices"][0];
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(wanted), &json!("stop")));
        assert!(stopped["usage"]["completion_tokens"].as_u64().expect("a count") < 60);
        let events = ask(json!(stop), true).events();
        let (streamed, tokens, finish) = &joined(&events, |choice| choice["text"].clone())[&0];
        assert_eq!((streamed.as_str(), finish), (wanted, &json!("stop")));
        assert_eq!(json!(tokens), choice["token_ids"]);
    });
}

#[test]
fn log_probabilities_are_those_of_the_tokens_and_sum_to_at_most_one() {
    let place = Place::new(2, 24, 12);
    std::fs::write(place.model().join("chat_template.jinja"), TEMPLATE).expect("written");
    place.served(ServerOptions::default(), |server| {
        let body = json!({"prompt": "A lever", "max_tokens": 8, "temperature": 0, "logprobs": 5, "ignore_eos": true});
        let whole = server.post("/v1/completions", &body.to_string()).json();
        let logprobs = &whole["choices"][0]["logprobs"];
        let list = |key: &str| logprobs[key].as_array().unwrap_or_else(|| panic!("{key}: {whole}")).clone();
        let (chosen, tops) = (list("token_logprobs"), list("top_logprobs"));
        assert_eq!((chosen.len(), tops.len(), list("tokens").len(), list("text_offset").len()), (8, 8, 8, 8));
        for (chosen, top) in chosen.iter().zip(&tops) {
            let top: Vec<f64> =
                top.as_object().expect("an object").values().map(|value| value.as_f64().expect("a number")).collect();
            let greatest = top.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(chosen.as_f64(), Some(greatest), "the most probable token is taken");
            assert!(top.iter().map(|value| value.exp()).sum::<f64>() <= 1.0 + 1e-6);
        }
        let body = json!({"messages": [{"role": "user", "content": "why?"}], "max_tokens": 6, "seed": 3,
            "logprobs": true, "top_logprobs": 2, "ignore_eos": true});
        let whole = server.post("/v1/chat/completions", &body.to_string()).json();
        let content = whole["choices"][0]["logprobs"]["content"].as_array().expect("content").clone();
        assert_eq!(content.len(), 6);
        for one in &content {
            let top = one["top_logprobs"].as_array().expect("top");
            assert_eq!(top.len(), 2);
            assert!(one["logprob"].as_f64() <= top[0]["logprob"].as_f64() && top[1]["logprob"].as_f64() <= top[0]["logprob"].as_f64());
        }
        let mut streamed = body.clone();
        streamed["stream"] = json!(true);
        let events = server.post("/v1/chat/completions", &streamed.to_string()).events();
        let streamed: Vec<_> = events
            .iter()
            .flat_map(|event| event["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default())
            .collect();
        assert_eq!(streamed, content);
    });
}

#[test]
fn a_conversation_is_its_template_continued() {
    let place = Place::new(2, 96, 12);
    std::fs::write(place.model().join("chat_template.jinja"), TEMPLATE).expect("written");
    place.served(ServerOptions::default(), |server| {
        let messages = json!([{"role": "system", "content": "short"},
            {"role": "user", "content": [{"type": "text", "text": "wh"}, {"type": "text", "text": "y?"}]}]);
        let rest = json!({"max_tokens": 10, "temperature": 0, "ignore_eos": true});
        let with = |key: &str, value: Value| {
            let mut body = rest.clone();
            body[key] = value;
            body
        };
        let chat = with("messages", messages);
        let whole = server.post("/v1/chat/completions", &chat.to_string()).json();
        let text = with("prompt", json!("<system>short\n<user>why?\n<assistant>"));
        let completion = server.post("/v1/completions", &text.to_string()).json();
        let message = &whole["choices"][0]["message"];
        assert_eq!(message, &json!({"role": "assistant", "content": completion["choices"][0]["text"]}));
        assert_eq!((&whole["object"], &whole["usage"]), (&json!("chat.completion"), &completion["usage"]));
        let mut streamed = chat.clone();
        streamed["stream"] = json!(true);
        let events = server.post("/v1/chat/completions", &streamed.to_string()).events();
        assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
        assert!(
            events
                .iter()
                .all(|event| event["object"] == "chat.completion.chunk" && event["id"] == events[0]["id"])
        );
        let (text, _, finish) = &joined(&events, |choice| choice["delta"]["content"].clone())[&0];
        assert_eq!((&json!(text), finish), (&message["content"], &json!("length")));
        let mut open = chat;
        open.as_object_mut().expect("an object").remove("max_tokens");
        let usage = server.post("/v1/chat/completions", &open.to_string()).json()["usage"].clone();
        assert_eq!(usage["total_tokens"], 96 + 12 + 1, "an answer may fill the context");
    });
}

#[test]
fn the_model_its_health_and_its_metrics_are_told() {
    let place = Place::new(2, 24, 12);
    place.served(ServerOptions::default(), |server| {
        let models = server.get("/v1/models").json();
        let model = &models["data"][0];
        assert_eq!((&model["id"], &model["max_model_len"]), (&json!("fulcrum-tiny"), &json!(37)));
        assert_eq!(server.get("/health").json()["status"], "ok");
        let body = json!({"model": "fulcrum-tiny", "prompt": "abc", "max_tokens": 5, "ignore_eos": true})
            .to_string();
        (0..3).for_each(|_| assert_eq!(server.post("/v1/completions", &body).status, 200));
        let metrics = server.metrics_when_idle();
        for (name, wanted) in [
            ("fulcrum_requests_total{result=\"finished\"}", 3.0),
            ("fulcrum_prompt_tokens_total", 9.0),
            ("fulcrum_output_tokens_total", 15.0),
            ("fulcrum_time_to_first_token_seconds_count{source=\"measured\"}", 3.0),
            ("fulcrum_time_per_output_token_seconds_count{source=\"predicted\"}", 3.0),
        ] {
            assert_eq!(value(&metrics, name), wanted, "{name}: {metrics}");
        }
        for source in ["measured", "predicted"] {
            for name in
                ["time_to_first_token_seconds_sum", "time_per_output_token_seconds_sum", "pass_seconds_total"]
            {
                assert!(
                    value(&metrics, &format!("fulcrum_{name}{{source=\"{source}\"}}")) > 0.0,
                    "{metrics}"
                );
            }
        }
    });
}

#[test]
fn a_stop_of_the_server_waits_for_the_answers_that_were_begun() {
    let place = Place::new(2, 24, 4000);
    place.served(ServerOptions::default(), |server| {
        let body =
            json!({"prompt": "abc", "max_tokens": 3000, "ignore_eos": true, "stream": true}).to_string();
        let mut stream = server.send("POST", "/v1/completions", "Content-Type: application/json\r\n", &body);
        let mut first = [0; 9];
        stream.read_exact(&mut first).expect("it answers");
        assert_eq!(&first, b"HTTP/1.1 ");
        server.stop.store(true, Ordering::Release);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("the whole answer");
        assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("data: [DONE]"), "{rest}");
        assert_eq!(rest.matches("\"finish_reason\":null").count(), 3000);
        let refused = TcpStream::connect(server.address);
        assert!(refused.is_err(), "no connection is accepted any more");
    });
}

#[test]
fn a_connection_serves_several_requests_and_a_silent_one_is_closed() {
    let place = Place::new(2, 24, 12);
    let options = ServerOptions { silence: Duration::from_millis(300), ..ServerOptions::default() };
    place.served(options, |server| {
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        for _ in 0..2 {
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
            let mut reply = [0; 15];
            stream.read_exact(&mut reply).expect("a reply");
            assert_eq!(&reply, b"HTTP/1.1 200 OK");
            let mut seen = Vec::new();
            while !seen.ends_with(b"\"ok\"}") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("the rest");
                seen.push(byte[0]);
            }
        }
        // Idle, within a head, and before anything: all are closed from the other side.
        let closes = |mut stream: TcpStream| {
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("closed, not silent");
        };
        closes(stream);
        for begin in [&b""[..], b"GET /hea"] {
            let mut stream = TcpStream::connect(server.address).expect("it listens");
            stream.write_all(begin).expect("sent");
            closes(stream);
        }
        assert_eq!(Reply::read(server.send("GET", "/health", "", "")).status, 200);
    });
}
