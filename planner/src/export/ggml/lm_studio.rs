//! LM Studio: whole layers with the GPU, and experts of the first layers with the host. Its SDK
//! takes both as shares of the layers.

use super::super::engine_options::Export;
use super::super::export_error::ExportError;
use super::super::site::Site;
use super::gguf::{ModelFile, kv_type};
use super::options::{Closest, Reach};
use serde_json::{Value, json};

pub(in super::super) fn export(mut site: Site<'_>) -> Result<Export, ExportError> {
    let Closest { options, nearest, mut cannot } =
        Closest::to_plan(&mut site, Reach::Layers { experts_and_kv: true })?;
    let file = ModelFile::from_plan(&site);
    cannot.extend(file.cannot.clone());
    let (plan, workload) = (site.plan, &site.plan.workload);
    let layers = options.weights.len();
    let held = options.weights.iter().filter(|layer| layer.iter().any(Option::is_some)).count();
    let mut config = json!({
        "gpu": { "ratio": share(held, layers) },
        "offloadKVCacheToGpu": options.kv.iter().any(Option::is_some),
        "contextLength": workload.batch * workload.context(),
        "evalBatchSize": workload.batch * plan.prefill_chunk,
        "physicalBatchSize": workload.batch * plan.prefill_chunk,
        "flashAttention": true,
    });
    let with_host = options.host_experts(&site);
    if with_host > 0 {
        config["gpu"]["numCpuExpertLayersRatio"] = share(with_host, layers);
    }
    if workload.batch > 1 {
        config["maxParallelPredictions"] = json!(workload.batch);
    }
    match kv_type(plan.formats.kv).0 {
        "f16" => {}
        "bf16" => cannot.push("KV in bf16: f16 of the same size is used".to_owned()),
        kv => {
            config["llamaKCacheQuantizationType"] = json!(kv);
            config["llamaVCacheQuantizationType"] = json!(kv);
        }
    }
    let text = format!("{config:#}");
    let script = format!(
        "import {{ LMStudioClient }} from \"@lmstudio/sdk\";\n\n\
         const model = {};\n\
         const config = {text};\n\
         await new LMStudioClient().llm.load(model, {{ config }});\n",
        json!(file.name),
    );
    let files = file.quantise.into_iter().chain([("load.mjs".to_owned(), script)]).collect();
    let command = "lms server start && npm install @lmstudio/sdk && node load.mjs".to_owned();
    Ok(Export { files, command, cannot, nearest })
}

/// A share of the layers as the SDK takes it.
fn share(count: usize, layers: usize) -> Value {
    match count {
        0 => json!("off"),
        _ if count == layers => json!("max"),
        _ => json!(count as f64 / layers as f64),
    }
}
