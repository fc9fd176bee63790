//! A plan for an engine that people run: files, the command, and what the engine cannot express.
//!
//! Each engine has a file of this room. It states what the engine's options mean, as a function
//! from options to a [`Placement`]. The *nearest* placement is that function's result for the
//! options closest to the plan, so its predicted times ([`crate::evaluate`]) are those of the
//! command. It always fits: where the closest options do not, layers move out of the accelerator's
//! memory until they do.

use super::engine::ExportTarget;
use super::engine_options::Export;
use super::export_error::ExportError;
use super::ggml::{llama_cpp, lm_studio, ollama};
use super::servers::{ktransformers, sglang, vllm};
use super::site::Site;
use super::{accelerate, deepspeed, flexgen};

use crate::plan::Plan;
use hwprofiles::Machine;
use scenarios::Model;

/// `plan`, made for `machine` and `model`, as options of `engine`.
///
/// # Errors
/// [`ExportError`]: the plan is for another machine or model, the engine does not know the model or
/// machine, or nothing that the engine can run fits.
pub fn export(
    plan: &Plan,
    machine: &Machine,
    model: &Model,
    engine: ExportTarget,
) -> Result<Export, ExportError> {
    let placement = plan.placement(machine, model)?;
    // The draft's memory is not the model's.
    let left = plan.draft.as_ref().and_then(|draft| draft.leaves(machine));
    let machine = left.as_ref().unwrap_or(machine);
    let site = Site::new(plan, machine, model, placement, engine)?;
    let draft = site.draft_words()?;
    let gpus = machine.identical_gpus().len();
    match machine.tensor_parallel() {
        ranks if ranks > 1 && !engine.divides_matrices() => {
            let what = format!("one model on {ranks} GPUs at once (tensor_parallel: {ranks})");
            return Err(
                site.unsupported(what, "make a plan with tensor_parallel: 1, or export it to vllm or sglang")
            );
        }
        _ => {}
    }
    let stripes = stripes(&site);
    let mut export = export_to(site)?;
    for words in draft {
        export.command = format!("{} {words}", export.command);
    }
    export.cannot.extend(stripes);
    if gpus > 1 && !engine.divides_layers() {
        let first = "this is for the first alone (CUDA_VISIBLE_DEVICES=0)";
        export.cannot.push(format!("layers over the {gpus} GPUs: {first}"));
    }
    Ok(export)
}

/// How to stripe memory, where the plan does: no engine has an option for it, but Linux has.
fn stripes(site: &Site<'_>) -> Option<String> {
    let machine = site.machine;
    let mut slices = site.placement.sublayers().flat_map(|(.., slices)| slices);
    let home = machine.memory(slices.find(|slice| !machine.memory(slice.home).stripes.is_empty())?.home);
    let named = |name: &dyn Fn(&hwprofiles::Stripe) -> String| {
        home.stripes.iter().map(name).collect::<Vec<_>>().join(" and ")
    };
    let memories = named(&|stripe| machine.memory(stripe.memory).name.clone());
    let pages = named(&|stripe| stripe.pages.to_string());
    Some(format!(
        "homes in '{}': start it with numactl --weighted-interleave=A,B, where A and B are the NUMA nodes of {memories} \
         and /sys/kernel/mm/mempolicy/weighted_interleave/nodeA and nodeB hold {pages}; that stripes all that the \
         process keeps in host memory",
        home.name
    ))
}

fn export_to(site: Site<'_>) -> Result<Export, ExportError> {
    match site.engine {
        ExportTarget::LlamaCpp | ExportTarget::IkLlamaCpp => llama_cpp::export(site),
        ExportTarget::Ollama => ollama::export(site),
        ExportTarget::LmStudio => lm_studio::export(site),
        ExportTarget::KTransformers => ktransformers::export(&site),
        ExportTarget::Accelerate => accelerate::export(&site),
        ExportTarget::Vllm => vllm::export(&site),
        ExportTarget::SgLang => sglang::export(&site),
        ExportTarget::DeepSpeed => deepspeed::export(&site),
        ExportTarget::FlexGen => flexgen::export(&site),
    }
}
