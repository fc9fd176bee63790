//! One file of tensors.
//!
//! It is read at positions and not mapped. A map would save one copy of each row into the packing
//! buffer, which takes little time beside packing. But a file that is cut short while it is mapped
//! kills the process, and here it is an error.

use crate::error::ExecutorError;
use crate::weights::format::TensorFormat;
use hwprofiles::Bytes;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where a tensor lies in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredTensor {
    /// The format; `None` for one that is not read.
    pub format: Option<TensorFormat>,
    /// The format's name in the file, for messages.
    pub format_name: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// First byte in the file.
    pub start: u64,
    /// Whether norms are stored whole where other files store the difference from 1.
    pub norms_include_one: bool,
    /// Whether it holds −eˣ of the values.
    pub negated_exp: bool,
    /// The order of its rows in the file.
    pub order: RowOrder,
}

/// The order in which a file has the rows of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// Hugging Face's order.
    Same,
    /// Within each head, rows that rotate together are adjacent instead of half a head apart.
    PairsInterleaved {
        /// Rows of a head.
        head: u64,
    },
    /// Three matrices follow one another whole, instead of in groups that have a part of each.
    Concatenated {
        /// Groups.
        groups: u64,
        /// Rows of each matrix.
        rows: [u64; 3],
    },
    /// Rows lie this many rows apart.
    Apart(u64),
    /// The tensor's rows are columns of a matrix of `width` columns, and lie `apart` columns apart.
    Columns {
        /// Columns of the matrix.
        width: u64,
        /// The distance of the columns that are rows here.
        apart: u64,
    },
    /// MXFP4 in two tensors: blocks of 16 bytes, and an exponent for each.
    Scaled {
        /// Rows lie this many rows apart.
        apart: u64,
        /// Index of the shard with the exponents.
        shard: usize,
        /// The position of the first row's first exponent in that shard.
        scales: u64,
    },
    /// In f32, made of two tensors.
    Absorbed(AbsorbedExpansion),
}

/// Where the two parts of latent attention's expansion lie; the tensor's start is that of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AbsorbedExpansion {
    /// Heads.
    pub heads: u64,
    /// The keys' matrices of the heads, \[rank, plain columns of a key\].
    pub keys: TensorFormat,
    /// Plain columns of a key.
    pub plain: u64,
    /// The values' matrices of the heads, \[columns of a value, rank\].
    pub values: TensorFormat,
    /// The position of the first.
    pub values_start: u64,
    /// Columns of a value.
    pub value: u64,
}

impl StoredTensor {
    /// Rows of the file from the first to the last of the tensor's.
    pub fn stored_rows(&self) -> u64 {
        match self.order {
            RowOrder::Apart(apart) | RowOrder::Scaled { apart, .. } => (self.shape[0] - 1) * apart + 1,
            _ => self.shape[0],
        }
    }

    /// The file's row that holds `row`.
    pub fn stored_row(&self, row: u64) -> u64 {
        match self.order {
            RowOrder::Same | RowOrder::Columns { .. } | RowOrder::Absorbed(_) => row,
            RowOrder::Apart(apart) | RowOrder::Scaled { apart, .. } => row * apart,
            RowOrder::PairsInterleaved { head } => {
                let (first, within) = (row / head * head, row % head);
                first + within % (head / 2) * 2 + within / (head / 2)
            }
            RowOrder::Concatenated { groups, rows } => {
                let group = rows.iter().sum::<u64>() / groups;
                let (index, mut within, mut before) = (row / group, row % group, 0);
                for rows in rows {
                    let part = rows / groups;
                    if within < part {
                        return before + index * part + within;
                    }
                    (within, before) = (within - part, before + rows);
                }
                row
            }
        }
    }
}

/// An open file of tensors.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Its path.
    pub path: PathBuf,
    /// Its tensors by name.
    pub tensors: BTreeMap<String, StoredTensor>,
    file: File,
}

/// A longer header is invalid: the limit of the format's own library.
const LARGEST_HEADER: u64 = 100_000_000;

impl Shard {
    /// Opens a safetensors file and reads its header.
    pub fn open(path: &Path) -> Result<Self, ExecutorError> {
        let unreadable = |source| ExecutorError::File { path: path.to_owned(), source };
        let malformed = |reason: String| ExecutorError::Malformed { path: path.to_owned(), reason };
        let file = hwprofiles::open_input(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let truncated = |expected: u64| ExecutorError::Truncated {
            path: path.to_owned(),
            expected: Bytes::new(expected),
            found: Bytes::new(length),
        };
        if length < 8 {
            return Err(truncated(8));
        }
        let mut size = [0; 8];
        file.read_exact_at(&mut size, 0).map_err(unreadable)?;
        let size = u64::from_le_bytes(size);
        if size > LARGEST_HEADER {
            return Err(malformed(format!("its header claims {size} bytes: this is not a safetensors file")));
        }
        if length < 8 + size {
            return Err(truncated(8 + size));
        }
        let mut header = vec![0; size as usize];
        file.read_exact_at(&mut header, 8).map_err(unreadable)?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| malformed(format!("its header is wrong: {error}")))?;
        let data = 8 + size;
        let expected = data + metadata.data_len() as u64;
        if length < expected {
            return Err(truncated(expected));
        }
        if length > expected {
            return Err(malformed(format!("it has {} bytes after its last tensor", length - expected)));
        }
        let stored = |(name, info): (String, &TensorInfo)| {
            let tensor = StoredTensor {
                format: format(info.dtype),
                format_name: info.dtype.to_string(),
                shape: info.shape.iter().map(|&size| size as u64).collect(),
                start: data + info.data_offsets.0 as u64,
                norms_include_one: false,
                negated_exp: false,
                order: RowOrder::Same,
            };
            (name, tensor)
        };
        let tensors = metadata.tensors().into_iter().map(stored).collect();
        Ok(Self::new(path, tensors, file))
    }

    /// A shard with `tensors` of `file`, which is at `path`.
    pub fn new(path: &Path, tensors: BTreeMap<String, StoredTensor>, file: File) -> Self {
        Self { path: path.to_owned(), tensors, file }
    }

    /// Fills `bytes` from position `at` of the file.
    pub fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), ExecutorError> {
        let unreadable = |source| ExecutorError::File { path: self.path.clone(), source };
        self.file.read_exact_at(bytes, at).map_err(unreadable)
    }
}

fn format(dtype: Dtype) -> Option<TensorFormat> {
    match dtype {
        Dtype::F32 => Some(TensorFormat::F32),
        Dtype::F16 => Some(TensorFormat::F16),
        Dtype::BF16 => Some(TensorFormat::Bf16),
        Dtype::F8_E4M3 => Some(TensorFormat::Fp8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_turn_together_lie_half_a_head_apart_here_and_side_by_side_there() {
        let shape = vec![16, 3];
        let stored = StoredTensor {
            format: None,
            format_name: String::new(),
            shape,
            start: 0,
            norms_include_one: false,
            negated_exp: false,
            order: RowOrder::PairsInterleaved { head: 8 },
        };
        let places: Vec<_> = (0..16).map(|row| stored.stored_row(row)).collect();
        assert_eq!(places, [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]);
        let plain = StoredTensor { order: RowOrder::Same, ..stored.clone() };
        assert!((0..16).all(|row| plain.stored_row(row) == row));
        // Two groups: two rows of q, one of k and one of v each.
        let whole = StoredTensor { order: RowOrder::Concatenated { groups: 2, rows: [4, 2, 2] }, ..stored };
        let places: Vec<_> = (0..8).map(|row| whole.stored_row(row)).collect();
        assert_eq!(places, [0, 1, 4, 6, 2, 3, 5, 7]);
    }
}
