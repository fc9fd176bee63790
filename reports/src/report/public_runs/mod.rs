//! Public runs beside ours: errors by engine, machine, model, format and placement, the slope of
//! decode over context, and the order of setups and of settings.

mod left_out;
mod order;
mod page;
mod summary;
mod table;
mod text;

pub use left_out::{ChosenConstant, LeftOut};
pub use order::{BY_MEDIANS, SettingsFamily, SettingsOrder};
pub use summary::{MachineRank, PublicGroup, PublicSummary, SweepSlope};

use serde::Serialize;

/// The set of runs that somebody reports of a machine.
const SINGLE: &str = "single runs";

/// A public number beside ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublicRow {
    /// The row's id.
    pub id: String,
    /// The setup that was measured.
    pub setup: String,
    /// Where the number was published.
    pub source: String,
    /// The engine.
    pub engine: String,
    /// The engine with its build.
    pub build: String,
    /// The host on which it ran, in words.
    pub host: String,
    /// What its owner chose beside the placement: formats and threads.
    pub choice: String,
    /// The parts of the machine, joined.
    pub machine: String,
    /// The model's preset.
    pub model: String,
    /// The format, as the source calls it.
    pub format: String,
    /// Where layers or experts were, in a few words.
    pub placement: String,
    /// `prompt` or `decode`.
    pub phase: String,
    /// Tokens in the cache.
    pub past: u64,
    /// Tokens of the prompt that was timed, and of the answer.
    pub load: [u64; 2],
    /// The measured rate, in tokens per second.
    pub measured: f64,
    /// Our rate, if there is one.
    pub ours: Option<f64>,
    /// Where our prediction has everything, so that equal placements are known as such.
    #[serde(skip)]
    pub placed: String,
    /// Why there is none; empty where there is one.
    pub why: String,
    /// What the prediction assumes because the source does not say it; empty where nothing.
    pub assumed: String,
}

impl PublicRow {
    /// Ours ÷ measured.
    pub fn ratio(&self) -> Option<f64> {
        self.ours.map(|ours| ours / self.measured)
    }

    /// Ours ÷ measured − 1.
    pub fn error(&self) -> Option<f64> {
        self.ratio().map(|ratio| ratio - 1.0)
    }

    /// Whether it is a point of a sweep over context.
    fn is_of_a_sweep(&self) -> bool {
        self.set() == "sweeps over context"
    }

    /// The set that it is of, by the beginning of its setup's name.
    fn set(&self) -> &'static str {
        match self.setup.split('-').next() {
            Some("sweep") => "sweeps over context",
            Some("unified") => "one memory for CPU and GPU",
            _ => SINGLE,
        }
    }

    /// The machine, or that it is not named.
    fn machine_name(&self) -> &str {
        if self.machine.is_empty() { "not named" } else { &self.machine }
    }
}

/// All public runs, setup by setup.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublicRows(pub Vec<PublicRow>);

#[cfg(test)]
mod tests {
    use super::*;

    /// Two setups on one machine: one of a thread, one a sweep whose time per token grows by 1 ms
    /// (ours by 1.5 ms) every 1,024 tokens.
    pub(super) fn rows() -> PublicRows {
        let row =
            |id: &str, setup: &str, phase: &str, past: u64, measured: f64, ours: Option<f64>| PublicRow {
                id: id.to_owned(),
                setup: setup.to_owned(),
                source: "a thread".to_owned(),
                engine: "llama.cpp".to_owned(),
                build: "llama.cpp 1".to_owned(),
                host: "a cpu".to_owned(),
                choice: "Q4".to_owned(),
                machine: "cpu+gpu".to_owned(),
                model: "tiny".to_owned(),
                format: "Q4".to_owned(),
                placement: "all experts on the CPU".to_owned(),
                phase: phase.to_owned(),
                past,
                load: [0, 128],
                measured,
                ours,
                placed: setup.to_owned(),
                why: if ours.is_some() { String::new() } else { "the model is not named".to_owned() },
                assumed: String::new(),
            };
        let mut all = vec![
            row("a", "run-1", "decode", 512, 10.0, Some(11.0)),
            row("b", "run-2", "decode", 512, 20.0, Some(16.0)),
            row("c", "run-2", "prompt", 0, 100.0, Some(150.0)),
            row("d", "run-3", "decode", 512, 5.0, None),
        ];
        all.extend((0..5).map(|at: u64| {
            let time = |step: f64| 1e3 / (20.0 + step * at as f64);
            row(&format!("s-{at}"), "sweep-1", "decode", 1024 * at, time(1.0), Some(time(1.5)))
        }));
        PublicRows(all)
    }
}
