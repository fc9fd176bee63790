//! Everything at once on this machine: measure, plan, simulate, run and compare.

use super::host::measure_host;
use super::measurement::{Checkpoints, PlanMeasurement, label};
use crate::error::{OrError, Result};
use crate::input_files::InputFiles;
use crate::pipeline::{FollowedRule, PreparedScenario, ResolvedPlan};
use crate::progress::{ProgressEvent, ProgressFn, TaskStage};
use executor::{Checkpoint, make_random};
use hwprofiles::{Bytes, BytesPerSec, DType, Host, LoopbackLimit, Machine, MachineParts, write_atomically};
use planner::{PlanOrigin, Rule};
use reports::{Configuration, Validation, machine_facts};
use scenarios::{Formats, MachineSource, Model, WeightFormats, Workload};
use std::path::{Path, PathBuf};

/// How much to run, and on what.
#[derive(Debug, Clone)]
pub struct QuickstartOptions {
    /// The folder for what is made: host.yaml, the model, plans, results.json, report.html.
    pub out: PathBuf,
    /// Ten loads and every rule, instead of four and three.
    pub full: bool,
    /// The bandwidth of the loopback's link.
    pub link: BytesPerSec,
    /// What the loopback's memory holds of the model, in per cent.
    pub memory_percent: u64,
    /// Measurements of before; where there are none, this machine is measured.
    pub host: Option<PathBuf>,
    /// Rounds in which every configuration is run once; medians are compared.
    pub repeats: u32,
    /// The day of the measurements, `YYYY-MM-DD`.
    pub date: String,
    /// The command that the results record.
    pub command: String,
}

/// The model that is made, with about 250 M parameters.
const MODEL: &str = "fulcrum-250m";

/// The files of the results, in the folder.
const RESULTS: &str = "results.json";
const REPORT: &str = "report.html";

/// A load: batch, prompt tokens and output tokens.
type Load = [u64; 3];

/// The loads where there is a minute.
const SHORT: &[Load] = &[[1, 128, 24], [1, 512, 24], [4, 128, 16], [16, 32, 12]];

/// The loads that the published figures come from.
const FULL: &[Load] = &[
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

/// The rules that are run beside the plan where there is a minute. The planner scores every rule.
const MEASURED: [Rule; 3] = [Rule::AllCpu, Rule::FillMemory, Rule::AllStreamed];

/// A plan that is run: the rule that made it, or `planned`.
struct QuickstartCase {
    kind: String,
    planned: ResolvedPlan,
}

impl QuickstartCase {
    fn name(&self) -> String {
        let Workload { batch, prompt_tokens, .. } = self.planned.plan.workload;
        format!("{}-b{batch}-p{prompt_tokens}", self.kind)
    }
}

/// Measures this machine, plans a small model on it, runs the plan and the simple rules, and writes
/// what was measured beside what was predicted: `results.json` and `report.html`.
///
/// # Errors
/// Something cannot be measured, planned, run or written.
pub fn quickstart(options: &QuickstartOptions, progress: &ProgressFn<'_>) -> Result<Validation> {
    let out = &options.out;
    std::fs::create_dir_all(out).or_failed()?;
    let host_file = options.host.clone().unwrap_or_else(|| out.join("host.yaml"));
    let host = match &options.host {
        Some(path) => {
            let text = hwprofiles::read_text(path).or_input()?;
            Host::from_yaml(&text, &path.display().to_string()).or_input()?
        }
        None => measure_host(&host_file, true, &options.date, progress)?,
    };
    let mut inputs = InputFiles::default();
    inputs.add_path(&host_file);
    inputs.refuse([RESULTS, REPORT].map(|name| out.join(name)))?;
    let (model, checkpoint) = prepare_model(&out.join(MODEL), progress)?;
    let memory = model.weight_bytes(&formats()).get() * options.memory_percent / 100;
    let limit = LoopbackLimit { memory: Bytes::new(memory), bandwidth: options.link };
    let machine = loopback_machine(host, limit)?;
    let origin = PlanOrigin {
        machine: MachineSource::from_loopback(&host_file, limit),
        model: out.join(MODEL).canonicalize().or_failed()?.display().to_string(),
        expert_skew: None,
        draft: None,
        tensor_parallel: None,
        pipeline_parallel: None,
        expert_parallel: false,
        data_parallel: None,
        execution: None,
    };
    let (loads, rules) = match options.full {
        true => (FULL, &Rule::ALL[..]),
        false => (SHORT, &MEASURED[..]),
    };
    let scenarios = loads.iter().map(|&[batch, prompt_tokens, output_tokens]| {
        let workload = Workload { batch, prompt_tokens, output_tokens, speculation: None };
        let (machine, model) = (machine.clone(), model.clone());
        PreparedScenario::from_machine(machine, model, formats(), workload, origin.clone())
    });
    let cases = plan_cases(scenarios.collect(), rules, progress)?;
    for case in &cases {
        let path = out.join("plans").join(format!("{}.yaml", case.name()));
        inputs.refuse([&path])?;
        write_atomically(path, case.planned.plan.to_yaml()).or_failed()?;
    }
    let configurations = measure_all(&cases, &checkpoint, options.repeats, progress)?;
    let validation = Validation {
        machine: machine.name.clone(),
        facts: machine_facts(&machine),
        model: model.name.clone(),
        commands: vec![options.command.clone()],
        configurations,
    };
    validation.write(out.join(RESULTS)).or_failed()?;
    validation.write_html(out.join(REPORT)).or_failed()?;
    Ok(validation)
}

/// Runs every case once in each of `rounds`, so that a disturbance of the machine does not fall on
/// one case alone.
fn measure_all(
    cases: &[QuickstartCase],
    checkpoint: &Checkpoint,
    rounds: u32,
    progress: &ProgressFn<'_>,
) -> Result<Vec<Configuration>> {
    progress(ProgressEvent::Begin(TaskStage::Running));
    let (mut done, of) = (0, u64::from(rounds) * cases.len() as u64);
    let mut measured: Vec<_> = cases.iter().map(|_| PlanMeasurement::default()).collect();
    let from = Checkpoints { model: checkpoint, draft: None, module: None };
    for _ in 0..rounds {
        for (case, measured) in cases.iter().zip(&mut measured) {
            progress(ProgressEvent::Steps { done, of });
            progress(ProgressEvent::Item(&case.name()));
            measured.run(&case.planned, from, 1)?;
            done += 1;
        }
    }
    progress(ProgressEvent::End);
    let compared = cases.iter().zip(&measured).map(|(case, measured)| {
        let label = label(case.name(), case.kind.clone(), &case.planned.plan.workload);
        measured.compare(&case.planned, label)
    });
    compared.collect()
}

/// The model's folder, made once.
fn prepare_model(folder: &Path, progress: &ProgressFn<'_>) -> Result<(Model, Checkpoint)> {
    let model = Model::preset(MODEL).or_failed()?;
    if !folder.exists() {
        progress(ProgressEvent::Begin(TaskStage::MakingModel));
        progress(ProgressEvent::Item(&format!("{MODEL} with random weights")));
        make_random(&model, folder, 0).or_failed()?;
        progress(ProgressEvent::End);
    }
    let checkpoint = Checkpoint::open(folder).or_input()?;
    Ok((checkpoint.model().clone(), checkpoint))
}

/// This host with a loopback device.
fn loopback_machine(host: Host, limit: LoopbackLimit) -> Result<Machine> {
    let name = format!("{}+loopback", host.host);
    MachineParts::from_host(host).with_loopback(limit).machine(&name).or_failed()
}

fn formats() -> Formats {
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 }
}

/// The plans of the planner and of the simple rules for each scenario.
fn plan_cases(
    scenarios: Vec<PreparedScenario>,
    rules: &[Rule],
    progress: &ProgressFn<'_>,
) -> Result<Vec<QuickstartCase>> {
    progress(ProgressEvent::Begin(TaskStage::Planning));
    let mut cases = Vec::new();
    for (index, scenario) in scenarios.iter().enumerate() {
        let Workload { batch, prompt_tokens, .. } = scenario.workload();
        progress(ProgressEvent::Steps { done: index as u64, of: scenarios.len() as u64 });
        progress(ProgressEvent::Item(&format!("batch {batch}, {prompt_tokens} tokens")));
        for &rule in rules {
            let kind = rule.name();
            match scenario.follow(rule)? {
                FollowedRule::Planned(planned) => {
                    cases.push(QuickstartCase { kind: kind.to_owned(), planned: *planned });
                }
                FollowedRule::Impossible(reason) => {
                    progress(ProgressEvent::Note(&format!("{kind} is left out: {reason}")));
                }
            }
        }
        cases.push(QuickstartCase { kind: "planned".to_owned(), planned: scenario.plan()? });
    }
    progress(ProgressEvent::End);
    Ok(cases)
}
