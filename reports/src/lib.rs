//! Reports: predicted results against measured ones, as tables, plots and pages.
//!
//! Two traces of one plan are joined into a [`Comparison`]. The comparisons of several
//! configurations are a [`Validation`], which has a file form (`results.json`), tables and a page.
//! Other kinds of results (plans, traces, sweeps, …) are read as [`ResultFile`]s. A [`Report`] is a
//! page of any of them.
//!
//! Rooms, each using only those before it: numbers, results, plots, page, sections, report.
#![forbid(unsafe_code)]

mod numbers;
mod page;
mod plots;
mod report;
mod results;
mod sections;
#[cfg(test)]
mod test_cases;

pub use numbers::pair::Pair;
pub use numbers::statistics;
pub use plots::roofline::{RooflineMark, roofline};
pub use plots::scatter::scatter;
pub use report::{Report, capacity, public_runs, published};
pub use results::comparison::{
    Comparison, Interval, JoinError, LaneRow, OperatorRow, StepRow, TaskRow, Timeline,
};
pub use results::configuration::{Configuration, DraftOutcome, Label, MemoryUse, RunTimes};
pub use results::data_table::{ColumnValues, DataColumn, DataTable};
pub use results::error::{RESULTS, ReportError};
pub use results::machine_facts::{Fact, machine_facts};
pub use results::model_text::ModelText;
pub use results::operation_errors::{ErrorGroup, OperationErrors, OperationSummary, WorstOperation};
pub use results::placement_map::{PlacedLayers, PlacedPart, PlacedSublayer, PlacementMap};
pub use results::prediction_columns::{PREDICTED_COLUMNS, append_prediction};
pub use results::result_file::{ResultFile, ResultKind};
pub use results::rule_comparison::RuleComparison;
pub use results::step_rates::StepRates;
pub use results::training_rates::TrainingRates;
pub use results::validation::{
    ERROR_BAND, ErrorSummary, VALIDATION_KIND, VALIDATION_VERSION, Validation, ValidationSummary,
};
pub use sections::plan::{EngineCommand, PlanWords, PlannedRun};
