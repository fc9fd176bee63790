//! llama.cpp: any matrix in either memory (`-ot`), computed where it lies; KV caches by layer.
//!
//! What the options mean in current versions of `llama-server`:
//! - `-ngl N` puts the output projection and then N − 1 layers, counted from the last one, with
//!   their KV caches into the GPU's memory. The token table always stays with the host.
//! - `-ot PATTERN=BUFFER` overrides the memory of tensors by name.
//! - `--n-cpu-moe N` keeps the experts of the first N layers with the host.
//! - `-nkvo` keeps every KV cache, and with it attention, with the host.
//! - The GPU computes a product of at least 32 rows with a matrix of the host, to which the matrix
//!   is copied; `--no-op-offload` turns this off.

use super::difference::differences;
use super::engine_options::Export;
use super::export_error::ExportError;
use super::gguf::{ModelFile, kv_type, tensors};
use super::shell::quoted;
use super::site::{Gpu, Site};
use crate::placement::Pipelining;
use crate::placement::{LayerPlacement, Placement, Slice, Slices, whole_slice};
use hwprofiles::DeviceKind;
use scenarios::{Architecture, Phase, Sublayer};
use std::collections::BTreeMap;

/// The GPU computes products of at least this many rows with a matrix of the host.
const OFFLOADED_ROWS: u64 = 32;

/// What the options say, before they are written as words.
#[derive(Debug, Clone, PartialEq)]
struct Options {
    /// By layer, for each of its sublayers: whether its matrix lies with the GPU.
    weights: Vec<Vec<bool>>,
    /// By layer, for each of its sublayers: whether it is of the experts or the FFN.
    large: Vec<Vec<bool>>,
    /// The first layer whose KV cache does.
    kv_from: usize,
    /// Whether the output projection does.
    head: bool,
    /// Whether the GPU computes large products with the host's matrices.
    op_offload: bool,
}

pub(super) fn export(site: Site<'_>) -> Result<Export, ExportError> {
    if site.model.architecture == Architecture::GptJ {
        return Err(site.unsupported(format!("'{}'", site.model.name), "it does not know GPT-J"));
    }
    let (site, exchanged) = with_kv_at_the_back(site);
    let closest = Options::closest(&site);
    let layers = site.placement.layers.len();
    let offloads: &[bool] = match (site.gpu, prefers_op_offload(&site, &closest)) {
        (None, _) => &[false],
        (Some(_), true) => &[true, false],
        (Some(_), false) => &[false, true],
    };
    // Where prefill runs matters more than one more layer with the GPU: op-offload stays as long as
    // anything fits with it.
    let candidates = offloads.iter().flat_map(|&op_offload| {
        let closest = &closest;
        (0..=2 * layers + 1).map(move |moved| Options { op_offload, ..closest.without(moved) })
    });
    let (options, nearest, _) = site.first_fit(candidates, |options| options.placement(&site))?;
    let mut cannot = differences(&site, &nearest);
    if exchanged {
        cannot.push(
            "the order of layers: the GPU holds the KV caches of the last layers, so layers are exchanged"
                .to_owned(),
        );
    }
    if site.machine.devices.iter().any(|device| device.kind == DeviceKind::Loopback) {
        cannot.push("the loopback device, which is Fulcrum's own".to_owned());
    }
    if copies(&site, &nearest) && site.placement.pipelining.slots > 1 {
        cannot.push("copies beside computation: it copies a matrix of the host, then multiplies".to_owned());
    }
    cannot.extend(kv_type(site.plan.formats.kv).1);
    let file = ModelFile::from_plan(&site);
    cannot.extend(file.cannot.clone());
    let command = options.command(&site, &file.name);
    Ok(Export { files: file.quantise.into_iter().collect(), command, cannot, nearest })
}

/// The same plan with its layers reordered: within a kind, layers whose KV cache is with the GPU
/// come last, since `-ngl` counts from the last layer.
fn with_kv_at_the_back(mut site: Site<'_>) -> (Site<'_>, bool) {
    let Some(gpu) = site.gpu else { return (site, false) };
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
    let exchanged = site.placement.layers != before;
    (site, exchanged)
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

/// Whether op-offload computes more of the matrices' bytes on the plan's own devices than it would
/// without.
fn prefers_op_offload(site: &Site<'_>, options: &Options) -> bool {
    let same = |op_offload: bool| -> u128 {
        let placement = Options { op_offload, ..options.clone() }.placement(site);
        let pairs = site.placement.sublayers().zip(placement.sublayers());
        let agreed = pairs.map(|((_, sublayer, plan), (.., near))| {
            let (plan, near) = (Site::main(plan), Site::main(near));
            let phases = [Phase::Prefill, Phase::Decode].into_iter();
            let phases = phases.filter(|&phase| plan.device(phase) == near.device(phase)).count();
            u128::from(site.bytes(sublayer).get()) * phases as u128
        });
        agreed.sum()
    };
    // Op-offload is the default.
    same(true) >= same(false)
}

impl Options {
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
            op_offload: true,
        }
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
    fn placement(&self, site: &Site<'_>) -> Placement {
        let (host, dram) = (site.host, site.dram);
        let batch = site.plan.workload.batch;
        let away = |sublayer, prefill_rows: u64, decode_rows: u64| {
            let device = |rows| match site.gpu {
                Some(gpu) if self.op_offload && rows >= OFFLOADED_ROWS => gpu.device,
                _ => host,
            };
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
    fn default_layers(&self) -> (usize, bool) {
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
    fn host_experts(&self, site: &Site<'_>) -> usize {
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

    /// The `-ot` patterns for tensors that `-ngl` and `--n-cpu-moe` put elsewhere.
    fn overrides(&self, site: &Site<'_>) -> Vec<String> {
        let host_experts = self.host_experts(site);
        let (counted, _) = self.default_layers();
        let layers = self.weights.len();
        let mut by_tensor: BTreeMap<(&str, bool), Vec<usize>> = BTreeMap::new();
        for (index, weights) in self.weights.iter().enumerate() {
            let default = index + counted > layers;
            for (&sublayer, &with_gpu) in site.sublayers(index).iter().zip(weights) {
                let default = default && !(sublayer == Sublayer::Experts && index < host_experts);
                if let Some(tensors) = tensors(site, sublayer).filter(|_| with_gpu != default) {
                    by_tensor.entry((tensors, with_gpu)).or_default().push(index);
                }
            }
        }
        let mut by_layers: BTreeMap<(Vec<usize>, bool), Vec<&str>> = BTreeMap::new();
        for ((tensors, with_gpu), layers) in by_tensor {
            by_layers.entry((layers, with_gpu)).or_default().push(tensors);
        }
        let buffer = |with_gpu: bool| if with_gpu { "CUDA0" } else { "CPU" };
        let pattern = |((numbers, with_gpu), tensors): ((Vec<usize>, bool), Vec<&str>)| {
            let numbers = match numbers.len() == layers {
                true => "[0-9]+".to_owned(),
                false => alternatives(&numbers.iter().map(usize::to_string).collect::<Vec<_>>()),
            };
            format!(r"blk\.{numbers}\.{}\.={}", alternatives(&tensors), buffer(with_gpu))
        };
        let mut patterns: Vec<_> = by_layers.into_iter().map(pattern).collect();
        if self.head != (counted > 0) {
            // A tied output projection is the token table.
            patterns.push(format!(r"^(output|token_embd)\.weight$={}", buffer(self.head)));
        }
        patterns
    }

    fn command(&self, site: &Site<'_>, file: &str) -> String {
        let (plan, workload) = (site.plan, &site.plan.workload);
        let (counted, kv_with_host) = self.default_layers();
        let mut words = vec![format!("llama-server -m {} -ngl {counted}", quoted(file))];
        let overrides = self.overrides(site);
        if !overrides.is_empty() {
            words.push(format!("-ot '{}'", overrides.join(",")));
        }
        let host_experts = self.host_experts(site);
        words.extend((host_experts > 0).then(|| format!("--n-cpu-moe {host_experts}")));
        words.extend(kv_with_host.then(|| "-nkvo".to_owned()));
        words.extend((site.gpu.is_some() && !self.op_offload).then(|| "--no-op-offload".to_owned()));
        let threads = site.machine.device(site.host).cores.len();
        words.extend((threads > 0).then(|| format!("-t {threads}")));
        let rows = workload.batch * plan.prefill_chunk;
        words.push(format!("-c {} -np {}", workload.batch * workload.context(), workload.batch));
        words.push(format!("-b {rows} -ub {rows}"));
        let kv = kv_type(plan.formats.kv).0;
        words.push(format!("-ctk {kv} -ctv {kv}"));
        // Quantised caches need flash attention.
        words.extend(kv.starts_with('q').then(|| "-fa on".to_owned()));
        words.join(" ")
    }
}

fn alternatives(words: &[impl AsRef<str>]) -> String {
    match words {
        [one] => one.as_ref().to_owned(),
        many => format!("({})", many.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("|")),
    }
}
