//! The tasks of one sublayer outside of a program, for the price list.

use crate::cost::cost_model::CostModel;
use crate::placement::Slice;
use crate::program::{Action, Lane, MicroBatch, OperandSource, Task, TaskIds};
use hwprofiles::{DeviceId, MemoryId};
use scenarios::{Operator, Phase, Sublayer};
use std::ops::Range;

/// The computation of `rows` by `operator` in some layer.
pub(crate) fn compute(operator: Operator, rows: Range<u64>, device: DeviceId, source: OperandSource) -> Task {
    let action = Action::Compute { operator, rows, source };
    Task {
        lane: Lane::Device(device),
        layer: Some(0),
        kind: None,
        micro_batch: MicroBatch::WHOLE,
        action,
        after: TaskIds::new(),
    }
}

/// The transfers of a sublayer.
pub(crate) fn fetches(
    cost_model: CostModel<'_>,
    sublayer: Sublayer,
    slices: &[Slice],
    phase: Phase,
) -> Vec<Task> {
    let machine = cost_model.machine;
    let mut tasks = Vec::new();
    for slice in slices {
        let device = slice.device(phase);
        let own = machine.device(device).memory;
        let mut push = |from: MemoryId, to: MemoryId, action: Action| {
            if let Some(link) = machine.link_between(from, to) {
                let micro_batch = MicroBatch::WHOLE;
                tasks.push(Task {
                    lane: Lane::Link(link),
                    layer: Some(0),
                    kind: None,
                    micro_batch,
                    action,
                    after: TaskIds::new(),
                });
            }
        };
        if machine.reads_in_place(device, slice.home) {
            continue;
        }
        if sublayer == Sublayer::Attention {
            push(slice.home, own, Action::FetchKv { device, slot: 0 });
            push(own, slice.home, Action::StoreKv { device, slot: 0 });
        } else {
            let rows = slice.rows.clone();
            push(slice.home, own, Action::FetchWeights { sublayer, rows, device, slot: 0 });
        }
    }
    tasks
}
