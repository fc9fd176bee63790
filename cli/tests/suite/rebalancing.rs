//! `fulcrum sim` of days on which something changes, with engines that go over to other plans.

use crate::place::Place;
use serde_json::Value;
use std::fs;

fn day(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/examples/");
    let text = fs::read(format!("{folder}{name}.yaml")).expect("an example");
    let place = Place::with(&[("day.yaml", &text)]);
    serde_json::from_str(&place.stdout("--json sim day.yaml")).expect("JSON")
}

/// Engines that rebalance keep the limits almost as often as the plan that would have been the best
/// to follow all day; five points less are allowed (a request of 120 is 0.8).
#[track_caller]
fn assert_as_good_as_hindsight(name: &str) {
    let day = day(name);
    let rebalancing = &day["rebalancing"];
    let share = |key: &str| rebalancing[key].as_f64().expect("a share");
    let (with, best) = (share("slo_attainment"), share("best_plan_slo_attainment"));
    println!("{name}: {with:.3} with rebalancing, {best:.3} with {}", rebalancing["best_plan"]);
    assert!(with >= best - 0.05, "{with} and {best}");
    assert_eq!(Some(with), day["slo_attainment"].as_f64());
    let plans = rebalancing["plans"].as_array().expect("plans");
    assert!(plans.len() > 3 && plans.iter().all(|plan| plan["slo_attainment"].as_f64() <= Some(best)));
    assert!(plans[0]["slo_attainment"].as_f64() < Some(best - 0.05), "there is something to gain: {plans:?}");
}

#[test]
fn a_cpu_that_becomes_slow_costs_no_more_than_in_hindsight() {
    assert_as_good_as_hindsight("slow-cpu");
}

#[test]
fn prompts_that_become_long_cost_no_more_than_in_hindsight() {
    assert_as_good_as_hindsight("long-prompts");
}

#[test]
fn three_times_the_load_costs_no_more_than_in_hindsight() {
    assert_as_good_as_hindsight("busy-hour");
}

const DAY: &str = "machine: h100-sxm
model: llama-3.1-8b
workload: {arrivals: {poisson: 5 req/s}, requests: 100, prompt_tokens: 512, output_tokens: 32}
";

#[test]
fn a_slower_device_is_slower_and_errors_of_shifts_name_the_key() {
    let place = Place::with(&[("day.yaml", DAY.as_bytes())]);
    let tpot = |shifts: &str| {
        let words = format!("--json sim day.yaml --set shifts={shifts}");
        let day: Value = serde_json::from_str(&place.stdout(&words)).expect("JSON");
        day["tpot_s"]["p50"].as_f64().expect("a number")
    };
    let (never, slow) = (tpot("[]"), tpot(r#"[{"from":"0s","device":"gpu","slower":3}]"#));
    assert!((slow / never - 3.0).abs() < 0.2, "{slow} and {never}");
    for (shifts, words) in [
        (r#"[{"from":"0s","device":"gpu"}]"#, &["shifts", "slower"][..]),
        (r#"[{"from":"0s","until":"0s","longer":2}]"#, &["shifts", "until"]),
        (r#"[{"from":"0s","longer":0}]"#, &["shifts", "0.001"]),
        (r#"[{"from":5,"longer":2}]"#, &["shifts", "2 min"]),
        ("3", &["shifts", "a list"]),
        (r#"[{"from":"0s","device":"npu","slower":3}]"#, &["npu", "gpu"]),
    ] {
        place.refused(&format!("sim day.yaml --set shifts={shifts}"), 2, words);
    }
    place.refused("sim day.yaml --set rebalance=3", 2, &["rebalance", "true or false"]);
    let still = r#"plan day.yaml --set workload={"batch":1,"prompt_tokens":8,"output_tokens":2} --set rebalance=true"#;
    place.refused(still, 2, &["rebalance", "leave it out"]);
    let closed = r#"sim day.yaml --set workload={"concurrency":2,"prompt_tokens":8,"output_tokens":2} --set shifts=[{"from":"0s","busier":2}]"#;
    place.refused(closed, 2, &["shifts", "closed loop"]);
}
