//! The setup of the executor's tests: a machine of two devices, the golden models, and placements
//! of every kind.
use crate::golden_files;
use executor::{Checkpoint, RunSetup, Session};
use hwprofiles::{DType, DeviceId, Machine, MemoryId};
use planner::{LayerPlacement, Pipelining, Placement, RunExtent, Slice, Slices, whole_slice};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use scenarios::{Formats, Model, Sublayer, WeightFormats};
use std::path::PathBuf;

pub const GOLDEN: [&str; 22] = [
    "opt",
    "llama_gqa",
    "llama3_rope",
    "qwen2",
    "qwen2_yarn",
    "qwen3",
    "mistral_sharded",
    "mixtral",
    "qwen3_moe",
    "gpt_oss",
    "gemma",
    "gemma2",
    "gemma3",
    "mistral_window",
    "phi",
    "phi3",
    "phi3_long",
    "gpt_neox",
    "gpt_neox_sequential",
    "gptj",
    "falcon_7b",
    "falcon_40b",
];
/// Models with other mixers than plain attention, other routers, or a shared expert.
pub const MIXERS: [&str; 16] = [
    "deepseek_v3",
    "deepseek_v2",
    "glm4_moe",
    "qwen3_next",
    "qwen3_next_square",
    "qwen3_5",
    "qwen3_5_heads",
    "qwen3_5_moe",
    "gemma3n",
    "gemma4",
    "gemma4_moe",
    "gemma4_shared",
    "nemotron_h",
    "nemotron_h_moe",
    "minimax_m2",
    "llama4",
];
/// Models with experts.
pub const EXPERTS: [&str; 3] = ["mixtral", "qwen3_moe", "gpt_oss"];
/// How much more rounding changes a model's logits than those of most models. The norms of q and k
/// in `gemma3` double both, and so increase the scores. In PyTorch's bf16 its logits have a cosine
/// of 0.9990 (median of 160 random tokens) where those of `gemma2`, `gemma` and `qwen3` have
/// 0.9998, and they differ by at most 0.20 of the largest logit where the others differ by 0.06.
/// LongRoPE lengthens queries and keys of `phi3_long` by 1.53 each, so its scores are 2.3 times as
/// large.
pub fn rounding(name: &str) -> f64 {
    match name {
        "gemma3" => 4.0,
        "phi3_long" => 2.0,
        _ => 1.0,
    }
}

pub const F32: Formats = formats(DType::F32, DType::F32);
pub const CPU: DeviceId = DeviceId(0);
pub const LOOPBACK: DeviceId = DeviceId(1);
pub const DRAM: MemoryId = MemoryId(0);
pub const LOOPBACK_MEMORY: MemoryId = MemoryId(1);
/// The most sequences of [`random`]'s placements.
pub const BATCH: usize = 5;
const OWN: [MemoryId; 2] = [DRAM, LOOPBACK_MEMORY];

pub const fn formats(weights: DType, kv: DType) -> Formats {
    Formats { weights: WeightFormats::all(weights), kv, activations: DType::F32 }
}

/// Two devices of one core each, with a link between their memories in each direction.
pub fn machine() -> Machine {
    let text = include_str!("../../../hwprofiles/data/example-loopback.yaml");
    let mut machine = Machine::from_yaml(text, "example-loopback.yaml").expect("the example is right");
    for device in &mut machine.devices {
        // The example is older than these formats, and their times do not matter here.
        let rates = device.attention[&DType::Bf16].clone();
        device.attention.extend([(DType::Int8, rates.clone()), (DType::Int2, rates)]);
    }
    machine
}

pub fn folder(name: &str) -> PathBuf {
    golden_files::folder(name)
}

pub fn checkpoint(name: &str) -> Checkpoint {
    Checkpoint::open(&folder(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub fn setup(model: &Model, placement: Placement, formats: Formats, extent: RunExtent) -> RunSetup {
    RunSetup { machine: machine(), model: model.clone(), formats, placement, extent, plan: "test".to_owned() }
}

pub fn session(
    checkpoint: &Checkpoint,
    placement: Placement,
    formats: Formats,
    extent: RunExtent,
) -> Session {
    Session::new(setup(checkpoint.model(), placement, formats, extent), checkpoint).expect("it fits")
}

/// Everything on the device, from its own memory.
pub fn on(model: &Model, device: DeviceId) -> Placement {
    Placement::uniform(model, device, OWN[device.0])
}

/// Each sublayer of a layer placed by `slices(layer, sublayer)`.
pub fn layered(
    model: &Model,
    embed: DeviceId,
    head: Slices,
    slices: impl Fn(u64, Sublayer) -> Slices,
) -> Placement {
    Placement {
        embed: vec![whole_slice(model, Sublayer::Embed, OWN[embed.0], embed, embed)],
        layers: (0..model.layers)
            .map(|layer| LayerPlacement::from_slices(model.kind(layer), |sublayer| slices(layer, sublayer)))
            .collect(),
        head,
        pipelining: Pipelining::default(),
    }
}

/// Attention on one device and the feed-forward network on the other, alternating by layers.
pub fn mixed(model: &Model) -> Placement {
    let resident = |shape: &Model, sublayer, device: DeviceId| {
        vec![whole_slice(shape, sublayer, OWN[device.0], device, device)]
    };
    layered(model, CPU, resident(model, Sublayer::Head, LOOPBACK), |layer, sublayer| {
        let ffn = matches!(sublayer, Sublayer::FfnUp | Sublayer::FfnDown | Sublayer::Experts);
        resident(model.layer(layer), sublayer, if ffn == (layer % 2 == 0) { LOOPBACK } else { CPU })
    })
}

/// Every matrix divided between the devices.
pub fn split(model: &Model) -> Placement {
    let divided = |model: &Model, sublayer: Sublayer| {
        let rows = sublayer.matrix(model).filter(|_| sublayer.is_divisible(model));
        let Some((rows, _)) = rows else {
            return vec![whole_slice(model, sublayer, DRAM, CPU, CPU)];
        };
        let panel = sublayer.panel();
        let at = (rows / 2).next_multiple_of(panel).min(rows - 1) / panel * panel;
        if at == 0 {
            return vec![whole_slice(model, sublayer, DRAM, CPU, CPU)];
        }
        let part =
            |rows, device: DeviceId| Slice { rows, home: OWN[device.0], prefill: device, decode: device };
        vec![part(0..at, CPU), part(at..rows, LOOPBACK)]
    };
    layered(model, CPU, divided(model, Sublayer::Head), |layer, sublayer| {
        divided(model.layer(layer), sublayer)
    })
}

/// Weights and KV at home in DRAM, computed on the loopback device through its staging slots.
pub fn streamed(model: &Model) -> Placement {
    let far = |model: &Model, sublayer| vec![whole_slice(model, sublayer, DRAM, LOOPBACK, LOOPBACK)];
    layered(model, LOOPBACK, far(model, Sublayer::Head), |layer, sublayer| far(model.layer(layer), sublayer))
}

/// Prefill streams everything to the loopback device, decode stays on the CPU.
pub fn by_phase(model: &Model) -> Placement {
    from_dram(model, LOOPBACK, CPU)
}

/// Prefill stays on the CPU, decode streams everything to the loopback device.
pub fn decode_far(model: &Model) -> Placement {
    from_dram(model, CPU, LOOPBACK)
}

/// Weights and KV at home in DRAM, each phase on its device.
fn from_dram(model: &Model, prefill: DeviceId, decode: DeviceId) -> Placement {
    let far = |model: &Model, sublayer| vec![whole_slice(model, sublayer, DRAM, prefill, decode)];
    layered(model, CPU, far(model, Sublayer::Head), |layer, sublayer| far(model.layer(layer), sublayer))
}

/// The same placement with each step in `micro_batches` micro-batches.
pub fn divided(mut placement: Placement, micro_batches: u64) -> Placement {
    placement.pipelining.micro_batches = micro_batches;
    placement
}

/// Every kind of placement, with its name.
pub fn placements(model: &Model) -> Vec<(&'static str, Placement)> {
    vec![
        ("all on cpu", on(model, CPU)),
        ("all on loopback", on(model, LOOPBACK)),
        ("mixed", mixed(model)),
        ("split", split(model)),
        ("streamed", streamed(model)),
        ("by phase", by_phase(model)),
    ]
}

/// Any placement that can run with [`BATCH`] sequences: 1 to 3 slices, any home, any device in each
/// phase, any number of staging slots and micro-batches. The slices of a layer's experts share
/// their devices, so that their outputs are added up in one order.
pub fn random(model: &Model, seed: u64) -> Placement {
    any(model, seed, false)
}

/// As [`random`], with the experts of a layer on any devices.
pub fn random_division(model: &Model, seed: u64) -> Placement {
    any(model, seed, true)
}

fn any(model: &Model, seed: u64, divide: bool) -> Placement {
    let random = std::cell::RefCell::new(Pcg64Mcg::seed_from_u64(seed));
    let pick = |n: usize| random.borrow_mut().random_range(0..n);
    let device = || DeviceId(pick(2));
    let slices = |model: &Model, sublayer: Sublayer| -> Slices {
        let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
        let divisible = sublayer.is_divisible(model);
        let panels = if divisible { (rows / sublayer.panel()) as usize } else { 1 };
        let cut = || (1 + pick(panels - 1)) as u64 * sublayer.panel();
        let mut cuts: Vec<u64> = (0..pick(3)).filter(|_| panels > 1).map(|_| cut()).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let starts = std::iter::once(0).chain(cuts.clone());
        let ends = cuts.iter().copied().chain(std::iter::once(rows));
        let together = (device(), device());
        let slice = |(start, end)| {
            let (prefill, decode) =
                if matches!(sublayer, Sublayer::Experts | Sublayer::SharedExpert) && !divide {
                    together
                } else {
                    (device(), device())
                };
            Slice { rows: start..end, home: MemoryId(pick(2)), prefill, decode }
        };
        starts.zip(ends).map(slice).collect()
    };
    let embed = device();
    let pipelining = Pipelining { slots: 1 + pick(5), micro_batches: 1 + pick(BATCH) as u64 };
    let placement = layered(model, embed, slices(model, Sublayer::Head), |layer, sublayer| {
        slices(model.layer(layer), sublayer)
    });
    Placement { pipelining, ..placement }
}

/// The cosine of the angle between two vectors.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    dot(a, b) / (dot(a, a).sqrt() * dot(b, b).sqrt())
}
