//! The formats of a GGUF file by class, from the types of its tensors.

use crate::model::formats::file_type::GgufFileType;
use crate::model::formats::weight_format::WeightFormat;
use crate::model::gguf::header::Gguf;
use crate::model::operators::formats::{WeightClass, WeightFormats};
use hwprofiles::DType;
use serde_json::Value;

impl Gguf {
    /// The formats of its matrices by class, with the token table apart.
    ///
    /// # Errors
    /// A matrix has a type that is not known, a class has more formats than a mixture can hold, or
    /// the file has no token table.
    pub fn weight_formats(&self) -> Result<WeightFormats, String> {
        let mut by_class: [Vec<(DType, u64)>; WeightClass::ALL.len()] = Default::default();
        let (mut embed, mut head) = (None, None);
        // Vectors (norms, biases) are f32 in Fulcrum too and belong to no class.
        for (name, tensor) in self.tensors.iter().filter(|(_, tensor)| tensor.shape.len() > 1) {
            let dtype = tensor.dtype().ok_or_else(|| unknown(name, tensor.format))?;
            let values = tensor.shape.iter().product();
            match class_of(name) {
                Some(class) => by_class[class as usize].push((dtype, values)),
                None if name == "token_embd.weight" => embed = Some(dtype),
                None if name == "output.weight" => head = Some(dtype),
                None => {}
            }
        }
        let embed = embed.ok_or_else(|| "there is no token table (token_embd.weight)".to_owned())?;
        let mut formats = WeightFormats::all(head.unwrap_or(embed));
        for class in [WeightClass::Attention, WeightClass::Ffn, WeightClass::Experts] {
            let parts = std::mem::take(&mut by_class[class as usize]);
            if !parts.is_empty() {
                formats = formats.with_format(class, WeightFormat::from_values(parts)?);
            }
        }
        if !self.tensors.keys().any(|name| class_of(name) == Some(WeightClass::Experts)) {
            formats = formats.with_format(WeightClass::Experts, formats.for_class(WeightClass::Ffn));
        }
        let formats = formats.with_embed(embed);
        let number = self.metadata.get("general.file_type").and_then(Value::as_u64);
        // A mixture is called by its kind; one format for everything is called by itself.
        let file = number.and_then(GgufFileType::from_number).filter(|_| formats.one().is_none());
        Ok(file.map_or(formats, |file| formats.named(file)))
    }
}

fn unknown(name: &str, format: u32) -> String {
    format!("tensor '{name}' has ggml's type {format}, which is not known: use a file in K-quants or iq4_xs")
}

/// The class of a layer's matrix, from its name in the file; `None` for the ends and for tensors
/// that belong to no layer.
fn class_of(name: &str) -> Option<WeightClass> {
    let (_, tensor) = name.strip_prefix("blk.")?.split_once('.')?;
    let tensor = tensor.strip_suffix(".weight")?;
    if tensor.ends_with("_norm") {
        return None;
    }
    match tensor {
        _ if tensor.ends_with("_exps") => Some(WeightClass::Experts),
        _ if tensor.starts_with("ffn_") => Some(WeightClass::Ffn),
        // Attention, and what stands in its place: recurrent layers, indexers.
        _ => Some(WeightClass::Attention),
    }
}
