//! Matrices of 8-bit and 4-bit floats whose scales are in tensors of their own, in safetensors
//! files.
//!
//! E4M3 numbers are in `X.weight`. Their scales are in `X.weight_scale_inv` or `X.weight_scale`:
//! one for the matrix, one for each row, or one for each block of 128 × 128.
//!
//! NVFP4 has two E2M1 numbers in a byte of `X.weight` or `X.weight_packed`. `X.weight_scale` has an
//! E4M3 scale for each 16 numbers of a row; `X.weight_scale_2` has a number that multiplies all of
//! them, or `X.weight_global_scale` one that divides them. MXFP4 has a power of two (E8M0) for each
//! 32 numbers in `X.weight_scale`, and nothing else.
//!
//! Sources: DeepSeek-V3's `inference/kernel.py`, compressed-tensors' and Model Optimizer's formats
//! of checkpoints.

use crate::error::ExecutorError;
use crate::weights::format::TensorFormat;
use crate::weights::fused::Tensor;
use crate::weights::layouts::stacked;
use crate::weights::shard::{RowOrder, Shard, StoredTensor};
use hwprofiles::DType;
use scenarios::{Model, WeightFormats};

/// Rows and columns of a block of E4M3 numbers with one scale.
const BLOCK: u64 = 128;
/// Numbers of a row with one scale in NVFP4.
const GROUP: u64 = 16;
/// Numbers of a row with one scale in MXFP4.
const LONG_GROUP: u64 = 32;
/// Numbers of a block of NVFP4, as kernels keep them.
const NVFP4_BLOCK: usize = 64;

/// A tensor in a file.
pub(in crate::weights) type Found<'a> = (&'a Shard, &'a StoredTensor);

/// Where the scales of a matrix are.
#[derive(Debug, Clone, Copy)]
pub(in crate::weights) struct ScalePlace<'a> {
    scales: Found<'a>,
    format: TensorFormat,
    /// What multiplies or, where the flag is set, divides every scale.
    whole: Option<(Found<'a>, WholeKind)>,
    /// Rows and columns of numbers that share a scale.
    shared: [u64; 2],
    /// Scales of a row.
    across: u64,
}

/// The tensor of a number that applies to all scales of a matrix: the end of its name, and whether
/// it divides.
type WholeKind = (&'static str, bool);

const WHOLE_KINDS: [WholeKind; 2] = [("_scale_2", false), ("_global_scale", true)];

/// The scales of a matrix.
#[derive(Debug)]
pub(in crate::weights) struct MatrixScales {
    bytes: Vec<u8>,
    format: TensorFormat,
    /// What multiplies every scale, or divides it.
    whole: f32,
    divides: bool,
    shared: [u64; 2],
    across: u64,
}

/// Gives the packed 4-bit floats of a checkpoint in NVFP4 or MXFP4 the names and shapes of the
/// matrices that they stand for.
pub(in crate::weights) fn add_float4(model: &Model, shards: &mut [Shard]) {
    if !has_float4(model) {
        return;
    }
    for shard in shards {
        let packed = |(name, stored): (&String, &StoredTensor)| {
            let weight = name.strip_suffix("_packed").unwrap_or(name);
            let &[rows, bytes] = &stored.shape[..] else { return None };
            if stored.format.is_some() || stored.format_name != "U8" || !weight.ends_with(".weight") {
                return None;
            }
            let (format, shape) = (Some(TensorFormat::Fp4), vec![rows, bytes.checked_mul(2)?]);
            Some((weight.to_owned(), StoredTensor { format, shape, ..stored.clone() }))
        };
        let added: Vec<_> = shard.tensors.iter().filter_map(packed).collect();
        shard.tensors.extend(added);
    }
}

/// Whether a model's files have 4-bit floats.
pub(in crate::weights) fn has_float4(model: &Model) -> bool {
    let published = model.published.as_deref().map(|formats| WeightFormats::from(*formats));
    published.is_some_and(|formats| formats.distinct().any(|it| matches!(it, DType::Nvfp4 | DType::Mxfp4)))
}

impl<'a> ScalePlace<'a> {
    /// The scales of `tensor`, which is `stored`. `find` finds a tensor by name. `None` where the
    /// numbers have no scales: formats of 16 bits and more, ggml's blocks, and E4M3 in a checkpoint
    /// whose `config.json` does not call it quantised.
    ///
    /// # Errors
    /// [`ExecutorError::MissingTensor`], [`ExecutorError::Shape`] or [`ExecutorError::DType`] of a
    /// tensor of scales.
    pub(in crate::weights) fn find(
        model: &Model,
        tensor: &Tensor,
        (shard, stored): Found<'a>,
        find: impl Fn(&str) -> Option<Found<'a>>,
    ) -> Result<Option<Self>, ExecutorError> {
        let (rows, columns) = (stored.shape[0], stored.shape[1..].iter().product::<u64>());
        let search = ScaleSearch { model, tensor, shard, stacked: stored.order != RowOrder::Same, find };
        match stored.format {
            Some(TensorFormat::Fp8) => search.float8([rows, columns]),
            Some(TensorFormat::Fp4) => search.float4([rows, columns]).map(Some),
            _ => Ok(None),
        }
    }

    /// The format of 8-bit floats whose panels have these scales; `None` where any has a place for
    /// them, because the matrix has one scale.
    pub(in crate::weights) fn float8(&self) -> Option<DType> {
        match self.shared {
            [BLOCK, BLOCK] => Some(DType::Fp8Block),
            [1, _] => Some(DType::Fp8),
            _ => None,
        }
    }

    /// The format of the blocks that 4-bit floats form with these scales.
    pub(in crate::weights) fn float4(&self) -> DType {
        if self.shared[1] == GROUP { DType::Nvfp4 } else { DType::Mxfp4 }
    }

    /// The row of scales of row `row` of the matrix.
    pub(in crate::weights) fn scale_row(&self, row: u64) -> u64 {
        row / self.shared[0]
    }

    /// Reads the scales.
    ///
    /// # Errors
    /// [`ExecutorError::File`]; [`ExecutorError::Malformed`] where the number that applies to all
    /// of them is not positive and finite.
    pub(in crate::weights) fn read(&self, matrix: &str) -> Result<MatrixScales, ExecutorError> {
        let (mut whole, mut divides) = (1.0, false);
        if let Some((found, (ending, by))) = self.whole {
            let mut value = [0.0];
            TensorFormat::F32.decode(&bytes(found, TensorFormat::F32)?, &mut value);
            if !(value[0].is_finite() && value[0] > 0.0) {
                let name = scale_name(matrix, found.1.order != RowOrder::Same, ending);
                let reason = format!(
                    "tensor '{name}' is {}: the scale of a whole matrix is a positive number",
                    value[0]
                );
                return Err(ExecutorError::Malformed { path: found.0.path.clone(), reason });
            }
            (whole, divides) = (value[0], by);
        }
        let (format, shared, across) = (self.format, self.shared, self.across);
        Ok(MatrixScales { bytes: bytes(self.scales, format)?, format, whole, divides, shared, across })
    }
}

/// The name in files of the scales of `matrix`, with this ending.
fn scale_name(matrix: &str, stacked: bool, ending: &str) -> String {
    let between = if stacked { "_weight" } else { "" };
    format!("{}{between}{ending}", stacked::file_name(matrix, stacked))
}

/// The search for the scales of one tensor.
struct ScaleSearch<'s, F> {
    model: &'s Model,
    tensor: &'s Tensor,
    shard: &'s Shard,
    /// Whether the tensor is a part of one for all experts.
    stacked: bool,
    find: F,
}

impl<'a, F: Fn(&str) -> Option<Found<'a>>> ScaleSearch<'_, F> {
    /// The tensor whose name has this ending.
    fn found(&self, ending: &str) -> Option<Found<'a>> {
        (self.find)(&format!("{}{ending}", self.tensor.name))
    }

    /// The name of that tensor in the files.
    fn name(&self, ending: &str) -> String {
        scale_name(&self.tensor.name, self.stacked, ending)
    }

    fn missing(&self, ending: &str, expected: Vec<u64>) -> ExecutorError {
        let (path, model) = (self.shard.path.clone(), self.model.name.clone());
        ExecutorError::MissingTensor { path, tensor: self.name(ending), model, expected }
    }

    fn other_shape(&self, ending: &str, (shard, stored): Found<'_>, expected: Vec<u64>) -> ExecutorError {
        let (path, tensor) = (shard.path.clone(), self.name(ending));
        ExecutorError::Shape { path, tensor, expected, found: stored.shape.clone() }
    }

    /// The format of scales, if it is one of `right`.
    fn format(
        &self,
        ending: &str,
        (shard, stored): Found<'_>,
        right: &[TensorFormat],
    ) -> Result<TensorFormat, ExecutorError> {
        let powers = ["U8", "F8_E8M0"].contains(&&*stored.format_name).then_some(TensorFormat::PowerOfTwo);
        stored.format.or(powers).filter(|format| right.contains(format)).ok_or_else(|| ExecutorError::DType {
            path: shard.path.clone(),
            tensor: self.name(ending),
            found: stored.format_name.clone(),
        })
    }

    fn float8(&self, [rows, columns]: [u64; 2]) -> Result<Option<ScalePlace<'a>>, ExecutorError> {
        let blocks = vec![rows.div_ceil(BLOCK), columns.div_ceil(BLOCK)];
        let endings = ["_scale_inv", "_scale"];
        let Some((ending, scales)) = endings.iter().find_map(|ending| Some((ending, self.found(ending)?)))
        else {
            let plain = self.model.published.is_none();
            return if plain { Ok(None) } else { Err(self.missing("_scale_inv", blocks)) };
        };
        let (shared, across) = match &scales.1.shape[..] {
            [] | [1] | [1, 1] => ([rows, columns], 1),
            &[count] | &[count, 1] if count == rows => ([1, columns], 1),
            shape if *shape == blocks => ([BLOCK; 2], blocks[1]),
            _ => return Err(self.other_shape(ending, scales, blocks)),
        };
        let plain = [TensorFormat::F32, TensorFormat::F16, TensorFormat::Bf16];
        let format = self.format(ending, scales, &plain)?;
        Ok(Some(ScalePlace { scales, format, whole: None, shared, across }))
    }

    fn float4(&self, [rows, columns]: [u64; 2]) -> Result<ScalePlace<'a>, ExecutorError> {
        let shape = |group: u64| vec![rows, columns / group];
        let scales = self.found("_scale").ok_or_else(|| self.missing("_scale", shape(GROUP)))?;
        let formats = [TensorFormat::Fp8, TensorFormat::PowerOfTwo];
        let format = self.format("_scale", scales, &formats)?;
        let group = if format == TensorFormat::Fp8 { GROUP } else { LONG_GROUP };
        if !columns.is_multiple_of(group) || scales.1.shape != shape(group) {
            return Err(self.other_shape("_scale", scales, shape(group)));
        }
        let (shared, across) = ([1, group], columns / group);
        if group == LONG_GROUP {
            return Ok(ScalePlace { scales, format, whole: None, shared, across });
        }
        let found = WHOLE_KINDS.into_iter().find_map(|kind| Some((self.found(kind.0)?, kind)));
        let (whole, kind) = found.ok_or_else(|| self.missing("_scale_2", vec![1]))?;
        if whole.1.shape.iter().product::<u64>() != 1 {
            return Err(self.other_shape(kind.0, whole, vec![1]));
        }
        self.format(kind.0, whole, &[TensorFormat::F32])?;
        Ok(ScalePlace { scales, format, whole: Some((whole, kind)), shared, across })
    }
}

impl MatrixScales {
    /// The bytes of the scales of row `row`.
    fn stored(&self, row: u64) -> &[u8] {
        let size = self.format.bytes(self.across).expect("a plain number is a whole block") as usize;
        &self.bytes[(row / self.shared[0]) as usize * size..][..size]
    }

    /// The scales of row `row`.
    fn values(&self, row: u64) -> Vec<f32> {
        let mut values = vec![0.0; self.across as usize];
        self.format.decode(self.stored(row), &mut values);
        let by = |value: &mut f32| if self.divides { *value /= self.whole } else { *value *= self.whole };
        values.iter_mut().for_each(by);
        values
    }

    /// Writes the scales of row `row`: one for each 128 columns, or one.
    pub(in crate::weights) fn row(&self, row: u64, out: &mut [f32]) {
        let own = self.values(row);
        out.iter_mut().enumerate().for_each(|(at, out)| *out = own[at.min(own.len() - 1)]);
    }

    /// Multiplies the numbers of row `row` by their scales.
    pub(in crate::weights) fn apply(&self, row: u64, numbers: &mut [f32]) {
        let scales = self.values(row);
        for (numbers, scale) in numbers.chunks_mut(self.shared[1].max(1) as usize).zip(scales) {
            numbers.iter_mut().for_each(|number| *number *= scale);
        }
    }

    /// Writes the blocks that the 4-bit floats `pairs` of row `row` form with their scales, as
    /// [`kernels::Weights::from_scaled_blocks`] keeps them. Returns what multiplies the row, or the
    /// index of a scale that is no number.
    pub(in crate::weights) fn blocks(&self, row: u64, pairs: &[u8], out: &mut [u8]) -> Result<f32, usize> {
        let scales = self.stored(row);
        if self.format == TensorFormat::PowerOfTwo {
            if let Some(column) = scales.iter().position(|scale| *scale == 255) {
                return Err(column);
            }
            for ((out, pairs), scale) in out.chunks_exact_mut(17).zip(pairs.chunks_exact(16)).zip(scales) {
                out[0] = *scale;
                stacked::part_neighbours(pairs, &mut out[1..]);
            }
            return Ok(1.0);
        }
        if let Some(column) = scales.iter().position(|scale| scale & 127 == 127) {
            return Err(column);
        }
        let blocks = out.chunks_exact_mut(36).zip(pairs.chunks_exact(NVFP4_BLOCK / 2));
        for ((out, pairs), scales) in blocks.zip(scales.chunks_exact(4)) {
            let (out_scales, numbers) = out.split_at_mut(4);
            let groups = numbers.chunks_exact_mut(8).zip(pairs.chunks_exact(8));
            for ((numbers, pairs), (out, scale)) in groups.zip(out_scales.iter_mut().zip(scales)) {
                stacked::part_neighbours(pairs, numbers);
                // Scales of blocks have no sign, so that of a negative one goes to its numbers.
                *out = scale & 127;
                if scale & 128 != 0 {
                    numbers.iter_mut().for_each(|pair| *pair ^= 0x88);
                }
            }
        }
        Ok(if self.divides { self.whole.recip() } else { self.whole })
    }
}

/// All bytes of a tensor of scales, row by row.
fn bytes((shard, stored): Found<'_>, format: TensorFormat) -> Result<Vec<u8>, ExecutorError> {
    let columns = stored.shape.iter().skip(1).product::<u64>();
    let size = format.bytes(columns).expect("a plain number is a whole block") as usize;
    let rows = stored.shape.first().copied().unwrap_or(1);
    if let RowOrder::Columns { width, apart } = stored.order {
        let (mut whole, mut out) = (Vec::new(), vec![0; rows as usize * size]);
        stacked::read_columns(shard, stored, [width, apart], &mut whole)?;
        stacked::gather_columns(&whole, stored, [width, apart], 0, &mut out);
        return Ok(out);
    }
    let stored_rows = if stored.shape.is_empty() { 1 } else { stored.stored_rows() };
    let mut whole = vec![0; stored_rows as usize * size];
    shard.read(&mut whole, stored.start)?;
    let row = |row| &whole[stored.stored_row(row) as usize * size..][..size];
    Ok((0..rows).flat_map(row).copied().collect())
}
