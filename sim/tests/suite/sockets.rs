//! Laws of machines whose sockets are devices.

use hwprofiles::{DType, Library, Machine, yaml};
use planner::{CostModel, Placement, Plan, Problem, plan};
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, WeightFormats, Workload};

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 };

/// A machine of `count` sockets with 256 GB each.
fn machine(sockets: &str, count: u64, more: &str) -> Machine {
    let capacity = 256 * count;
    let text = format!(
        "parts: {{cpu: xeon-8460h, sockets: {sockets}, dram: {{capacity: {{value: {capacity} GB, source: {{estimated: {{reason: test}}}}}}}}{more}}}"
    );
    Library::default().compose(&yaml::read(&text, "inline").unwrap()).unwrap()
}

fn planned(machine: &Machine, model: &Model, workload: Workload) -> (Plan, f64) {
    let cost_model = CostModel { machine, model, formats: &BF16 };
    let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
    let question =
        Problem { cost_model, draft: None, requirements: Requirements { workload, objective, slo, costs } };
    let score = |placement: &Placement, chunk| sim::estimate(cost_model, placement, &workload, chunk);
    let plan = plan(&question, &score).unwrap();
    let times = plan.predicted.simulated;
    let seconds = times.ttft.get() + (workload.output_tokens - 1) as f64 * times.tpot.unwrap().get();
    (plan, seconds)
}

fn model() -> Model {
    Model { layers: 6, ..Model::preset("llama-3.1-8b").unwrap() }
}

#[test]
fn two_sockets_are_no_faster_than_one_device_with_the_rates_of_both_and_no_slower_than_one() {
    for [batch, prompt_tokens] in [[1, 64], [8, 256], [32, 512]] {
        let workload = Workload::new(batch, prompt_tokens, 32);
        let time_of = |sockets: &str, count| planned(&machine(sockets, count, ""), &model(), workload).1;
        let (one, ideal) = (time_of("1", 1), time_of("2", 2));
        let two = time_of("{count: 2, link: upi2}", 2);
        println!("{batch} × {prompt_tokens}: one {one:.3} s, two {two:.3} s, ideal {ideal:.3} s");
        // Simulation may rank a plan first that is within this share of the best.
        assert!(ideal * 0.999 <= two && two <= one * 1.01, "{one} {two} {ideal}");
    }
}

#[test]
fn both_sockets_compute_where_memory_binds() {
    let workload = Workload::new(1, 64, 64);
    let machine = machine("{count: 2, link: upi2}", 2, "");
    let (plan, two) = planned(&machine, &model(), workload);
    let one = planned(&self::machine("1", 1, ""), &model(), workload).1;
    assert!(two < 0.8 * one, "{two} {one}");
    let placement = plan.placement(&machine, &model()).unwrap();
    let slices = placement.layers.iter().flat_map(|layer| layer.iter().flat_map(|(_, slices)| slices));
    let devices: std::collections::BTreeSet<_> = slices.map(|slice| slice.decode).collect();
    assert_eq!(devices.len(), 2);
}

#[test]
fn a_gpu_hangs_on_the_first_socket_and_the_second_reaches_it_over_its_wire() {
    let machine = machine("{count: 2, link: upi2}", 2, ", gpu: l4, link: pcie4-x16");
    let workload = Workload::new(4, 128, 16);
    let (plan, _) = planned(&machine, &model(), workload);
    assert!(plan.placement(&machine, &model()).is_ok());
    assert_eq!(machine.check(), []);
}
