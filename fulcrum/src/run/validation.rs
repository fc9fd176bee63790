//! Plans that are run for real, beside what the simulator predicted.

use super::measurement::{PlanMeasurement, label};
use crate::error::{Error, OrError, Result};
use crate::pipeline::ResolvedPlan;
use crate::progress::{ProgressEvent, ProgressFn, TaskStage};
use executor::Checkpoint;
use reports::{Validation, machine_facts};
use std::path::{Path, PathBuf};

/// What to validate.
#[derive(Debug, Clone)]
pub struct ValidationOptions {
    /// The plans' files, all for one machine and one model.
    pub plans: Vec<PathBuf>,
    /// The model's folder.
    pub model_dir: PathBuf,
    /// Runs of each plan, whose medians are compared.
    pub repeats: u32,
    /// Where to write the results after each plan.
    pub out: Option<PathBuf>,
    /// The command that the results record.
    pub command: String,
}

/// Runs plans for real and compares them with their predictions.
///
/// # Errors
/// A plan or the model is wrong, the plans are for several machines or models, or a device fails.
/// The results of the plans before are in the file.
pub fn validate(options: &ValidationOptions, progress: &ProgressFn<'_>) -> Result<Validation> {
    let read = |path: &PathBuf| ResolvedPlan::read(path);
    let plans: Vec<_> = options.plans.iter().map(read).collect::<Result<_>>()?;
    let checkpoint = Checkpoint::open(&options.model_dir).or_input()?;
    let first = require_one_machine(&options.plans, &plans)?;
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
        let mut measured = PlanMeasurement::default();
        measured.run(planned, &checkpoint, options.repeats)?;
        validation.configurations.push(measured.compare(planned, label(name, placement, load))?);
        // The measurements so far are kept, whatever happens to the plans that follow.
        if let Some(path) = &options.out {
            validation.write(path).or_failed()?;
        }
    }
    progress(ProgressEvent::End);
    Ok(validation)
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
