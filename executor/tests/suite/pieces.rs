//! Steps in pieces: chunks of tokens, and micro-batches of sequences.

use crate::laws::{EXTENT, generate};
use crate::rig;
use planner::RunExtent;

#[test]
fn chunks_of_any_size_give_the_same_logits() {
    let checkpoint = rig::checkpoint("qwen3");
    let logits = |chunk| {
        let placement = rig::streamed(checkpoint.model());
        let mut session = rig::session(&checkpoint, placement, rig::F32, RunExtent { chunk, ..EXTENT });
        generate(&mut session, 2, 31, 1);
        session.logits().expect("they are read").concat()
    };
    let whole = logits(31);
    for chunk in [1, 8, 30] {
        let worst = logits(chunk).iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // The bits differ, since attention sums in another order.
        assert!(worst < 1e-4, "chunks of {chunk}: {worst}");
    }
}

#[test]
fn any_number_of_micro_batches_gives_the_same_tokens_and_logits() {
    let checkpoint = rig::checkpoint("llama3_rope");
    let extent = RunExtent { batch: 5, ..EXTENT };
    for placement in [rig::streamed, rig::mixed, rig::split] {
        // With fewer sequences than were allocated for, the last micro-batches may be empty.
        for batch in [5, 2] {
            let run = |micro_batches| {
                let placement = rig::divided(placement(checkpoint.model()), micro_batches);
                let mut session = rig::session(&checkpoint, placement, rig::F32, extent);
                let tokens = generate(&mut session, batch, 17, 6).0;
                (tokens, session.logits().expect("they are read").concat())
            };
            let (tokens, whole) = run(1);
            for micro_batches in 2..=5 {
                let (ours, logits) = run(micro_batches);
                assert_eq!(ours, tokens, "{micro_batches}");
                assert_eq!(logits.len(), whole.len());
                let worst = logits.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-4, "{batch} sequences in {micro_batches}: {worst}");
            }
        }
    }
}
