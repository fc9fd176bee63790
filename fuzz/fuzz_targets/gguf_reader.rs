//! Any bytes are read or refused, never a panic, and no more memory than they have.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scenarios::{Gguf, Model};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(gguf) = Gguf::from_reader("fuzz", bytes, bytes.len() as u64) {
        let _ = Model::from_gguf("fuzz", "fuzz", &gguf);
    }
});
