//! The JSON Schema of machine files, from the fields of the types that they are read into.

use super::machine::{doc, find, renamed, serde_text, serde_word};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use quote::ToTokens;
use serde_json::{Map, Value, json};
use syn::{Attribute, Fields, GenericArgument, ItemStruct, PathArguments, Type};

/// The kinds of files, by their types.
const FILES: [&str; 8] =
    ["MachineFile", "Host", "Composition", "GpuPart", "CpuPart", "LinkPart", "CxlPart", "NvmePart"];

/// The types of values with a unit.
const QUANTITIES: [&str; 11] = [
    "Bytes",
    "BytesPerSec",
    "Dollars",
    "FlopPerSec",
    "Hertz",
    "Joules",
    "Ratio",
    "Seconds",
    "Watts",
    "WattHours",
    "Years",
];

/// The schema's text.
///
/// # Errors
/// A type of files that is no longer where the generator looks for it.
pub fn text(workspace: &Workspace) -> Result<String> {
    let mut definitions = Definitions { workspace, found: Map::new() };
    for name in FILES {
        definitions.define(name).with_context(|| format!("hwprofiles has no struct {name}"))?;
    }
    let files: Vec<Value> = FILES.iter().map(|name| reference(name)).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A machine of Fulcrum, or a part of one",
        "anyOf": files,
        "$defs": definitions.found,
    });
    Ok(format!("{schema:#}\n"))
}

/// The schemas of types, by name.
struct Definitions<'w> {
    workspace: &'w Workspace,
    found: Map<String, Value>,
}

impl Definitions<'_> {
    /// Adds the struct called `name`, and the types of its fields. `None` if its keys are not its
    /// fields.
    fn define(&mut self, name: &str) -> Option<()> {
        if self.found.contains_key(name) {
            return Some(());
        }
        let found: ItemStruct =
            find(self.workspace, name).filter(|found| has_its_fields(&found.attrs))?.clone();
        let Fields::Named(fields) = &found.fields else { return None };
        // A type may hold itself.
        self.found.insert(name.to_owned(), Value::Null);
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in fields.named.iter().filter(|field| !serde_word(&field.attrs, "skip")) {
            let ident = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
            let key = renamed(&field.attrs).unwrap_or(ident);
            let read_by = serde_text(&field.attrs).join(", ");
            let mut value = match read_by.contains("with =") && !read_by.contains("units::") {
                // A reader of its own: a table as CSV, for instance.
                true => json!({}),
                false => self.of_type(&field.ty),
            };
            // The person asking may leave the source out.
            if read_by.contains("units::stated") {
                value = json!({"anyOf": [value, {"type": ["string", "number"]}]});
            }
            let meaning = doc(&field.attrs).replace('`', "");
            if !meaning.is_empty() {
                value["description"] = json!(meaning);
            }
            let needed = !serde_word(&field.attrs, "default") && !is_option(&field.ty);
            required.extend(needed.then(|| key.clone()));
            properties.insert(key, value);
        }
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        let meaning = doc(&found.attrs).replace('`', "");
        if !meaning.is_empty() {
            schema["description"] = json!(meaning);
        }
        self.found.insert(name.to_owned(), schema);
        Some(())
    }

    /// The schema of a field's type; anything is right for a type with a reader of its own.
    fn of_type(&mut self, kind: &Type) -> Value {
        let Type::Path(path) = kind else { return json!({}) };
        let Some(last) = path.path.segments.last() else { return json!({}) };
        let arguments: Vec<Type> = match &last.arguments {
            PathArguments::AngleBracketed(list) => {
                let types = list.args.iter().filter_map(|argument| match argument {
                    GenericArgument::Type(kind) => Some(kind.clone()),
                    _ => None,
                });
                types.collect()
            }
            _ => vec![],
        };
        match (last.ident.to_string().as_str(), arguments.last()) {
            ("String", _) => json!({"type": "string"}),
            ("bool", _) => json!({"type": "boolean"}),
            ("u64" | "usize" | "u32", _) => json!({"type": "integer", "minimum": 0}),
            ("f64", _) => json!({"type": "number"}),
            (quantity, _) if QUANTITIES.contains(&quantity) => json!({"type": ["string", "number"]}),
            ("Option" | "Box", Some(inner)) => self.of_type(inner),
            ("Vec", Some(inner)) => json!({"type": "array", "items": self.of_type(inner)}),
            ("BTreeMap" | "Entries", Some(inner)) => {
                json!({"type": "object", "additionalProperties": self.of_type(inner)})
            }
            ("Sourced", Some(inner)) => {
                json!({
                    "type": "object",
                    "properties": {"value": self.of_type(inner), "source": {}},
                    "required": ["value", "source"],
                    "additionalProperties": false,
                })
            }
            (name, _) => match self.define(name) {
                Some(()) => reference(name),
                None => json!({}),
            },
        }
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// Whether a file's keys are the fields: the reader is derived, and refuses others.
fn has_its_fields(attributes: &[Attribute]) -> bool {
    let derived = attributes.iter().any(|attribute| {
        attribute.path().is_ident("derive") && attribute.to_token_stream().to_string().contains("Deserialize")
    });
    derived && serde_word(attributes, "deny_unknown_fields")
}

fn is_option(kind: &Type) -> bool {
    matches!(kind, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option"))
}
