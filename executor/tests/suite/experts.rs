//! Mixtures of experts, divided between devices.

use crate::cases::cases;
use crate::laws::{EXTENT, generate};
use crate::rig;
use planner::{PhasePrograms, RunExtent};
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(24))]

    /// Experts may be placed anywhere. The results differ only by the order of additions, and the
    /// bytes are those that the planner counts.
    #[test]
    fn any_division_of_experts_gives_the_logits_of_one_device(
        seed in any::<u64>(),
        name in prop::sample::select(rig::EXPERTS.to_vec()),
        (batch, prompt, output) in (1usize..=rig::BATCH, 1usize..24, 1u64..6),
    ) {
        let extent = RunExtent { batch: rig::BATCH as u64, ..EXTENT };
        let checkpoint = rig::checkpoint(name);
        let model = checkpoint.model();
        let placement = rig::random_division(model, seed);
        let mut alone = rig::session(&checkpoint, rig::on(model, rig::CPU), rig::F32, extent);
        let mut divided = rig::session(&checkpoint, placement, rig::F32, extent);
        let setup = divided.setup();
        let programs = PhasePrograms::lower(&setup.machine, model, &setup.placement).expect("it lowers");
        let usage = planner::usage(&setup.machine, model, &rig::F32, &setup.placement, &programs, &extent);
        let planned: Vec<_> = usage.iter().map(planner::MemoryUsage::total).collect();
        prop_assert_eq!(divided.memory_used(), planned);

        let expected = generate(&mut alone, batch, prompt, output).0;
        prop_assert_eq!(generate(&mut divided, batch, prompt, output).0, expected);
        for (ours, theirs) in divided.logits().expect("they are read").iter().zip(alone.logits().expect("they are read")) {
            let largest = theirs.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            let worst = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            prop_assert!(worst <= 1e-4 * largest, "{worst} of {largest}");
        }
    }
}
