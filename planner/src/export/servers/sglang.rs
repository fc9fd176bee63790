//! SGLang: the GPU computes everything; the weights of the first layers may stay in the host's
//! memory, a whole number of 2³⁰ bytes of them.

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
    // The parameter that reaches the limit is offloaded too, so that layers begin below it.
    let offloaded = |&gibibytes: &u64| {
        let begins = |&first: &usize| layer_bytes(site, first).gibibytes() >= gibibytes as f64;
        (0..layers).find(begins).unwrap_or(layers)
    };
    let least = layer_bytes(site, like_the_plan(site, gpu)).gibibytes().ceil() as u64;
    let most = layer_bytes(site, layers).gibibytes().ceil() as u64;
    let (gibibytes, nearest, used) =
        site.first_fit(least..=most, |gibibytes| placement(site, gpu, offloaded(gibibytes)))?;
    let mut cannot = differences(site, &nearest);
    let how = "give it a checkpoint quantised so, which it recognises";
    cannot.extend(site.format_notes(&[DType::F32, DType::F16, DType::Bf16, DType::Fp8], how));
    cannot.extend(site.kv_note(&[DType::Fp8], "fp8 is the smallest"));
    Ok(Export { files: Vec::new(), command: command(site, gpu, gibibytes, &used), cannot, nearest })
}

fn command(site: &Site<'_>, gpu: Gpu, gibibytes: u64, used: &[MemoryUsage]) -> String {
    let (plan, workload) = (site.plan, &site.plan.workload);
    let mut words = vec![format!("python -m sglang.launch_server --model-path {}", site.checkpoint())];
    words.extend((gibibytes > 0).then(|| format!("--cpu-offload-gb {gibibytes}")));
    words.push(format!("--context-length {}", workload.context()));
    let tokens = workload.batch * workload.context();
    words.push(format!("--max-running-requests {} --max-total-tokens {tokens}", workload.batch));
    words.push(format!("--chunked-prefill-size {}", workload.batch * plan.prefill_chunk));
    let share = site.used_share(gpu.memory, used[gpu.memory.0].total());
    words.push(format!("--mem-fraction-static {share:.2}"));
    let dtype = site.checkpoint_dtype();
    words.extend((plan.formats.weights.one() == Some(DType::Fp8)).then(|| "--quantization fp8".to_owned()));
    let kv = if plan.formats.kv == DType::Fp8 { "fp8_e4m3" } else { "auto" };
    let GroupDivision { tensor, stages, whole_experts, data } = site.machine.device(gpu.device).division();
    let tensor = tensor * data;
    words.push(format!("--dtype {dtype} --kv-cache-dtype {kv} --tensor-parallel-size {tensor}"));
    words.extend((stages > 1).then(|| format!("--pipeline-parallel-size {stages}")));
    words.extend(whole_experts.then(|| format!("--expert-parallel-size {tensor}")));
    words.extend((data > 1).then(|| format!("--data-parallel-size {data} --enable-dp-attention")));
    words.join(" ")
}
