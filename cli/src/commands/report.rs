//! `fulcrum report RESULT… -o report.html`

use crate::exit::{Outcome, Sort};
use crate::inputs;
use crate::parquet_rows;
use crate::pipeline::Planned;
use crate::terminal::outln;
use hwprofiles::Machine;
use reports::{Kind, PlannedRun, Report, ResultFile};
use scenarios::{MachineSource, MachineSpec};
use serde_json::json;
use sim::Draws;
use std::path::PathBuf;

/// Make a page of results of any kinds: validations, plans, grids, fronts, traces, served requests, sweeps, capacities.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What `fulcrum validate`, `plan`, `sim`, `run`, `sweep` or `capacity` wrote; each file says what it is.
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// The page, one file that needs no network.
    #[arg(short, long, default_value = "report.html")]
    out: PathBuf,
    /// Also write each plot as a file into this folder.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// As what.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "svg", requires = "plots")]
    format: Vec<PlotFormat>,
}

/// What a plot is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PlotFormat {
    /// A drawing, in the colours of the reader's screen.
    Svg,
    /// A picture of pixels, in light colours.
    Png,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let mut report = Report::default();
    let mut files = Vec::new();
    for path in &arguments.results {
        let file = ResultFile::read(path).or_input()?;
        match file.kind {
            Kind::Plan => report.add_plan(&file, planned_run(&file)?),
            Kind::Parquet => report.add_table(&file, parquet_rows::read(path)?).or_input()?,
            Kind::Trace => report.add_trace(&file, machine).or_input()?,
            _ => report.add(&file).or_input()?,
        }
        files.push(json!({"file": path, "kind": file.kind.words(), "sha256": file.sha256}));
    }
    report.write_html(&arguments.out).or_failed()?;
    if let Some(folder) = &arguments.plots {
        for format in &arguments.format {
            match format {
                PlotFormat::Svg => report.write_plots(folder).or_failed()?,
                PlotFormat::Png => report.write_pictures(folder).or_failed()?,
            }
        }
    }
    match json {
        true => outln!("{}", json!({"page": arguments.out, "files": files})),
        false => outln!("written to {}", arguments.out.display()),
    }
    Ok(())
}

/// The plan with its machine, and the run that the simulator expects.
fn planned_run(file: &ResultFile) -> Outcome<PlannedRun> {
    let planned = Planned::read(&file.path)?;
    let trace = planned.simulate(Draws::default())?;
    Ok(PlannedRun::of(planned.plan, planned.machine, &planned.placement, trace))
}

/// The machine that is known by that name; a trace does not say where its own is described.
fn machine(name: &str) -> Option<Machine> {
    let spec = MachineSpec::from(MachineSource::Named(name.to_owned()));
    spec.machine(inputs::library().this, 1).ok()
}
