//! The reader of documents: it reads what the YAML crate reads, and says where something is wrong.

use hwprofiles::yaml::{read, read_value, top_keys};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The value of a text by the YAML crate's own reader.
fn reference(text: &str) -> Option<Value> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::Reject,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).ok()
}

#[test]
fn shipped_profiles_are_read_as_the_yaml_crate_reads_them() {
    for (name, text) in hwprofiles::shipped() {
        assert_eq!(read::<Value>(text, name).ok(), reference(text), "{name}");
    }
}

#[test]
fn scalars_aliases_and_merges_stand_for_what_yaml_says() {
    let cases = [
        ("0x1F", json!(31)),
        ("-0o17", json!(-15)),
        ("1_000", json!(1000)),
        ("18446744073709551615", json!(u64::MAX)),
        ("1e3", json!(1000.0)),
        ("yes", json!("yes")),
        ("True", json!(true)),
        ("~", json!(null)),
        ("'~'", json!("~")),
        ("!!str 5", json!("5")),
        ("2026-11-21", json!("2026-11-21")),
        ("{a: &x [1, 2], b: *x}", json!({"a": [1, 2], "b": [1, 2]})),
        ("{a: &x {k: 1, l: 2}, b: {k: 3, <<: *x}}", json!({"a": {"k": 1, "l": 2}, "b": {"k": 3, "l": 2}})),
        ("a: |\n  one\n  two\n", json!({"a": "one\ntwo\n"})),
        ("{\"a\": [true, null, \"\\u00e9\"]}", json!({"a": [true, null, "é"]})),
    ];
    for (text, wanted) in cases {
        assert_eq!(read::<Value>(text, "t").ok(), Some(wanted.clone()), "{text}");
        assert_eq!(reference(text), Some(wanted), "{text}");
    }
}

#[test]
fn what_is_no_document_is_refused_at_its_place() {
    let deep = "[".repeat(70) + &"]".repeat(70);
    let cases = [
        ("a: 1\na: 2\n", "t:2:1: the key 'a' is given twice: keep one"),
        ("a: 1\n---\nb: 2\n", "t:2:1: a second document begins here: keep one"),
        ("a: {b: .inf}", "t:1:8: a.b: value `.inf` is not a finite number"),
        ("a: 1e999", "t:1:4: a: value `1e999` is not a finite number"),
        ("a: !speed 5", "t:1:11: a: the tag !speed has no meaning here: leave it out"),
        ("[1, 2]: 3", "t:1:1: a key is a text, not a list or a map"),
        ("a: *b", "t:1:4: while parsing node, found unknown anchor"),
        ("a: &b [*b]", "t:1:8: a.0: this alias stands for a value that it is a part of"),
        (&deep, "lists and maps nest more than 64 deep"),
    ];
    for (text, words) in cases {
        let message = read::<Value>(text, "t").unwrap_err().to_string();
        assert!(message.contains(words), "{text}: {message}");
    }
    assert_eq!(top_keys("b: 1\na: {c: 2}\n", "t"), Ok(vec!["b".to_owned(), "a".to_owned()]));
    assert!(top_keys("- a", "t").unwrap_err().message.contains("where keys are expected"));
}

#[test]
fn a_value_that_json_holds_is_read_with_the_same_messages_and_its_key() {
    type Rates = BTreeMap<String, Vec<hwprofiles::Seconds>>;
    let value = json!({"a": ["2 us", "3 ms"]});
    assert_eq!(read_value::<Rates>(&value, "t").unwrap()["a"][0], hwprofiles::Seconds::new(2e-6));
    let error = read_value::<Rates>(&json!({"a": ["2 us", 3]}), "t").unwrap_err();
    assert_eq!((error.key.as_str(), error.line), ("a.1", 0));
    assert!(error.message.starts_with("'3' is not a duration: the unit is missing"), "{error}");
    let error = read_value::<Rates>(&json!({"a": {}}), "t").unwrap_err();
    assert!(error.message.starts_with("'{…}' stands where a list is expected"), "{error}");
}

/// Texts, numbers, lists and maps in each other.
fn values() -> impl Strategy<Value = Value> {
    let text = "\\PC{0,6}|[\\x00-\\x7f]{0,12}|[a-z: ]{0,9}|\t{90,400}";
    let scalar =
        prop_oneof![text.prop_map(Value::from), any::<i32>().prop_map(Value::from), Just(Value::Null)];
    scalar.prop_recursive(3, 16, 4, move |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
        let map = proptest::collection::btree_map(text, inner, 0..4);
        prop_oneof![list, map.prop_map(|map| Value::Object(map.into_iter().collect()))]
    })
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn what_is_written_is_read_again(value in values()) {
        let written = hwprofiles::yaml::write(&value);
        prop_assert_eq!(read::<Value>(&written, "t"), Ok(value), "{}", written);
    }

    #[test]
    fn what_both_readers_accept_they_read_alike(text in "[-{}:,\\[\\]&*!|>%'\" \n0-9a-cx.~]{0,30}") {
        if let (Ok(ours), Some(theirs)) = (read::<Value>(&text, "t"), reference(&text)) {
            prop_assert_eq!(ours, theirs, "{}", text);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*|[\\x00-\\x7f]{0,200}") {
        if let Err(error) = read::<Value>(&text, "t") {
            prop_assert!(!error.message.is_empty() && !error.to_string().contains('\n'), "{}", error);
        }
    }
}
