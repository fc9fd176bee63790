//! `fulcrum quickstart`

use crate::commands::bench;
use crate::exit::{Outcome, Sort};
use crate::measure::{self, Measured};
use crate::pipeline::{Planned, Question};
use crate::terminal;
use crate::terminal::{out, outln};
use executor::{Checkpoint, make_random};
use hwprofiles::{Bytes, BytesPerSec, DType, Host, LoopbackLimit, Machine, Parts};
use planner::{Origin, Rule};
use reports::{Configuration, Validation, machine_facts};
use scenarios::{
    Costs, EngineChoice, FormatChoice, Formats, MachineSource, Model, Objective, Slo, WeightFormats, Workload,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything at once on this machine: measure, plan, simulate, run, compare, report.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder for what it makes: host.yaml, the model, plans, results.json, report.html.
    #[arg(short, long, default_value = "fulcrum-quickstart")]
    out: PathBuf,
    /// Ten loads, batch 1–16 and prompts of 16–512 tokens, and every rule, instead of four and three.
    #[arg(long)]
    full: bool,
    /// The rate of the loopback's link. Slow beside memory, as a link to an accelerator is.
    #[arg(long, default_value = "4 GB/s")]
    link: BytesPerSec,
    /// What the loopback's memory holds of the model.
    #[arg(long, value_name = "PERCENT", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=200))]
    memory: u64,
    /// Measured before (`fulcrum bench`): skips measuring.
    #[arg(long, value_name = "FILE")]
    host: Option<PathBuf>,
    /// Rounds in which every configuration is run once; medians are compared.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
}

/// The model that is made: about 250 M parameters.
const MODEL: &str = "fulcrum-250m";

/// Batch, prompt and output tokens.
const SHORT: &[[u64; 3]] = &[[1, 128, 24], [1, 512, 24], [4, 128, 16], [16, 32, 12]];

/// What the published figures come from.
const FULL: &[[u64; 3]] = &[
    [1, 32, 16],
    [1, 128, 16],
    [1, 256, 8],
    [1, 512, 16],
    [2, 64, 16],
    [4, 32, 16],
    [4, 128, 8],
    [8, 16, 16],
    [8, 64, 8],
    [16, 32, 12],
];

/// The rules that are run beside the plan where there is a minute. Every other one is scored by the planner too.
const MEASURED: [Rule; 3] = [Rule::AllCpu, Rule::FillMemory, Rule::AllStreamed];

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let out = &arguments.out;
    std::fs::create_dir_all(out).or_input()?;
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let command = format!("cargo run --release -- {command}");
    let host_file = arguments.host.clone().unwrap_or_else(|| out.join("host.yaml"));
    let host = match &arguments.host {
        Some(path) => {
            Host::from_yaml(&std::fs::read_to_string(path).or_input()?, &path.display().to_string())
                .or_input()?
        }
        None => bench::measure(&host_file, true)?,
    };
    let (model, checkpoint) = model(&out.join(MODEL))?;
    let limit = limit(&model, &arguments);
    let machine = machine(host, limit)?;
    let origin = Origin {
        machine: MachineSource::of_loopback(&host_file, limit),
        model: out.join(MODEL).canonicalize().or_failed()?.display().to_string(),
        expert_skew: None,
        draft: None,
        tensor_parallel: None,
    };
    let (loads, rules) = if arguments.full { (FULL, &Rule::ALL[..]) } else { (SHORT, &MEASURED[..]) };
    let cases = cases(&machine, &model, &origin, loads, rules, out)?;
    let configurations = measure_all(&cases, &checkpoint, arguments.repeats)?;
    let validation = Validation {
        machine: machine.name.clone(),
        facts: machine_facts(&machine),
        model: model.name.clone(),
        commands: vec![command],
        configurations,
    };
    validation.write(out.join("results.json")).or_failed()?;
    validation.write_html(out.join("report.html")).or_failed()?;
    match json {
        true => out!("{}", validation.to_json()),
        false => {
            out!("{}", validation.to_text());
            outln!("\nopen {}", out.join("report.html").display());
        }
    }
    Ok(())
}

/// Runs every case in each of `rounds`, so that what others do to the machine meanwhile does not fall on one of them.
fn measure_all(
    cases: &[(String, Planned)],
    checkpoint: &Checkpoint,
    rounds: u32,
) -> Outcome<Vec<Configuration>> {
    let named = |kind: &str, load: &Workload| format!("{kind}-b{}-p{}", load.batch, load.prompt_tokens);
    let bar = terminal::progress("running");
    bar.set_length(u64::from(rounds) * cases.len() as u64);
    let mut measured: Vec<Measured> = cases.iter().map(|_| Measured::default()).collect();
    for _ in 0..rounds {
        for ((kind, planned), measured) in cases.iter().zip(&mut measured) {
            bar.set_message(named(kind, &planned.plan.workload));
            measured.visit(planned, checkpoint, 1)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let compared = cases.iter().zip(&measured).map(|((kind, planned), measured)| {
        let load = &planned.plan.workload;
        measured.compare(planned, measure::label(named(kind, load), kind.clone(), load))
    });
    compared.collect()
}

/// The model's folder, made once.
fn model(folder: &Path) -> Outcome<(Model, Checkpoint)> {
    let model = Model::preset(MODEL).or_failed()?;
    if !folder.exists() {
        let bar = terminal::progress("making");
        bar.set_message(format!("{MODEL} with random weights"));
        make_random(&model, folder, 0).or_failed()?;
        bar.finish_and_clear();
    }
    let checkpoint = Checkpoint::open(folder).or_input()?;
    Ok((checkpoint.model().clone(), checkpoint))
}

/// Less than half of the model, unless asked for otherwise.
fn limit(model: &Model, arguments: &Arguments) -> LoopbackLimit {
    let memory = Bytes::new(model.weight_bytes(&formats()).get() * arguments.memory / 100);
    LoopbackLimit { memory, bandwidth: arguments.link }
}

/// This host with a loopback device.
fn machine(host: Host, limit: LoopbackLimit) -> Outcome<Machine> {
    let name = format!("{}+loopback", host.host);
    Parts::of(host).with_loopback(limit).machine(&name).or_failed()
}

fn formats() -> Formats {
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 }
}

/// For each load the planner's choice and the simple rules, each a plan of its own, written to `out`.
fn cases(
    machine: &Machine,
    model: &Model,
    origin: &Origin,
    loads: &[[u64; 3]],
    rules: &[Rule],
    out: &Path,
) -> Outcome<Vec<(String, Planned)>> {
    let bar = terminal::progress("planning");
    bar.set_length(loads.len() as u64);
    let mut cases = Vec::new();
    for &[batch, prompt_tokens, output_tokens] in loads {
        let workload = Workload { batch, prompt_tokens, output_tokens, speculation: None };
        let question = Question {
            machines: Arc::from([machine.clone()]),
            identities: None,
            model: model.clone(),
            formats: FormatChoice { allowed: vec![formats()], lossy: vec![] },
            speculative: None,
            workload,
            serving: None,
            training: None,
            engine: EngineChoice::default(),
            objective: Objective::Latency,
            slo: Slo::default(),
            costs: Costs::default(),
            origin: Some(origin.clone()),
        };
        bar.set_message(format!("batch {batch}, {prompt_tokens} tokens"));
        for &rule in rules {
            cases.extend(question.follow(rule)?.map(|followed| (rule.name().to_owned(), followed)));
        }
        cases.push(("planned".to_owned(), question.plan()?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    for (kind, planned) in &cases {
        let Workload { batch, prompt_tokens, .. } = planned.plan.workload;
        let path = out.join("plans").join(format!("{kind}-b{batch}-p{prompt_tokens}.yaml"));
        hwprofiles::write_atomically(path, planned.plan.to_yaml()).or_failed()?;
    }
    Ok(cases)
}
