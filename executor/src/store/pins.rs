//! The host's buffers that a GPU accesses.

use crate::gpu::runtime::GpuRuntime;
use crate::setup::run_setup::RunSetup;
use crate::store::buffers::{ACTIVATIONS, Store};
use crate::store::locks::POISONED;
use crate::store::slices::sublayer_index;
use kernels::{Buffer, Weights};
use planner::{Action, Lane, OperandSource, PhasePrograms};
use scenarios::Sublayer;
use std::sync::RwLock;

impl Store {
    /// Pins the host's buffers that lanes of the GPU read and write.
    pub(super) fn pin(
        &mut self,
        setup: &RunSetup,
        programs: &PhasePrograms,
        gpu: &GpuRuntime,
    ) -> Result<(), kernels::KernelError> {
        let parts = self.parts;
        for task in programs.prefill.tasks.iter().chain(&programs.decode.tasks) {
            let enqueued = gpu.works_for(setup, task.lane);
            let layer = task.layer.map_or(0, |layer| layer as usize);
            let pin = |buffers: &mut [RwLock<Buffer>]| {
                buffers.iter_mut().try_for_each(|lock| lock.get_mut().expect(POISONED).pin(gpu.accelerator()))
            };
            match &task.action {
                Action::FetchWeights { sublayer, device, .. } if enqueued => {
                    pin(&mut self.weight_slots[device.0])?;
                    self.pin_matrix(task.layer, *sublayer, gpu)?;
                }
                Action::FetchKv { device, .. } | Action::StoreKv { device, .. } if enqueued => {
                    pin(&mut self.kv_slots[device.0])?;
                    pin(&mut self.kv[layer * parts..][..parts])?;
                }
                Action::Compute { operator, source: OperandSource::InPlace(_), .. } if enqueued => {
                    self.pin_matrix(task.layer, operator.sublayer(), gpu)?;
                    if operator.sublayer() == Sublayer::Attention {
                        pin(&mut self.kv[layer * parts..][..parts])?;
                    }
                }
                Action::Hop { buffer, from, .. } => {
                    let Lane::Device(to) = task.lane else { continue };
                    if ![*from, to].contains(&gpu.device()) {
                        continue;
                    }
                    for device in [*from, to] {
                        let first = (device.0 * ACTIVATIONS + *buffer as usize) * parts;
                        let ours = self.activations[first..][..parts].iter_mut().flatten();
                        ours.map(|lock| lock.get_mut().expect(POISONED))
                            .try_for_each(|it| it.pin(gpu.accelerator()))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn pin_matrix(
        &mut self,
        layer: Option<u32>,
        sublayer: Sublayer,
        gpu: &GpuRuntime,
    ) -> Result<(), kernels::KernelError> {
        let sublayer = self.kept_as(sublayer);
        let weights =
            self.matrices[sublayer_index(layer, sublayer)].iter_mut().flat_map(|part| &mut part.weights);
        weights.map(Weights::buffer_mut).try_for_each(|buffer| buffer.pin(gpu.accelerator()))
    }
}
