//! Errors of the library as Python exceptions.

use fulcrum::WrongPlace;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(fulcrum, FulcrumError, PyException, "Any error of Fulcrum.");
create_exception!(
    fulcrum,
    InputError,
    FulcrumError,
    "What was asked is wrong. `place`, `key`, `value` and `wanted` say where and how, as far as known."
);
create_exception!(fulcrum, InfeasibleError, FulcrumError, "Nothing fits, or nothing keeps the limits.");
create_exception!(fulcrum, RunError, FulcrumError, "A file, a device or a run failed.");

/// The exception for an error of the library.
pub fn exception(py: Python<'_>, error: fulcrum::Error) -> PyErr {
    let text = error.to_string();
    match &error {
        fulcrum::Error::Infeasible(_) => InfeasibleError::new_err(text),
        fulcrum::Error::Failed(_) => RunError::new_err(text),
        fulcrum::Error::Input(_) => {
            let raised = InputError::new_err(text);
            let WrongPlace { place, key, value, wanted } = WrongPlace::from(&error);
            for (name, text) in [("place", place), ("key", key), ("value", value), ("wanted", wanted)] {
                // A new exception takes any attribute.
                let _ = raised.value(py).setattr(name, text);
            }
            raised
        }
    }
}

/// An argument that is no JSON, which the package's own code would have to have written.
pub fn not_json(error: serde_json::Error) -> PyErr {
    PyValueError::new_err(format!("no JSON: {error}"))
}
