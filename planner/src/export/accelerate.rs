//! Transformers with Accelerate: a memory for every module (`device_map`); the GPU computes them
//! all.
//!
//! Where any module is mapped to the GPU, modules mapped to `cpu` or `disk` are copied to it for
//! every use; only a map without a GPU computes on the host. The KV cache is in the GPU's memory,
//! or all of it in the host's (`cache_implementation="offloaded"`) and streamed layer by layer.

use super::difference::differences;
use super::engine_options::Export;
use super::export_error::ExportError;
use super::shell::quoted;
use super::site::Site;
use crate::memory::MemoryUsage;
use crate::placement::Pipelining;
use crate::placement::Placement;
use hwprofiles::{DType, MemoryId};
use scenarios::{Architecture, BlockOrder, Model, Sublayer};
use serde_json::{Map, Value, json};

/// What the map and the options say, before they are written.
#[derive(Debug, Clone)]
struct Options {
    /// By layer, for each of its sublayers: the memory of its matrix.
    homes: Vec<Vec<MemoryId>>,
    head: MemoryId,
    kv: MemoryId,
    /// Whether there is a GPU in the map.
    with_gpu: bool,
}

pub(super) fn export(site: &Site<'_>) -> Result<Export, ExportError> {
    let uses_gpu = site.gpu.filter(|gpu| {
        let slices = || site.placement.sublayers().flat_map(|(.., slices)| slices);
        slices().any(|slice| slice.prefill == gpu.device || slice.decode == gpu.device)
    });
    let layers = site.placement.layers.len();
    let candidates: Vec<Options> = match uses_gpu {
        None => vec![Options::on_host(site)],
        Some(gpu) => {
            let kv = if site.kv_away(gpu) { vec![site.dram] } else { vec![gpu.memory, site.dram] };
            let closest = Options::closest(site, gpu.memory);
            let fewer = |kv| (0..=layers + 1).map(move |moved| (kv, moved));
            let moved = kv.into_iter().flat_map(fewer);
            moved.map(|(kv, moved)| Options { kv, ..closest.without(moved, site) }).collect()
        }
    };
    let (options, nearest, used) = site.first_fit(candidates, |options| options.placement(site))?;
    let mut cannot = differences(site, &nearest);
    let known = [DType::F32, DType::F16, DType::Bf16];
    cannot.extend(site.format_notes(&known, "give it a checkpoint quantised so (bitsandbytes, GPTQ, AWQ)"));
    if !known.contains(&site.plan.formats.kv) {
        cannot.push(format!("KV in {}: it is that of the weights' type", site.plan.formats.kv));
    }
    let map = serde_json::to_string_pretty(&options.device_map(site)).expect("names and words");
    let files =
        vec![("device_map.json".to_owned(), map + "\n"), ("run.py".to_owned(), options.script(site, &used))];
    Ok(Export { files, command: format!("python run.py {}", quoted(&site.plan.model.name)), cannot, nearest })
}

impl Options {
    fn on_host(site: &Site<'_>) -> Self {
        let layers = 0..site.placement.layers.len();
        let homes = layers.map(|index| vec![site.dram; site.sublayers(index).len()]).collect();
        Self { homes, head: site.dram, kv: site.dram, with_gpu: false }
    }

    fn closest(site: &Site<'_>, own: MemoryId) -> Self {
        let known = |home: MemoryId| match home {
            home if home == own || Some(home) == site.disk() => home,
            _ => site.dram,
        };
        // These kinds of attention cannot be split between devices: latent attention, attention
        // with sinks, and GPT-J's, which has its own table of rotations.
        let with_own = matches!(site.model.architecture, Architecture::GptOss | Architecture::GptJ);
        let one_module = site.model.latent().is_some() || with_own;
        let mapped_as =
            |sublayer| if one_module && sublayer == Sublayer::Out { Sublayer::Qkv } else { sublayer };
        let homes = (0..site.placement.layers.len()).map(|index| {
            site.sublayers(index)
                .iter()
                .map(|&sublayer| known(site.home(index, mapped_as(sublayer))))
                .collect()
        });
        // A tied head is the token table, which is not streamed.
        let tied = site.model.tied_embeddings;
        let head = if tied { own } else { known(Site::main(&site.placement.head).home) };
        Self { homes: homes.collect(), head, kv: own, with_gpu: true }
    }

    /// The same with the first `moved` layers in the host's memory instead of the GPU's; one more
    /// than there are layers also moves the head.
    fn without(&self, moved: usize, site: &Site<'_>) -> Self {
        let own = site.gpu.map(|gpu| gpu.memory);
        let mut fewer = self.clone();
        let homes = fewer.homes.iter_mut().take(moved).flatten();
        homes.filter(|home| Some(**home) == own).for_each(|home| *home = site.dram);
        if moved > self.homes.len() && !site.model.tied_embeddings {
            fewer.head = site.dram;
        }
        fewer
    }

    /// The placement that Accelerate makes of these options.
    fn placement(&self, site: &Site<'_>) -> Placement {
        let gpu = site.gpu.filter(|_| self.with_gpu);
        let device = gpu.map_or(site.host, |gpu| gpu.device);
        let own = gpu.map_or(site.dram, |gpu| gpu.memory);
        let layers = (0..self.homes.len()).map(|index| {
            let sublayers = site.sublayers(index);
            site.layer(index, |sublayer| {
                let at = sublayers.iter().position(|&other| other == sublayer).expect("its layer's");
                let home = if sublayer == Sublayer::Attention { self.kv } else { self.homes[index][at] };
                site.on(sublayer, home, device)
            })
        });
        Placement {
            embed: site.on(Sublayer::Embed, own, device),
            layers: layers.collect(),
            head: site.on(Sublayer::Head, self.head, device),
            pipelining: Pipelining::default(),
        }
    }

    /// A module's place in the map: the GPU's number, `cpu` or `disk`.
    fn place(&self, site: &Site<'_>, home: MemoryId) -> Value {
        match site.gpu {
            Some(gpu) if gpu.memory == home => json!(0),
            _ if home == site.dram => json!("cpu"),
            _ => json!("disk"),
        }
    }

    fn device_map(&self, site: &Site<'_>) -> Value {
        if !self.with_gpu {
            return json!({"": "cpu"});
        }
        let names = Names::from_model(site.model);
        let gpu = json!(0);
        let mut map = Map::new();
        for name in names.outside {
            map.insert((*name).to_owned(), gpu.clone());
        }
        for (index, homes) in self.homes.iter().enumerate() {
            let layer = format!("{}.{index}", names.layers);
            let placed = site.sublayers(index).iter().zip(homes).filter(|(s, _)| **s != Sublayer::Attention);
            let placed: Vec<_> =
                placed.map(|(&sublayer, &home)| (sublayer, self.place(site, home))).collect();
            if placed.windows(2).all(|pair| pair[0].1 == pair[1].1) {
                map.insert(layer, placed[0].1.clone());
                continue;
            }
            for module in names.norms.iter().chain(names.attention_norms(site.model, &placed)) {
                map.insert(format!("{layer}.{module}"), gpu.clone());
            }
            for (module, place) in names.modules(&placed) {
                map.insert(format!("{layer}.{module}"), place.clone());
            }
        }
        for head in names.heads {
            map.insert((*head).to_owned(), self.place(site, self.head));
        }
        Value::Object(map)
    }

    /// The program that loads and runs it.
    fn script(&self, site: &Site<'_>, used: &[MemoryUsage]) -> String {
        let gibibytes = |memory: MemoryId| used[memory.0].total().gibibytes().ceil().max(1.0);
        let mut limits = vec![format!(r#""cpu": "{}GiB""#, gibibytes(site.dram))];
        if let Some(gpu) = site.gpu.filter(|_| self.with_gpu) {
            limits.insert(0, format!(r#"0: "{}GiB""#, gibibytes(gpu.memory)));
        }
        let workload = &site.plan.workload;
        let dtype = match site.plan.formats.weights.usual() {
            DType::F32 => "float32",
            DType::F16 => "float16",
            _ => "bfloat16",
        };
        let offloaded = self.with_gpu && self.kv == site.dram;
        let cache = if offloaded { ", cache_implementation=\"offloaded\"" } else { "" };
        format!(
            r#"import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = sys.argv[1]
model = AutoModelForCausalLM.from_pretrained(
    folder,
    torch_dtype=torch.{dtype},
    device_map=json.load(open("device_map.json")),
    max_memory={{{limits}}},
    offload_folder="offload",
)
tokenizer = AutoTokenizer.from_pretrained(folder)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
prompts = [line.rstrip("\n") for line in sys.stdin][:{batch}]
inputs = tokenizer(prompts, return_tensors="pt", padding=True).to(model.device)
output = model.generate(**inputs, max_new_tokens={output}{cache})
print("\n".join(tokenizer.batch_decode(output, skip_special_tokens=True)))
"#,
            limits = limits.join(", "),
            batch = workload.batch,
            output = workload.output_tokens,
        )
    }
}

/// Module names of an architecture in Transformers.
struct Names {
    layers: &'static str,
    /// Modules outside the layers, without the head.
    outside: &'static [&'static str],
    /// The head, by each name that it has had.
    heads: &'static [&'static str],
    norms: &'static [&'static str],
    /// Attention as a whole.
    attention: &'static str,
    qkv: &'static [&'static str],
    out: &'static [&'static str],
    up: &'static [&'static str],
    down: &'static [&'static str],
    router: &'static [&'static str],
    experts: &'static [&'static str],
}

/// The names of Llama, which most later models share.
const LLAMA: Names = Names {
    layers: "model.layers",
    outside: &["model.embed_tokens", "model.rotary_emb", "model.norm"],
    heads: &["lm_head"],
    norms: &["input_layernorm", "post_attention_layernorm"],
    attention: "self_attn",
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    out: &["self_attn.o_proj"],
    up: &["mlp.gate_proj", "mlp.up_proj"],
    down: &["mlp.down_proj"],
    router: &["mlp.gate"],
    experts: &["mlp.experts"],
};

/// The names of Gemma 2 and 3, which have a norm before and after each half.
const GEMMA2: Names = Names {
    outside: &["model.embed_tokens", "model.rotary_emb", "model.rotary_emb_local", "model.norm"],
    norms: &[
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ],
    ..LLAMA
};

impl Names {
    fn from_model(model: &Model) -> Self {
        match model.architecture {
            Architecture::Opt => Self {
                layers: "model.decoder.layers",
                outside: &[
                    "model.decoder.embed_tokens",
                    "model.decoder.embed_positions",
                    "model.decoder.final_layer_norm",
                ],
                norms: &["self_attn_layer_norm", "final_layer_norm"],
                out: &["self_attn.out_proj"],
                up: &["fc1"],
                down: &["fc2"],
                ..LLAMA
            },
            Architecture::Mixtral => {
                Self { router: &["block_sparse_moe.gate"], experts: &["block_sparse_moe.experts"], ..LLAMA }
            }
            Architecture::Gemma2 | Architecture::Gemma3 => GEMMA2,
            Architecture::GptOss => Self { router: &["mlp.router"], ..LLAMA },
            Architecture::Phi => Self {
                outside: &["model.embed_tokens", "model.rotary_emb", "model.final_layernorm"],
                norms: &["input_layernorm"],
                out: &["self_attn.dense"],
                up: &["mlp.fc1"],
                down: &["mlp.fc2"],
                ..LLAMA
            },
            Architecture::Phi3 => Self { qkv: &["self_attn.qkv_proj"], up: &["mlp.gate_up_proj"], ..LLAMA },
            Architecture::GptNeoX => Self {
                layers: "gpt_neox.layers",
                outside: &["gpt_neox.embed_in", "gpt_neox.rotary_emb", "gpt_neox.final_layer_norm"],
                heads: &["embed_out", "lm_head"],
                attention: "attention",
                qkv: &["attention.query_key_value"],
                out: &["attention.dense"],
                ..LLAMA.with_4h()
            },
            Architecture::GptJ => Self {
                layers: "transformer.h",
                outside: &["transformer.wte", "transformer.ln_f"],
                norms: &["ln_1"],
                attention: "attn",
                up: &["mlp.fc_in"],
                down: &["mlp.fc_out"],
                ..LLAMA
            },
            Architecture::Falcon => Self {
                layers: "transformer.h",
                outside: &["transformer.word_embeddings", "transformer.rotary_emb", "transformer.ln_f"],
                norms: match model.wiring.block {
                    BlockOrder::Sequential | BlockOrder::MixerOnly | BlockOrder::NetworkOnly => LLAMA.norms,
                    BlockOrder::Parallel => &["ln_attn", "ln_mlp"],
                    BlockOrder::ParallelOneNorm => &["input_layernorm"],
                },
                attention: "self_attention",
                qkv: &["self_attention.query_key_value"],
                out: &["self_attention.dense"],
                ..LLAMA.with_4h()
            },
            _ => LLAMA,
        }
    }

    /// The same with the network's matrices named as in Megatron-LM.
    const fn with_4h(self) -> Self {
        Self { up: &["mlp.dense_h_to_4h"], down: &["mlp.dense_4h_to_h"], ..self }
    }

    /// The modules of a layer that is spread over several places, each with its place. Attention is
    /// one module where both of its projections are in one place.
    fn modules<'p>(&self, placed: &'p [(Sublayer, Value)]) -> Vec<(&'static str, &'p Value)> {
        let whole = whole_attention(placed);
        let names = |sublayer: Sublayer| match sublayer {
            Sublayer::Qkv if whole => std::slice::from_ref(&self.attention),
            Sublayer::Out if whole => &[][..],
            Sublayer::Qkv => self.qkv,
            Sublayer::Out => self.out,
            Sublayer::FfnUp => self.up,
            Sublayer::FfnDown => self.down,
            Sublayer::Router => self.router,
            Sublayer::SharedExpert => &["mlp.shared_experts"],
            Sublayer::Experts => self.experts,
            Sublayer::Embed | Sublayer::Attention | Sublayer::Head => &[],
        };
        let modules =
            placed.iter().map(|(sublayer, place)| names(*sublayer).iter().map(move |&name| (name, place)));
        modules.flatten().collect()
    }

    /// The norms within attention, where attention is not one module.
    fn attention_norms(&self, model: &Model, placed: &[(Sublayer, Value)]) -> &'static [&'static str] {
        match model.qk_norm && !whole_attention(placed) {
            true => &["self_attn.q_norm", "self_attn.k_norm"],
            false => &[],
        }
    }
}

/// Whether both of attention's projections are in one place.
fn whole_attention(placed: &[(Sublayer, Value)]) -> bool {
    let place = |wanted| placed.iter().find(|(sublayer, _)| *sublayer == wanted).map(|(_, place)| place);
    place(Sublayer::Qkv) == place(Sublayer::Out)
}
