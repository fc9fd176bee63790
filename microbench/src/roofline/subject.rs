//! The interface of the kernels under the roofline, and their operands.

use crate::error::MeasureError;
use crate::method::rig::Rig;
use crate::roofline::work::KernelWork;
use kernels::Buffer;
use kernels::stream::StoreInstruction;

/// A kernel with its operands. It runs on all cores.
pub(crate) trait RooflineKernel: std::fmt::Debug {
    /// What is computed, on which operands: "AXPY from memory".
    fn name(&self) -> String;

    /// The parts of one call, one fork-join each.
    fn parts(&self) -> Vec<KernelWork>;

    /// Runs it and compares a sample of its result with its definition.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`]
    fn verify(&mut self, rig: &Rig<'_>) -> Result<(), MeasureError>;

    /// One call. Each takes the next piece of operands that come from memory.
    fn call(&mut self, rig: &Rig<'_>);
}

/// `count` values, copies of `block` one after the other, touched first by the members that will
/// use them.
pub(crate) fn filled(rig: &Rig<'_>, count: usize, block: &[u32]) -> Result<Buffer, MeasureError> {
    let mut buffer = Buffer::new(count.next_multiple_of(2) * size_of::<u32>())?;
    rig.subject.write(rig.all(), buffer.view_mut(), 1.0, StoreInstruction::Ordinary);
    let copy = |chunk: &mut [u32]| chunk.copy_from_slice(&block[..chunk.len()]);
    buffer.view_mut::<u32>().chunks_mut(block.len()).for_each(copy);
    Ok(buffer)
}

/// The bits of values, for [`filled`].
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Some positions of `len`, the last one included.
pub(crate) fn sampled(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by((len / 64) | 1).chain(len.checked_sub(1))
}
