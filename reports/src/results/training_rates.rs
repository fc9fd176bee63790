//! The time of a training step and the rates that follow from it.

use crate::numbers::serde_forms::in_seconds;
use crate::results::configuration::MemoryUse;
use hwprofiles::{Bytes, Flop, FlopPerSec, Machine, Seconds};
use planner::Trace;
use scenarios::{Training, WeightFormats};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The time of a training step and the rates that follow from it. `metrics.md` defines them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainingRates {
    /// From the start of the first task to the end of the last update.
    #[serde(rename = "step_s", with = "in_seconds")]
    pub step: Seconds,
    /// Tokens of all sequences per second.
    pub tokens_per_s: f64,
    /// FLOP of the forward and the backward pass ÷ step time; recomputation does not count.
    pub model_rate: FlopPerSec,
    /// All FLOP ÷ step time.
    pub computed_rate: FlopPerSec,
    /// MFU: `model_rate` ÷ the best known matrix-product rate of the accelerator.
    pub mfu: Option<f64>,
    /// Bytes over each link, including activations that devices fetch themselves.
    pub link_bytes: BTreeMap<String, Bytes>,
    /// The use of each memory.
    pub memory: Vec<MemoryUse>,
}

impl TrainingRates {
    /// The rates of `trace`, one step of `training` on `machine`. `memory` is the use of its
    /// memories.
    pub fn from_trace(
        trace: &Trace,
        training: &Training,
        machine: &Machine,
        weights: WeightFormats,
        memory: Vec<MemoryUse>,
    ) -> Self {
        let step = Seconds::from_nanos(trace.steps.iter().map(|span| span.end_ns).max().unwrap_or(0));
        let (mut all, mut backward) = (Flop::ZERO, Flop::ZERO);
        let mut link_bytes: BTreeMap<String, Bytes> = BTreeMap::new();
        for event in &trace.events {
            all += event.flop;
            if event.name.starts_with("backward") {
                backward += event.flop;
            }
            if machine.device_named(&event.lane).is_none() {
                *link_bytes.entry(event.lane.clone()).or_default() += event.bytes;
            }
        }
        // The forward pass has half of the FLOP of the backward pass.
        let model = Flop::new(backward.get() + backward.get() / 2);
        let lanes = |event: &&planner::TraceEvent| event.name.starts_with("backward");
        let computes = trace.events.iter().find(lanes).and_then(|event| machine.device_named(&event.lane));
        let best = computes.and_then(|device| machine.device(device).peak_rate(weights.distinct()));
        let model_rate = model / step;
        Self {
            step,
            tokens_per_s: (training.sequences * training.tokens) as f64 / step.get(),
            model_rate,
            computed_rate: all / step,
            mfu: best.map(|best| model_rate / best),
            link_bytes,
            memory,
        }
    }
}

impl fmt::Display for TrainingRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "step   {:<10}  {:.0} tokens/s", self.step.to_string(), self.tokens_per_s)?;
        let mfu = self
            .mfu
            .map_or(String::new(), |mfu| format!(", {:.0} % of the best product's rate", mfu * 100.0));
        writeln!(f, "model  {}{mfu}; with what is computed again {}", self.model_rate, self.computed_rate)?;
        for (link, bytes) in &self.link_bytes {
            writeln!(f, "{link:<14} {bytes}")?;
        }
        for memory in self.memory.iter().filter(|memory| memory.planned() > Bytes::ZERO) {
            let share = memory.planned().as_f64() / memory.capacity.as_f64() * 100.0;
            writeln!(f, "{:<14} {} of {} ({share:.0} %)", memory.memory, memory.planned(), memory.capacity)?;
        }
        Ok(())
    }
}
