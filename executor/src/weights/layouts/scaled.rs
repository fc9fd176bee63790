//! Matrices of 8-bit and 4-bit floats whose scales are in tensors of their own, in safetensors
//! files.
//!
//! E4M3 numbers are in `X.weight`. Their scales are in `X.weight_scale_inv` or `X.weight_scale`:
//! one for the matrix, one for each row, or one for each block of 128 × 128.
//!
//! NVFP4 has two E2M1 numbers in a byte of `X.weight` or `X.weight_packed`. `X.weight_scale` has an
//! E4M3 scale for each 16 numbers of a row; `X.weight_scale_2` has a number that multiplies all of
//! them, or `X.weight_global_scale` one that divides them.
//!
//! Sources: DeepSeek-V3's `inference/kernel.py`, compressed-tensors' and Model Optimizer's formats
//! of checkpoints.

use crate::error::ExecutorError;
use crate::weights::format::TensorFormat;
use crate::weights::fused::Tensor;
use crate::weights::shard::{Shard, StoredTensor};
use hwprofiles::DType;
use scenarios::{Model, WeightFormats};

/// Rows and columns of a block of E4M3 numbers with one scale.
const BLOCK: u64 = 128;
/// Numbers of a row with one scale in NVFP4.
const GROUP: u64 = 16;

/// A tensor in a file.
pub(in crate::weights) type Found<'a> = (&'a Shard, &'a StoredTensor);

/// Where the scales of a matrix are.
#[derive(Debug, Clone, Copy)]
pub(in crate::weights) struct ScalePlace<'a> {
    scales: Found<'a>,
    /// What multiplies or, where the flag is set, divides every scale.
    whole: Option<(Found<'a>, bool)>,
    /// Rows and columns of numbers that share a scale.
    shared: [u64; 2],
    /// Scales of a row.
    across: u64,
}

/// The scales of a matrix.
#[derive(Debug)]
pub(in crate::weights) struct MatrixScales {
    values: Vec<f32>,
    shared: [u64; 2],
    across: u64,
}

/// Gives the packed 4-bit floats of a checkpoint in NVFP4 the names and shapes of the matrices that
/// they stand for.
pub(in crate::weights) fn add_nvfp4(model: &Model, shards: &mut [Shard]) {
    let published = model.published.as_deref().map(|formats| WeightFormats::from(*formats));
    if !published.is_some_and(|formats| formats.distinct().any(|dtype| dtype == DType::Nvfp4)) {
        return;
    }
    for shard in shards {
        let packed = |(name, stored): (&String, &StoredTensor)| {
            let weight = name.strip_suffix("_packed").unwrap_or(name);
            let &[rows, bytes] = &stored.shape[..] else { return None };
            if stored.format_name != "U8" || !weight.ends_with(".weight") {
                return None;
            }
            let (format, shape) = (Some(TensorFormat::Fp4), vec![rows, bytes.checked_mul(2)?]);
            Some((weight.to_owned(), StoredTensor { format, shape, ..stored.clone() }))
        };
        let added: Vec<_> = shard.tensors.iter().filter_map(packed).collect();
        shard.tensors.extend(added);
    }
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
        let name = |ending: &str| format!("{}{ending}", tensor.name);
        let missing = |ending: &str, expected| ExecutorError::MissingTensor {
            path: shard.path.clone(),
            tensor: name(ending),
            model: model.name.clone(),
            expected,
        };
        let (rows, columns) = (stored.shape[0], stored.shape[1..].iter().product::<u64>());
        let blocks = vec![rows.div_ceil(BLOCK), columns.div_ceil(BLOCK)];
        match stored.format {
            Some(TensorFormat::Fp8) => {
                let endings = ["_scale_inv", "_scale"];
                let found = endings.iter().find_map(|ending| Some((ending, find(&name(ending))?)));
                let Some((ending, scales)) = found else {
                    return if model.published.is_none() {
                        Ok(None)
                    } else {
                        Err(missing("_scale_inv", blocks))
                    };
                };
                let (shared, across) = match &scales.1.shape[..] {
                    [] | [1] | [1, 1] => ([rows, columns], 1),
                    &[count] | &[count, 1] if count == rows => ([1, columns], 1),
                    shape if *shape == blocks => ([BLOCK; 2], blocks[1]),
                    _ => return Err(other_shape(name(ending), scales, blocks)),
                };
                check_format(&name(ending), scales, |format| format != TensorFormat::Fp8)?;
                Ok(Some(Self { scales, whole: None, shared, across }))
            }
            Some(TensorFormat::Fp4) => {
                let across = columns / GROUP;
                let scales = find(&name("_scale")).ok_or_else(|| missing("_scale", vec![rows, across]))?;
                if scales.1.shape != [rows, across] {
                    return Err(other_shape(name("_scale"), scales, vec![rows, across]));
                }
                check_format(&name("_scale"), scales, |format| format == TensorFormat::Fp8)?;
                let kinds = [("_scale_2", false), ("_global_scale", true)];
                let found =
                    kinds.iter().find_map(|&(ending, divides)| Some((ending, find(&name(ending))?, divides)));
                let (ending, whole, divides) = found.ok_or_else(|| missing("_scale_2", vec![1]))?;
                if whole.1.shape.iter().product::<u64>() != 1 {
                    return Err(other_shape(name(ending), whole, vec![1]));
                }
                check_format(&name(ending), whole, |format| format == TensorFormat::F32)?;
                Ok(Some(Self { scales, whole: Some((whole, divides)), shared: [1, GROUP], across }))
            }
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

    /// The row of scales of row `row` of the matrix.
    pub(in crate::weights) fn scale_row(&self, row: u64) -> u64 {
        row / self.shared[0]
    }

    /// Reads the scales.
    pub(in crate::weights) fn read(&self) -> Result<MatrixScales, ExecutorError> {
        let mut values = values(self.scales)?;
        if let Some((whole, divides)) = self.whole {
            let whole = self::values(whole)?[0];
            let by = |value: &mut f32| if divides { *value /= whole } else { *value *= whole };
            values.iter_mut().for_each(by);
        }
        Ok(MatrixScales { values, shared: self.shared, across: self.across })
    }
}

impl MatrixScales {
    /// Writes the scales of row `row`: one for each 128 columns, or one.
    pub(in crate::weights) fn row(&self, row: u64, out: &mut [f32]) {
        let own = &self.values[(row / self.shared[0] * self.across) as usize..][..self.across as usize];
        out.iter_mut().enumerate().for_each(|(at, out)| *out = own[at.min(own.len() - 1)]);
    }

    /// Multiplies the numbers of row `row` by their scales.
    pub(in crate::weights) fn apply(&self, row: u64, numbers: &mut [f32]) {
        let [rows, columns] = self.shared;
        let scales = &self.values[(row / rows * self.across) as usize..];
        for (numbers, scale) in numbers.chunks_mut(columns.max(1) as usize).zip(scales) {
            numbers.iter_mut().for_each(|number| *number *= scale);
        }
    }
}

/// All values of a tensor of scales.
fn values((shard, stored): Found<'_>) -> Result<Vec<f32>, ExecutorError> {
    let format = stored.format.expect("`find` has checked the format");
    let count = stored.shape.iter().product::<u64>();
    let bytes = format.bytes(count).expect("a plain number is a whole block");
    let (mut bytes, mut values) = (vec![0; bytes as usize], vec![0.0; count as usize]);
    shard.read(&mut bytes, stored.start)?;
    format.decode(&bytes, &mut values);
    Ok(values)
}

fn other_shape(tensor: String, (shard, stored): Found<'_>, expected: Vec<u64>) -> ExecutorError {
    ExecutorError::Shape { path: shard.path.clone(), tensor, expected, found: stored.shape.clone() }
}

/// Refuses scales in a format that is not one of plain numbers, or that `right` refuses.
fn check_format(
    name: &str,
    (shard, stored): Found<'_>,
    right: impl Fn(TensorFormat) -> bool,
) -> Result<(), ExecutorError> {
    let plain = |format: &TensorFormat| !matches!(format, TensorFormat::Blocks(_) | TensorFormat::Fp4);
    match stored.format.filter(plain).is_some_and(right) {
        true => Ok(()),
        false => Err(ExecutorError::DType {
            path: shard.path.clone(),
            tensor: name.to_owned(),
            found: stored.format_name.clone(),
        }),
    }
}
