//! The batch from which the GPU, and no longer the host that issues its kernels, limits the speed:
//! SKIP's transition, on PCIe machines and on a GH200. `cargo test -p fulcrum-sim --test suite
//! launch_bound -- --nocapture` prints the rows of BENCHMARKS.md.

use hwprofiles::{DType, Library, Machine, Seconds, Sourced};
use planner::{CostModel, Placement, Program};
use scenarios::{Formats, Model, Phase, Step, WeightFormats};
use sim::Simulator;

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// A shipped machine whose host takes `issue` microseconds to issue a kernel.
fn machine(name: &str, issue: f64) -> Machine {
    let mut machine = Library::default().machine(name).unwrap();
    let gpu = machine.device_named("gpu").unwrap();
    let issue = Seconds::from_nanos(1000) * issue;
    machine.devices[gpu.0].issue = Some(Sourced::estimated(issue, "of this test"));
    machine
}

/// The time of one prefill step of 512 tokens a sequence, of its launches and of its kernels.
fn prefill(machine: &Machine, model: &Model, batch: u64) -> [f64; 3] {
    let gpu = machine.device_named("gpu").unwrap();
    let placement = Placement::uniform(model, gpu, machine.device(gpu).memory);
    let program = Program::lower(machine, model, &placement, Phase::Prefill).unwrap();
    let mut simulator = Simulator::new(CostModel { machine, model, formats: &BF16 });
    let outcome = simulator.step(&program, &Step::prefill(batch, 512)).unwrap();
    let (launches, kernels) = outcome.prices().fold((0.0, 0.0), |(launches, kernels), price| {
        (launches + price.issue.get(), kernels + price.alone.get())
    });
    [outcome.duration.to_seconds().get(), launches, kernels]
}

/// The first batch among the powers of two whose kernels take longer than their launches.
fn transition(machine: &Machine, model: &Model) -> u64 {
    let batches = (0..10).map(|power| 1 << power);
    let bound = |batch: &u64| {
        let [step, launches, kernels] = prefill(machine, model, *batch);
        // The step takes the longer of both, plus the parts at both ends that do not overlap.
        assert!(step >= launches.max(kernels) && step <= 1.05 * launches.max(kernels));
        kernels > launches
    };
    batches.clone().find(bound).unwrap_or(1 << 10)
}

/// The time that PyTorch takes to issue an operator on a host with a Xeon or EPYC. It lies within
/// the 12 to 45 µs of eager frameworks and puts the transition of an encoder on an A100 at batch 8,
/// as published.
const EAGER: f64 = 27.0;
/// The factor by which Grace is slower, for the published transition at batch 32.
const GRACE: f64 = 2.0;

/// According to SKIP (arXiv 2504.11750), encoders turn from CPU-bound to GPU-bound at batch 8 on an
/// A100 SXM and an H100 PCIe, and at batch 32 on a GH200. The sequence length is not given.
/// OPT-125M has the shape of BERT-base.
#[test]
fn a_gh200_is_bound_by_its_host_up_to_four_times_the_batch_of_a_pcie_machine() {
    let encoder = Model::preset("opt-125m").unwrap();
    let at = |name: &str, issue: f64| {
        let machine = machine(name, issue);
        let transition = transition(&machine, &encoder);
        let rows = [1, 8, 32, 128].map(|batch| prefill(&machine, &encoder, batch)[0] * 1e3);
        println!("{name}, {issue} us: batch {transition}; steps of 1, 8, 32, 128: {rows:.2?} ms");
        transition
    };
    // The H100's launch is the smallest product's time, so its kernels are shorter than published.
    assert_eq!([at("a100-sxm", EAGER), at("h100-pcie", EAGER)], [8, 16]);
    // Its faster GPU alone would give 32, the rest is its CPU. Published are 32: here its GPU takes
    // 0.91 of the launches' time at that batch.
    assert_eq!([at("gh200", EAGER), at("gh200", EAGER * GRACE)], [32, 64]);
    // Engines replay graphs instead, and then launches limit nothing.
    let library = Library::default().machine("gh200").unwrap();
    let [step, launches, kernels] = prefill(&library, &encoder, 1);
    assert!(launches == 0.0 && (step / kernels - 1.0).abs() < 1e-3, "{step} {kernels}");
}

/// Published for Llama-3.2-1B: prefill is 1.9 to 2.7 times faster than on the A100 and the H100 at
/// large batches, and slower at small ones.
#[test]
fn a_gh200_is_slower_than_an_h100_at_batch_1_and_faster_at_large_ones() {
    let llama = Model::preset("llama-3.2-1b").unwrap();
    let encoder = Model::preset("opt-125m").unwrap();
    let step = |name: &str, issue: f64, model: &Model, batch| prefill(&machine(name, issue), model, batch)[0];
    for pcie in ["a100-sxm", "h100-pcie"] {
        let large = step(pcie, EAGER, &llama, 64) / step("gh200", EAGER * GRACE, &llama, 64);
        let small = step(pcie, EAGER, &encoder, 1) / step("gh200", EAGER * GRACE, &encoder, 1);
        println!(
            "a GH200 against {pcie}: {large:.2} x at batch 64 (Llama-3.2-1B), {small:.2} x at 1 (encoder)"
        );
        assert!(large > 1.3 && small < 1.0, "{large} {small}");
    }
}
