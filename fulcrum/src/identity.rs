//! The identities of long tasks, sweeps and their points, as text that does not depend on the names
//! of types: JSON with sorted keys, and its SHA-256.

use hwprofiles::hexadecimal;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The version of this program and what its build was made of. Builds of one version differ, and so
/// do their answers.
pub(crate) const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("FULCRUM_BUILD"));

/// The same of a build that runs models: of its kernels and its executor too.
#[cfg(feature = "run")]
pub(crate) const RUN_BUILD: &str =
    concat!(env!("CARGO_PKG_VERSION"), "+", env!("FULCRUM_BUILD"), "+", env!("FULCRUM_RUN_BUILD"));

/// Hexadecimal digits of a digest that tables and journals show.
pub(crate) const SHORT: usize = 16;

/// The first 32 hexadecimal digits of the SHA-256 of `value`. The order of keys does not matter.
pub(crate) fn digest(value: &Value) -> String {
    let mut text = String::new();
    write_sorted(value, &mut text);
    hexadecimal(&Sha256::digest(text.as_bytes())[..16])
}

/// The first digits of [`digest`].
pub(crate) fn short_digest(value: &Value) -> String {
    digest(value)[..SHORT].to_owned()
}

fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(entries) => {
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (key, value) in sorted {
                *text += &Value::from(key.as_str()).to_string();
                text.push(':');
                write_sorted(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for value in values {
                write_sorted(value, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => *text += &plain.to_string(),
    }
}

/// A scenario's document with `settings` at their dotted paths, without the sections that are not
/// about a single scenario.
pub(crate) fn document<'v>(root: &Value, settings: impl Iterator<Item = (&'v str, &'v Value)>) -> Value {
    let mut document = root.clone();
    if let Value::Object(entries) = &mut document {
        for section in ["sweep", "capacity"] {
            entries.shift_remove(section);
        }
    }
    for (key, value) in settings {
        let mut here = &mut document;
        for step in key.split('.') {
            // A setting that has no place makes the scenario invalid, and such an answer is not
            // kept.
            if !here.is_object() {
                *here = Value::Object(Map::new());
            }
            let Value::Object(entries) = here else { break };
            here = entries.entry(step).or_insert(Value::Null);
        }
        *here = value.clone();
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_keys_does_not_matter_and_everything_else_does() {
        let one = json!({"a": 1, "b": {"c": [1, 2], "d": "x"}});
        assert_eq!(digest(&one), digest(&json!({"b": {"d": "x", "c": [1, 2]}, "a": 1})));
        for other in [
            json!({"a": 1.0, "b": {"c": [1, 2], "d": "x"}}),
            json!({"a": 1, "b": {"c": [2, 1], "d": "x"}}),
            json!({"a": 1, "b": {"c": [1, 2]}, "d": "x"}),
            json!({"a": "1", "b": {"c": [1, 2], "d": "x"}}),
        ] {
            assert_ne!(digest(&one), digest(&other), "{other}");
        }
    }

    #[test]
    fn a_value_is_the_same_whether_the_file_or_a_setting_has_it() {
        let file = json!({"workload": {"batch": 8, "requests": 240}, "sweep": {"workload.batch": [1]}});
        let value = json!(240);
        let set = document(
            &json!({"workload": {"batch": 8, "requests": 1}}),
            [("workload.requests", &value)].into_iter(),
        );
        assert_eq!(digest(&document(&file, std::iter::empty())), digest(&set));
    }
}
