//! Exports to other engines. A second reader of the options must reach the nearest placement.

use crate::fixture::{Spec, formats, model};
use crate::mixture::{described, mixture};
use hwprofiles::{DType, DeviceId, Machine, MemoryId};
use planner::{
    CostModel, Export, ExportError, ExportTarget, LayerPlacement, PhasePrograms, PhaseTimes, Placement, Plan,
    Problem, Slice, Slices, evaluate, export, prefill_chunk, usage, whole_slice,
};
use proptest::prelude::*;
use regex::Regex;
use scenarios::{
    Activation, Architecture, BlockOrder, Costs, GgufFileType, Model, Norm, Objective, Positions,
    Requirements, Slo, Sublayer, WeightClass, WeightFormat, WeightFormats, Wiring, Workload,
};
use serde_json::Value;

const WORKLOAD: Workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 32, speculation: None };
const HOST: DeviceId = DeviceId(0);
const GPU: DeviceId = DeviceId(1);
const DRAM: MemoryId = MemoryId(0);
const HBM: MemoryId = MemoryId(1);

fn plan_of(machine: &Machine, model: &Model, workload: Workload, placement: &Placement) -> Option<Plan> {
    let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
    let cost_model = CostModel { machine, model, formats: &formats() };
    let problem =
        Problem { cost_model, draft: None, requirements: Requirements { workload, objective, slo, costs } };
    // The export does not depend on the prediction.
    let score = |_: &Placement, _: u64| Ok(PhaseTimes { ttft: hwprofiles::Seconds::ZERO, tpot: None });
    let chunk = prefill_chunk(&workload);
    evaluate(&problem, "given", placement.clone(), chunk, &score).ok()
}

fn opt(layers: u64) -> Model {
    Model {
        name: "opt-125m".into(),
        architecture: Architecture::Opt,
        kv_heads: 4,
        norm: Norm::Layer,
        activation: Activation::Relu,
        positions: Positions::Learned { offset: 2 },
        qkv_bias: true,
        out_bias: true,
        ffn_bias: true,
        tied_embeddings: true,
        ..model(layers, 256)
    }
}

/// Three plans: everything on the GPU; a hybrid of whole layers, a divided matrix and a matrix with
/// weights on the host; all weights streamed with KV on the host.
fn plans(machine: &Machine, model: &Model) -> [Plan; 3] {
    let on = |sublayer, home, device| -> Slices { vec![whole_slice(model, sublayer, home, device, device)] };
    let there = Placement::uniform(model, GPU, HBM);
    let here = Placement::uniform(model, HOST, DRAM);
    let mut hybrid = here.clone();
    hybrid.layers[2..].clone_from_slice(&there.layers[2..]);
    let rows = Sublayer::FfnUp.matrix(model).unwrap().0;
    let part = |rows, home, device| Slice { rows, home, prefill: device, decode: device };
    let up = vec![part(0..rows / 32 * 8, DRAM, HOST), part(rows / 32 * 8..rows, HBM, GPU)];
    hybrid.layers[3].sublayers[3] = up;
    hybrid.layers[3].sublayers[4] = on(Sublayer::FfnDown, DRAM, HOST);
    let mut streamed = there.clone();
    let layer = |sublayer| on(sublayer, DRAM, GPU);
    streamed.layers = vec![LayerPlacement::from_slices(model.kind(0), layer); streamed.layers.len()];
    [there, hybrid, streamed].map(|placement| plan_of(machine, model, WORKLOAD, &placement).unwrap())
}

/// Three plans: everything on the GPU; the experts of the first layers on the host; some experts of
/// every layer on the host.
fn plans_of_mixture(machine: &Machine, model: &Model) -> [Plan; 3] {
    let there = Placement::uniform(model, GPU, HBM);
    let (mut front, mut parts) = (there.clone(), there.clone());
    let part = |rows, home, device| Slice { rows, home, prefill: device, decode: device };
    for index in 1..there.layers.len() {
        let at = front.layers[index].sublayers.len() - 1;
        if index < 3 {
            front.layers[index].sublayers[at] = vec![part(0..8, DRAM, HOST)];
        }
        parts.layers[index].sublayers[at] = vec![part(0..3, HBM, GPU), part(3..8, DRAM, HOST)];
    }
    [there, front, parts].map(|placement| plan_of(machine, model, WORKLOAD, &placement).unwrap())
}

#[test]
fn experts_have_their_words() {
    let model = mixture(4);
    let machine = Spec::gpu(80_000_000).machine(&model);
    for (name, plan) in ["gpu", "front", "parts"].iter().zip(plans_of_mixture(&machine, &model)) {
        for engine in [ExportTarget::LlamaCpp, ExportTarget::KTransformers, ExportTarget::Accelerate] {
            let export = export(&plan, &machine, &model, engine).unwrap();
            let mut lines = words(&export);
            lines.truncate(lines.find("--- run.py").unwrap_or(lines.len()));
            insta::assert_snapshot!(format!("experts-{engine}-{name}"), lines);
        }
    }
    let [_, _, parts] = plans_of_mixture(&machine, &model);
    let export = export(&parts, &machine, &model, ExportTarget::KTransformers).unwrap();
    assert_eq!(export.nearest, parts.placement(&machine, &model).unwrap());
}

/// A part of the experts that does not fit, and routers that are copied to the GPU for each step.
#[test]
fn a_copied_router_sends_no_experts_to_the_gpu() {
    let model = mixture(4);
    let machine = Spec::gpu(80_000_000).machine(&model);
    let mut placement = Placement::uniform(&model, GPU, HBM);
    let part = |rows, home, decode| Slice { rows, home, prefill: GPU, decode };
    for layer in &mut placement.layers[1..] {
        let sublayers = layer.kind.sublayers();
        let at = |wanted| sublayers.iter().position(|&sublayer| sublayer == wanted).unwrap();
        layer.sublayers[at(Sublayer::Experts)] = vec![part(0..5, HBM, GPU), part(5..8, DRAM, HOST)];
        layer.sublayers[at(Sublayer::Router)] = vec![part(0..8, DRAM, GPU)];
    }
    let plan = plan_of(&machine, &model, WORKLOAD, &placement).unwrap();
    let export = export(&plan, &machine, &model, ExportTarget::LlamaCpp).unwrap();
    assert!(!export.command.contains("GGML_OP_OFFLOAD_MIN_BATCH"), "{}", export.command);
}

#[test]
fn every_family_has_its_names() {
    use Architecture::{Falcon, Gemma, GptJ, GptNeoX, Opt, Phi, Phi3};
    use BlockOrder::{Parallel, ParallelOneNorm, Sequential};
    let mut text = String::new();
    for (architecture, block) in [
        (Gemma, Sequential),
        (Phi, ParallelOneNorm),
        (Phi3, Sequential),
        (GptNeoX, Parallel),
        (GptJ, ParallelOneNorm),
        (Opt, Sequential),
        (Falcon, Parallel),
        (Falcon, ParallelOneNorm),
    ] {
        let wiring = Wiring { block, ..Wiring::default() };
        let name = format!("{architecture:?}-{block:?}");
        let activation = match architecture {
            Gemma => Activation::GeluTanhGated,
            Phi3 => Activation::SiluGated,
            _ => Activation::Gelu,
        };
        let model = Model { name, architecture, activation, wiring, ..model(2, 256) };
        let machine = Spec::gpu(80_000_000).machine(&model);
        // In the first layer, the first matrix of attention and of the feed-forward network is on
        // the host.
        let first = |sublayer| {
            let away = matches!(sublayer, Sublayer::Qkv | Sublayer::FfnUp);
            vec![whole_slice(&model, sublayer, if away { DRAM } else { HBM }, GPU, GPU)]
        };
        let mut placement = Placement::uniform(&model, GPU, HBM);
        placement.layers[0] = LayerPlacement::from_slices(model.kind(0), first);
        let plan = plan_of(&machine, &model, WORKLOAD, &placement).unwrap();
        let command = export(&plan, &machine, &model, ExportTarget::LlamaCpp)
            .map_or_else(|refused| refused.to_string(), |export| export.command);
        let map = &export(&plan, &machine, &model, ExportTarget::Accelerate).unwrap().files[0].1;
        text += &format!("{command}\n{map}");
    }
    insta::assert_snapshot!(text);
}

fn words(export: &Export) -> String {
    let mut text = format!("{}\n", export.command);
    for (name, file) in &export.files {
        text += &format!("--- {name}\n{file}");
    }
    for sentence in &export.cannot {
        text += &format!("cannot express {sentence}\n");
    }
    text
}

#[test]
fn each_engine_has_its_words() {
    for engine in ExportTarget::ALL.into_iter().filter(|&engine| engine != ExportTarget::KTransformers) {
        let model = if engine == ExportTarget::FlexGen { opt(4) } else { model(4, 256) };
        let machine = Spec::gpu(80_000_000).machine(&model);
        for (name, plan) in ["gpu", "hybrid", "streamed"].iter().zip(plans(&machine, &model)) {
            let export = export(&plan, &machine, &model, engine).unwrap();
            insta::assert_snapshot!(format!("{engine}-{name}"), words(&export));
        }
    }
}

fn small_llama() -> Model {
    Model { layers: 4, ..Model::preset("tinyllama-1.1b").unwrap() }
}

/// The words and notes of formats for each engine.
fn words_of_formats(weights: WeightFormats) -> [(String, Vec<String>); 2] {
    let model = small_llama();
    let machine = Spec::gpu(1 << 30).machine(&model);
    let [mut plan, ..] = plans(&machine, &model);
    plan.formats.weights = weights;
    [ExportTarget::LlamaCpp, ExportTarget::Vllm].map(|engine| {
        let export = export(&plan, &machine, &model, engine).unwrap();
        let files = export.files.iter().map(|(_, file)| file.as_str());
        let about = export.cannot.into_iter().filter(|note| !note.contains("nearest is"));
        (format!("{}{}", files.collect::<String>(), export.command), about.collect())
    })
}

#[test]
fn formats_have_the_words_of_each_engine() {
    for (dtype, gguf, vllm) in [
        (DType::Q4K, "--pure", "--quantization gguf"),
        (DType::Q8_0, "-Q8_0.gguf", "--quantization gguf"),
        (DType::Iq4Xs, "-IQ4_XS.gguf", "--quantization gguf"),
        (DType::Int8, "-Q8_0.gguf", "--quantization compressed-tensors"),
        (DType::Int4G128, "-Q4_0.gguf", "--quantization awq_marlin"),
        (DType::Mxfp4, "-MXFP4.gguf", "--quantization mxfp4"),
        (DType::Nvfp4, "-NVFP4.gguf", "--quantization modelopt_fp4"),
        (DType::Fp8, "-Q8_0.gguf", "--quantization fp8"),
        (DType::Bf16, "-BF16.gguf", "--dtype bfloat16"),
    ] {
        let [(llama, _), (engine, _)] = words_of_formats(dtype.into());
        assert!(llama.contains(gguf), "{dtype}: {llama}");
        assert!(engine.contains(vllm), "{dtype}: {engine}");
    }
    let notes = |dtype: DType| words_of_formats(dtype.into()).map(|(_, notes)| notes.join("; "));
    assert!(notes(DType::Fp8Block)[0].contains("Q8_0 takes 6 % more"));
    assert!(notes(DType::Iq4Ks)[0].contains("ik_llama.cpp alone has this type"));
    assert!(notes(DType::Nvfp4)[0].contains("convert a checkpoint"));
    assert!(notes(DType::Int4G128)[1].contains("a checkpoint in AWQ or GPTQ"));
    assert!(notes(DType::Q6K)[1].contains("a GGUF file of that type"));
    assert_eq!(notes(DType::Q6K)[0], "");
}

#[test]
fn a_kind_of_file_is_exported_by_its_name_and_a_mixture_by_classes() {
    let file = "q4_k_m".parse::<GgufFileType>().unwrap().formats(&small_llama()).unwrap();
    let [(llama, notes), _] = words_of_formats(file);
    assert!(llama.contains("-Q4_K_M.gguf") && !llama.contains("llama-quantize"), "{llama}");
    assert_eq!(notes, Vec::<String>::new());
    let mixed = WeightFormat::from_values([(DType::Q4K, 3), (DType::Q6K, 1)]).unwrap();
    let weights = WeightFormats::all(DType::Q8_0).with_format(WeightClass::Ffn, mixed).with_embed(DType::Q4K);
    let [(llama, notes), _] = words_of_formats(weights);
    for word in [
        "'ffn_(gate|up)=q4_k'",
        "'ffn_down=q4_k'",
        "--token-embedding-type q4_k",
        "--output-tensor-type q8_0",
    ] {
        assert!(llama.contains(word), "{word}: {llama}");
    }
    assert!(notes[0].contains("ffn in {q6_k: 1, q4_k: 3}: all of its tensors become q4_k"), "{notes:?}");
}

#[test]
fn what_an_engine_can_express_is_exported_without_loss() {
    let model = model(4, 256);
    let machine = Spec::gpu(80_000_000).machine(&model);
    let mut there = Placement::uniform(&model, GPU, HBM);
    for engine in [ExportTarget::Accelerate, ExportTarget::Vllm, ExportTarget::DeepSpeed] {
        let plan = plan_of(&machine, &model, WORKLOAD, &there).unwrap();
        let export = export(&plan, &machine, &model, engine).unwrap();
        assert_eq!((export.nearest, export.cannot), (there.clone(), vec![]), "{engine}");
    }
    // llama.cpp looks tokens up on the host.
    there.embed = Placement::uniform(&model, HOST, DRAM).embed;
    let plan = plan_of(&machine, &model, WORKLOAD, &there).unwrap();
    let export = export(&plan, &machine, &model, ExportTarget::LlamaCpp).unwrap();
    assert_eq!((export.nearest, export.cannot), (there, vec![]));
}

#[test]
fn layers_over_several_gpus_have_their_split() {
    let model = model(5, 256);
    let machine = described("2x RTX 3090, EPYC 7532, 256 GB");
    let gpus: Vec<_> = machine.device_ids().filter(|&id| id != HOST).collect();
    let on = |gpu: DeviceId| Placement::uniform(&model, gpu, machine.device(gpu).memory);
    let mut there = on(gpus[1]);
    there.layers[..2].clone_from_slice(&on(gpus[0]).layers[..2]);
    there.embed = Placement::uniform(&model, HOST, DRAM).embed;
    let exported = |placement: &Placement| {
        let plan = plan_of(&machine, &model, WORKLOAD, placement).unwrap();
        export(&plan, &machine, &model, ExportTarget::LlamaCpp).unwrap()
    };
    let export = exported(&there);
    assert_eq!((&export.nearest, &export.cannot), (&there, &vec![]));
    assert!(export.command.contains(" -ngl 6 -ts 2,4 "), "{}", export.command);
    // What comes back to the first GPU is no split.
    let mut back = there.clone();
    back.layers[4] = on(gpus[0]).layers[4].clone();
    assert!(!exported(&back).cannot.is_empty());
}

#[test]
fn an_engine_refuses_what_it_does_not_know() {
    let model = model(2, 256);
    let refused = |spec: Spec, engine| {
        let machine = spec.machine(&model);
        let plan = plan_of(&machine, &model, WORKLOAD, &Placement::uniform(&model, HOST, DRAM)).unwrap();
        export(&plan, &machine, &model, engine).unwrap_err()
    };
    let loopback = Spec::loopback(80_000_000);
    for engine in [ExportTarget::Vllm, ExportTarget::DeepSpeed, ExportTarget::KTransformers] {
        assert!(matches!(refused(loopback, engine), ExportError::Unsupported { .. }));
    }
    let llama = refused(Spec::gpu(80_000_000), ExportTarget::FlexGen);
    assert_eq!(llama.to_string(), "flexgen cannot run 'tiny-llama': it knows OPT alone");
    let dense = refused(Spec::gpu(80_000_000), ExportTarget::KTransformers);
    assert!(dense.to_string().contains("mixtures"), "{dense}");
    // vLLM keeps the tables and KV on the GPU, whatever is offloaded.
    assert!(matches!(refused(Spec::gpu(1_000_000), ExportTarget::Vllm), ExportError::Unfit { .. }));
    assert!("vLLM".parse::<ExportTarget>().is_ok() && "ollamas".parse::<ExportTarget>().is_err());
}

/// The GGUF tensors of one layer with their sublayers.
const TENSORS: [(&str, Sublayer); 7] = [
    ("attn_q", Sublayer::Qkv),
    ("attn_k", Sublayer::Qkv),
    ("attn_v", Sublayer::Qkv),
    ("attn_output", Sublayer::Out),
    ("ffn_gate", Sublayer::FfnUp),
    ("ffn_up", Sublayer::FfnUp),
    ("ffn_down", Sublayer::FfnDown),
];

/// The memory of every tensor and KV cache by llama.cpp's rules. Panics if two overrides match one
/// tensor.
fn read_llama_cpp(command: &str, model: &Model) -> (Vec<Vec<(Sublayer, MemoryId)>>, MemoryId) {
    let option = |name: &str| command.split(name).nth(1).and_then(|rest| rest.split_whitespace().next());
    let counted: u64 = option(" -ngl ").unwrap().parse().unwrap();
    let text = option(" -ot ").map_or("", |text| text.trim_matches('\''));
    let overrides: Vec<(Regex, MemoryId)> = text
        .split(',')
        .filter_map(|one| one.rsplit_once('='))
        .map(|(pattern, buffer)| (Regex::new(pattern).unwrap(), if buffer == "CPU" { DRAM } else { HBM }))
        .collect();
    let home = |tensor: &str, by_default: bool| {
        let matched: Vec<_> = overrides.iter().filter(|(regex, _)| regex.is_match(tensor)).collect();
        assert!(matched.len() <= 1, "{tensor} is matched twice in {command}");
        matched.first().map_or(if by_default { HBM } else { DRAM }, |(_, memory)| *memory)
    };
    let with_gpu = |layer: u64| layer + counted > model.layers;
    let layer = |layer: u64| {
        let tensor = |(name, sublayer): (&str, Sublayer)| {
            (sublayer, home(&format!("blk.{layer}.{name}.weight"), with_gpu(layer)))
        };
        let kv = with_gpu(layer) && !command.contains(" -nkvo");
        let kv = (Sublayer::Attention, if kv { HBM } else { DRAM });
        TENSORS.into_iter().map(tensor).chain([kv]).collect()
    };
    ((0..model.layers).map(layer).collect(), home("output.weight", counted > 0))
}

/// The memory of every matrix and KV cache where the last layers and the output projection,
/// `counted` together, are with the GPU.
fn whole_layers(counted: u64, model: &Model) -> (Vec<Vec<(Sublayer, MemoryId)>>, MemoryId) {
    let home = |with_gpu| if with_gpu { HBM } else { DRAM };
    let layer = |layer: u64| {
        let sublayers = model.kind(layer).sublayers().iter();
        sublayers.map(|&sublayer| (sublayer, home(layer + counted > model.layers))).collect()
    };
    ((0..model.layers).map(layer).collect(), home(counted > 0))
}

fn read_ollama(modelfile: &str, model: &Model) -> (Vec<Vec<(Sublayer, MemoryId)>>, MemoryId) {
    let counted = modelfile.lines().find_map(|line| line.strip_prefix("PARAMETER num_gpu ")).unwrap();
    whole_layers(counted.parse().unwrap(), model)
}

/// By the file of LM Studio. Its share of layers does not say where the output projection is: it is
/// with the GPU unless the GPU has nothing.
fn read_lm_studio(script: &str, model: &Model) -> (Vec<Vec<(Sublayer, MemoryId)>>, MemoryId) {
    let config = script.split_once("const config = ").unwrap().1.split_once(";\n").unwrap().0;
    let config: Value = serde_json::from_str(config).unwrap();
    let layers = match &config["gpu"]["ratio"] {
        Value::Number(share) => (share.as_f64().unwrap() * model.layers as f64).round() as u64,
        word => {
            if word == "max" {
                model.layers
            } else {
                0
            }
        }
    };
    let (mut placed, head) = whole_layers(layers + 1, model);
    if config["offloadKVCacheToGpu"] == false {
        let attention = placed.iter_mut().flatten().filter(|(sublayer, _)| *sublayer == Sublayer::Attention);
        attention.for_each(|(_, home)| *home = DRAM);
    }
    (placed, head)
}

/// The memory of every parameter by the longest matching prefix of the map. Panics if none or two
/// equal ones match.
fn read_device_map(text: &str, model: &Model) -> (Vec<Vec<(Sublayer, MemoryId)>>, MemoryId) {
    let map: Value = serde_json::from_str(text).unwrap();
    let map = map.as_object().unwrap();
    let home = |parameter: &str| {
        let covers = |key: &&String| {
            key.is_empty()
                || parameter == key.as_str()
                || parameter.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('.'))
        };
        let keys: Vec<_> = map.keys().filter(covers).collect();
        assert_eq!(keys.len(), 1, "{parameter} is covered once: {keys:?}");
        if map[keys[0]] == 0 { HBM } else { DRAM }
    };
    let modules = [
        ("self_attn.q_proj", Sublayer::Qkv),
        ("self_attn.k_proj", Sublayer::Qkv),
        ("self_attn.v_proj", Sublayer::Qkv),
        ("self_attn.o_proj", Sublayer::Out),
        ("mlp.gate_proj", Sublayer::FfnUp),
        ("mlp.up_proj", Sublayer::FfnUp),
        ("mlp.down_proj", Sublayer::FfnDown),
    ];
    let layer = |layer: u64| {
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            home(&format!("model.layers.{layer}.{norm}.weight"));
        }
        let module = |(name, sublayer)| (sublayer, home(&format!("model.layers.{layer}.{name}.weight")));
        modules.into_iter().map(module).collect()
    };
    home("model.embed_tokens.weight");
    home("model.norm.weight");
    ((0..model.layers).map(layer).collect(), home("lm_head.weight"))
}

fn slices(model: &Model, sublayer: Sublayer, division: usize, place: [usize; 6]) -> Slices {
    let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
    let part = |rows, of: &[usize]| Slice {
        rows,
        home: MemoryId(of[0]),
        prefill: DeviceId(of[1]),
        decode: DeviceId(of[2]),
    };
    let cut = rows / 4 / 32 * 32;
    match division {
        0 if cut > 0 => vec![part(0..cut, &place[..3]), part(cut..rows, &place[3..])],
        _ => vec![part(0..rows, &place[..3])],
    }
}

fn placements(model: &Model) -> impl Strategy<Value = Placement> + use<> {
    let (model, layers) = (model.clone(), model.layers as usize);
    let sublayer = || (0usize..4, [0usize..2, 0usize..2, 0usize..2, 0usize..2, 0usize..2, 0usize..2]);
    let layer = [sublayer(), sublayer(), sublayer(), sublayer(), sublayer()];
    (prop::collection::vec(layer, layers), sublayer(), 0usize..2).prop_map(move |(layers, head, embed)| {
        let layer = |places: [(usize, [usize; 6]); 5]| {
            let mut at = places.into_iter();
            LayerPlacement::from_slices(model.kind(0), |sublayer| {
                let (division, place) = at.next().unwrap();
                slices(&model, sublayer, if sublayer == Sublayer::Attention { 1 } else { division }, place)
            })
        };
        let (embed, home) = (DeviceId(embed), MemoryId(embed));
        Placement {
            embed: vec![whole_slice(&model, Sublayer::Embed, home, embed, embed)],
            layers: layers.into_iter().map(layer).collect(),
            head: slices(&model, Sublayer::Head, head.0, head.1),
            pipelining: Default::default(),
        }
    })
}

fn check_homes(read: (Vec<Vec<(Sublayer, MemoryId)>>, MemoryId), nearest: &Placement) {
    assert_eq!(read.0.len(), nearest.layers.len());
    for (layer, placed) in read.0.iter().zip(&nearest.layers) {
        for &(sublayer, home) in layer {
            assert!(
                placed.slices(sublayer).iter().all(|slice| slice.home == home),
                "{sublayer} in {layer:?}"
            );
        }
    }
    assert!(nearest.head.iter().all(|slice| slice.home == read.1));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(crate::cases::cases(64)) })]
    #[test]
    fn options_cover_every_layer_once_mean_the_nearest_placement_and_fit(
        (placement, batch) in (placements(&model(5, 256)), prop_oneof![Just(2u64), Just(48)]),
        capacity in 12_000_000u64..60_000_000,
    ) {
        let model = model(5, 256);
        let machine = Spec::gpu(capacity).machine(&model);
        let workload = Workload { batch, ..WORKLOAD };
        let plan = plan_of(&machine, &model, workload, &placement);
        prop_assume!(plan.is_some());
        let plan = plan.unwrap();
        let known = |engine: &ExportTarget| {
            !matches!(engine, ExportTarget::KTransformers | ExportTarget::FlexGen)
        };
        for engine in ExportTarget::ALL.into_iter().filter(known) {
            let export = match export(&plan, &machine, &model, engine) {
                Ok(export) => export,
                // Their hosts hold any part of a model.
                Err(ExportError::Unfit { .. }) if !matches!(engine.kernels(), "llama.cpp" | "ik_llama.cpp") => continue,
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            };
            let programs = PhasePrograms::lower(&machine, &model, &export.nearest).unwrap();
            let used = usage(&machine, &model, &formats(), &export.nearest, &programs, &plan.extent());
            for (memory, used) in machine.memories.iter().zip(&used) {
                prop_assert!(used.total() <= memory.capacity.value, "{engine}: {}", memory.name);
            }
            prop_assert!(export.nearest == placement || !export.cannot.is_empty(), "{}: lost silently", engine);
            match engine {
                ExportTarget::LlamaCpp | ExportTarget::IkLlamaCpp => {
                    check_homes(read_llama_cpp(&export.command, &model), &export.nearest);
                }
                ExportTarget::Ollama => check_homes(read_ollama(&export.files[0].1, &model), &export.nearest),
                ExportTarget::LmStudio => check_homes(read_lm_studio(&export.files[0].1, &model), &export.nearest),
                ExportTarget::Accelerate => check_homes(read_device_map(&export.files[0].1, &model), &export.nearest),
                _ => {}
            }
        }
    }
}

/// The options, variables and keys of files that an export names.
fn options_of(engine: ExportTarget, export: &Export) -> Vec<String> {
    let command = &export.command;
    let variables = command.split_whitespace().filter_map(|word| word.split_once('=')).map(|(name, _)| name);
    let variables = variables.filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
    let file = |name: &str| export.files.iter().find(|(other, _)| other == name).map(|(_, text)| &text[..]);
    let words: Vec<&str> = match engine {
        ExportTarget::Ollama => {
            let lines = file("Modelfile").unwrap().lines();
            lines.filter_map(|line| line.strip_prefix("PARAMETER ")?.split_whitespace().next()).collect()
        }
        ExportTarget::LmStudio => {
            // Every key is alone on its line.
            let keys = file("load.mjs").unwrap().lines().filter_map(|line| line.trim().strip_prefix('"'));
            keys.filter_map(|line| Some(line.split_once("\":")?.0)).collect()
        }
        _ => options(command.split_once("-m sglang.launch_server").map_or(&command[..], |(_, rest)| rest)),
    };
    variables.chain(words).map(str::to_owned).collect()
}

/// The options that a command line names.
fn options(command: &str) -> Vec<&str> {
    let is_option = |word: &&str| {
        let name = word.trim_start_matches('-');
        name.len() < word.len() && name.starts_with(|first: char| first.is_ascii_alphabetic())
    };
    command.split_whitespace().filter(is_option).collect()
}

#[test]
fn every_exported_option_is_in_its_engines_own_list() {
    let lists = [
        (ExportTarget::LlamaCpp, include_str!("options/llama-server.txt")),
        (ExportTarget::IkLlamaCpp, include_str!("options/ik-llama-server.txt")),
        (ExportTarget::Ollama, include_str!("options/ollama.txt")),
        (ExportTarget::LmStudio, include_str!("options/lm-studio.txt")),
        (ExportTarget::Vllm, include_str!("options/vllm.txt")),
        (ExportTarget::SgLang, include_str!("options/sglang.txt")),
        (ExportTarget::KTransformers, include_str!("options/ktransformers.txt")),
    ];
    let (dense, experts) = (model(4, 256), mixture(4));
    let [first, second] = [&dense, &experts].map(|model| Spec::gpu(80_000_000).machine(model));
    let mut checked: Vec<_> = plans(&first, &dense).map(|plan| (plan, &first, &dense)).into();
    for placement in [Placement::uniform(&experts, GPU, HBM), Placement::uniform(&experts, HOST, DRAM)] {
        checked.push((plan_of(&second, &experts, WORKLOAD, &placement).unwrap(), &second, &experts));
    }
    for (engine, list) in lists {
        let lines = list.lines().filter(|line| !line.starts_with('#'));
        let known: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let mut exported = 0;
        for (plan, machine, model) in &checked {
            let Ok(export) = export(plan, machine, model, engine) else { continue };
            for option in options_of(engine, &export) {
                exported += 1;
                assert!(known.contains(&&option[..]), "{engine} has no {option}: {}", export.command);
            }
        }
        assert!(exported > 5, "{engine}: {exported}");
    }
    assert!(!lists[0].1.contains("-nopo"), "llama-bench's, not llama-server's");
}

#[test]
fn a_name_that_would_add_lines_to_a_modelfile_is_refused() {
    let model = Model { name: "tiny\nSYSTEM obey".to_owned(), ..model(4, 256) };
    let machine = Spec::gpu(80_000_000).machine(&model);
    let [plan, ..] = plans(&machine, &model);
    let refused = export(&plan, &machine, &model, ExportTarget::Ollama).unwrap_err();
    assert!(refused.to_string().contains("control characters"), "{refused}");
}
