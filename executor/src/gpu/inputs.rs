//! What kernels must know of a pass: where its rows are, and how long its sequences.

use crate::batch::pass::{MicroBatchPass, Pass};
use crate::batch::sequence::SlotSequence;
use crate::setup::run_setup::RunSetup;
use hwprofiles::Bytes;
use kernels::cuda::calls::Values;
use kernels::cuda::{Accelerator, Queue};
use kernels::{Buffer, Choice, Memory};
use planner::{Extent, MicroBatch};
use std::sync::Arc;

/// The current pass's integers of every micro-batch, on the host and on the GPU.
pub(crate) struct PassInputs {
    parts: Vec<MicroBatchInputs>,
    context: usize,
}

/// Passes whose sequences are all shorter than this are alike.
const LEAST: usize = 128;

struct MicroBatchInputs {
    here: Buffer,
    /// The tokens that the pass has chosen, in the host's memory.
    chosen: Buffer,
    /// Of the current pass; before the first there is none.
    view: Option<InputsView>,
}

/// A micro-batch of the current pass, and where its integers are.
#[derive(Clone, Copy)]
pub(crate) struct InputsView {
    /// All that follows, on the GPU.
    all: Values<u8>,
    /// No less than the longest sequence, its new tokens included: one number for many passes.
    pub longest: usize,
    /// The most new tokens of a sequence.
    pub most_new: usize,
    /// Page of each sequence that has a turn: its place in the cache.
    pub table: Values<i32>,
    /// Positions that each sequence's last token sees.
    pub lengths: Values<i32>,
    /// Four numbers for each sequence, as [`kernels::cuda::calls::prefill`] wants them.
    pub spans: Values<i32>,
    /// Of each row.
    pub positions: Values<i32>,
    /// Of each row, whose turn it is.
    pub turns: Values<i32>,
    /// Of each row.
    pub tokens: Values<i32>,
    /// Of each row whose logits are wanted, where tokens are chosen here.
    pub choices: Values<Choice>,
    /// Where the tokens go that are chosen.
    pub chosen: Values<i32>,
}

impl PassInputs {
    /// For passes of `setup`'s extent.
    pub fn new(setup: &RunSetup, gpu: &Arc<Accelerator>) -> Result<Self, kernels::Error> {
        let extent = &setup.extent;
        let host = Memory::new("a pass's integers", Bytes::new(u64::MAX));
        let part = |part: MicroBatch| {
            let sequences = part.sequences(extent.batch).count();
            let mut here = host.allocate(bytes_of(sequences, extent))?;
            here.pin(gpu)?;
            let mut chosen = host.allocate(sequences * size_of::<i32>())?;
            chosen.pin(gpu)?;
            Ok(MicroBatchInputs { here, chosen, view: None })
        };
        let parts = MicroBatch::all(setup.placement.pipelining.micro_batches).map(part);
        Ok(Self { parts: parts.collect::<Result<_, kernels::Error>>()?, context: extent.context as usize })
    }

    /// What a pass of `extent` takes on the GPU; what comes behind it is aligned.
    pub fn bytes(extent: &Extent) -> usize {
        bytes_of(extent.batch as usize, extent).next_multiple_of(256)
    }

    /// Turns to the next pass, whose tokens `sequences` has by slot, and whose integers go to `room` of the GPU. Where the GPU
    /// `samples`, random numbers are drawn for those that have no token yet behind it. All work of the pass before has been
    /// waited for.
    pub fn begin(
        &mut self,
        pass: &Pass,
        sequences: &mut [SlotSequence],
        samples: bool,
        mut room: Values<u8>,
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
                let wanted = reached == sequence.tokens.len();
                let choice = if wanted { sequence.sampler.next_choice() } else { Choice::GREEDY };
                let Choice { uniform, temperature, top_p, top_k } = choice;
                [uniform, temperature, top_p].into_iter().for_each(|number| put(number.to_bits() as i32));
                put(top_k);
            }
        }
    }

    /// Enqueues the copy of what the GPU must know of the pass.
    pub fn send(&self, queue: &mut Queue) -> Result<(), kernels::Error> {
        self.parts.iter().try_for_each(|part| {
            let all = part.view().all;
            queue.copy(all, part.here.values().first(all.len()))
        })
    }

    /// What tells passes apart whose calls differ, if the next token of every sequence of this one is computed and chosen;
    /// nothing where prompts enter.
    pub fn shape(&self) -> Option<Vec<usize>> {
        let decodes = |view: &InputsView| view.most_new <= 1 && view.choices.len() == view.rows();
        let views = || self.parts.iter().map(MicroBatchInputs::view);
        views().all(decodes).then(|| views().flat_map(|view| [view.rows(), view.longest]).collect())
    }

    /// The tokens that a micro-batch's pass has chosen, which has been waited for.
    pub fn chosen(&self) -> impl Iterator<Item = u32> + '_ {
        self.parts.iter().flat_map(|part| {
            let tokens = &part.chosen.view::<i32>()[..part.view().chosen.len()];
            tokens.iter().map(|&token| token as u32)
        })
    }

    /// A micro-batch of the current pass.
    pub fn view(&self, part: MicroBatch) -> InputsView {
        *self.parts[part.index as usize].view()
    }
}

/// Integers of the turns and rows of so many sequences, and by which of them tokens are chosen.
fn bytes_of(sequences: usize, extent: &Extent) -> usize {
    let rows = sequences * extent.chunk.max(1) as usize;
    (6 * sequences + 3 * rows) * size_of::<i32>() + sequences * size_of::<Choice>()
}

impl MicroBatchInputs {
    fn view(&self) -> &InputsView {
        self.view.as_ref().expect("a pass has begun")
    }
}

impl InputsView {
    fn new(room: Values<u8>, chosen: &Buffer, share: &MicroBatchPass, context: usize) -> Self {
        let (turns, rows, ends) = (share.spans.len(), share.rows(), share.ends.len());
        let bytes = (6 * turns + 3 * rows) * size_of::<i32>() + ends * size_of::<Choice>();
        let mut rest: Values<i32> = room.cast();
        let mut next = |len| {
            let (these, after) = (rest.first(len), rest.from(len));
            rest = after;
            these
        };
        let longest = share.spans.iter().map(|span| span.past + span.new).max().unwrap_or(0);
        Self {
            all: room.first(bytes),
            longest: longest.next_power_of_two().max(LEAST).min(context),
            most_new: share.spans.iter().map(|span| span.new).max().unwrap_or(0),
            table: next(turns),
            lengths: next(turns),
            spans: next(4 * turns),
            positions: next(rows),
            turns: next(rows),
            tokens: next(rows),
            choices: next(ends * size_of::<Choice>() / size_of::<i32>()).cast(),
            chosen: chosen.values().first(ends),
        }
    }

    /// Rows of activations.
    pub fn rows(&self) -> usize {
        self.positions.len()
    }
}
