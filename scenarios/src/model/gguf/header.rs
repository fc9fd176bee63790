//! The header of a GGUF file (llama.cpp): metadata of the model, and the places of its tensors.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3,
//! little-endian. A header is not trusted: each length is checked against the bytes left in the
//! file before anything is allocated.

use crate::input::error::ScenarioError;
use hwprofiles::DType;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;

/// The header: everything before the tensors' values.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf {
    /// Metadata by key; numbers are JSON numbers.
    pub metadata: BTreeMap<String, Value>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, GgufTensor>,
}

/// The shape, format and place of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufTensor {
    /// Its shape, the slowest dimension first: \[rows, columns\].
    pub shape: Vec<u64>,
    /// ggml's number for its format: 0 is F32, 1 F16, 2 Q4_0, 8 Q8_0, 12 Q4_K, 14 Q6_K, 30 BF16.
    pub format: u32,
    /// The offset of its first byte in the file.
    pub start: u64,
}

/// ggml's numbers of formats; those from 137 on are ik_llama.cpp's.
const GGML_TYPES: [(u32, DType); 32] = [
    (0, DType::F32),
    (1, DType::F16),
    (2, DType::Q4_0),
    (3, DType::Q4_1),
    (6, DType::Q5_0),
    (7, DType::Q5_1),
    (8, DType::Q8_0),
    (10, DType::Q2K),
    (11, DType::Q3K),
    (12, DType::Q4K),
    (13, DType::Q5K),
    (14, DType::Q6K),
    (16, DType::Iq2Xxs),
    (17, DType::Iq2Xs),
    (18, DType::Iq3Xxs),
    (19, DType::Iq1S),
    (20, DType::Iq4Nl),
    (21, DType::Iq3S),
    (22, DType::Iq2S),
    (23, DType::Iq4Xs),
    (29, DType::Iq1M),
    (30, DType::Bf16),
    (39, DType::Mxfp4),
    (40, DType::Nvfp4),
    (137, DType::Iq2K),
    (138, DType::Iq3K),
    (139, DType::Iq4K),
    (140, DType::Iq5K),
    (141, DType::Iq6K),
    (144, DType::Iq4Ks),
    (146, DType::Iq4Kss),
    (155, DType::Iq4Kt),
];

impl GgufTensor {
    /// Its format; `None` if the number is not known.
    pub fn dtype(&self) -> Option<DType> {
        GGML_TYPES.into_iter().find(|(number, _)| *number == self.format).map(|(_, dtype)| dtype)
    }
}

/// The largest number of dimensions of a tensor.
const MAX_DIMENSIONS: u32 = 4;

impl Gguf {
    /// Reads the header of the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, and the errors of [`Gguf::from_reader`].
    pub fn open(path: &Path) -> Result<Self, ScenarioError> {
        let unreadable = |reason| ScenarioError::Unreadable { path: path.to_owned(), reason };
        let file = hwprofiles::open_input(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        Self::from_reader(&path.display().to_string(), BufReader::new(file), length)
    }

    /// Reads the header of a file of `length` bytes; messages call the file `name`.
    ///
    /// # Errors
    /// It is not a GGUF file, has another version, or is cut short; a tensor appears twice or
    /// begins beyond the end of the file.
    pub fn from_reader(name: &str, reader: impl Read, length: u64) -> Result<Self, ScenarioError> {
        let mut cursor = FileCursor { reader, at: 0, length };
        let header = cursor.header();
        header
            .map_err(|reason| ScenarioError::Syntax { place: format!("{name}: byte {}", cursor.at), reason })
    }

    /// The text under `key` of the metadata.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.metadata.get(key)?.as_str()
    }

    /// The list under `key` of the metadata.
    pub fn list(&self, key: &str) -> Option<&[Value]> {
        self.metadata.get(key)?.as_array().map(Vec::as_slice)
    }
}

/// A single-precision number as the decimal number that was meant: 1e-5, not 9.999999747378752e-6.
fn decimal(value: f32) -> Value {
    number(value.to_string().parse().unwrap_or(f64::from(value)))
}

/// A number. One that JSON cannot write becomes a text, which whoever reads its key refuses.
fn number(value: f64) -> Value {
    if value.is_finite() { Value::from(value) } else { Value::from(value.to_string()) }
}

/// The position in a file that is being read.
struct FileCursor<R> {
    reader: R,
    at: u64,
    length: u64,
}

/// A longer header is refused: a file of holes can promise more than there is memory. Those of
/// the largest vocabularies have a fifth of it.
const LARGEST_HEADER: u64 = 100_000_000;

/// A part of the header, or the reason why it is refused.
type Parsed<T> = Result<T, String>;

impl<R: Read> FileCursor<R> {
    fn header(&mut self) -> Parsed<Gguf> {
        if self.bytes(4)? != *b"GGUF" {
            return Err("no GGUF file: it does not begin with 'GGUF'".to_owned());
        }
        let version = self.u32()?;
        if !(2..=3).contains(&version) {
            return Err(format!("GGUF version {version}: 2 and 3 are read, little-endian"));
        }
        let (tensors, keys) = (self.u64()?, self.u64()?);
        let mut metadata = BTreeMap::new();
        for _ in 0..keys {
            let key = self.text()?;
            let kind = self.u32()?;
            metadata.insert(key, self.value(kind, true)?);
        }
        let mut places = Vec::new();
        for _ in 0..tensors {
            places.push(self.tensor()?);
        }
        let alignment = metadata.get("general.alignment").map_or(Some(32), Value::as_u64);
        let Some(alignment) = alignment.filter(|bytes| bytes.is_power_of_two()) else {
            return Err("general.alignment is no power of two".to_owned());
        };
        let data = self.at.next_multiple_of(alignment);
        let mut tensors = BTreeMap::new();
        for (name, mut tensor) in places {
            let start = data.checked_add(tensor.start).filter(|&start| start <= self.length);
            tensor.start =
                start.ok_or_else(|| format!("tensor '{name}' begins beyond the end of the file"))?;
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(format!("tensor '{name}' is there twice"));
            }
        }
        Ok(Gguf { metadata, tensors })
    }

    fn tensor(&mut self) -> Parsed<(String, GgufTensor)> {
        let name = self.text()?;
        let dimensions = self.u32()?;
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(format!(
                "tensor '{name}' has {dimensions} dimensions: 1 to {MAX_DIMENSIONS} are read"
            ));
        }
        let mut shape = (0..dimensions).map(|_| self.u64()).collect::<Parsed<Vec<_>>>()?;
        shape.reverse();
        // An element of any format takes a bit or more.
        let count = shape.iter().try_fold(1u64, |count, &size| count.checked_mul(size));
        if count.is_none_or(|count| count / 8 > self.length) {
            return Err(format!("tensor '{name}' has more elements than the file has bits"));
        }
        let format = self.u32()?;
        let start = self.u64()?;
        Ok((name, GgufTensor { shape, format, start }))
    }

    fn value(&mut self, kind: u32, lists: bool) -> Parsed<Value> {
        Ok(match kind {
            0 => Value::from(self.bytes(1)?[0]),
            1 => Value::from(self.bytes(1)?[0] as i8),
            2 => Value::from(u16::from_le_bytes(self.array()?)),
            3 => Value::from(i16::from_le_bytes(self.array()?)),
            4 => Value::from(self.u32()?),
            5 => Value::from(i32::from_le_bytes(self.array()?)),
            6 => decimal(f32::from_le_bytes(self.array()?)),
            7 => Value::from(self.bytes(1)?[0] != 0),
            8 => Value::from(self.text()?),
            9 if lists => {
                let (kind, count) = (self.u32()?, self.u64()?);
                // Each item takes at least one byte, so a count beyond the file's end is refused
                // here.
                let mut items = Vec::with_capacity(self.checked_length(count)?.min(1 << 16));
                for _ in 0..count {
                    items.push(self.value(kind, false)?);
                }
                Value::from(items)
            }
            10 => Value::from(self.u64()?),
            11 => Value::from(i64::from_le_bytes(self.array()?)),
            12 => number(f64::from_le_bytes(self.array()?)),
            _ => return Err(format!("a value of kind {kind}: 0 to 12 are known, lists not within lists")),
        })
    }

    fn text(&mut self) -> Parsed<String> {
        let length = self.u64()?;
        let bytes = self.bytes(length)?;
        String::from_utf8(bytes).map_err(|_| "a text that is not UTF-8".to_owned())
    }

    fn u32(&mut self) -> Parsed<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Parsed<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let bytes = self.bytes(N as u64)?;
        bytes.try_into().map_err(|_| "cut short".to_owned())
    }

    /// `count` as a length in memory.
    ///
    /// # Errors
    /// Fewer than `count` bytes of the file are left, or the header would be too long.
    fn checked_length(&self, count: u64) -> Parsed<usize> {
        let left = self.length.saturating_sub(self.at);
        if count <= left && self.at + count > LARGEST_HEADER {
            return Err(format!("its header has more than {LARGEST_HEADER} bytes: this is not a model's"));
        }
        let cut = || {
            format!("{count} bytes are promised and {left} are left: the file is cut short, fetch it again")
        };
        usize::try_from(count).ok().filter(|_| count <= left).ok_or_else(cut)
    }

    fn bytes(&mut self, count: u64) -> Parsed<Vec<u8>> {
        let mut bytes = vec![0; self.checked_length(count)?];
        self.reader.read_exact(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
        self.at += count;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }

    /// A file with a number, a list of texts, and a 2 × 3 matrix at offset 32 of its data.
    fn file() -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        bytes.extend(2u64.to_le_bytes());
        text(&mut bytes, "a.size");
        bytes.extend(4u32.to_le_bytes());
        bytes.extend(7u32.to_le_bytes());
        text(&mut bytes, "a.words");
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(8u32.to_le_bytes());
        bytes.extend(2u64.to_le_bytes());
        text(&mut bytes, "one");
        text(&mut bytes, "zwölf");
        text(&mut bytes, "w");
        bytes.extend(2u32.to_le_bytes());
        bytes.extend(3u64.to_le_bytes());
        bytes.extend(2u64.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(32u64.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(32) + 32 + 24, 0);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Gguf, ScenarioError> {
        Gguf::from_reader("file.gguf", bytes, bytes.len() as u64)
    }

    #[test]
    fn a_header_is_its_values_and_where_its_tensors_lie() {
        let bytes = file();
        let gguf = read(&bytes).expect("a file");
        assert_eq!(gguf.metadata["a.size"], 7);
        assert_eq!(gguf.list("a.words").expect("a list")[1], "zwölf");
        let start = bytes.len() as u64 - 24;
        assert_eq!(gguf.tensors["w"], GgufTensor { shape: vec![2, 3], format: 0, start });
    }

    #[test]
    fn a_text_or_list_that_fills_the_memory_is_refused_however_long_the_file_is() {
        let mut long = b"GGUF".to_vec();
        long.extend(3u32.to_le_bytes());
        long.extend(0u64.to_le_bytes());
        long.extend(1u64.to_le_bytes());
        let mut list = long.clone();
        long.extend((1u64 << 39).to_le_bytes());
        text(&mut list, "a.bytes");
        list.extend(9u32.to_le_bytes());
        list.extend(0u32.to_le_bytes());
        list.extend((1u64 << 39).to_le_bytes());
        for header in [long, list] {
            let holes = std::io::Read::chain(&header[..], std::io::repeat(0));
            let error = Gguf::from_reader("x.gguf", holes, 1 << 40).expect_err("too long").to_string();
            assert!(error.contains("more than 100000000 bytes"), "{error}");
        }
    }

    #[test]
    fn a_tensor_that_is_larger_than_its_file_is_refused() {
        for size in [1 << 12, 1 << 63, u64::MAX] {
            let mut bytes = file();
            // The sizes of the matrix stand before its format and its place.
            let at = bytes
                .windows(16)
                .rposition(|sizes| sizes == [3u64.to_le_bytes(), 2u64.to_le_bytes()].concat());
            let at = at.expect("the sizes of the matrix");
            bytes[at..at + 8].copy_from_slice(&size.to_le_bytes());
            let length = bytes.len() as u64;
            let error = Gguf::from_reader("x.gguf", &bytes[..], length).expect_err("too large").to_string();
            assert!(error.contains("more elements than the file has bits"), "{error}");
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_read_or_refused_with_the_file_named() {
        let whole = file();
        let header = whole.len() - 24 - 32;
        for length in 0..header - 31 {
            let error = read(&whole[..length]).expect_err("it is cut short").to_string();
            assert!(error.starts_with("file.gguf: byte "), "{error}");
        }
        for at in 0..header {
            for change in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                let _ = read(&bytes);
            }
        }
        let mut other = whole.clone();
        other[4] = 1;
        assert!(read(&other).expect_err("version 1").to_string().contains("GGUF version 1"));
        assert!(
            read(b"PK\x03\x04....").expect_err("a zip").to_string().contains("does not begin with 'GGUF'")
        );
    }
}
