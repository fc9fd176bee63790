//! DeepSpeed ZeRO-Inference: all weights in the GPU's memory, or all streamed from one other
//! memory.
//!
//! `offload_param` of ZeRO stage 3 names that memory: `cpu` or `nvme`. The GPU computes everything
//! and holds the KV cache.

use super::difference::differences;
use super::engine_options::Export;
use super::export_error::ExportError;
use super::shell::quoted;
use super::site::{Gpu, Site};
use crate::placement::Pipelining;
use crate::placement::Placement;
use hwprofiles::{DType, MemoryId};
use scenarios::Sublayer;
use serde_json::{Value, json};

/// Buffers for reads from disk, each as large as the largest matrix, so that some are filled while
/// others are copied.
const BUFFERS: u64 = 5;

pub(super) fn export(site: &Site<'_>) -> Result<Export, ExportError> {
    let gpu = site.gpu()?;
    let (home, nearest, _) = site.first_fit(homes(site, gpu), |&home| placement(site, gpu, home))?;
    let mut cannot = differences(site, &nearest);
    if home != gpu.memory {
        let table = "the token table: it is streamed like the layers, which the prediction leaves out";
        cannot.push(table.to_owned());
    }
    let how = "its weight quantisation is an option of ZeRO-Inference's examples";
    cannot.extend(site.format_notes(&[DType::F32, DType::F16, DType::Bf16], how));
    cannot.extend(site.kv_note(&[], "it is that of the activations' type"));
    let config = serde_json::to_string_pretty(&config(site, gpu, home)).expect("words and numbers");
    let files = vec![("ds_config.json".to_owned(), config + "\n"), ("run.py".to_owned(), script(site))];
    let command = format!("deepspeed --num_gpus 1 run.py {}", quoted(&site.plan.model.name));
    Ok(Export { files, command, cannot, nearest })
}

/// The memories that could hold all weights, the one that holds most of the plan's weights first.
fn homes(site: &Site<'_>, gpu: Gpu) -> Vec<MemoryId> {
    let share = |memory: MemoryId| -> u64 {
        let layers = site.placement.sublayers().filter(|(layer, ..)| layer.is_some());
        let slices = layers.flat_map(|(_, s, slices)| slices.iter().map(move |p| (s, p)));
        let here = slices.filter(|(_, slice)| slice.home == memory);
        here.map(|(s, p)| s.matrix_bytes(site.model, site.plan.formats.weights, &p.rows).get()).sum()
    };
    let mut homes: Vec<_> = [Some(gpu.memory), Some(site.dram), site.disk()].into_iter().flatten().collect();
    homes.sort_by_key(|&home| std::cmp::Reverse(share(home)));
    homes
}

fn placement(site: &Site<'_>, gpu: Gpu, home: MemoryId) -> Placement {
    let layers = (0..site.placement.layers.len()).map(|index| {
        site.layer(index, |sublayer| {
            let home = if sublayer == Sublayer::Attention { gpu.memory } else { home };
            site.on(sublayer, home, gpu.device)
        })
    });
    let tied = site.model.tied_embeddings;
    Placement {
        embed: site.on(Sublayer::Embed, gpu.memory, gpu.device),
        layers: layers.collect(),
        head: site.on(Sublayer::Head, if tied { gpu.memory } else { home }, gpu.device),
        pipelining: Pipelining::default(),
    }
}

/// The JSON document.
fn config(site: &Site<'_>, gpu: Gpu, home: MemoryId) -> Value {
    let values = |sublayer: Sublayer| sublayer.matrix(site.model).map_or(0, |(rows, columns)| rows * columns);
    let layer = |index: usize| site.sublayers(index).iter().map(|&s| values(s)).sum::<u64>();
    let largest_layer = (0..site.placement.layers.len()).map(layer).max().unwrap_or(0);
    let matrices = (0..site.placement.layers.len()).flat_map(|index| site.sublayers(index));
    let largest = matrices.map(|&s| values(s)).chain([values(Sublayer::Head)]).max().unwrap_or(0);
    let mut zero = json!({
        "stage": 3,
        "stage3_prefetch_bucket_size": largest_layer,
        "stage3_param_persistence_threshold": site.model.hidden,
        // The layer that is computed and the one that is fetched meanwhile.
        "stage3_max_live_parameters": (2 * largest_layer).max(largest),
    });
    let mut aio = None;
    if home == site.dram {
        zero["offload_param"] = json!({"device": "cpu", "pin_memory": true});
    } else if home != gpu.memory {
        zero["offload_param"] = json!({
            "device": "nvme",
            "nvme_path": "offload",
            "pin_memory": true,
            "buffer_count": BUFFERS,
            "buffer_size": largest,
        });
        aio = Some(json!({
            "block_size": 1 << 20,
            "queue_depth": 32,
            "thread_count": 1,
            "single_submit": false,
            "overlap_events": true,
        }));
    }
    let weights = site.plan.formats.weights.usual();
    let mut document = json!({
        "fp16": {"enabled": weights == DType::F16},
        "bf16": {"enabled": weights != DType::F16 && weights != DType::F32},
        "train_micro_batch_size_per_gpu": site.plan.workload.batch,
        "zero_optimization": zero,
    });
    if let Some(aio) = aio {
        document["aio"] = aio;
    }
    document
}

/// The program that loads and runs it.
fn script(site: &Site<'_>) -> String {
    let workload = &site.plan.workload;
    let dtype = match site.plan.formats.weights.usual() {
        DType::F32 => "float32",
        DType::F16 => "float16",
        _ => "bfloat16",
    };
    format!(
        r#"import json
import sys

import deepspeed
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import HfDeepSpeedConfig

folder = next(word for word in sys.argv[1:] if not word.startswith("--"))
config = json.load(open("ds_config.json"))
keep = HfDeepSpeedConfig(config)  # before the model, so that it is loaded in parts
model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.{dtype})
engine = deepspeed.initialize(model=model, config_params=config)[0]
engine.module.eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
prompts = [line.rstrip("\n") for line in sys.stdin][:{batch}]
inputs = tokenizer(prompts, return_tensors="pt", padding=True).to("cuda")
with torch.no_grad():
    output = engine.module.generate(**inputs, max_new_tokens={output})
print("\n".join(tokenizer.batch_decode(output, skip_special_tokens=True)))
"#,
        batch = workload.batch,
        output = workload.output_tokens,
    )
}
