//! FlexGen: shares of weights, cache and activations in GPU, host and disk (`--percent`), the same
//! in every layer.
//!
//! A layer is two lists of tensors: attention's (q, k, v, out) and the feed-forward network's (up,
//! down). The middle of a tensor's bytes within its list decides its home: the disk's share comes
//! first, then the host's, then the GPU's. The GPU computes everything, except that with
//! `--cpu-cache-compute` the host computes decode's attention over its cache. Norms and biases are
//! left out: they are thousandths of a list.

use super::difference::differences;
use super::engine_options::Export;
use super::export_error::ExportError;
use super::shell::quoted;
use super::site::{Gpu, Site};
use crate::placement::Pipelining;
use crate::placement::{Placement, Slice, Slices, whole_slice};
use hwprofiles::{DType, DeviceId, MemoryId};
use scenarios::{Architecture, Sublayer};

/// What the options say, before they are written as words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Options {
    /// Percent of weights with the GPU and with the host; the rest is on the disk.
    weights: [u64; 2],
    /// Whether the cache is with the host.
    kv_away: bool,
    /// Whether the host computes attention over the cache in decode.
    cpu_compute: bool,
}

pub(super) fn export(site: &Site<'_>) -> Result<Export, ExportError> {
    let gpu = site.gpu()?;
    if site.model.architecture != Architecture::Opt {
        return Err(site.unsupported(format!("'{}'", site.model.name), "it knows OPT alone"));
    }
    let closest = Options::closest(site, gpu);
    let fewer = |kv_away: bool| {
        let fewer = move |given: u64| {
            let [own, host] = closest.weights;
            Options { weights: [own - given, host + given], kv_away, ..closest }
        };
        (0..=closest.weights[0]).map(fewer)
    };
    let kv = if closest.kv_away { &[true][..] } else { &[false, true] };
    let candidates = kv.iter().flat_map(|&away| fewer(away));
    let (options, nearest, _) = site.first_fit(candidates, |options| options.placement(site, gpu))?;
    let mut cannot = differences(site, &nearest);
    if options.weights[0] < 100 {
        let table =
            "the token table: it is placed and streamed by the same shares, which the prediction leaves out";
        cannot.push(table.to_owned());
    }
    let how = "f16, or 4 bits in groups of 64 (--compress-weight)";
    cannot.extend(site.format_notes(&[DType::F16, DType::Int4], how));
    cannot.extend(site.kv_note(&[DType::Int4], "f16, or 4 bits in groups of 64 (--compress-cache)"));
    Ok(Export { files: Vec::new(), command: options.command(site), cannot, nearest })
}

impl Options {
    fn closest(site: &Site<'_>, gpu: Gpu) -> Self {
        let (mut own, mut disk, mut all) = (0.0, 0.0, 0.0);
        for (_, sublayer, slices) in site.placement.sublayers().filter(|(layer, ..)| layer.is_some()) {
            for slice in slices {
                let bytes = sublayer.matrix_bytes(site.model, site.plan.formats.weights, &slice.rows);
                all += bytes.as_f64();
                own += if slice.home == gpu.memory { bytes.as_f64() } else { 0.0 };
                disk += if Some(slice.home) == site.disk() { bytes.as_f64() } else { 0.0 };
            }
        }
        let percent = |bytes: f64| (100.0 * bytes / f64::max(all, 1.0)).round() as u64;
        let own = percent(own);
        let on_host = |layer: &&crate::placement::LayerPlacement| {
            layer.slices(Sublayer::Attention)[0].decode == site.host
        };
        let by_host = site.placement.layers.iter().filter(on_host).count();
        Self {
            weights: [own, 100 - own - percent(disk).min(100 - own)],
            kv_away: site.kv_away(gpu),
            cpu_compute: 2 * by_host > site.placement.layers.len(),
        }
    }

    /// The home of a tensor whose middle is at `percent` of its list.
    fn home(self, site: &Site<'_>, gpu: Gpu, percent: f64) -> MemoryId {
        let [own, host] = self.weights;
        let disk = (100 - own - host) as f64;
        match site.disk() {
            Some(home) if percent < disk => home,
            _ if percent < disk + host as f64 => site.dram,
            _ => gpu.memory,
        }
    }

    /// The placement that FlexGen makes of these options.
    fn placement(&self, site: &Site<'_>, gpu: Gpu) -> Placement {
        let [attention, feed_forward] =
            [&[Sublayer::Qkv, Sublayer::Out][..], &[Sublayer::FfnUp, Sublayer::FfnDown]]
                .map(|list| list.iter().flat_map(|&sublayer| tensors(site, sublayer)).collect::<Vec<_>>());
        let slices = |sublayer: Sublayer| -> Slices {
            match sublayer {
                Sublayer::Attention => vec![self.attention(site, gpu)],
                Sublayer::Qkv | Sublayer::Out => self.in_list(site, gpu, &attention, sublayer),
                _ => self.in_list(site, gpu, &feed_forward, sublayer),
            }
        };
        let layers = (0..site.placement.layers.len()).map(|index| site.layer(index, slices));
        let head = if site.model.tied_embeddings { gpu.memory } else { self.home(site, gpu, 50.0) };
        Placement {
            embed: site.on(Sublayer::Embed, gpu.memory, gpu.device),
            layers: layers.collect(),
            head: site.on(Sublayer::Head, head, gpu.device),
            pipelining: Pipelining::default(),
        }
    }

    fn attention(self, site: &Site<'_>, gpu: Gpu) -> Slice {
        let home = if self.kv_away { site.dram } else { gpu.memory };
        let decode = if self.kv_away && self.cpu_compute { site.host } else { gpu.device };
        whole_slice(site.model, Sublayer::Attention, home, gpu.device, decode)
    }

    /// The slices of one sublayer of a list of (sublayer, rows, bytes).
    fn in_list(self, site: &Site<'_>, gpu: Gpu, list: &[(Sublayer, u64, f64)], sublayer: Sublayer) -> Slices {
        let all: f64 = list.iter().map(|(.., bytes)| bytes).sum();
        let (mut before, mut slices) = (0.0, Slices::new());
        for &(owner, rows, bytes) in list {
            let home = self.home(site, gpu, 100.0 * (before + bytes / 2.0) / all);
            before += bytes;
            if owner == sublayer {
                add(&mut slices, rows, home, gpu.device);
            }
        }
        slices
    }

    fn command(self, site: &Site<'_>) -> String {
        let (plan, workload) = (site.plan, &site.plan.workload);
        let [own, host] = self.weights;
        let (kv_own, kv_host) = if self.kv_away { (0, 100) } else { (100, 0) };
        let mut words = vec![
            format!(
                "python3 -m flexllmgen.flex_opt --model {}",
                quoted(&format!("facebook/{}", plan.model.name))
            ),
            format!("--percent {own} {host} {kv_own} {kv_host} 100 0"),
            format!("--gpu-batch-size {} --num-gpu-batches 1", workload.batch),
            format!("--prompt-len {} --gen-len {}", workload.prompt_tokens, workload.output_tokens),
        ];
        words.extend((self.kv_away && self.cpu_compute).then(|| "--cpu-cache-compute".to_owned()));
        words.extend((plan.formats.weights == DType::Int4).then(|| "--compress-weight".to_owned()));
        words.extend((plan.formats.kv == DType::Int4).then(|| "--compress-cache".to_owned()));
        words.extend((own + host < 100).then(|| "--offload-dir offload".to_owned()));
        words.join(" ")
    }
}

/// The tensors of a sublayer with their rows and bytes; q, k and v are three tensors.
fn tensors(site: &Site<'_>, sublayer: Sublayer) -> Vec<(Sublayer, u64, f64)> {
    let model = site.model;
    let rows = match sublayer {
        Sublayer::Qkv => vec![model.context_width(), model.kv_width(), model.kv_width()],
        _ => sublayer.matrix(model).map(|(rows, _)| rows).into_iter().collect(),
    };
    let bytes = |rows: u64| sublayer.matrix_bytes(model, site.plan.formats.weights, &(0..rows)).as_f64();
    rows.into_iter().map(|rows| (sublayer, rows, bytes(rows))).collect()
}

/// Appends rows to `slices`, to the last slice where its home is the same.
fn add(slices: &mut Slices, rows: u64, home: MemoryId, device: DeviceId) {
    match slices.last_mut() {
        Some(last) if last.home == home => last.rows.end += rows,
        last => {
            let start = last.map_or(0, |last| last.rows.end);
            slices.push(Slice { rows: start..start + rows, home, prefill: device, decode: device });
        }
    }
}
