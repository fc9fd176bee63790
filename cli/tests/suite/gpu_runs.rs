//! Runs on a GPU that were measured, beside what the command predicts for them today.

use crate::place::Place;
use std::path::Path;

fn measured(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hwprofiles/data/measured");
    std::fs::read_to_string(folder.join(name)).expect("a file of measurements")
}

/// Predicted ÷ measured less 1, of TTFT and TPOT, for each run on `machine`.
fn errors(machine: &str) -> Vec<[f64; 2]> {
    let place = Place::with(&[("host.yaml", measured("h100_host.yaml").as_bytes())]);
    // Plans in bf16 with everything on the GPU: medians of three runs.
    let text = measured("gpu_runs.csv");
    let error = |row: &str| {
        let columns: Vec<_> = row.split(',').collect();
        let [model, batch, prompt, output, ttft, tpot] = columns[..] else { panic!("{row}") };
        let scenario = format!(
            "machine: {machine}\nmodel: {model}\ndtype: {{weights: bf16, kv: bf16}}\nobjective: latency\n\
             workload: {{batch: {batch}, prompt_tokens: {prompt}, output_tokens: {output}}}\n"
        );
        std::fs::write(place.path("scenario.yaml"), scenario).expect("a file");
        place.stdout("plan scenario.yaml -o plan.yaml");
        let simulated: serde_json::Value =
            serde_json::from_str(&place.stdout("--json sim plan.yaml")).expect("JSON");
        let error = |key: &str, measured: &str| {
            let milliseconds: f64 = measured.parse().expect("a number");
            simulated[key].as_f64().expect("a time") * 1e3 / milliseconds - 1.0
        };
        let errors = [error("ttft_s", ttft), error("tpot_s", tpot)];
        println!("{machine}: {model}, {batch} × {prompt}: {:+.3}, {:+.3}", errors[0], errors[1]);
        errors
    };
    text.lines().skip(1).map(error).collect()
}

/// The largest and the median magnitude.
fn largest_and_median(errors: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut all: Vec<_> = errors.map(f64::abs).collect();
    all.sort_by(f64::total_cmp);
    [all[all.len() - 1], (all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0]
}

/// Errors by the page docs/validation/gpu-runs.md, with a margin of 2 points.
#[test]
fn runs_on_an_h100_are_predicted_from_its_measurement_and_from_shipped_parts() {
    let own = errors("{cpu: host.yaml, gpu: host.yaml, link: host.yaml}");
    let shipped = errors("h100-sxm");
    for (errors, ttft, tpot) in
        [(own, [0.31, 0.072], [0.066, 0.032]), (shipped, [0.31, 0.08], [0.138, 0.053])]
    {
        for (index, most) in [(0, ttft), (1, tpot)] {
            let [largest, median] = largest_and_median(errors.iter().map(|error| error[index]));
            assert!(largest <= most[0] && median <= most[1], "{index}: {largest}, {median} of {most:?}");
        }
    }
}

#[test]
fn what_fits_a_gpu_stays_on_it() {
    let place = Place::with(&[("host.yaml", measured("h100_host.yaml").as_bytes())]);
    let scenario = "machine: {cpu: host.yaml, gpu: host.yaml, link: host.yaml}\nmodel: llama-3.2-1b\n\
                    dtype: {weights: bf16, kv: bf16}\nobjective: latency\n\
                    workload: {batch: 1, prompt_tokens: 64, output_tokens: 64}\n";
    std::fs::write(place.path("scenario.yaml"), scenario).expect("a file");
    place.stdout("plan scenario.yaml -o plan.yaml");
    let plan = std::fs::read_to_string(place.path("plan.yaml")).expect("the plan");
    // The cache in the host's memory looks 0.002 % faster in simulation, and was not.
    assert!(plan.contains("chosen: all-gpu") && !plan.contains("home: dram"), "{plan}");
}
