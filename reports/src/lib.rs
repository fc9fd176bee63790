//! What it means: predicted against measured, as tables, plots and a page.
//!
//! Two traces of one plan are joined into a [`Comparison`]; the comparisons of several configurations are a
//! [`Validation`], which is a file (`results.json`), a table and a page. Results of other kinds (plans, traces, sweeps, …) are
//! [`ResultFile`]s; a [`Report`] is a page of any of them.
#![forbid(unsafe_code)]

mod axis;
mod block;
pub mod capacity;
mod compare;
mod configuration;
mod data_table;
mod error;
mod explorer;
mod machine_facts;
mod numbers;
mod operation_errors;
mod operation_rows;
mod page;
mod pair;
mod picture;
mod placement_map;
mod plots;
pub mod published;
mod race;
mod rates;
mod report;
mod result_file;
mod roofline;
mod sections;
pub mod statistics;
mod svg;
mod tables;
mod training;
mod validation;
mod wrap;

pub use compare::{Comparison, Interval, JoinError, LaneRow, OperatorRow, StepRow, TaskRow, Timeline};
pub use configuration::{Configuration, Label, MemoryUse, RunTimes};
pub use data_table::{DataColumn, DataTable, Values};
pub use error::ReportError;
pub use machine_facts::{Fact, machine_facts};
pub use operation_errors::{ErrorGroup, OperationErrors, OperationSummary, Worst};
pub use operation_rows::{PREDICTED_COLUMNS, append_prediction};
pub use pair::Pair;
pub use placement_map::{PlacedLayers, PlacedPart, PlacedSublayer, PlacementMap};
pub use plots::scatter::scatter;
pub use race::Race;
pub use rates::Rates;
pub use report::Report;
pub use result_file::{Kind, RESULTS, ResultFile};
pub use sections::plan::PlannedRun;
pub use training::TrainingRates;
pub use validation::{ERROR_BAND, ErrorSummary, Summary, VALIDATION_KIND, VALIDATION_VERSION, Validation};
