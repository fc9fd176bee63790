//! The steps of a run, in groups of steps that differ only in the cost of attention.

use crate::program::extent::RunExtent;
use crate::program::run_steps::steps;
use scenarios::{Phase, Step, Workload};

/// Rows (over all sequences) of one prefill step, of which the planner chooses: many rows use
/// matrix products well and stream weights fewer times; few rows keep activations small.
const PREFILL_ROWS: [u64; 4] = [512, 2048, 8192, 32_768];
/// Rows of a prefill step where memory is short.
const FEW_ROWS: [u64; 2] = [128, 256];

/// Default number of tokens per sequence in one prefill step: together about 512 rows.
pub fn prefill_chunk(workload: &Workload) -> u64 {
    chunk_of(workload, PREFILL_ROWS[0])
}

/// The chunks from which the planner chooses, ascending.
pub(crate) fn prefill_chunks(workload: &Workload) -> Vec<u64> {
    let mut chunks: Vec<u64> = PREFILL_ROWS.map(|rows| chunk_of(workload, rows)).to_vec();
    chunks.dedup();
    chunks
}

/// Smaller chunks, ascending, for memories in which the activations of the smallest of
/// [`prefill_chunks`] take room that weights lack.
pub(crate) fn small_prefill_chunks(workload: &Workload) -> Vec<u64> {
    let mut chunks: Vec<u64> = FEW_ROWS.map(|rows| chunk_of(workload, rows)).to_vec();
    chunks.dedup();
    chunks.retain(|&chunk| chunk < prefill_chunk(workload));
    chunks
}

fn chunk_of(workload: &Workload, rows: u64) -> u64 {
    (rows / workload.batch.max(1)).clamp(1, workload.prompt_tokens.max(1))
}

/// The steps of one static batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchSteps {
    /// The prefill steps in groups of equal sizes: all full chunks, then the short last chunk if
    /// there is one.
    pub prefill: Vec<Vec<Step>>,
    /// A decode step in the middle of the output. Times are affine in the context, so it is the
    /// mean step.
    pub decode: Step,
    /// Number of decode steps.
    pub decodes: u64,
    /// The largest sizes of the run.
    pub extent: RunExtent,
    /// Number of micro-batches of each step.
    pub micro_batches: u64,
}

impl BatchSteps {
    /// The steps of `workload` with `chunk` tokens per sequence in a prefill step.
    pub fn new(workload: &Workload, chunk: u64) -> Self {
        let &Workload { batch, prompt_tokens, .. } = workload;
        let prefill: Vec<_> = steps(&Workload::new(batch, prompt_tokens, 1), chunk);
        let (full, short): (Vec<_>, Vec<_>) = prefill.into_iter().partition(|s| s.new_tokens == chunk);
        let decodes = workload.decode_steps();
        // With one token in each step the middle is a whole number.
        let middle = (decodes.saturating_sub(1) / 2) as f64 * workload.tokens_per_step();
        Self {
            prefill: [full, short].into_iter().filter(|kind| !kind.is_empty()).collect(),
            decode: Step::verify(batch, workload.step_tokens(), prompt_tokens + middle as u64),
            decodes,
            extent: RunExtent::from_workload(workload, chunk),
            micro_batches: 1,
        }
    }

    /// The same steps in `micro_batches` micro-batches.
    pub fn with_micro_batches(self, micro_batches: u64) -> Self {
        Self { micro_batches, ..self }
    }

    /// The groups of equal steps of a phase.
    pub fn kinds(&self, phase: Phase) -> Vec<Vec<Step>> {
        match phase {
            Phase::Prefill => self.prefill.clone(),
            Phase::Decode => vec![vec![self.decode]],
        }
    }
}
