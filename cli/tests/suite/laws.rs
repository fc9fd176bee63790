//! Laws of every answer: it is the same at any number of threads and in any locale, and its numbers
//! are numbers.

use crate::place::Place;
use hwprofiles::Seconds;
use planner::PhaseTimes;
use std::fs;

const BATCH: &[u8] = b"machine: rtx4090-desktop
model: opt-125m
dtype: {weights: [bf16, int4], kv: bf16}
workload: {batch: 2, prompt_tokens: 64, output_tokens: 8}
";

const DAY: &[u8] = b"machine: l4
model: opt-125m
engine: vllm
workload: {arrivals: {poisson: 30 req/s}, requests: 200, prompt_tokens: {mean: 100, cv: 1}, output_tokens: 8}
slo: {ttft: 3 s, tpot: 1 s}
capacity: {load: 50 req/s, machines: [l4]}
";

#[test]
fn an_answer_has_the_same_bytes_at_any_number_of_threads_and_in_any_locale() {
    let place = Place::with(&[("batch.yaml", BATCH), ("day.yaml", DAY)]);
    for (arguments, file) in [
        ("plan batch.yaml", None),
        ("plan batch.yaml --set dtype.weights=bf16 --front ttft,tpot -o front.csv", Some("front.csv")),
        (
            "plan batch.yaml --grid --set dtype.weights=bf16 --set workload.batch=1,2,3 -o grid.yaml",
            Some("grid.yaml"),
        ),
        ("explain plan.yaml --full", None),
        ("--json sim day.yaml --set workload.replicas=3 --requests requests.csv", Some("requests.csv")),
        ("sweep batch.yaml --set workload.batch=1..6 -o sweep.csv", Some("sweep.csv")),
        ("--json capacity day.yaml", None),
        ("advise --machine l4,128GB --json", None),
    ] {
        let answer = |threads: &str, locale: &str, zone: &str| {
            let variables =
                [("RAYON_NUM_THREADS", threads), ("LC_ALL", locale), ("LANG", locale), ("TZ", zone)];
            let output = place.command(arguments).envs(variables).output().expect("it starts");
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "fulcrum {arguments}: {message}");
            let written = file.map(|file| fs::read(place.path(file)).expect("written"));
            (output.stdout, written)
        };
        let one = answer("1", "C", "UTC");
        for (threads, locale, zone) in
            [("2", "de_DE.UTF-8", "Asia/Tokyo"), ("7", "tr_TR.ISO-8859-9", "America/Lima")]
        {
            assert!(answer(threads, locale, zone) == one, "fulcrum {arguments}: {threads} threads, {locale}");
        }
        if arguments == "plan batch.yaml" {
            fs::write(place.path("plan.yaml"), one.0).expect("written");
        }
    }
}

/// Times that a run can have: numbers above zero.
fn check(times: &PhaseTimes, what: &str) {
    for time in [Some(times.ttft), times.tpot].into_iter().flatten() {
        assert!(time > Seconds::ZERO && time.get().is_finite(), "{what}: {time}");
    }
}

#[test]
fn every_number_of_a_plan_is_a_number_over_machines_models_and_loads() {
    let machines: Vec<_> =
        hwprofiles::shipped().map(|(name, _)| name).filter(|name| fulcrum::machine(name).is_ok()).collect();
    let models: Vec<_> = scenarios::Model::preset_names().collect();
    assert!(machines.len() > 50 && models.len() > 50, "{} machines, {} models", machines.len(), models.len());
    let percent = std::env::var("FULCRUM_CASES").map_or(100, |text| text.parse().expect("a whole number"));
    let mut planned = 0;
    for case in 0..usize::max(1, 40 * percent / 100) {
        // Strides that meet every machine and every model in time.
        let (machine, model) = (machines[case * 37 % machines.len()], models[case * 53 % models.len()]);
        let (batch, prompt, output) =
            ([1, 3, 40][case % 3], [1, 700, 5][case % 4 % 3], [1, 2, 90][case % 5 % 3]);
        let weights = ["bf16", "int4", "fp8"][case % 7 % 3];
        let text = format!(
            "{{machine: {machine}, model: {model}, dtype: {{weights: {weights}}}, \
             workload: {{batch: {batch}, prompt_tokens: {prompt}, output_tokens: {output}}}}}"
        );
        let scenario = fulcrum::parse_scenario(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        // What does not fit, or has no rate, is refused.
        let Ok(plan) = fulcrum::plan(&scenario) else { continue };
        planned += 1;
        let predicted = &plan.plan.predicted;
        check(&predicted.simulated, &text);
        check(&predicted.bound, &text);
        predicted.baselines.values().for_each(|times| check(times, &text));
        assert!(
            predicted.simulated.ttft >= predicted.bound.ttft * 0.999_999,
            "{text}: faster than its bound"
        );
        let (energy, cost) = (predicted.energy_per_token, predicted.cost_per_token);
        assert!(energy.is_none_or(|it| it.get().is_finite() && it.get() > 0.0), "{text}: {energy:?}");
        assert!(cost.is_none_or(|it| it.get().is_finite() && it.get() >= 0.0), "{text}: {cost:?}");
        let trace = fulcrum::simulate(&plan).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(trace.steps.iter().all(|step| step.end_ns > step.start_ns), "{text}");
        // JSON has no NaN and no infinity: either would be null where a number is read again.
        let written = plan.plan.to_yaml();
        let again =
            planner::Plan::from_yaml(&written, "plan.yaml").unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(again == plan.plan, "{text}: what was written is what was planned");
    }
    assert!(planned >= 10, "{planned} plans were made");
}
