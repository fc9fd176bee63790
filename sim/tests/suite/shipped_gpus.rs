//! Laws over every GPU that is shipped.

use hwprofiles::{DType, DeviceKind, Library, Machine, Profile, shipped};
use planner::{CostModel, Placement};
use scenarios::{Formats, Model, WeightFormats, Workload};

/// Every GPU that has a memory of its own and a usual server.
fn machines() -> impl Iterator<Item = (&'static str, Machine)> {
    let gpus = shipped().filter(|(name, text)| {
        matches!(Profile::from_yaml(text, name), Ok(Profile::Gpu(gpu)) if gpu.server.is_some() && !gpu.unified)
    });
    gpus.map(|(name, _)| (name, Library::default().machine(name).unwrap()))
}

/// An engine pads with zeros where a library is slow with one row, as that of fp8 on a B200 is.
#[test]
fn a_token_of_one_sequence_takes_no_longer_than_one_of_two() {
    let model = Model::preset("llama-3.1-8b").unwrap();
    let mut compared = 0;
    for (name, machine) in machines() {
        let gpu = machine.device_ids().find(|&id| machine.device(id).kind == DeviceKind::Gpu).unwrap();
        let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
        for dtype in [DType::Bf16, DType::Fp8, DType::Int4] {
            let weights = WeightFormats::all(dtype);
            let formats = Formats { weights, kv: DType::Bf16, activations: DType::Bf16 };
            let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
            let token = |batch| {
                let workload = Workload::new(batch, 512, 16);
                Some(sim::estimate(cost_model, &placement, &workload, 512).ok()?.tpot?.get())
            };
            let (Some(one), Some(two)) = (token(1), token(2)) else { continue };
            compared += 1;
            assert!(one <= two * 1.01, "{name} {dtype}: {one} {two}");
        }
    }
    assert!(compared > 300, "{compared}");
}
