//! A report: results of any kinds, on one page.

use crate::block::{Block, Cell, Column, Table};
use crate::data_table::{DataTable, Values};
use crate::error::ReportError;
use crate::numbers::size;
use crate::result_file::{Kind, ResultFile};
use crate::sections::capacity::CapacityFile;
use crate::sections::front::FrontFile;
use crate::sections::plan::PlannedRun;
use crate::sections::serving::{self, Summed};
use crate::sections::trace::TracedRun;
use crate::sections::{Section, grid, sweep, validation};
use crate::validation::{VALIDATION_VERSION, Validation};
use hwprofiles::{Bytes, Machine};
use planner::{PlanTable, Trace};

/// Results, in the order of the page.
#[derive(Debug, Clone, Default)]
pub struct Report {
    inputs: Vec<Input>,
}

/// One result, and the file that it was in.
#[derive(Debug, Clone)]
struct Input {
    source: Option<Source>,
    content: Content,
}

/// Where a result came from.
#[derive(Debug, Clone)]
struct Source {
    file: String,
    kind: Kind,
    sha256: String,
    bytes: u64,
}

/// What was in a file.
#[derive(Debug, Clone)]
enum Content {
    Validation(Box<Validation>),
    Plan(Box<PlannedRun>),
    Grid(Box<PlanTable>),
    Front(FrontFile),
    Trace(Box<TracedRun>),
    Rates(Summed),
    Served(Summed),
    Requests(DataTable),
    Series(DataTable),
    Sweep(DataTable),
    Capacity(Box<CapacityFile>),
}

impl From<Validation> for Report {
    fn from(validation: Validation) -> Self {
        let content = Content::Validation(Box::new(validation));
        Self { inputs: vec![Input { source: None, content }] }
    }
}

impl Report {
    /// Adds what stands in `file` by itself: anything but a plan and a Parquet table, of which the caller knows more.
    ///
    /// # Errors
    /// Names the file and what in it is not what it should be.
    pub fn add(&mut self, file: &ResultFile) -> Result<(), ReportError> {
        let ResultFile { path, text, .. } = file;
        let content = match file.kind {
            Kind::Validation => Content::Validation(Box::new(Validation::parse(text, path)?)),
            Kind::Grid => Content::Grid(Box::new(grid::read(text, path)?)),
            Kind::Front if text.trim_start().starts_with('{') => {
                Content::Front(FrontFile::from_json(text, path)?)
            }
            Kind::Trace => return self.add_trace(file, |_| None),
            Kind::Rates => Content::Rates(Summed::read(text, path)?),
            Kind::Served => Content::Served(Summed::read(text, path)?),
            Kind::Capacity => Content::Capacity(Box::new(CapacityFile::read(text, path)?)),
            Kind::Front | Kind::Requests | Kind::Series | Kind::Sweep => {
                return self.add_table(file, DataTable::from_csv(text, path)?);
            }
            Kind::Plan | Kind::Parquet => {
                let what = format!("a {}, which is added with what it stands for", file.kind.words());
                return Err(ReportError::NoResult { path: path.clone(), what });
            }
        };
        self.push(file, file.kind, content);
        Ok(())
    }

    /// Adds a trace; `machine` finds a machine by its name.
    ///
    /// # Errors
    /// Names the file and the line of what is not a trace.
    pub fn add_trace(
        &mut self,
        file: &ResultFile,
        machine: impl FnOnce(&str) -> Option<Machine>,
    ) -> Result<(), ReportError> {
        let trace = Trace::from_json(&file.path, &file.text)?;
        let machine = machine(&trace.machine);
        self.push(file, Kind::Trace, Content::Trace(Box::new(TracedRun { trace, machine })));
        Ok(())
    }

    /// Adds a plan.
    pub fn add_plan(&mut self, file: &ResultFile, run: PlannedRun) {
        self.push(file, Kind::Plan, Content::Plan(Box::new(run)));
    }

    /// Adds a table, by its columns.
    ///
    /// # Errors
    /// Names the file whose columns are no result's.
    pub fn add_table(&mut self, file: &ResultFile, table: DataTable) -> Result<(), ReportError> {
        let names: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let kind = Kind::of_columns(&names);
        let content = match kind {
            Some(Kind::Front) => Content::Front(FrontFile::of(&table)),
            Some(Kind::Requests) => Content::Requests(table),
            Some(Kind::Series) => Content::Series(table),
            Some(Kind::Sweep) => Content::Sweep(table),
            _ => {
                let what = format!("a table of the columns {}", names.join(", "));
                return Err(ReportError::NoResult { path: file.path.clone(), what });
            }
        };
        self.push(file, kind.unwrap_or(file.kind), content);
        Ok(())
    }

    fn push(&mut self, file: &ResultFile, kind: Kind, content: Content) {
        let source = Source {
            file: file.path.display().to_string(),
            kind,
            sha256: file.sha256.clone(),
            bytes: file.bytes,
        };
        self.inputs.push(Input { source: Some(source), content });
    }

    /// A section for each result.
    pub(crate) fn sections(&self) -> Vec<Section> {
        let contents = || self.inputs.iter().map(|input| &input.content);
        let plans: Vec<_> = contents()
            .filter_map(|it| if let Content::Plan(run) = it { Some(&**run) } else { None })
            .collect();
        let traces: Vec<_> = contents()
            .filter_map(|it| if let Content::Trace(run) = it { Some(&run.trace) } else { None })
            .collect();
        let section = |content: &Content| match content {
            Content::Validation(it) => validation::section(it),
            Content::Plan(run) => run.section(),
            Content::Grid(table) => grid::section(table),
            Content::Front(front) => front.section(),
            Content::Trace(run) => run.section(&plans, &traces),
            Content::Rates(summed) => summed.batch(),
            Content::Served(summed) => summed.served(),
            Content::Requests(table) => serving::requests(table),
            Content::Series(table) => serving::series(table),
            Content::Sweep(table) => sweep::section(table),
            Content::Capacity(file) => file.section(),
        };
        contents().map(section).collect()
    }

    /// Which files the page was made of; `None` where it was made of none.
    pub(crate) fn provenance(&self) -> Option<Block> {
        let row = |input: &Input| {
            let source = input.source.as_ref()?;
            let cells = [
                source.file.clone(),
                source.kind.words().to_owned(),
                input.content.version(),
                size(Bytes::new(source.bytes)),
                source.sha256.clone(),
            ];
            Some(cells.map(Cell::from).to_vec())
        };
        let rows: Vec<_> = self.inputs.iter().filter_map(row).collect();
        let columns = [
            Column::name("file"),
            Column::text("what it is"),
            Column::text("made by"),
            Column::number("size"),
            Column::wide("SHA-256"),
        ];
        let table = Table {
            label: "The files of this page".to_owned(),
            caption: format!("This page was made by fulcrum {} of these files.", env!("CARGO_PKG_VERSION")),
            columns: columns.to_vec(),
            rows,
        };
        (!table.rows.is_empty()).then_some(Block::Table(table))
    }

    /// Every plot as a file: (name, text of an SVG that needs nothing else). Where there are several results, a name
    /// begins with the number of its own.
    pub fn plots(&self) -> Vec<(String, String)> {
        let sections = self.sections();
        let several = sections.len() > 1;
        let plots = sections.iter().enumerate().flat_map(|(index, section)| {
            let plots = section.blocks.iter().flat_map(|block| match block {
                Block::Plots(plots) => &plots[..],
                _ => &[],
            });
            plots.map(move |plot| {
                let name: String =
                    plot.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
                let prefix = if several { format!("{}-", index + 1) } else { String::new() };
                (format!("{prefix}{name}.svg"), plot.svg.standalone())
            })
        });
        plots.collect()
    }
}

impl Content {
    /// Who made it, as far as it says so.
    fn version(&self) -> String {
        match self {
            Self::Validation(_) => format!("form {VALIDATION_VERSION}"),
            Self::Plan(run) => format!("form {}", run.plan.plan),
            Self::Grid(table) => format!("form {}", table.table),
            Self::Capacity(file) => file.made_by(),
            Self::Sweep(table) => match table.index("version").map(|it| &table.columns[it].values) {
                Some(Values::Words { words, .. }) => format!("fulcrum {}", words.join(", ")),
                _ => "–".to_owned(),
            },
            _ => "–".to_owned(),
        }
    }
}
