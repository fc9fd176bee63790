//! One file of tensors: safetensors, or what [`Shard::new`] is told.
//!
//! It is read at positions, not mapped: a map would spare one copy of each row into the packing buffer, which is
//! little beside packing it, but a file cut short while mapped kills the process, and here it is an error.

use crate::coding::Coding;
use crate::error::Error;
use hwprofiles::Bytes;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where a tensor lies in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// As the file says; `None` for a format that we do not read.
    pub coding: Option<Coding>,
    /// As the file says, for messages.
    pub format: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// First byte in the file.
    pub start: u64,
    /// Rows of a head, where the two rows that turn together lie side by side rather than half a head apart.
    pub turned: Option<u64>,
}

impl Stored {
    /// Where the file has `row`.
    pub fn place(&self, row: u64) -> u64 {
        let Some(head) = self.turned else { return row };
        let (first, within) = (row / head * head, row % head);
        first + within % (head / 2) * 2 + within / (head / 2)
    }
}

/// A safetensors file, open.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Its path.
    pub path: PathBuf,
    /// Its tensors by name.
    pub tensors: BTreeMap<String, Stored>,
    file: File,
}

/// A header beyond this is no header (the limit of the format's own library).
const LARGEST_HEADER: u64 = 100_000_000;

impl Shard {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::File { path: path.to_owned(), source };
        let malformed = |reason: String| Error::Malformed { path: path.to_owned(), reason };
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let truncated = |expected: u64| Error::Truncated {
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
            let tensor = Stored {
                coding: coding(info.dtype),
                format: info.dtype.to_string(),
                shape: info.shape.iter().map(|&size| size as u64).collect(),
                start: data + info.data_offsets.0 as u64,
                turned: None,
            };
            (name, tensor)
        };
        let tensors = metadata.tensors().into_iter().map(stored).collect();
        Ok(Self::new(path, tensors, file))
    }

    /// `tensors` of `file`, which is at `path`.
    pub fn new(path: &Path, tensors: BTreeMap<String, Stored>, file: File) -> Self {
        Self { path: path.to_owned(), tensors, file }
    }

    /// Fills `bytes` from position `at`.
    pub fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), Error> {
        let unreadable = |source| Error::File { path: self.path.clone(), source };
        self.file.read_exact_at(bytes, at).map_err(unreadable)
    }
}

fn coding(dtype: Dtype) -> Option<Coding> {
    match dtype {
        Dtype::F32 => Some(Coding::F32),
        Dtype::F16 => Some(Coding::F16),
        Dtype::BF16 => Some(Coding::Bf16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_turn_together_lie_half_a_head_apart_here_and_side_by_side_there() {
        let shape = vec![16, 3];
        let stored = Stored { coding: None, format: String::new(), shape, start: 0, turned: Some(8) };
        let places: Vec<_> = (0..16).map(|row| stored.place(row)).collect();
        assert_eq!(places, [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]);
        let plain = Stored { turned: None, ..stored };
        assert!((0..16).all(|row| plain.place(row) == row));
    }
}
