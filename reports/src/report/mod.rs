//! A report: results of any kinds on one page.

pub mod capacity;
mod output;
pub mod public_runs;
pub mod published;

use crate::numbers::format::size;
use crate::page::block::{PageBlock, Table, TableCell, TableColumn};
use crate::page::section::PageSection;
use crate::plots::drawing::marks::Drawing;
use crate::results::data_table::{ColumnValues, DataTable};
use crate::results::error::ReportError;
use crate::results::result_file::{ResultFile, ResultKind};
use crate::results::validation::{VALIDATION_VERSION, Validation};
use crate::sections::capacity::CapacityFile;
use crate::sections::front::FrontFile;
use crate::sections::plan::PlannedRun;
use crate::sections::serving::{self, ServingSummary};
use crate::sections::trace::TracedRun;
use crate::sections::{grid, sweep, validation};
use hwprofiles::{Bytes, Machine};
use planner::{PlanTable, Trace};

/// Results, in the order of the page.
#[derive(Debug, Clone, Default)]
pub struct Report {
    inputs: Vec<ReportInput>,
}

/// One result and its file.
#[derive(Debug, Clone)]
struct ReportInput {
    source: Option<InputSource>,
    content: ReportContent,
}

/// The file of a result.
#[derive(Debug, Clone)]
struct InputSource {
    file: String,
    kind: ResultKind,
    sha256: String,
    bytes: u64,
}

/// The content of a file.
#[derive(Debug, Clone)]
enum ReportContent {
    Validation(Box<Validation>),
    Plan(Box<PlannedRun>),
    Grid(Box<PlanTable>),
    Front(FrontFile),
    Trace(Box<TracedRun>),
    Rates(ServingSummary),
    Served(ServingSummary),
    Requests(DataTable),
    Series(DataTable),
    Sweep(SweepTable),
    Capacity(Box<CapacityFile>),
}

/// The table of a sweep.
#[derive(Debug, Clone)]
struct SweepTable {
    table: DataTable,
    /// Whether nothing beside it says how it was written.
    unstamped: bool,
}

impl From<Validation> for Report {
    fn from(validation: Validation) -> Self {
        let content = ReportContent::Validation(Box::new(validation));
        Self { inputs: vec![ReportInput { source: None, content }] }
    }
}

impl Report {
    /// Adds a file that needs nothing else. For plans, tables of plans and Parquet tables use
    /// [`Report::add_plan`], [`Report::add_grid`] and [`Report::add_table`].
    ///
    /// # Errors
    /// Names the file and what is wrong in it.
    pub fn add(&mut self, file: &ResultFile) -> Result<(), ReportError> {
        let ResultFile { path, text, .. } = file;
        let content = match file.kind {
            ResultKind::Validation => ReportContent::Validation(Box::new(Validation::parse(text, path)?)),
            ResultKind::Front if text.trim_start().starts_with('{') => {
                ReportContent::Front(FrontFile::from_json(text, path)?)
            }
            ResultKind::Trace => return self.add_trace(file, |_| None),
            ResultKind::Rates => ReportContent::Rates(ServingSummary::read(text, path)?),
            ResultKind::Served => ReportContent::Served(ServingSummary::read(text, path)?),
            ResultKind::Capacity => ReportContent::Capacity(Box::new(CapacityFile::read(text, path)?)),
            ResultKind::Front | ResultKind::Requests | ResultKind::Series | ResultKind::Sweep => {
                return self.add_table(file, DataTable::from_csv(text, path)?);
            }
            ResultKind::Plan | ResultKind::Grid | ResultKind::Parquet => {
                let content =
                    format!("a {}, which is added with what it stands for", file.kind.description());
                return Err(ReportError::NoResult { path: path.clone(), content });
            }
        };
        self.push(file, file.kind, content);
        Ok(())
    }

    /// Adds a trace. `machine` looks up a machine by name.
    ///
    /// # Errors
    /// Names the file and the line that is not a trace.
    pub fn add_trace(
        &mut self,
        file: &ResultFile,
        machine: impl FnOnce(&str) -> Option<Machine>,
    ) -> Result<(), ReportError> {
        let trace = Trace::from_json(&file.path, &file.text)?;
        let machine = machine(&trace.machine);
        self.push(file, ResultKind::Trace, ReportContent::Trace(Box::new(TracedRun { trace, machine })));
        Ok(())
    }

    /// Adds a plan.
    pub fn add_plan(&mut self, file: &ResultFile, run: PlannedRun) {
        self.push(file, ResultKind::Plan, ReportContent::Plan(Box::new(run)));
    }

    /// Adds a table of plans.
    ///
    /// # Errors
    /// It is of another version, or a cell has a placement that is not there.
    pub fn add_grid(&mut self, file: &ResultFile, table: PlanTable) -> Result<(), ReportError> {
        grid::check(&table, &file.path)?;
        self.push(file, ResultKind::Grid, ReportContent::Grid(Box::new(table)));
        Ok(())
    }

    /// Says of the table of a sweep that was added last that nothing beside it tells whether it is
    /// as it was written. Other results are left as they are.
    pub fn mark_unstamped(&mut self) {
        if let Some(ReportInput { content: ReportContent::Sweep(sweep), .. }) = self.inputs.last_mut() {
            sweep.unstamped = true;
        }
    }

    /// Adds a table; its columns decide the kind of result.
    ///
    /// # Errors
    /// Names a file whose columns belong to no result.
    pub fn add_table(&mut self, file: &ResultFile, table: DataTable) -> Result<(), ReportError> {
        let names: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let kind = ResultKind::from_columns(&names);
        let content = match kind {
            Some(ResultKind::Front) => ReportContent::Front(FrontFile::from_table(&table)),
            Some(ResultKind::Requests) => ReportContent::Requests(table),
            Some(ResultKind::Series) => ReportContent::Series(table),
            Some(ResultKind::Sweep) => ReportContent::Sweep(SweepTable { table, unstamped: false }),
            _ => {
                let content = format!("a table of the columns {}", names.join(", "));
                return Err(ReportError::NoResult { path: file.path.clone(), content });
            }
        };
        self.push(file, kind.unwrap_or(file.kind), content);
        Ok(())
    }

    fn push(&mut self, file: &ResultFile, kind: ResultKind, content: ReportContent) {
        let source = InputSource {
            file: file.path.display().to_string(),
            kind,
            sha256: file.sha256.clone(),
            bytes: file.bytes,
        };
        self.inputs.push(ReportInput { source: Some(source), content });
    }

    /// A section for each result.
    pub(crate) fn sections(&self) -> Vec<PageSection> {
        let contents = || self.inputs.iter().map(|input| &input.content);
        let plans: Vec<_> = contents()
            .filter_map(|it| if let ReportContent::Plan(run) = it { Some(&**run) } else { None })
            .collect();
        let traces: Vec<_> = contents()
            .filter_map(|it| if let ReportContent::Trace(run) = it { Some(&run.trace) } else { None })
            .collect();
        let section = |content: &ReportContent| match content {
            ReportContent::Validation(it) => validation::section(it),
            ReportContent::Plan(run) => run.section(),
            ReportContent::Grid(table) => grid::section(table),
            ReportContent::Front(front) => front.section(),
            ReportContent::Trace(run) => run.section(&plans, &traces),
            ReportContent::Rates(summed) => summed.batch(),
            ReportContent::Served(summed) => summed.served(),
            ReportContent::Requests(table) => serving::requests(table),
            ReportContent::Series(table) => serving::series(table),
            ReportContent::Sweep(it) => sweep::section(&it.table, it.unstamped),
            ReportContent::Capacity(file) => file.section(),
        };
        contents().map(section).collect()
    }

    /// The table of the files behind the page; `None` where there is none.
    pub(crate) fn provenance(&self) -> Option<PageBlock> {
        let row = |input: &ReportInput| {
            let source = input.source.as_ref()?;
            let cells = [
                source.file.clone(),
                source.kind.description().to_owned(),
                input.content.version(),
                size(Bytes::new(source.bytes)),
                source.sha256.clone(),
            ];
            Some(cells.map(TableCell::from).to_vec())
        };
        let rows: Vec<_> = self.inputs.iter().filter_map(row).collect();
        let columns = [
            TableColumn::name("file"),
            TableColumn::text("what it is"),
            TableColumn::text("made by"),
            TableColumn::number("size"),
            TableColumn::wide("SHA-256"),
        ];
        let table = Table {
            label: "The files of this page".to_owned(),
            caption: format!("This page was made by fulcrum {} of these files.", env!("CARGO_PKG_VERSION")),
            columns: columns.to_vec(),
            rows,
        };
        (!table.rows.is_empty()).then_some(PageBlock::Table(table))
    }

    /// Every plot with the name of its file, without an ending. With several results, the name
    /// starts with the number of the result.
    fn drawings(&self) -> Vec<(String, Drawing)> {
        let sections = self.sections();
        let several = sections.len() > 1;
        let mut drawings = Vec::new();
        for (index, section) in sections.into_iter().enumerate() {
            let prefix = if several { format!("{}-", index + 1) } else { String::new() };
            for block in section.blocks {
                let PageBlock::Plots(plots) = block else { continue };
                drawings.extend(plots.into_iter().map(|plot| {
                    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
                    let name: String = plot.name.chars().map(plain).collect();
                    (format!("{prefix}{name}"), plot.drawing)
                }));
            }
        }
        drawings
    }
}

impl ReportContent {
    /// The version of the program that made the result, where the file has one.
    fn version(&self) -> String {
        match self {
            Self::Validation(_) => format!("form {VALIDATION_VERSION}"),
            Self::Plan(run) => format!("form {}", run.plan.plan),
            Self::Grid(table) => format!("form {}", table.table),
            Self::Capacity(file) => file.made_by(),
            Self::Sweep(SweepTable { table, .. }) => {
                match table.index("version").map(|it| &table.columns[it].values) {
                    Some(ColumnValues::Words { words, .. }) => format!("fulcrum {}", words.join(", ")),
                    _ => "–".to_owned(),
                }
            }
            _ => "–".to_owned(),
        }
    }
}
