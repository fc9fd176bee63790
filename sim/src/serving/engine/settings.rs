//! An engine's settings: its limits and its scheduling policy.

use crate::clock::{SimTime, Tick};
use crate::serving::engine::front_end::FrontEnd;
use crate::serving::engine::request::{RejectReason, Request};
use crate::serving::kv::capacity::KvCapacity;
use crate::serving::kv::offload::{KvOffload, KvOffloadError, OffloadPurpose};
use crate::serving::kv::sequence_blocks::SequenceBlocks;
use hwprofiles::{Bytes, Seconds, Sourced};
use planner::{CostModel, Placement};
use scenarios::{
    EngineChoice, MOONCAKE_TOKENS, Reserve, Scheduler, ServingDefaults, StateSnapshots, SwapChoice,
};
use serde::{Deserialize, Serialize};

/// The order in which waiting requests are admitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The shortest prompt first.
    ShortestFirst,
    /// The request with the least time left to keep these limits first. A step is no longer than
    /// the limits of its sequences allow. Prompts enter beside decodes, whatever
    /// [`EngineSettings::prefill_first`] says.
    Slo {
        /// The limit on the time to the first token.
        ttft: SimTime,
        /// The limit on the time per output token.
        tpot: SimTime,
    },
}

impl From<Scheduler> for AdmissionPolicy {
    fn from(scheduler: Scheduler) -> Self {
        match scheduler {
            Scheduler::Fcfs => Self::Fcfs,
            Scheduler::ShortestFirst => Self::ShortestFirst,
            Scheduler::Slo { ttft, tpot } => Self::Slo {
                ttft: SimTime::rounding_up(ttft, Tick::Picosecond),
                tpot: SimTime::rounding_up(tpot, Tick::Picosecond),
            },
        }
    }
}

/// The host's time between two steps, while the devices wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostTimes {
    /// For every step.
    pub per_step: SimTime,
    /// For every sequence of the step.
    pub per_sequence: SimTime,
}

impl HostTimes {
    /// The host's time before a step of `sequences` sequences.
    pub fn time(&self, sequences: u64) -> SimTime {
        self.per_step + self.per_sequence.times(sequences)
    }
}

/// An engine's settings, with vLLM's names for the settings that vLLM has.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EngineSettings {
    /// The most sequences that run at once.
    pub max_num_seqs: u64,
    /// The most tokens of one step; at least `max_num_seqs`.
    pub max_num_batched_tokens: u64,
    /// The most tokens of a sequence, prompt and answer together.
    pub max_model_len: u64,
    /// Blocks of the KV cache.
    pub num_blocks: u64,
    /// Tokens of a block.
    pub block_size: u64,
    /// What a sequence takes of the blocks: one for each `block_size` tokens, and what its windows
    /// and states take.
    pub sequence: SequenceBlocks,
    /// Where the states of prefixes are kept.
    pub snapshots: StateSnapshots,
    /// Whether a prompt may enter in chunks. Otherwise it enters as a whole, and alone if it is
    /// longer than a step.
    pub chunked_prefill: bool,
    /// Whether free blocks can be found again until they are overwritten.
    pub prefix_caching: bool,
    /// Tokens for each name of [`Request::prefix`]: a multiple of `block_size`.
    pub prefix_tokens: u64,
    /// Whether requests come with what is kept of their prompts but the last token, which another
    /// engine has computed.
    pub prefilled: bool,
    /// Whether prompts enter in steps of their own before any sequence decodes, as in SGLang.
    /// Otherwise they enter beside decodes.
    pub prefill_first: bool,
    /// The tokens that must have room before a request is admitted.
    pub reserve: Reserve,
    /// The order in which requests are admitted.
    pub policy: AdmissionPolicy,
    /// The swap space for the KV cache of preempted sequences. Without one it is computed again.
    pub swap: Option<KvOffload>,
    /// The second level of the prefix cache, which keeps named prefixes after the KV cache has
    /// overwritten them. It has no effect without `prefix_caching`.
    pub second_level: Option<KvOffload>,
    /// The host's time between steps.
    pub host: HostTimes,
    /// What stands between the engine and its clients.
    pub front_end: FrontEnd,
}

impl EngineSettings {
    /// The engine of a scenario with `num_blocks` blocks, for a model of `max_model_len` positions.
    /// The engine's own defaults fill in what the scenario does not set.
    /// [`KvOffload::new_swap_space`] and [`EngineSettings::prefix_level`] make `swap` and
    /// `second_level`.
    pub fn from_choice(choice: &EngineChoice, num_blocks: u64, max_model_len: u64) -> Self {
        let defaults: &ServingDefaults = &choice.profile.serving;
        let block_size = choice.block_size.unwrap_or(defaults.block_size.value);
        // Each sequence needs a token of the step.
        let tokens = choice.max_num_batched_tokens;
        let max_num_seqs =
            choice.max_num_seqs.unwrap_or(defaults.max_num_seqs.value.min(tokens.unwrap_or(u64::MAX)));
        let time = |seconds: Option<Seconds>, default: &Sourced<Seconds>| {
            SimTime::rounding_up(seconds.unwrap_or(default.value), Tick::Picosecond)
        };
        Self {
            max_num_seqs,
            max_num_batched_tokens: tokens.unwrap_or(defaults.max_num_batched_tokens.value.max(max_num_seqs)),
            max_model_len,
            num_blocks: choice.num_blocks.unwrap_or(num_blocks),
            block_size,
            sequence: SequenceBlocks::default(),
            snapshots: defaults.snapshots,
            chunked_prefill: choice.chunked_prefill.unwrap_or(defaults.chunked_prefill),
            prefix_caching: choice.prefix_caching.unwrap_or(defaults.prefix_caching),
            prefix_tokens: MOONCAKE_TOKENS.next_multiple_of(block_size),
            prefilled: false,
            prefill_first: choice.prefill_first.unwrap_or(defaults.prefill_first),
            reserve: defaults.reserve,
            policy: choice.scheduler.into(),
            swap: None,
            second_level: None,
            host: HostTimes {
                per_step: time(choice.host_per_step, &defaults.host_per_step),
                per_sequence: time(choice.host_per_sequence, &defaults.host_per_sequence),
            },
            front_end: FrontEnd::new(defaults),
        }
    }

    /// The second level of the prefix cache that a scenario asks for, for this engine on
    /// `placement`, beside the swap space `swap`.
    ///
    /// # Errors
    /// As [`KvOffload::new_swap_space`]. At least one name must fit.
    pub fn prefix_level(
        &self,
        choice: &SwapChoice,
        swap: Option<&SwapChoice>,
        cost_model: CostModel<'_>,
        placement: &Placement,
    ) -> Result<KvOffload, KvOffloadError> {
        let tokens = self.prefix_tokens;
        let purpose = OffloadPurpose {
            keys: ["engine.prefix_cache.to", "engine.prefix_cache.space"],
            what: "keeping prefixes",
            least: (self.stored_blocks_per_name(), format!("the {tokens} tokens of one name")),
            taken: swap.filter(|swap| swap.to == choice.to).map_or(Bytes::ZERO, |swap| swap.space),
        };
        KvOffload::new(
            choice,
            cost_model,
            placement,
            [self.block_size, self.max_num_batched_tokens],
            &purpose,
        )
    }

    /// Blocks of a sequence of `tokens` tokens.
    pub fn blocks(&self, tokens: u64) -> u64 {
        self.sequence.blocks(tokens, self.block_size)
    }

    /// Blocks that a copy of a sequence of `tokens` tokens takes.
    pub(crate) fn copied_blocks(&self, tokens: u64) -> u64 {
        self.sequence.copied(tokens, self.block_size)
    }

    /// Blocks that `tokens` tokens of any sequences take without end.
    pub(crate) fn growing_blocks(&self, tokens: u64) -> u64 {
        if self.sequence.grows() { tokens.div_ceil(self.block_size) } else { 0 }
    }

    /// The most tokens, in whole blocks, of a sequence that holds `held` blocks, of which it needs
    /// all for at most `most` tokens.
    pub(crate) fn tokens_within(&self, held: u64, most: u64) -> u64 {
        if self.sequence.is_plain() {
            return held * self.block_size;
        }
        let (mut least, mut too_many) = (0, most.div_ceil(self.block_size) + 1);
        while too_many - least > 1 {
            let middle = least.midpoint(too_many);
            match self.blocks(middle * self.block_size) <= held {
                true => least = middle,
                false => too_many = middle,
            }
        }
        least * self.block_size
    }

    /// Blocks of the tokens of one name that grow without end.
    pub(crate) fn blocks_per_name(&self) -> u64 {
        self.growing_blocks(self.prefix_tokens)
    }

    /// Blocks of one name in the second level: its tokens, and its snapshot.
    pub(crate) fn stored_blocks_per_name(&self) -> u64 {
        self.blocks_per_name() + self.snapshot_blocks(true)
    }

    /// Blocks of the snapshot at the end of a name, with the state if it `has_state`.
    pub(crate) fn snapshot_blocks(&self, has_state: bool) -> u64 {
        self.sequence.snapshot(self.prefix_tokens, has_state)
    }

    /// Whether the state at the end of the name with this number, from 1 on, of `names` names is
    /// kept.
    pub(crate) fn keeps_state(&self, number: usize, names: usize) -> bool {
        let number = number as u64;
        self.sequence.has_state()
            && match self.snapshots {
                StateSnapshots::EveryName => true,
                StateSnapshots::Interval(tokens) => {
                    let before = (number - 1) * self.prefix_tokens / tokens;
                    number * self.prefix_tokens / tokens > before || number == names as u64
                }
                StateSnapshots::PromptEnd => number == names as u64,
            }
    }

    /// The same engine with the KV cache `capacity`. No more sequences run than have room for
    /// their states.
    #[must_use]
    pub fn with_capacity(self, capacity: &KvCapacity) -> Self {
        Self {
            max_num_seqs: self.max_num_seqs.min(capacity.most_sequences),
            num_blocks: capacity.blocks,
            sequence: capacity.sequence.clone(),
            ..self
        }
    }

    /// Why `request` can never be served, if it cannot.
    pub fn refusal(&self, request: &Request) -> Option<RejectReason> {
        let all = request.prompt_tokens.saturating_add(request.output_tokens);
        if request.prompt_tokens == 0 || request.output_tokens == 0 {
            Some(RejectReason::Empty)
        } else if all > self.max_model_len {
            Some(RejectReason::BeyondContext)
        } else if self.blocks(all - 1) > self.num_blocks {
            // The last token is sampled, not computed, so it needs no room.
            Some(RejectReason::BeyondKvCache)
        } else {
            None
        }
    }
}
