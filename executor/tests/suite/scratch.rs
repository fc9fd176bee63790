//! The planner counts the kernels' working memory without knowing the kernels. These tests know
//! both.

use crate::cases::cases;
use crate::rig;
use hwprofiles::{DType, DeviceKind};
use kernels::cuda::{Queue, calls};
use planner::{PhasePrograms, RunExtent};
use proptest::prelude::*;
use scenarios::{Model, Sublayer};

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn kernels_need_no_more_working_memory_than_the_planner_counts(
        name in prop::sample::select(vec!["fulcrum-tiny", "opt-125m", "llama-2-7b", "llama-3.1-8b", "qwen3-32b", "qwen2.5-0.5b", "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "gemma-7b", "gemma-2-9b", "gemma-3-4b", "phi-2", "phi-3-mini-4k", "gpt-neox-20b", "gpt-j-6b", "falcon-7b"]),
        cores in 1usize..100,
        (batch, chunk, context) in (1u64..70, prop_oneof![1u64..4, 1u64..3000], 1u64..100_000),
    ) {
        let model = Model::preset(name).expect("a preset");
        let mut machine = rig::machine();
        machine.devices[0].cores = (0..cores).collect();
        let programs = PhasePrograms::lower(&machine, &model, &rig::on(&model, rig::CPU)).expect("it lowers");
        let extent = RunExtent { batch, context, chunk, step_tokens: 1 };
        let counted = planner::scratch_bytes(&machine, &programs, &model, &extent)[&rig::CPU].get() as usize;
        let rows = (batch * chunk) as usize;
        for columns in model.sublayers().into_iter().filter_map(|sublayer| sublayer.inputs(&model)) {
            prop_assert!(kernels::gemm::scratch_bytes(cores, rows, columns as usize) <= counted);
        }
        if let Some(experts) = &model.experts {
            let (hidden, inner) = (model.hidden as usize, experts.intermediate as usize);
            prop_assert!(kernels::expert::scratch_bytes(cores, rows, hidden, inner) <= counted);
        }
        for (layer, dtype) in model.shapes().iter().flat_map(|layer| [(layer, DType::F32), (layer, DType::Int8)]) {
            let shape = kernels::KvShape {
                dtype,
                sequences: batch as usize,
                kv_heads: layer.kv_heads as usize,
                capacity: layer.kept_positions(context) as usize,
                head_dim: layer.head_dim as usize,
            };
            let windowed = layer.wiring.window.is_some();
            let gathered = if windowed { kernels::attention::gather_bytes(cores, shape) } else { 0 };
            let needed = kernels::attention::scratch_bytes(cores, layer.heads as usize, shape, batch as usize);
            prop_assert!(needed + gathered <= counted);
        }
    }

    /// The same for a GPU's kernels, operator by operator, as each uses the scratch.
    #[test]
    fn a_gpus_kernels_need_no_more_working_memory_than_the_planner_counts(
        name in prop::sample::select(vec!["fulcrum-tiny", "opt-125m", "llama-3.1-8b", "qwen3-32b", "qwen2.5-0.5b", "mixtral-8x7b", "qwen3-30b-a3b", "gemma-2-9b", "gpt-neox-20b", "falcon-7b"]),
        (batch, chunk, context) in (1u64..70, prop_oneof![1u64..4, 1u64..3000], 1u64..100_000),
    ) {
        let model = Model::preset(name).expect("a preset");
        let mut machine = rig::machine();
        (machine.devices[0].kind, machine.devices[0].cores) = (DeviceKind::Gpu, vec![]);
        let programs = PhasePrograms::lower(&machine, &model, &rig::on(&model, rig::CPU)).expect("it lowers");
        let extent = RunExtent { batch, context, chunk, step_tokens: 1 };
        let counted = planner::scratch_bytes(&machine, &programs, &model, &extent)[&rig::CPU].get() as usize;
        let (sequences, rows) = (batch as usize, (batch * chunk) as usize);
        let pass = (6 * sequences + 3 * rows) * 4 + sequences * size_of::<kernels::SamplingParams>();
        let dtypes = [DType::Bf16, DType::Int8, DType::Int4];
        for sublayer in model.sublayers() {
            let Some((n, k)) = sublayer.matrix(&model).map(|(n, k)| (n as usize, k as usize)) else { continue };
            let m = if sublayer == Sublayer::Head { sequences } else { rows };
            if sublayer == Sublayer::Embed || sublayer == Sublayer::Experts || dtypes.map(|dtype| Queue::multiplies_packed(m, (dtype, n, k))) == [true; 3] {
                continue;
            }
            prop_assert!(pass + Queue::scratch_bytes(m, (n, k)) <= counted, "{sublayer}");
        }
        let heads = [model.heads as usize, model.kv_heads as usize];
        let attention = calls::decode_scratch(sequences, heads, model.head_dim as usize, context as usize);
        prop_assert!(pass + attention <= counted);
        if let Some(experts) = &model.experts {
            let (count, per_token) = (experts.count as usize, experts.per_token as usize);
            let (hidden, inner) = (model.hidden as usize, experts.intermediate as usize);
            let between = 2 * rows * per_token * (inner + hidden.max(2 * inner));
            prop_assert!(pass + between + calls::ExpertRouting::bytes(rows, count, per_token) <= counted);
        }
    }
}

#[test]
fn a_cpus_small_operators_are_shared_from_where_the_planner_says() {
    assert_eq!(planner::WORTH_SHARING, kernels::WORTH_SHARING as u64);
}
