//! Single operators: their times in bulk, and a GPU's rates fitted to measured times.

mod gpu_fit;
mod prediction;
mod row_devices;

pub use gpu_fit::{FittedGpu, GpuFitOptions, fit_gpus};
pub use prediction::{PredictionOptions, predict_rows};
