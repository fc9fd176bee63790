//! The shape of everything that is measured.

use crate::error::MeasureError;
use crate::method::record::MeasurementRecord;
use crate::method::rig::Rig;
use hwprofiles::Host;

/// One kind of measurement: points that are visited again and again, in passes over all experiments, so that the
/// machine's drift (neighbours, heat) hits all points alike.
pub(crate) trait Experiment {
    /// What it measures, for progress: "matrix products in bf16".
    fn name(&self) -> String;

    /// How many points it has.
    fn points(&self) -> usize;

    /// Samples one point. The first visit verifies what the kernel computes there.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] where it is wrong.
    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError>;

    /// Writes what is known into the host. Called when every point was visited at least once, in the order of the
    /// experiments.
    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>);
}

/// The error of a kernel that computed `got` instead of `wanted`; fine where they differ by at most `tolerance`.
pub(crate) fn expect(
    what: impl Fn() -> String,
    got: f64,
    wanted: f64,
    tolerance: f64,
) -> Result<(), MeasureError> {
    // A comparison with NaN is false: a NaN is wrong.
    if (got - wanted).abs() <= tolerance {
        Ok(())
    } else {
        Err(MeasureError::Wrong { what: what(), got, wanted })
    }
}
