//! Deals the layers of a solution out over identical GPUs.

use crate::cost::{CostModel, footprint};
use crate::memory::{overfilled, shared_cache_bytes};
use crate::placement::{IdenticalGpus, LayerPlacement, ModelShare, Placement, Slice, Slices};
use crate::program::{LowerError, RunExtent};
use scenarios::Sublayer;

/// Shares of the GPUs' capacity that the search leaves free for what each GPU needs once, and for
/// the rest of a layer that does not fit. They are tried in this order until a solution can be
/// dealt out.
pub(crate) const MARGINS: [f64; 6] = [0.0, 1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0];

impl IdenticalGpus {
    /// Placements over all identical GPUs, made from `placement`, which uses only the first: over
    /// as few GPUs as needed; and if layers are streamed, also over all GPUs in blocks and in turn,
    /// so that their links work at the same time. Only placements that fit. `placement` itself if
    /// there are no identical GPUs.
    ///
    /// # Errors
    /// [`LowerError`] if bytes must move between two memories without a link.
    pub fn dealt_out(
        &self,
        cost_model: CostModel<'_>,
        extent: &RunExtent,
        placement: Placement,
    ) -> Result<Vec<Placement>, LowerError> {
        let Some((device, memory)) = self.first() else {
            return Ok(vec![placement]);
        };
        let uses = |slices: &Slices| {
            slices.iter().any(|slice| slice.home == memory || [slice.prefill, slice.decode].contains(&device))
        };
        let here = |layer: &LayerPlacement| layer.iter().any(|(_, slices)| uses(slices));
        let users = placement.layers.iter().filter(|layer| here(layer)).count();
        if users == 0 && !uses(&placement.embed) && !uses(&placement.head) {
            return Ok(vec![placement]);
        }
        let fits = |placement: &Placement| -> Result<bool, LowerError> {
            Ok(overfilled(cost_model.machine, &footprint(cost_model, extent, placement)?).is_none())
        };
        let in_blocks = |count: usize| self.in_blocks(cost_model, extent, &placement, count);
        let mut dealt = Vec::new();
        for count in 1..=self.devices.len() {
            let blocks = in_blocks(count);
            if fits(&blocks)? {
                dealt.push(blocks);
                break;
            }
        }
        let streams = |layer: &LayerPlacement| {
            layer.iter().any(|(_, slices)| {
                slices.iter().any(|s| s.home != memory && [s.prefill, s.decode].contains(&device))
            })
        };
        if placement.layers.iter().any(streams) {
            for other in [in_blocks(self.devices.len()), self.in_turn(&placement)] {
                if !dealt.contains(&other) && fits(&other)? {
                    dealt.push(other);
                }
            }
        }
        Ok(dealt)
    }

    /// Blocks of neighbouring layers, with about equal bytes on each of the first `count` GPUs.
    fn in_blocks(
        &self,
        cost_model: CostModel<'_>,
        extent: &RunExtent,
        placement: &Placement,
        count: usize,
    ) -> Placement {
        let weigh =
            |kind, sublayer, slices: &Slices| self.bytes(cost_model.of_kind(kind), extent, sublayer, slices);
        let (embed, head) =
            (weigh(None, Sublayer::Embed, &placement.embed), weigh(None, Sublayer::Head, &placement.head));
        // One byte more for each layer, so that layers which only stream are dealt out too.
        let of_layer = |layer: &LayerPlacement| {
            1 + layer.iter().map(|(s, slices)| weigh(Some(layer.kind), s, slices)).sum::<u64>()
        };
        let layers: Vec<u64> = placement.layers.iter().map(of_layer).collect();
        let tied = cost_model.model.tied_embeddings;
        let total = u128::from(embed + layers.iter().sum::<u64>() + if tied { 0 } else { head });
        let mut before = u128::from(embed);
        let mut dealt = placement.clone();
        for (layer, bytes) in dealt.layers.iter_mut().zip(layers) {
            // A layer goes to the GPU in whose share its middle byte is.
            let middle = 2 * before + u128::from(bytes);
            let gpu = (middle * count as u128 / (2 * total).max(1)) as usize;
            self.move_layer(layer, gpu.min(count - 1));
            before += u128::from(bytes);
        }
        // A tied head stays where the embedding table is.
        let last = if tied { 0 } else { count - 1 };
        self.move_slices(&mut dealt.head, last);
        dealt
    }

    /// Each layer on another GPU than the one before.
    fn in_turn(&self, placement: &Placement) -> Placement {
        let mut dealt = placement.clone();
        for (index, layer) in dealt.layers.iter_mut().enumerate() {
            self.move_layer(layer, index % self.devices.len());
        }
        dealt
    }

    /// Bytes of a sublayer in the first GPU's memory.
    fn bytes(
        &self,
        cost_model: CostModel<'_>,
        extent: &RunExtent,
        sublayer: Sublayer,
        slices: &Slices,
    ) -> u64 {
        let CostModel { machine, model, formats } = cost_model;
        let Some(&memory) = self.memories.first() else { return 0 };
        let shared = ModelShare::in_memory(machine, model, memory);
        let slice_bytes = |slice: &Slice| match sublayer {
            Sublayer::Attention => shared_cache_bytes(&shared, formats, extent).get(),
            _ => shared.matrix_bytes(sublayer, formats, &slice.rows).get(),
        };
        slices.iter().filter(|slice| slice.home == memory).map(slice_bytes).sum()
    }

    fn move_layer(&self, layer: &mut LayerPlacement, gpu: usize) {
        layer.sublayers.iter_mut().for_each(|slices| self.move_slices(slices, gpu));
    }

    /// Moves the slices of the first GPU to another one.
    fn move_slices(&self, slices: &mut Slices, gpu: usize) {
        for slice in slices {
            if slice.home == self.memories[0] {
                slice.home = self.memories[gpu];
            }
            for device in [&mut slice.prefill, &mut slice.decode] {
                if *device == self.devices[0] {
                    *device = self.devices[gpu];
                }
            }
        }
    }
}
