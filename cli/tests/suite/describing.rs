//! The command described for editors and for `man`.

use crate::place::Place;
use serde_json::Value;

#[test]
fn the_schema_has_the_keys_of_a_scenario_and_every_command_a_manual_page() {
    let place = Place::with(&[]);
    let schema: Value = serde_json::from_str(&place.stdout("schema")).expect("JSON");
    assert!(schema["properties"]["workload"]["anyOf"][0]["properties"]["batch"]["description"].is_string());
    assert_eq!(schema["additionalProperties"], false);
    let machine: Value = serde_json::from_str(&place.stdout("schema machine")).expect("JSON");
    assert!(machine["$defs"]["GpuPart"]["properties"]["bandwidth"]["description"].is_string());
    place.stdout("manual pages");
    let page = |name: &str| {
        let path = place.path(&format!("pages/{name}.1"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    assert!(page("fulcrum").contains("fulcrum\\-plan(1)"));
    for (name, option) in [("fulcrum-plan", "\\-\\-front"), ("fulcrum-model-show", "model")] {
        assert!(page(name).contains(option), "{name}: {}", page(name));
    }
}
