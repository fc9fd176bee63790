//! The JSON Schema of machine files against the reader.

use hwprofiles::{Profile, machine_schema, shipped, yaml};
use serde_json::Value;

/// What is wrong with `document` by `schema`, whose references are found in `root`; `None` if
/// nothing is. It knows the words that the generator writes.
fn complaint(root: &Value, schema: &Value, document: &Value) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        return complaint(root, &root["$defs"][name.trim_start_matches("#/$defs/")], document);
    }
    if let Some(forms) = schema["anyOf"].as_array() {
        let complaints = forms.iter().map(|form| complaint(root, form, document));
        return complaints.collect::<Option<Vec<_>>>().map(|all| all.join(" | "));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let own = match document {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() && types.contains(&"integer") => "integer",
        Value::Number(_) => "number",
        Value::Null => "null",
    };
    if !types.is_empty() && !types.contains(&own) {
        return Some(format!("{document} is no {types:?}"));
    }
    match document {
        Value::Object(entries) => {
            let missing = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let missing = missing.map(str::to_owned).find(|key| !entries.contains_key(key));
            missing.map(|key| format!("{key} is missing")).or_else(|| {
                entries.iter().find_map(|(key, value)| {
                    let known = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
                    match known {
                        Some(Value::Bool(false)) => Some(format!("{key} is unknown")),
                        Some(known) => complaint(root, known, value).map(|why| format!("{key}: {why}")),
                        None => None,
                    }
                })
            })
        }
        Value::Array(list) => list.iter().find_map(|value| complaint(root, &schema["items"], value)),
        _ => None,
    }
}

#[test]
fn every_shipped_file_is_right_and_one_with_another_or_a_missing_key_is_not() {
    let schema: Value = serde_json::from_str(machine_schema()).expect("JSON");
    let (mut files, mut refused) = (0, 0);
    for (name, text) in shipped() {
        let document: Value = yaml::read(text, name).expect("shipped files are read");
        assert_eq!(complaint(&schema, &schema, &document), None, "{name}");
        files += 1;
        let entries = document.as_object().expect("a mapping");
        let mut more = document.clone();
        more["bandwith"] = "1 GB/s".into();
        assert!(complaint(&schema, &schema, &more).is_some(), "{name} with another key");
        // What the reader needs, the schema needs, and what the schema does not need, the reader
        // does not.
        for key in entries.keys() {
            let mut fewer = document.clone();
            fewer.as_object_mut().expect("a mapping").shift_remove(key);
            let read = Profile::from_yaml(&fewer.to_string(), "file.yaml");
            let complained = complaint(&schema, &schema, &fewer);
            // Rules that join two keys are the reader's alone.
            assert!(complained.is_none() || read.is_err(), "{name} without {key}: {complained:?}");
            refused += usize::from(complained.is_some());
        }
    }
    assert!(files > 400 && refused > 1000, "{files} {refused}");
}
