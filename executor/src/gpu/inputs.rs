//! What kernels must know of a pass: where its rows are, and how long its sequences.

use crate::pass::{Pass, Share};
use crate::sequence::Sequence;
use crate::setup::Setup;
use hwprofiles::Bytes;
use kernels::cuda::calls::Values;
use kernels::cuda::{Accelerator, Queue};
use kernels::{Buffer, Memory};
use planner::MicroBatch;
use std::sync::Arc;

/// The current pass's integers of every micro-batch, on the host and on the GPU.
pub(crate) struct Inputs {
    parts: Vec<Part>,
}

struct Part {
    here: Buffer,
    there: Buffer,
    view: View,
}

/// A micro-batch of the current pass, and where its integers are.
#[derive(Clone, Copy)]
pub(crate) struct View {
    /// The longest sequence, its new tokens included.
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
}

impl Inputs {
    /// For passes of `setup`'s extent.
    pub fn new(setup: &Setup, memory: &Memory, gpu: &Arc<Accelerator>) -> Result<Self, kernels::Error> {
        let extent = &setup.extent;
        let host = Memory::new("a pass's integers", Bytes::new(u64::MAX));
        let part = |part: MicroBatch| {
            let sequences = part.sequences(extent.batch).count();
            let rows = sequences * extent.chunk.max(1) as usize;
            let bytes = (6 * sequences + 3 * rows) * size_of::<i32>();
            let (mut here, there) = (host.allocate(bytes)?, memory.allocate(bytes)?);
            here.pin(gpu)?;
            let view = View::of(&there, &Share::default());
            Ok(Part { here, there, view })
        };
        let parts = MicroBatch::all(setup.placement.pipelining.micro_batches).map(part);
        Ok(Self { parts: parts.collect::<Result<_, kernels::Error>>()? })
    }

    /// Turns to the next pass, whose tokens `sequences` has by slot: enqueues what the GPU must know of it. All work of the
    /// pass before has been waited for.
    pub fn begin(
        &mut self,
        pass: &Pass,
        sequences: &[Sequence],
        queue: &mut Queue,
    ) -> Result<(), kernels::Error> {
        for (part, share) in self.parts.iter_mut().zip(&pass.parts) {
            part.view = View::of(&part.there, share);
            let integers = part.here.view_mut::<i32>();
            let mut at = 0;
            let mut put = |value: usize| {
                integers[at] = value as i32;
                at += 1;
            };
            share.spans.iter().for_each(|span| put(span.sequence));
            share.spans.iter().for_each(|span| put(span.past + span.new));
            let mut row = 0;
            for (turn, span) in share.spans.iter().enumerate() {
                [turn, span.past, span.new, row].into_iter().for_each(&mut put);
                row += span.new;
            }
            share.positions.iter().copied().for_each(&mut put);
            let spans = || share.spans.iter().enumerate();
            spans().for_each(|(turn, span)| (0..span.new).for_each(|_| put(turn)));
            for span in &share.spans {
                let tokens = &sequences[share.first + span.sequence].tokens;
                tokens[span.past..span.past + span.new].iter().for_each(|&token| put(token as usize));
            }
            let bytes = at * size_of::<i32>();
            queue.copy(part.there.values().first(bytes), part.here.values().first(bytes))?;
        }
        Ok(())
    }

    /// A micro-batch of the current pass.
    pub fn view(&self, part: MicroBatch) -> View {
        self.parts[part.index as usize].view
    }
}

impl View {
    fn of(buffer: &Buffer, share: &Share) -> Self {
        let (turns, rows) = (share.spans.len(), share.rows());
        let mut rest: Values<i32> = buffer.values();
        let mut next = |len| {
            let (these, after) = (rest.first(len), rest.from(len));
            rest = after;
            these
        };
        Self {
            longest: share.spans.iter().map(|span| span.past + span.new).max().unwrap_or(0),
            most_new: share.spans.iter().map(|span| span.new).max().unwrap_or(0),
            table: next(turns),
            lengths: next(turns),
            spans: next(4 * turns),
            positions: next(rows),
            turns: next(rows),
            tokens: next(rows),
        }
    }

    /// Rows of activations.
    pub fn rows(&self) -> usize {
        self.positions.len()
    }
}
