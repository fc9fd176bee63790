//! vLLM: the GPU computes everything; the weights of the first layers may stay in the host's
//! memory.

use super::super::difference::differences;
use super::super::engine_options::Export;
use super::super::export_error::ExportError;
use super::super::site::{Gpu, Site};
use super::front_offload::{layer_bytes, like_the_plan, placement};
use crate::memory::MemoryUsage;
use hwprofiles::{DType, GroupDivision};

pub(in super::super) fn export(site: &Site<'_>) -> Result<Export, ExportError> {
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

fn command(site: &Site<'_>, gpu: Gpu, offloaded: usize, used: &[MemoryUsage]) -> String {
    let (plan, workload) = (site.plan, &site.plan.workload);
    let mut words = vec![format!("vllm serve {}", site.checkpoint())];
    if offloaded > 0 {
        // Rounded down, since vLLM also offloads the parameter that reaches the limit.
        let gibibytes = layer_bytes(site, offloaded).gibibytes();
        words.push(format!("--cpu-offload-gb {:.3}", (gibibytes * 1000.0).floor() / 1000.0));
    }
    words.push(format!("--max-model-len {} --max-num-seqs {}", workload.context(), workload.batch));
    words.push(format!("--max-num-batched-tokens {}", workload.batch * plan.prefill_chunk));
    let share = site.used_share(gpu.memory, used[gpu.memory.0].total());
    words.push(format!("--gpu-memory-utilization {share:.2}"));
    let dtype = site.checkpoint_dtype();
    let kv = match plan.formats.kv {
        DType::F32 | DType::F16 | DType::Bf16 => "auto",
        _ => "fp8",
    };
    let GroupDivision { tensor, stages, whole_experts, data } = site.machine.device(gpu.device).division();
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
    if data > 1 {
        words.push(format!("--data-parallel-size {data}"));
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
