//! `fulcrum run`: texts, files of requests, days of requests, interrupts.

use crate::place::Place;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

const SCENARIO: &str = "\
machine: example-loopback
model: fulcrum-tiny
workload: {batch: 3, prompt_tokens: 24, output_tokens: 12}
";

fn planned(scenario: &str) -> Place {
    let place = Place::with(&[("scenario.yaml", scenario.as_bytes())]);
    place.stdout("model init fulcrum-tiny -o model");
    place.stdout("plan scenario.yaml -o plan.yaml");
    place
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn a_file_of_requests_is_answered_in_its_order_and_each_as_alone() {
    let place = planned(SCENARIO);
    let asked = "{\"prompt\": \"A lever\", \"max_tokens\": 9}\n\n{\"tokens\": [9, 8, 7], \"max_tokens\": 2}\n\
        {\"prompt\": \"and a place to stand\", \"temperature\": 1.5, \"seed\": 4}\n{\"tokens\": [1], \"max_tokens\": 30}\n";
    fs::write(place.path("asked.jsonl"), asked).expect("written");
    let run = "run plan.yaml --model-dir model --ignore-eos";
    let (out, err) = place.outputs(&format!("{run} --batch asked.jsonl"));
    assert!(err.contains("4 answers, 53 output tokens") && err.contains("tokens/s"), "{err}");
    let all = lines(&out);
    let tokens: Vec<_> = all.iter().map(|line| line["tokens"].as_array().expect("tokens").len()).collect();
    assert_eq!(tokens, [9, 2, 12, 30]);
    assert!(all.iter().all(|line| line["finish_reason"] == "length" && line["text"].is_string()), "{out}");
    place.stdout(&format!("{run} --batch asked.jsonl -o answers.jsonl"));
    assert_eq!(fs::read_to_string(place.path("answers.jsonl")).expect("a file"), out, "the same again");
    for (index, line) in asked.lines().filter(|line| !line.is_empty()).enumerate() {
        fs::write(place.path("one.jsonl"), line).expect("written");
        assert_eq!(lines(&place.stdout(&format!("{run} --batch one.jsonl")))[0], all[index], "{line}");
    }
    // The streamed text is the text of the JSON.
    let json: Value =
        serde_json::from_str(&place.stdout(&format!("--json {run} --output-tokens 9 --prompt lever")))
            .expect("JSON");
    let text = json["text"].as_str().expect("a text");
    let streamed = place.stdout(&format!("{run} --output-tokens 9 --prompt lever"));
    assert!(streamed.starts_with(text), "{streamed:?} begins with {text:?}");
    assert!(streamed.contains("TPOT") && streamed.contains("tokens/s"), "{streamed}");
    let traced = place.stdout(&format!("--json {run} --output-tokens 9 --prompt lever --trace trace.json"));
    let traced: Value = serde_json::from_str(&traced).expect("JSON");
    assert_eq!((&traced["tokens"], &traced["text"]), (&json["tokens"], &json["text"]));
}

#[test]
fn answers_end_at_the_tokens_that_end_them() {
    let place = planned(SCENARIO);
    let run = "--json run plan.yaml --model-dir model --prompt lever";
    let json = |more: &str| -> Value {
        serde_json::from_str(&place.stdout(&format!("{run} {more}"))).expect("JSON")
    };
    let whole = json("--ignore-eos");
    let tokens: Vec<u64> =
        whole["tokens"][0].as_array().expect("tokens").iter().filter_map(Value::as_u64).collect();
    assert_eq!((tokens.len(), &whole["finish_reason"]), (12, &Value::from("length")));
    let at = (1..12).find(|&at| !tokens[..at].contains(&tokens[at])).expect("some token is new");
    for ids in [format!("{}", tokens[at]), format!("[511, {}]", tokens[at])] {
        fs::write(place.path("model/generation_config.json"), format!("{{\"eos_token_id\": {ids}}}"))
            .expect("written");
        for trace in ["", "--trace trace.json"] {
            let ended = json(trace);
            assert_eq!(ended["tokens"][0].as_array().expect("tokens").len(), at + 1, "{ids} {trace}");
            assert_eq!(ended["finish_reason"], "stop");
        }
    }
    assert_eq!(json("--ignore-eos --seed 3")["tokens"], whole["tokens"], "nothing is drawn");
    fs::write(place.path("model/generation_config.json"), "{\"eos_token_id\": \"end\"}").expect("written");
    place.refused(run, 2, &["generation_config.json", "eos_token_id"]);
}

#[test]
fn a_line_that_is_wrong_is_named_before_anything_runs() {
    let place = planned(SCENARIO);
    let good = "{\"prompt\": \"A lever\"}";
    for (bad, words) in [
        ("{\"prompt\": 7}", &["asked.jsonl:2", "prompt", "7"][..]),
        ("{\"prompt\": \"x\", \"max_token\": 3}", &["asked.jsonl:2", "max_token", "max_tokens"]),
        ("{\"prompt\": \"x\", \"max_tokens\": 3000}", &["asked.jsonl:2", "max_tokens", "3000", "37"]),
        ("{\"tokens\": [99999999]}", &["asked.jsonl:2", "tokens", "99999999"]),
        ("nonsense", &["asked.jsonl:2"]),
    ] {
        fs::write(place.path("asked.jsonl"), format!("{good}\n{bad}\n{good}\n")).expect("written");
        place.refused("run plan.yaml --model-dir model --batch asked.jsonl -o answers.jsonl", 2, words);
    }
    fs::write(place.path("asked.jsonl"), "\n").expect("written");
    place.refused("run plan.yaml --model-dir model --batch asked.jsonl", 2, &["asked.jsonl", "no request"]);
    place.refused("run plan.yaml --model-dir model --prompt x --batch asked.jsonl", 2, &["--batch"]);
    let longer = "run plan.yaml --model-dir model --prompt x --output-tokens 40";
    place.refused(longer, 2, &["41", "at most the 37"]);
}

#[test]
fn a_simulated_day_is_repeated_for_real_with_the_same_requests() {
    let place = planned(SCENARIO);
    let day = SCENARIO.replace(
        "{batch: 3, prompt_tokens: 24, output_tokens: 12}",
        "{arrivals: {poisson: 200 req/s}, requests: 30, prompt_tokens: {from: 2, to: 24}, output_tokens: {from: 1, to: 12}}",
    );
    fs::write(place.path("day.yaml"), &day).expect("written");
    let run = "run plan.yaml --model-dir model";
    let out = place.stdout(&format!("{run} --serve day.yaml --requests real.csv --forecast simulated.csv"));
    for word in ["30 requests answered", "measured", "forecast", "TTFT p50", "TPOT p90", "E2EL p99"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let table = |name: &str| -> Vec<Vec<String>> {
        let text = fs::read_to_string(place.path(name)).expect("a table");
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    let (real, simulated) = (table("real.csv"), table("simulated.csv"));
    assert_eq!(real.len(), 31);
    assert_eq!(real[0], simulated[0], "the same columns");
    for (real, simulated) in real.iter().zip(&simulated).skip(1) {
        // Number and lengths are the same, and arrivals to the nanosecond of the run's clock.
        assert_eq!((&real[0], &real[2..4]), (&simulated[0], &simulated[2..4]));
        let number = |row: &[String], column: usize| row[column].parse::<f64>().expect("a number");
        assert!((number(real, 1) - number(simulated, 1)).abs() < 2e-9);
        assert!(number(real, 1) <= number(real, 4) && number(real, 4) <= number(real, 5));
    }
    // A table can be served too, and a closed loop, whose users ask again when they are answered.
    fs::write(place.path("day.csv"), "arrival_s,prompt_tokens,output_tokens\n0,5,3\n0.01,9,1\n0.02,30,30\n")
        .expect("written");
    let (out, err) = place.outputs(&format!("{run} --serve day.csv"));
    assert!(out.contains("2 requests answered") && err.contains("at most the 37"), "{out} {err}");
    let closed = "{concurrency: 2, requests: 7, prompt_tokens: 5, output_tokens: 4}";
    let closed = SCENARIO.replace("{batch: 3, prompt_tokens: 24, output_tokens: 12}", closed);
    fs::write(place.path("closed.yaml"), closed).expect("written");
    let json: Value =
        serde_json::from_str(&place.stdout(&format!("--json {run} --serve closed.yaml"))).expect("JSON");
    assert_eq!(json["requests"], 7);
    place.refused(&format!("{run} --serve scenario.yaml"), 2, &["scenario.yaml", "workload", "arrivals"]);
    for (key, words) in [
        ("engine: vllm", &["engine.name", "fulcrum sim"][..]),
        ("engine: {max_num_seqs: 9}", &["max_num_seqs", "9", "3 sequences"]),
        ("rebalance: true", &["rebalance"]),
    ] {
        fs::write(place.path("other.yaml"), format!("{day}{key}\n")).expect("written");
        place.refused(&format!("{run} --serve other.yaml"), 2, words);
    }
    fs::write(place.path("other.yaml"), day.replace("fulcrum-tiny", "fulcrum-250m")).expect("written");
    place.refused(&format!("{run} --serve other.yaml"), 2, &["other.yaml", "fulcrum-250m", "fulcrum-tiny"]);
}

#[test]
fn an_interrupt_ends_the_run_between_steps_and_its_result_is_printed() {
    let long = SCENARIO.replace("fulcrum-tiny", "long").replace(
        "{batch: 3, prompt_tokens: 24, output_tokens: 12}",
        "{batch: 1, prompt_tokens: 8, output_tokens: 50000}",
    );
    let place = Place::with(&[("scenario.yaml", long.as_bytes())]);
    place.stdout("model init fulcrum-tiny -o model");
    let config = fs::read_to_string(place.path("model/config.json")).expect("a config");
    let positions = "\"max_position_embeddings\": 512";
    assert!(config.contains(positions), "{config}");
    fs::write(place.path("long.json"), config.replace(positions, "\"max_position_embeddings\": 60000"))
        .expect("written");
    place.stdout("model init long.json -o long");
    place.stdout("plan scenario.yaml -o plan.yaml");
    let mut child = Command::new(env!("CARGO_BIN_EXE_fulcrum"))
        .args(["run", "plan.yaml", "--model-dir", "long", "--ignore-eos", "--prompt", "lever"])
        .current_dir(place.path("."))
        .env("FULCRUM_HOME", place.path("."))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut first = [0];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("a first byte");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("interrupted after") && err.contains("tokens"), "{err}");
    assert!(out.contains("output tokens") && out.contains("TTFT"), "what was done is told: {out}");
}
