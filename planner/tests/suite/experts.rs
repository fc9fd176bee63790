//! Placements of models with experts and latent attention: their memory, their parallel tasks, and
//! their documents.

use crate::machine::{machine, placed, tiny_experts};
use hwprofiles::{Bytes, DType, DeviceId, Seconds};
use planner::{
    Action, CostModel, Lane, PhasePrograms, PhaseTimes, Placement, Plan, Problem, Program, Roofline,
    RunExtent, Slice, evaluate, usage,
};
use proptest::prelude::*;
use scenarios::{
    Costs, Formats, Model, Objective, Operator, Phase, Requirements, Slo, Step, Sublayer, WeightFormats,
    Workload, kv_bytes,
};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
const CPU: DeviceId = DeviceId(0);
const GPU: DeviceId = DeviceId(1);

fn plan(model: &Model, placement: &Placement) -> Plan {
    let machine = machine();
    let times = PhaseTimes { ttft: Seconds::new(1.0), tpot: None };
    let workload = Workload { batch: 4, prompt_tokens: 40, output_tokens: 9, speculation: None };
    let cost_model = CostModel { machine: &machine, model, formats: &FORMATS };
    let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
    let problem =
        Problem { cost_model, draft: None, requirements: Requirements { workload, objective, slo, costs } };
    let score = |_: &Placement, _: u64| Ok(times);
    evaluate(&problem, "given", placement.clone(), 16, &score).unwrap()
}

/// All on the CPU, except the cold `experts` of layer 1 and all of layer 2.
fn divided(model: &Model, experts: std::ops::Range<u64>) -> Placement {
    let machine = machine();
    let own = |device: DeviceId| machine.device(device).memory;
    let mut placement = Placement::uniform(model, CPU, own(CPU));
    let part = |rows, on| Slice { rows, home: own(on), prefill: on, decode: on };
    let sublayers = &mut placement.layers[1].sublayers;
    *sublayers.last_mut().unwrap() = vec![part(0..experts.start, CPU), part(experts, GPU)];
    placement.layers[2] = Placement::uniform(model, GPU, own(GPU)).layers[2].clone();
    placement
}

#[test]
fn experts_that_are_computed_one_by_one_cost_a_prompt_a_time_each() {
    let model = tiny_experts(3);
    let placement = Placement::uniform(&model, GPU, machine().device(GPU).memory);
    let mut one_by_one = machine();
    let each = Seconds::new(1e-3);
    one_by_one.devices[GPU.0].details.expert = Some(hwprofiles::Sourced::estimated(each, "a test"));
    for phase in [Phase::Prefill, Phase::Decode] {
        let program = Program::lower(&one_by_one, &model, &placement, phase).unwrap();
        let step = Step { phase, batch: 1, new_tokens: 40, past_tokens: 0 };
        let step =
            if phase == Phase::Decode { Step { new_tokens: 1, past_tokens: 40, ..step } } else { step };
        let cost = |machine| {
            let cost_model = CostModel { machine, model: &model, formats: &FORMATS };
            let tasks = program.tasks.iter();
            let times = tasks.map(|task| cost_model.task_cost(task, &step).unwrap().alone.get());
            times.sum::<f64>()
        };
        let longer = cost(&one_by_one) - cost(&machine());
        let work = |task: &planner::Task| match &task.action {
            Action::Compute { operator: operator @ Operator::Experts, rows, .. } => {
                let cost_model = CostModel { machine: &one_by_one, model: &model, formats: &FORMATS };
                cost_model.work(*operator, rows, &step).experts as f64 * 3.0
            }
            _ => 0.0,
        };
        let wanted = if phase == Phase::Decode { 0.0 } else { program.tasks.iter().map(work).sum() };
        assert!((longer / each.get() - wanted).abs() < 1e-6, "{phase:?}: {longer} {wanted}");
        assert!(phase == Phase::Decode || wanted > 0.0);
    }
}

/// Tasks of a step of 40 tokens of a prompt, all with the GPU of `machine`, and what each takes.
fn gpu_tasks(machine: &hwprofiles::Machine, model: &Model) -> Vec<(Operator, Seconds, scenarios::Work)> {
    let placement = Placement::uniform(model, GPU, machine.device(GPU).memory);
    let program = Program::lower(machine, model, &placement, Phase::Prefill).unwrap();
    let cost_model = CostModel { machine, model, formats: &FORMATS };
    let step = Step { phase: Phase::Prefill, batch: 1, new_tokens: 40, past_tokens: 0 };
    let of_task = |task: &planner::Task| match &task.action {
        Action::Compute { operator, rows, .. } => {
            let time = cost_model.task_cost(task, &step).unwrap().alone;
            Some((*operator, time, cost_model.work(*operator, rows, &step)))
        }
        _ => None,
    };
    program.tasks.iter().filter_map(of_task).collect()
}

#[test]
fn kernels_around_the_products_of_experts_take_their_own_time_on_a_gpu() {
    let (machine, model) = (machine(), tiny_experts(3));
    let gpu = machine.device(GPU);
    let mut experts = 0;
    for (operator, time, work) in gpu_tasks(&machine, &model) {
        let scenarios::Shape::Gemm { m, n, k } = work.shape else { continue };
        let products = gpu.gemm_time(DType::Bf16, m, n, k).unwrap().time;
        let between = gpu.streaming_time(work.between).time;
        let network = matches!(operator, Operator::Experts | Operator::SharedExpert);
        assert_eq!(between > Seconds::ZERO, network, "{operator:?}");
        let least = (products + between) * (1.0 - 1e-9);
        assert!(time >= least, "{operator:?}: {time} {products} {between}");
        experts += u64::from(operator == Operator::Experts);
    }
    assert!(experts > 0);
}

#[test]
fn choosing_a_token_takes_the_head_a_time_for_each_logit() {
    let model = tiny_experts(3);
    let mut sampled = machine();
    let each = Seconds::new(1e-6);
    sampled.devices[GPU.0].details.logit = Some(hwprofiles::Sourced::estimated(each, "a test"));
    let both = gpu_tasks(&machine(), &model).into_iter().zip(gpu_tasks(&sampled, &model));
    for ((operator, before, _), (_, after, _)) in both {
        let wanted = if operator == Operator::HeadProj { model.vocab as f64 * 1e-6 } else { 0.0 };
        assert!(((after - before).get() - wanted).abs() < 1e-12, "{operator:?}");
    }
}

#[test]
fn both_devices_of_divided_experts_work_between_the_router_and_the_sum() {
    let model = tiny_experts(3);
    let placement = divided(&model, 2..6);
    let program = Program::lower(&machine(), &model, &placement, Phase::Decode).unwrap();
    let of = |wanted: Operator| {
        let tasks = program.tasks.iter().enumerate().filter(move |(_, task)| task.layer == Some(1));
        let found = tasks.filter_map(move |(index, task)| match (&task.action, task.lane) {
            (Action::Compute { operator, rows, .. }, Lane::Device(device)) if *operator == wanted => {
                Some((index, device, rows.clone()))
            }
            _ => None,
        });
        found.collect::<Vec<_>>()
    };
    let (route, experts, sum) = (of(Operator::Route), of(Operator::Experts), of(Operator::ExpertsAdd));
    assert_eq!(experts.iter().map(|it| (it.1, it.2.clone())).collect::<Vec<_>>(), [(CPU, 0..2), (GPU, 2..6)]);
    assert!(experts.iter().all(|it| route[0].0 < it.0 && it.0 < sum[0].0));
    // The GPU waits only for its copies, not for the CPU's experts.
    let mut waits: Vec<usize> = vec![experts[1].0];
    while let Some(task) = waits.pop() {
        assert_ne!(task, experts[0].0, "the parts wait for each other");
        assert_ne!(task, of(Operator::SharedExpert)[0].0, "experts wait for the shared one");
        let lane = program.tasks[task].lane;
        let before = (0..task).rfind(|&earlier| program.tasks[earlier].lane == lane);
        let after = program.tasks[task].after.iter().map(|id| id.0 as usize);
        waits.extend(after.chain(before.filter(|_| lane == Lane::Device(GPU))));
    }
}

#[test]
fn hot_experts_take_longer_than_as_many_cold_ones() {
    let (machine, model) = (machine(), tiny_experts(3));
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let (hot, cold) = (0..3, 3..6);
    let work = |rows| cost_model.work(Operator::Experts, &rows, &Step::decode(2, 9));
    assert!(work(hot.clone()).flop > work(cold.clone()).flop);
    assert!(work(hot).weights > work(cold).weights);
}

#[test]
fn a_plan_with_experts_says_so_layer_by_layer() {
    let model = tiny_experts(4);
    let text = plan(&model, &divided(&model, 2..6)).to_yaml();
    let groups = Plan::from_yaml(&text, "plan.yaml").unwrap().layers;
    let has: Vec<Vec<Sublayer>> = groups.iter().map(|g| g.parts().map(|(s, _)| s).collect()).collect();
    assert_eq!(groups.iter().map(|group| group.first).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(has[0], model.kind(0).sublayers());
    assert!(has[1..].iter().all(|has| has == model.kind(1).sublayers()));
    let shares: Vec<_> = groups[1].experts.as_ref().unwrap().0.iter().map(|part| part.share).collect();
    assert_eq!(shares, [Some(2.0 / 6.0), Some(4.0 / 6.0)]);
}

#[test]
fn a_group_of_the_wrong_kind_is_refused_by_name() {
    let model = tiny_experts(3);
    let plan = plan(&model, &Placement::uniform(&model, CPU, machine().device(CPU).memory));
    let refused = |change: &dyn Fn(&mut Plan)| {
        let mut wrong = plan.clone();
        change(&mut wrong);
        wrong.placement(&machine(), &model).unwrap_err().to_string()
    };
    let one = refused(&|plan| {
        plan.layers[0].count = 3;
        plan.layers.truncate(1);
    });
    assert!(one.contains("layers.0.count is 3: its layers are not all of one kind"), "{one}");
    let lacks = refused(&|plan| plan.layers[1].experts = None);
    assert!(
        lacks.contains("layer 1 of tiny-experts has qkv, attention, out, router, shared_expert, experts")
    );
    let router = refused(&|plan| {
        let parts = &mut plan.layers[1].router.as_mut().unwrap().0;
        parts[0].share = Some(0.5);
        parts.push(parts[0].clone());
    });
    assert!(router.contains("router is 0.5 + 0.5: this sublayer cannot be divided"), "{router}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(64)))]

    #[test]
    fn any_placement_reads_back_from_its_plan((model, placement) in placed(4)) {
        let plan = plan(&model, &placement);
        let text = plan.to_yaml();
        let (again, read) = Plan::read(&text, "plan.yaml", &machine(), &model).unwrap();
        prop_assert_eq!(again, plan);
        prop_assert_eq!(read, placement);
    }

    #[test]
    fn all_experts_take_room_however_few_are_used((model, placement) in placed(3)) {
        let (machine, extent) = (machine(), RunExtent { batch: 2, context: 49, chunk: 16, step_tokens: 1 });
        let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
        let used = usage(&machine, &model, &FORMATS, &placement, &programs, &extent);
        let matrices = |sublayer: Sublayer| model.sublayer_bytes(sublayer, &FORMATS) - sublayer.vector_bytes(&model);
        let all: Bytes = placement.sublayers().map(|(_, sublayer, _)| matrices(sublayer)).sum();
        let held = used.iter().map(|memory| memory.weights).sum::<Bytes>();
        prop_assert!(held >= all, "{held} of {all}");
        let kv = kv_bytes(&model, &FORMATS, extent.batch, extent.context) * model.layers;
        prop_assert_eq!(used.iter().map(|memory| memory.kv).sum::<Bytes>(), kv);
    }

    #[test]
    fn every_task_has_a_finite_price((model, placement) in placed(3), tokens in 1..200_u64) {
        let machine = machine();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
        for step in [Step::decode(tokens, 77), Step::prefill(2, tokens)] {
            let program = Program::lower(&machine, &model, &placement, step.phase).unwrap();
            let bound = Roofline::new(&cost_model, &program, &step).unwrap().bound().0;
            prop_assert!(bound.get() > 0.0 && bound.get().is_finite());
        }
    }
}
