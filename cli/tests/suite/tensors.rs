//! The weights of a model's folder, to be changed by a test.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A tensor of a safetensors file: name, format, shape, bytes.
pub type TensorOfFile = (String, String, Vec<u64>, Vec<u8>);
/// All of its tensors.
pub type Tensors = Vec<TensorOfFile>;

/// The tensors of a model's folder.
pub fn read_tensors(folder: &Path) -> Tensors {
    let file = fs::read(folder.join("model.safetensors")).expect("a file");
    let data = 8 + u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
    let header: serde_json::Map<String, Value> = serde_json::from_slice(&file[8..data]).expect("JSON");
    let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    let tensor = |(name, it): (String, Value)| {
        let whole = |value: &Value| value.as_u64().expect("a whole number");
        let [from, to] = [0, 1].map(|end| data + whole(&it["data_offsets"][end]) as usize);
        let shape = it["shape"].as_array().expect("a list").iter().map(whole).collect();
        (name, it["dtype"].as_str().expect("a format").to_owned(), shape, file[from..to].to_vec())
    };
    tensors.map(tensor).collect()
}

/// Writes the tensors of a model's folder.
pub fn write_tensors(folder: &Path, tensors: &Tensors) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend(bytes);
        header.insert(
            name.clone(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let header = Value::Object(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    fs::write(folder.join("model.safetensors"), file).expect("written");
}
