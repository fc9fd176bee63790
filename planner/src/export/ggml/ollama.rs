//! Ollama: whole layers with the GPU (`num_gpu`, which also counts the output projection), all
//! other layers with the host.

use super::super::engine_options::Export;
use super::super::export_error::ExportError;
use super::super::shell::quoted;
use super::super::site::Site;
use super::gguf::{ModelFile, kv_type};
use super::options::{Closest, Reach};

pub(in super::super) fn export(mut site: Site<'_>) -> Result<Export, ExportError> {
    let Closest { options, nearest, mut cannot } =
        Closest::to_plan(&mut site, Reach::Layers { experts_and_kv: false })?;
    let file = ModelFile::from_plan(&site);
    // A path of a Modelfile ends with its line.
    if file.name.contains(char::is_control) {
        return Err(
            site.unsupported(format!("{:?}", file.name), "a name without control characters is wanted")
        );
    }
    cannot.extend(file.cannot.clone());
    let (plan, workload) = (site.plan, &site.plan.workload);
    let kv = match kv_type(plan.formats.kv).0 {
        "f32" => {
            cannot.push("KV in f32: f16 is the widest".to_owned());
            "f16"
        }
        // Of the same size.
        "bf16" => "f16",
        kv => kv,
    };
    let mut lines = vec![match &file.published {
        Some(published) => format!("FROM hf.co/{published}"),
        None => format!("FROM ./{}", file.name),
    }];
    let mut parameter = |name: &str, value: u64| lines.push(format!("PARAMETER {name} {value}"));
    parameter("num_gpu", options.default_layers().0 as u64);
    parameter("num_ctx", workload.context());
    parameter("num_batch", workload.batch * plan.prefill_chunk);
    let threads = site.machine.device(site.host).cores.len() as u64;
    if threads > 0 {
        parameter("num_thread", threads);
    }
    let name = quoted(&model_name(&plan.model.name));
    let command = format!(
        "OLLAMA_NUM_PARALLEL={} OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE={kv} ollama serve & sleep 2; \
         ollama create {name} -f Modelfile && ollama run {name}",
        workload.batch,
    );
    let files = file.quantise.into_iter().chain([("Modelfile".to_owned(), lines.join("\n") + "\n")]);
    Ok(Export { files: files.collect(), command, cannot, nearest })
}

/// A name that Ollama takes: small letters, digits, dots, dashes.
fn model_name(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' };
    let name: String = name.to_lowercase().chars().map(allowed).collect();
    format!("fulcrum-{}", name.trim_matches(['-', '.', '_']))
}
