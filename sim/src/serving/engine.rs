//! How an engine batches: its limits and its habits.

use super::picos::Picos;
use super::request::{Rejected, Request};
use super::swap::Swap;
use scenarios::{EngineChoice, EngineName, MOONCAKE_TOKENS, Scheduler};
use serde::{Deserialize, Serialize};

/// Who comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The shortest prompt first.
    ShortestFirst,
    /// Who has the least time left to keep these limits, and steps no longer than the limits of those in them allow. Prompts
    /// enter beside decodes, whatever [`Engine::prefill_first`] says.
    Slo {
        /// On the time to the first token.
        ttft: Picos,
        /// On the time per output token.
        tpot: Picos,
    },
}

impl From<Scheduler> for Policy {
    fn from(scheduler: Scheduler) -> Self {
        match scheduler {
            Scheduler::Fcfs => Self::Fcfs,
            Scheduler::ShortestFirst => Self::ShortestFirst,
            Scheduler::Slo { ttft, tpot } => {
                Self::Slo { ttft: Picos::rounding_up(ttft), tpot: Picos::rounding_up(tpot) }
            }
        }
    }
}

/// What must have room before a request is admitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reserve {
    /// What enters in its first step.
    Chunk,
    /// All of its prompt, as in vLLM.
    #[default]
    Prompt,
    /// Its prompt and its answer, beside what is expected of the answers of those who run, as in SGLang.
    Answer,
}

impl Reserve {
    /// Of an answer, more is not reserved.
    pub(super) const MOST: u64 = 4096;

    /// Tokens that are kept for `left` tokens of answers that run, so many decode steps after the engine began, or last
    /// sent somebody back: seven tenths of them at first, a seventh of that after six hundred steps (SGLang's
    /// `new_token_ratio`).
    pub(super) fn expected(left: u64, steps: u64) -> u64 {
        const FIRST: f64 = 0.7;
        const LEAST: f64 = 0.14 * FIRST;
        const STEPS: u64 = 600;
        let share = FIRST - (FIRST - LEAST) * steps.min(STEPS) as f64 / STEPS as f64;
        (left as f64 * share).ceil() as u64
    }
}

/// What the host does between two steps, while the devices wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Host {
    /// For every step.
    pub per_step: Picos,
    /// For every sequence of it.
    pub per_sequence: Picos,
}

impl Host {
    /// Before a step of so many sequences.
    pub fn of(&self, sequences: u64) -> Picos {
        Picos(self.per_step.0.saturating_add(self.per_sequence.0.saturating_mul(sequences)))
    }
}

/// An engine's settings, in the words of vLLM where it has them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Engine {
    /// Sequences that run at once.
    pub max_num_seqs: u64,
    /// Tokens of one step; at least `max_num_seqs`.
    pub max_num_batched_tokens: u64,
    /// Tokens of a sequence at its end.
    pub max_model_len: u64,
    /// Blocks of the KV cache.
    pub num_blocks: u64,
    /// Tokens of a block.
    pub block_size: u64,
    /// Whether a prompt may enter in chunks; otherwise it enters as a whole, alone where it is longer than a step.
    pub chunked_prefill: bool,
    /// Whether blocks that are free are found again until they are overwritten.
    pub prefix_caching: bool,
    /// Tokens for each name of [`Request::prefix`]: a multiple of `block_size`.
    pub prefix_tokens: u64,
    /// Whether prompts enter in steps of their own, before anybody decodes on, as in SGLang; otherwise beside decodes.
    pub prefill_first: bool,
    /// What must have room before a request is admitted.
    pub reserve: Reserve,
    /// Who comes first.
    pub policy: Policy,
    /// Where the KV cache of who is sent back goes; it is computed again where there is no such place.
    pub swap: Option<Swap>,
    /// Where named prefixes are kept for when the KV cache has overwritten them; nowhere where prefixes are not found.
    pub second_level: Option<Swap>,
    /// What the host takes.
    pub host: Host,
}

impl Engine {
    /// The engine of a scenario with so many blocks, for a model of so many positions. What the scenario does not say is
    /// the engine's habit. Where it swaps to is said by [`Swap::of`], where prefixes
    /// go by [`Swap::of_prefixes`].
    ///
    /// Host times are those that its published runs lack beside what the GPU takes (`scripts/gpu_serving.py`).
    pub fn of(choice: &EngineChoice, num_blocks: u64, max_model_len: u64) -> Self {
        let habits = Habits::of(choice.name);
        let block_size = choice.block_size.unwrap_or(habits.block_size);
        // Each sequence needs a token of the step.
        let tokens = choice.max_num_batched_tokens;
        let max_num_seqs = choice.max_num_seqs.unwrap_or(habits.max_num_seqs.min(tokens.unwrap_or(u64::MAX)));
        let time =
            |seconds: Option<hwprofiles::Seconds>, habit: Picos| seconds.map_or(habit, Picos::rounding_up);
        Self {
            max_num_seqs,
            max_num_batched_tokens: tokens.unwrap_or(habits.max_num_batched_tokens.max(max_num_seqs)),
            max_model_len,
            num_blocks: choice.num_blocks.unwrap_or(num_blocks),
            block_size,
            chunked_prefill: choice.chunked_prefill.unwrap_or(true),
            prefix_caching: choice.prefix_caching.unwrap_or(true),
            prefix_tokens: MOONCAKE_TOKENS.next_multiple_of(block_size),
            prefill_first: choice.prefill_first.unwrap_or(choice.name == EngineName::Sglang),
            reserve: if choice.name == EngineName::Sglang { Reserve::Answer } else { Reserve::Prompt },
            policy: choice.scheduler.into(),
            swap: None,
            second_level: None,
            host: Host {
                per_step: time(choice.host_per_step, habits.host.per_step),
                per_sequence: time(choice.host_per_sequence, habits.host.per_sequence),
            },
        }
    }

    /// Blocks of so many tokens.
    pub fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block_size)
    }

    /// Why `request` can never be served.
    pub fn refusal(&self, request: &Request) -> Option<Rejected> {
        let all = request.prompt_tokens.saturating_add(request.output_tokens);
        match () {
            () if request.prompt_tokens == 0 || request.output_tokens == 0 => Some(Rejected::Empty),
            () if all > self.max_model_len => Some(Rejected::BeyondContext),
            // The last token is sampled, not computed: it needs no room.
            () if self.blocks(all - 1) > self.num_blocks => Some(Rejected::BeyondKvCache),
            () => None,
        }
    }
}

/// The share of a device's memory that an engine uses where a scenario does not say.
pub const GPU_MEMORY_UTILIZATION: f64 = 0.9;

/// What an engine does unless told otherwise.
struct Habits {
    max_num_seqs: u64,
    max_num_batched_tokens: u64,
    block_size: u64,
    host: Host,
}

impl Habits {
    fn of(engine: EngineName) -> Self {
        let host = |per_step: u64, per_sequence: u64| Host {
            per_step: Picos(per_step),
            per_sequence: Picos(per_sequence),
        };
        let habits = |max_num_seqs, max_num_batched_tokens, block_size, host| Self {
            max_num_seqs,
            max_num_batched_tokens,
            block_size,
            host,
        };
        match engine {
            EngineName::Fulcrum => habits(256, 8192, 16, host(0, 0)),
            EngineName::Vllm => habits(256, 8192, 16, host(800_000_000, 0)),
            EngineName::TrtLlm => habits(2048, 8192, 32, host(800_000_000, 0)),
            EngineName::Sglang => habits(1024, 8192, 16, host(500_000_000, 0)),
            EngineName::LlamaCpp => habits(64, 2048, 32, host(0, 0)),
        }
    }
}
