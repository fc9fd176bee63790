//! Results of every kind on one page.

use crate::page::{HOSTILE, check_tags, without_scripts};
use crate::sample;
use planner::{Problem, Recorder, evaluate};
use reports::{PlannedRun, Report, ReportError, ResultFile, ResultKind};
use scenarios::{Costs, Objective, Requirements, Slo, Workload};
use std::path::Path;

/// Doubles the quotation marks in a text for CSV.
fn doubled(text: &str) -> String {
    text.replace('"', "\"\"")
}

fn sweep(rows: usize) -> String {
    let header = "point,workload.batch,machine,workload.arrivals,status,message,plan,duration_s,ttft_s_mean,tpot_s_mean,slo_attainment,version,inputs";
    let name = doubled(HOSTILE);
    let row = |it: usize| match it % 7 {
        6 => format!("{it},{},\"{name}\",1 req/s,infeasible,\"{name}\",,,,,,0.1.0,ab{it}", 1 << (it % 5)),
        _ => {
            let time = (it as f64 + 2.0).sqrt();
            format!(
                "{it},{},\"{name}\",{} req/s,ok,,\"planned, {name}\",{time},{},{},0.9,0.1.0,ab{it}",
                1 << (it % 5),
                it % 3,
                time / 2.0,
                time / 3.0
            )
        }
    };
    [header.to_owned()].into_iter().chain((0..rows).map(row)).collect::<Vec<_>>().join("\n")
}

const REQUESTS: &str = "request,arrival_s,prompt_tokens,output_tokens,scheduled_s,first_token_s,last_token_s,ttft_s,tpot_s,e2el_s,cached_tokens,fetched_tokens,preemptions\n";
const SERIES: &str = "start_s,steps,utilization,mean_running,mean_waiting,prompt_tokens_per_s,output_tokens_per_s,least_free_blocks\n";
const FRONT: &str = "ttft_s,tpot_s,bound_ttft_s,bound_tpot_s,prefill_chunk,proven,beaten,placement\n";

fn grid(cells: &str) -> String {
    // A YAML text cannot hold control characters as they are.
    let name = serde_json::to_string(HOSTILE).unwrap();
    let part = format!("{{home: {name}, prefill: {name}, decode: cpu}}");
    format!(
        "table: 1\nmachine: {{name: {name}, fingerprint: a}}\nmodel: {{name: m, fingerprint: b}}\n\
         formats: {{weights: bf16, kv: bf16, activations: f32}}\noutput_tokens: 4\nobjective: latency\n\
         sharing: {{slowdown: 1.0, worst: 1.1, proven: 0.9}}\nplacements:\n  - embed: {part}\n    layers:\n      - first: 0\n        count: 2\n        \
         qkv: {part}\n        attention: {part}\n        out: {part}\n    head: {part}\n{cells}"
    )
}

fn capacity(machines: &str) -> String {
    let name = serde_json::to_string(HOSTILE).unwrap();
    format!(
        "{{\"capacity\": 2, \"version\": \"0.1.0\", \"model\": {name}, \"asked\": [{name}], \"unit\": \"req/s\", \"load\": 3.0, \"machines\": [{machines}], \
         \"figures\": [{{\"what\": {name}, \"value\": {name}, \"source\": {name}}}]}}"
    )
}

fn candidate() -> String {
    let name = serde_json::to_string(HOSTILE).unwrap();
    let banded = "{\"value\": 2.0, \"slow\": 1.5, \"fast\": 2.5}";
    format!(
        "{{\"name\": {name}, \"plan\": {name}, \"largest_load\": {banded}, \"machines\": {banded}, \"utilization\": 0.5, \
         \"cost_per_token\": {{\"value\": 2e-6, \"slow\": 3e-6, \"fast\": 1e-6}}, \"bottlenecks\": [{{\"what\": {name}, \"share\": 0.9}}], \
         \"sensitivity\": [{{\"what\": {name}, \"lower\": 1e-6, \"higher\": 3e-6}}], \
         \"curve\": [{{\"load\": 1.0, \"slo_attainment\": 1.0, \"ttft_p99_s\": 0.2}}, {{\"load\": 2.0, \"slo_attainment\": 0.5}}]}}"
    )
}

/// A file of every kind that needs no other file, with names that would be markup.
fn files() -> Vec<(&'static str, ResultKind, String)> {
    let name = serde_json::to_string(HOSTILE).unwrap();
    let label = sample::label("mixed", 2, 16);
    let placement = sample::placement(&sample::machine(), &sample::model(), "mixed");
    let mut trace = sample::trace(&label, &placement, Recorder::Simulated, |_| 1.0);
    trace.machine = HOSTILE.to_owned();
    trace.events.iter_mut().filter(|it| it.lane == "loopback").for_each(|it| it.lane = HOSTILE.to_owned());
    let served = format!(
        "{{\"requests\": {{\"completed\": 2, \"rejected_for\": {{{name}: 1}}}}, \"duration_s\": 3.0, \"ttft_s\": {{\"p50\": 0.1, \"p99\": 0.2}}}}"
    );
    let taken = "{\"times\": {\"ttft\": \"1 s\", \"tpot\": \"10 ms\"}, \"energy_per_token\": null, \"cost_per_token\": null}";
    let front = format!(
        "{{\"criteria\": [\"ttft\", \"tpot\"], \"points\": [{{\"placement\": {name}, \"prefill_chunk\": 8, \"bound\": {taken}, \
         \"simulated\": {taken}, \"proven\": null, \"beaten\": false}}]}}"
    );
    let cell = "cells:\n  - {batch: 1, prompt_tokens: 8, weight: 1.0, prefill_chunk: 8, placement: 0, simulated: {ttft: 1 s, tpot: 1 ms}, \
                own: {ttft: 1 s}}\n";
    let without = format!("without:\n  - {{batch: 2, prompt_tokens: 8, reason: {name}}}\n");
    vec![
        ("results.json", ResultKind::Validation, sample::validation(vec![label]).to_json()),
        ("trace.json", ResultKind::Trace, trace.to_json()),
        ("day.json", ResultKind::Served, served),
        (
            "batch.json",
            ResultKind::Rates,
            format!("{{\"ttft_s\": 0.5, \"output_tokens_per_s\": 2.0, \"prefill\": {name}}}"),
        ),
        (
            "requests.csv",
            ResultKind::Requests,
            format!(
                "{REQUESTS}0,0.5,8,4,0.5,1.0,2.0,0.5,0.25,1.5,0,0,0\n1,1.5,8,1,1.5,2.0,2.0,0.5,,0.5,0,0,1\n"
            ),
        ),
        ("series.csv", ResultKind::Series, format!("{SERIES}0,1,0.5,1,0,10,10,5\n1,2,1,2,1,20,20,4\n")),
        ("sweep.csv", ResultKind::Sweep, sweep(60)),
        (
            "front.csv",
            ResultKind::Front,
            format!("{FRONT}1,0.01,1,0.01,8,0.9,false,\"{}\"\n2,0.005,2,0.005,8,,true,b\n", doubled(HOSTILE)),
        ),
        ("front.json", ResultKind::Front, front),
        ("grid.yaml", ResultKind::Grid, grid(&format!("{cell}{without}"))),
        ("capacity.json", ResultKind::Capacity, capacity(&candidate())),
    ]
}

fn file(name: &str, text: &str) -> Result<ResultFile, ReportError> {
    ResultFile::from_bytes(Path::new(name), text.as_bytes().to_vec())
}

fn report(files: &[(&str, ResultKind, String)]) -> Report {
    let mut report = Report::default();
    for (name, kind, text) in files {
        let file = file(name, text).unwrap();
        assert_eq!(file.kind, *kind, "{name}");
        match kind {
            ResultKind::Grid => report.add_grid(&file, planned_grid(text)),
            _ => report.add(&file),
        }
        .unwrap_or_else(|error| panic!("{error}"));
    }
    report
}

/// The table of plans of a text, as if it had its digest.
fn planned_grid(text: &str) -> planner::PlanTable {
    let table = planner::PlanTable::from_yaml(text, "grid.yaml").unwrap();
    planner::PlanTable { edited: false, ..table }
}

/// A plan of the example machine, with names that would be markup.
fn planned_run() -> PlannedRun {
    let (machine, model) = (sample::machine(), sample::model());
    let placement = sample::placement(&machine, &model, "planned");
    let cost_model = planner::CostModel { machine: &machine, model: &model, formats: &sample::FORMATS };
    let workload = Workload::new(2, 16, 4);
    let question = Problem {
        cost_model,
        draft: None,
        requirements: Requirements {
            workload,
            objective: Objective::Latency,
            slo: Slo::default(),
            costs: Costs::default(),
        },
    };
    let score =
        |placement: &planner::Placement, chunk: u64| sim::estimate(cost_model, placement, &workload, chunk);
    let mut plan = evaluate(&question, HOSTILE, placement.clone(), 16, &score).unwrap();
    plan.model.name = HOSTILE.to_owned();
    plan.predicted.without.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
    let trace = sample::trace(&sample::label("planned", 2, 16), &placement, Recorder::Simulated, |_| 1.0);
    PlannedRun::new(plan, machine, &placement, trace)
}

#[test]
fn every_kind_of_result_makes_a_page_on_which_names_are_no_markup() {
    let files = files();
    let mut all = report(&files);
    all.add_plan(&file("plan.yaml", "plan: 1").unwrap(), planned_run());
    let singles = files.iter().map(|it| (it.0, report(std::slice::from_ref(it))));
    for (name, report) in singles.chain([("all of them", all)]) {
        let page = report.to_html().unwrap();
        if let Some(folder) = std::env::var_os("FULCRUM_KEEP_PAGES") {
            let folder = Path::new(&folder).join(format!("page of {name}"));
            std::fs::create_dir_all(&folder).unwrap();
            report.write_html(folder.join("report.html")).unwrap();
            report.write_plots(&folder).unwrap();
            report.write_pictures(&folder).unwrap();
        }
        let markup = without_scripts(&page);
        check_tags(name, &markup);
        assert!(!markup.contains("alert('x')"), "{name}");
        assert!(!markup.contains("NaN"), "{name}");
        let scripts = page.matches("<script").count();
        let explorers = page.matches("application/json").count();
        let timelines = markup.matches("<svg data-time=").count();
        assert_eq!(scripts, explorers + usize::from(explorers + timelines > 0), "{name}");
        for plot in report.plots() {
            check_tags(&plot.0, &plot.1);
            assert!(!plot.1.contains("alert('x')") && !plot.1.contains("NaN"), "{name}: {}", plot.0);
        }
    }
}

#[test]
fn plots_have_names_of_their_own() {
    let mut names: Vec<_> = report(&files()).plots().into_iter().map(|(name, _)| name).collect();
    let count = names.len();
    assert!(count > 20, "{names:?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    assert!(names.iter().all(|name| name.chars().all(plain)), "{names:?}");
}

#[test]
fn files_are_told_with_what_they_are_and_their_hash() {
    let page = report(&files()).to_html().unwrap();
    for (name, kind, _) in files() {
        assert!(
            page.contains(&format!(
                "<th scope=\"row\">{name}</th><td class=\"text\">{}</td>",
                kind.description()
            )),
            "{name}"
        );
    }
    // Checked against `sha256sum`.
    assert_eq!(
        file("t.csv", "point,status,message,version,inputs").unwrap().sha256,
        "34609ad5a3fa807ed8c08314de121486934565b81e3ccf72a6b4db570316eb41"
    );
}

#[test]
fn results_of_no_rows_are_still_a_page() {
    let trace = "{\"recorder\": \"simulated\", \"machine\": \"m\", \"model\": \"n\", \"plan\": \"p\", \"steps\": [], \"events\": []}";
    let empty = [
        ("results.json", ResultKind::Validation, sample::validation(Vec::new()).to_json()),
        ("trace.json", ResultKind::Trace, trace.to_owned()),
        (
            "day.json",
            ResultKind::Served,
            "{\"requests\": {\"completed\": 0}, \"duration_s\": 0, \"ttft_s\": null}".to_owned(),
        ),
        ("requests.csv", ResultKind::Requests, REQUESTS.to_owned()),
        ("series.csv", ResultKind::Series, SERIES.to_owned()),
        ("sweep.csv", ResultKind::Sweep, sweep(0)),
        ("front.csv", ResultKind::Front, FRONT.to_owned()),
        ("grid.yaml", ResultKind::Grid, grid("cells: []\n")),
        ("capacity.json", ResultKind::Capacity, capacity("")),
    ];
    for it in empty {
        let page = report(std::slice::from_ref(&it)).to_html().unwrap();
        check_tags(it.0, &without_scripts(&page));
        assert!(!page.contains("<script") && !page.contains("NaN") && !page.contains("inf\""), "{}", it.0);
        let told =
            ["There is no ", "This run has no steps", "No request was", "No machine was", "0 configurations"];
        assert!(told.iter().any(|words| page.contains(words)), "{} does not say that it is empty", it.0);
    }
}

#[test]
fn what_is_no_result_or_of_another_version_is_refused_by_name() {
    let message = |name: &str, text: &str| {
        let refused = match file(name, text) {
            Ok(file) if file.kind == ResultKind::Grid => {
                Report::default().add_grid(&file, planned_grid(text)).expect_err(name)
            }
            Ok(file) => Report::default().add(&file).expect_err(name),
            Err(refused) => refused,
        };
        refused.to_string()
    };
    let newer = sample::validation(Vec::new()).to_json().replace("\"version\": 1", "\"version\": 7");
    for (text, words) in [
        ("", &["is empty", "fulcrum sweep"][..]),
        ("{}", &["JSON with the keys"]),
        ("{\"traceEvents\": []}", &["ui.perfetto.dev"]),
        ("{\"kind\": \"validation\"", &["line 1"]),
        ("[1]", &["a JSON list"]),
        ("a,b\n1,2\n", &["begins with 'a', 'b'"]),
        ("model: m\nworkload: {}\n", &["a scenario"]),
        ("name: m\ndevices: []\n", &["a document with the keys name, devices"]),
        (&newer, &["version is 7", "reads 1"]),
        (&grid("cells: []\n").replace("table: 1", "table: 9"), &["table is 9", "reads 1"]),
        (&capacity("").replace("\"capacity\": 2", "\"capacity\": 1"), &["capacity is 1", "reads 2"]),
        (&format!("{}\n1,2\n", sweep(0)), &["line: 2"]),
    ] {
        let message = message("odd.file", text);
        assert!(message.starts_with("odd.file"), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    let bytes = ResultFile::from_bytes(Path::new("odd.bin"), vec![0xff, 0xfe]).unwrap_err().to_string();
    assert!(bytes.starts_with("odd.bin: is neither text nor Parquet"), "{bytes}");
}

#[test]
fn a_measured_trace_stands_beside_its_prediction() {
    let label = sample::label("mixed", 2, 16);
    let placement = sample::placement(&sample::machine(), &sample::model(), "mixed");
    let predicted = sample::trace(&label, &placement, Recorder::Simulated, |_| 1.0);
    let measured = sample::trace(&label, &placement, Recorder::Measured, |_| 1.5);
    let trace = |name: &'static str, it: &planner::Trace| (name, ResultKind::Trace, it.to_json());
    let page = |files: &[(&str, ResultKind, String)]| report(files).to_html().unwrap();
    let alone = page(&[trace("m.json", &measured)]);
    assert!(!alone.contains("Compared with its prediction"));
    let both = page(&[trace("m.json", &measured), trace("p.json", &predicted)]);
    assert_eq!(both.matches(">Compared with its prediction</h3>").count(), 1);
    assert!(both.contains("-33.3 %"), "tasks of 1.5 times the predicted time are off by a third");
}
