//! Serving engines as data: what each does by default and what its host code costs, by version.
//!
//! A file holds the keys in which an engine differs from `fulcrum`, and under `versions` those that
//! changed with a version. Later versions keep what earlier ones changed.

use hwprofiles::{Bytes, DType, DeviceKind, EngineExecution, Machine, Ratio, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// An engine of one version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineProfile {
    /// Its name.
    pub engine: String,
    /// The version that was asked for; where absent, the newest that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A note for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether it divides matrices between GPUs; where it does not, each GPU has layers of its own
    /// unless a scenario says `tensor_parallel`.
    #[serde(default = "most_engines_do")]
    pub tensor_parallel: bool,
    /// Whether the host computes some of a model that is larger than the GPUs; where it does not,
    /// GPUs compute everything and may fetch weights from the host's memory.
    #[serde(default = "most_engines_do")]
    pub host_computes: bool,
    /// How it serves requests.
    pub serving: ServingDefaults,
    /// What it adds to a step on any machine.
    #[serde(default)]
    pub execution: EngineExecution,
}

/// What holds where a file does not say otherwise.
fn most_engines_do() -> bool {
    true
}

/// How an engine serves requests. vLLM's names are used for the settings that vLLM has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServingDefaults {
    /// The most sequences that run at once.
    pub max_num_seqs: Sourced<u64>,
    /// The most tokens of one step.
    pub max_num_batched_tokens: Sourced<u64>,
    /// Tokens of a KV block.
    pub block_size: Sourced<u64>,
    /// The share of a device's memory that it uses.
    pub gpu_memory_utilization: Sourced<Ratio>,
    /// Whether that share is of what weights and activations leave, and not of all of it.
    pub kv_of_free: bool,
    /// What it takes of each GPU's memory beside weights, activations and KV cache: work areas of
    /// its libraries, and what choosing tokens needs.
    pub own_memory: Sourced<Bytes>,
    /// What it keeps free of each GPU's memory, for activations among others. A scenario's
    /// `gpu_memory_utilization` takes its place.
    pub kept_free: Sourced<Bytes>,
    /// What it sets by the GPU. The first entry that is for a machine's GPUs counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_gpu: Vec<GpuSettings>,
    /// The host's time for each step, in which the devices wait.
    pub host_per_step: Sourced<Seconds>,
    /// The host's time for each sequence of a step.
    pub host_per_sequence: Sourced<Seconds>,
    /// The time from a request's arrival until it may be scheduled, however few others there are.
    pub host_per_request: Sourced<Seconds>,
    /// Tokens that are sent to the client together: the first of them arrives with the last.
    pub stream_interval: Sourced<u64>,
    /// What turns prompts into tokens, one request after another.
    pub tokeniser: FrontEndStation,
    /// What turns tokens into text, one token after another.
    pub detokeniser: FrontEndStation,
    /// The tokens that must have room in the KV cache before a request is admitted.
    pub reserve: Reserve,
    /// Whether prompts enter in steps of their own before any sequence decodes.
    pub prefill_first: bool,
    /// Whether a prompt may enter in chunks.
    pub chunked_prefill: bool,
    /// Whether KV blocks of a known prefix are found again.
    pub prefix_caching: bool,
    /// The same for models with states.
    pub prefix_caching_of_states: bool,
    /// Where the states of prefixes are kept.
    pub snapshots: StateSnapshots,
    /// How it gives memory to states and windows.
    pub states: StatePool,
    /// The format of the KV cache.
    pub kv: DType,
    /// The format between operators.
    pub activations: DType,
}

impl ServingDefaults {
    /// Takes over what it sets on the GPUs of `machine`, if there are any.
    pub fn adapt_to(&mut self, machine: &Machine) {
        fn set<T: Clone>(value: &mut T, chosen: Option<&T>) {
            if let Some(chosen) = chosen {
                value.clone_from(chosen);
            }
        }
        let Some(settings) = self.by_gpu.iter().find(|settings| settings.are_for(machine)) else { return };
        set(&mut self.max_num_seqs, settings.max_num_seqs.as_ref());
        set(&mut self.max_num_batched_tokens, settings.max_num_batched_tokens.as_ref());
        set(&mut self.kept_free, settings.kept_free.as_ref());
    }

    /// The first count that no engine can have, and what would be right.
    pub(crate) fn wrong_count(&self) -> Option<(&'static str, String)> {
        let counts = [
            ("max_num_seqs", &self.max_num_seqs),
            ("max_num_batched_tokens", &self.max_num_batched_tokens),
            ("block_size", &self.block_size),
            ("stream_interval", &self.stream_interval),
        ];
        let zero = counts.into_iter().find(|(_, count)| count.value == 0);
        if let Some((key, _)) = zero {
            return Some((key, "a whole number from 1 is wanted".to_owned()));
        }
        if let Some(0) = self.tokeniser.batch.as_ref().map(|batch| batch.value) {
            return Some(("tokeniser", "batch is a whole number from 1".to_owned()));
        }
        let share = self.gpu_memory_utilization.value;
        (share > Ratio::ONE)
            .then(|| ("gpu_memory_utilization", format!("it is {share}: a share from 0 to 1 is wanted")))
    }
}

/// What an engine sets on some GPUs. Settings that are absent stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuSettings {
    /// GPUs with less memory than this; of any size where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<Bytes>,
    /// GPUs of this generation; of any where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The most sequences that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_num_seqs: Option<Sourced<u64>>,
    /// The most tokens of one step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_num_batched_tokens: Option<Sourced<u64>>,
    /// What it keeps free of each GPU's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_free: Option<Sourced<Bytes>>,
}

impl GpuSettings {
    /// Whether the first GPU of `machine` is one of these.
    fn are_for(&self, machine: &Machine) -> bool {
        let Some(gpu) = machine.devices.iter().find(|device| device.kind == DeviceKind::Gpu) else {
            return false;
        };
        let memory = machine.memory(gpu.memory).capacity.value.get() / gpu.ranks();
        let is_small = self.below.is_none_or(|below| memory < below.get());
        let is_named = |name: &String| gpu.details.architecture.as_ref() == Some(name);
        is_small && self.architecture.as_ref().is_none_or(is_named)
    }
}

/// One server of the front end with a queue before it. What is absent takes no time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrontEndStation {
    /// Its time for each request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_request: Option<Sourced<Seconds>>,
    /// Its time for each token: of the prompt for the tokeniser, of the answer for the detokeniser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_token: Option<Sourced<Seconds>>,
    /// Prompts that a tokeniser takes together and hands over together; one where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Sourced<u64>>,
    /// How long it waits for others to come after the first prompt of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_wait: Option<Sourced<Seconds>>,
}

/// The tokens that must have room in the KV cache before a request is admitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reserve {
    /// The tokens that enter in its first step.
    Chunk,
    /// Its whole prompt, as in vLLM.
    #[default]
    Prompt,
    /// Its prompt and its answer, beside the expected rest of the running answers, as in SGLang.
    Answer,
    /// Its prompt and its answer, beside the whole rest of the running answers, so that none is
    /// ever preempted, as in TensorRT-LLM.
    WholeAnswer,
}

/// Where the states of prefixes are kept, for prompts that begin alike. A recurrence's state holds
/// all tokens before it, so a prefix can be found again only where its state was kept. Each
/// snapshot costs the state's bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateSnapshots {
    /// At the end of every name, as vLLM does at the end of each of its blocks, which hold as many
    /// tokens of attention as take the bytes of a state.
    #[default]
    EveryName,
    /// At the first name's end after each multiple of so many tokens, and at the prompt's last.
    Interval(u64),
    /// At the end of a prompt's last name alone, as the leaves of SGLang's radix tree and
    /// llama.cpp's checkpoints.
    PromptEnd,
}

/// How an engine divides memory between what grows with a sequence and what does not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StatePool {
    /// One pool of blocks for all, as in vLLM.
    Shared,
    /// States have a pool of their own, as in SGLang.
    Split {
        /// Its bytes for each byte of the cache that grows.
        ratio: Sourced<Ratio>,
        /// Slots of it that a sequence takes.
        slots: Sourced<u64>,
    },
    /// Every sequence has its states from the beginning, as in llama.cpp.
    Reserved {
        /// Tokens of a step that a window holds beside its own.
        step_tokens: Sourced<u64>,
    },
}
