//! Links that share one wire.

use hwprofiles::{Bytes, BytesPerSec, DType, DeviceId, Flop, Library, LinkId, Machine, Seconds};
use planner::{
    Action, CostBound, CostModel, Lane, MicroBatch, OperandSource, Program, Task, TaskCost, TaskIds,
};
use scenarios::{Formats, Model, Operator, Phase, WeightFormats};
use sim::Simulator;

/// Two transfers of a second each. Transfer `i` goes over `links[i]` on lane `lanes[i]`, at the
/// full rate of the GPU's wire.
fn duration(machine: &Machine, lanes: [Lane; 2], links: [LinkId; 2]) -> Seconds {
    let model = Model::preset("fulcrum-tiny").unwrap();
    let formats =
        Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 };
    let rate: BytesPerSec = machine.link(machine.wire(links[0])).bandwidth.value;
    let price = |link| TaskCost {
        alone: Seconds::new(1.0),
        issue: Seconds::ZERO,
        overhead: Seconds::ZERO,
        loads: [None; 3],
        carried: Some((link, Bytes::new(rate.get() as u64))),
        flop: Flop::ZERO,
        bound: CostBound::Link,
        basis: hwprofiles::Basis::Measured,
    };
    let action = Action::Compute { operator: Operator::AttnAdd, rows: 0..0, source: OperandSource::Resident };
    let task = |lane| Task {
        lane,
        layer: Some(0),
        kind: None,
        micro_batch: MicroBatch::WHOLE,
        action: action.clone(),
        after: TaskIds::new(),
    };
    let program = Program { phase: Phase::Decode, tasks: lanes.map(task).into() };
    let cost_model = CostModel { machine, model: &model, formats: &formats };
    Simulator::new(cost_model).step_priced(&program, &links.map(price)).duration.to_seconds()
}

#[test]
fn two_equal_transfers_from_different_memories_over_one_wire_take_twice_as_long() {
    let shared = Library::default().machine("spr-h100-cxl").unwrap();
    let mut apart = shared.clone();
    apart.links.iter_mut().for_each(|link| link.wire = None);
    let [dram, cxl, hbm] = ["dram", "cxl", "hbm"].map(|name| shared.memory_named(name).unwrap());
    let [near, far] = [dram, cxl].map(|memory| shared.link_between(memory, hbm).unwrap());
    let gpu = Lane::Device(shared.devices.iter().position(|d| d.memory == hbm).map(DeviceId).unwrap());
    // Two fetches queue. An activation that hops meanwhile shares the wire.
    for lanes in [[Lane::Link(near), Lane::Link(far)], [gpu, Lane::Link(far)]] {
        let took = duration(&shared, lanes, [near, far]).get();
        assert!((took - 2.0).abs() < 1e-6, "{lanes:?}: {took}");
    }
    // With a wire for each, nothing waits.
    let took = duration(&apart, [Lane::Link(near), Lane::Link(far)], [near, far]).get();
    assert!((took - 1.0).abs() < 1e-6, "{took}");
    // The way back has a wire of its own.
    let back = shared.link_between(hbm, cxl).unwrap();
    assert_ne!(shared.wire(back), shared.wire(far));
}
