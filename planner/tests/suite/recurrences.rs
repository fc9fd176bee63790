//! Prompts through recurrences whose tokens an engine computes one after the other.

use hwprofiles::{Bytes, BytesPerSec, DType, DeviceKind, Library, Sourced};
use planner::{Action, CostModel, PhasePrograms, Placement};
use scenarios::{Formats, Model, Shape, Step, WeightFormats, Work};

#[test]
fn a_delta_net_goes_through_a_cpus_caches_three_times_for_each_token_and_mamba_once() {
    let mut machine = Library::default().machine("rtx4090-desktop").expect("shipped");
    // So slow that nothing else counts.
    let rate = BytesPerSec::new(1e9);
    for device in &mut machine.devices {
        device.details.state_rate = Some(Sourced::estimated(rate, "a test"));
    }
    let formats =
        Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
    let step = Step::prefill(1, 256);
    for (model, passes) in [("qwen3.5-0.8b", 3), ("falcon-h1-0.5b", 1), ("nemotron-3-nano-4b", 1)] {
        let model = Model::preset(model).expect("shipped");
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        for (name, passes) in [("cpu", passes), ("gpu", 1)] {
            let id = machine.device_named(name).expect("a device");
            let device = machine.device(id);
            assert_eq!(device.kind == DeviceKind::Gpu, name == "gpu");
            let placement = Placement::uniform(&model, id, device.memory);
            let programs = PhasePrograms::lower(&machine, &model, &placement).expect("it lowers");
            let mut recurrences = 0;
            for task in &programs.prefill.tasks {
                let Action::Compute { operator, rows, .. } = &task.action else { continue };
                let shape = model.layer(task.layer.map_or(0, u64::from));
                let work = Work::count(*operator, shape, &formats, &step, rows);
                let Shape::Recurrence { .. } = work.shape else { continue };
                let state: Bytes = (work.kv_read + work.kv_written) * step.new_tokens;
                let expected = (state * passes / rate) + device.launch.value * f64::from(work.launches);
                let alone = cost_model.task_cost(task, &step).expect("a cost").alone;
                assert!(
                    (alone / expected - 1.0).abs() < 1e-9,
                    "{} on {name}: {alone} {expected}",
                    model.name
                );
                recurrences += 1;
            }
            assert!(recurrences > 0, "{}", model.name);
        }
    }
}
