//! `fulcrum sim` of requests that come and go.

use crate::place::Place;
use std::fs;

const CLOSED: &str = "machine: h100-sxm
model: llama-3.1-8b
workload: {concurrency: 8, requests: 40, prompt_tokens: 512, output_tokens: 32}
engine: vllm
slo: {ttft: 1 s, tpot: 50 ms}
";

fn placed(trace: &str) -> Place {
    let day = CLOSED.replace(
        "{concurrency: 8, requests: 40, prompt_tokens: 512, output_tokens: 32}",
        "{trace: requests.csv}",
    );
    let files = [("closed.yaml", CLOSED), ("day.yaml", &day), ("requests.csv", trace)];
    Place::with(&files.map(|(name, text)| (name, text.as_bytes())))
}

const TRACE: &str = "arrival_s,prompt_tokens,output_tokens\n0,700,20\n0.01,300,1\n0.5,200000,5\n0.6,100,3\n";

#[test]
fn a_closed_loop_is_summed_up_in_words_and_in_numbers() {
    let place = placed(TRACE);
    let text = place.stdout("sim closed.yaml");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for word in
        ["llama-3.1-8b on h100-sxm: vllm", "40 requests", "TTFT", "TPOT", "ITL", "E2EL", "within the limits"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&place.stdout("--json sim closed.yaml")).expect("JSON");
    assert_eq!(json["requests"]["completed"], 40);
    let account = |key: &str| json[key].as_f64().expect("a number");
    assert!((0.0..=1.0).contains(&account("mfu")) && (0.0..=1.0).contains(&account("mbu")), "{json}");
    assert_eq!(json["utilization"]["cpu"], 0.0);
    assert!(account("energy_j") > 0.0 && json["cost"].is_null(), "{json}");
    assert!(text.contains("cost not known: the scenario has no costs.lifetime"), "{text}");
    let costs = "--set costs.lifetime=4y --set costs.per_kwh=0.12USD";
    let priced = place.stdout(&format!("sim closed.yaml --set machine=rtx4090-desktop {costs}"));
    assert!(priced.contains("USD per million output tokens") && !priced.contains("not known"), "{priced}");
    let [p50, p99, max] = ["p50", "p99", "max"].map(|key| json["ttft_s"][key].as_f64().expect("a number"));
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{json}");
}

#[test]
fn the_rates_of_a_group_are_shares_of_all_its_gpus_and_idle_ones_are_told() {
    let place = placed(TRACE);
    let four = "--set machine=4xH100 --set tensor_parallel";
    let day = |degree: u64| -> serde_json::Value {
        let text = place.stdout(&format!("--json sim closed.yaml {four}={degree}"));
        serde_json::from_str(&text).expect("JSON")
    };
    let number = |day: &serde_json::Value, key: &str| day[key].as_f64().expect("a number");
    // The same FLOP, as shares of the peak of twice as many GPUs.
    let peak_time = |degree| {
        let day = day(degree);
        number(&day, "mfu") * number(&day, "duration_s") * degree as f64
    };
    let (two, all) = (peak_time(2), peak_time(4));
    assert!((two / all - 1.0).abs() < 0.02, "{two} {all}");
    let told = |degree: u64| place.stdout(&format!("sim closed.yaml {four}={degree}"));
    assert!(told(2).contains("2 of the 4 GPUs are idle; `workload.replicas` puts"), "{}", told(2));
    assert!(!told(4).contains("idle"), "{}", told(4));
    let both = place.stdout(&format!("sim closed.yaml {four}=2 --set workload.replicas=2"));
    assert!(!both.contains("idle") && !both.contains("× 2"), "two engines fill one machine: {both}");
    let four_engines = place.stdout(&format!("sim closed.yaml {four}=2 --set workload.replicas=4"));
    assert!(four_engines.contains("× 2"), "{four_engines}");
}

#[test]
fn a_closed_loop_of_equal_requests_prints_a_range_that_contains_both_ends() {
    let place = placed(TRACE);
    let text = place.stdout("sim closed.yaml");
    assert!(text.contains("in the mean") && text.contains("users may move in step"), "{text}");
    let numbers = |command: &str| -> serde_json::Value {
        serde_json::from_str(&place.stdout(&format!("--json sim {command}"))).expect("JSON")
    };
    let day = numbers("closed.yaml");
    assert_eq!(day["lockstep"]["in_step"]["ttft_s"], day["ttft_s"]);
    for (range, times) in [("mean_ttft_s", "ttft_s"), ("mean_tpot_s", "tpot_s")] {
        let number = |value: &serde_json::Value| value.as_f64().expect("a number");
        let [least, most] = ["least", "most"].map(|end| number(&day["lockstep"][range][end]));
        let mut ends = ["in_step", "spread"].map(|end| number(&day["lockstep"][end][times]["mean"]));
        ends.sort_by(f64::total_cmp);
        assert_eq!(ends, [least, most], "{range}");
        assert!(least < most, "{range}: unequal lengths change nothing: {day}");
    }
    for (from, to, why) in [
        ("concurrency: 8", "concurrency: 1", "one user has nobody to be in step with"),
        ("prompt_tokens: 512", "prompt_tokens: {from: 400, to: 600}", "lengths differ already"),
        ("requests: 40", "requests: 40, think_time: {mean: 1 s, cv: 1}", "thinking times differ"),
    ] {
        fs::write(place.path("other.yaml"), CLOSED.replace(from, to)).expect("written");
        assert!(numbers("other.yaml")["lockstep"].is_null(), "{why}");
    }
    assert!(numbers("day.yaml")["lockstep"].is_null(), "an open loop has no users");
    assert!(!place.stdout("sim day.yaml").contains("in the mean"));
}

#[test]
fn prompts_that_come_again_are_found_in_the_cache() {
    let place = placed(TRACE);
    let cached = |prompts: u64| {
        let day = format!("--json sim closed.yaml --set workload.distinct_prompts={prompts}");
        let day: serde_json::Value = serde_json::from_str(&place.stdout(&day)).expect("JSON");
        day["cached_share"].as_f64().expect("a share")
    };
    // 40 requests of 512 tokens, the last of which is always computed, in blocks of 16.
    let again = |prompts: f64| (40.0 - prompts) / 40.0 * 496.0 / 512.0;
    assert!((cached(10) - again(10.0)).abs() < 1e-6, "{} {}", cached(10), again(10.0));
    assert_eq!(cached(40), 0.0);
    place.refused("sim day.yaml --set workload.distinct_prompts=9", 2, &["distinct_prompts", "leave it out"]);
}

#[test]
fn prompts_of_an_earlier_load_are_in_the_cache() {
    let place = placed(TRACE);
    let cached = |earlier: &str| {
        let day = format!("--json sim closed.yaml --set workload.asked_before={earlier}");
        let day: serde_json::Value = serde_json::from_str(&place.stdout(&day)).expect("JSON");
        day["cached_share"].as_f64().expect("a share")
    };
    // There are 40 requests of 512 tokens in blocks of 16; the last block is always computed.
    let share = cached("{\"prompts\":10,\"prompt_tokens\":512}");
    assert!((share - 0.25 * 496.0 / 512.0).abs() < 1e-6, "{share}");
    let share = cached("[{\"prompts\":40,\"prompt_tokens\":256},{\"prompts\":10,\"prompt_tokens\":512}]");
    assert!((share - 0.75 * 0.5 - 0.25 * 496.0 / 512.0).abs() < 1e-6, "{share}");
    place.refused(
        "sim closed.yaml --set workload.asked_before={\"prompts\":0,\"prompt_tokens\":512}",
        2,
        &["asked_before"],
    );
    place.refused(
        "sim day.yaml --set workload.asked_before={\"prompts\":1,\"prompt_tokens\":1}",
        2,
        &["asked_before", "trace"],
    );
}

#[test]
fn a_trace_gets_a_line_for_each_request_and_rejected_ones_are_counted() {
    let place = placed(TRACE);
    let text = place.stdout("sim day.yaml --requests out.csv");
    assert!(
        text.contains("3 requests answered") && text.contains("1 longer than the longest context"),
        "{text}"
    );
    let table = fs::read_to_string(place.path("out.csv")).expect("a table");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 4, "{table}");
    assert!(rows.iter().all(|row| row.len() == 13), "{table}");
    assert_eq!(rows[2][8], "", "one token has no gap: {table}");
}

#[test]
fn a_series_says_what_happened_when_and_adds_up_to_the_day() {
    let place = placed(TRACE);
    let day = place.stdout("--json sim closed.yaml --set workload.replicas=2 --series out.csv --every 50ms");
    let day: serde_json::Value = serde_json::from_str(&day).expect("JSON");
    let table = fs::read_to_string(place.path("out.csv")).expect("a table");
    let rows: Vec<Vec<f64>> = table
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(|cell| cell.parse().unwrap_or(f64::NAN)).collect())
        .collect();
    let sum = |column: usize| rows.iter().map(|row| row[column]).sum::<f64>();
    let near = |found: f64, wanted: f64| (found - wanted).abs() <= 1e-4 * wanted;
    assert!(near(sum(1), day["steps"].as_f64().unwrap()), "{table}");
    assert!(near(sum(5) * 0.05, 40.0 * 512.0), "{table}");
    assert!(near(sum(6) * 0.05, 40.0 * 32.0), "{table}");
    assert!(rows.windows(2).all(|pair| near(pair[1][0] - pair[0][0], 0.05)), "{table}");
    assert!(rows.iter().all(|row| (0.0..=1.000_001).contains(&row[2])), "{table}");
    // For Prometheus the same, with sums that only grow.
    place.stdout("sim closed.yaml --set workload.replicas=2 --series out.prom --every 50ms");
    let text = fs::read_to_string(place.path("out.prom")).expect("metrics");
    let values = |name: &str| -> Vec<f64> {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name} ")));
        lines.map(|line| line.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a value")).collect()
    };
    let tokens = values("fulcrum_output_tokens_total");
    assert_eq!(tokens.len(), rows.len());
    assert!(tokens.is_sorted() && near(*tokens.last().unwrap(), 40.0 * 32.0), "{text}");
    assert!(
        values("fulcrum_requests_running").iter().zip(&rows).all(|(it, row)| near(*it + 1.0, row[3] + 1.0))
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    place.refused("sim closed.yaml --series out.csv --every 0s", 2, &["--every", "above 0"]);
    place.refused("sim closed.yaml --every 2s", 2, &["--series"]);
}

#[test]
fn an_engine_swaps_to_a_memory_of_the_machine() {
    let place = placed(TRACE);
    let short = "engine: {name: vllm, num_blocks: 100, preemption: swap, swap_space: 4 GB}";
    let day = CLOSED.replace("engine: vllm", short).replace("output_tokens: 32", "output_tokens: 320");
    fs::write(place.path("swap.yaml"), &day).expect("written");
    let json: serde_json::Value = serde_json::from_str(&place.stdout("--json sim swap.yaml")).expect("JSON");
    assert_eq!(json["requests"]["completed"], 40);
    let [out, back] = ["swapped_out_blocks", "swapped_in_blocks"].map(|key| json[key].as_u64().expect(key));
    assert!(0 < out && back <= out, "{json}");
    assert!(place.stdout("sim swap.yaml").contains(&format!("{out} KV blocks swapped out, {back} back")));
    fs::write(place.path("swap.yaml"), day.replace("4 GB", "4 GB, swap_to: tape")).expect("written");
    place.refused("sim swap.yaml", 2, &["engine.swap_to", "tape", "dram"]);
    fs::write(place.path("swap.yaml"), day.replace("4 GB", "40 TB")).expect("written");
    place.refused("sim swap.yaml", 2, &["engine.swap_space", "'dram'"]);
}

#[test]
fn an_engine_keeps_prefixes_in_a_memory_of_the_machine() {
    let place = placed(TRACE);
    let rows = |at: u64, first: u64| {
        let names: Vec<u64> = (first..first + 4).collect();
        format!(
            "{{\"timestamp\": {at}, \"input_length\": 2064, \"output_length\": 2, \"hash_ids\": {names:?}}}\n"
        )
    };
    fs::write(place.path("again.jsonl"), rows(0, 0) + &rows(60_000, 8) + &rows(120_000, 0)).expect("written");
    let keeps = "{name: vllm, num_blocks: 130, prefix_cache: {to: dram, space: 4 GB}}";
    let day = CLOSED.replace(
        "{concurrency: 8, requests: 40, prompt_tokens: 512, output_tokens: 32}",
        "{trace: again.jsonl}",
    );
    let day = day.replace("engine: vllm", &format!("engine: {keeps}"));
    fs::write(place.path("keeps.yaml"), &day).expect("written");
    let json: serde_json::Value = serde_json::from_str(&place.stdout("--json sim keeps.yaml")).expect("JSON");
    let [stored, evicted, fetched] =
        ["stored_blocks", "evicted_blocks", "fetched_blocks"].map(|key| json[key].as_u64().expect(key));
    assert_eq!((stored, evicted, fetched), (256, 0, 128), "{json}");
    assert!(
        place
            .stdout("sim keeps.yaml")
            .contains("256 KV blocks written, 0 overwritten, 128 fetched (33.1 % of prompts)")
    );
    for (wrong, printed) in [
        ("to: tape", "engine.prefix_cache.to"),
        ("space: 40 TB", "engine.prefix_cache.space"),
        ("space: 1 kB", "512 tokens of one name"),
    ] {
        let right = if wrong.starts_with("to") { "to: dram" } else { "space: 4 GB" };
        fs::write(place.path("keeps.yaml"), day.replace(right, wrong)).expect("written");
        place.refused("sim keeps.yaml", 2, &[printed]);
    }
}

#[test]
fn an_slo_scheduler_needs_both_limits() {
    let place = placed(TRACE);
    let slo = CLOSED.replace("engine: vllm", "engine: {name: vllm, scheduler: slo}");
    fs::write(place.path("slo.yaml"), &slo).expect("written");
    let json: serde_json::Value = serde_json::from_str(&place.stdout("--json sim slo.yaml")).expect("JSON");
    assert_eq!(json["requests"]["completed"], 40);
    fs::write(place.path("slo.yaml"), slo.replace("ttft: 1 s, ", "")).expect("written");
    place.refused("sim slo.yaml", 2, &["engine.scheduler", "slo.ttft and slo.tpot"]);
}

#[test]
fn replicas_share_the_requests_and_threads_change_nothing() {
    let place = placed(TRACE);
    let load = "{arrivals: {poisson: 30 req/s}, requests: 300, prompt_tokens: {mean: 400, cv: 1}, \
                output_tokens: {from: 2, to: 60}, replicas: 3}";
    let start = CLOSED.find("{concurrency").expect("it is there");
    let end = start + CLOSED[start..].find('}').expect("it ends") + 1;
    fs::write(place.path("open.yaml"), [&CLOSED[..start], load, &CLOSED[end..]].concat()).expect("written");
    let one = place.stdout("--json sim open.yaml");
    let alone =
        place.command("--json sim open.yaml").env("RAYON_NUM_THREADS", "1").output().expect("it starts");
    assert_eq!(one.as_bytes(), alone.stdout);
    let json: serde_json::Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!(json["requests"]["completed"], 300);
}

#[test]
fn every_router_answers_all_of_the_requests() {
    let place = placed(TRACE);
    let day = |router: &str| {
        let words =
            format!("--json sim closed.yaml --set workload.replicas=3 --set workload.router={router}");
        serde_json::from_str::<serde_json::Value>(&place.stdout(&words)).expect("JSON")
    };
    for router in ["round_robin", "least_requests", "two_choices", "cache_aware"] {
        assert_eq!(day(router)["requests"]["completed"], 40, "{router}");
    }
    place.refused("sim closed.yaml --set workload.router=best", 2, &["workload.router", "least_requests"]);
}

#[test]
fn users_of_several_engines_have_numbers_of_their_own() {
    let place = placed(TRACE);
    place.stdout("sim closed.yaml --set workload.replicas=3 --requests out.csv");
    let table = fs::read_to_string(place.path("out.csv")).expect("a table");
    let ids: Vec<u64> =
        table.lines().skip(1).map(|line| line[..line.find(',').unwrap()].parse().unwrap()).collect();
    assert_eq!(ids.len(), 40, "{table}");
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
}

#[test]
fn errors_of_a_day_name_the_file_and_the_key() {
    for (trace, words) in [
        ("arrival_s,prompt_tokens,output_tokens\n1,5,5\n0,5,5\n", &["requests.csv:3", "order"][..]),
        ("", &["requests.csv:1", "empty"]),
        ("arrival_s,prompt_tokens,output_tokens\n0,5\n", &["requests.csv:2", "three fields"]),
        ("when\n", &["requests.csv:1", "first line"]),
    ] {
        placed(trace).refused("sim day.yaml", 2, words);
    }
    let place = placed(TRACE);
    place.refused("sim closed.yaml --set workload.concurrency=0", 2, &["workload.concurrency", "from 1"]);
    place.refused("sim closed.yaml --set engine=turbo", 2, &["engine", "vllm"]);
    fs::remove_file(place.path("requests.csv")).expect("it is there");
    place.refused("sim day.yaml", 2, &["requests.csv"]);
    place.refused("sim closed.yaml --trace t.json", 2, &["--requests"]);
    let small = CLOSED.replace("engine: vllm", "engine: {name: vllm, gpu_memory_utilization: 0.05}");
    fs::write(place.path("closed.yaml"), small).expect("written");
    place.refused("sim closed.yaml", 3, &["no room for the KV cache"]);
}

#[test]
fn every_number_of_a_day_is_defined() {
    let place = placed(TRACE);
    let costs = "--set costs.lifetime=4y --set costs.per_kwh=0.12USD";
    let day = place.stdout(&format!("--json sim day.yaml --set machine=rtx4090-desktop {costs}"));
    let day: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&day).expect("JSON");
    let metrics = include_str!("../../../reports/metrics.md");
    // The keys under these are names of devices, links, memories or reasons.
    let by_name = ["utilization", "bytes", "memory_bytes", "rejected_for"];
    let mut keys: Vec<&String> = day.keys().collect();
    keys.extend(
        ["requests", "ttft_s"].iter().flat_map(|key| day[*key].as_object().expect("an object").keys()),
    );
    assert!(by_name.iter().all(|name| keys.iter().any(|key| key == name)), "{keys:?}");
    assert!(keys.len() > 30, "{keys:?}");
    for key in keys {
        assert!(metrics.contains(&format!("`{key}`")), "metrics.md defines no `{key}`");
    }
}

#[test]
fn tables_are_the_same_in_csv_and_in_parquet() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let place = placed(TRACE);
    for (option, columns) in [("--requests", 13), ("--series", 8)] {
        place.stdout(&format!("sim day.yaml {option} out.csv"));
        place.stdout(&format!("sim day.yaml {option} out.parquet"));
        let text = fs::read_to_string(place.path("out.csv")).expect("a table");
        let mut lines = text.lines();
        let names: Vec<_> = lines.next().expect("a header").split(',').collect();
        let file = fs::File::open(place.path("out.parquet")).expect("a file");
        let reader = SerializedFileReader::new(file).expect("Parquet");
        let (mut rows, mut absent) = (0, 0);
        for row in reader.get_row_iter(None).expect("rows") {
            let row = row.expect("a row");
            let line = lines.next().expect("as many lines");
            let cells: Vec<_> = row.get_column_iter().collect();
            assert_eq!(cells.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
            for ((name, field), text) in cells.into_iter().zip(line.split(',')) {
                let text_of_field = match field {
                    Field::ULong(count) => count.to_string(),
                    Field::Double(number) => number.to_string(),
                    Field::Null => String::new(),
                    other => panic!("{name} is {other:?}"),
                };
                assert_eq!(text_of_field, text, "{name}");
                absent += usize::from(text.is_empty());
            }
            rows += 1;
        }
        assert!(names.len() == columns && lines.next().is_none() && rows > 0, "{text}");
        // An answer of one token has no time per output token.
        assert!(option == "--series" || absent == 1, "{text}");
    }
}

#[test]
fn a_window_of_a_day_is_a_picture_of_every_engine() {
    let place = placed(TRACE);
    place.stdout("sim closed.yaml --set workload.replicas=2 --perfetto out.json --window 100ms..200ms");
    let text = fs::read_to_string(place.path("out.json")).expect("a picture");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    for engine in 1..=2 {
        for phase in ["X", "C", "b", "e", "M"] {
            assert!(
                events.iter().any(|event| event["pid"] == engine && event["ph"] == phase),
                "{phase}: {text}"
            );
        }
    }
    let steps: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    let [first, last] = [steps[0], steps[steps.len() - 1]].map(|step| step["ts"].as_f64().expect("a time"));
    assert!(last < 200_000.0 && first + steps[0]["dur"].as_f64().expect("a time") > 100_000.0, "{text}");
    place.refused("sim closed.yaml --perfetto out.json", 2, &["--window 60s..70s"]);
    for window in ["70s..60s", "1s", "a..b", "1..2"] {
        place.refused(&format!("sim closed.yaml --perfetto out.json --window {window}"), 2, &["60s..70s"]);
    }
}
