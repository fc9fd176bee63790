//! Results: joined traces, validations, rates, operator errors and tables, as values and as files.

pub(crate) mod comparison;
pub(crate) mod configuration;
pub(crate) mod data_table;
pub(crate) mod error;
pub(crate) mod machine_facts;
pub(crate) mod model_text;
pub(crate) mod operation_errors;
pub(crate) mod placement_map;
pub(crate) mod prediction_columns;
pub(crate) mod result_file;
pub(crate) mod rule_comparison;
pub(crate) mod step_rates;
pub(crate) mod training_rates;
pub(crate) mod validation;
pub(crate) mod validation_text;
