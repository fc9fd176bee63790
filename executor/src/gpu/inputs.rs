//! The integers of a pass that kernels read: positions, tokens, lengths and slots.

use crate::batch::pass::{MicroBatchPass, Pass};
use crate::batch::sequence::SlotSequence;
use crate::setup::run_setup::RunSetup;
use hwprofiles::Bytes;
use kernels::cuda::calls::{GpuSlice, LEAST_DECODE};
use kernels::cuda::{Accelerator, Queue};
use kernels::{Buffer, MemoryArena, SamplingParams};
use planner::{MicroBatch, RunExtent};
use std::sync::Arc;

/// The integers of the current pass, of every micro-batch, on the host and on the GPU.
pub(crate) struct PassInputs {
    parts: Vec<MicroBatchInputs>,
    context: usize,
}

struct MicroBatchInputs {
    here: Buffer,
    /// The tokens that the GPU chose in the pass, in the host's memory.
    chosen: Buffer,
    /// Of the current pass; `None` before the first.
    view: Option<InputsView>,
}

/// Where the integers of one micro-batch of the current pass are.
#[derive(Clone, Copy)]
pub(crate) struct InputsView {
    /// All of the following, on the GPU.
    all: GpuSlice<u8>,
    /// At least the length of the longest sequence, new tokens included. It is the same number for
    /// many passes.
    pub longest: usize,
    /// The most new tokens of a sequence.
    pub most_new: usize,
    /// By sequence in the pass: its page, which is its slot of the cache.
    pub table: GpuSlice<i32>,
    /// By sequence in the pass: the positions that its last token sees.
    pub lengths: GpuSlice<i32>,
    /// Four numbers per sequence, as [`kernels::cuda::calls::prefill`] wants them.
    pub spans: GpuSlice<i32>,
    /// By row.
    pub positions: GpuSlice<i32>,
    /// By row: index of its sequence in the pass.
    pub row_sequences: GpuSlice<i32>,
    /// By row.
    pub tokens: GpuSlice<i32>,
    /// By row with logits: how its token is chosen, where the GPU chooses it.
    pub choices: GpuSlice<SamplingParams>,
    /// The tokens that the GPU chooses.
    pub chosen: GpuSlice<i32>,
}

impl PassInputs {
    /// Buffers for passes of `setup`'s extent.
    pub fn new(setup: &RunSetup, gpu: &Arc<Accelerator>) -> Result<Self, kernels::KernelError> {
        let extent = &setup.extent;
        let host = MemoryArena::new("a pass's integers", Bytes::new(u64::MAX));
        let part = |part: MicroBatch| {
            let sequences = part.sequences(extent.batch).count();
            let mut here = host.allocate(bytes_of(sequences, extent))?;
            here.pin(gpu)?;
            let mut chosen = host.allocate(sequences * extent.step_tokens as usize * size_of::<i32>())?;
            chosen.pin(gpu)?;
            Ok(MicroBatchInputs { here, chosen, view: None })
        };
        let parts = MicroBatch::all(setup.placement.pipelining.micro_batches).map(part);
        Ok(Self {
            parts: parts.collect::<Result<_, kernels::KernelError>>()?,
            context: extent.context as usize,
        })
    }

    /// Bytes that a pass of `extent` takes on the GPU, padded so that what follows is aligned.
    pub fn bytes(extent: &RunExtent) -> usize {
        bytes_of(extent.batch as usize, extent).next_multiple_of(256)
    }

    /// Writes the integers of the next pass. `sequences` has the tokens by slot, and `room` is the
    /// GPU's memory for the integers. Where the GPU `samples`, random numbers are drawn for
    /// sequences that have no token yet after the pass. All work of the pass before must have
    /// ended.
    pub fn begin(
        &mut self,
        pass: &Pass,
        sequences: &mut [SlotSequence],
        samples: bool,
        mut room: GpuSlice<u8>,
    ) {
        for (part, share) in self.parts.iter_mut().zip(&pass.parts) {
            part.view = Some(InputsView::new(room, &part.chosen, share, self.context));
            room = room.from(part.here.len());
            let integers = part.here.view_mut::<i32>();
            let mut at = 0;
            let mut put = |value: i32| {
                integers[at] = value;
                at += 1;
            };
            share.spans.iter().for_each(|span| put(span.sequence as i32));
            share.spans.iter().for_each(|span| put((span.past + span.new) as i32));
            let mut row = 0;
            for (turn, span) in share.spans.iter().enumerate() {
                [turn, span.past, span.new, row].into_iter().for_each(|value| put(value as i32));
                row += span.new;
            }
            share.positions.iter().for_each(|&position| put(position as i32));
            let spans = || share.spans.iter().enumerate();
            spans().for_each(|(turn, span)| (0..span.new).for_each(|_| put(turn as i32)));
            for span in &share.spans {
                let tokens = &sequences[share.first + span.sequence].tokens;
                tokens[span.past..span.past + span.new].iter().for_each(|&token| put(token as i32));
            }
            for (slot, reached) in share.sampled().filter(|_| samples) {
                let sequence = &mut sequences[slot];
                let wanted = sequence.is_open(reached);
                let choice = if wanted { sequence.sampler.next_choice() } else { SamplingParams::GREEDY };
                let SamplingParams { uniform, temperature, top_p, top_k } = choice;
                [uniform, temperature, top_p].into_iter().for_each(|number| put(number.to_bits() as i32));
                put(top_k);
            }
        }
    }

    /// Enqueues the copy of the integers to the GPU.
    pub fn send(&self, queue: &mut Queue) -> Result<(), kernels::KernelError> {
        self.parts.iter().try_for_each(|part| {
            let all = part.view().all;
            queue.copy(all, part.here.values().first(all.len()))
        })
    }

    /// The numbers that distinguish passes whose kernel calls differ, if every sequence of this
    /// pass decodes one token and gets the next; `None` where prompts enter.
    pub fn shape(&self) -> Option<Vec<usize>> {
        let decodes = |view: &InputsView| view.most_new <= 1 && view.choices.len() == view.rows();
        let views = || self.parts.iter().map(MicroBatchInputs::view);
        views().all(decodes).then(|| views().flat_map(|view| [view.rows(), view.longest]).collect())
    }

    /// The tokens that the pass has chosen, −1 where logits were not finite; its work must have
    /// ended.
    pub fn chosen(&self) -> impl Iterator<Item = i32> + '_ {
        self.parts.iter().flat_map(|part| &part.chosen.view::<i32>()[..part.view().chosen.len()]).copied()
    }

    /// One micro-batch of the current pass.
    pub fn view(&self, part: MicroBatch) -> InputsView {
        *self.parts[part.index as usize].view()
    }
}

/// Bytes of the integers of `sequences` sequences and their rows, and of the parameters of their
/// tokens' choice.
fn bytes_of(sequences: usize, extent: &RunExtent) -> usize {
    let (chunk, step) = (extent.chunk.max(1) as usize, extent.step_tokens as usize);
    let rows = sequences * chunk.max(step);
    (6 * sequences + 3 * rows) * size_of::<i32>() + sequences * step * size_of::<SamplingParams>()
}

impl MicroBatchInputs {
    fn view(&self) -> &InputsView {
        self.view.as_ref().expect("a pass has begun")
    }
}

impl InputsView {
    fn new(room: GpuSlice<u8>, chosen: &Buffer, share: &MicroBatchPass, context: usize) -> Self {
        let (turns, rows, ends) = (share.spans.len(), share.rows(), share.ends.len());
        let bytes = (6 * turns + 3 * rows) * size_of::<i32>() + ends * size_of::<SamplingParams>();
        let mut rest: GpuSlice<i32> = room.cast();
        let mut next = |len| {
            let (these, after) = (rest.first(len), rest.from(len));
            rest = after;
            these
        };
        let longest = share.spans.iter().map(|span| span.past + span.new).max().unwrap_or(0);
        Self {
            all: room.first(bytes),
            longest: longest.next_power_of_two().max(LEAST_DECODE).min(context),
            most_new: share.spans.iter().map(|span| span.new).max().unwrap_or(0),
            table: next(turns),
            lengths: next(turns),
            spans: next(4 * turns),
            positions: next(rows),
            row_sequences: next(rows),
            tokens: next(rows),
            choices: next(ends * size_of::<SamplingParams>() / size_of::<i32>()).cast(),
            chosen: chosen.values().first(ends),
        }
    }

    /// Rows of activations.
    pub fn rows(&self) -> usize {
        self.positions.len()
    }
}
