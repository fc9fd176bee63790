//! Buffers that a run reads and never writes: matrices, vectors and rotation tables.

use crate::error::ExecutorError;
use crate::setup::run_setup::RunSetup;
use crate::store::buffers::{Store, place_count};
use crate::store::slices::{KeptSlices, PackedSlice, SliceKey, sublayer_index};
use crate::weights::checkpoint::{Checkpoint, TensorReader};
use crate::weights::fused::FusedTensor;
use crate::weights::rotation::RotaryEmbedding;
use crate::weights::tensors;
use hwprofiles::{Bytes, DType, DeviceId};
use kernels::cuda::MatrixOrder;
use kernels::{Buffer, MemoryArena, RopeTable, Weights, quantise_float8};
use rayon::prelude::*;
use scenarios::{Sublayer, WeightFormat};
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
        for dtype in setup.formats.weights.distinct().filter(|&dtype| Weights::has_blocks(dtype)) {
            checkpoint.check_blocks(dtype)?;
        }
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
                let dtype = leading(checkpoint, setup.formats.weights.for_sublayer(sublayer));
                let matrices = tensors::sublayer_tensors(&setup.model, layer, sublayer).matrices;
                let memory = &memories[slice.home.0];
                let weights = match sublayer {
                    Sublayer::Experts => matrices[2 * slice.rows.start as usize..2 * slice.rows.end as usize]
                        .iter()
                        .map(|fused| pack(dtype, checkpoint, memory, fused, &(0..fused.rows())))
                        .collect::<Result<Vec<_>, _>>(),
                    Sublayer::SharedExpert => {
                        let packed = pack_neurons(dtype, checkpoint, memory, &matrices, &slice.rows);
                        packed.map(|weights| vec![weights])
                    }
                    _ => {
                        let several = matrices.len() > 1;
                        let pack = |fused: &FusedTensor| {
                            let rows = if several { 0..fused.rows() } else { slice.rows.clone() };
                            pack(dtype, checkpoint, memory, fused, &rows)
                        };
                        matrices.iter().map(pack).collect()
                    }
                };
                let weights = weights?.into_iter().flatten().collect();
                let order = MatrixOrder::Panels;
                Ok((index, PackedSlice { rows: slice.rows.clone(), weights, order }))
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
            let bytes = sublayer.vector_bytes(setup.model.layer_or_ends(layer));
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

/// The format by which the matrices of a class are packed: of a mixture one in which tensors keep
/// what their files have, if there is any.
fn leading(checkpoint: &Checkpoint, format: WeightFormat) -> DType {
    format.parts().map(|(dtype, _)| dtype).find(|dtype| keeps(*dtype, checkpoint)).unwrap_or(format.main())
}

/// Whether tensors keep the formats of their files under a plan with `dtype`.
fn keeps(dtype: DType, checkpoint: &Checkpoint) -> bool {
    Weights::has_blocks(dtype) || Weights::keeps_float8(dtype) && checkpoint.has_float8()
}

/// Packs the part of a shared expert that has the neurons `neurons`: their rows of gate, then of
/// up; and their columns of down.
fn pack_neurons(
    dtype: DType,
    checkpoint: &Checkpoint,
    memory: &MemoryArena,
    matrices: &[FusedTensor],
    neurons: &Range<u64>,
) -> Result<Vec<Weights>, ExecutorError> {
    let [front, back] = matrices else { unreachable!("a shared expert has two matrices") };
    let (count, all) = (neurons.end - neurons.start, back.columns());
    let format = |fused: &FusedTensor, columns: &Range<u64>| {
        match parts(dtype, checkpoint, fused, &(0..fused.rows()))[..] {
            // Only whole blocks are divided by columns, and no scales of 128 columns are.
            [(_, dtype)] if Weights::has_blocks(dtype) && !whole_blocks(dtype, columns) => DType::Int8,
            [(_, DType::Fp8Block)] if count < all => DType::Int8,
            [(_, dtype)] => dtype,
            _ => DType::Int8,
        }
    };
    let front_rows = front.rows() / all * count;
    let row = |row: u64| row / count * all + neurons.start + row % count;
    let inputs = 0..front.columns();
    let front_part =
        PackedPart { checkpoint, memory, fused: front, count: front_rows, row, columns: &inputs };
    let (count, row) = (back.rows(), |row| row);
    let back_part = PackedPart { checkpoint, memory, fused: back, count, row, columns: neurons };
    Ok(vec![front_part.pack(format(front, &inputs))?, back_part.pack(format(back, neurons))?])
}

/// Whether `columns` are whole blocks of `dtype`.
fn whole_blocks(dtype: DType, columns: &Range<u64>) -> bool {
    [columns.start, columns.end].iter().all(|&end| Weights::keeps_blocks(dtype, end as usize))
}

/// Reads `rows` of a fused tensor: into one matrix, or one for each part that a file has in a
/// format of its own (see [`parts`]).
fn pack(
    dtype: DType,
    checkpoint: &Checkpoint,
    memory: &MemoryArena,
    fused: &FusedTensor,
    rows: &Range<u64>,
) -> Result<Vec<Weights>, ExecutorError> {
    let parts = parts(dtype, checkpoint, fused, rows);
    let pack = |(rows, dtype): (Range<u64>, DType)| {
        let (count, columns) = (rows.end - rows.start, 0..fused.columns());
        let row = |row| rows.start + row;
        PackedPart { checkpoint, memory, fused, count, row, columns: &columns }.pack(dtype)
    };
    parts.into_iter().map(pack).collect()
}

/// The parts of `rows`, one after another, and the format of each.
///
/// Where a plan names a format of blocks, or 8-bit floats that the files have, each tensor keeps
/// its own format from the file: files mix formats, and a plan has one for a class of matrices.
/// What a file has in another form is packed in bf16 or, if it has few bits, in int8; so are 8-bit
/// floats whose scales change within a panel.
fn parts(
    dtype: DType,
    checkpoint: &Checkpoint,
    fused: &FusedTensor,
    rows: &Range<u64>,
) -> Vec<(Range<u64>, DType)> {
    let reader = checkpoint.reader(fused);
    let mut parts = unequal_parts(dtype, checkpoint, &reader, fused, rows);
    for (rows, dtype) in &mut parts {
        if *dtype == DType::Fp8Block && !reader.panels_share_scales(rows) {
            *dtype = DType::Int8;
        }
    }
    parts
}

/// As [`parts`], whether or not panels share scales.
fn unequal_parts(
    dtype: DType,
    checkpoint: &Checkpoint,
    reader: &TensorReader<'_>,
    fused: &FusedTensor,
    rows: &Range<u64>,
) -> Vec<(Range<u64>, DType)> {
    if !keeps(dtype, checkpoint) {
        return vec![(rows.clone(), dtype)];
    }
    let format = |source| reader.kept(source, dtype).unwrap_or_else(|| reader.packed(source));
    if fused.interleaved {
        let formats: BTreeSet<_> = (0..fused.sources.len()).map(format).collect();
        let only = formats.first().filter(|_| formats.len() == 1);
        return vec![(rows.clone(), only.copied().unwrap_or(DType::Int8))];
    }
    let (mut parts, mut first) = (Vec::<(Range<u64>, DType)>::new(), 0);
    for (source, share) in fused.sources.iter().enumerate() {
        let here = first.max(rows.start)..(first + share.rows).min(rows.end);
        first += share.rows;
        match parts.last_mut() {
            _ if here.is_empty() => {}
            Some((before, dtype)) if *dtype == format(source) => before.end = here.end,
            _ => parts.push((here, format(source))),
        }
    }
    parts
}

/// Columns of some rows of a fused tensor, to be packed.
struct PackedPart<'a, R> {
    checkpoint: &'a Checkpoint,
    memory: &'a MemoryArena,
    fused: &'a FusedTensor,
    /// The number of rows, and the i-th of them.
    count: u64,
    row: R,
    columns: &'a Range<u64>,
}

impl<R: Fn(u64) -> u64> PackedPart<'_, R> {
    /// Rows and columns.
    fn size(&self) -> [usize; 2] {
        [self.count, self.columns.end - self.columns.start].map(|size| size as usize)
    }

    fn pack(self, dtype: DType) -> Result<Weights, ExecutorError> {
        if Weights::has_blocks(dtype) {
            return self.pack_blocks(dtype);
        }
        let ([rows, columns], Self { checkpoint, memory, fused, row, .. }) = (self.size(), &self);
        let (mut reader, mut failed) = (checkpoint.reader(fused), None);
        let mut values = vec![0.0; fused.columns() as usize];
        let part = self.columns.start as usize..self.columns.end as usize;
        let kept = Weights::keeps_float8(dtype) && checkpoint.has_float8();
        let weights = if kept || dtype == DType::Fp8 {
            let mut whole = vec![0; values.len()];
            Weights::from_float8(memory, dtype, rows, columns, |index, numbers, scales| {
                let mut read = || match kept {
                    true => reader.read_float8(row(index as u64), &mut whole, scales),
                    // The scale is that of the whole row, however its columns are divided.
                    false => {
                        reader.read(row(index as u64), &mut values)?;
                        scales[0] = quantise_float8(&values, &mut whole);
                        Ok(())
                    }
                };
                if failed.is_none() {
                    failed = read().err();
                }
                numbers.copy_from_slice(&whole[part.clone()]);
            })?
        } else {
            Weights::from_rows(memory, dtype, rows, columns, |index, out| {
                let row = row(index as u64);
                if failed.is_none() && part.len() == values.len() {
                    failed = reader.read(row, out).err();
                } else if failed.is_none() {
                    failed = reader.read(row, &mut values).err();
                    out.copy_from_slice(&values[part.clone()]);
                }
            })?
        };
        failed.map_or(Ok(weights), Err)
    }

    /// As [`PackedPart::pack`], for a format of blocks that the file has, and columns that are
    /// whole blocks.
    fn pack_blocks(self, dtype: DType) -> Result<Weights, ExecutorError> {
        let ([rows, columns], Self { checkpoint, memory, fused, row, .. }) = (self.size(), &self);
        let (mut reader, mut failed) = (checkpoint.reader(fused), None);
        let bytes = |columns: u64| dtype.cache_bytes(1, columns).get() as usize;
        let (mut whole, start) = (vec![0; bytes(fused.columns())], bytes(self.columns.start));
        let weights = Weights::from_scaled_blocks(memory, dtype, rows, columns, |index, out| {
            if failed.is_some() {
                return 0.0;
            }
            let row = row(index as u64);
            let read = match out.len() == whole.len() {
                true => reader.read_blocks(row, out),
                false => reader.read_blocks(row, &mut whole).inspect(|_| {
                    out.copy_from_slice(&whole[start..][..out.len()]);
                }),
            };
            read.unwrap_or_else(|error| {
                failed = Some(error);
                0.0
            })
        })?;
        failed.map_or(Ok(weights), Err)
    }
}
