//! The interface of all experiments.

use crate::error::MeasureError;
use crate::method::record::MeasurementRecord;
use crate::method::rig::Rig;
use hwprofiles::Host;

/// One kind of measurement. Its points are visited again and again, in passes over all experiments,
/// so that the machine's drift (neighbours, heat) affects all points alike.
pub(crate) trait Experiment {
    /// Its name, for progress: "matrix products in bf16".
    fn name(&self) -> String;

    /// How many points it has.
    fn points(&self) -> usize;

    /// Samples one point. The first visit verifies the kernel's result there.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] where the result is wrong.
    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError>;

    /// Points whose time cannot be right beside that of another point. They are visited again.
    fn doubtful(&self) -> Vec<usize> {
        vec![]
    }

    /// Writes the results into the host. It is called after every point has been visited at least
    /// once, in the order of the experiments.
    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>);
}

/// Fails where a kernel computed `got`, which differs from `wanted` by more than `tolerance`.
pub(crate) fn expect(
    kernel: impl Fn() -> String,
    got: f64,
    wanted: f64,
    tolerance: f64,
) -> Result<(), MeasureError> {
    // Comparisons with NaN are false, so a NaN counts as wrong.
    if (got - wanted).abs() <= tolerance {
        Ok(())
    } else {
        Err(MeasureError::Wrong { kernel: kernel(), got, wanted })
    }
}
