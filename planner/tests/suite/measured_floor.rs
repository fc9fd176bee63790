//! A measured time is the time of a product, also where an assumed bandwidth says that it is too
//! short.

use hwprofiles::{Basis, Bytes, DType, Library, Seconds};
use planner::{Action, CostModel, PhasePrograms, Placement};
use scenarios::{Formats, Model, Shape, Step, WeightFormats, Work};

#[test]
fn a_measured_product_is_not_slowed_to_an_assumed_bandwidth() {
    let machine = Library::default().machine("rtx4090-desktop").expect("shipped");
    let model = Model::preset("llama-3.1-8b").expect("shipped");
    let formats =
        Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
    let gpu = machine.device_named("gpu").expect("a GPU");
    let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
    let programs = PhasePrograms::lower(&machine, &model, &placement).expect("it lowers");
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    let step = Step::decode(1, 512);
    let device = machine.device(gpu);
    let bandwidth = machine.memory(device.memory).bandwidth.value;
    let (mut measured, mut faster) = (0, 0);
    for task in &programs.decode.tasks {
        let Action::Compute { operator, rows, .. } = &task.action else { continue };
        let work = Work::count(*operator, &model, &formats, &step, rows);
        let Shape::Gemm { m, n, k } = work.shape else { continue };
        let rate = device.gemm_time(DType::Bf16, m, n, k).expect("a rate");
        if !matches!(rate.basis, Basis::Measured | Basis::Interpolated) {
            continue;
        }
        let cost = cost_model.task_cost(task, &step).expect("a cost");
        let expected = device.launch.value * f64::from(work.launches) + rate.time;
        assert!((cost.alone.get() - expected.get()).abs() < 1e-12, "{operator:?}: {} {expected}", cost.alone);
        let drawn: Bytes = cost.loads.into_iter().flatten().map(|load| load.bytes).sum();
        assert!(drawn / bandwidth <= rate.time + Seconds::new(1e-9), "{operator:?} draws more than it can");
        measured += 1;
        faster += usize::from((work.weights + work.activations) / bandwidth > rate.time);
    }
    assert!(measured > 0 && faster > 0, "{measured} measured products, {faster} beyond the bandwidth");
}
