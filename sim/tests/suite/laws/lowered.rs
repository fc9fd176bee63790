//! Steps of lowered placements.

use crate::cases::cases;
use crate::machine::{machine, placed, tiny_model};
use hwprofiles::{DType, DeviceId, Machine, MemoryId};
use planner::{Action, CostModel, LayerPlacement, OperandSource, Placement, Program};
use proptest::prelude::*;
use scenarios::{Formats, Model, Phase, Step, Sublayer, WeightFormats};
use sim::{Simulator, TaskSpan, Tick};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
const DRAM: MemoryId = MemoryId(0);
const GPU: DeviceId = DeviceId(1);
const HBM: MemoryId = MemoryId(1);

/// The spans and the prices, in nanoseconds.
fn simulate(
    machine: &Machine,
    model: &Model,
    program: &Program,
    step: &Step,
) -> (Vec<TaskSpan>, Vec<u64>, u64) {
    let mut simulator = Simulator::new(CostModel { machine, model, formats: &FORMATS });
    let outcome = simulator.step(program, step).unwrap();
    let alone =
        outcome.prices().map(|price| sim::SimTime::rounding_up(price.alone, Tick::Nanosecond).nanos());
    (outcome.spans.to_vec(), alone.collect(), outcome.duration.nanos())
}

/// The GPU computes everything. The layers' matrices are streamed from DRAM so slowly that
/// streaming takes most of the time.
fn streamed(model: &Model) -> Placement {
    let mut placement = Placement::uniform(model, GPU, HBM);
    for LayerPlacement { kind, sublayers } in &mut placement.layers {
        for (sublayer, slices) in kind.sublayers().iter().zip(sublayers.iter_mut()) {
            if *sublayer != Sublayer::Attention {
                slices[0].home = DRAM;
            }
        }
    }
    placement
}

/// Each fetch of weights or of a micro-batch's KV into a staging slot, with the tasks that use its
/// data.
fn fetches(program: &Program) -> Vec<(DeviceId, Option<u64>, usize, Vec<usize>)> {
    let mut fetches: Vec<(DeviceId, Option<u64>, usize, Vec<usize>)> = Vec::new();
    for (index, task) in program.tasks.iter().enumerate() {
        let part = task.micro_batch.index;
        let (device, kv, slot) = match (&task.action, task.lane) {
            (Action::FetchWeights { device, .. }, _) => {
                fetches.push((*device, None, index, vec![]));
                continue;
            }
            (Action::FetchKv { device, .. }, _) => {
                fetches.push((*device, Some(part), index, vec![]));
                continue;
            }
            (Action::StoreKv { device, slot }, _) => (*device, Some(part), *slot),
            (
                Action::Compute { operator, source: OperandSource::Staged(slot), .. },
                planner::Lane::Device(device),
            ) => (device, (operator.sublayer() == Sublayer::Attention).then_some(part), *slot),
            _ => continue,
        };
        let fills = |action: &Action| match action {
            Action::FetchWeights { slot: s, .. } | Action::FetchKv { slot: s, .. } => *s == slot,
            _ => false,
        };
        let filled = fetches
            .iter_mut()
            .rfind(|(d, k, fetch, _)| (*d, *k) == (device, kv) && fills(&program.tasks[*fetch].action));
        filled.expect("a staged task has a fetch").3.push(index);
    }
    fetches
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn no_task_starts_before_its_dependencies_have_ended_or_ends_sooner_than_alone(
        (model, placement) in placed(3), batch in 1u64..9, past in 0u64..400,
    ) {
        let machine = machine();
        let steps = [Step::decode(batch, past), Step { past_tokens: past, ..Step::prefill(batch, 32) }];
        for step in steps {
            let program = Program::lower(&machine, &model, &placement, step.phase).unwrap();
            let (spans, alone, duration) = simulate(&machine, &model, &program, &step);
            for ((task, span), alone) in program.tasks.iter().zip(&spans).zip(alone) {
                prop_assert!(task.after.iter().all(|id| spans[id.0 as usize].end <= span.start));
                prop_assert!((span.end - span.start).nanos() >= alone);
                prop_assert!(span.end.nanos() <= duration);
            }
            for lane in program.lanes() {
                let on_lane = program.tasks.iter().zip(&spans).filter(|(task, _)| task.lane == lane);
                let on_lane: Vec<_> = on_lane.map(|(_, span)| *span).collect();
                prop_assert!(on_lane.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }
    }

    #[test]
    fn prefetch_is_bounded_by_the_staging_slots((model, placement) in placed(4), decode: bool) {
        let machine = machine();
        let phase = if decode { Phase::Decode } else { Phase::Prefill };
        let program = Program::lower(&machine, &model, &placement, phase).unwrap();
        let step = if decode { Step::decode(2, 300) } else { Step::prefill(2, 64) };
        let (spans, ..) = simulate(&machine, &model, &program, &step);
        let fetches = fetches(&program);
        for device in machine.device_ids() {
            for kv in std::iter::once(None).chain((0..placement.pipelining.micro_batches).map(Some)) {
                let ring: Vec<_> = fetches.iter().filter(|fetch| (fetch.0, fetch.1) == (device, kv)).collect();
                for (early, late) in ring.iter().zip(ring.iter().skip(placement.pipelining.slots)) {
                    prop_assert!(early.3.iter().all(|&user| spans[user].end <= spans[late.2].start));
                    prop_assert!(early.3.iter().all(|&user| spans[user].start >= spans[early.2].end));
                }
            }
        }
    }
}

#[test]
fn streamed_weights_come_while_others_are_computed_with() {
    let (machine, model) = (machine(), tiny_model(8));
    let program = Program::lower(&machine, &model, &streamed(&model), Phase::Decode).unwrap();
    let (spans, alone, duration) = simulate(&machine, &model, &program, &Step::decode(4, 200));
    let busy = |is_fetch: bool| -> u64 {
        let of_kind =
            |index: &usize| matches!(program.tasks[*index].action, Action::FetchWeights { .. }) == is_fetch;
        (0..alone.len()).filter(of_kind).map(|index| alone[index]).sum()
    };
    let (fetching, computing) = (busy(true), busy(false));
    assert!(fetching > 0 && computing > 0);
    assert!(duration >= fetching.max(computing));
    // Nearly all of the shorter one is hidden behind the longer one.
    let hidden = (fetching + computing) as f64 - duration as f64;
    assert!(hidden > 0.6 * fetching.min(computing) as f64, "{fetching} and {computing} take {duration}");
    // Some fetch lies fully inside a computation of another layer.
    let overlaps = |a: &TaskSpan, b: &TaskSpan| a.start < b.end && b.start < a.end;
    let tasks = || program.tasks.iter().zip(&spans);
    assert!(tasks().filter(|(task, _)| matches!(task.action, Action::FetchWeights { .. })).all(
        |(fetch, span)| {
            let first = span.start.nanos() == 0;
            first || tasks().any(|(other, during)| other.lane != fetch.lane && overlaps(span, during))
        }
    ));
}

#[test]
fn streaming_over_a_link_twice_as_slow_takes_longer_but_residents_do_not_notice() {
    let (machine, model) = (machine(), tiny_model(4));
    let mut slower = machine.clone();
    slower.links.iter_mut().for_each(|link| link.bandwidth.value = link.bandwidth.value / 20.0);
    let step = Step::decode(2, 100);
    let duration = |machine: &Machine, placement: &Placement| {
        let program = Program::lower(machine, &model, placement, step.phase).unwrap();
        simulate(machine, &model, &program, &step).2
    };
    let (streamed, resident) = (streamed(&model), Placement::uniform(&model, GPU, HBM));
    assert!(duration(&slower, &streamed) > duration(&machine, &streamed));
    assert_eq!(duration(&slower, &resident), duration(&machine, &resident));
}
