//! The command that starts an engine with a model where advice puts it.

use super::advised_engine::AdvisedEngine;
use super::model_catalog::CataloguedModel;
use super::placing::PlacedModel;
use super::question::AdviceQuestion;
use hwprofiles::DType;
use scenarios::Model;

/// The command, or the settings where an engine has no command line.
pub(super) fn command(
    question: &AdviceQuestion,
    entry: &CataloguedModel,
    format: &str,
    placed: &PlacedModel,
) -> String {
    let places = &placed.places;
    let (room, name) = (question.room(), &entry.model.name);
    let context = room.context() * room.batch;
    match question.engine {
        AdvisedEngine::LlamaCpp | AdvisedEngine::IkLlamaCpp => {
            let mut words = vec!["llama-server".to_owned(), file(question.engine, entry, format)];
            words.push(format!("-c {context}"));
            if room.batch > 1 {
                words.push(format!("-np {}", room.batch));
            }
            words.extend(offload(placed));
            words.join(" ")
        }
        AdvisedEngine::Ollama => {
            let gpu = places.gpu_layers;
            format!(
                "ollama run {name}, then /set parameter num_ctx {context} and /set parameter num_gpu {gpu}"
            )
        }
        AdvisedEngine::LmStudio => {
            let experts = match places.cpu_expert_layers {
                0 => String::new(),
                layers => format!(", MoE weights of {layers} layers to CPU"),
            };
            let layers = places.gpu_layers.min(places.layers);
            format!("LM Studio: {name} {format}, GPU offload {layers}, context {context}{experts}")
        }
        AdvisedEngine::KTransformers => {
            format!(
                "python -m sglang.launch_server --model {name} --kt-method LLAMAFILE --kt-weight-path \
                 ./{name}-{} --kt-num-gpu-experts 0 --context-length {}",
                format.to_uppercase(),
                room.context()
            )
        }
        AdvisedEngine::Vllm => {
            let parallel = if places.gpus > 1 {
                format!(" --tensor-parallel-size {}", places.gpus)
            } else {
                String::new()
            };
            let sequences =
                if room.batch > 1 { format!(" --max-num-seqs {}", room.batch) } else { String::new() };
            let checkpoint = checkpoint(name, format);
            format!("vllm serve {checkpoint} --max-model-len {}{parallel}{sequences}", room.context())
        }
        AdvisedEngine::Sglang => {
            let parallel = if places.gpus > 1 { format!(" --tp {}", places.gpus) } else { String::new() };
            format!(
                "python -m sglang.launch_server --model-path {} --context-length {}{parallel}",
                checkpoint(name, format),
                room.context()
            )
        }
    }
}

/// The file of a model, by its repository where that is known.
fn file(engine: AdvisedEngine, entry: &CataloguedModel, format: &str) -> String {
    let known = entry.repository.filter(|_| engine == AdvisedEngine::LlamaCpp);
    match known.and_then(|repository| repository.file(format)) {
        Some(file) => format!("-hf {file}"),
        None => format!("-m {}-{}.gguf", last_name(&entry.model.name), format.to_uppercase()),
    }
}

/// A model's name without the folders of the file that it was read from.
fn last_name(model: &str) -> &str {
    let path = model.strip_suffix("/config.json").or(model.strip_suffix(".json")).unwrap_or(model);
    path.rsplit('/').next().unwrap_or(path)
}

/// The options that place a model.
fn offload(placed: &PlacedModel) -> Option<String> {
    let places = &placed.places;
    if places.gpus == 0 {
        return None;
    }
    let layers = if places.gpu_layers > places.layers { 99 } else { places.gpu_layers };
    let experts = match places.cpu_expert_layers {
        0 => String::new(),
        all if all == places.layers => " --cpu-moe".to_owned(),
        some => format!(" --n-cpu-moe {some}"),
    };
    let split = match &placed.tensor_split[..] {
        [] => String::new(),
        [_, others @ ..] if others.iter().all(|part| *part == 0) => " -sm none".to_owned(),
        parts => format!(" -ts {}", parts.iter().map(u64::to_string).collect::<Vec<_>>().join(",")),
    };
    let step = match placed.micro_batch {
        None => String::new(),
        // A batch is of 2048 tokens unless -b says otherwise.
        Some(step @ ..=2048) => format!(" -ub {step}"),
        Some(step) => format!(" -b {step} -ub {step}"),
    };
    Some(format!("-ngl {layers}{experts}{split}{step}"))
}

/// The checkpoint of a model in `format`, and how to round it where that is done as it is loaded.
fn checkpoint(name: &str, format: &str) -> String {
    let checkpoint = format.parse().map_or_else(|_| name.to_owned(), |it| Model::checkpoint(name, it));
    if format == DType::Fp8.name() { checkpoint + " --quantization fp8" } else { checkpoint }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_is_named_after_the_model_and_not_after_its_path() {
        let names = ["qwen2.5-7b", "new/config.json", "../a/mine.json"].map(super::last_name);
        assert_eq!(names, ["qwen2.5-7b", "new", "mine"]);
    }
}
