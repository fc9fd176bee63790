//! The bytes to move between two placements.

use crate::cost::CostModel;
use crate::placement::{Placement, Slices};
use hwprofiles::{Bytes, MemoryId, Seconds};
use scenarios::{Sublayer, kv_bytes};
use std::collections::BTreeMap;

/// Bytes by (source, destination) memory.
pub type Moves = BTreeMap<(MemoryId, MemoryId), Bytes>;

/// The bytes that move when `before` becomes `after`: rows of matrices with another home and, for
/// layers whose KV cache moves, `tokens` tokens of it.
pub fn moved(cost_model: CostModel<'_>, before: &Placement, after: &Placement, tokens: u64) -> Moves {
    moved_sequences(cost_model, before, after, [1, tokens])
}

/// [`moved`] with the caches and states of `sequences` sequences of `tokens` tokens each.
pub fn moved_sequences(
    cost_model: CostModel<'_>,
    before: &Placement,
    after: &Placement,
    [sequences, tokens]: [u64; 2],
) -> Moves {
    let CostModel { model, formats, .. } = cost_model;
    let mut moves = Moves::new();
    let mut add = |from: MemoryId, to: MemoryId, bytes: Bytes| {
        if from != to && bytes > Bytes::ZERO {
            *moves.entry((from, to)).or_default() += bytes;
        }
    };
    for ((layer, sublayer, old), (.., new)) in before.sublayers().zip(after.sublayers()) {
        let model = model.layer_or_ends(layer);
        if sublayer == Sublayer::Attention {
            add(old[0].home, new[0].home, kv_bytes(model, formats, sequences, tokens));
            continue;
        }
        for (from, to, rows) in overlaps(old, new) {
            add(from, to, sublayer.matrix_bytes(model, formats.weights, &rows));
        }
    }
    moves
}

/// Rows that both placements hold, with their homes in each.
fn overlaps<'s>(
    old: &'s Slices,
    new: &'s Slices,
) -> impl Iterator<Item = (MemoryId, MemoryId, std::ops::Range<u64>)> + 's {
    old.iter().flat_map(move |old| {
        new.iter().filter_map(move |new| {
            let rows = old.rows.start.max(new.rows.start)..old.rows.end.min(new.rows.end);
            (!rows.is_empty()).then_some((old.home, new.home, rows))
        })
    })
}

/// The duration of `moves`: one after the other over one link, at the same time over different
/// links; `None` where there is no link.
pub fn moving_time(cost_model: CostModel<'_>, moves: &Moves) -> Option<Seconds> {
    let machine = cost_model.machine;
    let mut busy: BTreeMap<usize, f64> = BTreeMap::new();
    for (&(from, to), &bytes) in moves {
        let link = machine.link_between(from, to)?;
        *busy.entry(machine.wire(link).0).or_default() += machine.link(link).time(bytes).get();
    }
    Some(Seconds::new(busy.into_values().fold(0.0, f64::max)))
}
