//! The keys of a scenario as JSON Schema, for editors.

use crate::question::keys::{SCENARIO_KEYS, ScenarioKey};
use serde_json::{Map, Value, json};

/// The JSON Schema (2020-12) of a scenario file. It knows every key with its meaning and examples,
/// and refuses unknown ones; which values are right, the reader says with the place.
pub fn scenario_schema() -> Value {
    let mut root = object();
    for key in SCENARIO_KEYS {
        add(&mut root, &key.path.split('.').collect::<Vec<_>>(), key);
    }
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("A scenario of Fulcrum");
    root["required"] = json!(["model"]);
    root
}

fn object() -> Value {
    json!({"type": "object", "properties": {}, "additionalProperties": false})
}

/// Puts `key` at the rest of its path below `parent`, which becomes a mapping if it was not one.
fn add(parent: &mut Value, path: &[&str], key: &ScenarioKey) {
    let Some((step, rest)) = path.split_first() else { return };
    let (name, is_list) = step.strip_suffix("[]").map_or((*step, false), |name| (name, true));
    let entry = mapping_of(parent)["properties"].as_object_mut().expect("a mapping has properties");
    let entry = entry.entry(name).or_insert_with(|| json!({}));
    let entry = match is_list {
        true => items_of(entry),
        false => entry,
    };
    if rest.is_empty() {
        // What a key's own row says comes first, its parts behind it.
        let mut described = Map::new();
        described.insert("description".to_owned(), json!(key.meaning.replace('`', "")));
        described.insert("examples".to_owned(), examples(key.values));
        described.extend(std::mem::take(entry).as_object().cloned().unwrap_or_default());
        *entry = Value::Object(described);
    } else {
        add(entry, rest, key);
    }
}

/// The mapping among the forms that `entry` can have: a key with parts can also be a name, a list.
fn mapping_of(entry: &mut Value) -> &mut Value {
    if entry.get("properties").is_some() {
        return entry;
    }
    if entry.get("anyOf").is_none() {
        entry["anyOf"] = json!([object(), {"not": {"type": "object"}}]);
    }
    &mut entry["anyOf"][0]
}

/// The elements of the list among the forms that `entry` can have.
fn items_of(entry: &mut Value) -> &mut Value {
    if entry.get("items").is_none() {
        entry["items"] = json!({});
    }
    &mut entry["items"]
}

/// The examples of a row, which stand in backticks.
fn examples(values: &str) -> Value {
    values.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first key of `document` that the schema does not know.
    fn unknown(schema: &Value, document: &Value) -> Option<String> {
        match document {
            Value::Object(entries) => {
                let mapping = if schema["properties"].is_object() { schema } else { &schema["anyOf"][0] };
                let properties = mapping["properties"].as_object()?;
                entries.iter().find_map(|(key, value)| match properties.get(key) {
                    None => Some(key.clone()),
                    Some(schema) => unknown(schema, value),
                })
            }
            Value::Array(list) => list.iter().find_map(|value| unknown(&schema["items"], value)),
            _ => None,
        }
    }

    #[test]
    fn every_key_is_known_with_its_meaning_and_others_are_not() {
        let schema = scenario_schema();
        for key in SCENARIO_KEYS {
            let mut at = &schema;
            for step in key.path.split('.') {
                let (name, is_list) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
                let mapping = if at["properties"].is_object() { at } else { &at["anyOf"][0] };
                at = &mapping["properties"][name];
                at = if is_list { &at["items"] } else { at };
            }
            assert!(at["description"].is_string() && at["examples"].is_array(), "{}: {at}", key.path);
        }
        let right =
            json!({"model": "opt-125m", "workload": {"batch": 1}, "dtype": {"weights": {"experts": "int4"}}});
        assert_eq!(unknown(&schema, &right), None);
        for wrong in [
            json!({"modle": "x"}),
            json!({"workload": {"bacth": 1}}),
            json!({"capacity": {"machines": [{"nane": 1}]}}),
        ] {
            assert!(unknown(&schema, &wrong).is_some(), "{wrong}");
        }
    }
}
