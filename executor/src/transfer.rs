//! Bytes over links: weights and KV caches between memories, activations between devices.

use crate::compute::{read, write};
use crate::store::Store;
use hwprofiles::DeviceId;
use kernels::{KvShape, Link};
use planner::MicroBatch;
use scenarios::{Buffer, Model, Step, Sublayer};
use std::ops::Range;

/// Copies a part of a matrix from its home into a staging slot.
pub(crate) fn fetch_weights(
    store: &Store,
    link: &Link,
    layer: Option<u32>,
    sublayer: Sublayer,
    first: u64,
    device: DeviceId,
    slot: usize,
) {
    let part = store.part(layer, sublayer, first);
    let mut slot = write(store.weight_slot(device, slot));
    let mut rest = slot.bytes_mut();
    // One transfer, however many matrices it is.
    link.copy_parts(part.weights.iter().map(|weights| {
        let (to, after) = std::mem::take(&mut rest).split_at_mut(weights.bytes().len());
        rest = after;
        (to, weights.bytes())
    }));
}

/// Copies the keys and values of past positions from a layer's cache into a staging slot, for one micro-batch, whose
/// step it is.
pub(crate) fn fetch_kv(
    store: &Store,
    link: &Link,
    layer: u32,
    part: MicroBatch,
    device: DeviceId,
    slot: usize,
    step: &Step,
) {
    let from = read(store.kv(layer, part));
    let mut to = write(store.kv_slot(device, slot, part));
    copy_kv(store.kv_shape(part), link, to.bytes_mut(), from.bytes(), step, 0..step.past_tokens);
}

/// Copies the keys and values of the step's positions from a staging slot to the layer's cache.
pub(crate) fn store_kv(
    store: &Store,
    link: &Link,
    layer: u32,
    part: MicroBatch,
    device: DeviceId,
    slot: usize,
    step: &Step,
) {
    let from = read(store.kv_slot(device, slot, part));
    let mut to = write(store.kv(layer, part));
    let new = step.past_tokens..step.past_tokens + step.new_tokens;
    copy_kv(store.kv_shape(part), link, to.bytes_mut(), from.bytes(), step, new);
}

/// Copies some positions of the step's sequences: one piece for each head of each sequence.
fn copy_kv(shape: KvShape, link: &Link, to: &mut [u8], from: &[u8], step: &Step, positions: Range<u64>) {
    let head = shape.bytes() / (shape.sequences * shape.kv_heads);
    let row = head / shape.capacity;
    let range = positions.start as usize * row..positions.end as usize * row;
    let heads = to.chunks_exact_mut(head).zip(from.chunks_exact(head)).enumerate();
    // Heads of all sequences' keys, then of all their values.
    let sequence = |index: usize| index / shape.kv_heads % shape.sequences;
    let pieces = heads
        .filter(|(index, _)| sequence(*index) < step.batch as usize)
        .map(|(_, (to, from))| (&mut to[range.clone()], &from[range.clone()]));
    link.copy_parts(pieces);
}

/// An activation's columns on their way from one device to another.
pub(crate) struct Hop<'a> {
    pub buffer: Buffer,
    pub part: MicroBatch,
    pub columns: &'a Range<u64>,
    pub from: DeviceId,
    pub to: DeviceId,
    /// Whether it is the head's, which needs only each sequence's last row.
    pub head: bool,
}

/// Carries out a hop of one micro-batch, whose step it is.
pub(crate) fn hop(store: &Store, link: &Link, model: &Model, step: &Step, hop: &Hop<'_>) {
    let [from_lock, to_lock] =
        [hop.from, hop.to].map(|device| store.activation(device, hop.buffer, hop.part));
    // All lanes lock copies of one activation in the order of the devices.
    let (from, mut to) = if hop.from < hop.to {
        let from = read(from_lock);
        (from, write(to_lock))
    } else {
        let to = write(to_lock);
        (read(from_lock), to)
    };
    let width = hop.buffer.columns(model) as usize * size_of::<f32>();
    let range = hop.columns.start as usize * size_of::<f32>()..hop.columns.end as usize * size_of::<f32>();
    let (new, batch) = (step.new_tokens as usize, step.batch as usize);
    // The residual still has all rows when the head asks for it; what follows has one row per sequence.
    let (rows, every) = match (hop.head, hop.buffer) {
        (true, Buffer::Residual) => (batch * new, new),
        (true, _) => (batch, 1),
        (false, _) => (batch * new, 1),
    };
    let lines = to.bytes_mut().chunks_exact_mut(width).zip(from.bytes().chunks_exact(width)).take(rows);
    let wanted = lines.skip(every - 1).step_by(every);
    link.copy_parts(wanted.map(|(to, from)| (&mut to[range.clone()], &from[range.clone()])));
}
