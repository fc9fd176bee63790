//! `fulcrum validate PLAN... --model-dir DIR`

use crate::exit::{Failure, Outcome, Sort};
use crate::measure::{self, Measured};
use crate::pipeline::Planned;
use crate::terminal;
use crate::terminal::out;
use anyhow::anyhow;
use executor::Checkpoint;
use reports::{Validation, machine_facts};
use std::path::PathBuf;

/// Run plans for real and compare with what the simulator predicted.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The plans, all for one machine and one model.
    #[arg(required = true)]
    plans: Vec<PathBuf>,
    /// The model's folder.
    #[arg(long, value_name = "DIR")]
    model_dir: PathBuf,
    /// Runs of each plan; medians are compared.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Where to write the results; `fulcrum report` makes a page of them.
    #[arg(short, long)]
    out: Option<PathBuf>,
    /// Write the page at once.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let plans: Vec<_> = arguments.plans.iter().map(|path| Planned::read(path)).collect::<Outcome<_>>()?;
    let checkpoint = Checkpoint::open(&arguments.model_dir).or_input()?;
    one_of_each(&arguments.plans, &plans)?;
    let bar = terminal::progress("validating");
    bar.set_length(plans.len() as u64);
    let first = &plans[0];
    let mut validation = Validation {
        machine: first.machine.name.clone(),
        facts: machine_facts(&first.machine),
        model: first.model.name.clone(),
        commands: vec![std::env::args().collect::<Vec<_>>().join(" ")],
        configurations: Vec::new(),
    };
    let mut names = Vec::new();
    for (index, planned) in plans.iter().enumerate() {
        bar.set_message(arguments.plans[index].display().to_string());
        let load = &planned.plan.workload;
        let placement = planned.plan.predicted.chosen.clone();
        let name = format!("{}-b{}-p{}", placement, load.batch, load.prompt_tokens);
        // Names tell plots and tables apart: plans of one shape get a number.
        let same = names.iter().filter(|other| **other == name).count();
        names.push(name.clone());
        let name = if same == 0 { name } else { format!("{name}-{}", same + 1) };
        let label = measure::label(name, placement, load);
        let mut measured = Measured::default();
        measured.visit(planned, &checkpoint, arguments.repeats)?;
        validation.configurations.push(measured.compare(planned, label)?);
        // What was measured is kept, whatever happens to the plans that follow.
        if let Some(path) = &arguments.out {
            validation.write(path).or_failed()?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(path) = &arguments.html {
        validation.write_html(path).or_failed()?;
    }
    match json {
        true => out!("{}", validation.to_json()),
        false => out!("{}", validation.to_text()),
    }
    Ok(())
}

/// One report is about one machine and one model.
fn one_of_each(paths: &[PathBuf], plans: &[Planned]) -> Outcome {
    let identity = |planned: &Planned| (planned.plan.machine.clone(), planned.plan.model.clone());
    match plans.iter().position(|plan| identity(plan) != identity(&plans[0])) {
        None => Ok(()),
        Some(other) => Err(Failure::Input(anyhow!(
            "{} is for another machine or model than {}: validate them apart",
            paths[other].display(),
            paths[0].display()
        ))),
    }
}
