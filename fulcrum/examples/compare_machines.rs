//! Plans one load on several machines and prints what to expect of each.
//!
//! `cargo run --release -p fulcrum --example compare_machines [MACHINE]…`

use fulcrum::{Document, Error, OrError, Setting};

const SCENARIO: &str = "
machine: h100-sxm
model: llama-3.1-8b
workload: {batch: 4, prompt_tokens: 512, output_tokens: 32}
";

fn main() -> fulcrum::Result {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let shipped = ["rtx4090-desktop", "l4", "a100-sxm", "h100-sxm"].map(str::to_owned);
    let machines = if named.is_empty() { shipped.to_vec() } else { named };
    let document = Document::from_yaml("scenario", SCENARIO).or_input()?;
    println!("{:<20} {:>12} {:>12}", "machine", "TTFT", "TPOT");
    for machine in machines {
        let setting: Setting = format!("machine={machine}").parse().or_input()?;
        let scenario = document.scenario_with(&[setting]).or_input()?;
        match fulcrum::plan(&scenario) {
            Ok(planned) => {
                let times = planned.plan.predicted.simulated;
                let tpot = times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
                println!("{machine:<20} {:>12} {tpot:>12}", times.ttft.to_string());
            }
            Err(Error::Infeasible(reason)) => println!("{machine:<20} {reason}"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
