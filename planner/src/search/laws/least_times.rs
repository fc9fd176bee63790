//! The bounds that need no patterns are below those of all patterns.

use super::{goal, specs, workload};
use crate::cost::{CostModel, DeviceAlone, PriceList, Roofline, least_overlapped};
use crate::fixture::{formats, model};
use crate::placement::{Home, IdenticalGpus, Placement};
use crate::program::{BatchSteps, PhaseTimes, Program};
use crate::search::goal::{DeviceWork, Goal};
use crate::search::search_space::SearchSpace;
use hwprofiles::{Bytes, DeviceId, Seconds};
use proptest::prelude::*;
use scenarios::{Experts, Model, Phase};

/// The accuracy of the dual prices that bound all patterns.
const ACCURACY: f64 = 2e-4;

/// The least value over all patterns if everything fits everywhere.
fn floor(cost_model: CostModel<'_>, batch_steps: &BatchSteps, goal: &Goal) -> f64 {
    let space = SearchSpace::new(cost_model, batch_steps, goal).unwrap();
    let room = vec![Bytes::new(u64::MAX); cost_model.machine.memories.len()];
    space.priced_problem(goal, &room).unwrap().unwrap().floor
}

fn value(goal: &Goal, [prefill, decode]: [f64; 2]) -> f64 {
    let [ttft, tpot] = [prefill, decode].map(Seconds::new);
    goal.value(&PhaseTimes { ttft, tpot: Some(tpot) }, &DeviceWork::default())
}

fn models() -> impl Strategy<Value = Model> {
    let experts = |(layers, hidden)| {
        Model { experts: Some(Experts::new(8, 2, 128)), ..model(layers, hidden) }.with_dense_layers(1)
    };
    let dense = |(layers, hidden)| model(layers, hidden);
    let sizes = || (1u64..6, prop::sample::select(vec![64u64, 256, 1024]));
    prop_oneof![sizes().prop_map(dense), sizes().prop_map(experts)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(crate::cases::cases(64)) })]
    #[test]
    fn no_pattern_gains_more_than_a_device_alone_may_lose(
        spec in specs(), model in models(), batch in 1u64..6, chunk in 1u64..100, device in 0usize..2,
    ) {
        let (machine, formats, device) = (spec.machine(&model), formats(), DeviceId(device));
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let (batch_steps, goal) = (BatchSteps::new(&workload(batch), chunk), goal(&machine, batch));
        let alone = DeviceAlone::new(cost_model, device).expect("its sublayers follow each other");
        let placement = Placement::uniform(&model, device, machine.device(device).memory);
        let [prefill, decode] = [Phase::Prefill, Phase::Decode].map(|phase| {
            let program = Program::lower(&machine, &model, &placement, phase).unwrap();
            let chain = |step| Roofline::new(&cost_model, &program, step).unwrap().critical_path.get();
            let steps = batch_steps.kinds(phase).concat();
            steps.iter().map(chain).sum::<f64>() - alone.most_gain(&batch_steps, phase).unwrap()
        });
        for goal in [goal.for_phase(0), goal.for_phase(1), goal] {
            let (least, floor) = (value(&goal, [prefill, decode]), floor(cost_model, &batch_steps, &goal));
            prop_assert!(least <= floor * (1.0 + ACCURACY), "{least} {floor}");
        }
    }

    #[test]
    fn no_pattern_of_micro_batches_is_below_their_bound(
        spec in specs(), model in models(), batch in 2u64..6, chunk in 1u64..100, device in 0usize..2,
    ) {
        let (machine, formats) = (spec.machine(&model), formats());
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let batch_steps = BatchSteps::new(&workload(batch), chunk).with_micro_batches(2);
        let goal = goal(&machine, batch);
        let homes = Home::all(&machine, &model, &IdenticalGpus::none());
        let times = [Phase::Prefill, Phase::Decode].map(|phase| {
            let list = PriceList::new(cost_model, &batch_steps, phase, &homes).unwrap();
            least_overlapped(&list, homes.len(), DeviceId(device))
        });
        for goal in [goal.for_phase(0), goal.for_phase(1), goal] {
            let (least, floor) = (value(&goal, times), floor(cost_model, &batch_steps, &goal));
            prop_assert!(least <= floor * (1.0 + ACCURACY), "{least} {floor}");
        }
    }
}
