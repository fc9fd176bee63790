//! `fulcrum run`: texts, files of requests, days of requests, interrupts.

use crate::killed::killed_at;
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
    let mut child = place
        .command("run plan.yaml --model-dir long --ignore-eos --prompt lever")
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
    assert!(out.contains(", output ") && out.contains("TTFT"), "what was done is told: {out}");
}

#[test]
fn answers_are_kept_as_they_come_and_another_run_goes_on_behind_them() {
    let place = planned(SCENARIO);
    let asked: String =
        (0..200).map(|at| format!("{{\"tokens\": [{}, 8, 7], \"max_tokens\": 30}}\n", at + 1)).collect();
    fs::write(place.path("asked.jsonl"), &asked).expect("written");
    let run = "run plan.yaml --model-dir model --ignore-eos --batch asked.jsonl";
    let whole = place.stdout(run);
    let kept = format!("{run} -o answers.jsonl");
    killed_at(&place, &kept, "answers.jsonl.journal", 5);
    assert!(!place.path("answers.jsonl").exists() && place.path("answers.jsonl.journal").exists());
    place.refused(&kept, 2, &["answers.jsonl.journal", "--resume"]);
    let (_, err) = place.outputs(&format!("{kept} --resume"));
    let answered: u64 = err
        .split(" answers")
        .next()
        .and_then(|text| text.split_whitespace().next_back()?.parse().ok())
        .unwrap_or_else(|| panic!("a count: {err}"));
    assert!(answered < 200, "some were there: {err}");
    assert_eq!(fs::read_to_string(place.path("answers.jsonl")).expect("answers"), whole);
    assert!(!place.path("answers.jsonl.journal").exists());
    // Other requests have other answers.
    killed_at(&place, &kept, "answers.jsonl.journal", 5);
    fs::write(place.path("asked.jsonl"), asked.replace("[9,", "[10,")).expect("written");
    place.refused(&format!("{kept} --resume"), 2, &["another batch", "other requests"]);
    // A file that cannot be written is known before anything runs.
    place.refused(&format!("{run} -o nowhere/answers.jsonl"), 1, &["nowhere/answers.jsonl.journal"]);
}

#[test]
fn a_full_disk_ends_a_batch_with_its_answers_safe() {
    let place = planned(SCENARIO);
    let asked: String =
        (0..60).map(|at| format!("{{\"tokens\": [{}, 8, 7], \"max_tokens\": 30}}\n", at + 1)).collect();
    fs::write(place.path("asked.jsonl"), asked).expect("written");
    let run = "run plan.yaml --model-dir model --ignore-eos --batch asked.jsonl";
    let whole = place.stdout(run);
    let command = format!("ulimit -f 4; exec {} {run} -o answers.jsonl", env!("CARGO_BIN_EXE_fulcrum"));
    let ended = Command::new("sh").args(["-c", &command]).current_dir(place.path(".")).output();
    let ended = ended.expect("it starts");
    let message = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(1), "{message}");
    assert!(message.contains("answers.jsonl.journal") && message.contains("--resume"), "{message}");
    place.stdout(&format!("{run} -o answers.jsonl --resume"));
    assert_eq!(fs::read_to_string(place.path("answers.jsonl")).expect("answers"), whole);
}

#[test]
fn weights_that_are_not_finite_end_a_run_with_their_reason() {
    let place = planned(SCENARIO);
    let path = place.path("model/model.safetensors");
    let good = fs::read(&path).expect("weights");
    let header = 8 + u64::from_le_bytes(good[..8].try_into().expect("8 bytes")) as usize;
    for bits in [0x7fc0u16, 0x7f80, 0xff80] {
        let mut bad = good.clone();
        // The model is in bf16: every value of a stretch in the middle.
        let middle = header + (good.len() - header) / 4 * 2;
        bad[middle..middle + 4096]
            .chunks_exact_mut(2)
            .for_each(|value| value.copy_from_slice(&bits.to_le_bytes()));
        fs::write(&path, bad).expect("written");
        for arguments in ["--prompt lever", "--prompt lever --trace t.json", "--temperature 1 --prompt lever"]
        {
            let output = place.fulcrum(&format!("run plan.yaml --model-dir model {arguments}"));
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{bits:x} {arguments}: it answers");
            assert!(message.contains("NaN or infinite"), "{message}");
        }
    }
}

#[test]
fn a_plan_for_another_machine_is_refused_unless_it_is_wanted() {
    let place = planned(SCENARIO);
    let plan = fs::read_to_string(place.path("plan.yaml")).expect("a plan");
    assert!(plan.contains("example-loopback"));
    let machine =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../hwprofiles/data/example-loopback.yaml"));
    let machine = machine.expect("a machine").replace("cores: [0]", "cores: [700, 701]");
    fs::write(place.path("large.yaml"), machine).expect("written");
    fs::write(place.path("large-scenario.yaml"), SCENARIO.replace("example-loopback", "large.yaml"))
        .expect("written");
    place.stdout("plan large-scenario.yaml -o large-plan.yaml");
    let run = "run large-plan.yaml --model-dir model --prompt lever --ignore-eos";
    place.refused(run, 2, &["large-plan.yaml", "another machine", "700–701", "--anyway"]);
    place.refused("validate large-plan.yaml --model-dir model", 2, &["another machine", "--anyway"]);
    let (out, err) = place.outputs(&format!("{run} --anyway"));
    assert!(out.contains("TPOT") && err.contains("warning: ") && err.contains("700–701"), "{err}");
    assert!(!err.contains("WARN"), "no raw line of a log: {err}");
}

#[test]
fn a_validation_that_is_killed_goes_on_behind_its_measurements() {
    let place = planned(SCENARIO);
    for batch in 1..=3 {
        place.stdout(&format!("plan scenario.yaml --set workload.batch={batch} -o {batch}.yaml"));
    }
    let run = "validate 1.yaml 2.yaml 3.yaml --model-dir model --repeats 3 -o results.json";
    killed_at(&place, run, "results.json.journal", 3);
    place.refused(run, 2, &["results.json.journal", "--resume"]);
    let journal = fs::read_to_string(place.path("results.json.journal")).expect("a journal");
    let (_, first) = journal.lines().nth(2).expect("a measurement").split_at(11);
    place.stdout(&format!("{run} --resume"));
    let results = fs::read_to_string(place.path("results.json")).expect("results");
    let results: Value = serde_json::from_str(&results).expect("JSON");
    let measured: Value = serde_json::from_str(first).expect("JSON");
    assert_eq!(results["configurations"].as_array().expect("a list").len(), 3);
    assert_eq!(results["configurations"][0], measured, "it is not measured again");
    assert!(!place.path("results.json.journal").exists());
}
