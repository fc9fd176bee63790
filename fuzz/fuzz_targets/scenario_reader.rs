//! Any text is read or refused, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scenarios::Document;

fuzz_target!(|text: &str| {
    let _ = Document::from_yaml("fuzz", text).and_then(|document| document.scenario());
});
