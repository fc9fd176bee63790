//! Where the layer times of a recorded run and the prices of a profile differ.

use hwprofiles::{MissingRate, Seconds};
use scenarios::Operator;
use serde::Serialize;
use sim::serving::{Batch, LayerTimes, OperatorTime, PlanPrices, PrefillChunk, RecordedRun, ServedRequest};

/// A step that is typical of a run.
pub(crate) struct StepSample {
    /// What it computes.
    name: String,
    chunks: Vec<PrefillChunk>,
    decodes: u64,
    /// Tokens that each decode attends to.
    context: u64,
}

/// A step by layer, in microseconds: as measured, and as the profile prices it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepDifference {
    /// What the step computes.
    pub step: String,
    /// The layers in the order of the model.
    pub layers: Vec<LayerDifference>,
}

/// One layer's share of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerDifference {
    /// The layer.
    pub layer: &'static str,
    /// By the layer times.
    pub measured: Seconds,
    /// By the profile.
    pub profile: Seconds,
}

/// The layers that are compared: a name, the layers of the tables, and the operators of the cost
/// model. Engines add the residual in the norm that follows.
const LAYERS: [(&str, &[&str], &[Operator]); 13] = [
    ("embedding", &["embedding"], &[Operator::Embed]),
    (
        "norms, residual",
        &["layernorm", "final_layernorm"],
        &[
            Operator::AttnNorm,
            Operator::AttnAdd,
            Operator::FfnNorm,
            Operator::FfnAdd,
            Operator::RouterNorm,
            Operator::SharedAdd,
            Operator::ExpertsAdd,
            Operator::HeadNorm,
        ],
    ),
    ("qkv", &["qkv_proj"], &[Operator::QkvProj]),
    ("rotary, q/k norm", &["rotary_emb", "qk_norm"], &[Operator::Rotate]),
    ("attention", &["attention"], &[Operator::Attention, Operator::IndexScores]),
    ("out", &["o_proj"], &[Operator::OutProj]),
    ("gate, up", &["gate_up_proj"], &[Operator::UpProj]),
    ("activation", &["act_fn"], &[Operator::Activate]),
    ("down", &["down_proj"], &[Operator::DownProj]),
    ("experts", &["experts"], &[Operator::Route, Operator::Experts, Operator::SharedExpert]),
    ("all-reduce", &["all_reduce"], &[]),
    ("head", &["lm_head"], &[Operator::HeadProj]),
    ("sampling", &["sampler"], &[]),
];

impl StepSample {
    /// A decode step with as many sequences as decoded on average, and a full step of a prompt
    /// beside them.
    pub fn typical<'r>(
        run: &RecordedRun,
        served: impl Iterator<Item = &'r ServedRequest> + Clone,
    ) -> [Self; 2] {
        let seconds = |from: sim::SimTime, until: sim::SimTime| (until - from).to_seconds().get();
        let begin = served.clone().map(|served| served.first_token).min().unwrap_or_default();
        let end = served.clone().map(|served| served.last_token).max().unwrap_or_default();
        let (mut decoding, mut attended, mut prompts) = (0.0, 0.0, 0);
        for one in served.clone() {
            let time = seconds(one.first_token, one.last_token);
            decoding += time;
            attended += time * (one.prompt_tokens as f64 + one.output_tokens as f64 / 2.0);
            prompts = prompts.max(one.prompt_tokens);
        }
        let engines = run.engines as f64;
        let decodes = (decoding / seconds(begin, end).max(1e-9) / engines).round().max(1.0) as u64;
        let context = (attended / decoding.max(1e-9)).round().max(1.0) as u64;
        let new = run.engine.max_num_batched_tokens.saturating_sub(decodes).max(1).min(prompts.max(1));
        let name = format!("{decodes} sequences decode over {context} tokens each");
        let mixed = format!("a prompt of {new} tokens enters beside them");
        [(name, vec![]), (mixed, vec![PrefillChunk { new, past: 0 }])].map(|(name, chunks)| Self {
            name,
            chunks,
            decodes,
            context,
        })
    }
}

impl StepDifference {
    pub(crate) fn new(
        sample: &StepSample,
        times: &LayerTimes,
        prices: &PlanPrices<'_>,
    ) -> Result<Self, MissingRate> {
        let StepSample { name, chunks, decodes, context } = sample;
        let sampled = decodes + chunks.len() as u64;
        let batch = Batch { chunks, decodes: *decodes, decode_tokens: decodes * context, sampled };
        let measured = times.by_layer(&batch);
        let profile = prices.by_operator(&batch)?;
        // Launches and sums over ranks are one number. It is compared where the sums were measured.
        let summed = measured.iter().any(|one| one.layer == "all_reduce");
        let body = |one: &OperatorTime| if summed { one.time - one.overhead } else { one.time };
        let difference = |(layer, names, operators): &(&'static str, &[&str], &[Operator])| {
            let measured = measured.iter().filter(|one| names.contains(&one.layer.as_str()));
            let is_one = |one: &&OperatorTime| match one.operator {
                Some(operator) => operators.contains(&operator),
                None => *layer == "sampling",
            };
            let profile: Seconds = match *layer {
                "all-reduce" if summed => profile.iter().map(|one| one.overhead).sum(),
                _ => profile.iter().filter(is_one).map(body).sum(),
            };
            LayerDifference { layer, measured: measured.map(|one| one.time).sum(), profile }
        };
        let layers = LAYERS.iter().map(difference);
        let layers = layers.filter(|one| one.measured + one.profile > Seconds::ZERO).collect();
        Ok(Self { step: name.clone(), layers })
    }

    /// The whole step.
    pub fn total(&self) -> LayerDifference {
        let sum = |of: fn(&LayerDifference) -> Seconds| self.layers.iter().map(of).sum();
        LayerDifference { layer: "step", measured: sum(|one| one.measured), profile: sum(|one| one.profile) }
    }
}
