//! One safetensors file.
//!
//! It is read at positions, not mapped: a map would spare one copy of each row into the packing buffer, which is
//! little beside packing it, but a file cut short while mapped kills the process, and here it is an error.

use crate::error::Error;
use half::f16;
use hwprofiles::{Bytes, DType};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where a tensor lies in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// As the file says; `None` for a format that we do not read.
    pub dtype: Option<DType>,
    /// As the file says, for messages.
    pub dtype_name: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// First byte in the file.
    pub start: u64,
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
                dtype: dtype(info.dtype),
                dtype_name: info.dtype.to_string(),
                shape: info.shape.iter().map(|&size| size as u64).collect(),
                start: data + info.data_offsets.0 as u64,
            };
            (name, tensor)
        };
        let tensors = metadata.tensors().into_iter().map(stored).collect();
        Ok(Self { path: path.to_owned(), tensors, file })
    }

    /// Fills `bytes` from position `at`.
    pub fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), Error> {
        let unreadable = |source| Error::File { path: self.path.clone(), source };
        self.file.read_exact_at(bytes, at).map_err(unreadable)
    }
}

fn dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::Bf16),
        _ => None,
    }
}

/// Bytes of one value of a format that [`Stored::dtype`] can be.
pub(crate) fn value_bytes(dtype: DType) -> u64 {
    if dtype == DType::F32 { 4 } else { 2 }
}

/// Turns little-endian values of `dtype` into f32.
pub(crate) fn decode(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F32 => {
            for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *out = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        DType::F16 => {
            for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *out = f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
            }
        }
        _ => {
            for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *out = f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16);
            }
        }
    }
}
