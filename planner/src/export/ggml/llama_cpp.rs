//! llama.cpp's server and its fork ik_llama.cpp: any matrix in either memory.

use super::super::engine::ExportTarget;
use super::super::engine_options::Export;
use super::super::export_error::ExportError;
use super::super::shell::quoted;
use super::super::site::Site;
use super::gguf::{ModelFile, kv_type, tensors};
use super::options::{Closest, Options, Reach};
use crate::rules::layer_pattern;
use scenarios::{OffloadOptions, Sublayer};
use std::collections::BTreeMap;

pub(in super::super) fn export(mut site: Site<'_>) -> Result<Export, ExportError> {
    // The fork has no variable for the number of rows.
    let reach = Reach::Matrices { any_rows: site.engine == ExportTarget::LlamaCpp };
    let Closest { options, nearest, mut cannot } = match Options::whole_on_gpus(&site) {
        Some(options) => {
            let nearest = site.placement.clone();
            Closest { options, nearest, cannot: kv_type(site.plan.formats.kv).1.into_iter().collect() }
        }
        None => Closest::to_plan(&mut site, reach)?,
    };
    let file = ModelFile::from_plan(&site);
    cannot.extend(file.cannot.clone());
    let command = options.command(&site, &file);
    Ok(Export { files: file.quantise.into_iter().collect(), command, cannot, nearest })
}

impl Options {
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
                false => layer_pattern(&numbers),
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

    fn command(&self, site: &Site<'_>, file: &ModelFile) -> String {
        let (plan, workload) = (site.plan, &site.plan.workload);
        let (counted, kv_with_host) = self.default_layers();
        let model = match &file.published {
            // The fork's server downloads nothing.
            Some(published) if site.engine == ExportTarget::LlamaCpp => format!("-hf {published}"),
            _ => format!("-m {}", quoted(&file.name)),
        };
        let mut words = vec![format!("llama-server {model} -ngl {counted}")];
        if !self.split.is_empty() {
            let split: Vec<_> = self.split.iter().map(u64::to_string).collect();
            words.push(format!("-ts {}", split.join(",")));
        }
        let overrides = self.overrides(site);
        if !overrides.is_empty() {
            words.push(format!("-ot '{}'", overrides.join(",")));
        }
        let host_experts = self.host_experts(site);
        words.extend((host_experts > 0).then(|| format!("--n-cpu-moe {host_experts}")));
        words.extend(kv_with_host.then(|| "-nkvo".to_owned()));
        let fork = site.engine == ExportTarget::IkLlamaCpp;
        match self.offloaded_rows.filter(|_| site.gpu.is_some()) {
            Some(OffloadOptions::ROWS) => {}
            Some(rows) => words.insert(0, format!("GGML_OP_OFFLOAD_MIN_BATCH={rows}")),
            None if site.gpu.is_none() => {}
            None => words.push(if fork { "-op -1,0" } else { "--no-op-offload" }.to_owned()),
        }
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
