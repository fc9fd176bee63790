//! A placement with the names of devices and memories, for tables and plots.

use crate::numbers::serde_forms::line_by_line;
use hwprofiles::{DeviceId, Machine};
use planner::{LayerPlacement, Placement, Slices};
use scenarios::Sublayer;
use serde::{Deserialize, Serialize};

/// One part of a sublayer; most sublayers have one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedPart {
    /// The share of the matrix's rows, 0 to 1.
    pub share: f64,
    /// The memory that holds it; for attention, that of the KV cache.
    pub home: String,
    /// The device that computes it in prefill.
    pub prefill: String,
    /// The device that computes it in decode.
    pub decode: String,
    /// Whether its bytes cross a link in prefill and in decode, because its home is not the
    /// device's memory.
    pub streamed: [bool; 2],
}

/// One sublayer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedSublayer {
    /// The sublayer.
    pub sublayer: Sublayer,
    /// Its parts, in the order of the rows.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub parts: Vec<PlacedPart>,
}

/// Consecutive layers with equal placements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedLayers {
    /// The first layer.
    pub first: usize,
    /// The number of layers.
    pub count: usize,
    /// Their sublayers, in order.
    pub sublayers: Vec<PlacedSublayer>,
}

/// The placement of a whole model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementMap {
    /// The token table.
    pub embed: PlacedSublayer,
    /// The layers, first to last.
    pub layers: Vec<PlacedLayers>,
    /// The head.
    pub head: PlacedSublayer,
}

impl PlacementMap {
    /// Names the parts of `placement` on `machine`. Equal neighbouring layers become one group.
    pub fn from_placement(machine: &Machine, placement: &Placement) -> Self {
        let mut layers: Vec<PlacedLayers> = Vec::new();
        let mut previous: Option<&LayerPlacement> = None;
        for (index, layer) in placement.layers.iter().enumerate() {
            match layers.last_mut() {
                Some(group) if previous == Some(layer) => group.count += 1,
                _ => {
                    let placed = |(sublayer, slices)| placed(machine, sublayer, slices);
                    let sublayers = layer.iter().map(placed).collect();
                    layers.push(PlacedLayers { first: index, count: 1, sublayers });
                }
            }
            previous = Some(layer);
        }
        Self {
            embed: placed(machine, Sublayer::Embed, &placement.embed),
            layers,
            head: placed(machine, Sublayer::Head, &placement.head),
        }
    }
}

fn placed(machine: &Machine, sublayer: Sublayer, slices: &Slices) -> PlacedSublayer {
    let rows: u64 = slices.iter().map(|slice| slice.rows.end - slice.rows.start).sum();
    let parts = slices.iter().map(|slice| {
        let name = |device: DeviceId| machine.device(device).name.clone();
        let streamed = |device: DeviceId| !machine.reads_in_place(device, slice.home);
        PlacedPart {
            share: if rows == 0 { 1.0 } else { (slice.rows.end - slice.rows.start) as f64 / rows as f64 },
            home: machine.memory(slice.home).name.clone(),
            prefill: name(slice.prefill),
            decode: name(slice.decode),
            streamed: [streamed(slice.prefill), streamed(slice.decode)],
        }
    });
    PlacedSublayer { sublayer, parts: parts.collect() }
}
