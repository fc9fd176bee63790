//! A page of results of any kinds.

use crate::error::{OrError, Result};
use crate::pipeline::{ResolvedPlan, machine_library, read_grid};
use crate::sweep::TableStamp;
use hwprofiles::Machine;
use planner::{Export, ExportTarget};
use reports::{EngineCommand, PlanWords, PlannedRun, Report, ResultFile, ResultKind};
use scenarios::{MachineSource, MachineSpec};
use sim::RandomDraws;
use std::path::PathBuf;

/// A page, and the files that it was made of.
#[derive(Debug)]
pub struct ResultPage {
    /// The page.
    pub report: Report,
    /// The results, in their order.
    pub files: Vec<ResultFile>,
}

/// Reads results of any kinds (validations, plans, grids, fronts, traces, served requests, sweeps,
/// capacities) and makes a page of them. Each file's content says what it is.
///
/// ```
/// let scenario = fulcrum::parse_scenario(
///     "{machine: rtx4090-desktop, model: opt-125m,
///       workload: {batch: 1, prompt_tokens: 64, output_tokens: 8}}",
/// )?;
/// let folder = tempfile::tempdir()?;
/// let (file, page) = (folder.path().join("plan.yaml"), folder.path().join("page.html"));
/// std::fs::write(&file, fulcrum::plan(&scenario)?.plan.to_yaml())?;
/// fulcrum::report(&[file])?.report.write_html(&page)?;
/// assert!(std::fs::read_to_string(&page)?.contains("opt-125m on rtx4090-desktop"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Names the file that cannot be read or is no result, or the table of a sweep that has changed
/// since it was written.
pub fn report(results: &[PathBuf]) -> Result<ResultPage> {
    let mut report = Report::default();
    let mut files = Vec::new();
    for path in results {
        let file = ResultFile::read(path).or_input()?;
        let rows = (file.kind == ResultKind::Sweep).then(|| file.text.lines().count() as u64 - 1);
        let has_stamp = TableStamp::check(path, &file.sha256, rows)?;
        match file.kind {
            ResultKind::Plan => report.add_plan(&file, planned_run(&file)?),
            ResultKind::Grid => {
                let table = read_grid(&file.text, &path.display().to_string())?;
                report.add_grid(&file, table).or_input()?;
            }
            ResultKind::Parquet => add_parquet(&mut report, &file)?,
            ResultKind::Trace => report.add_trace(&file, known_machine).or_input()?,
            _ => report.add(&file).or_input()?,
        }
        if !has_stamp {
            report.mark_unstamped();
        }
        files.push(file);
    }
    Ok(ResultPage { report, files })
}

#[cfg(feature = "parquet")]
fn add_parquet(report: &mut Report, file: &ResultFile) -> Result<()> {
    report.add_table(file, crate::table::read_parquet(&file.path)?).or_input()
}

#[cfg(not(feature = "parquet"))]
fn add_parquet(_: &mut Report, _: &ResultFile) -> Result<()> {
    Err(crate::error::Error::input(crate::table::NO_PARQUET))
}

/// The plan of a file with its machine, and the run that the simulator expects.
fn planned_run(file: &ResultFile) -> Result<PlannedRun> {
    let planned = ResolvedPlan::from_yaml(&file.text, &file.path.display().to_string())?;
    let trace = planned.simulate(RandomDraws::default())?;
    let words = words(&planned);
    Ok(PlannedRun::new(planned.plan, planned.machine, &planned.placement, trace).with_words(words))
}

/// What is said about a plan: an engine that cannot run it is left out.
fn words(planned: &ResolvedPlan) -> PlanWords {
    let explained = planner::explain(&planned.plan, &planned.machine, &planned.model);
    let target = ExportTarget::LlamaCpp;
    let exported = planned.export(target).ok();
    let engine = exported.map(|Export { command, cannot, .. }| EngineCommand {
        engine: target.to_string(),
        command,
        cannot,
    });
    PlanWords { explanation: explained.ok().map(|explained| explained.to_string()), engine }
}

/// The machine of that name, where it is known: a trace does not say where its machine is
/// described.
fn known_machine(name: &str) -> Option<Machine> {
    let spec = MachineSpec::from(MachineSource::Named(name.to_owned()));
    spec.machine(machine_library().this, 1).ok()
}
