//! Buffers that a run reads and never writes: matrices, vectors and rotation tables.

use crate::error::ExecutorError;
use crate::setup::run_setup::RunSetup;
use crate::store::buffers::{Store, place_count};
use crate::store::slices::{KeptSlices, PackedSlice, SliceKey, sublayer_index};
use crate::weights::checkpoint::Checkpoint;
use crate::weights::fused::FusedTensor;
use crate::weights::rotation::RotaryEmbedding;
use crate::weights::tensors;
use hwprofiles::{Bytes, DType, DeviceId};
use kernels::{Buffer, MemoryArena, RopeTable, Weights};
use rayon::prelude::*;
use scenarios::Sublayer;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

impl Store {
    /// Every matrix, by [`sublayer_index`]: those of `kept`, and all others read and packed in
    /// their homes.
    pub(super) fn matrices(
        setup: &RunSetup,
        checkpoint: &Checkpoint,
        memories: &[MemoryArena],
        tied: bool,
        kept: KeptSlices,
    ) -> Result<Vec<Vec<PackedSlice>>, ExecutorError> {
        let kept = Mutex::new(kept);
        let jobs: Vec<_> = setup
            .placement
            .sublayers()
            .filter(|&(_, sublayer, _)| !(tied && sublayer == Sublayer::Head))
            .flat_map(|(layer, sublayer, slices)| slices.iter().map(move |slice| (layer, sublayer, slice)))
            .collect();
        let loaded: Vec<(usize, PackedSlice)> = jobs
            .par_iter()
            .map(|&(layer, sublayer, slice)| {
                let index = sublayer_index(layer, sublayer);
                let key = SliceKey::new(index, &slice.rows, slice.home);
                if let Some(kept) = kept.lock().expect("no thread has panicked").remove(&key) {
                    return Ok((index, kept));
                }
                let dtype = setup.formats.weights.for_sublayer(sublayer).main();
                let matrices = tensors::sublayer_tensors(&setup.model, layer, sublayer).matrices;
                let memory = &memories[slice.home.0];
                let weights = match sublayer {
                    Sublayer::Experts => matrices[2 * slice.rows.start as usize..2 * slice.rows.end as usize]
                        .iter()
                        .map(|fused| pack(dtype, checkpoint, memory, fused, &(0..fused.rows())))
                        .collect(),
                    _ => {
                        let pack = |fused: &FusedTensor| pack(dtype, checkpoint, memory, fused, &slice.rows);
                        matrices.iter().map(pack).collect::<Result<_, _>>()
                    }
                };
                Ok((index, PackedSlice { rows: slice.rows.clone(), weights: weights? }))
            })
            .collect::<Result<_, ExecutorError>>()?;
        let mut matrices: Vec<_> = (0..place_count(setup)).map(|_| vec![]).collect();
        loaded.into_iter().for_each(|(place, part): (usize, PackedSlice)| matrices[place].push(part));
        Ok(matrices)
    }

    /// Norms, biases and position tables, in the memory of each device that needs them.
    pub(super) fn vectors<'a>(
        setup: &RunSetup,
        checkpoint: &Checkpoint,
        own: &impl Fn(DeviceId) -> &'a MemoryArena,
    ) -> Result<Vec<Option<Buffer>>, ExecutorError> {
        let places = place_count(setup);
        let mut vectors: Vec<_> = (0..setup.machine.devices.len() * places).map(|_| None).collect();
        for (device, layer, sublayer) in planner::vector_holders(&setup.placement) {
            let bytes = sublayer.vector_bytes(&setup.model);
            if bytes == Bytes::ZERO {
                continue;
            }
            let buffer = own(device).filled(bytes.get() as usize, |buffer| {
                let mut rest = buffer.view_mut::<f32>();
                for fused in &tensors::sublayer_tensors(&setup.model, layer, sublayer).vectors {
                    let (values, after) = rest.split_at_mut((fused.rows() * fused.columns()) as usize);
                    checkpoint.values(fused, values)?;
                    rest = after;
                }
                Ok::<_, ExecutorError>(())
            })?;
            vectors[device.0 * places + sublayer_index(layer, sublayer)] = Some(buffer);
        }
        Ok(vectors)
    }

    /// The rotation tables of each device that computes attention.
    pub(super) fn rotation<'a>(
        setup: &RunSetup,
        own: &impl Fn(DeviceId) -> &'a MemoryArena,
    ) -> Result<Vec<Vec<RopeTable>>, ExecutorError> {
        let (model, context) = (&setup.model, setup.extent.context);
        let kinds: Vec<_> = RotaryEmbedding::new(model, context)
            .into_iter()
            .chain(RotaryEmbedding::for_windows(model))
            .collect();
        let holders = planner::vector_holders(&setup.placement);
        let attending: BTreeSet<DeviceId> = holders
            .into_iter()
            .filter(|(.., s)| *s == Sublayer::Attention)
            .map(|(device, ..)| device)
            .collect();
        let tables = |device| {
            let kinds = if attending.contains(&device) { &kinds[..] } else { &[] };
            let table = |RotaryEmbedding { frequencies, scale }: &RotaryEmbedding| {
                let table = RopeTable::scaled(own(device), frequencies, *scale, context as usize)?;
                Ok(table.with_interleaved(model.wiring.rotates_neighbours))
            };
            kinds.iter().map(table).collect()
        };
        setup.machine.device_ids().map(tables).collect()
    }
}

/// Reads `rows` of a fused tensor and packs them in `dtype`.
fn pack(
    dtype: DType,
    checkpoint: &Checkpoint,
    memory: &MemoryArena,
    fused: &FusedTensor,
    rows: &Range<u64>,
) -> Result<Weights, ExecutorError> {
    let (mut reader, mut failed) = (checkpoint.reader(fused), None);
    let (count, columns) = ((rows.end - rows.start) as usize, fused.columns() as usize);
    let weights = Weights::from_rows(memory, dtype, count, columns, |row, out| {
        if failed.is_none() {
            failed = reader.read(rows.start + row as u64, out).err();
        }
    })?;
    match failed {
        None => Ok(weights),
        Some(error) => Err(error),
    }
}
