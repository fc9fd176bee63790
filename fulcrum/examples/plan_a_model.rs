//! Plans a model for a machine, simulates the run and prints what to expect.
//!
//! `cargo run --release -p fulcrum --example plan_a_model [SCENARIO.yaml]`

use std::path::Path;

const SCENARIO: &str = "
machine: rtx4090-desktop
model: llama-3.1-8b
dtype: {weights: [bf16, int8, int4], kv: bf16}
workload: {batch: 1, prompt_tokens: 512, output_tokens: 64}
objective: latency
";

fn main() -> fulcrum::Result {
    let scenario = match std::env::args().nth(1) {
        Some(file) => fulcrum::read_scenario(Path::new(&file), &[])?,
        None => fulcrum::parse_scenario(SCENARIO)?,
    };
    let planned = fulcrum::plan(&scenario)?;
    println!("{} on {}: {}", planned.model.name, planned.machine.name, planned.plan.formats);
    for trial in &planned.trials {
        match &trial.result {
            Ok(times) => println!("  {}: TTFT {}", trial.variant.formats, times.ttft),
            Err(reason) => println!("  {}: {reason}", trial.variant.formats),
        }
    }
    let trace = fulcrum::simulate(&planned)?;
    print!("{}", planned.rates(&trace));
    Ok(())
}
