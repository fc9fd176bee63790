//! A static batch: its size, and the tokens of each sequence.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::load::speculation::Speculation;
use crate::load::token_count::{MAX_TOKENS, TOKENS_WANTED, tokens_of};
use crate::model::operators::formats::Formats;
use crate::model::operators::layer::LayerKind;
use crate::model::operators::operator::Operator;
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use hwprofiles::DType;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const MAX_SEQUENCES: u64 = 1 << 20;
/// If the bytes of a whole run stay below 2⁶³, no sum of `Bytes` within the run overflows.
const MAX_BYTES: u128 = 1 << 63;

/// A key of a scenario whose value does not fit the model.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// The key, relative to the section that is checked.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
    /// What would be right.
    pub wanted: String,
}

impl Misfit {
    /// `value` under `key` does not fit.
    pub fn new(key: &'static str, value: impl Into<Value>, wanted: String) -> Self {
        Self { key, value: value.into(), wanted }
    }
}

/// A static batch: equal sequences that start and end together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Sequences.
    pub batch: u64,
    /// Prompt tokens of each.
    pub prompt_tokens: u64,
    /// Output tokens of each.
    pub output_tokens: u64,
    /// Speculative decoding, if a draft model proposes tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculation: Option<Speculation>,
}

impl Workload {
    pub(crate) const KEYS: [&str; 3] = ["batch", "prompt_tokens", "output_tokens"];

    /// A batch without speculative decoding: each output token takes one step.
    pub fn new(batch: u64, prompt_tokens: u64, output_tokens: u64) -> Self {
        Self { batch, prompt_tokens, output_tokens, speculation: None }
    }

    /// Tokens of one sequence at the end: prompt, output, and tokens proposed beyond the output.
    pub fn context(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.output_tokens).saturating_add(self.step_tokens() - 1)
    }

    /// Tokens of each sequence that go through one decode step.
    pub fn step_tokens(&self) -> u64 {
        1 + self.speculation.map_or(0, |speculation| speculation.tokens)
    }

    /// Mean number of tokens of each sequence that one decode step yields.
    pub fn tokens_per_step(&self) -> f64 {
        self.speculation.map_or(1.0, |speculation| speculation.tokens_per_step())
    }

    /// Decode steps of the batch. Prefill yields the first token.
    pub fn decode_steps(&self) -> u64 {
        let left = self.output_tokens.saturating_sub(1);
        (left as f64 / self.tokens_per_step()).ceil() as u64
    }

    /// Checks that `model` can run the batch: every size is above 0, the context is within the
    /// model's positions, and no count of bytes can overflow.
    ///
    /// # Errors
    /// [`ScenarioError::Value`] names the key and what would be right.
    pub fn check(&self, model: &Model) -> Result<(), ScenarioError> {
        match self.misfit(model) {
            None => Ok(()),
            Some(Misfit { key, value, wanted }) => Err(ScenarioError::Value {
                place: "workload".to_owned(),
                key: key.to_owned(),
                value: value.to_string(),
                wanted,
            }),
        }
    }

    /// The first key that does not fit `model`.
    pub(crate) fn misfit(&self, model: &Model) -> Option<Misfit> {
        let sizes = [
            ("batch", self.batch, MAX_SEQUENCES),
            ("prompt_tokens", self.prompt_tokens, MAX_TOKENS),
            ("output_tokens", self.output_tokens, MAX_TOKENS),
        ];
        if let Some((key, value, limit)) =
            sizes.into_iter().find(|(_, value, limit)| !(1..=*limit).contains(value))
        {
            return Some(Misfit::new(key, value, format!("a whole number from 1 to {limit} is wanted")));
        }
        if self.context() > model.max_positions {
            let wanted = format!(
                "with output_tokens {} it makes {}, more than the {} positions of {}",
                self.output_tokens,
                self.context(),
                model.max_positions,
                model.name
            );
            return Some(Misfit::new("prompt_tokens", self.prompt_tokens, wanted));
        }
        if self.bytes_bound(model) >= MAX_BYTES {
            let wanted = format!(
                "{} sequences of {} tokens through {} may move more bytes than can be counted (2^63): make it smaller",
                self.batch,
                self.context(),
                model.name
            );
            return Some(Misfit::new("batch", self.batch, wanted));
        }
        None
    }

    /// An upper bound on the bytes that a run moves, for any division of its prompt into steps. It
    /// assumes one step for every token, and that each step reads all weights and the whole KV
    /// cache in the widest format.
    fn bytes_bound(&self, model: &Model) -> u128 {
        let wide = Formats { weights: DType::F32.into(), kv: DType::F32, activations: DType::F32 };
        let number = u128::from(DType::F32.matrix_bytes(1, 1).get());
        let columns = |shape: &Model, sublayer: Sublayer| -> u128 {
            let operators = sublayer.operators(shape).iter();
            let buffers = operators.flat_map(|op: &Operator| op.reads().iter().copied().chain([op.writes()]));
            buffers.map(|buffer| u128::from(buffer.most_columns(model))).sum()
        };
        // Activations between an expert's matrices are written and read, for each expert of a
        // token.
        let inner = model.experts.as_ref().map_or(0, |experts| {
            let width = u128::from(experts.per_token * experts.intermediate + experts.shared);
            2 * width * u128::from(model.neuron_activations())
        });
        let layer = |kind: LayerKind| -> u128 {
            let shape = model.shape(kind);
            let buffers: u128 = kind.sublayers().iter().map(|&sublayer| columns(shape, sublayer)).sum();
            if kind.sublayers().contains(&Sublayer::Experts) { buffers + inner } else { buffers }
        };
        let inside: u128 = model.kinds().map(|(kind, layers)| u128::from(layers) * layer(kind)).sum();
        let layers = u128::from(model.layers);
        let (batch, context) = (u128::from(self.batch), u128::from(self.context()));
        let activations = number
            * (inside + columns(model, Sublayer::Embed) + columns(model, Sublayer::Head))
            * batch
            * context;
        let row = |shape: &Model| {
            let row = |dtype: DType| dtype.cache_bytes(1, shape.kv_numbers() / shape.kv_rows().max(1)).get();
            let widest = DType::ALL.into_iter().map(row).fold(0, u64::max);
            // Bounds the keys of an indexer too.
            let index = shape.index.map_or(0, |index| 8 * index.dim);
            u128::from(widest) * u128::from(shape.kv_rows()) + u128::from(index)
        };
        let state =
            model.shapes().iter().map(|shape| u128::from(shape.state_bytes().get())).fold(0, u128::max);
        let row = model.shapes().iter().map(row).fold(0, u128::max);
        let kv = (row * context + state) * layers * batch;
        let ends = model.sublayer_bytes(Sublayer::Embed, &wide) + model.sublayer_bytes(Sublayer::Head, &wide);
        let weights = u128::from((model.layers_bytes(&wide) + ends).get());
        // Columns and bytes are below 2⁶³, batch is below 2²¹, context below 2³⁴: products fit into
        // 128 bits, sums saturate.
        let steps = (kv + weights).saturating_mul(context);
        activations.saturating_add(kv).saturating_add(steps)
    }
}

/// Reads a static batch from `workload`.
pub(crate) fn read_workload(section: &DocumentSection<'_>) -> Result<Workload, ScenarioError> {
    section.only(&Workload::KEYS)?;
    let count = |key: &str, limit: u64| {
        section
            .count(key, limit)?
            .ok_or_else(|| section.missing(key, &format!("a whole number from 1 to {limit} is wanted")))
    };
    let tokens = |key: &str| match section.get(key).map(tokens_of) {
        Some(Some(tokens)) => Ok(tokens),
        Some(None) => Err(section.wrong(key, TOKENS_WANTED)),
        None => Err(section.missing(key, TOKENS_WANTED)),
    };
    Ok(Workload {
        batch: count("batch", MAX_SEQUENCES)?,
        prompt_tokens: tokens("prompt_tokens")?,
        output_tokens: tokens("output_tokens")?,
        speculation: None,
    })
}
