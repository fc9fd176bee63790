//! Where GGUF files and checkpoints of presets are published.

use crate::model::transformer::Model;
use hwprofiles::DType;

const REPOSITORIES: &str = include_str!("gguf_repositories.csv");

/// The repositories of Hugging Face in which their makers publish the weights of presets, the
/// variant for chats where there are several.
const CHECKPOINTS: &str = include_str!("checkpoint_repositories.csv");

/// A repository of Hugging Face with GGUF files of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GgufRepository {
    /// Owner and name.
    pub name: &'static str,
    /// The only kind of file there, where it is the format that the model was trained in.
    pub only: Option<&'static str>,
}

impl GgufRepository {
    /// The file of a kind (`q4_k_m`) as llama.cpp's `-hf` and Ollama's `hf.co/` take it. `None` if
    /// the repository has no such file.
    pub fn file(self, kind: &str) -> Option<String> {
        match self.only {
            None => Some(format!("{}:{}", self.name, kind.to_uppercase())),
            Some(only) => (only == kind).then(|| self.name.to_owned()),
        }
    }
}

impl Model {
    /// The repository with the checkpoint of a preset, as its maker publishes it. `None` for a name
    /// that is no preset's, and where none is known.
    pub fn checkpoint_repository(preset: &str) -> Option<&'static str> {
        let mut rows = CHECKPOINTS.lines().skip(1).filter_map(|row| row.split_once(','));
        rows.find(|(model, _)| *model == preset).map(|(_, repository)| repository)
    }

    /// The checkpoint that vLLM and SGLang load for the model `name` with weights in `format`. The
    /// maker's repository has 16 bits, which are rounded to fp8 as they are loaded, and formats
    /// that only makers publish; AWQ and NVFP4 are in repositories of other names. For the rest
    /// there is only the model's name.
    pub fn checkpoint(name: &str, format: DType) -> String {
        let known = Self::checkpoint_repository(name).unwrap_or(name);
        match format {
            DType::F32 | DType::F16 | DType::Bf16 | DType::Fp8 | DType::Fp8Block | DType::Mxfp4 => {
                known.to_owned()
            }
            DType::Int4G128 if known.starts_with("Qwen/") => format!("{known}-AWQ"),
            DType::Int4G128 => format!("{name}-AWQ"),
            DType::Nvfp4 => format!("{name}-NVFP4"),
            _ => name.to_owned(),
        }
    }

    /// The repository that has GGUF files of a preset. `None` for a name that is no preset's, and
    /// where none is known.
    pub fn gguf_repository(preset: &str) -> Option<GgufRepository> {
        rows().find(|(model, _)| *model == preset).map(|(_, repository)| repository)
    }
}

fn rows() -> impl Iterator<Item = (&'static str, GgufRepository)> {
    REPOSITORIES.lines().skip(1).filter_map(|row| {
        let (preset, rest) = row.split_once(',')?;
        let (name, only) = rest.split_once(',')?;
        Some((preset, GgufRepository { name, only: Some(only).filter(|only| !only.is_empty()) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_repository_of_a_preset() {
        assert_eq!(rows().count(), REPOSITORIES.lines().count() - 1);
        for (preset, repository) in rows() {
            assert!(Model::is_preset_name(preset), "{preset}");
            assert_eq!(repository.name.split('/').count(), 2, "{}", repository.name);
            assert_eq!(Model::gguf_repository(preset), Some(repository));
        }
        assert_eq!(Model::gguf_repository("model"), None);
    }

    #[test]
    fn every_checkpoint_is_a_presets() {
        for row in CHECKPOINTS.lines().skip(1) {
            let (preset, repository) = row.split_once(',').expect("two columns");
            assert!(Model::is_preset_name(preset), "{preset}");
            assert_eq!(repository.split('/').count(), 2, "{repository}");
            assert_eq!(Model::checkpoint_repository(preset), Some(repository));
        }
        assert_eq!(Model::checkpoint_repository("model"), None);
    }

    #[test]
    fn a_checkpoint_is_the_makers_unless_others_quantised_it() {
        for (name, format, checkpoint) in [
            ("qwen3-32b", DType::Bf16, "Qwen/Qwen3-32B"),
            ("qwen3-32b", DType::Int4G128, "Qwen/Qwen3-32B-AWQ"),
            ("gpt-oss-20b", DType::Mxfp4, "openai/gpt-oss-20b"),
            ("gpt-oss-20b", DType::Int4G128, "gpt-oss-20b-AWQ"),
            ("mine", DType::Fp8, "mine"),
            ("mine", DType::Int8, "mine"),
        ] {
            assert_eq!(Model::checkpoint(name, format), checkpoint, "{name} in {format}");
        }
    }

    #[test]
    fn a_repository_with_one_kind_of_file_has_no_other() {
        let all = Model::gguf_repository("llama-3.1-8b").expect("known");
        assert_eq!(all.file("q4_k_m").as_deref(), Some("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M"));
        let one = Model::gguf_repository("gpt-oss-20b").expect("known");
        assert_eq!(one.file("mxfp4_moe").as_deref(), Some("ggml-org/gpt-oss-20b-GGUF"));
        assert_eq!(one.file("q4_k_m"), None);
    }
}
