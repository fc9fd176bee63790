//! Bytes over links: weights and KV caches between memories, activations between devices.

use crate::batch::pass::MicroBatchPass;
use crate::store::buffers::Store;
use crate::store::locks::{read, write};
use hwprofiles::DeviceId;
use kernels::{KvShape, Link, Span};
use planner::{Action, Lane, MicroBatch, Task};
use scenarios::{Buffer, Model, Sublayer};
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
    let part = store.slice(layer, sublayer, first);
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
/// part of the pass `turns` is.
pub(crate) fn fetch_kv(
    store: &Store,
    link: &Link,
    layer: u32,
    part: MicroBatch,
    device: DeviceId,
    slot: usize,
    turns: &MicroBatchPass,
) {
    let from = read(store.kv(layer, part));
    let mut to = write(store.kv_slot(device, slot, part));
    copy_kv(store.kv_shape(part), link, to.bytes_mut(), from.bytes(), turns, |span| 0..span.past);
}

/// Copies the keys and values of the pass's positions from a staging slot to the layer's cache.
pub(crate) fn store_kv(
    store: &Store,
    link: &Link,
    layer: u32,
    part: MicroBatch,
    device: DeviceId,
    slot: usize,
    turns: &MicroBatchPass,
) {
    let from = read(store.kv_slot(device, slot, part));
    let mut to = write(store.kv(layer, part));
    let new = |span: &Span| span.past..span.past + span.new;
    copy_kv(store.kv_shape(part), link, to.bytes_mut(), from.bytes(), turns, new);
}

/// Copies some positions of the pass's sequences: one piece for each head of each sequence.
fn copy_kv(
    shape: KvShape,
    link: &Link,
    to: &mut [u8],
    from: &[u8],
    turns: &MicroBatchPass,
    positions: impl Fn(&Span) -> Range<usize>,
) {
    let head = shape.bytes() / (shape.sequences * shape.kv_heads);
    let row = head / shape.capacity;
    let mut wanted = vec![0..0; shape.sequences];
    for span in &turns.spans {
        let positions = positions(span);
        wanted[span.sequence] = positions.start * row..positions.end * row;
    }
    let heads = to.chunks_exact_mut(head).zip(from.chunks_exact(head)).enumerate();
    // Heads of all sequences' keys, then of all their values.
    let sequence = |index: usize| index / shape.kv_heads % shape.sequences;
    let pieces = heads.map(|(index, (to, from))| {
        let range = &wanted[sequence(index)];
        (&mut to[range.clone()], &from[range.clone()])
    });
    link.copy_parts(pieces);
}

/// An activation's columns on their way from one device to another.
pub(crate) struct Hop<'a> {
    pub buffer: Buffer,
    pub part: MicroBatch,
    pub columns: &'a Range<u64>,
    pub from: DeviceId,
    pub to: DeviceId,
    /// Whether it is the head's, which needs only the rows whose logits are wanted.
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

/// Carries out a hop of one micro-batch, whose part of the pass `turns` is.
pub(crate) fn hop(store: &Store, link: &Link, model: &Model, turns: &MicroBatchPass, hop: &Hop<'_>) {
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
    let lines = to.bytes_mut().chunks_exact_mut(width).zip(from.bytes().chunks_exact(width)).enumerate();
    // The residual still has all rows when the head asks for it; what follows has one row for each that is wanted.
    let mut ends = turns.ends.iter().copied().peekable();
    let rows = if hop.head && hop.buffer != Buffer::Residual { turns.ends.len() } else { turns.rows() };
    let all = !hop.head || hop.buffer != Buffer::Residual;
    let wanted = lines.take(rows).filter(|&(row, _)| all || ends.next_if_eq(&row).is_some());
    link.copy_parts(wanted.map(|(_, (to, from))| (&mut to[range.clone()], &from[range.clone()])));
}
