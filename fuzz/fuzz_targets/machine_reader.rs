//! Any text is read or refused, never a panic; a machine that is read is written and read back the
//! same.
#![no_main]

use hwprofiles::{Machine, Profile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(Profile::Machine(machine)) = Profile::from_yaml(text, "fuzz") {
        let written = machine.to_yaml();
        assert_eq!(Machine::from_yaml(&written, "written"), Ok(machine), "{written}");
    }
});
