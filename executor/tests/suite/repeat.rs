//! Which runs repeat to the bit, and how far placements differ.

use crate::laws::{EXTENT, generate};
use crate::rig;
use executor::{Sampling, Session};
use hwprofiles::DType;
use planner::Placement;
use scenarios::Model;

/// Tokens and logits of a random run in its own session.
fn run(name: &str, placement: impl Fn(&Model) -> Placement, cores: usize) -> (Vec<Vec<u32>>, Vec<Vec<f32>>) {
    let checkpoint = rig::checkpoint(name);
    let formats = rig::formats(DType::Bf16, DType::Bf16);
    let mut setup = rig::setup(checkpoint.model(), placement(checkpoint.model()), formats, EXTENT);
    setup.machine.devices[0].cores = (0..cores).collect();
    let mut session = Session::new(setup, &checkpoint).expect("it fits");
    let sampling = Sampling::Random { temperature: 0.9, top_k: Some(60), top_p: Some(0.95), seed: 11 };
    let prompts = [vec![5, 9, 200, 31, 7], vec![77, 3, 3, 150, 12]];
    let generation = session.generate(&prompts, 20, sampling, |_| {}).expect("valid");
    (generation.tokens, session.logits().expect("they are read"))
}

#[test]
fn two_runs_of_one_seed_thread_count_and_plan_agree_in_every_bit() {
    for name in rig::GOLDEN {
        for placement in [rig::split, rig::streamed, rig::by_phase] {
            for cores in [1, 2, 3] {
                assert!(
                    run(name, placement, cores) == run(name, placement, cores),
                    "{name}, {cores} threads"
                );
            }
        }
    }
}

/// The largest difference of a logit between everything on the CPU and any other placement, over
/// golden models and formats, after prefill in chunks and decode. BENCHMARKS.md states it: there is
/// none, except where experts are divided, whose outputs are then added up in another order.
#[test]
fn placements_change_no_logit_but_by_the_order_in_which_divided_experts_are_added() {
    for name in rig::GOLDEN {
        for formats in
            [rig::F32, rig::formats(DType::Bf16, DType::Bf16), rig::formats(DType::Int8, DType::Int8)]
        {
            let checkpoint = rig::checkpoint(name);
            let model = checkpoint.model();
            let logits = |placement| {
                let mut session = rig::session(&checkpoint, placement, formats, EXTENT);
                generate(&mut session, 2, 17, 6);
                session.logits().expect("they are read").concat()
            };
            let cpu = logits(rig::on(model, rig::CPU));
            for (kind, placement) in rig::placements(model) {
                let worst = cpu.iter().zip(logits(placement)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                let divided = kind == "split" && rig::EXPERTS.contains(&name);
                // The logits are about 1. An f32 sum in another order differs in its last bits.
                // Where it is then rounded to a narrower format, it differs by a step of that
                // format.
                let most = if divided { 2e-3 } else { 0.0 };
                println!("{name}, {kind}, {formats}: {worst:e}");
                assert!(worst <= most, "{name}, {kind}, {formats}: {worst}");
            }
        }
    }
}
