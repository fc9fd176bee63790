//! llama.cpp's server and its fork ik_llama.cpp: any matrix in either memory.

use super::super::engine::ExportTarget;
use super::super::engine_options::Export;
use super::super::export_error::ExportError;
use super::super::shell::quoted;
use super::super::site::Site;
use super::gguf::{ModelFile, kv_type};
use super::options::{Closest, Options, Reach};
use scenarios::OffloadOptions;

pub(in super::super) fn export(mut site: Site<'_>) -> Result<Export, ExportError> {
    // The fork has no variable for the number of rows.
    let reach = Reach::Matrices { any_rows: site.engine == ExportTarget::LlamaCpp };
    let Closest { options, nearest, mut cannot } = Closest::to_plan(&mut site, reach)?;
    let file = ModelFile::from_plan(&site);
    cannot.extend(file.cannot.clone());
    let command = options.command(&site, &file);
    Ok(Export { files: file.quantise.into_iter().collect(), command, cannot, nearest })
}

impl Options {
    fn command(&self, site: &Site<'_>, file: &ModelFile) -> String {
        let (plan, workload) = (site.plan, &site.plan.workload);
        let (counted, kv_with_host) = self.default_layers();
        let model = match &file.published {
            // The fork's server downloads nothing.
            Some(published) if site.engine == ExportTarget::LlamaCpp => format!("-hf {published}"),
            _ => format!("-m {}", quoted(&file.name)),
        };
        let mut words = vec![format!("llama-server {model} -ngl {counted}")];
        let split: Vec<_> = self.split(site).iter().map(u64::to_string).collect();
        words.extend((!split.is_empty()).then(|| format!("-ts {}", split.join(","))));
        let overrides = self.overrides(site).into_iter();
        let overrides: Vec<_> = overrides.map(|it| format!("{}={}", it.pattern, it.buffer)).collect();
        words.extend((!overrides.is_empty()).then(|| format!("-ot '{}'", overrides.join(","))));
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
        // Its default is f16.
        words.extend((kv != "f16").then(|| format!("-ctk {kv} -ctv {kv}")));
        // Quantised caches need flash attention.
        words.extend(kv.starts_with('q').then(|| "-fa on".to_owned()));
        words.join(" ")
    }
}
