//! Transfers over links: weights and KV caches between memories, activations between devices.

use crate::batch::pass::MicroBatchPass;
use crate::store::buffers::Store;
use crate::store::cache_layout::CacheLayout;
use crate::store::locks::{read, write};
use hwprofiles::DeviceId;
use kernels::{KvShape, KvSpan, RateLimitedLink};
use planner::{Action, Lane, MicroBatch, Task};
use scenarios::{ActivationBuffer, Model, Sublayer};
use std::ops::Range;

/// Copies a slice of a matrix from its home into a staging slot.
pub(crate) fn fetch_weights(
    store: &Store,
    link: &RateLimitedLink,
    layer: Option<u32>,
    sublayer: Sublayer,
    first: u64,
    device: DeviceId,
    slot: usize,
) {
    let weights = store.weights(layer, sublayer, first);
    let mut slot = write(store.weight_slot(device, slot));
    let mut rest = slot.bytes_mut();
    // All matrices of the slice are one transfer.
    link.copy_parts(weights.iter().map(|weights| {
        let (to, after) = std::mem::take(&mut rest).split_at_mut(weights.bytes().len());
        rest = after;
        (to, weights.bytes())
    }));
}

/// Copies keys and values of past positions from a layer's cache into a staging slot, for the
/// sequences of `share`, a micro-batch of the pass.
pub(crate) fn fetch_kv(
    store: &Store,
    link: &RateLimitedLink,
    layer: u32,
    part: MicroBatch,
    device: DeviceId,
    slot: usize,
    share: &MicroBatchPass,
) {
    if store.cache_layer(layer) != layer {
        // A layer that shares a cache reads it where it lies.
        return;
    }
    let from = read(store.kv(layer, part));
    let mut to = write(store.kv_slot(device, slot, part));
    let layout = store.cache_layout(layer);
    if *layout != CacheLayout::Heads {
        return copy_ranges(link, to.bytes_mut(), from.bytes(), share, |span| layout.before(span));
    }
    copy_kv(store.kv_shape(layer, part), link, to.bytes_mut(), from.bytes(), share, |span| 0..span.past);
}

/// Copies keys and values of the pass's new positions from a staging slot to the layer's cache.
pub(crate) fn store_kv(
    store: &Store,
    link: &RateLimitedLink,
    layer: u32,
    part: MicroBatch,
    device: DeviceId,
    slot: usize,
    share: &MicroBatchPass,
) {
    if store.cache_layer(layer) != layer {
        return;
    }
    let from = read(store.kv_slot(device, slot, part));
    let mut to = write(store.kv(layer, part));
    let layout = store.cache_layout(layer);
    if *layout != CacheLayout::Heads {
        return copy_ranges(link, to.bytes_mut(), from.bytes(), share, |span| layout.written(span));
    }
    let new = |span: &KvSpan| span.past..span.past + span.new;
    copy_kv(store.kv_shape(layer, part), link, to.bytes_mut(), from.bytes(), share, new);
}

/// Copies one range of bytes of each of the pass's sequences; the ranges ascend.
fn copy_ranges(
    link: &RateLimitedLink,
    to: &mut [u8],
    from: &[u8],
    share: &MicroBatchPass,
    range: impl Fn(&KvSpan) -> Option<Range<usize>>,
) {
    let (mut rest, mut at) = (to, 0);
    let pieces = share.spans.iter().filter_map(&range).map(|range| {
        let (to, after) = std::mem::take(&mut rest)[range.start - at..].split_at_mut(range.len());
        (rest, at) = (after, range.end);
        (to, &from[range])
    });
    link.copy_parts(pieces);
}

/// Copies some positions of the pass's sequences: at most two pieces for each head of each
/// sequence.
fn copy_kv(
    shape: KvShape,
    link: &RateLimitedLink,
    to: &mut [u8],
    from: &[u8],
    share: &MicroBatchPass,
    positions: impl Fn(&KvSpan) -> Range<usize>,
) {
    let (head, row) = (shape.capacity * shape.row_bytes(), shape.row_bytes());
    let mut wanted = vec![[0..0, 0..0]; shape.sequences];
    for span in &share.spans {
        let bytes = |rows: Range<usize>| rows.start * row..rows.end * row;
        wanted[span.sequence] = ring_rows(positions(span), shape.capacity).map(bytes);
    }
    // A staging slot may be longer than this layer's cache.
    let (to, from) = (&mut to[..2 * shape.bytes()], &from[..2 * shape.bytes()]);
    let heads = to.chunks_exact_mut(head).zip(from.chunks_exact(head)).enumerate();
    // The heads of all sequences' keys come first, then those of their values.
    let sequence = |index: usize| index / shape.kv_heads % shape.sequences;
    let pieces = heads.flat_map(|(index, (to, from))| {
        let [first, second] = wanted[sequence(index)].clone();
        let (to_first, to_second) = to.split_at_mut(second.start);
        let to_second = &mut to_second[..second.len()];
        [(&mut to_first[first.clone()], &from[first]), (to_second, &from[second])]
    });
    link.copy_parts(pieces.filter(|(_, from)| !from.is_empty()));
}

/// The rows of a ring with room for `capacity` positions that hold `positions`: at most two ranges,
/// ascending. Of more positions than it has room for, the ring holds the last.
pub(crate) fn ring_rows(positions: Range<usize>, capacity: usize) -> [Range<usize>; 2] {
    let count = positions.len().min(capacity);
    let first = (positions.end - count) % capacity.max(1);
    match (first + count).checked_sub(capacity) {
        Some(around) if around > 0 && around < first => [0..around, first..capacity],
        Some(around) if around > 0 => [0..capacity, capacity..capacity],
        _ => [first..first + count, capacity..capacity],
    }
}

/// Columns of an activation that go from one device to another.
pub(crate) struct Hop<'a> {
    pub buffer: ActivationBuffer,
    pub part: MicroBatch,
    pub columns: &'a Range<u64>,
    pub from: DeviceId,
    pub to: DeviceId,
    /// Whether it is the head's, which needs only rows with logits.
    pub head: bool,
}

impl<'a> Hop<'a> {
    /// The hop that a task of a device's lane carries out, if it is one.
    pub fn from_task(task: &'a Task, lane: Lane) -> Option<Self> {
        let (Action::Hop { buffer, columns, from, .. }, Lane::Device(to)) = (&task.action, lane) else {
            return None;
        };
        let (part, head) = (task.micro_batch, task.layer.is_none());
        Some(Hop { buffer: *buffer, part, columns, from: *from, to, head })
    }
}

/// Carries out a hop of `share`, a micro-batch of the pass.
pub(crate) fn hop(
    store: &Store,
    link: &RateLimitedLink,
    model: &Model,
    share: &MicroBatchPass,
    hop: &Hop<'_>,
) {
    let [from_lock, to_lock] =
        [hop.from, hop.to].map(|device| store.activation(device, hop.buffer, hop.part));
    // All lanes lock the copies of an activation in the order of the devices.
    let (from, mut to) = if hop.from < hop.to {
        let from = read(from_lock);
        (from, write(to_lock))
    } else {
        let to = write(to_lock);
        (read(from_lock), to)
    };
    let width = hop.buffer.columns(model) as usize * size_of::<f32>();
    let range = hop.columns.start as usize * size_of::<f32>()..hop.columns.end as usize * size_of::<f32>();
    let lines = to.bytes_mut().chunks_exact_mut(width).zip(from.bytes().chunks_exact(width)).enumerate();
    // The residual still has all rows when the head reads it. Later activations have one row for
    // each sampled sequence.
    let mut ends = share.ends.iter().copied().peekable();
    let rows =
        if hop.head && hop.buffer != ActivationBuffer::Residual { share.ends.len() } else { share.rows() };
    let all = !hop.head || hop.buffer != ActivationBuffer::Residual;
    let wanted = lines.take(rows).filter(|&(row, _)| all || ends.next_if_eq(&row).is_some());
    link.copy_parts(wanted.map(|(_, (to, from))| (&mut to[range.clone()], &from[range.clone()])));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_each_of_the_last_positions_once() {
        for capacity in 1..7 {
            for start in 0..15 {
                for end in start..20 {
                    let [one, two] = ring_rows(start..end, capacity);
                    let rows: Vec<_> = one.clone().chain(two.clone()).collect();
                    let mut wanted: Vec<_> =
                        (start.max(end.saturating_sub(capacity))..end).map(|p| p % capacity).collect();
                    wanted.sort_unstable();
                    assert_eq!(rows, wanted, "{start}..{end} of {capacity}");
                    assert!(one.end <= two.start && two.end <= capacity);
                }
            }
        }
    }
}
