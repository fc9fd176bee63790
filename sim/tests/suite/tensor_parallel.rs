//! Several GPUs: groups that compute as one device, and layers over several devices.

use crate::cases::cases;
use hwprofiles::{
    Bytes, BytesPerSec, DType, EngineExecution, GroupDivision, Library, Machine, Seconds, yaml,
};
use planner::{
    Action, CostModel, Lane, MicroBatch, OperandSource, PhasePrograms, Placement, PlannerError, Problem,
    Task, TaskIds, plan, usage,
};
use proptest::prelude::*;
use scenarios::{
    Costs, ExpertTraffic, Experts, Formats, Model, Objective, Operator, Requirements, Slo, Step, Sublayer,
    WeightFormats, Workload,
};

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// A machine of `count` GPUs of one kind, linked by NVLink 3.
fn gpus(part: &str, count: u64) -> Machine {
    let parts = format!(
        "parts:\n  cpu: xeon-8168\n  dram: {{capacity: {{value: 1 TB, source: {{estimated: {{reason: \"made up\"}}}}}}}}\n  \
         gpu: {{part: {part}, count: {count}, link: nvlink3}}\n  link: pcie4-x16\n"
    );
    Library::default().compose(&yaml::read(&parts, "parts").unwrap()).unwrap()
}

fn cost_model<'a>(machine: &'a Machine, model: &'a Model) -> CostModel<'a> {
    CostModel { machine, model, formats: &BF16 }
}

/// The time of a whole operator on the first GPU.
fn time(cost_model: CostModel<'_>, operator: Operator, step: &Step) -> f64 {
    let rows = operator.sublayer().matrix(cost_model.model).map_or(0, |(rows, _)| rows);
    let device = cost_model.machine.identical_gpus()[0];
    let action = Action::Compute { operator, rows: 0..rows, source: OperandSource::Resident };
    let task = Task {
        lane: Lane::Device(device),
        layer: Some(0),
        kind: None,
        micro_batch: MicroBatch::WHOLE,
        action,
        after: TaskIds::new(),
    };
    cost_model.task_cost(&task, step).unwrap().alone.get()
}

/// The machine with sums over GPUs slower by `factor`. With 0 they are free.
fn with_sums(machine: &Machine, factor: f64) -> Machine {
    let mut machine = machine.clone();
    for ranks in machine.devices.iter_mut().filter_map(|device| device.ranks.as_mut()) {
        let sums = &mut ranks.all_reduce;
        sums.step.value = sums.step.value * factor;
        let rate = if factor > 0.0 { sums.bandwidth.value.get() / factor } else { 1e30 };
        sums.bandwidth.value = BytesPerSec::new(rate);
        sums.measured = None;
    }
    machine
}

fn layer(cost_model: CostModel<'_>, step: &Step) -> f64 {
    let operators = Sublayer::DENSE.iter().flat_map(|sublayer| sublayer.operators(cost_model.model));
    operators.map(|&operator| time(cost_model, operator, step)).sum()
}

proptest! {
    #![proptest_config(cases(48))]
    #[test]
    fn with_free_sums_more_ranks_are_never_slower_and_slower_sums_never_make_a_layer_faster(
        batch in 1u64..65, past in 1u64..4096, new in 1u64..512, prefill in any::<bool>(), factor in 1.0..20.0f64,
    ) {
        // Only the datasheet of this GPU is known, so measured products add no noise.
        let (machine, model) = (gpus("a6000", 4), Model::preset("llama-3.1-8b").unwrap());
        let step = if prefill { Step::prefill(batch, new) } else { Step::decode(batch, past) };
        let mut last = f64::INFINITY;
        for degree in [1, 2, 4] {
            let group = machine.with_tensor_parallel(degree).unwrap();
            let free = layer(cost_model(&with_sums(&group, 0.0), &model), &step);
            prop_assert!(free <= last * (1.0 + 1e-9), "{degree}: {free} after {last}");
            last = free;
            let [fair, slow] = [1.0, factor].map(|f| layer(cost_model(&with_sums(&group, f), &model), &step));
            prop_assert!(free <= fair && fair <= slow, "{degree}: {free} {fair} {slow}");
        }
    }

    #[test]
    fn a_sum_takes_longer_with_more_bytes_and_with_more_ranks(
        bytes in 1u64..1 << 32, more in 1u64..1 << 32, ranks in 2u64..17,
    ) {
        for name in ["nvlink2", "nvlink3", "nvlink4", "nvlink5"] {
            let link = match Library::default().profile(name).unwrap() {
                hwprofiles::Profile::Link(link) => link,
                other => panic!("{name} is {}", other.kind()),
            };
            let sums = link.all_reduce.unwrap();
            let time = |bytes: u64, ranks| sums.time(Bytes::new(bytes), ranks).get();
            prop_assert!(time(bytes + more, ranks) >= time(bytes, ranks) * (1.0 - 1e-9));
            prop_assert!(time(bytes, ranks + 1) > time(bytes, ranks));
            prop_assert_eq!(time(0, ranks) + time(bytes, 1), 0.0);
        }
    }
}

#[test]
fn one_rank_is_the_machine_as_it_is_and_all_are_one_gpu_of_all_their_memory() {
    let machine = gpus("a100-sxm", 4);
    assert_eq!(machine.with_tensor_parallel(1).unwrap(), machine);
    assert_eq!(machine.tensor_parallel_degrees(), [1, 2, 4]);
    let (two, four) = (machine.with_tensor_parallel(2).unwrap(), machine.with_tensor_parallel(4).unwrap());
    let names = |m: &Machine| m.devices.iter().map(|d| d.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&two), names(&four)),
        (vec!["cpu".into(), "gpu0".into(), "gpu1".into()], vec!["cpu".into(), "gpu".into()])
    );
    let hbm = |m: &Machine, name: &str| m.memory(m.memory_named(name).unwrap()).clone();
    let (one, all) = (hbm(&machine, "hbm0"), hbm(&four, "hbm"));
    assert_eq!(all.capacity.value, one.capacity.value * 4);
    assert_eq!(all.bandwidth.value, one.bandwidth.value * 4.0);
    let link = |m: &Machine, name: &str| m.links.iter().find(|l| l.name == name).unwrap().bandwidth.value;
    // Four links bring what the host's memory gives.
    let dram = hbm(&four, "dram").bandwidth.value;
    assert_eq!(link(&four, "dram->gpu"), dram.min(link(&machine, "dram->gpu0") * 4.0));
    assert_eq!(link(&two, "gpu0->gpu1"), link(&machine, "gpu0->gpu1") * 2.0);
    // A group is written like any machine, and cannot be grouped again.
    assert_eq!(Machine::from_yaml(&two.to_yaml(), "two"), Ok(two.clone()));
    assert_eq!(two.tensor_parallel_degrees(), [2, 4]);
    let again = two.with_tensor_parallel(4).unwrap();
    assert_eq!(again.devices[1].ranks(), 4);
    let refused = machine.with_tensor_parallel(3).unwrap_err().to_string();
    assert!(refused.contains("3 does not divide the 4 GPUs") && refused.contains("1 or 2 or 4"), "{refused}");
}

#[test]
fn a_projection_takes_the_time_of_its_share_and_the_sum_by_hand() {
    let (machine, model) = (gpus("a6000", 2), Model::preset("llama-3.1-8b").unwrap());
    let group = machine.with_tensor_parallel(2).unwrap();
    let step = Step::decode(8, 1000);
    let device = group.device(group.identical_gpus()[0]);
    // Half of the inputs of 4096 × 4096; then 8 rows of 4096 numbers in bf16, each way over half of
    // them.
    let share = device.gemm_time(DType::Bf16, 8, 4096, 2048).unwrap().time;
    let bytes = 4096.0 * 2048.0 * 2.0 + 8.0 * (2048.0 + 4096.0) * 2.0;
    let streamed = bytes / group.memory(device.memory).bandwidth.value.get() * 2.0;
    let sums = &device.ranks.as_ref().unwrap().all_reduce;
    let sum = sums.time(Bytes::new(8 * 4096 * 2), 2);
    let expected = device.launch.value.get() + share.get().max(streamed) + sum.get();
    let found = time(cost_model(&group, &model), Operator::OutProj, &step);
    assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    // Every rank has the norms, and operators that are divided by outputs need no sum.
    let alone = |operator| time(cost_model(&machine, &model), operator, &step);
    assert_eq!(time(cost_model(&group, &model), Operator::AttnNorm, &step), alone(Operator::AttnNorm));
    let up = device.gemm_time(DType::Bf16, 8, 14336, 4096).unwrap().time.get();
    let bytes = (14336.0 * 4096.0 + 8.0 * (4096.0 + 14336.0)) * 2.0;
    let streamed = bytes / group.memory(device.memory).bandwidth.value.get() * 2.0;
    let expected = device.launch.value.get() + up.max(streamed);
    assert!((time(cost_model(&group, &model), Operator::UpProj, &step) - expected).abs() < 1e-12);
}

#[test]
fn norms_over_all_heads_sum_two_numbers_for_each_token_over_the_gpus() {
    let (machine, model) = (gpus("a6000", 2), Model::preset("minimax-m2.5").unwrap());
    let group = machine.with_tensor_parallel(2).unwrap();
    let mut by_head = model.clone();
    by_head.wiring.norms_whole_qk = false;
    let sums = &group.device(group.identical_gpus()[0]).ranks.as_ref().unwrap().all_reduce;
    for step in [Step::decode(8, 1000), Step::prefill(1, 500)] {
        let times = [&model, &by_head].map(|model| time(cost_model(&group, model), Operator::Rotate, &step));
        let sum = sums.time(Bytes::new(step.rows() * 2 * 4), 2).get();
        assert!((times[0] - times[1] - sum).abs() < 1e-9, "{times:?} do not differ by {sum}");
        let alone =
            [&model, &by_head].map(|model| time(cost_model(&machine, model), Operator::Rotate, &step));
        assert!((alone[0] - alone[1]).abs() < 1e-9, "{alone:?}");
    }
}

#[test]
fn kernels_of_sparse_latent_attention_take_their_heads_filled_up() {
    let model = Model::preset("glm-5").unwrap();
    let sparse = "sparse_heads: {value: 64, source: {estimated: {reason: a test}}}";
    let sparse: EngineExecution = yaml::read(sparse, "engine.yaml").unwrap();
    let plain = gpus("h100-sxm", 8).with_tensor_parallel(8).unwrap();
    let group = plain.run_by(&sparse);
    let step = Step::prefill(1, 8192);
    let attention =
        |machine: &Machine, model: &Model| time(cost_model(machine, model), Operator::Attention, &step);
    // Eight heads on each rank take as long as 64.
    let wide = Model { heads: 512, ..model.clone() };
    assert_eq!(attention(&group, &model), attention(&group, &wide));
    assert!(attention(&plain, &model) < attention(&plain, &wide));
    // 64 heads, 2,048 of the tokens before each, 576 numbers of a key and 512 of a value.
    let pairs = 2048.0 * 2049.0 / 2.0 + (8192.0 - 2048.0) * 2048.0;
    let flop = pairs * 64.0 * 2.0 * (576.0 + 512.0);
    let rate = flop / attention(&group, &model);
    let peak = 989e12;
    assert!((0.2 * peak..0.8 * peak).contains(&rate), "{rate:e} FLOP/s");
    // Attention to all tokens has kernels that expand keys.
    let dense = Model::preset("deepseek-v3").unwrap();
    assert_eq!(attention(&group, &dense), attention(&plain, &dense));
}

#[test]
fn sums_over_gpus_take_their_measured_time() {
    let group = gpus("a100-sxm", 4).with_tensor_parallel(4).unwrap();
    let sums = &group.device(group.identical_gpus()[0]).ranks.as_ref().unwrap().all_reduce;
    for (bytes, time) in [(1u64 << 16, 22.93e-6), (1 << 22, 84.75e-6), (1 << 25, 279.7e-6)] {
        assert!((sums.time(Bytes::new(bytes), 4) - Seconds::new(time)).get().abs() < 1e-12);
    }
    // The prefill of a GPT-3 layer with 8 × 2048 tokens, which is not among the measured points:
    // 2.891 ms (LLMCompass, ISCA 2024).
    let time = sums.time(Bytes::new(8 * 2048 * 12288 * 2), 4).get();
    assert!((time / 2.891e-3 - 1.0).abs() < 0.10, "{time}");
}

/// Bytes of each kind in the memory of a machine's GPUs, with everything on the first GPU.
fn used(machine: &Machine, model: &Model, load: &Workload) -> planner::MemoryUsage {
    let gpu = machine.identical_gpus()[0];
    let memory = machine.device(gpu).memory;
    let placement = Placement::uniform(model, gpu, memory);
    let programs = PhasePrograms::lower(machine, model, &placement).unwrap();
    let extent = planner::RunExtent::from_workload(load, load.prompt_tokens);
    usage(machine, model, &BF16, &placement, &programs, &extent)[memory.0]
}

#[test]
fn bytes_are_those_of_a_share_on_each_rank_with_kv_heads_replicated_where_they_are_fewer() {
    let model = Model::preset("llama-3.1-8b").unwrap();
    let load = Workload { batch: 2, prompt_tokens: 100, output_tokens: 28, speculation: None };
    let machine = gpus("a100-sxm", 16);
    let on = |degree| used(&machine.with_tensor_parallel(degree).unwrap(), &model, &load);
    let (one, eight, sixteen) = (on(1), on(8), on(16));
    assert_eq!(eight.kv, one.kv, "8 KV heads on 8 ranks");
    assert_eq!(sixteen.kv, one.kv * 2, "each of 8 KV heads on two of 16 ranks");
    // Norms (2 per layer and the last one) and the position table are f32 on every rank. Matrices
    // are divided.
    let vectors = (2 * 32 + 1) * 4096 * 4 + 128 * 128 * 4;
    assert_eq!(eight.weights.get(), one.weights.get() + 7 * vectors);
    // With 16 ranks, K and V of 8 heads of 128 rows are stored twice, in 32 layers of bf16.
    let again = 32 * 2 * 8 * 128 * 4096 * 2;
    assert_eq!(sixteen.weights.get(), one.weights.get() + 15 * vectors + again);
}

fn planned(machine: &Machine, model: &Model, load: Workload) -> Result<planner::Plan, PlannerError> {
    let cost_model = cost_model(machine, model);
    let question = Problem {
        cost_model,
        draft: None,
        requirements: Requirements {
            workload: load,
            objective: Objective::Tpot,
            slo: Slo::default(),
            costs: Costs::default(),
        },
    };
    plan(&question, &|placement, chunk| sim::estimate(cost_model, placement, &load, chunk))
}

#[test]
fn two_gpus_hold_a_model_that_one_cannot_as_one_device_or_by_layers() {
    let model = Model::preset("llama-3.1-70b").unwrap();
    let load = Workload { batch: 1, prompt_tokens: 128, output_tokens: 16, speculation: None };
    let two = gpus("a100-sxm", 2);
    let group = two.with_tensor_parallel(2).unwrap();
    let fits = |machine: &Machine| {
        let memory = machine.device(machine.identical_gpus()[0]).memory;
        used(machine, &model, &load).total() <= machine.memory(memory).capacity.value
    };
    assert!(fits(&group) && !fits(&two), "141 GB on 160 and on 80");
    let layers = planned(&two, &model, load).unwrap();
    let ranks = planned(&group, &model, load).unwrap();
    let tpot = |plan: &planner::Plan| plan.predicted.simulated.tpot.unwrap().get();
    assert!(tpot(&ranks) < 0.7 * tpot(&layers), "{} against {}", tpot(&ranks), tpot(&layers));
    // Layers go through the GPUs in order, so the residual hops from one to the next once per step.
    let placement = layers.placement(&two, &model).unwrap();
    let program = PhasePrograms::lower(&two, &model, &placement).unwrap().decode;
    let between = |task: &&Task| match task.action {
        Action::Hop { link, .. } => two.link(link).name == "gpu0->gpu1",
        _ => false,
    };
    assert_eq!(program.tasks.iter().filter(between).count(), 1);
    for name in ["hbm0", "hbm1"] {
        assert!(layers.memory[name].weights > Bytes::new(50_000_000_000), "{:?}", layers.memory);
    }
}

#[test]
fn heads_that_ranks_do_not_divide_are_refused_by_name() {
    let model = Model::preset("llama-3.1-8b").unwrap();
    let load = Workload { batch: 1, prompt_tokens: 32, output_tokens: 4, speculation: None };
    let group = gpus("a100-sxm", 3).with_tensor_parallel(3).unwrap();
    let refused = planned(&group, &model, load).unwrap_err();
    assert!(matches!(refused, PlannerError::Undivided(_)), "{refused}");
    assert!(refused.to_string().contains("32 heads of llama-3.1-8b"), "{refused}");
}

/// A group of all GPUs of `machine`.
fn divided(machine: &Machine, tensor: u64, stages: u64, whole_experts: bool) -> Machine {
    machine.with_division(GroupDivision { tensor, stages, whole_experts, data: 1 }).unwrap()
}

/// TTFT and TPOT with everything on the first GPU, or on the group of all.
fn times(machine: &Machine, model: &Model, load: Workload) -> [f64; 2] {
    let gpu = machine.identical_gpus()[0];
    let placement = Placement::uniform(model, gpu, machine.device(gpu).memory);
    let chunk = load.prompt_tokens;
    let times = sim::estimate(cost_model(machine, model), &placement, &load, chunk).unwrap();
    [times.ttft.get(), times.tpot.unwrap().get()]
}

proptest! {
    #![proptest_config(cases(16))]
    #[test]
    fn a_pipeline_has_the_time_of_one_gpu_and_its_hops(
        each in 1u64..17, stages in 2u64..5, prompt in 16u64..600,
    ) {
        let (machine, model) = (gpus("a6000", 12), Model::preset("llama-3.1-8b").unwrap());
        let group = divided(&machine, 1, stages, false);
        let load = |batch| Workload::new(batch, prompt, 8);
        let ranks = group.device(group.identical_gpus()[0]).ranks.clone().unwrap();
        let hop = |rows: u64| {
            let bytes = Bytes::new(rows * model.hidden * 2);
            ranks.send_time(bytes).get() * (stages - 1) as f64
        };
        // One micro-batch fills one stage after the other. Steps between the decode steps that are
        // simulated follow a parabola, which bends differently with the hops: 1.1e-6 has been seen.
        let one = times(&machine, &model, load(1));
        let alone = times(&group, &model, load(1));
        prop_assert!((alone[1] - one[1] - hop(1)).abs() < 1e-5 * one[1], "{alone:?} {one:?} {}", hop(1));
        prop_assert!((alone[0] - one[0] - hop(prompt)).abs() < 1e-5 * one[0]);
        // As many micro-batches as stages: each token of all of them takes as long as one's.
        let (part, all) = (times(&machine, &model, load(each)), times(&group, &model, load(each * stages)));
        prop_assert!((all[1] - part[1] - hop(each)).abs() < 1e-5 * part[1], "{all:?} {part:?}");
        let filling = (2 * stages - 1) as f64 / stages as f64;
        prop_assert!((all[0] / filling - part[0] - hop(each * prompt)).abs() < 1e-3 * part[0], "{all:?} {part:?}");
    }

    #[test]
    fn the_busiest_rank_has_at_least_the_mean_and_at_most_all(
        tokens in 1u64..4096, power in 1u32..6, per_token in 1u64..9,
    ) {
        let (experts, ranks) = (Experts::new(128, per_token, 768), 1u64 << power);
        let all = experts.traffic(&(0..128), tokens);
        let busiest = experts.busiest_share(all, ranks);
        let of = ranks as f64;
        prop_assert!(busiest.pairs * of >= all.pairs * (1.0 - 1e-9) && busiest.pairs <= all.pairs + 1e-9);
        prop_assert!(busiest.touched * of >= all.touched * (1.0 - 1e-9));
        prop_assert!(busiest.touched <= (128.0 / of).min(all.touched) + 1e-9);
        let more = experts.busiest_share(experts.traffic(&(0..128), 2 * tokens), ranks);
        prop_assert!(more.pairs >= busiest.pairs && more.touched >= busiest.touched * (1.0 - 1e-9));
        prop_assert_eq!(experts.busiest_share(all, 1), all);
    }
}

#[test]
fn the_busiest_of_two_ranks_is_that_of_a_coin() {
    // With one expert for each token, the pairs of one of two ranks are binomial.
    let experts = Experts::new(256, 1, 768);
    for tokens in [16_u64, 64, 256] {
        let mut chance = 0.5_f64.powi(tokens as i32);
        let mut mean = 0.0;
        for heads in 0..=tokens {
            mean += chance * heads.max(tokens - heads) as f64;
            chance *= (tokens - heads) as f64 / (heads + 1) as f64;
        }
        let all = ExpertTraffic { pairs: tokens as f64, touched: 1.0 };
        let found = experts.busiest_share(all, 2).pairs;
        assert!((found / mean - 1.0).abs() < 0.01, "{tokens}: {found} and {mean}");
    }
}

#[test]
fn every_division_holds_each_matrix_once() {
    let machine = gpus("a100-sxm", 4);
    let load = Workload::new(4, 64, 16);
    for name in ["llama-3.1-8b", "qwen3-30b-a3b"] {
        let model = Model::preset(name).unwrap();
        let weights = |machine: &Machine| used(machine, &model, &load).weights;
        let one = weights(&machine);
        for stages in [2, 4] {
            assert_eq!(weights(&divided(&machine, 1, stages, false)), one, "{name}: layers stay whole");
        }
        let tensor = weights(&divided(&machine, 4, 1, false));
        // Two stages hold what each half of the ranks repeats, norms above all, once less.
        let both = weights(&divided(&machine, 2, 2, false));
        assert!(one <= both && both <= tensor, "{name}: {one} {both} {tensor}");
        assert!(tensor.as_f64() < 1.01 * one.as_f64(), "{name}: {tensor} {one}");
        if model.experts.is_some() {
            let whole = weights(&divided(&machine, 4, 1, true));
            assert!(one <= whole && whole.as_f64() < 1.01 * one.as_f64(), "{name}: {whole} {one}");
        }
    }
}

#[test]
fn engines_that_share_experts_have_the_rest_of_a_layer_for_themselves() {
    let (machine, model) = (gpus("a100-sxm", 4), Model::preset("qwen3-30b-a3b").unwrap());
    let division = GroupDivision { tensor: 1, stages: 1, whole_experts: true, data: 4 };
    let group = with_sums(&machine.with_division(division).unwrap(), 0.0);
    let cost = |machine: &Machine, operator, batch| {
        time(cost_model(machine, &model), operator, &Step::decode(batch, 1000))
    };
    // A step of all four, and the same as one of them sees it.
    let one = group.with_one_engine();
    for operator in [Operator::QkvProj, Operator::Attention, Operator::OutProj, Operator::Experts] {
        let (all, own) = (cost(&group, operator, 32), cost(&one, operator, 8));
        assert!((all - own).abs() <= 1e-12 * all, "{operator:?}: {all} {own}");
    }
    for operator in [Operator::QkvProj, Operator::Attention, Operator::OutProj] {
        let (own, alone) = (cost(&one, operator, 8), cost(&machine, operator, 8));
        assert!((own - alone).abs() <= 1e-12 * alone, "{operator:?}: {own} {alone}");
    }
    // Experts: no more than those of all on one GPU, and more than a quarter of those.
    let (own, alone) = (cost(&one, Operator::Experts, 8), cost(&machine, Operator::Experts, 32));
    assert!(own < alone && own > 0.25 * alone, "{own} {alone}");
    let load = Workload::new(4, 64, 16);
    let (copies, single) = (used(&group, &model, &load).weights, used(&machine, &model, &load).weights);
    assert!(
        single < copies && copies.as_f64() < 1.2 * single.as_f64(),
        "{copies}: experts once, the rest four times"
    );
    let every: EngineExecution = yaml::read("all_expert_rows: true", "engine.yaml").unwrap();
    let whole = divided(&machine, 4, 1, true);
    let experts =
        |machine: &Machine| time(cost_model(machine, &model), Operator::Experts, &Step::prefill(1, 4096));
    let ratio = experts(&whole.run_by(&every)) / experts(&whole.run_by(&EngineExecution::default()));
    assert!((2.0..4.5).contains(&ratio), "{ratio}: each rank goes through four times the rows");
}

#[test]
fn whole_experts_cost_what_the_busiest_rank_reads() {
    let (machine, model) = (gpus("a100-sxm", 4), Model::preset("qwen3-30b-a3b").unwrap());
    let step = Step::decode(1, 1000);
    let free = |whole| with_sums(&divided(&machine, 4, 1, whole), 0.0);
    let experts = |machine: &Machine| time(cost_model(machine, &model), Operator::Experts, &step);
    // One token's 8 experts: the busiest of four ranks has more than 2 of them.
    let (one, even, whole) = (experts(&machine), experts(&free(false)), experts(&free(true)));
    assert!(even < whole && whole < one, "{even} {whole} {one}");
    let attention = |machine: &Machine| time(cost_model(machine, &model), Operator::Attention, &step);
    assert_eq!(attention(&free(true)), attention(&free(false)), "the rest is divided");
    for (division, key) in [
        (GroupDivision { tensor: 3, stages: 1, whole_experts: true, data: 1 }, "tensor_parallel"),
        (GroupDivision { tensor: 1, stages: 64, whole_experts: false, data: 1 }, "pipeline_parallel"),
    ] {
        let refused = model.check_division(division).unwrap_err().to_string();
        assert!(refused.contains(key), "{refused}");
    }
    let dense = Model::preset("llama-3.1-8b").unwrap();
    let refused = dense.check_division(GroupDivision { tensor: 2, stages: 1, whole_experts: true, data: 1 });
    assert!(refused.unwrap_err().to_string().contains("expert_parallel"));
}
