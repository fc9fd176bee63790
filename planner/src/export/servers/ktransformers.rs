//! KTransformers, as SGLang's backend for mixtures of experts: the host computes experts, the GPU
//! everything else.
//!
//! `--kt-num-gpu-experts N` puts N experts of every layer into the GPU's memory; the host computes
//! the others from its own in both phases. The engine chooses the N by counting how often tokens
//! use each.

use super::super::difference::differences;
use super::super::engine_options::Export;
use super::super::export_error::ExportError;
use super::super::shell::quoted;
use super::super::site::{Gpu, Site};
use crate::memory::MemoryUsage;
use crate::placement::Pipelining;
use crate::placement::{Placement, Slice, Slices};
use hwprofiles::{DType, MemoryKind};
use scenarios::{Sublayer, WeightClass, WeightFormats};

pub(in super::super) fn export(site: &Site<'_>) -> Result<Export, ExportError> {
    let gpu = site.gpu()?;
    let Some(experts) = &site.model.experts else {
        return Err(
            site.unsupported(format!("'{}'", site.model.name), "it places the experts of mixtures alone")
        );
    };
    let fewer = (0..=like_the_plan(site, gpu)).rev();
    let (with_gpu, nearest, used) = site.first_fit(fewer, |&count| placement(site, gpu, count))?;
    let mut cannot = differences(site, &nearest);
    if (1..experts.count).contains(&with_gpu) {
        cannot.push(
            "the most popular experts by name: --kt-expert-placement-strategy chooses them by counts"
                .to_owned(),
        );
    }
    cannot.extend(format_notes(site.plan.formats.weights));
    cannot.extend(site.kv_note(&[], "this command leaves it in the activations' type"));
    Ok(Export { files: Vec::new(), command: command(site, gpu, with_gpu, &used), cannot, nearest })
}

/// Notes on formats. KTransformers knows some formats of experts; SGLang takes all other weights
/// from the checkpoint as they are.
fn format_notes(weights: WeightFormats) -> Vec<String> {
    let experts = weights.for_class(WeightClass::Experts);
    let mixed = experts.one().is_none().then(|| {
        format!("experts in {experts}: the host's kernels take one format, here {}", experts.main())
    });
    let unknown = match experts.main() {
        dtype @ (DType::Nvfp4 | DType::Int4G128) => Some(format!(
            "weights in {dtype}: the host's kernels know bf16, fp8, int8, int4 in groups of 32, mxfp4 and GGUF files"
        )),
        dtype @ (DType::F32 | DType::F16) => {
            Some(format!("weights in {dtype}: the host's kernels take bf16"))
        }
        _ => None,
    };
    let quantised =
        weights.classes().filter(|(_, format)| *format != experts && format.main().is_quantised());
    let others = quantised.map(|(class, format)| {
        format!("{class} in {format}: give it a checkpoint quantised so, which SGLang recognises")
    });
    mixed.into_iter().chain(unknown).chain(others).collect()
}

/// The value of `--kt-method` for experts in `dtype`.
fn method(dtype: DType, amx: bool) -> &'static str {
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => "BF16",
        DType::Fp8 | DType::Fp8Block => "FP8",
        DType::Mxfp4 | DType::Nvfp4 => "MXFP4",
        // int4 as the checkpoint has it, without a conversion.
        DType::Int4G128 => "RAWINT4",
        DType::Int8 if amx => "AMXINT8",
        DType::Int4 if amx => "AMXINT4",
        // The kernels for CPUs without AMX, and those for other formats, read GGUF files.
        _ => "LLAMAFILE",
    }
}

/// The mean number of experts in a layer that the plan keeps with the GPU, rounded up.
fn like_the_plan(site: &Site<'_>, gpu: Gpu) -> u64 {
    let layers = (0..site.placement.layers.len()).filter(|&index| has_experts(site, index));
    let (mut count, mut with_gpu) = (0, 0);
    for index in layers {
        count += 1;
        let slices = site.placement.layers[index].slices(Sublayer::Experts);
        let own = slices.iter().filter(|slice| slice.home == gpu.memory);
        with_gpu += own.map(|slice| slice.rows.end - slice.rows.start).sum::<u64>();
    }
    with_gpu.div_ceil(count.max(1))
}

fn has_experts(site: &Site<'_>, index: usize) -> bool {
    site.sublayers(index).contains(&Sublayer::Experts)
}

/// The placement that keeps the first `with_gpu` experts of every layer with the GPU.
fn placement(site: &Site<'_>, gpu: Gpu, with_gpu: u64) -> Placement {
    let there = |sublayer| site.on(sublayer, gpu.memory, gpu.device);
    let all = Sublayer::Experts.matrix(site.model).map_or(0, |(experts, _)| experts);
    let part = |rows, home, device| Slice { rows, home, prefill: device, decode: device };
    let experts: Slices =
        [part(0..with_gpu, gpu.memory, gpu.device), part(with_gpu..all, site.dram, site.host)]
            .into_iter()
            .filter(|slice| !slice.rows.is_empty())
            .collect();
    let layer = |index| {
        site.layer(index, |sublayer| match sublayer {
            Sublayer::Experts => experts.clone(),
            _ => there(sublayer),
        })
    };
    Placement {
        embed: there(Sublayer::Embed),
        layers: (0..site.placement.layers.len()).map(layer).collect(),
        head: there(Sublayer::Head),
        pipelining: Pipelining::default(),
    }
}

fn command(site: &Site<'_>, gpu: Gpu, with_gpu: u64, used: &[MemoryUsage]) -> String {
    let (plan, workload, host) = (site.plan, &site.plan.workload, site.machine.device(site.host));
    let weights = plan.formats.weights.for_class(WeightClass::Experts).main();
    let amx = host.details.ceilings.values().any(|by_instructions| by_instructions.contains_key("amx"));
    let method = method(weights, amx);
    let name = quoted(&plan.model.name);
    let mut words = vec![format!("python -m sglang.launch_server --model {name}")];
    // The host's kernels read the checkpoint itself, or a copy converted for them.
    let converted =
        if matches!(weights, DType::Int8 | DType::Int4) { format!("-{method}") } else { String::new() };
    let path = quoted(&format!("{}{converted}", plan.model.name));
    words.push(format!("--kt-method {method} --kt-weight-path {path}"));
    words.extend((!host.cores.is_empty()).then(|| format!("--kt-cpuinfer {}", host.cores.len())));
    let nodes = site.machine.memories.iter().filter(|memory| memory.kind == MemoryKind::Dram).count();
    words.push(format!("--kt-threadpool-count {nodes} --kt-num-gpu-experts {with_gpu}"));
    let share = site.used_share(gpu.memory, used[gpu.memory.0].total());
    words.push(format!("--mem-fraction-static {share:.2}"));
    words.push(format!("--context-length {}", workload.context()));
    let tokens = workload.batch * workload.context();
    words.push(format!("--max-running-requests {} --max-total-tokens {tokens}", workload.batch));
    words.push(format!("--chunked-prefill-size {}", workload.batch * plan.prefill_chunk));
    words.push("--tensor-parallel-size 1".to_owned());
    words.join(" ")
}
