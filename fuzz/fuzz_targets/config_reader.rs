//! Any text is read or refused, never a panic; a model that is read is written and read back the
//! same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scenarios::Model;

fuzz_target!(|text: &str| {
    if let Ok(model) = Model::from_config_json("fuzz", "fuzz", text) {
        let written = model.to_config_json();
        assert_eq!(Model::from_config_json("fuzz", "written", &written).unwrap(), model, "{written}");
    }
});
