//! Beam search: what a step of several beams costs beside steps of single sequences.

use hwprofiles::{BytesPerSec, DType, DeviceId, Library, Machine, Sourced};
use planner::{CostModel, PhasePrograms, Placement};
use scenarios::{Formats, Model, WeightFormats};
use sim::SimTime;
use sim::serving::{Batch, PlanPrices, PrefillChunk, StepPrices};

const FP8: Formats =
    Formats { weights: WeightFormats::all(DType::Fp8), kv: DType::Fp8, activations: DType::Bf16 };

fn machine() -> Machine {
    Library::default().machine("h100-sxm").unwrap()
}

fn gpu(machine: &Machine) -> DeviceId {
    machine.device_ids().find(|id| machine.device(*id).cores.is_empty()).unwrap()
}

/// The time of a step of GPT-J with `beams` beams in which `decodes` sequences of 900 tokens decode
/// and `entering` tokens of a prompt enter.
fn step(machine: &Machine, beams: u64, decodes: u64, entering: u64) -> SimTime {
    let model = Model { beams, ..Model::preset("gpt-j-6b").unwrap() };
    let gpu = gpu(machine);
    let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
    let cost_model = CostModel { machine, model: &model, formats: &FP8 };
    let programs = PhasePrograms::lower(machine, &model, &placement).unwrap();
    let mut prices = PlanPrices::new(cost_model, &programs);
    if entering == 0 {
        return prices.decode(decodes, 900 * decodes).unwrap().at(900 * decodes);
    }
    let chunks = [PrefillChunk { new: entering, past: 0 }];
    let sampled = decodes + 1;
    prices.step(&Batch { chunks: &chunks, decodes, decode_tokens: 900 * decodes, sampled }).unwrap()
}

#[test]
fn beams_cost_more_than_one_sequence_and_less_than_sequences_of_their_own() {
    let machine = machine();
    for decodes in [1, 48, 192] {
        let [single, beams, own] = [(1, decodes), (4, decodes), (1, 4 * decodes)]
            .map(|(beams, count)| step(&machine, beams, count, 0));
        assert!(single < beams && beams < own, "{decodes}: {single:?} {beams:?} {own:?}");
    }
}

#[test]
fn a_prompt_enters_once_whatever_the_beams() {
    let machine = machine();
    let [single, beams] = [1, 4].map(|beams| step(&machine, beams, 0, 900));
    assert_eq!(single, beams);
    let [single, beams] = [1, 4].map(|beams| step(&machine, beams, 192, 900));
    assert!(beams > single);
}

#[test]
fn each_beam_reads_the_cache_from_the_l2_which_takes_no_longer_than_sequences_of_their_own() {
    let with_l2 = |rate: Option<BytesPerSec>| {
        let mut machine = machine();
        for device in &mut machine.devices {
            device.details.l2_bandwidth = rate.map(|rate| Sourced::estimated(rate, "a test"));
        }
        machine
    };
    let machine = machine();
    let memory = machine.memory(machine.device(gpu(&machine)).memory).bandwidth.value;
    let rates = [None, Some(memory * 2.0), Some(memory)];
    let [once, fast, slow] = rates.map(|rate| step(&with_l2(rate), 4, 192, 0));
    let own = step(&machine, 1, 4 * 192, 0);
    assert!(once < fast && fast < slow, "{once:?} {fast:?} {slow:?}");
    // The prices of sequences are straight lines between contexts, within a thousandth here.
    assert!(slow <= own + SimTime::from_nanos(own.nanos() / 1000), "{slow:?} {own:?}");
    // One sequence has no beams.
    assert_eq!(step(&with_l2(rates[2]), 1, 192, 0), step(&machine, 1, 192, 0));
}
