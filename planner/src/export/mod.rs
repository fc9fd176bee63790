//! A plan as another engine's files and options.

mod accelerate;
mod deepspeed;
mod difference;
mod drafted;
mod engine;
mod engine_options;
mod export_error;
mod exporter;
mod flexgen;
mod ggml;
mod servers;
mod shell;
mod site;

pub use engine::{ExportTarget, UnknownExportTarget};
pub use engine_options::Export;
pub use export_error::ExportError;
pub use exporter::export;
