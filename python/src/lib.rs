//! Fulcrum for Python: what the library answers, as JSON texts.
//!
//! The package `fulcrum` beside this crate makes typed results of them. Every function that
//! computes releases the interpreter's lock.

mod documents;
mod errors;
mod plans;
mod questions;
mod threads;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _fulcrum {
    #[pymodule_export]
    use crate::errors::{FulcrumError, InfeasibleError, InputError, RunError};
    #[pymodule_export]
    use crate::plans::{PlanHandle, plan, read_plan};
    #[pymodule_export]
    use crate::questions::{
        capacity, machine, machines, merge_shards, model, models, plots, predict, simulate, sweep, validate,
    };

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
