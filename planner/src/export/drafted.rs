//! The options of engines for a draft that proposes tokens.

use super::engine::ExportTarget;
use super::export_error::ExportError;
use super::shell::quoted;
use super::site::Site;
use hwprofiles::{Bytes, DeviceKind, MemoryId};

impl Site<'_> {
    /// The words of the command for the plan's draft; none where the plan has no draft.
    ///
    /// # Errors
    /// The engine cannot run a draft model beside a plan.
    pub fn draft_words(&self) -> Result<Vec<String>, ExportError> {
        let Some((draft, speculation)) = self.plan.draft.as_ref().zip(self.plan.workload.speculation) else {
            return Ok(vec![]);
        };
        let (name, tokens) = (&draft.model.name, speculation.tokens);
        let device = self.machine.device_named(&draft.device).map(|id| self.machine.device(id).kind);
        let on_gpu = device == Some(DeviceKind::Gpu);
        let layers = if on_gpu { 999 } else { 0 };
        let file = format!("-md {} -ngld {layers}", quoted(&format!("{name}.gguf")));
        match self.engine {
            ExportTarget::LlamaCpp => {
                let spec =
                    format!("--spec-type draft-simple --spec-draft-n-max {tokens} --spec-draft-n-min 1");
                Ok(vec![format!("{file} {spec}")])
            }
            ExportTarget::IkLlamaCpp => Ok(vec![format!("{file} --draft-max {tokens} --draft-min 1")]),
            ExportTarget::Vllm if on_gpu => {
                let name = serde_json::Value::from(name.as_str());
                let config = format!("{{\"model\": {name}, \"num_speculative_tokens\": {tokens}}}");
                Ok(vec![format!("--speculative-config {}", quoted(&config))])
            }
            ExportTarget::KTransformers | ExportTarget::SgLang if on_gpu => Ok(vec![format!(
                "--speculative-algorithm STANDALONE --speculative-draft-model-path {} \
                 --speculative-num-steps {tokens} --speculative-eagle-topk 1 --speculative-num-draft-tokens {}",
                quoted(name),
                tokens + 1,
            )]),
            _ => {
                let what = format!("a plan with the draft {name} on '{}'", draft.device);
                let wanted = "export it to llama.cpp, or with the draft on a GPU to vllm, sglang or ktransformers; \
                              or plan without speculative";
                Err(self.unsupported(what, wanted))
            }
        }
    }

    /// Bytes of the plan's draft in a memory.
    pub fn draft_bytes(&self, memory: MemoryId) -> Bytes {
        let draft = self.plan.draft.as_ref();
        let used = draft.and_then(|draft| draft.memory.get(&self.machine.memory(memory).name));
        used.map_or(Bytes::ZERO, |used| used.total())
    }

    /// The share of `memory` that the plan and its draft use, rounded up to a hundredth; at most
    /// 0.99.
    pub fn used_share(&self, memory: MemoryId, used: Bytes) -> f64 {
        // The machine's memory is what the draft leaves.
        let draft = self.draft_bytes(memory).as_f64();
        let all = self.machine.memory(memory).capacity.value.as_f64() + draft;
        (((used.as_f64() + draft) / all * 100.0).ceil() / 100.0).min(0.99)
    }
}
