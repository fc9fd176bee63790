//! What the options of llama.cpp, and of the engines around it, mean: any matrix or whole layers in
//! either memory, computed where they lie; KV caches by layer.
//!
//! - `-ngl N` puts the output projection and then N − 1 layers, counted from the last one, with
//!   their KV caches into the GPU's memory. The token table always stays with the host.
//! - `-ot PATTERN=BUFFER` overrides the memory of tensors by name.
//! - `--n-cpu-moe N` keeps the experts of the first N layers with the host.
//! - `-nkvo` keeps every KV cache, and with it attention, with the host.
//! - The GPU computes a product of at least 32 rows, or of as many as `GGML_OP_OFFLOAD_MIN_BATCH`
//!   says, with a matrix of the host, to which the matrix is copied; `--no-op-offload` turns this
//!   off.

use super::super::difference::differences;
use super::super::export_error::ExportError;
use super::super::site::{Gpu, Site};
use super::gguf::kv_type;
use crate::placement::Pipelining;
use crate::placement::{LayerPlacement, Placement, Slice, Slices, whole_slice};
use hwprofiles::{DeviceId, DeviceKind};
use scenarios::{Architecture, OffloadOptions, Sublayer};
use std::collections::BTreeMap;

/// What the options say, before they are written as words.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    /// By layer, for each of its sublayers: whether its matrix lies with the GPU.
    pub weights: Vec<Vec<bool>>,
    /// By layer, for each of its sublayers: whether it is of the experts or the FFN.
    large: Vec<Vec<bool>>,
    /// The first layer whose KV cache does.
    pub kv_from: usize,
    /// Whether the output projection does.
    pub head: bool,
    /// The rows from which on the GPU computes products with the host's matrices; none does where
    /// it is `None`.
    pub offloaded_rows: Option<u64>,
    /// By GPU: its layers, and the output projection as one more of the last. Empty where the first
    /// GPU works alone.
    pub split: Vec<u64>,
}

/// Which options an engine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Any matrix in either memory, and op-offload; from any number of rows on, or from 32 on.
    Matrices { any_rows: bool },
    /// Whole layers; with experts of the first layers, and the KV cache, with the host, or without.
    Layers { experts_and_kv: bool },
}

/// The options closest to a plan that fit.
pub(super) struct Closest {
    pub options: Options,
    /// The placement that the engine makes of them.
    pub nearest: Placement,
    /// What the engine cannot express.
    pub cannot: Vec<String>,
}

impl Closest {
    /// The options of an engine with `reach` that are closest to the plan. `site` gets the plan
    /// with its layers in the engine's order.
    ///
    /// # Errors
    /// The engine does not know the model, or nothing fits.
    pub fn to_plan(site: &mut Site<'_>, reach: Reach) -> Result<Self, ExportError> {
        if site.model.architecture == Architecture::GptJ {
            return Err(site.unsupported(format!("'{}'", site.model.name), "it does not know GPT-J"));
        }
        let exchanged = put_kv_at_the_back(site);
        let site = &*site;
        let own = Options::closest(site);
        let mut rows = Options::thresholds(site, reach);
        rows.sort_by_key(|&rows| u128::MAX - agreed_bytes(site, rows));
        // Where prefill runs matters more than one more layer with the GPU: op-offload stays as
        // long as anything fits with it.
        let candidates = rows.into_iter().flat_map(|offloaded_rows| {
            let own = Options { offloaded_rows, ..own.clone() };
            match reach {
                Reach::Matrices { .. } => own.fewer_matrices(),
                Reach::Layers { experts_and_kv } => own.fewer_layers(site, experts_and_kv),
            }
        });
        let (options, nearest, _) = site.first_fit(candidates, |options| options.placement(site))?;
        let mut cannot = differences(site, &nearest);
        if exchanged {
            cannot.push(
                "the order of layers: the GPU holds the KV caches of the last layers, so layers are exchanged"
                    .to_owned(),
            );
        }
        if site.machine.devices.iter().any(|device| device.kind == DeviceKind::Loopback) {
            cannot.push("the loopback device, which is Fulcrum's own".to_owned());
        }
        if copies(site, &nearest) && site.placement.pipelining.slots > 1 {
            cannot.push(
                "copies beside computation: it copies a matrix of the host, then multiplies".to_owned(),
            );
        }
        cannot.extend(kv_type(site.plan.formats.kv).1);
        Ok(Self { options, nearest, cannot })
    }
}

/// Reorders the plan's layers, and says whether that changed it: within a kind, layers whose KV
/// cache is with the GPU come last, since `-ngl` counts from the last layer.
fn put_kv_at_the_back(site: &mut Site<'_>) -> bool {
    let Some(gpu) = site.gpu else { return false };
    let before = site.placement.layers.clone();
    let mut kinds: BTreeMap<&[Sublayer], Vec<usize>> = BTreeMap::new();
    for index in 0..before.len() {
        kinds.entry(site.sublayers(index)).or_default().push(index);
    }
    for places in kinds.into_values() {
        let mut order = places.clone();
        order.sort_by_key(|&index| attends_there(&before[index], Some(gpu)));
        for (place, from) in places.into_iter().zip(order) {
            site.placement.layers[place] = before[from].clone();
        }
    }
    site.placement.layers != before
}

/// Whether the GPU copies a matrix of the host before it multiplies, into one buffer.
fn copies(site: &Site<'_>, placement: &Placement) -> bool {
    let far = |slice: &Slice| {
        [slice.prefill, slice.decode].iter().any(|&device| !site.machine.reads_in_place(device, slice.home))
    };
    placement.sublayers().any(|(.., slices)| slices.iter().any(far))
}

/// Whether the GPU computes the layer's attention in decode: the engine keeps the KV cache where it
/// is read, and does not stream it.
fn attends_there(layer: &LayerPlacement, gpu: Option<Gpu>) -> bool {
    layer.kv_home().is_some()
        && gpu.is_some_and(|gpu| layer.slices(Sublayer::Attention)[0].decode == gpu.device)
}

/// The device that multiplies `rows` rows with a matrix in the host's memory.
fn device_of_host_matrices(site: &Site<'_>, offloaded_rows: Option<u64>, rows: u64) -> DeviceId {
    match site.gpu {
        Some(gpu) if offloaded_rows.is_some_and(|least| rows >= least) => gpu.device,
        _ => site.host,
    }
}

/// Bytes of what the plan keeps out of the GPU's memory that the engine would compute where the
/// plan does, over both phases.
fn agreed_bytes(site: &Site<'_>, offloaded_rows: Option<u64>) -> u128 {
    let batch = site.plan.workload.batch;
    let of_slice = |layer: Option<u32>, sublayer: Sublayer, slice: &Slice| {
        let prefill_rows = if layer.is_none() { batch } else { batch * site.plan.prefill_chunk };
        let phases = [(slice.prefill, prefill_rows), (slice.decode, batch)].into_iter();
        let agreed =
            phases.filter(|&(device, rows)| device == device_of_host_matrices(site, offloaded_rows, rows));
        let shape = site.model.layer_or_ends(layer);
        let bytes = sublayer.matrix_bytes(shape, site.plan.formats.weights, &slice.rows);
        u128::from(bytes.get()) * agreed.count() as u128
    };
    let mut bytes = 0;
    for (layer, sublayer, slices) in site.placement.sublayers() {
        // Rows of the token table are read, not multiplied.
        let is_multiplied = sublayer != Sublayer::Embed;
        let with_host = |slice: &&Slice| site.gpu.is_none_or(|gpu| slice.home != gpu.memory);
        let slices = slices.iter().filter(|_| is_multiplied).filter(with_host);
        bytes += slices.map(|slice| of_slice(layer, sublayer, slice)).sum::<u128>();
    }
    bytes
}

impl Options {
    /// Every matrix and KV cache where the plan has it.
    fn closest(site: &Site<'_>) -> Self {
        let own = site.gpu.map(|gpu| gpu.memory);
        let layers = &site.placement.layers;
        let on_gpu = |slices: &Slices| Some(Site::main(slices).home) == own;
        let weights = layers.iter().enumerate().map(|(index, layer)| {
            site.sublayers(index).iter().map(|&sublayer| on_gpu(layer.slices(sublayer))).collect()
        });
        let kv = layers.iter().filter(|layer| attends_there(layer, site.gpu)).count();
        let of_network = |&sublayer: &Sublayer| {
            matches!(sublayer, Sublayer::FfnUp | Sublayer::FfnDown | Sublayer::Experts)
        };
        let large = (0..layers.len()).map(|index| site.sublayers(index).iter().map(of_network).collect());
        Self {
            weights: weights.collect(),
            large: large.collect(),
            kv_from: layers.len() - kv,
            head: on_gpu(&site.placement.head),
            offloaded_rows: Some(OffloadOptions::ROWS),
            split: vec![],
        }
    }

    /// Where the plan gives each of several GPUs a run of whole layers, and the last one also the
    /// output projection, as `-ts` does.
    pub fn whole_on_gpus(site: &Site<'_>) -> Option<Self> {
        let gpus: Vec<_> =
            site.machine.device_ids().filter(|&id| site.machine.device(id).kind == DeviceKind::Gpu).collect();
        let of = |slices: &Slices| {
            let alone = |&gpu: &DeviceId| {
                let memory = site.machine.device(gpu).memory;
                slices.iter().all(|it| it.home == memory && it.prefill == gpu && it.decode == gpu)
            };
            gpus.iter().position(alone)
        };
        let mut split = vec![0; gpus.len()];
        let mut before = 0;
        for layer in &site.placement.layers {
            let at = layer
                .iter()
                .map(|(_, slices)| of(slices))
                .reduce(|one, other| one.filter(|_| one == other))?;
            before = at.filter(|&at| at >= before)?;
            split[before] += 1;
        }
        let last = of(&site.placement.head)?;
        split[last] += 1;
        let on_host = site.placement.embed.iter().all(|it| it.home == site.dram && it.decode == site.host);
        let fits = gpus.len() > 1 && on_host && last + 1 == gpus.len() && before <= last;
        let layers = site.placement.layers.len();
        let weights = (0..layers).map(|index| vec![true; site.sublayers(index).len()]).collect();
        fits.then(|| Self { weights, kv_from: 0, head: true, split, ..Self::closest(site) })
    }

    /// The numbers of rows for op-offload that tell the plan's phases apart.
    fn thresholds(site: &Site<'_>, reach: Reach) -> Vec<Option<u64>> {
        let (usual, decode) = (OffloadOptions::ROWS, site.plan.workload.batch);
        match (site.gpu, reach) {
            (None, _) => vec![None],
            (Some(_), Reach::Layers { .. }) => vec![Some(usual)],
            (Some(_), Reach::Matrices { any_rows: false }) => vec![Some(usual), None],
            (Some(_), Reach::Matrices { any_rows: true }) => {
                let other = if decode < usual { decode } else { decode + 1 };
                vec![Some(usual), None, Some(other)]
            }
        }
    }

    /// These options, and then with less and less in the GPU's memory.
    fn fewer_matrices(self) -> Vec<Self> {
        (0..=2 * self.weights.len() + 1).map(|moved| self.without(moved)).collect()
    }

    /// Whole layers like these options, and then with less and less in the GPU's memory.
    fn fewer_layers(self, site: &Site<'_>, experts_and_kv: bool) -> Vec<Self> {
        let layers = self.weights.len();
        let count = |layer: &dyn Fn(usize) -> bool| (0..layers).filter(|&index| layer(index)).count();
        let with_gpu = |index: usize, large: bool| {
            let mut pairs = self.weights[index].iter().zip(&self.large[index]);
            pairs.any(|(&with_gpu, &is_large)| with_gpu && is_large == large)
        };
        let mixture = experts_and_kv && site.model.experts.is_some();
        let sizes: Vec<(usize, usize)> = if mixture {
            let held = count(&|index| with_gpu(index, false));
            let with_host = count(&|index| !with_gpu(index, true));
            let whole = (0..held).rev().map(|held| (held, layers));
            (with_host..=layers).map(|with_host| (held, with_host)).chain(whole).collect()
        } else {
            // As many whole layers as the bytes of the plan's matrices with the GPU make.
            let bytes = |index: usize, all: bool| -> u64 {
                let pairs = site.sublayers(index).iter().zip(&self.weights[index]);
                pairs.filter(|(_, with_gpu)| all || **with_gpu).map(|(&s, _)| site.bytes(s).get()).sum()
            };
            let mut left: u64 = (0..layers).map(|index| bytes(index, false)).sum();
            let held = (0..layers).rev().take_while(|&index| {
                let takes = bytes(index, true);
                let room = takes <= left;
                left = left.saturating_sub(takes);
                room
            });
            (0..=held.count()).rev().map(|held| (held, 0)).collect()
        };
        let kv_away = experts_and_kv && site.gpu.is_some_and(|gpu| site.kv_away(gpu));
        let whole = |(held, with_host): (usize, usize), head: bool| {
            let first = layers - held;
            let weights = self.large.iter().enumerate().map(|(index, large)| {
                large.iter().map(|&large| index >= first && !(large && index < with_host)).collect()
            });
            let kv_from = if kv_away { layers } else { first };
            Self { weights: weights.collect(), kv_from, head, ..self.clone() }
        };
        let last = [whole((0, layers), false)];
        sizes.into_iter().map(|size| whole(size, site.gpu.is_some())).chain(last).collect()
    }

    /// The same with the experts, or the FFN, of the first `moved` layers kept by the host; beyond
    /// the number of layers also the rest of the first ones, and at last the output projection.
    fn without(&self, moved: usize) -> Self {
        let layers = self.weights.len();
        let whole = moved.saturating_sub(layers);
        let mut fewer = self.clone();
        for (weights, large) in fewer.weights.iter_mut().zip(&self.large).take(moved) {
            weights.iter_mut().zip(large).for_each(|(with_gpu, large)| *with_gpu &= !large);
        }
        fewer.weights.iter_mut().take(whole).for_each(|layer| layer.fill(false));
        fewer.kv_from = self.kv_from.max(whole.min(layers));
        fewer.head &= whole <= layers;
        fewer
    }

    /// The placement that llama.cpp makes of these options.
    pub fn placement(&self, site: &Site<'_>) -> Placement {
        let (host, dram) = (site.host, site.dram);
        let batch = site.plan.workload.batch;
        let away = |sublayer, prefill_rows: u64, decode_rows: u64| {
            let device = |rows| device_of_host_matrices(site, self.offloaded_rows, rows);
            vec![whole_slice(site.model, sublayer, dram, device(prefill_rows), device(decode_rows))]
        };
        let placed = |sublayer, with_gpu: bool, rows| match site.gpu {
            Some(gpu) if with_gpu => site.on(sublayer, gpu.memory, gpu.device),
            _ if sublayer == Sublayer::Attention => site.on(sublayer, dram, host),
            _ => away(sublayer, rows, batch),
        };
        let layers = (0..self.weights.len()).map(|index| {
            let sublayers = site.sublayers(index);
            site.layer(index, |sublayer| {
                let at = sublayers.iter().position(|&other| other == sublayer).expect("its layer's");
                let with_gpu = match sublayer {
                    Sublayer::Attention => index >= self.kv_from,
                    _ => self.weights[index][at],
                };
                placed(sublayer, with_gpu, batch * site.plan.prefill_chunk)
            })
        });
        let mut placement = Placement {
            embed: site.on(Sublayer::Embed, dram, host),
            layers: layers.collect(),
            head: placed(Sublayer::Head, self.head, batch),
            pipelining: Pipelining::default(),
        };
        if copies(site, &placement) {
            placement.pipelining.slots = 1;
        }
        placement
    }

    /// The value of `-ngl`, and whether `-nkvo` is needed.
    pub fn default_layers(&self) -> (usize, bool) {
        let layers = self.weights.len();
        let any = self.weights.iter().flatten().any(|&with_gpu| with_gpu);
        if self.kv_from < layers {
            (layers - self.kv_from + 1, false)
        } else if any {
            (layers + 1, true)
        } else {
            (usize::from(self.head), false)
        }
    }

    /// The value of `--n-cpu-moe`: the number of first layers that keep all experts with the host,
    /// where no later layer does; 0 where the option cannot say it or `-ngl` already does.
    pub fn host_experts(&self, site: &Site<'_>) -> usize {
        let (counted, _) = self.default_layers();
        let layers = self.weights.len();
        let experts: Vec<_> = (0..layers)
            .filter_map(|index| {
                let at = site.sublayers(index).iter().position(|&s| s == Sublayer::Experts)?;
                Some((index, self.weights[index][at]))
            })
            .collect();
        let with_host = experts.iter().take_while(|(_, with_gpu)| !with_gpu).count();
        let in_front = experts[with_host..].iter().all(|(_, with_gpu)| *with_gpu);
        let last = experts[..with_host].last().map_or(0, |(index, _)| index + 1);
        if in_front && last + counted > layers { last } else { 0 }
    }
}
