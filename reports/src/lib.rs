//! What it means: predicted against measured, as tables, plots and a page.
//!
//! Two traces of one plan are joined into a [`Comparison`]; the comparisons of several configurations are a
//! [`Validation`], which is a file (`results.json`), a table and a page. Results of other kinds (plans, traces, sweeps, …) are
//! [`ResultFile`]s; a [`Report`] is a page of any of them.
//!
//! Rooms, each using only those before it: numbers, results, drawing, plots, page, sections, capacity, published, report.
#![forbid(unsafe_code)]

pub mod capacity;
mod drawing;
mod numbers;
mod page;
mod plots;
pub mod published;
mod report;
mod results;
mod sections;

pub use numbers::pair::Pair;
pub use numbers::statistics;
pub use plots::scatter::scatter;
pub use report::Report;
pub use results::comparison::{
    Comparison, Interval, JoinError, LaneRow, OperatorRow, StepRow, TaskRow, Timeline,
};
pub use results::configuration::{Configuration, Label, MemoryUse, RunTimes};
pub use results::data_table::{ColumnValues, DataColumn, DataTable};
pub use results::error::ReportError;
pub use results::machine_facts::{Fact, machine_facts};
pub use results::operation_errors::{ErrorGroup, OperationErrors, OperationSummary, WorstOperation};
pub use results::placement_map::{PlacedLayers, PlacedPart, PlacedSublayer, PlacementMap};
pub use results::prediction_columns::{PREDICTED_COLUMNS, append_prediction};
pub use results::result_file::{RESULTS, ResultFile, ResultKind};
pub use results::rule_comparison::RuleComparison;
pub use results::step_rates::StepRates;
pub use results::training_rates::TrainingRates;
pub use results::validation::{
    ERROR_BAND, ErrorSummary, VALIDATION_KIND, VALIDATION_VERSION, Validation, ValidationSummary,
};
pub use sections::plan::PlannedRun;
