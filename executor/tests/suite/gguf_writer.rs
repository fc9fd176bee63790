//! Writes GGUF files for tests.

use std::path::Path;

/// A GGUF file in the making.
#[derive(Default)]
pub struct GgufFile {
    architecture: String,
    keys: Vec<u8>,
    key_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
    data: Vec<u8>,
}

impl GgufFile {
    pub fn new(architecture: &str) -> Self {
        let mut file = Self { architecture: architecture.to_owned(), ..Self::default() };
        file.key("general.architecture", 8, &text(architecture));
        file
    }

    fn key(&mut self, name: &str, kind: u32, value: &[u8]) {
        self.key_count += 1;
        self.keys.extend(text(name));
        self.keys.extend(kind.to_le_bytes());
        self.keys.extend(value);
    }

    fn own_key(&mut self, name: &str, kind: u32, value: &[u8]) {
        self.key(&format!("{}.{name}", self.architecture), kind, value);
    }

    /// A whole number under the architecture's key.
    pub fn number(&mut self, name: &str, value: u64) {
        self.own_key(name, 4, &(value as u32).to_le_bytes());
    }

    pub fn real(&mut self, name: &str, value: f32) {
        self.own_key(name, 6, &value.to_le_bytes());
    }

    pub fn word(&mut self, name: &str, value: &str) {
        self.own_key(name, 8, &text(value));
    }

    /// A tensor in f32, whose shape has the rows first.
    pub fn values(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let shape: Vec<_> = shape.iter().rev().map(|&size| size as u64).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, &shape, 0, &bytes);
    }

    /// A tensor, whose shape has the columns first.
    pub fn tensor(&mut self, name: &str, shape: &[u64], format: u32, bytes: &[u8]) {
        self.tensor_count += 1;
        self.tensors.extend(text(name));
        self.tensors.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|size| self.tensors.extend(size.to_le_bytes()));
        self.tensors.extend(format.to_le_bytes());
        self.tensors.extend((self.data.len() as u64).to_le_bytes());
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    pub fn write(&self, path: &Path) {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(self.tensor_count.to_le_bytes());
        bytes.extend(self.key_count.to_le_bytes());
        bytes.extend(&self.keys);
        bytes.extend(&self.tensors);
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(&self.data);
        std::fs::write(path, bytes).expect("a file to write");
    }
}

/// A text behind its length.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}
