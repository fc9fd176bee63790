//! vLLM: the GPU computes everything; the weights of the first layers may stay in the host's
//! memory.
//!
//! `--cpu-offload-gb N` (in units of 2³⁰ bytes) keeps the parameters of layers in the host's
//! memory, from the first layer on, until N are reached; the GPU reads them from there. The KV
//! cache is in the GPU's memory.

use super::difference::differences;
use super::engine_options::Export;
use super::export_error::ExportError;
use super::shell::quoted;
use super::site::{Gpu, Site};
use crate::memory::MemoryUsage;
use crate::placement::Pipelining;
use crate::placement::Placement;
use hwprofiles::{Bytes, DType, GroupDivision};
use scenarios::Sublayer;

pub(super) fn export(site: &Site<'_>) -> Result<Export, ExportError> {
    let gpu = site.gpu()?;
    let layers = site.placement.layers.len();
    let candidates = like_the_plan(site, gpu)..=layers;
    let (offloaded, nearest, used) = site.first_fit(candidates, |&first| placement(site, gpu, first))?;
    let mut cannot = differences(site, &nearest);
    let how = match site.plan.formats.weights.one() {
        Some(DType::Int4G128) => "give it a checkpoint in AWQ or GPTQ, which it recognises",
        Some(DType::Int4 | DType::Int8) => "give it a checkpoint in compressed-tensors with groups of 32",
        Some(dtype) if quantisation(dtype) == Some("gguf") => "give it a GGUF file of that type",
        _ => "give it a checkpoint quantised so, which it recognises",
    };
    cannot.extend(site.format_notes(&[DType::F32, DType::F16, DType::Bf16, DType::Fp8], how));
    let kv = site.plan.formats.kv;
    if matches!(kv, DType::Int8 | DType::Int4 | DType::Int2) {
        cannot.push(format!("KV in {kv}: fp8 is the smallest"));
    }
    Ok(Export { files: Vec::new(), command: command(site, gpu, offloaded, &used), cannot, nearest })
}

/// The fewest first layers that hold the bytes that the plan keeps out of the GPU's memory.
fn like_the_plan(site: &Site<'_>, gpu: Gpu) -> usize {
    let mut away = Bytes::ZERO;
    for (index, layer) in site.placement.layers.iter().enumerate() {
        for &sublayer in site.sublayers(index).iter().filter(|&&s| s != Sublayer::Attention) {
            for slice in layer.slices(sublayer).iter().filter(|slice| slice.home != gpu.memory) {
                away += sublayer.matrix_bytes(site.model, site.plan.formats.weights, &slice.rows);
            }
        }
    }
    let reached = |&first: &usize| layer_bytes(site, first) >= away;
    (0..site.placement.layers.len()).find(reached).unwrap_or(site.placement.layers.len())
}

/// Bytes of the matrices of the first `first` layers.
fn layer_bytes(site: &Site<'_>, first: usize) -> Bytes {
    let layers = (0..first).flat_map(|index| site.sublayers(index));
    layers.fold(Bytes::ZERO, |sum, &sublayer| sum + site.bytes(sublayer))
}

/// The placement that streams the weights of the first `offloaded` layers.
fn placement(site: &Site<'_>, gpu: Gpu, offloaded: usize) -> Placement {
    let layers = (0..site.placement.layers.len()).map(|index| {
        site.layer(index, |sublayer| {
            let away = index < offloaded && sublayer != Sublayer::Attention;
            site.on(sublayer, if away { site.dram } else { gpu.memory }, gpu.device)
        })
    });
    Placement {
        embed: site.on(Sublayer::Embed, gpu.memory, gpu.device),
        layers: layers.collect(),
        head: site.on(Sublayer::Head, gpu.memory, gpu.device),
        pipelining: Pipelining::default(),
    }
}

fn command(site: &Site<'_>, gpu: Gpu, offloaded: usize, used: &[MemoryUsage]) -> String {
    let (plan, workload) = (site.plan, &site.plan.workload);
    let mut words = vec![format!("vllm serve {}", quoted(&plan.model.name))];
    if offloaded > 0 {
        // Rounded down, since vLLM also offloads the parameter that reaches the limit.
        let gibibytes = layer_bytes(site, offloaded).gibibytes();
        words.push(format!("--cpu-offload-gb {:.3}", (gibibytes * 1000.0).floor() / 1000.0));
    }
    words.push(format!("--max-model-len {} --max-num-seqs {}", workload.context(), workload.batch));
    words.push(format!("--max-num-batched-tokens {}", workload.batch * plan.prefill_chunk));
    let share = site.used_share(gpu.memory, used[gpu.memory.0].total());
    words.push(format!("--gpu-memory-utilization {share:.2}"));
    let dtype = match plan.formats.weights.one() {
        Some(DType::F32) => "float32",
        Some(DType::F16) => "float16",
        Some(DType::Bf16) => "bfloat16",
        // The checkpoint decides.
        Some(_) | None => "auto",
    };
    let kv = match plan.formats.kv {
        DType::F32 | DType::F16 | DType::Bf16 => "auto",
        _ => "fp8",
    };
    let GroupDivision { tensor, stages, whole_experts } = site.machine.device(gpu.device).division();
    if let Some(word) = plan.formats.weights.one().and_then(quantisation) {
        words.push(format!("--quantization {word}"));
    }
    words.push(format!("--dtype {dtype} --kv-cache-dtype {kv} --tensor-parallel-size {tensor}"));
    if stages > 1 {
        words.push(format!("--pipeline-parallel-size {stages}"));
    }
    if whole_experts {
        words.push("--enable-expert-parallel".to_owned());
    }
    words.join(" ")
}

/// The value of `--quantization` for weights in `dtype`; `None` where the checkpoint says it, or
/// nothing is quantised.
fn quantisation(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 | DType::Fp8Block | DType::Int2 => None,
        DType::Fp8 => Some("fp8"),
        DType::Int8 | DType::Int4 => Some("compressed-tensors"),
        DType::Int4G128 => Some("awq_marlin"),
        DType::Mxfp4 => Some("mxfp4"),
        DType::Nvfp4 => Some("modelopt_fp4"),
        _ => Some("gguf"),
    }
}
