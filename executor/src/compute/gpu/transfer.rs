//! Transfers over a GPU's links: weights and KV caches as they are, activations between f32 and
//! bf16.

use crate::batch::pass::MicroBatchPass;
use crate::compute::transfer::{Hop, ring_rows};
use crate::store::buffers::Store;
use crate::store::cache_layout::CacheLayout;
use crate::store::locks::{read, write};
use crate::store::slices::PackedSlice;
use hwprofiles::DeviceId;
use kernels::cuda::calls::{self, GpuSlice};
use kernels::cuda::{GpuEvent, Queue, StridedCopy};
use kernels::{Buffer, KvShape, KvSpan};
use planner::Task;
use scenarios::{ActivationBuffer as Activation, Model};
use std::ops::Range;
use std::sync::RwLock;

/// Enqueues the copy of a slice from its home into a staging slot.
pub(crate) fn fetch_weights(
    queue: &mut Queue,
    part: &PackedSlice,
    slot: &RwLock<Buffer>,
) -> Result<(), kernels::KernelError> {
    let mut rest: GpuSlice<u8> = read(slot).values();
    for weights in &part.weights {
        let from: GpuSlice<u8> = weights.buffer().values();
        queue.copy(rest.first(from.len()), from)?;
        rest = rest.from(from.len());
    }
    Ok(())
}

/// Enqueues the copy of what a layer's cache has before the pass into a staging slot.
pub(crate) fn fetch_kv(
    queue: &mut Queue,
    store: &Store,
    task: &Task,
    (device, slot): (DeviceId, usize),
    share: &MicroBatchPass,
) -> Result<(), kernels::KernelError> {
    let (layer, part) = (task.layer.expect("attention is in a layer"), task.micro_batch);
    let (home, slot) = (store.kv(layer, part), store.kv_slot(device, slot, part));
    let (to, from, layout) = (read(slot).values(), read(home).values(), store.cache_layout(layer));
    if *layout != CacheLayout::Heads {
        return copy_ranges(queue, to, from, share, |span| layout.before(span));
    }
    copy_kv(queue, store.kv_shape(layer, part), to, from, share, |span| 0..span.past)
}

/// Enqueues the copy of what the pass wrote from a staging slot to the layer's cache.
pub(crate) fn store_kv(
    queue: &mut Queue,
    store: &Store,
    task: &Task,
    (device, slot): (DeviceId, usize),
    share: &MicroBatchPass,
) -> Result<(), kernels::KernelError> {
    let (layer, part) = (task.layer.expect("attention is in a layer"), task.micro_batch);
    let (home, slot) = (store.kv(layer, part), store.kv_slot(device, slot, part));
    let (to, from, layout) = (read(home).values(), read(slot).values(), store.cache_layout(layer));
    if *layout != CacheLayout::Heads {
        return copy_ranges(queue, to, from, share, |span| layout.written(span));
    }
    let new = |span: &KvSpan| span.past..span.past + span.new;
    copy_kv(queue, store.kv_shape(layer, part), to, from, share, new)
}

/// Enqueues the copy of one range of bytes of each of the pass's sequences.
fn copy_ranges(
    queue: &mut Queue,
    to: GpuSlice<u8>,
    from: GpuSlice<u8>,
    share: &MicroBatchPass,
    range: impl Fn(&KvSpan) -> Option<Range<usize>>,
) -> Result<(), kernels::KernelError> {
    share.spans.iter().filter_map(range).try_for_each(|range| {
        let piece = |bytes: GpuSlice<u8>| bytes.from(range.start).first(range.len());
        queue.copy(piece(to), piece(from))
    })
}

/// Enqueues the copy of some positions of the pass's sequences: at most two pieces for each head of
/// each sequence, for keys and for values.
fn copy_kv(
    queue: &mut Queue,
    shape: KvShape,
    to: GpuSlice<u8>,
    from: GpuSlice<u8>,
    share: &MicroBatchPass,
    positions: impl Fn(&KvSpan) -> Range<usize>,
) -> Result<(), kernels::KernelError> {
    let row = shape.row_bytes();
    let stride = shape.capacity * row;
    for span in &share.spans {
        for rows in ring_rows(positions(span), shape.capacity).into_iter().filter(|rows| !rows.is_empty()) {
            let pieces = StridedCopy { count: shape.kv_heads, bytes: rows.len() * row, stride };
            for half in [0, shape.bytes()] {
                let at = half + span.sequence * shape.kv_heads * stride + rows.start * row;
                queue.copy_pieces(to.from(at), from.from(at), pieces)?;
            }
        }
    }
    Ok(())
}

/// Enqueues a hop from the host to the GPU: kernels that read the host's memory.
pub(crate) fn send_hop(
    queue: &mut Queue,
    store: &Store,
    model: &Model,
    share: &MicroBatchPass,
    hop: &Hop<'_>,
) -> Result<(), kernels::KernelError> {
    let [from, to] = [hop.from, hop.to].map(|device| read(store.activation(device, hop.buffer, hop.part)));
    let width = hop.buffer.columns(model) as usize;
    for (first, size) in pieces(model, share, hop) {
        let from = (from.values::<f32>().from(first), width);
        queue.run(&match is_wide(hop.buffer) {
            true => calls::copy_rows((to.values().from(first), width), from, size),
            false => calls::narrow_rows((to.values().from(first), width), from, size),
        })?;
    }
    Ok(())
}

/// Carries out a hop from the GPU to the host, and waits for it: the host's lane has no other work.
pub(crate) fn fetch_hop(
    queue: &mut Queue,
    store: &Store,
    model: &Model,
    share: &MicroBatchPass,
    hop: &Hop<'_>,
) -> Result<(), kernels::KernelError> {
    let from = read(store.activation(hop.from, hop.buffer, hop.part));
    // No task reads these columns on the host before the copy has ended.
    let there = write(store.activation(hop.to, hop.buffer, hop.part));
    let width = hop.buffer.columns(model) as usize;
    for (first, size) in pieces(model, share, hop) {
        let to = (there.values::<f32>().from(first), width);
        queue.run(&match is_wide(hop.buffer) {
            true => calls::copy_rows(to, (from.values().from(first), width), size),
            false => calls::widen_rows(to, (from.values().from(first), width), size),
        })?;
    }
    let done = GpuEvent::new()?;
    queue.record(&done)?;
    done.wait()
}

/// Whether the GPU keeps an activation in f32: sums over many layers, logits, and scores of
/// experts.
fn is_wide(buffer: Activation) -> bool {
    matches!(buffer, Activation::Residual | Activation::Logits | Activation::Routes)
}

/// The pieces of a hop: the first value of each, its rows and columns. Of the residual, the head
/// needs only the rows with logits.
fn pieces(model: &Model, share: &MicroBatchPass, hop: &Hop<'_>) -> Vec<(usize, [usize; 2])> {
    let (width, first) = (hop.buffer.columns(model) as usize, hop.columns.start as usize);
    let columns = (hop.columns.end - hop.columns.start) as usize;
    match (hop.head, hop.buffer) {
        (true, Activation::Residual) => {
            share.ends.iter().map(|end| (end * width + first, [1, columns])).collect()
        }
        (true, _) => vec![(first, [share.ends.len(), columns])],
        (false, _) => vec![(first, [share.rows(), columns])],
    }
}
