//! `fulcrum capacity`.

use crate::place::Place;
use serde_json::Value;
use std::fs;

const SCENARIO: &str = "model: llama-3.2-1b
workload: {arrivals: {poisson: 20 req/s}, requests: 300, prompt_tokens: 256, output_tokens: 16}
engine: vllm
slo: {ttft: 100 ms, tpot: 20 ms}
capacity:
  load: 2000 req/s
  years: 2
  machines:
    - l4
    - {name: also an l4, machine: l4}
    - h100-sxm
";

fn placed() -> Place {
    Place::with(&[("c.yaml", SCENARIO.as_bytes())])
}

fn found(place: &Place, settings: &str) -> Value {
    serde_json::from_str(&place.stdout(&format!("--json capacity c.yaml {settings}"))).expect("JSON")
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {value}"))
}

#[test]
fn days_of_more_load_miss_the_limits_and_days_of_less_keep_them() {
    let place = placed();
    let report = found(&place, "--set capacity.machines=[l4]");
    let machine = &report["machines"][0];
    let (within, beyond) = (number(machine, "/largest_load/value"), number(machine, "/beyond"));
    assert!(within < beyond && beyond <= within * 1.0201, "{within} and {beyond}");
    assert!(number(machine, "/slo_attainment/0") >= 0.99 && number(machine, "/slo_attainment/1") < 0.99);
    assert!(machine["fails"].as_str().expect("a limit").starts_with("slo."), "{machine}");
    // These days are as long as those of the search: a hundred times the limit on TTFT.
    for (factor, keeps) in [(0.6, true), (0.8, true), (1.0, true), (1.2, false), (1.5, false)] {
        let load = within * factor;
        let requests = ((load * 10.0).ceil() as u64).max(300);
        let arrivals = format!("--set workload.arrivals.poisson={load} --set workload.requests={requests}");
        let day = place.stdout(&format!("--json sim c.yaml --set machine=l4 {arrivals}"));
        let day: Value = serde_json::from_str(&day).expect("JSON");
        assert_eq!(number(&day, "/slo_attainment") >= 0.99, keeps, "{factor}: {day}");
    }
    let [slow, fast] = ["slow", "fast"].map(|end| number(machine, &format!("/largest_load/{end}")));
    assert!(slow <= within && within <= fast, "{slow}, {within}, {fast}");
    assert!(number(machine, "/machines/fast") <= number(machine, "/machines/value"));
}

#[test]
fn equal_machines_tie_and_more_load_never_needs_fewer() {
    let place = placed();
    let (few, many) = (found(&place, ""), found(&place, "--set capacity.load=6000req/s"));
    let [one, same] = [&few["machines"][0], &few["machines"][1]];
    assert_eq!(one["total_cost"], same["total_cost"]);
    assert_eq!(one["largest_load"], same["largest_load"]);
    assert_eq!((one["payback"].is_null(), &same["payback"]), (true, &Value::from("at_once")));
    for (few, many) in
        few["machines"].as_array().expect("a list").iter().zip(many["machines"].as_array().expect("a list"))
    {
        assert!(number(many, "/machines/value") >= number(few, "/machines/value"));
        assert_eq!(few["largest_load"], many["largest_load"], "how much is asked changes no machine");
    }
    // A price in the scenario replaces the sum over the parts, and the cost of hardware scales with
    // it.
    let cost = |price: &str| {
        let machines = format!(r#"[{{"name":"x","machine":"l4","price":"{price}"}}]"#);
        let free = "--set capacity.prices.hosting=1e-9USD --set capacity.prices.per_kwh=1e-9USD";
        number(
            &found(&place, &format!("--set capacity.machines={machines} {free}")),
            "/machines/0/cost_per_token/value",
        )
    };
    let (once, twice) = (cost("10000USD"), cost("20000USD"));
    assert!((twice / once - 2.0).abs() < 1e-6, "{once} and {twice}");
}

#[test]
fn the_answer_is_a_text_a_document_a_table_and_a_page() {
    let place = placed();
    let named = r#"[{"name":"<b>|one,","machine":"l4"}]"#;
    fs::write(
        place.path("odd.yaml"),
        SCENARIO
            .replace("  machines:\n    - l4\n", &format!("  machines: {named}\n"))
            .split("    - {name")
            .next()
            .expect("a text"),
    )
    .expect("written");
    let text = place.stdout("capacity c.yaml");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for word in ["largest load", "busiest resource", "USD/M output tokens", "against the first", "estimate: "]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    for ending in ["md", "csv", "json", "html"] {
        place.stdout(&format!("capacity odd.yaml -o out.{ending}"));
    }
    let read = |name: &str| fs::read_to_string(place.path(name)).expect("written");
    let page = read("out.html");
    assert!(page.contains("&lt;b&gt;|one,") && !page.contains("<b>|") && !page.contains("http"), "{page}");
    assert!(read("out.md").contains(r"\<b\>\|one,"), "{}", read("out.md"));
    let (csv, json) = (read("out.csv"), read("out.json"));
    assert!(csv.lines().nth(1).expect("a row").starts_with("\"<b>|one,\","), "{csv}");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["machines"][0]["name"], "<b>|one,");
    place.refused("capacity odd.yaml -o out.pdf", 2, &["out.pdf", ".html"]);
}

#[test]
fn a_machine_without_a_price_does_not_hide_the_others() {
    let place = placed();
    let report = found(&place, r#"--set capacity.machines=[{"name":"x","machine":"gh200"},"l4"]"#);
    let why = report["machines"][0]["unmet"].as_str().expect("nobody knows its price");
    assert!(why.contains("the price of 'cpu' is not known"), "{why}");
    assert!(number(&report, "/machines/1/machines/value") >= 1.0);
}

#[test]
fn errors_name_the_place_and_the_key() {
    let place = placed();
    let refused = |settings: &str, status: i32, words: &[&str]| {
        place.refused(&format!("capacity c.yaml {settings}"), status, words);
    };
    refused("--set capacity.prices.per_kwh=0USD", 2, &["capacity.prices.per_kwh", "above 0"]);
    refused("--set capacity.prices.per_kwh=-1USD", 2, &["capacity.prices.per_kwh", "negative"]);
    refused("--set capacity.prices.server=12000", 2, &["capacity.prices.server", "12000", "USD"]);
    refused("--set capacity.prices.server=12000EUR", 2, &["12000EUR", "USD", "capacity.currencies", "EUR"]);
    refused("--set capacity.prices.serer=1USD", 2, &["capacity.prices.serer", "server"]);
    refused("--set capacity.prices.pue=0.9", 2, &["capacity.prices.pue", "at least 1"]);
    refused("--set capacity.attainment=120%", 2, &["capacity.attainment", "100 %"]);
    refused("--set capacity.machines=[]", 2, &["capacity.machines", "a list"]);
    refused("--set capacity.machines=[l4,l4]", 2, &["capacity.machines", "called l4"]);
    refused("--set slo=null", 2, &["slo.ttft is missing"]);
    refused("--set slo.ttft=null", 2, &["slo.ttft is missing"]);
    let closed = r#"workload={"concurrency":4,"requests":9,"prompt_tokens":8,"output_tokens":8}"#;
    refused(&format!("--set {closed}"), 2, &["capacity.load", "900 users"]);
    refused("--set capacity.load=900users", 2, &["900users", "req/s", "workload.concurrency"]);
    let fixed = r#"workload={"batch":4,"prompt_tokens":8,"output_tokens":8}"#;
    refused(&format!("--set {fixed}"), 2, &["workload", "arrivals", "concurrency"]);
    let both = format!(
        r#"[{{"name":"x","machine":"l4","set":{{{}}}}},"l4"]"#,
        closed.replacen("workload=", "\"workload\":", 1)
    );
    refused(&format!("--set capacity.machines={both}"), 2, &["capacity.load"]);
    refused("--set workload.think_time=5s", 2, &["workload.think_time", "concurrency"]);
    refused("--set capacity=null", 2, &["capacity is missing"]);
    let parts = r#"capacity.machines=[{"name":"x","machine":"gh200"}]"#;
    refused(&format!("--set {parts}"), 2, &["x: ", "the price of 'cpu'", "price:"]);
    let unknown = r#"capacity.machines=[{"name":"x","machine":"l4","set":{"engine.nme":"vllm"}}]"#;
    refused(&format!("--set {unknown}"), 2, &["on x", "engine.nme"]);
    refused("--set slo.tpot=1us", 3, &["slo.tpot", "1 us", "h100-sxm", "hardly any load", "p99"]);
    let file = SCENARIO.replace("    - h100-sxm\n", "    - {name: y, machine: l4, prise: 3 USD}\n");
    fs::write(place.path("wrong.yaml"), file).expect("written");
    place.refused("capacity wrong.yaml", 2, &["wrong.yaml:11", "capacity.machines.2.prise", "price"]);
}

#[test]
fn gpus_of_one_server_are_used_in_the_best_of_the_ways() {
    let place = placed();
    let machines = r#"[{"name":"one","machine":"h100-sxm"},{"name":"two","machine":"h100-sxm","set":{"tensor_parallel":[1,2]}},{"name":"joined","machine":"h100-sxm","set":{"tensor_parallel":2}}]"#;
    let report = found(&place, &format!("--set capacity.machines={machines}"));
    let [one, two, joined] = [0, 1, 2].map(|index| &report["machines"][index]);
    let load = |machine: &Value| number(machine, "/largest_load/value");
    let ways = two["ways"].as_array().expect("the ways");
    let each: Vec<f64> = ways.iter().map(|way| number(way, "/largest_load")).collect();
    assert_eq!((each.len(), one["ways"].is_null()), (2, true), "{two}");
    // One GPU holds the model, so two of them answer side by side and carry twice the load, to the
    // fiftieth to which loads are found.
    assert!((1.9..2.1).contains(&(each[0] / load(one))), "{each:?} and {}", load(one));
    assert_eq!(load(two), each[0].max(each[1]));
    assert_eq!(load(joined), each[1], "the other way is that of both as one");
    assert!(two["plan"].as_str().expect("a plan").contains("2 side by side"), "{two}");
    for machine in [one, two] {
        for share in machine["bottlenecks"].as_array().expect("shares") {
            assert!(number(share, "/share") <= 1.0, "{share}");
        }
        assert!((0.0..=1.0).contains(&number(machine, "/utilization")), "{machine}");
    }
    // Two GPUs that are as busy as one draw as much for each token, and share the server's power.
    let energy = |index: usize, load: f64| {
        let machines: Vec<Value> = serde_json::from_str(machines).expect("JSON");
        let settings =
            format!("--set capacity.machines=[{}] --set capacity.load={load}req/s", machines[index]);
        number(&found(&place, &settings), "/machines/0/energy_per_token_j")
    };
    let busy = load(one) * 0.9;
    let share = energy(1, 2.0 * busy) / energy(0, busy);
    assert!((0.5..1.02).contains(&share), "{share}");
    assert_eq!(number(two, "/gpus"), number(two, "/machines/value") * 2.0);
}

#[test]
fn each_engine_of_a_list_is_asked_on_each_machine() {
    let place = placed();
    let report = found(&place, "--set engine=[vllm,sglang] --set capacity.machines=[l4]");
    let machines = report["machines"].as_array().expect("a list");
    let mut names: Vec<_> =
        machines.iter().map(|machine| machine["name"].as_str().expect("a name")).collect();
    names.sort_unstable();
    assert_eq!(names, ["l4 with sglang", "l4 with vllm"]);
    assert!(report["asked"].to_string().contains("simulated with vllm and sglang"), "{report}");
    let alone = found(&place, "--set engine=sglang --set capacity.machines=[l4]");
    let listed = machines.iter().find(|machine| machine["name"] == "l4 with sglang").expect("it is there");
    assert_eq!(listed["largest_load"], alone["machines"][0]["largest_load"]);
    let wrong = "capacity c.yaml --set engine=[vllm,sglnag]";
    place.refused(wrong, 2, &["engine is \"sglnag\": did you mean sglang?"]);
    place.refused("capacity c.yaml --set engine=[]", 2, &["an engine or several"]);
    place.refused("sim c.yaml --set machine=l4 --set engine=[vllm,sglang]", 2, &["engine", "capacity"]);
}

#[test]
fn prices_of_another_currency_need_its_rate_and_day() {
    let with = |settings: &str| SCENARIO.replace("  years: 2\n", &format!("  years: 2\n{settings}"));
    let place = Place::with(&[
        ("usd.yaml", with("  prices: {server: 21600 USD}\n").as_bytes()),
        (
            "eur.yaml",
            with("  prices: {server: 20000 EUR}\n  currencies: {EUR: 1.08 USD on 2026-11-01}\n").as_bytes(),
        ),
        ("day.yaml", with("  currencies: {EUR: 1.08 USD on 2026-11-31}\n").as_bytes()),
        ("none.yaml", with("  currencies: {EUR: 0 USD on 2026-11-01}\n").as_bytes()),
        ("own.yaml", with("  currencies: {USD: 1 USD on 2026-11-01}\n").as_bytes()),
        (
            "other.yaml",
            with("  prices: {server: 9 CHF}\n  currencies: {EUR: 1.08 USD on 2026-11-01}\n").as_bytes(),
        ),
    ]);
    let costs = ["usd", "eur"].map(|name| {
        let printed = place.stdout(&format!("--json capacity {name}.yaml --set capacity.machines=[l4]"));
        let report: Value = serde_json::from_str(&printed).expect("JSON");
        assert_eq!(report["figures"].to_string().contains("given, on 2026-11-01"), name == "eur", "{report}");
        number(&report, "/machines/0/price")
    });
    assert!((costs[0] / costs[1] - 1.0).abs() < 1e-12, "{costs:?}");
    for name in ["day", "none"] {
        place.refused(
            &format!("capacity {name}.yaml"),
            2,
            &[&format!("{name}.yaml:8"), "currencies.EUR", "1.08 USD on"],
        );
    }
    place.refused("capacity own.yaml", 2, &["capacity.currencies.USD", "EUR"]);
    place.refused("capacity other.yaml", 2, &["other.yaml:8", "9 CHF", "capacity.currencies", "CHF"]);
}

/// Users who read for a while before they ask again.
const USERS: &str = "model: llama-3.2-1b
workload: {concurrency: 3000, think_time: {mean: 4 s, cv: 0.5}, prompt_tokens: 256, output_tokens: 16}
engine: vllm
slo: {ttft: 100 ms, tpot: 20 ms}
capacity:
  growth: 50 %
  years: 2
  machines: [l4]
";

#[test]
fn a_load_can_be_users_in_place_of_requests() {
    let place = Place::with(&[("c.yaml", USERS.as_bytes())]);
    let report = found(&place, "");
    let machine = &report["machines"][0];
    let (within, beyond) = (number(machine, "/largest_load/value"), number(machine, "/beyond"));
    assert_eq!((report["unit"].as_str(), number(&report, "/load")), (Some("users"), 3000.0));
    assert!(within.fract() == 0.0 && beyond.fract() == 0.0 && within < beyond && beyond <= within * 1.0201);
    assert!(number(machine, "/slo_attainment/0") >= 0.99 && number(machine, "/slo_attainment/1") < 0.99);
    let machines = |year: usize| number(machine, &format!("/years/{year}/machines"));
    assert_eq!(machines(0), (3000.0 / within).ceil());
    assert_eq!(machines(1), (4500.0 / within).ceil());
    // Little's law holds on every day that was tried, except at its ends: each user waits for an
    // answer or thinks.
    for day in machine["curve"].as_array().expect("days") {
        let cycle = number(day, "/e2el_mean_s") + 4.0;
        let users = number(day, "/requests_per_s") * cycle / number(day, "/load");
        assert!((0.9..1.05).contains(&users), "{day}");
    }
    // A looser limit allows at least as many users, and users who think for longer leave room for
    // others.
    let most = |settings: &str| number(&found(&place, settings), "/machines/0/largest_load/value");
    let limits = ["60ms", "100ms", "200ms", "400ms"];
    let by_limit = limits.map(|limit| most(&format!(r#"--set slo={{"ttft":"{limit}"}}"#)));
    assert!(by_limit.windows(2).all(|pair| pair[1] >= pair[0] * 0.98), "{by_limit:?}");
    assert!(by_limit[3] > by_limit[0] * 1.5 && by_limit[1] >= within * 0.98, "{by_limit:?}");
    let slower = most(r#"--set workload.think_time={"mean":"8s","cv":0.5}"#);
    assert!((1.7..2.2).contains(&(slower / within)), "{slower} and {within}");
    let text = place.stdout("capacity c.yaml");
    for words in ["3000 users, who think 4 s", "largest load, users", "answers per second"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // The cost is that of requests that come at the same rate.
    let cost = |report: &Value| {
        number(report, "/machines/0/cost_per_token/value") / number(report, "/machines/0/machines/value")
    };
    let rate = 3000.0 * number(machine, "/requests_per_s") / within;
    let open = format!(
        r#"--set workload={{"arrivals":{{"poisson":{rate}}},"requests":2000,"prompt_tokens":256,"output_tokens":16}}"#
    );
    let (users, requests) = (cost(&report), cost(&found(&place, &open)));
    assert!((0.9..1.1).contains(&(users / requests)), "{users} and {requests}");
    place.refused("capacity c.yaml --set capacity.load=60req/s", 2, &["capacity.load", "900 users"]);
    place.refused("capacity c.yaml --set capacity.load=0users", 2, &["capacity.load", "900 users"]);
    for think in [r#"{"mean":"4s"}"#, "4", "-4s", r#"{"from":"5s","to":"4s"}"#, r#"{"mean":"4s","cv":0}"#] {
        place.refused(
            &format!("capacity c.yaml --set workload.think_time={think}"),
            2,
            &["workload.think_time", "20 s"],
        );
    }
}
