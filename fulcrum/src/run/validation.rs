//! Plans that are run for real, beside what the simulator predicted.

use super::host::require_this_host;
use super::measurement::{Checkpoints, PlanMeasurement, label};
use crate::error::{Error, ErrorContext, OrError, Result};
use crate::identity;
use crate::input_files::InputFiles;
use crate::journal::{Journal, JournalTask};
use crate::pipeline::ResolvedPlan;
use crate::progress::{ProgressEvent, ProgressFn, TaskStage};
use executor::Checkpoint;
use hwprofiles::is_stream;
use reports::{Validation, machine_facts};
use serde_json::json;
use std::path::{Path, PathBuf};

/// What to validate.
#[derive(Debug, Clone)]
pub struct ValidationOptions {
    /// The plans' files, all for one machine and one model.
    pub plans: Vec<PathBuf>,
    /// The model's folder.
    pub model_dir: PathBuf,
    /// The folder of the draft of plans with one.
    pub draft_dir: Option<PathBuf>,
    /// Runs of each plan, whose medians are compared.
    pub repeats: u32,
    /// Where to write the results after each plan.
    pub out: Option<PathBuf>,
    /// Whether to go on behind the plans that an earlier run has measured.
    pub resume: bool,
    /// Whether plans for another machine are run too.
    pub anyway: bool,
    /// The command that the results record.
    pub command: String,
}

/// Runs plans for real and compares them with their predictions.
///
/// # Errors
/// A plan or the model is wrong, the plans are for several machines or models, the file cannot be
/// written, or a device fails. The results of the plans before are in the file, and beside it for
/// another run.
pub fn validate(options: &ValidationOptions, progress: &ProgressFn<'_>) -> Result<Validation> {
    let read = |path: &PathBuf| ResolvedPlan::read(path);
    let plans: Vec<_> = options.plans.iter().map(read).collect::<Result<_>>()?;
    let checkpoint = Checkpoint::open(&options.model_dir).or_input()?;
    let draft = options.draft_dir.as_deref().map(Checkpoint::open).transpose().or_input()?;
    let with_module = plans.iter().any(ResolvedPlan::drafts_with_module);
    let module = with_module.then(|| Checkpoint::open_mtp(&options.model_dir)).transpose().or_input()?;
    let from = Checkpoints { model: &checkpoint, draft: draft.as_ref(), module: module.as_ref() };
    let first = require_one_machine(&options.plans, &plans)?;
    let drafts = |planned: &ResolvedPlan| planned.plan.draft.is_some() && !planned.drafts_with_module();
    if draft.is_some() && !plans.iter().any(drafts) {
        return Err(Error::input(
            "--draft-dir: no plan has a draft model; plan with one in speculative.draft, or leave it out",
        ));
    }
    for (path, planned) in options.plans.iter().zip(&plans) {
        let fits = require_this_host(planned, options.anyway, progress);
        fits.and_then(|()| from.draft_of(planned).map(drop)).within(|| path.display().to_string())?;
    }
    let mut journal = journal(options, &plans)?;
    progress(ProgressEvent::Begin(TaskStage::Running));
    let mut validation = Validation {
        machine: first.machine.name.clone(),
        facts: machine_facts(&first.machine),
        model: first.model.name.clone(),
        commands: vec![options.command.clone()],
        configurations: Vec::new(),
    };
    let mut names: Vec<String> = Vec::new();
    for (index, (path, planned)) in options.plans.iter().zip(&plans).enumerate() {
        progress(ProgressEvent::Steps { done: index as u64, of: plans.len() as u64 });
        progress(ProgressEvent::Item(&path.display().to_string()));
        let load = &planned.plan.workload;
        let placement = planned.plan.predicted.chosen.clone();
        let name = format!("{}-b{}-p{}", placement, load.batch, load.prompt_tokens);
        // Plots and tables tell plans apart by their names, so plans of one shape get a number.
        let same = names.iter().filter(|other| **other == name).count();
        names.push(name.clone());
        let name = if same == 0 { name } else { format!("{name}-{}", same + 1) };
        let configuration = match journal.as_mut().filter(|journal| journal.finished()[index]) {
            Some(journal) => serde_json::from_str(&journal.text(index)?).or_failed()?,
            None => {
                let mut measured = PlanMeasurement::default();
                measured.run(planned, from, options.repeats)?;
                let measured = measured.compare(planned, label(name, placement, load))?;
                let line = serde_json::to_string(&measured).or_failed()?;
                journal.as_mut().map_or(Ok(()), |journal| journal.add(index as u64, &line))?;
                measured
            }
        };
        validation.configurations.push(configuration);
        // The measurements so far are kept, whatever happens to the plans that follow.
        if let Some(path) = &options.out {
            validation.write(path).or_failed()?;
        }
    }
    progress(ProgressEvent::End);
    journal.map_or(Ok(()), Journal::remove)?;
    Ok(validation)
}

/// The journal beside the results, where they are written.
fn journal(options: &ValidationOptions, plans: &[ResolvedPlan]) -> Result<Option<Journal>> {
    let Some(out) = options.out.as_deref().filter(|out| !is_stream(out)) else { return Ok(None) };
    let mut files = InputFiles::default();
    std::iter::once(&options.model_dir).chain(&options.draft_dir).for_each(|folder| files.add_path(folder));
    let identity = identity::short_digest(&json!({
        "build": identity::RUN_BUILD,
        "plans": plans.iter().map(|planned| planned.plan.fingerprint()).collect::<Vec<_>>(),
        "files": files.weights_identity()?,
        "repeats": options.repeats,
    }));
    let task = JournalTask {
        name: "validation",
        differs_in: "other plans, another model, other repeats or another build",
        identity: &identity,
        places: plans.len() as u64,
        resume: options.resume,
    };
    Journal::open(out, task).map(Some)
}

/// The first plan; refuses plans for several machines or models, since a report is about one of
/// each.
fn require_one_machine<'p>(paths: &[PathBuf], plans: &'p [ResolvedPlan]) -> Result<&'p ResolvedPlan> {
    let first = plans.first().ok_or_else(|| Error::input("no plan to validate"))?;
    let is_other = |planned: &ResolvedPlan| {
        (&planned.plan.machine, &planned.plan.model) != (&first.plan.machine, &first.plan.model)
    };
    let name = |path: &Path| path.display().to_string();
    match plans.iter().position(is_other) {
        None => Ok(first),
        Some(other) => Err(Error::input(format!(
            "{} is for another machine or model than {}: validate them apart",
            name(&paths[other]),
            name(&paths[0])
        ))),
    }
}
