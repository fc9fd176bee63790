//! Tokens that go to experts drawn at random.

use crate::cases::cases;
use crate::machine::{machine, tiny_experts};
use hwprofiles::{DType, DeviceId, Flop, MemoryId};
use planner::{Action, CostModel, LayerPlacement, PhasePrograms, Placement, Program, Slice, steps};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use scenarios::{Experts, Formats, Operator, Phase, Sublayer, WeightFormats, Work, Workload};
use sim::{BatchRun, ExpertLoads, RandomDraws};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

fn skews() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..3.0_f64]
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn each_token_goes_to_its_number_of_different_experts(
        count in 1..200_u64, picks in 0.0..=1.0_f64, skew in skews(), tokens in 0..60_u64, seed in any::<u64>(),
    ) {
        let per_token = 1 + (picks * (count - 1) as f64) as u64;
        let experts = Experts::new(count, per_token, 64).with_skew(skew);
        let drawn = ExpertLoads::draw(&experts, tokens, &mut Pcg64::seed_from_u64(seed));
        prop_assert_eq!(drawn.loads().iter().sum::<u64>(), tokens * per_token);
        // No expert has more tokens than there are, or a token went there twice.
        prop_assert!(drawn.loads().iter().all(|&load| load <= tokens));
        let all = drawn.traffic(&(0..count));
        let distinct = drawn.loads().iter().filter(|&&load| load > 0).count();
        prop_assert_eq!((all.pairs, all.touched), ((tokens * per_token) as f64, distinct as f64));
        prop_assert!(tokens == 0 || all.touched >= per_token as f64);
        // Parts add up to the whole.
        let (hot, cold) = (drawn.traffic(&(0..count / 3)), drawn.traffic(&(count / 3..count)));
        prop_assert_eq!((hot.pairs + cold.pairs, hot.touched + cold.touched), (all.pairs, all.touched));
        let again = ExpertLoads::draw(&experts, tokens, &mut Pcg64::seed_from_u64(seed));
        prop_assert_eq!(again, drawn);
    }
}

/// The mean lies within five standard errors over 4,000 draws, plus one draw: rarer events may not
/// have happened.
#[test]
fn the_mean_over_many_draws_is_the_mean_that_is_counted() {
    for (count, per_token, skew, tokens) in
        [(8, 2, 0.0, 3), (16, 4, 0.8, 5), (60, 6, 1.5, 12), (6, 5, 2.0, 2)]
    {
        let experts = Experts::new(count, per_token, 64).with_skew(skew);
        let mut random = Pcg64::seed_from_u64(1);
        let draws: Vec<_> = (0..4000).map(|_| ExpertLoads::draw(&experts, tokens, &mut random)).collect();
        let ranges = (0..count).map(|expert| expert..expert + 1).chain([0..count / 2, 0..count]);
        for range in ranges {
            let mean = experts.traffic(&range, tokens);
            let near = |value: &dyn Fn(&ExpertLoads) -> f64, wanted: f64| {
                let values: Vec<f64> = draws.iter().map(value).collect();
                let number = values.len() as f64;
                let got = values.iter().sum::<f64>() / number;
                let spread = values.iter().map(|value| (value - got).powi(2)).sum::<f64>() / number;
                let error = (spread / number).sqrt();
                assert!(
                    (got - wanted).abs() <= 5.0 * error + 1.0 / number,
                    "{count} {skew} {range:?}: {got}, not {wanted}"
                );
            };
            near(&|drawn| drawn.traffic(&range).pairs, mean.pairs);
            near(&|drawn| drawn.traffic(&range).touched, mean.touched);
        }
    }
}

/// Experts divided between CPU and GPU: both see the same draw of a layer.
fn divided(model: &scenarios::Model) -> Placement {
    let (cpu, gpu) = ((MemoryId(0), DeviceId(0)), (MemoryId(1), DeviceId(1)));
    let mut placement = Placement::uniform(model, gpu.1, gpu.0);
    for LayerPlacement { kind, sublayers } in &mut placement.layers {
        for (sublayer, slices) in kind.sublayers().iter().zip(sublayers.iter_mut()) {
            if *sublayer == Sublayer::Experts {
                let part = |rows, (home, device)| Slice { rows, home, prefill: device, decode: device };
                *slices = [part(0..2, gpu), part(2..6, cpu)].into_iter().collect();
            }
        }
    }
    placement
}

#[test]
fn a_run_of_drawn_tokens_does_the_work_of_its_draws_and_the_same_seed_gives_the_same_bytes() {
    let (machine, model) = (machine(), tiny_experts(4));
    let experts = model.experts.as_ref().unwrap();
    let programs = PhasePrograms::lower(&machine, &model, &divided(&model)).unwrap();
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let steps = steps(&Workload::new(3, 20, 12), 8);
    let trace = |experts, seed| {
        let draws = RandomDraws { experts, seed, ..RandomDraws::default() };
        BatchRun { draws, ..BatchRun::new(cost_model, &programs, &steps) }.trace("plan").unwrap()
    };
    let (drawn, mean) = (trace(true, 7), trace(false, 7));
    assert_eq!(drawn.to_json(), trace(true, 7).to_json());
    assert_ne!(drawn.to_json(), trace(true, 8).to_json());
    assert_eq!(mean.to_json(), trace(false, 8).to_json());
    // Both parts of a layer together have all pairs of a token and an expert, drawn or not.
    for trace in [&drawn, &mean] {
        for (index, span) in trace.steps.iter().enumerate() {
            for layer in 1..4 {
                let routed = trace.events.iter().filter(|event| {
                    event.step == index as u32 && event.layer == Some(layer) && event.name == "experts"
                });
                let flop: Flop = routed.map(|event| event.flop).sum();
                let all =
                    Work::count(Operator::Experts, &model, &FORMATS, &span.step, &(0..experts.count)).flop;
                assert!(flop.get().abs_diff(all.get()) <= 2, "{layer} of {span:?}: {flop} and {all}");
            }
        }
    }
    // Layers choose independently: the size of one part varies between them.
    let program: &Program = programs.program(Phase::Decode);
    let on_gpu =
        |event: &&planner::TraceEvent| event.name == "experts" && event.lane == "gpu" && event.step == 5;
    let parts: Vec<_> = drawn.events.iter().filter(on_gpu).map(|event| event.flop).collect();
    assert!(parts.len() == 3 && parts.iter().any(|part| *part != parts[0]), "{parts:?}");
    let split = program.tasks.iter().filter(
        |task| matches!(&task.action, Action::Compute { operator: Operator::Experts, rows, .. } if *rows == (0..2)),
    );
    assert_eq!(split.count(), 3);
}
