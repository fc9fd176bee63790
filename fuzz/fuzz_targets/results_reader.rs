//! Any text is read or refused, never a panic, and what is read makes a page.
#![no_main]

use libfuzzer_sys::fuzz_target;
use reports::Validation;

fuzz_target!(|text: &str| {
    if let Ok(validation) = Validation::parse(text, "fuzz".as_ref()) {
        let _ = validation.to_html();
    }
});
