//! The flags of llama.cpp and engines like it, read to the keys of a scenario.

use crate::model::transformer::Model;
use serde_json::{Map, Value, json};

/// Flags that place tensors or size steps; others change nothing that is modelled.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EngineFlags {
    gpu_layers: Option<u64>,
    overrides: Vec<String>,
    cpu_moe_layers: Option<u64>,
    cpu_moe: bool,
    micro_batch: Option<u64>,
    kv: Option<String>,
    repacks: bool,
    no_offload: bool,
    tensor_split: Option<Vec<u64>>,
    kv_on_host: bool,
    rule: Option<String>,
    threads: Option<u64>,
    prompt_threads: Option<u64>,
    flash_attention: Option<bool>,
}

/// What besides the flags decides where an engine puts tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placing {
    /// Whether there is a GPU.
    pub gpu: bool,
    /// Whether `-ngl` counts the output projection first, as llama.cpp does since December 2025.
    pub head_first: bool,
    /// Whether the file's rows are interleaved for CPUs, which GPUs cannot multiply.
    pub repacked: bool,
    /// Whether the engine is ik_llama.cpp, whose `-rtr` interleaves the host's tensors.
    pub forked: bool,
}

impl EngineFlags {
    /// Reads the words of a command.
    ///
    /// # Errors
    /// A flag that is not known, or a value that is missing.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut words = text.split_whitespace().peekable();
        while let Some(flag) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{flag} has no value"));
            match flag {
                "-ngl" => flags.gpu_layers = Some(count(flag, value()?)?),
                "-ot" => flags.overrides.push(value()?.to_owned()),
                "--n-cpu-moe" => flags.cpu_moe_layers = Some(count(flag, value()?)?),
                "-cmoe" => flags.cpu_moe = true,
                "-ub" => flags.micro_batch = Some(count(flag, value()?)?),
                "-ctk" => flags.kv = Some(value()?.to_owned()),
                "-ts" => flags.tensor_split = Some(counts(flag, value()?)?),
                "-nkvo" => flags.kv_on_host = true,
                "--no-op-offload" => flags.no_offload = true,
                "rule:" => flags.rule = Some(value()?.to_owned()),
                "-rtr" => flags.repacks = true,
                "-t" => flags.threads = Some(count(flag, value()?)?),
                "-tb" => flags.prompt_threads = Some(count(flag, value()?)?),
                "-mla" | "-amb" | "-b" | "-c" | "-ctv" => drop(value()?),
                "-fa" => flags.flash_attention = Some(true),
                "-fmoe" => {}
                _ => return Err(format!("the flag {flag} is not modelled")),
            }
            // Some flags take an optional 1 or 0.
            if matches!(flag, "-fa" | "-fmoe" | "-rtr") {
                let is_off = words.next_if(|word| matches!(*word, "0" | "1")) == Some("0");
                if flag == "-fa" && is_off {
                    flags.flash_attention = Some(false);
                }
            }
        }
        Ok(flags)
    }

    /// The format of the KV cache; ours of 8 bits stands for q8_0.
    pub(crate) fn kv_format(&self) -> &str {
        match self.kv.as_deref() {
            Some("q8_0") => "int8",
            Some("q4_0") => "int4",
            Some(other) => other,
            None => "f16",
        }
    }

    /// What a scenario's `engine.execution` says of its threads and of attention, which is not one
    /// kernel unless a flag asks for it, or the engine's build does so by itself.
    pub(crate) fn execution(&self, is_fused_unasked: bool) -> Map<String, Value> {
        let threads = [("threads", self.threads), ("prompt_threads", self.prompt_threads)];
        let stated = threads.into_iter().filter_map(|(key, count)| Some((key.to_owned(), json!(count?))));
        let is_unfused = !self.flash_attention.unwrap_or(is_fused_unasked);
        stated.chain(is_unfused.then(|| ("flash_attention".to_owned(), json!(false)))).collect()
    }

    /// What an owner of the machine chose beside formats and placement, in the phase of `prompts`
    /// or of decoding: the cache's format and the threads.
    pub(crate) fn choice(&self, prompts: bool) -> String {
        let threads = self.prompt_threads.filter(|_| prompts).or(self.threads);
        let threads = threads.map_or_else(String::new, |threads| format!(", {threads} threads"));
        format!("cache in {}{threads}", self.kv.as_deref().unwrap_or("f16"))
    }

    /// The scenario's `placement`.
    pub(crate) fn placement(&self, model: &Model, placing: Placing) -> Value {
        if let Some(rule) = &self.rule {
            return json!({"rule": rule});
        }
        let mut keys = Map::new();
        let mut overrides = self.overrides.clone();
        let all = model.layers + 1;
        let layers = match self.gpu_layers {
            _ if !placing.gpu => 0,
            None => all,
            Some(counted @ 1..) if placing.head_first && counted < all => {
                overrides.push(r"^(output|token_embd)\.weight=CUDA0".to_owned());
                counted - 1
            }
            Some(layers) => layers,
        };
        keys.insert("gpu_layers".to_owned(), json!(layers));
        keys.extend(self.cpu_moe_layers.map(|layers| ("cpu_moe_layers".to_owned(), json!(layers))));
        keys.extend(self.cpu_moe.then(|| ("cpu_moe".to_owned(), json!("all"))));
        if !overrides.is_empty() && placing.gpu {
            keys.insert("override_tensor".to_owned(), json!(overrides));
        }
        if self.no_offload || placing.repacked || (self.repacks && placing.forked) {
            keys.insert("op_offload".to_owned(), json!(false));
        }
        if let Some(split) = self.tensor_split.as_ref().filter(|_| placing.gpu) {
            keys.insert("tensor_split".to_owned(), json!(split));
        }
        if self.kv_on_host {
            keys.insert("kv_offload".to_owned(), json!(false));
        }
        keys.extend(self.micro_batch.map(|tokens| ("micro_batch".to_owned(), json!(tokens))));
        Value::Object(keys)
    }
}

fn count(flag: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{flag} is '{text}': a whole number is wanted"))
}

/// Numbers with commas between them.
fn counts(flag: &str, text: &str) -> Result<Vec<u64>, String> {
    text.split(',').map(|part| count(flag, part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Placing = Placing { gpu: true, head_first: false, repacked: false, forked: false };

    #[test]
    fn flags_become_keys() {
        let model = Model::preset("qwen3-30b-a3b").expect("a preset");
        let text =
            "-ngl 20 -fa 1 -ot exps=CPU -ot a=CUDA0 --n-cpu-moe 3 -ctk q8_0 -ub 2048 -rtr -t 8 -ts 3,1 -nkvo";
        let flags = EngineFlags::read(text).expect("flags");
        assert_eq!(flags.kv_format(), "int8");
        let wanted = json!({"gpu_layers": 20, "cpu_moe_layers": 3, "override_tensor": ["exps=CPU", "a=CUDA0"],
            "tensor_split": [3, 1], "kv_offload": false, "micro_batch": 2048});
        assert_eq!(flags.placement(&model, PLAIN), wanted);
        let forked = flags.placement(&model, Placing { forked: true, ..PLAIN });
        assert_eq!(forked["op_offload"], json!(false));
        let newer = flags.placement(&model, Placing { head_first: true, ..PLAIN });
        assert_eq!(
            (&newer["gpu_layers"], newer["override_tensor"].as_array().map(Vec::len)),
            (&json!(19), Some(3))
        );
        let host = flags.placement(&model, Placing { gpu: false, ..PLAIN });
        assert_eq!((&host["gpu_layers"], host.get("override_tensor")), (&json!(0), None));
    }

    #[test]
    fn attention_is_one_kernel_where_a_flag_or_the_build_says_so() {
        let unfused = |text: &str, unasked| {
            EngineFlags::read(text).expect("flags").execution(unasked).contains_key("flash_attention")
        };
        assert!(unfused("-ngl 1", false) && unfused("-fa 0", false) && unfused("-fa 0", true));
        assert!(!unfused("-fa", false) && !unfused("-fa 1 -t 8", false) && !unfused("-ngl 1", true));
    }

    #[test]
    fn flags_that_are_not_known_are_told() {
        for (text, words) in [("-sm row", "not modelled"), ("-ngl", "no value"), ("-ngl all", "whole number")]
        {
            assert!(EngineFlags::read(text).expect_err(text).contains(words));
        }
    }
}
