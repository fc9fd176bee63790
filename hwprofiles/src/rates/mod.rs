//! How long work takes: measured points, fitted surfaces, and the time of any shape between them.

mod all_reduce;
pub(crate) mod attention;
mod curve;
mod dequantisation;
mod estimate;
pub(crate) mod fit;
pub(crate) mod gemm;
mod load_curve;
mod operations;
mod points;
mod speedup;
mod transfer;

pub use all_reduce::{AllReduce, MeasuredAllReduce};
pub use attention::{
    AttentionFacts, AttentionFitError, AttentionKernels, AttentionPoint, AttentionRates, AttentionShape,
    AttentionSurface, MixedPoint, Phase,
};
pub(crate) use curve::check_times;
pub use curve::{Curve, CurvePoint, CurveReading};
pub use dequantisation::Dequantisation;
pub use estimate::{Basis, Bound, Estimate};
pub use fit::MissingFact;
pub use gemm::{GemmFacts, GemmFitError, GemmKernels, GemmPoint, GemmRates, GemmSurface};
pub use load_curve::{LoadCurve, LoadPoint};
pub use operations::{Operation, Operations};
pub use points::{DevicePoints, MeasuredPoints};
pub(crate) use speedup::Speedup;
pub use transfer::{Direction, HostMemory, TransferPoint};
