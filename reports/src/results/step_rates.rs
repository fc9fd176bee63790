//! The times of a run and the rates that follow from them.

use crate::results::configuration::RunTimes;
use hwprofiles::{Bytes, BytesPerSec, Flop, FlopPerSec, Machine, MissingRate, Seconds};
use planner::{Action, CostModel, PhasePrograms, StepSpan, Trace};
use scenarios::{Phase, WeightFormats};
use serde::Serialize;
use std::fmt;

/// The times of a run and the rates that follow from them. `metrics.md` defines them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRates {
    /// TTFT and TPOT.
    #[serde(flatten)]
    pub times: RunTimes,
    /// Output tokens of all sequences per second, over the whole run.
    pub output_tokens_per_s: f64,
    /// FLOP of the prefill ÷ TTFT.
    pub prefill: FlopPerSec,
    /// Bytes that the operators of the decode move through memories ÷ the time of the decode.
    /// `None` without decode steps.
    pub decode: Option<BytesPerSec>,
    /// MFU of the prefill: `prefill` ÷ the sum of the devices' best measured matrix-product rates.
    pub prefill_of_measured: Option<f64>,
    /// MBU of the decode: `decode` ÷ the sum of the measured bandwidths of the memories.
    pub decode_of_measured: Option<f64>,
}

impl StepRates {
    /// The rates of `trace`, a run on `machine` with weights in the formats `weights`.
    pub fn from_trace(trace: &Trace, machine: &Machine, weights: WeightFormats) -> Self {
        let (mut flop, mut bytes) = (Flop::ZERO, Bytes::ZERO);
        for event in &trace.events {
            // Operators read the bytes that transfers move, so counting both would count them
            // twice.
            let computes = machine.device_named(&event.lane).is_some() && !event.name.starts_with("hop");
            match trace.steps[event.step as usize].step.phase {
                Phase::Prefill => flop += event.flop,
                Phase::Decode if computes => bytes += event.bytes,
                Phase::Decode => {}
            }
        }
        Self::from_totals(trace, machine, weights, flop, bytes)
    }

    /// The rates of a run whose trace has only steps. `programs` gives the tasks of the steps.
    ///
    /// # Errors
    /// A rate that the machine's profile lacks.
    pub fn from_steps(
        trace: &Trace,
        cost_model: CostModel<'_>,
        programs: &PhasePrograms,
    ) -> Result<Self, MissingRate> {
        let (mut flop, mut bytes) = (Flop::ZERO, Bytes::ZERO);
        for StepSpan { step, .. } in trace.steps.iter().filter(|span| !span.draft) {
            for task in &programs.program(step.phase).tasks {
                let price = cost_model.task_cost(task, step)?;
                match (step.phase, &task.action) {
                    (Phase::Prefill, _) => flop += price.flop,
                    (Phase::Decode, Action::Compute { .. }) => bytes += price.moved(),
                    (Phase::Decode, _) => {}
                }
            }
        }
        Ok(Self::from_totals(trace, cost_model.machine, cost_model.formats.weights, flop, bytes))
    }

    /// The rates for the FLOP of the prefill and the bytes of the decode.
    fn from_totals(
        trace: &Trace,
        machine: &Machine,
        weights: WeightFormats,
        flop: Flop,
        bytes: Bytes,
    ) -> Self {
        let times = RunTimes::from_trace(trace);
        let end = Seconds::from_nanos(trace.steps.last().map_or(0, |step| step.end_ns));
        let prefill = flop / times.ttft;
        let decode = times.tpot.map(|_| bytes / (end - times.ttft));
        let peak = machine
            .devices
            .iter()
            .map(|device| device.peak_rate(weights.distinct()))
            .sum::<Option<FlopPerSec>>();
        let bandwidth = read_bandwidth(machine);
        Self {
            output_tokens_per_s: trace.output_tokens() / end.get(),
            prefill,
            decode,
            prefill_of_measured: peak.map(|peak| prefill / peak),
            decode_of_measured: decode.map(|decode| decode / bandwidth),
            times,
        }
    }
}

/// The sum of the bandwidths of all memories that are not part of another.
fn read_bandwidth(machine: &Machine) -> BytesPerSec {
    machine.memories.iter().filter(|memory| memory.within.is_none()).map(|m| m.bandwidth.value).sum()
}

impl fmt::Display for StepRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: Option<f64>, rate: &str| {
            share.map_or(String::new(), |s| format!(", {:.0} % of the {rate}", s * 100.0))
        };
        writeln!(
            f,
            "TTFT   {:<10}  {}{}",
            self.times.ttft.to_string(),
            self.prefill,
            percent(self.prefill_of_measured, "GEMM rate")
        )?;
        if let (Some(tpot), Some(decode)) = (self.times.tpot, self.decode) {
            writeln!(
                f,
                "TPOT   {:<10}  {decode}{}",
                tpot.to_string(),
                percent(self.decode_of_measured, "read bandwidth")
            )?;
        }
        writeln!(f, "output {:.1} tokens/s", self.output_tokens_per_s)
    }
}
